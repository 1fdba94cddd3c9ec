"""Pictures of a surface for people: shaded, normals, errors as colours, wire frame, texture.

In: an engine, a mesh, matrices. Out: linear pictures. One rasterization per view serves them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dressi.errors import GraphError
from dressi.render.fit.texel_system import taps
from dressi.render.fit.views import Evaluator, Size, ViewRaster, checked_matrices, view_rasters
from dressi.render.io.heat import heat_colors
from dressi.render.io.images import srgb_to_linear
from dressi.render.scene import Mesh, vertex_normals

Floats = npt.NDArray[np.float64]
Pictures = npt.NDArray[np.float32]

LINE_PX = 1.0
"""Width of the lines of a wire frame."""
DENSE_PX = 6.0
"""Height of a triangle below which its lines become fainter, so that a dense mesh is not black."""


@dataclass(frozen=True)
class SurfacePictures:
    """What ``surface_pictures`` gives, each (views, H, W, 3) linear over white, or None where its
    input was not given.

    shaded: Lambert, grey, smooth normals, a light beside the eye. normals: normals n in the camera
    (x right, y up, z to the eye), drawn as the sRGB values (n + 1) / 2. wire: the edges of faces
    over ``shaded``. error: ``heat_colors`` of the values, slightly shaded. texture: unlit.
    """

    shaded: Pictures
    normals: Pictures
    wire: Pictures
    error: Pictures | None
    texture: Pictures | None


def surface_pictures(
    ad: Evaluator,
    mesh: Mesh,
    matrices: npt.ArrayLike,
    size: Size,
    values: npt.ArrayLike | None = None,
    limit: float = 1.0,
    texture: npt.ArrayLike | None = None,
    supersample: int = 2,
    background: float = 1.0,
) -> SurfacePictures:
    """Draw a mesh from several views.

    ad: evaluates the rasterizations, a ``DressiAD``. matrices: (views, 4, 4) world to clip. size:
    (width, height) in pixels. values: (V,) one per vertex, for ``error``, with limit the value that
    is darkest. texture: (H, W, C) linear, C = 1 or 3, read bilinearly and clamped; needs uvs.
    supersample: samples per pixel along each side. background: linear grey. Raises GraphError (bad
    mesh, shapes, a texture without uvs).
    """
    views = checked_matrices("surface_pictures", matrices)
    table = None if values is None else np.asarray(values, np.float64).reshape(-1, 1)
    if table is not None and len(table) != len(mesh.positions):
        raise GraphError(
            f"surface_pictures needs a value per vertex: {len(table)} values, "
            f"{len(mesh.positions)} vertices"
        )
    albedo = None if texture is None else np.asarray(texture, np.float64)
    if albedo is not None and (albedo.ndim != 3 or albedo.shape[2] not in (1, 3)):
        raise GraphError(f"surface_pictures needs a texture (H, W, 3), got {albedo.shape}")
    if albedo is not None and mesh.uvs is None:
        raise GraphError(f"surface_pictures: mesh '{mesh.name}' has a texture but no uvs")
    fine = (size[0] * supersample, size[1] * supersample)
    normals = vertex_normals(mesh.positions, mesh.faces)
    drawn: dict[str, list[Floats]] = {}
    for raster, matrix in zip(view_rasters(ad, mesh, views, fine), views, strict=True):
        normal = raster.interpolate(normals, mesh.faces)
        normal /= np.maximum(np.linalg.norm(normal, axis=2, keepdims=True), 1e-12)
        light = _headlight(raster, mesh, matrix, normal)
        lines = _lines(raster, mesh, matrix, LINE_PX * supersample)[..., None]
        shades: dict[str, npt.NDArray] = {
            "shaded": np.repeat(0.8 * light, 3, axis=2),
            "normals": srgb_to_linear(0.5 + 0.5 * normal @ _camera_axes(matrix).T),
            "wire": 0.8 * light * (1.0 - 0.85 * lines) * np.ones(3),
        }
        if table is not None:
            value = raster.interpolate(table, mesh.faces)[..., 0]
            shades["error"] = heat_colors(value, limit) * (0.7 + 0.3 * light)
        if albedo is not None and mesh.uvs is not None:
            shades["texture"] = _read(albedo, raster.interpolate(mesh.uvs, mesh.corner_faces))
        for name, shade in shades.items():
            over = np.where(raster.ids[..., None] >= 0, shade, background)
            drawn.setdefault(name, []).append(_means(over, supersample))
    stacks = {name: np.stack(images).astype(np.float32) for name, images in drawn.items()}
    return SurfacePictures(
        stacks["shaded"],
        stacks["normals"],
        stacks["wire"],
        stacks.get("error"),
        stacks.get("texture"),
    )


def _means(image: Floats, s: int) -> Floats:
    height, width, channels = image.shape
    return np.asarray(image.reshape(height // s, s, width // s, s, channels).mean(axis=(1, 3)))


def _read(texture: Floats, uv: Floats) -> Floats:
    height, width, channels = texture.shape
    texel, weight = taps(uv, (width, height))
    colour = np.einsum("hwk,hwkc->hwc", weight, texture.reshape(-1, channels)[texel])
    return colour * np.ones(3)


def _camera_axes(matrix: Floats) -> Floats:
    """(3, 3): unit vectors to the right, up and to the eye in the world, as rows."""
    rows = np.stack([matrix[0, :3], -matrix[1, :3]])  # clip y points down
    right, up = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.stack([right, up, np.cross(right, up)])


def _headlight(raster: ViewRaster, mesh: Mesh, matrix: Floats, normal: Floats) -> Floats:
    """(H, W, 1) in [0, 1]: Lambert from the upper left of the eye, both sides of faces alike."""
    places = raster.interpolate(mesh.positions, mesh.faces)
    eye = np.linalg.svd(matrix[[0, 1, 3]])[2][3]  # homogeneous
    to_eye = eye[:3] - eye[3] * places
    to_eye /= np.maximum(np.linalg.norm(to_eye, axis=2, keepdims=True), 1e-12)
    right, up, back = _camera_axes(matrix)
    facing = (to_eye * back).sum(axis=2, keepdims=True)
    to_eye = np.where(facing < 0.0, -to_eye, to_eye)  # the null vector has either sign
    light = to_eye - 0.35 * right + 0.45 * up
    light /= np.linalg.norm(light, axis=2, keepdims=True)
    side = np.where((normal * to_eye).sum(axis=2, keepdims=True) < 0.0, -1.0, 1.0)
    cosine = (side * normal * light).sum(axis=2, keepdims=True)
    return np.asarray(0.12 + 0.88 * np.clip(cosine, 0.0, 1.0))


def _lines(raster: ViewRaster, mesh: Mesh, matrix: Floats, width_px: float) -> Floats:
    """(H, W) coverage of each pixel by an edge of its face."""
    height, width = raster.ids.shape
    clip = mesh.positions.astype(np.float64) @ matrix[:, :3].T + matrix[:, 3]
    w = np.where(clip[:, 3:] > 0.0, clip[:, 3:], np.nan)  # behind the eye: no lines
    at = clip[:, :2] / w * (0.5 * width, 0.5 * height)
    a, b, c = np.moveaxis(at[mesh.faces], 1, 0)
    u, v = b - a, c - a
    area2 = np.abs(u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0])
    sides = np.stack([np.linalg.norm(e, axis=1) for e in (c - b, a - c, b - a)], axis=1)
    heights = np.nan_to_num(area2[:, None] / np.maximum(sides, 1e-9))
    face = np.maximum(raster.ids, 0)
    # Weights on the screen from weights on the face.
    weights = raster.bary * np.nan_to_num(w[mesh.faces, 0])[face]
    weights /= np.maximum(weights.sum(axis=2, keepdims=True), 1e-12)
    distance = (weights * heights[face]).min(axis=2)
    line = np.clip(0.5 * width_px + 0.5 - distance, 0.0, 1.0)
    faint = np.clip(heights.min(axis=1) / (DENSE_PX * width_px / LINE_PX), 0.0, 1.0)
    return np.where(raster.ids >= 0, line * faint[face], 0.0)


def rows_of(pictures: SurfacePictures) -> dict[str, Sequence[Pictures]]:
    """Return the pictures that there are as rows of ``contact_sheet``, by their names."""
    named = {
        "texture": pictures.texture,
        "shaded": pictures.shaded,
        "normals": pictures.normals,
        "error": pictures.error,
        "wire frame": pictures.wire,
    }
    return {name: list(stack) for name, stack in named.items() if stack is not None}
