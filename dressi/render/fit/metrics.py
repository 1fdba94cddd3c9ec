"""Numbers that say how good a fit is: overlap, picture difference, distance to a surface.

In: NumPy arrays. Out: floats. Nothing here is differentiated.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from dressi.errors import GraphError

Points = npt.NDArray[np.float64]
_CHUNK = 2_000_000  # point-triangle pairs at a time: about 500 MB at worst


def iou(mask_a: npt.ArrayLike, mask_b: npt.ArrayLike) -> float:
    """Intersection over union of two masks of one shape, inside where > 0.5; 1.0 if both are empty.

    Raises GraphError where the shapes differ.
    """
    a, b = np.asarray(mask_a) > 0.5, np.asarray(mask_b) > 0.5
    if a.shape != b.shape:
        raise GraphError(f"iou needs masks of one shape, got {a.shape} and {b.shape}")
    union = int((a | b).sum())
    return float((a & b).sum()) / union if union else 1.0


def psnr(
    image_a: npt.ArrayLike, image_b: npt.ArrayLike, mask: npt.ArrayLike | None = None
) -> float:
    """Peak signal-to-noise ratio in dB, ``-10 log10(mean squared difference)``, peak 1.

    image_a, image_b: (H, W, C) or (H, W), linear values, both clipped to [0, 1] first. mask: (H,
    W), only pixels > 0.5 count; None: all. Infinity where there is no difference.
    Raises GraphError (shapes differ, empty mask).
    """
    a, b = np.asarray(image_a, np.float64), np.asarray(image_b, np.float64)
    if a.shape != b.shape or a.ndim not in (2, 3):
        raise GraphError(f"psnr needs two images of one shape, got {a.shape} and {b.shape}")
    difference = (np.clip(a, 0.0, 1.0) - np.clip(b, 0.0, 1.0)) ** 2
    if mask is not None:
        inside = np.asarray(mask) > 0.5
        if inside.shape != a.shape[:2]:
            raise GraphError(f"psnr needs a mask of {a.shape[:2]}, got {inside.shape}")
        difference = difference[inside]
    if difference.size == 0:
        raise GraphError("psnr: there are no pixels to compare (empty mask or image)")
    error = float(difference.mean())
    return float("inf") if error == 0.0 else -10.0 * float(np.log10(error))


def _squared_distance(p: Points, a: Points, b: Points, c: Points) -> npt.NDArray[np.float64]:
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


def distance_to_surface(
    points: npt.ArrayLike, mesh_positions: npt.ArrayLike, faces: npt.ArrayLike
) -> npt.NDArray[np.float64]:
    """(N,) float64: the exact distance of each point to the closest point of the surface.

    points: (N, 3). mesh_positions: (V, 3). faces: (F, 3) int. World units, never negative.
    Exact because no triangle is skipped that could be closer: with d the distance to the triangles
    whose centroids are nearest, every triangle whose bounding sphere comes within d is tried;
    triangles are sorted in classes by size, so a few large ones do not widen the search for all.
    Raises GraphError (shapes, no points, no faces, NaN, index out of range).
    """
    p = np.asarray(points, dtype=np.float64)
    vertices, index = np.asarray(mesh_positions, dtype=np.float64), np.asarray(faces)
    for label, table in (("points", p), ("mesh_positions", vertices), ("faces", index)):
        if table.ndim != 2 or table.shape[1] != 3 or len(table) == 0:
            raise GraphError(
                f"distance_to_surface: {label} must be (N, 3), N > 0, got {table.shape}"
            )
        if not np.isfinite(table).all():
            row = int((~np.isfinite(table).all(axis=1)).argmax())
            raise GraphError(f"distance_to_surface: row {row} of {label} is not finite")
    if index.min() < 0 or index.max() >= len(vertices):
        raise GraphError(f"distance_to_surface: faces index beyond {len(vertices)} vertices")

    corners = vertices[index]
    centroids = corners.mean(axis=1)
    radii = np.linalg.norm(corners - centroids[:, None], axis=2).max(axis=1)
    _, near = cKDTree(centroids).query(p, k=min(4, len(centroids)))
    near = np.reshape(near, (len(p), -1))
    best = np.full(len(p), np.inf)
    for column in near.T:
        best = np.minimum(best, _squared_distance(p, *np.moveaxis(corners[column], 1, 0)))

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
            triangles = corners[
                rows[np.concatenate([np.asarray(f, dtype=np.int64) for f in found])]
            ]
            squared = _squared_distance(p[owner], *np.moveaxis(triangles, 1, 0))
            np.minimum.at(best, owner, squared)
    return np.sqrt(best)


def mean_distance_to_surface(
    points: npt.ArrayLike, mesh_positions: npt.ArrayLike, faces: npt.ArrayLike
) -> float:
    """Mean of ``distance_to_surface`` over the points, world units (points to surface only)."""
    return float(distance_to_surface(points, mesh_positions, faces).mean())
