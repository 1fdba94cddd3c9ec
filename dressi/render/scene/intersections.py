"""Which faces of a mesh cross or touch others, exactly.

In: a mesh. Out: pairs of faces. Boxes that overlap are found by a tree over the faces, sorted along
a space-filling curve; what is left is decided by signs that are right always (``predicates``).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dressi.render.scene.predicates import ExactPoints, has_area, orient2d, orient3d
from dressi.threads import in_threads

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_CHUNK = 25_000
"""Pairs of faces that a thread decides at a time: about 30 MB of temporaries at worst."""


def intersecting_faces(positions: npt.ArrayLike, faces: npt.ArrayLike) -> Ints:
    """(N, 2) numbers of the faces that meet in more than the corners and edges that they share.

    positions: (V, 3), float32 values. faces: (F, 3); rows of positions are points, so vertices at
    one place should be one (``weld``) before. Counted: faces that cross, that touch with no corner
    in common there, that lie in one plane and overlap, that are folded back by 180 degrees onto the
    face across an edge, and that have the same three corners. Faces without area are left out.
    Exact: no rounding and no tolerance. Rows are ascending.
    """
    points = ExactPoints(np.asarray(positions, np.float32).astype(np.float64))
    index = np.asarray(faces).astype(np.int64)
    usable = np.flatnonzero(has_area(points, index))
    if len(usable) < 2:
        return np.zeros((0, 2), np.int64)
    index = index[usable]
    corners = points.positions[index]
    pairs = overlapping_boxes(corners.min(axis=1), corners.max(axis=1))
    parts = [pairs[i : i + _CHUNK] for i in range(0, len(pairs), _CHUNK)]
    hit = in_threads(lambda p: p[_meet(points, index[p[:, 0]], index[p[:, 1]])], parts)
    found = usable[np.concatenate(hit)] if hit else np.zeros((0, 2), np.int64)
    return found[np.lexsort((found[:, 1], found[:, 0]))]


def overlapping_boxes(low: Floats, high: Floats) -> Ints:
    """(N, 2) pairs i < j of boxes that have a point in common. low, high: (B, 3)."""
    n = len(low)
    order = np.argsort(_curve_key(0.5 * (low + high)), kind="stable")
    depth = max(1, int(np.ceil(np.log2(max(n, 2)))))
    leaves = np.full((2, 2**depth, 3), np.inf)
    leaves[1] = -np.inf  # an empty box
    leaves[0, :n], leaves[1, :n] = low[order], high[order]
    levels = [leaves]
    for _ in range(depth):
        below = levels[-1].reshape(2, -1, 2, 3)
        levels.append(np.stack([below[0].min(axis=1), below[1].max(axis=1)]))
    i = j = np.zeros(1, np.int64)
    for boxes in levels[-2::-1]:
        # The children of a pair; of a node with itself three pairs, not four.
        left = np.concatenate([2 * i, 2 * i, 2 * i + 1, 2 * i + 1])
        right = np.concatenate([2 * j, 2 * j + 1, 2 * j + 1, 2 * j])
        once = left <= right
        i, j = left[once], right[once]
        apart = np.zeros(len(i), bool)
        for axis in range(3):
            lowest, highest = boxes[0][:, axis], boxes[1][:, axis]
            apart |= (lowest[i] > highest[j]) | (lowest[j] > highest[i])
        i, j = i[~apart], j[~apart]
    real = (i < j) & (j < n)
    return np.sort(order[np.stack([i[real], j[real]], axis=1)], axis=1)


def _curve_key(at: Floats) -> Ints:
    """(N,) places along a Z-curve (Morton 1966), 20 bits per axis."""
    low = at.min(axis=0)
    extent = float((at.max(axis=0) - low).max())
    cell = ((at - low) * ((2**20 - 1) / extent if extent > 0.0 else 0.0)).astype(np.int64)
    key = np.zeros(len(at), np.int64)
    for bit in range(20):
        for axis in range(3):
            key |= ((cell[:, axis] >> bit) & 1) << (3 * bit + axis)
    return key


def _meet(points: ExactPoints, first: Ints, second: Ints) -> Bools:
    """(N,) bool: faces (N, 3) with area meet in more than they share."""
    same = first[:, :, None] == second[:, None, :]
    n_shared = same.sum(axis=(1, 2))
    hit = n_shared == 3
    for n, decide in ((0, _apart_meet), (1, _at_vertex_meet), (2, _at_edge_meet)):
        rows = np.flatnonzero(n_shared == n)
        if len(rows):
            # Shared corners come first, in both faces in the same order.
            a, b = _shared_first(first[rows], second[rows], same[rows])
            hit[rows] = decide(points, a, b)
    return hit


def _shared_first(first: Ints, second: Ints, same: Bools) -> tuple[Ints, Ints]:
    rank_a = np.where(same.any(axis=2), first, np.iinfo(np.int64).max)
    rank_b = np.where(same.any(axis=1), second, np.iinfo(np.int64).max)
    return (
        np.take_along_axis(first, rank_a.argsort(axis=1, kind="stable"), axis=1),
        np.take_along_axis(second, rank_b.argsort(axis=1, kind="stable"), axis=1),
    )


def _at_edge_meet(points: ExactPoints, a: Ints, b: Ints) -> Bools:
    """Faces uvp and uvq: only where they lie in one plane, on the same side of uv."""
    u, v, p, q = a[:, 0], a[:, 1], a[:, 2], b[:, 2]
    hit = orient3d(points, u, v, p, q) == 0
    rows = np.flatnonzero(hit)
    axes = _kept_axes(points, a[rows])
    u, v, p, q = u[rows], v[rows], p[rows], q[rows]
    hit[rows] = orient2d(points, axes, u, v, p) == orient2d(points, axes, u, v, q)
    return hit


def _at_vertex_meet(points: ExactPoints, a: Ints, b: Ints) -> Bools:
    """Faces that share a corner: whatever else they share reaches the edge across it in one."""
    hit = np.zeros(len(a), bool)
    # Where the other corners of one lie on one side of the other's plane, they meet nowhere else.
    p, q = (orient3d(points, b[:, 0], b[:, 1], b[:, 2], a[:, k]) for k in (1, 2))
    possible = p * q <= 0
    for one, other in ((a, b), (b, a)):
        rest = np.flatnonzero(possible & ~hit)
        hit[rest] = _edges_meet(points, one[rest, 1:], other[rest])
    return hit


def _apart_meet(points: ExactPoints, a: Ints, b: Ints) -> Bools:
    """Faces without a common corner: an edge of one meets the other."""
    hit = np.zeros(len(a), bool)
    sides = [_sides(points, x, y) for x, y in ((a, b), (b, a))]
    possible = np.ones(len(a), bool)
    for side in sides:
        possible &= (side.min(axis=1) <= 0) & (side.max(axis=1) >= 0)
    for one, other in ((a, b), (b, a)):
        for edge in ((0, 1), (1, 2), (2, 0)):
            rest = np.flatnonzero(possible & ~hit)
            hit[rest] = _edges_meet(points, one[rest][:, list(edge)], other[rest])
    return hit


def _sides(points: ExactPoints, faces: Ints, of: Ints) -> npt.NDArray[np.int8]:
    """(N, 3): on which sides of the faces' planes the corners of the others lie."""
    a, b, c = faces.T
    return np.stack([orient3d(points, a, b, c, of[:, k]) for k in range(3)], axis=1)


