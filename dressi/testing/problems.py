"""Optimization problems of known size, for tests and benchmarks: silhouettes to vertices, colours
to a texture.

In: a mesh, matrices, target images. Out: ``Problem``: the graph, and the data that an engine is
sent. Building one touches no device; the two functions that render targets do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dressi.ad import Adam, F, Variable, step_counter
from dressi.ad.autodiff import build_backward
from dressi.ad.graph import leaves as graph_leaves
from dressi.ad.optim import Optimizer
from dressi.ad.simplify import simplify
from dressi.ad.vtype import FLOAT, VEC3
from dressi.engine import DressiAD
from dressi.render.fit.losses import l2_loss, silhouette_loss
from dressi.render.fit.regularizers import laplacian_loss, laplacian_matrix, normal_consistency
from dressi.render.raster.antialias import build_antialias
from dressi.render.raster.hardsoftras import build_hardsoftras
from dressi.render.raster.peel import Peel
from dressi.render.scene.mesh import Mesh, icosphere
from dressi.render.shading import unlit
from dressi.testing.views import mesh_leaves, render, spread_views

Number = float | Variable

REACH = 0.02
"""r of the problems that are not annealed: 2.6 pixels at 128, where gradients of a fit in progress
are about half used up."""

LAPLACIAN = 10.0
"""Weight of mean |L v|^2 where nothing else is said."""


@dataclass(frozen=True, eq=False)
class Problem:
    """What an engine needs for whole iterations.

    data: leaves and what is sent to them before the first step. parameter: the leaf that is
    optimized. picture: what the loss compares (views). hard: FLOAT mask of the faces as they are,
    without a soft rim. r: FLOAT @ 1x1, the reach of the gradients.
    """

    loss: Variable
    optimizer: Optimizer
    data: Mapping[Variable, Any]
    parameter: Variable
    picture: Variable
    hard: Variable
    r: Variable

    def load(self, ad: DressiAD) -> None:
        """Set the loss and the optimizer of an engine and send it the data."""
        ad.set_loss_var(self.loss)
        ad.set_optimizer(self.optimizer)
        for leaf, array in self.data.items():
            ad.send_img(leaf, array)

    def graph(self) -> tuple[list[Variable], list[tuple[Variable, Variable]]]:
        """Return the outputs and updates of a step, simplified: what ``pack`` takes, with no
        device."""
        gradients = build_backward(self.loss)
        xs = list(gradients)
        updates = dict(zip(xs, self.optimizer(xs, [gradients[x] for x in xs]), strict=True))
        while True:  # states that the updates read are updated as well
            frontier = [self.loss, *updates.values()]
            found = {v: v.update for v in graph_leaves(frontier) if v.update is not None}
            if found.keys() <= updates.keys():
                break
            updates = {**found, **updates}
        loss, *new = simplify([self.loss, *updates.values()])
        return [loss], list(zip(updates, new, strict=True))


def _stack(images: np.ndarray) -> np.ndarray:
    """Return what ``send_img`` takes for a leaf with as many layers as there are images."""
    return images if len(images) > 1 else images[0]


def silhouette_problem(
    mesh: Mesh,
    matrices: np.ndarray,
    targets: np.ndarray,
    K: int = 1,
    r: Number = REACH,
    max_r: float = REACH,
    laplacian: Number = LAPLACIAN,
    bend: float = 0.0,
    adam: Adam | None = None,
    cull: bool = False,
) -> Problem:
    """Return the problem of vertices by silhouettes (HardSoftRas) with the uniform Laplacian.

    matrices: (views, 4, 4). targets: (views, H, W, 1) in [0, 1]. r: reach; a Variable may change
    from step to step, up to max_r. bend: weight of the normal consistency, 0: none. adam: default
    a learning rate of 1e-4, with which the shape, and so the work of a step, hardly changes while
    it is timed. cull: whether faces that are seen from their back are left out.
    """
    n_views, height, width = targets.shape[:3]
    leaves = mesh_leaves(mesh, n_views, requires_grad=True)
    radius = r if isinstance(r, Variable) else Variable(FLOAT, name="r")
    target = Variable(FLOAT, (width, height), n_views, name="target_silhouette")
    size = (width, height)
    hs = build_hardsoftras(
        leaves.pos, leaves.faces, leaves.matrix, size, radius, K, max_delta=max_r, cull=cull
    )
    matrix = laplacian_matrix(mesh.faces, len(mesh.positions))
    loss = silhouette_loss(hs.silhouette, target) + laplacian_loss(leaves.pos, matrix) * laplacian
    if bend:
        loss = loss + normal_consistency(leaves.pos, leaves.faces) * bend
    data: dict[Variable, Any] = {
        leaves.pos: mesh.positions,
        leaves.faces: mesh.faces,
        leaves.matrix: _stack(matrices),
        target: _stack(targets),
    }
    if not isinstance(r, Variable):
        data[radius] = r
    return Problem(loss, adam or Adam(1e-4), data, leaves.pos, hs.silhouette, hs.hard, radius)


def texture_problem(
    mesh: Mesh,
    matrices: np.ndarray,
    targets: np.ndarray,
    atlas_size: int,
    jitter: bool = False,
    lr: float = 0.01,
) -> Problem:
    """Return the problem of the albedo texture of a mesh by colours; its vertices stay.

    targets: (views, H, W, 3) linear over black. atlas_size: texels on a side; starts grey. jitter:
    a Sobol point per step shifts the projection within a pixel, so that everything is rasterized
    anew; without, nothing but the texture changes from step to step. The backward of the texture is
    exact.
    """
    n_views, height, width = targets.shape[:3]
    size = (width, height)
    leaves = mesh_leaves(mesh, n_views)
    assert leaves.uv is not None and leaves.uv_faces is not None, "the mesh has no UVs"
    albedo = Variable(VEC3, (atlas_size, atlas_size), requires_grad=True, name="albedo")
    target = Variable(VEC3, size, n_views, name="target_colour")
    shift = F.sobol(step_counter("jitter.step")) - 0.5 if jitter else None
    pixel = 1.0 / max(size)  # antialiasing mode: K = 1, one pixel
    hs = build_hardsoftras(leaves.pos, leaves.faces, leaves.matrix, size, pixel, jitter=shift)
    picture = hs.blend([unlit(hs.peels[0], leaves.uv, leaves.uv_faces, albedo, wrap="clamp")])
    data = {
        leaves.pos: mesh.positions,
        leaves.faces: mesh.faces,
        leaves.uv: mesh.uvs,
        leaves.uv_faces: mesh.corner_faces,
        leaves.matrix: _stack(matrices),
        target: _stack(targets),
        albedo: np.full((atlas_size, atlas_size, 3), 0.5, np.float32),
    }
    r = F.constant(pixel)
    return Problem(l2_loss(picture, target), Adam(lr), data, albedo, picture, hs.hard, r)


def colour_problem(
    mesh: Mesh,
    matrices: np.ndarray,
    targets: np.ndarray,
    atlas_size: int,
    antialias: bool = False,
    adam: Adam | None = None,
) -> Problem:
    """Return the problem of the vertices and the albedo texture of a mesh by colours.

    targets, atlas_size: as ``texture_problem`` has them. antialias: by antialiasing, which has
    edges inside the outline as well; else HardSoftRas with K = 1 and a reach of a pixel. Faces that
    are seen from their back are left out. The parameter of the problem is the texture.
    """
    n_views, height, width = targets.shape[:3]
    size = (width, height)
    leaves = mesh_leaves(mesh, n_views, requires_grad=True)
    assert leaves.uv is not None and leaves.uv_faces is not None, "the mesh has no UVs"
    albedo = Variable(VEC3, (atlas_size, atlas_size), requires_grad=True, name="albedo")
    target = Variable(VEC3, size, n_views, name="target_colour")
    geometry, pixel = (leaves.pos, leaves.faces, leaves.matrix, size), 1.0 / max(size)

    uv, uv_faces = leaves.uv, leaves.uv_faces

    def colour(peel: Peel) -> Variable:
        return unlit(peel, uv, uv_faces, albedo, wrap="clamp")

    if antialias:
        aa = build_antialias(*geometry, cull=True)
        picture, hard = aa.blend(colour(aa.peel)), aa.hard
    else:
        hs = build_hardsoftras(*geometry, pixel, cull=True)
        picture, hard = hs.blend([colour(hs.peels[0])]), hs.hard
    data = {
        leaves.pos: mesh.positions,
        leaves.faces: mesh.faces,
        leaves.uv: mesh.uvs,
        leaves.uv_faces: mesh.corner_faces,
        leaves.matrix: _stack(matrices),
        target: _stack(targets),
        albedo: np.full((atlas_size, atlas_size, 3), 0.5, np.float32),
    }
    loss, optimizer = l2_loss(picture, target), adam or Adam(1e-4)
    return Problem(loss, optimizer, data, albedo, picture, hard, F.constant(pixel))


def antialias_problem(
    mesh: Mesh,
    matrices: np.ndarray,
    targets: np.ndarray,
    adam: Adam | None = None,
    cull: bool = False,
) -> Problem:
    """Return the problem of vertices by silhouettes as ``silhouette_problem`` has them, by
    antialiasing.

    matrices: (views, 4, 4). targets: (views, H, W, 1) in [0, 1]. adam, cull: as there.
    """
    n_views, height, width = targets.shape[:3]
    leaves = mesh_leaves(mesh, n_views, requires_grad=True)
    target = Variable(FLOAT, (width, height), n_views, name="target_silhouette")
    aa = build_antialias(leaves.pos, leaves.faces, leaves.matrix, (width, height), cull=cull)
    smooth = laplacian_loss(leaves.pos, laplacian_matrix(mesh.faces, len(mesh.positions)))
    loss = silhouette_loss(aa.silhouette, target) + smooth * LAPLACIAN
    data: dict[Variable, Any] = {
        leaves.pos: mesh.positions,
        leaves.faces: mesh.faces,
        leaves.matrix: _stack(matrices),
        target: _stack(targets),
    }
    pixel = F.constant(1.0 / max(width, height))
    return Problem(loss, adam or Adam(1e-4), data, leaves.pos, aa.silhouette, aa.hard, pixel)


# -- targets, cameras and meshes


def hard_silhouettes(
    mesh: Mesh, matrices: np.ndarray, size: int, device: str | int | None = None
) -> np.ndarray:
    """Return (views, size, size, 1): 1 where the centre of a pixel is covered."""
    return render(mesh, matrices, (size, size), device=device)[0]


def colours(
    mesh: Mesh, matrices: np.ndarray, size: int, device: str | int | None = None
) -> np.ndarray:
    """Return (views, size, size, 3): the mesh with a texture of smooth waves, over black."""
    y, x = (np.mgrid[:128, :128] + 0.5) / 128
    waves = [np.sin(2 * np.pi * (a * x + b * y)) for a, b in ((3, 1), (-1, 4), (2, -3))]
    texture = (0.5 + 0.4 * np.stack(waves, axis=-1)).astype(np.float32)
    return render(mesh, matrices, (size, size), texture, device=device)[1]


def view_matrices(n: int) -> np.ndarray:
    """Return (n, 4, 4): cameras around the origin that see a sphere of radius 1 whole."""
    return np.stack([c.matrix for c in spread_views(n)])


def squashed(mesh: Mesh) -> Mesh:
    """Return the mesh with other proportions: a target that differs everywhere on the contour."""
    return replace(mesh, positions=mesh.positions * np.array([0.8, 1.25, 1.0], np.float32))


def sphere(n_faces: int) -> Mesh:
    """Return a sphere of about n_faces triangles: an icosphere where one has as many."""
    for subdivisions in range(1, 9):
        if n_faces == 20 * 4**subdivisions:
            return icosphere(subdivisions, 0.6)
    return cube_sphere(n_faces)


def cube_sphere(n_faces: int, radius: float = 0.6) -> Mesh:
    """Return a sphere of about n_faces triangles, of any number: six n x n grids, welded, 12 n^2
    faces."""
    n = max(round((n_faces / 12) ** 0.5), 1)
    line = np.arange(n + 1)
    u, v = (g.ravel() for g in np.meshgrid(line, line, indexing="ij"))
    corner = (np.arange(n)[:, None] * (n + 1) + np.arange(n)).ravel()
    a, b, c, d = corner, corner + n + 1, corner + n + 2, corner + 1
    grid = np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])
    points: list[np.ndarray] = []
    faces: list[np.ndarray] = []
    for axis in range(3):
        for end in (0, n):
            side = np.empty((len(u), 3), np.int64)
            side[:, axis], side[:, (axis + 1) % 3], side[:, (axis + 2) % 3] = end, u, v
            faces.append((grid if end else grid[:, ::-1]) + len(points) * len(u))
            points.append(side)
    welded, index = np.unique(np.concatenate(points), axis=0, return_inverse=True)
    # The tangent evens out the sizes of the faces.
    at = np.tan((welded / n - 0.5) * (np.pi / 2))
    at *= radius / np.linalg.norm(at, axis=1, keepdims=True)
    return Mesh(at, index.reshape(-1)[np.concatenate(faces)], name=f"cube sphere {12 * n * n}")
