"""Closest points of a surface, exactly: no triangle is skipped that could be closer.

In: points and a triangle mesh. Out: for each point the triangle, the place in it and the distance.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from dressi.errors import GraphError

Points = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_CHUNK = 2_000_000  # point-triangle pairs at a time: about 500 MB at worst


def closest_on_surface(
    what: str, points: npt.ArrayLike, mesh_positions: npt.ArrayLike, faces: npt.ArrayLike
) -> tuple[Ints, Points]:
    """The closest triangle of each point, and the squared distance to it: (N,) each.

    points: (N, 3). mesh_positions: (V, 3). faces: (F, 3), triangles without area too. World units.
    With d the distance to the triangles whose centroids are nearest, every triangle whose bounding
    sphere comes within d is tried; triangles are sorted in classes by size, so a few large ones do
    not widen the search for all. Raises GraphError (shapes, no points, no faces, NaN, index out of
    range; ``what`` names the caller).
    """
    p = np.asarray(points, dtype=np.float64)
    vertices, index = np.asarray(mesh_positions, dtype=np.float64), np.asarray(faces)
    for label, table in (("points", p), ("mesh_positions", vertices), ("faces", index)):
        if table.ndim != 2 or table.shape[1] != 3 or len(table) == 0:
            raise GraphError(f"{what}: {label} must be (N, 3), N > 0, got {table.shape}")
        if not np.isfinite(table).all():
            row = int((~np.isfinite(table).all(axis=1)).argmax())
            raise GraphError(f"{what}: row {row} of {label} is not finite")
    if index.min() < 0 or index.max() >= len(vertices):
        raise GraphError(f"{what}: faces index beyond {len(vertices)} vertices")

    corners = vertices[index]
    centroids = corners.mean(axis=1)
    radii = np.linalg.norm(corners - centroids[:, None], axis=2).max(axis=1)
    _, near = cKDTree(centroids).query(p, k=min(4, len(centroids)))
    near = np.reshape(near, (len(p), -1))
    best = np.full(len(p), np.inf)
    of = np.zeros(len(p), np.int64)
    for column in near.T:
        squared = squared_distance(p, *np.moveaxis(corners[column], 1, 0))
        of = np.where(squared < best, column, of)
        best = np.minimum(best, squared)

    size_class = np.floor(np.log2(np.maximum(radii, 1e-30)))
    for one in np.unique(size_class):
        rows = np.flatnonzero(size_class == one)
        tree = cKDTree(centroids[rows])
        # The margin covers rounding of centroids and radii.
        reach = (np.sqrt(best) + radii[rows].max()) * (1.0 + 1e-9) + 1e-12
        counts = tree.query_ball_point(p, reach, return_length=True)
        chunk = (np.cumsum(counts) // _CHUNK).astype(np.int64)
        for part in range(int(chunk[-1]) + 1):
            of_part = np.flatnonzero((chunk == part) & (counts > 0))
            if len(of_part) == 0:
                continue
            found = tree.query_ball_point(p[of_part], reach[of_part])
            owner = np.repeat(of_part, counts[of_part])
            triangle = rows[np.concatenate([np.asarray(f, dtype=np.int64) for f in found])]
            squared = squared_distance(p[owner], *np.moveaxis(corners[triangle], 1, 0))
            before = best[of_part]
            np.minimum.at(best, owner, squared)
            nearer = (squared == best[owner]) & (squared < before[np.searchsorted(of_part, owner)])
            of[owner[nearer]] = triangle[nearer]
    return of, best


def squared_distance(p: Points, a: Points, b: Points, c: Points) -> npt.NDArray[np.float64]:
    """(N,) squared distances of points to triangles, pair by pair; degenerate triangles too.

    The smallest over the three edges, or over the plane where the foot point lies inside.
    """

    def dot(u: Points, v: Points) -> npt.NDArray[np.float64]:
        return np.asarray(np.einsum("ij,ij->i", u, v))

    def to_edge(start: Points, end: Points) -> npt.NDArray[np.float64]:
        edge, offset = end - start, p - start
        length = dot(edge, edge)
        s = np.clip(dot(offset, edge) / np.where(length > 0.0, length, 1.0), 0.0, 1.0)
        rest = offset - s[:, None] * edge
        return dot(rest, rest)

    best = np.minimum(np.minimum(to_edge(a, b), to_edge(b, c)), to_edge(c, a))
    normal = np.cross(b - a, c - a)
    square = dot(normal, normal)
    inside = square > 0.0
    for start, end in ((a, b), (b, c), (c, a)):
        inside &= dot(np.cross(end - start, p - start), normal) >= 0.0
    height = dot(p - a, normal)
    plane = height * height / np.where(square > 0.0, square, 1.0)
    return np.where(inside, np.minimum(plane, best), best)


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
