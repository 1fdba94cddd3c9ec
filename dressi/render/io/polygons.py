"""Polygons to triangles: convex ones as a fan, concave ones by ear clipping.

In: positions, and the corners of all polygons one after the other. Out: triangles as rows of those
corners, so that every table of corners (points, UVs, normals) follows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

_MAX_CONCAVE = 500  # ear clipping takes n^3 steps at worst
_SPLIT_HINT = "split it in triangles"
_BLOCK = 1 << 18  # polygons that are tested at a time: bounds the memory


def split_polygons(
    positions: Points, counts: Rows, corners: Rows, fail: Callable[[int, str], Exception]
) -> tuple[Rows, Rows]:
    """(F, 3) rows of ``corners``, and for each of these triangles the polygon it is part of.

    positions: (V, 3). counts: (P,) corners of each polygon, 3 or more. corners: (sum of counts,)
    rows of ``positions``. Triangles come in the order of their polygons and keep their winding.
    fail: makes the error to raise for a polygon and a problem: one that crosses itself, a concave
    one of more than 500 corners.
    """
    starts = np.cumsum(counts) - counts
    rows, owners = [np.zeros((0, 3), np.int64)], [np.zeros(0, np.int64)]
    for n in np.unique(counts).tolist():
        same = np.flatnonzero(counts == n)
        for at in range(0, len(same), _BLOCK):
            group = same[at : at + _BLOCK]
            fan = np.array([(0, k, k + 1) for k in range(1, n - 1)])
            if n > 3:
                corner_points = positions[corners[starts[group][:, None] + np.arange(n)]]
                convex = _are_convex(corner_points)
                for k in np.flatnonzero(~convex).tolist():
                    try:
                        own = np.array(_triangles(corner_points[k]))
                    except ValueError as error:
                        raise fail(int(group[k]), str(error)) from error
                    rows.append(starts[group[k]] + own)
                    owners.append(np.full(n - 2, group[k]))
                group = group[convex]
            rows.append((starts[group][:, None, None] + fan).reshape(-1, 3))
            owners.append(np.repeat(group, n - 2))
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    return np.concatenate(rows)[order], owner[order]


def _are_convex(points: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """(G,) bool of (G, n, 3): a fan from the first corner covers the polygon once.

    Every corner turns left, and every triangle of the fan too (all corners of a star polygon turn
    left, but its fan does not). Polygons without an area are left to ``_triangles``.
    """
    local = points - points[:, :1]
    normal = np.cross(local, np.roll(local, -1, axis=1)).sum(axis=1)
    size = np.abs(local).max(axis=(1, 2))
    length = np.linalg.norm(normal, axis=1)
    has_area = length > 1e-12 * size * size
    unit = normal / np.where(has_area, length, 1.0)[:, None]
    tiny = (1e-10 * size * size)[:, None]

    def turns(a: Points, b: Points, c: Points) -> Points:
        return np.einsum("gki,gi->gk", np.cross(b - a, c - a), unit)

    before, after = np.roll(local, 1, axis=1), np.roll(local, -1, axis=1)
    left = (turns(before, local, after) >= -tiny).all(axis=1)
    fan = turns(np.zeros_like(local[:, 1:-1]), local[:, 1:-1], local[:, 2:])
    return has_area & left & (fan >= -tiny).all(axis=1)


def _triangles(points: Points) -> list[tuple[int, int, int]]:
    """Triangles, as corner numbers, of one polygon (N, 3), in the plane of its Newell normal.

    Raises ValueError: it crosses itself, or it is concave with too many corners.
    """
    n = len(points)
    fan = [(0, k, k + 1) for k in range(1, n - 1)]
    local = points - points[0]
    normal = np.cross(local, np.roll(local, -1, axis=0)).sum(axis=0)
    size = float(np.abs(local).max())
    length = float(np.linalg.norm(normal))
    if length <= 1e-12 * size * size:
        if np.linalg.norm(np.cross(local[1:-1], local[2:]), axis=1).max() > 1e-6 * size * size:
            raise ValueError(f"the polygon of {n} corners crosses itself; {_SPLIT_HINT}")
        return fan  # no area: any split is as good
    drop = int(np.abs(normal).argmax())  # look along the main axis, so that the polygon turns left
    keep = [(drop + 1) % 3, (drop + 2) % 3]
    flat = local[:, keep] if normal[drop] > 0 else local[:, keep[::-1]]
    if n > _MAX_CONCAVE:
        raise ValueError(f"a concave polygon of {n} corners, at most {_MAX_CONCAVE}")
    return _clipped(flat[:, 0].tolist(), flat[:, 1].tolist(), 1e-10 * size * size)


def _clipped(xs: list[float], ys: list[float], tiny: float) -> list[tuple[int, int, int]]:
    """Ear clipping of a polygon in the plane that turns left. Raises ValueError: no ear left."""
    n = len(xs)
    crosses = f"the polygon of {n} corners crosses itself; {_SPLIT_HINT}"

    def turn(i: int, j: int, k: int) -> float:
        return (xs[j] - xs[i]) * (ys[k] - ys[i]) - (ys[j] - ys[i]) * (xs[k] - xs[i])

    left, triangles = list(range(n)), []
    while len(left) > 3:
        for at in range(len(left)):
            i, j, k = left[at - 1], left[at], left[(at + 1) % len(left)]
            if turn(i, j, k) <= tiny:
                continue
            inside = any(
                turn(i, j, p) >= -tiny and turn(j, k, p) >= -tiny and turn(k, i, p) >= -tiny
                for p in left
                if p not in (i, j, k) and all((xs[p], ys[p]) != (xs[q], ys[q]) for q in (i, j, k))
            )
            if not inside:
                break
        else:
            raise ValueError(crosses)
        triangles.append((i, j, k))
        del left[at]
    if turn(left[0], left[1], left[2]) < -tiny:
        raise ValueError(crosses)
    return [*triangles, (left[0], left[1], left[2])]