def _edges_meet(points: ExactPoints, edges: Ints, faces: Ints) -> Bools:
    """(N,) bool: the edge pq and the face abc, ends and borders included, have a common point."""
    (p, q), (a, b, c) = edges.T, faces.T
    side_p, side_q = (orient3d(points, a, b, c, end) for end in (p, q))
    hit = side_p * side_q <= 0
    flat = (side_p == 0) & (side_q == 0)
    rows = np.flatnonzero(hit & ~flat)
    if len(rows):
        a, b, c = faces[rows].T
        turns = np.stack(
            [orient3d(points, p[rows], q[rows], i, j) for i, j in ((a, b), (b, c), (c, a))]
        )
        hit[rows] = (turns.min(axis=0) >= 0) | (turns.max(axis=0) <= 0)
    rows = np.flatnonzero(flat)
    if len(rows):
        hit[rows] = _meet_in_plane(points, p[rows], q[rows], faces[rows])
    return hit


def _meet_in_plane(points: ExactPoints, p: Ints, q: Ints, faces: Ints) -> Bools:
    """``_edges_meet`` where edge and face lie in one plane."""
    axes = _kept_axes(points, faces)
    turn = orient2d(points, axes, *faces.T)
    hit = np.zeros(len(p), bool)
    for end in (p, q):
        within = np.ones(len(p), bool)
        for i, j in ((0, 1), (1, 2), (2, 0)):
            within &= orient2d(points, axes, faces[:, i], faces[:, j], end) * turn >= 0
        hit |= within
    for i, j in ((0, 1), (1, 2), (2, 0)):
        a, b = faces[:, i], faces[:, j]
        across = orient2d(points, axes, p, q, a) * orient2d(points, axes, p, q, b) <= 0
        along = orient2d(points, axes, a, b, p) * orient2d(points, axes, a, b, q)
        # On one line with the edge: then an end of either lies in the other, or they are apart; an
        # end of pq in the face was found above, and a and b lie between p and q only with a third.
        hit |= across & (along <= 0) & ~_on_one_line(points, axes, p, q, a, b)
    return hit | _corner_between(points, axes, p, q, faces)


def _on_one_line(points: ExactPoints, axes: Ints, p: Ints, q: Ints, a: Ints, b: Ints) -> Bools:
    return (orient2d(points, axes, p, q, a) == 0) & (orient2d(points, axes, p, q, b) == 0)


def _corner_between(points: ExactPoints, axes: Ints, p: Ints, q: Ints, faces: Ints) -> Bools:
    """Where a corner of the face lies on the edge pq (in their plane)."""
    at, rows = points.positions, np.arange(len(p))
    hit = np.zeros(len(p), bool)
    for corner in faces.T:
        inside = np.ones(len(p), bool)
        for k in (0, 1):
            x, y, z = (at[i, axes[rows, k]] for i in (p, q, corner))
            inside &= (np.minimum(x, y) <= z) & (z <= np.maximum(x, y))
        hit |= inside & (orient2d(points, axes, p, q, corner) == 0)
    return hit


def _kept_axes(points: ExactPoints, faces: Ints) -> Ints:
    """(N, 2): axes along which faces with an area keep one when the third axis is dropped."""
    a, b, c = np.moveaxis(points.positions[faces], 1, 0)
    order = np.abs(np.cross(b - a, c - a)).argsort(axis=1)
    choice = np.array([[1, 2], [2, 0], [0, 1]])
    axes = choice[order[:, 2]]
    for k in (1, 0):  # rounding may have chosen wrongly
        lost = np.flatnonzero(orient2d(points, axes, *faces.T) == 0)
        axes[lost] = choice[order[lost, k]]
    return axes
