"""The texture that pictures determine: solved, not descended to.

In: a mesh with UVs, pictures, masks, matrices. Out: a texture, and which texels are seen. A pixel
is the mean of bilinear reads, so the texture that explains all pixels best is the solution of a
sparse linear system; its rows come from one rasterization per view.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.ndimage import distance_transform_edt
from scipy.sparse import diags

from dressi.errors import GraphError
from dressi.render.fit.fill import fill_seams, push_pull
from dressi.render.fit.texel_system import (
    conjugate_gradients,
    neighbour_differences,
    reads,
    seam_differences,
)
from dressi.render.fit.views import (
    Evaluator,
    Size,
    ViewRaster,
    chart_texels,
    checked_matrices,
    view_rasters,
)
from dressi.render.scene import Mesh, face_normals
from dressi.threads import MOST, in_threads

Floats = npt.NDArray[np.float64]

INSIDE = 0.99
"""Mask above which a pixel shows nothing but the object: 8 bits and a rounding below 1."""
LEAST_WEIGHT = 0.02
"""Of pixels beside an outline or seen edge-on: they count where no better pixel does."""
JUMP_PX = 4.0
"""Distance of a pixel from its neighbour's tangent plane, in widths of a pixel, from which on there
is an outline between them; creases of faces that are seen at 14 degrees or more stay below."""
SEAM = 0.1
"""Weight of equal colours on the two sides of a seam, per place, beside that of a mean texel."""
SEEN = 1e-3
"""Weight of its pixels from which on a texel counts as seen, beside that of a mean texel."""
ITERATIONS, TOLERANCE = 400, 1e-5
"""Of conjugate gradients: below half a step of 8 bits."""


def bake_texture(
    ad: Evaluator,
    mesh: Mesh,
    images: npt.ArrayLike,
    masks: npt.ArrayLike | None,
    matrices: npt.ArrayLike,
    size: Size = (1024, 1024),
    smoothness: float = 1e-2,
    supersample: int = 2,
    feather_px: float = 2.0,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """Return the texture (H, W, 3) that explains the pictures best, and the texels seen, (H, W).

    ad: evaluates the rasterizations, a ``DressiAD``. mesh: with uvs in [0, 1] whose charts do not
    overlap (``unwrap``). images: (views, H, W, 3) linear, unlit. masks: (views, H, W) or (views, H,
    W, 1), 1 where a pixel shows the object only; None: all. matrices: (views, 4, 4) world to clip.
    size: (width, height) in texels. smoothness: weight of equal neighbours beside that of a mean
    texel's pixels; it fills what no view sees, smoothly across charts, and keeps magnified texels
    from noise. supersample: reads per pixel along each side, for pictures that are box-filtered.
    feather_px: pixels from an outline over which the weight rises to 1; outlines within the object
    count too. Pixels that the mesh or the mask covers in part only are left out; weights fall with
    the square of the cosine at which a face is seen.

    The result is the minimum of a sum of squares, by conjugate gradients from a push-pull start,
    clipped to the range of the pictures. Texels outside of all charts take the nearest within.
    Raises GraphError (bad mesh, no UVs, shapes, numbers, no pixel shows the mesh).
    """
    pictures, inside = _checked(images, masks)
    views = checked_matrices("bake_texture", matrices)
    if len(views) != len(pictures):
        raise GraphError(f"bake_texture: {len(pictures)} images but {len(views)} matrices")
    if not (smoothness > 0.0 and supersample >= 1 and feather_px > 0.0):
        raise GraphError(
            "bake_texture needs smoothness > 0, supersample >= 1 and feather_px > 0, got "
            f"{smoothness}, {supersample}, {feather_px}"
        )
    texel_faces = chart_texels(ad, mesh, size)
    uvs = mesh.uvs
    assert uvs is not None  # chart_texels refuses a mesh without
    height, width = pictures.shape[1:3]
    rasters = view_rasters(ad, mesh, views, (width * supersample, height * supersample))

    def equations(
        view: tuple[ViewRaster, Floats, Floats, npt.NDArray[np.bool_]],
    ) -> tuple[Any, Floats]:
        raster, matrix, picture, mask = view
        weight = _weights(raster, mesh, matrix, mask, supersample, feather_px)
        shown = weight > 0.0
        uv = _blocks(raster.interpolate(uvs, mesh.corner_faces), supersample)
        rows = reads(uv[shown], size)
        weighted = rows.T @ diags(weight[shown])
        return weighted @ rows, weighted @ picture[shown]

    seen_in = zip(rasters, views, pictures, inside, strict=True)
    parts: list[tuple[Any, Floats]] = []
    for _ in range(0, len(views), MOST):  # no more at a time: each is about as large as the sum
        parts = [_summed(parts + in_threads(equations, islice(seen_in, MOST)))]
    normal, rhs = parts[0]
    diagonal = normal.diagonal()
    if not diagonal.any():
        raise GraphError(f"bake_texture: no pixel shows mesh '{mesh.name}' inside its mask")
    typical = float(diagonal[diagonal > 0.0].mean())
    seen = (diagonal > SEEN * typical).reshape(size[1], size[0])
    start = push_pull(
        (rhs / np.where(diagonal, diagonal, 1.0)[:, None]).reshape(*seen.shape, 3), seen
    )
    flat, seams = neighbour_differences(texel_faces, mesh), seam_differences(mesh, size)
    prior = (smoothness * typical) * (flat.T @ flat) + (SEAM * typical) * (seams.T @ seams)
    system, first = normal + prior, start.reshape(-1, 3).astype(np.float64)
    channels = zip(np.split(rhs, 3, axis=1), np.split(first, 3, axis=1), strict=True)
    solved = np.concatenate(
        in_threads(lambda c: conjugate_gradients(system, *c, ITERATIONS, TOLERANCE), channels),
        axis=1,
    )
    texture = np.clip(solved, pictures.min(), pictures.max()).reshape(*seen.shape, 3)
    return fill_seams(texture, texel_faces >= 0), seen & (texel_faces >= 0)


def _summed(parts: list[tuple[Any, Floats]]) -> tuple[Any, Floats]:
    """Return the sums of the first and of the second ones, in pairs: a sum of many is as large as
    all of them, and each sum walks all that it is of."""

    def both(pair: list[tuple[Any, Floats]]) -> tuple[Any, Floats]:
        return pair[0] if len(pair) == 1 else (pair[0][0] + pair[1][0], pair[0][1] + pair[1][1])

    while len(parts) > 1:
        parts = in_threads(both, [parts[i : i + 2] for i in range(0, len(parts), 2)])
    return parts[0]


def _checked(
    images: npt.ArrayLike, masks: npt.ArrayLike | None
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    pictures = np.asarray(images, dtype=np.float64)
    if pictures.ndim != 4 or pictures.shape[3] != 3 or pictures.size == 0:
        raise GraphError(f"bake_texture needs images (views, H, W, 3), got {pictures.shape}")
    if not np.isfinite(pictures).all():
        raise GraphError("bake_texture: the images hold values that are not finite")
    if masks is None:
        return pictures, np.ones(pictures.shape[:3], dtype=bool)
    inside = np.asarray(masks)
    inside = inside[..., 0] if inside.ndim == 4 and inside.shape[3] == 1 else inside
    if inside.shape != pictures.shape[:3]:
        raise GraphError(f"bake_texture needs masks of {pictures.shape[:3]}, got {np.shape(masks)}")
    return pictures, inside > INSIDE


def _blocks(image: npt.NDArray, s: int) -> npt.NDArray:
    """(sH, sW, C) as (H, W, s * s, C): the samples of each pixel."""
    height, width, channels = image.shape
    split = image.reshape(height // s, s, width // s, s, channels)
    return split.swapaxes(1, 2).reshape(height // s, width // s, s * s, channels)


def _weights(
    raster: ViewRaster,
    mesh: Mesh,
    matrix: Floats,
    mask: npt.NDArray[np.bool_],
    supersample: int,
    feather_px: float,
) -> Floats:
    """(H, W) weights of the pixels of one view; 0 where a pixel shows more than the mesh."""
    ids = _blocks(raster.ids[..., None], supersample)[..., 0]
    whole = mask & (ids >= 0).all(axis=2)
    places = _blocks(raster.interpolate(mesh.positions, mesh.faces), supersample).mean(axis=2)
    normals = face_normals(mesh.positions, mesh.faces).astype(np.float64)[ids[..., 0]]
    # The eye, homogeneous: what the rows of x, y and w take to 0. At infinity its w is 0.
    eye = np.linalg.svd(matrix[[0, 1, 3]])[2][3]
    to_eye = eye[:3] - eye[3] * places
    cosine = np.abs((normals * to_eye).sum(axis=2)) / np.linalg.norm(to_eye, axis=2)
    w = places @ matrix[3, :3] + matrix[3, 3]
    pixel = 2.0 * np.abs(w) / (ids.shape[1] * np.linalg.norm(matrix[0, :3]))
    clear = whole & ~_outlines(places, normals, JUMP_PX * pixel)
    # Without any outline in the picture, every pixel is far from one.
    distance = distance_transform_edt(clear) if not clear.all() else np.full(clear.shape, np.inf)
    rising = np.clip((distance - 1.0) / feather_px, LEAST_WEIGHT, 1.0)
    return np.where(whole, rising * np.clip(cosine, LEAST_WEIGHT, 1.0) ** 2, 0.0)


def _outlines(places: Floats, normals: Floats, limit: Floats) -> npt.NDArray[np.bool_]:
    """(H, W): pixels with a neighbour beyond limit from their tangent plane, or the reverse."""
    found = np.zeros(limit.shape, dtype=bool)
    for axis in (0, 1):
        here = tuple(slice(None, -1) if k == axis else slice(None) for k in (0, 1))
        there = tuple(slice(1, None) if k == axis else slice(None) for k in (0, 1))
        step = places[there] - places[here]
        off = np.maximum(
            np.abs((step * normals[here]).sum(axis=2)), np.abs((step * normals[there]).sum(axis=2))
        )
        jump = off > np.minimum(limit[here], limit[there])
        found[here] |= jump
        found[there] |= jump
    return found
