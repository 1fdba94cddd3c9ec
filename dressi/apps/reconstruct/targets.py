"""Objects of files, or made by code, and pictures of them to reconstruct from.

In: a scene. Out: ``Target``: triangles in the world with the colours of all materials, and
``Pictures`` of it: coverage, mean normals, albedo and depth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dressi.ad import F
from dressi.apps.reconstruct.pictures import Floats, Pictures
from dressi.engine import DressiAD
from dressi.errors import GraphError, LoadError
from dressi.render.camera import Camera
from dressi.render.io.files import load_scene
from dressi.render.io.sources import PathLike
from dressi.render.raster import build_hardsoftras
from dressi.render.scene import Mesh, Scene, joined, scene_of, welded
from dressi.render.scene.flat import Instance
from dressi.render.scene.mesh import face_normals
from dressi.render.scene.parts import TextureRef
from dressi.testing.views import mesh_leaves, send_mesh
from dressi.threads import in_threads

SUPERSAMPLE = 3
"""Samples per pixel along x and y: steps of coverage of 1/9."""


@dataclass(frozen=True, eq=False)
class Target:
    """What is to be reconstructed. mesh: all triangles in the world, vertices at one place joined,
    no UVs; its faces are in the order of the instances'. scene: where colours come from.
    notes: what the reader of the file left out."""

    mesh: Mesh
    scene: Scene
    notes: tuple[str, ...] = ()

    @property
    def diagonal(self) -> float:
        """Of the box, world units."""
        return float(np.linalg.norm(np.ptp(self.mesh.positions, axis=0)))


def target_of(scene: Scene, name: str | None = None) -> Target:
    """Return the target of a scene. Raises GraphError where it has no triangle with an area."""
    parts = [replace(i.world_mesh(), uvs=None, uv_faces=None) for i in scene.instances()]
    mesh = joined([welded(part) for part in parts])
    mesh = replace(mesh, name=name or scene.name or "target").check()
    if not np.ptp(mesh.positions[mesh.faces.reshape(-1)], axis=0).max() > 0.0:
        raise GraphError(f"mesh '{mesh.name}' has no extent: all its vertices coincide")
    return Target(mesh, scene, tuple(scene.notes))


def target_of_mesh(mesh: Mesh, texture: npt.ArrayLike | None = None) -> Target:
    """Return the target of one mesh. texture: (H, W, 3) linear, needs UVs; None: white."""
    return target_of(scene_of(mesh, texture), mesh.name)


def load_target(path: PathLike) -> Target:
    """Return the target of a .gltf, .glb, .obj, .ply or .stl file. Raises LoadError."""
    scene = load_scene(path)
    try:
        return target_of(scene)
    except GraphError as error:
        raise LoadError(f"{path}: {error.reason}", str(path)) from None


def draw(
    target: Target,
    cameras: Sequence[Camera],
    size: int,
    device: str | int | None = None,
    supersample: int = SUPERSAMPLE,
) -> Pictures:
    """Return pictures of a target, square, ``size`` pixels on a side.

    Normals are those of faces, turned to the eye: surfaces that are open show both sides. Alpha is
    left out: all is opaque.
    """
    s, instances = supersample, target.scene.instances()
    starts = np.cumsum([0] + [len(i.faces) for i in instances])
    mesh, big = target.mesh, (size * s, size * s)
    normals = face_normals(mesh.positions, mesh.faces)
    leaves = mesh_leaves(mesh, 1)

    def picture(seen: tuple[Camera, Floats]) -> dict[str, Floats]:
        camera, at = seen[0], seen[1].reshape(-1, 4)
        inside = np.flatnonzero(at[:, 0] >= 0.0)
        ids, bary = at[inside, 0].astype(np.int64), at[inside, 1:]
        places = np.einsum("nk,nkd->nd", bary, mesh.positions[mesh.faces[ids]])
        normal = normals[ids]
        away = np.einsum("nd,nd->n", normal, camera.eye - places) < 0.0
        values = {
            "coverage": np.ones((len(ids), 1)),
            "normals": np.where(away[:, None], -normal, normal),
            "colour": _colours(target.scene, instances, starts, ids, bary),
            "depth": places @ camera.matrix[3:, :3].T + camera.matrix[3, 3],
        }
        row, column = np.divmod(inside, size * s)
        pixel = row // s * size + column // s
        return {name: _means(value, pixel, size, s * s) for name, value in values.items()}

    def seen_by(ad: DressiAD) -> Iterator[tuple[Camera, Floats]]:
        # All rims: targets need no table of neighbours, so that edges of three faces are no error.
        hs = build_hardsoftras(leaves.pos, leaves.faces, leaves.matrix, big, 0.0, rims="all")
        peel = hs.peels[0]
        ids = F.where(hs.hard, F.to_float(peel.ids), -1.0)
        both = F.vec4(ids, peel.bary)
        send_mesh(ad, leaves, mesh, cameras[0].matrix32[None])
        for camera in cameras:
            ad.send_img(leaves.matrix, camera.matrix32)
            yield camera, ad.recv_img(both)

    with DressiAD(device) as ad:
        images = in_threads(picture, seen_by(ad))
    stacks = {name: np.stack([image[name] for image in images]) for name in images[0]}
    whole = stacks["coverage"] > 0.999
    # Depth at a silhouette would be a mean of two surfaces' and is left open.
    stacks["depth"] = np.where(whole, stacks["depth"], 0.0).astype(np.float32)
    return Pictures(np.stack([c.matrix for c in cameras]), **stacks)


def _means(values: Floats, pixel: npt.NDArray[np.int64], size: int, n: int) -> Floats:
    """Return (size, size, C) sums of the values, (N, C), of each pixel over n."""
    sums = [np.bincount(pixel, column, minlength=size * size) for column in values.T]
    return (np.stack(sums, axis=1) / n).reshape(size, size, -1).astype(np.float32)


def _colours(
    scene: Scene,
    instances: list[Instance],
    starts: npt.NDArray[np.int64],
    ids: npt.NDArray[np.int64],
    bary: Floats,
) -> Floats:
    """Return (N, 3) albedo at places on faces: factor times vertex colours times texture. starts:
    the first face of each instance."""
    colours = np.zeros((len(ids), 3), np.float32)
    owner = np.searchsorted(starts, ids, side="right") - 1
    for k in np.unique(owner):
        rows, one = np.flatnonzero(owner == k), instances[k]
        corners, weights = one.faces[ids[rows] - starts[k]], bary[rows]
        colour = np.tile(np.asarray(one.material.base_color[:3], np.float64), (len(rows), 1))
        ref, primitive = one.material.base_color_map, one.primitive
        if primitive.colors is not None:
            colour *= np.einsum("nk,nkc->nc", weights, primitive.colors[corners, :3])
        if ref is not None and ref.uv_set < len(primitive.uvs):
            uv = np.einsum("nk,nkc->nc", weights, primitive.uvs[ref.uv_set][corners])
            colour *= texels(scene.images[ref.image].pixels, ref, uv)
        colours[rows] = colour
    return colours


def texels(pixels: Floats, ref: TextureRef, uv: npt.NDArray[np.floating]) -> npt.NDArray:
    """Return (N, 3) bilinear reads of an image. pixels: (H, W, C), grey for C < 3. uv: (N, 2) of
    the primitive; the transform and the wraps of ``ref`` are applied."""
    height, width, channels = pixels.shape
    uv = uv @ ref.uv_matrix[:2, :2].T + ref.uv_matrix[:2, 2]
    taps = []
    for k, (n, wrap) in enumerate(((width, ref.wrap_u), (height, ref.wrap_v))):
        at = uv[:, k] * n - 0.5
        first = np.floor(at).astype(np.int64)
        taps.append(
            ((_wrapped(first, n, wrap), _wrapped(first + 1, n, wrap)), (at - first)[:, None])
        )
    (columns, a), (rows, b) = taps
    top = pixels[rows[0], columns[0]] * (1.0 - a) + pixels[rows[0], columns[1]] * a
    low = pixels[rows[1], columns[0]] * (1.0 - a) + pixels[rows[1], columns[1]] * a
    value = top * (1.0 - b) + low * b
    return value[:, :3] if channels >= 3 else np.repeat(value[:, :1], 3, axis=1)


def _wrapped(index: npt.NDArray[np.int64], n: int, wrap: str) -> npt.NDArray[np.int64]:
    """Return texel numbers inside of [0, n)."""
    if wrap == "clamp":
        return np.clip(index, 0, n - 1)
    if wrap == "mirror":
        index = index % (2 * n)
        return np.where(index < n, index, 2 * n - 1 - index)
    return index % n
