"""Vertices that move within their surface: even spacing, back onto a given surface, nothing folded.

In: a working surface of ``edits`` and the surface that it stands for. Out: the same faces with
other positions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dressi.render.fit.closest import SurfaceTree, weights_of_closest
from dressi.render.fit.edits import WorkingSurface, steady_normals
from dressi.render.scene.half_edges import EdgeTable
from dressi.render.scene.mesh import area_normals, unit_or_zero

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_LEAST_TURN = 0.5
"""Cosine of the largest angle by which a move may turn a face: 60 degrees."""
_LEAST_AREA = 0.05
"""Part of its area that a move must leave to a face: slivers turn over at the next move."""


@dataclass(frozen=True, eq=False)
class Reference:
    """The surface that a remeshed one stays on.

    positions: (V, 3). faces: (F, 3). lengths: (V,) wanted edge lengths. creases: (N, 2) vertices.
    """

    positions: Floats
    faces: Ints
    lengths: Floats
    creases: Ints

    @cached_property
    def surface(self) -> SurfaceTree:
        """The faces, to search."""
        return SurfaceTree.of(self.positions, self.faces)

    @cached_property
    def lines(self) -> SurfaceTree:
        """The creases as triangles without area, to search."""
        return SurfaceTree.of(self.positions, self.ends)

    @cached_property
    def ends(self) -> Ints:
        """(N, 3) vertices of each crease, the second one twice."""
        return np.stack([*self.creases.T, self.creases[:, 1]], axis=1)


def relaxed(surface: WorkingSurface) -> WorkingSurface:
    """Return the surface with vertices at the middles of their surroundings.

    Each vertex moves to the mean of its faces' centroids, weighted by area over the square of the
    wanted length, within its tangent plane (along its crease). Moves that would turn a face by more
    than 60 degrees are undone.
    """
    p, f = surface.positions, surface.faces
    normals = area_normals(p, f)
    at_vertex = _sums(f, np.repeat(normals, 3, axis=0), len(p))
    weight = np.linalg.norm(normals, axis=1) / surface.lengths[f].mean(axis=1) ** 2
    total = np.bincount(f.ravel(), np.repeat(weight, 3), minlength=len(p))
    middle = _sums(f, np.repeat(weight[:, None] * p[f].mean(axis=1), 3, axis=0), len(p))
    step = middle / np.maximum(total, 1e-300)[:, None] - p
    up = unit_or_zero(at_vertex)
    step -= np.einsum("vi,vi->v", step, up)[:, None] * up
    step[surface.rank > 0] = 0.0
    _along_creases(surface, step)
    return replace(surface, positions=_safe(p, p + step, f))


def onto(surface: WorkingSurface, reference: Reference) -> WorkingSurface:
    """Return the surface with its vertices, but those of rank 2, on the reference, and its lengths.

    Where the closest face of the reference looks the other way (the back of a thin sheet), the
    vertex stays.
    """
    p, f = surface.positions, surface.faces
    up = _sums(f, np.repeat(area_normals(p, f), 3, axis=0), len(p))
    moved, lengths = p.copy(), surface.lengths.copy()
    on_crease = surface.rank == 1 if len(reference.creases) else np.zeros(len(p), bool)
    for rows, triangles in (
        (np.flatnonzero((surface.rank < 2) & ~on_crease), reference.faces),
        (np.flatnonzero(on_crease), reference.ends),
    ):
        if len(rows) == 0:
            continue
        tree = reference.surface if triangles is reference.faces else reference.lines
        near = tree.closest(p[rows])
        corners = triangles[near.face]
        weights = weights_of_closest(p[rows], *np.moveaxis(reference.positions[corners], 1, 0))
        facing = np.ones(len(rows), bool)
        if triangles is reference.faces:
            toward = area_normals(reference.positions, corners)
            facing = np.einsum("vi,vi->v", toward, up[rows]) > 0.0
        moved[rows[facing]] = near.foot[facing]
        lengths[rows] = np.einsum("vk,vk->v", weights, reference.lengths[corners])
    return replace(surface, positions=_safe(p, moved, f), lengths=lengths)


def _along_creases(surface: WorkingSurface, step: Floats) -> None:
    """Set the steps of vertices on a crease: to the middle of their neighbours along it."""
    n = len(surface.positions)
    ends = np.stack([surface.creases // n, surface.creases % n], axis=1)
    both = np.concatenate([ends, ends[:, ::-1]])
    around = np.zeros((n, 3))
    np.add.at(around, both[:, 0], surface.positions[both[:, 1]])
    count = np.bincount(both[:, 0], minlength=n)
    rows = np.flatnonzero((surface.rank == 1) & (count == 2))
    step[rows] = 0.5 * (0.5 * around[rows] - surface.positions[rows])


def _safe(before: Floats, after: Floats, faces: Ints) -> Floats:
    """Positions after the moves, without those at faces that they turn over or flatten."""
    old = steady_normals(before, faces, EdgeTable.of(faces))
    size, result = np.linalg.norm(area_normals(before, faces), axis=1), after.copy()
    rows = np.arange(len(faces))
    while len(rows):
        new = area_normals(result, faces[rows])
        new_size = np.linalg.norm(new, axis=1)
        agree = np.einsum("fi,fi->f", new, old[rows])
        bad = (agree < _LEAST_TURN * new_size) | (new_size < _LEAST_AREA * size[rows])
        moved = (result[faces[rows]] != before[faces[rows]]).any(axis=(1, 2))
        back = np.unique(faces[rows[bad & moved]])
        if len(back) == 0:
            break
        result[back] = before[back]
        touched = np.zeros(len(before), bool)
        touched[back] = True
        rows = np.flatnonzero(touched[faces].any(axis=1))
    return result


def _sums(faces: Ints, per_corner: Floats, n: int) -> Floats:
    """(V, 3): sums of rows per corner (3 F, 3) at each vertex."""
    flat = faces.ravel()
    return np.stack([np.bincount(flat, per_corner[:, k], minlength=n) for k in range(3)], axis=1)
