"""Closest points of a triangle mesh, exactly, on the host.

In: points and a mesh as arrays. Out: distances, faces and feet. A tree of boxes (each node split at
the median of its longest side) is walked for all points at once, level by level; a branch is left
where its box is farther than what is already known.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from dressi.errors import GraphError
from dressi.threads import in_threads

Points = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

_LEAF = 4  # triangles per leaf: smaller ones cost levels, larger ones exact tests
_PAIRS = 200_000  # pairs of points and boxes at a time: about 50 MB
_POINTS = 8192  # points that a thread takes at a time


class Closest(NamedTuple):
    """What ``closest_on_surface`` gives, per point: distance (N,) float64 in world units, never
    negative; face (N,) int64, one of the faces at that distance; foot (N, 3) float64, the closest
    point."""

    distance: Points
    face: Rows
    foot: Points


@dataclass(frozen=True)
class _Tree:
    """Faces in the order of the leaves, and the boxes (2, n, 3) of the nodes of each level: node n
    has the children 2 n and 2 n + 1."""

    order: Rows
    levels: tuple[Points, ...]
    starts: Rows


def _dot(u: Points, v: Points) -> Points:
    return np.asarray(np.einsum("ij,ij->i", u, v))


def _on_segment(p: Points, start: Points, end: Points) -> Points:
    edge = end - start
    length = _dot(edge, edge)
    s = np.clip(_dot(p - start, edge) / np.where(length > 0.0, length, 1.0), 0.0, 1.0)
    return np.asarray(start + s[:, None] * edge)


def feet_on_triangles(p: Points, a: Points, b: Points, c: Points) -> tuple[Points, Points]:
    """Return squared distances (N,) and closest points (N, 3) of points to triangles, pair by pair.

    All (N, 3) float64. The plane where the foot lies inside, else the nearest of the three edges;
    triangles without area are their edges.
    """
    normal = np.cross(b - a, c - a)
    square = _dot(normal, normal)
    inside = square > 0.0
    for start, end in ((a, b), (b, c), (c, a)):
        inside &= _dot(np.cross(end - start, p - start), normal) >= 0.0
    height = _dot(p - a, normal) / np.where(square > 0.0, square, 1.0)
    foot = p - height[:, None] * normal
    best = np.where(inside, height * height * square, np.inf)
    rest = np.flatnonzero(~inside)
    for start, end in ((a, b), (b, c), (c, a)):
        at = _on_segment(p[rest], start[rest], end[rest])
        offset = p[rest] - at
        squared = _dot(offset, offset)
        nearer = squared < best[rest]
        best[rest[nearer]] = squared[nearer]
        foot[rest[nearer]] = at[nearer]
    return best, foot


def _tree(corners: Points) -> _Tree:
    """Split the faces at the median of the longest side of each node until leaves are small."""
    centroids = corners.mean(axis=1)
    n = len(corners)
    order, starts = np.arange(n), np.array([0, n])
    while np.diff(starts).max() > _LEAF and np.diff(starts).min() > 1:
        node = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        of_order = centroids[order]
        low = np.minimum.reduceat(of_order, starts[:-1])
        side = (np.maximum.reduceat(of_order, starts[:-1]) - low).argmax(axis=1)
        order = order[np.lexsort((of_order[np.arange(n), side[node]], node))]
        middle = (starts[:-1] + starts[1:]) // 2
        starts = np.append(np.stack([starts[:-1], middle], axis=1).ravel(), n)
    box = np.stack(
        [
            np.minimum.reduceat(corners.min(axis=1)[order], starts[:-1]),
            np.maximum.reduceat(corners.max(axis=1)[order], starts[:-1]),
        ]
    )
    levels = [box]
    while levels[0].shape[1] > 1:
        low, high = levels[0]
        levels.insert(
            0, np.stack([np.minimum(low[::2], low[1::2]), np.maximum(high[::2], high[1::2])])
        )
    return _Tree(order, tuple(levels), starts)


def _check_tables(what: str, **tables: npt.NDArray) -> None:
    """Raise GraphError unless all tables are (N, 3), not empty, and finite."""
    for label, table in tables.items():
        if table.ndim != 2 or table.shape[1] != 3 or len(table) == 0:
            raise GraphError(f"{what}: {label} must be (N, 3), N > 0, got {table.shape}")
        if not np.isfinite(table).all():
            row = int((~np.isfinite(table).all(axis=1)).argmax())
            raise GraphError(f"{what}: row {row} of {label} is not finite")


@dataclass(frozen=True, eq=False)
class SurfaceTree:
    """A surface that many points are near, prepared once for any number of searches.

    corners: (F, 3, 3) of its faces, float64, world units. what: names the caller in errors.
    """

    corners: Points
    what: str = "SurfaceTree"

    @staticmethod
    def of(
        positions: npt.ArrayLike, faces: npt.ArrayLike, what: str = "SurfaceTree"
    ) -> SurfaceTree:
        """Return the tree of a mesh. positions: (V, 3). faces: (F, 3) int. Raises GraphError
        (shapes, no faces, NaN, index out of range)."""
        vertices, index = np.asarray(positions, dtype=np.float64), np.asarray(faces)
        _check_tables(what, mesh_positions=vertices, faces=index)
        if index.min() < 0 or index.max() >= len(vertices):
            raise GraphError(f"{what}: faces index beyond {len(vertices)} vertices")
        return SurfaceTree(vertices[index], what)

    @cached_property
    def _centroids(self) -> cKDTree:
        return cKDTree(self.corners.mean(axis=1))

    @cached_property
    def _boxes(self) -> _Tree:
        return _tree(self.corners)

    def closest(self, points: npt.ArrayLike, near_enough: float = 0.0) -> Closest:
        """Return the closest point of the surface for each point, its face and its distance.

        points: (N, 3). near_enough: a distance at and below which what is found first will do;
        above it, and with 0, no triangle is skipped that could be closer. World units. Raises
        GraphError (shape, no points, NaN).
        """
        p = np.asarray(points, dtype=np.float64)
        _check_tables(self.what, points=p)
        face = np.asarray(self._centroids.query(p)[1], dtype=np.int64)
        best, foot = feet_on_triangles(p, *np.moveaxis(self.corners[face], 1, 0))
        far = np.flatnonzero(best > near_enough**2)

        def walk(rows: Rows) -> None:
            found = best[rows], face[rows], foot[rows]
            _walk(boxes, self.corners, p[rows], *found)
            best[rows], face[rows], foot[rows] = found

        if len(far):
            boxes = self._boxes  # made before the threads ask for it
            in_threads(walk, [far[i : i + _POINTS] for i in range(0, len(far), _POINTS)])
        return Closest(np.sqrt(best), face, foot)


def closest_on_surface(
    points: npt.ArrayLike, mesh_positions: npt.ArrayLike, faces: npt.ArrayLike
) -> Closest:
    """Return the closest point of the surface for each point, its face and its distance.

    points: (N, 3). mesh_positions: (V, 3). faces: (F, 3) int. World units, float64. Exact: no
    triangle is skipped that could be closer. Raises GraphError (shapes, no points, no faces, NaN,
    index out of range).
    """
    return SurfaceTree.of(mesh_positions, faces, "closest_on_surface").closest(points)


def _walk(tree: _Tree, corners: Points, p: Points, best: Points, face: Rows, foot: Points) -> None:
    """Lower best (squared), with face and foot, in place to the minimum over all triangles."""
    waiting = [(0, np.arange(len(p)), np.zeros(len(p), dtype=np.int64))]
    while waiting:
        depth, owner, node = waiting.pop()
        low, high = tree.levels[depth]
        at = p[owner]
        away = np.maximum(np.maximum(low[node] - at, at - high[node]), 0.0)
        near = _dot(away, away) < best[owner]
        owner, node = owner[near], node[near]
        if depth + 1 == len(tree.levels):
            _try_leaves(tree, corners, p, (owner, node), (best, face, foot))
            continue
        owner, node = np.repeat(owner, 2), np.stack([2 * node, 2 * node + 1], axis=1).ravel()
        # What is found in one part makes the search of the next ones shorter.
        for start in range(0, len(owner), _PAIRS):
            part = slice(start, start + _PAIRS)
            waiting.append((depth + 1, owner[part], node[part]))


def _try_leaves(
    tree: _Tree,
    corners: Points,
    p: Points,
    pairs: tuple[Rows, Rows],
    known: tuple[Points, Rows, Points],
) -> None:
    """Lower what is known (squared distance, face, foot) by the triangles of (point, leaf)."""
    (owner, node), (best, face, foot) = pairs, known
    for k in range(int(np.diff(tree.starts).max())):
        row = tree.starts[node] + k
        has = row < tree.starts[node + 1]
        who, triangle = owner[has], tree.order[row[has]]
        squared, at = feet_on_triangles(p[who], *np.moveaxis(corners[triangle], 1, 0))
        # Pairs by point and distance: the first of each point counts.
        rank = np.lexsort((squared, who))
        rank = rank[np.append(True, np.diff(who[rank]) > 0)] if len(rank) else rank
        rank = rank[squared[rank] < best[who[rank]]]
        best[who[rank]], face[who[rank]], foot[who[rank]] = squared[rank], triangle[rank], at[rank]


def distance_to_surface(
    points: npt.ArrayLike, mesh_positions: npt.ArrayLike, faces: npt.ArrayLike
) -> npt.NDArray[np.float64]:
    """(N,) float64: the exact distance of each point to the closest point of the surface.

    points: (N, 3). mesh_positions: (V, 3). faces: (F, 3) int. World units, never negative.
    Raises GraphError (shapes, no points, no faces, NaN, index out of range).
    """
    return SurfaceTree.of(mesh_positions, faces, "distance_to_surface").closest(points).distance


def mean_distance_to_surface(
    points: npt.ArrayLike, mesh_positions: npt.ArrayLike, faces: npt.ArrayLike
) -> float:
    """Mean of ``distance_to_surface`` over the points, world units (points to surface only)."""
    return float(distance_to_surface(points, mesh_positions, faces).mean())


def weights_of_closest(p: Points, a: Points, b: Points, c: Points) -> Points:
    """(N, 3): barycentric coordinates of the point of each triangle abc that is closest to p."""

    def dot(u: Points, v: Points) -> Points:
        return np.asarray(np.einsum("ij,ij->i", u, v))

    corners = (a, b, c)
    best, weights = np.full(len(p), np.inf), np.zeros((len(p), 3))
    for i, j in ((0, 1), (1, 2), (2, 0)):
        edge = corners[j] - corners[i]
        length = dot(edge, edge)
        s = np.clip(dot(p - corners[i], edge) / np.where(length > 0.0, length, 1.0), 0.0, 1.0)
        rest = p - corners[i] - s[:, None] * edge
        nearer = dot(rest, rest) < best
        best = np.where(nearer, dot(rest, rest), best)
        on_edge = np.zeros((len(p), 3))
        on_edge[:, i], on_edge[:, j] = 1.0 - s, s
        weights[nearer] = on_edge[nearer]
    normal = np.cross(b - a, c - a)
    square = dot(normal, normal)
    parts = np.stack(
        [dot(np.cross(end - start, p - start), normal) for start, end in ((b, c), (c, a), (a, b))],
        axis=1,
    )
    inside = (square > 0.0) & (parts >= 0.0).all(axis=1)
    weights[inside] = parts[inside] / parts[inside].sum(axis=1, keepdims=True)
    return weights
