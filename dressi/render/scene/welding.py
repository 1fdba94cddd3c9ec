"""Which vertices are one place: on the host, of positions and of what goes with them.

In: tables of numbers. Out: for each row the first one that is at the same place. Two programs, or
the two ends of a loop, rarely give one point the same bits: sin(2 pi) is -2.4e-16. A device holds
float32, so what float32 does not distinguish is one place here.

The tolerance. float32 has steps of 2^-23 of a number. Positions that were computed in float32, by
two ways, differ by a few steps of the largest number that took part, which is about the extent of
the mesh: TOLERANCE_STEPS of those, 4.8e-7 of the extent. Far from the origin the steps of the
positions themselves are larger: one of those. Vertices whose edges are all shorter than MIN_EDGE
tolerances are those of a mesh as fine as that: they are one only where float32 holds equal numbers,
so that no mesh collapses, whatever its scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from dressi.errors import warn

STEP = 2.0**-23
"""Relative step of float32."""

TOLERANCE_STEPS = 4.0
"""Steps of the extent by which positions of one place may differ: two roundings of each of two."""

MIN_EDGE = 8.0
"""Tolerances that the longest edge at a vertex needs, or it is joined by equal numbers only."""

N_DIRECTIONS = 6
"""Directions along which rows are sorted: of a million vertices on a surface few are left."""

NEAR_EDGE = 1e-4
"""Part of its length by which the ends of a border edge may miss those of another one that lies on
it. Further apart they are a gap that somebody may have meant."""

IntArray = npt.NDArray[np.int64]


def first_alike(
    table: npt.ArrayLike, tolerance: float, loose: npt.NDArray[np.bool_] | None = None
) -> IntArray:
    """(N,) int: for each row the first one that is alike; rows keep their order.

    table: (N, D) numbers. tolerance: largest difference, in any column, of rows that are alike;
    rows alike to the same row are alike. loose: (N,) which rows that is for, default all; others
    are alike where all numbers are equal. NaN and infinity are like nothing that is not equal. No
    grid is laid over the numbers, so no border of a cell comes between two rows that are close.
    """
    rows = np.asarray(table, np.float64) + 0.0  # -0 is 0
    order = np.lexsort(rows.T[::-1])  # stable: of equal rows the first comes first
    new = np.ones(len(rows), bool)
    new[1:] = (rows[order[1:]] != rows[order[:-1]]).any(axis=1)
    number = np.empty(len(rows), np.int64)
    number[order] = np.cumsum(new) - 1
    # Equal rows count as one from here: n of them would be n^2 pairs.
    first = order[new]
    free = np.isfinite(rows[first]).all(axis=1)
    if loose is not None:
        some = np.zeros(len(first), bool)
        some[number[loose]] = True
        free &= some
    if tolerance > 0.0:
        some_near = np.flatnonzero(free)
        some_near = some_near[_near_others(rows[first[some_near]], tolerance)]
        first[some_near] = _firsts(rows[first[some_near]], first[some_near], tolerance)
    return first[number]


def _near_others(rows: npt.NDArray[np.float64], tolerance: float) -> IntArray:
    """Numbers of the rows that others may be near: near along each of some directions, among those
    that are left. It leaves out nearly all of a mesh before the search, which takes longer."""
    kept = np.arange(len(rows))
    for direction in np.random.default_rng(0).normal(size=(N_DIRECTIONS, rows.shape[1])):
        along = rows[kept] @ direction
        order = np.argsort(along)
        # A little more, for the products are rounded too.
        reach = 1.001 * tolerance * np.abs(direction).sum()
        near = np.diff(along[order]) <= reach
        beside = np.zeros(len(kept), bool)
        beside[order[1:]] = near
        beside[order[:-1]] |= near
        kept = kept[beside]
    return np.asarray(kept, np.int64)


def _firsts(rows: npt.NDArray[np.float64], first: IntArray, tolerance: float) -> IntArray:
    """The smallest of ``first`` among all rows that are alike. rows: distinct, finite."""
    if len(rows) < 2:
        return first
    tree = cKDTree(rows, balanced_tree=False, compact_nodes=False)
    pairs = tree.query_pairs(tolerance, p=np.inf, output_type="ndarray")
    if len(pairs) == 0:
        return first
    links = coo_matrix((np.ones(len(pairs), bool), (pairs[:, 0], pairs[:, 1])), (len(rows),) * 2)
    n_groups, group = connected_components(links, directed=False)
    least = np.full(n_groups, np.iinfo(np.int64).max)
    np.minimum.at(least, group, first)
    return np.asarray(least[group], np.int64)


def tolerance_of(positions: npt.ArrayLike) -> float:
    """Largest difference, along an axis, of positions (N, 3) that are one place, in their unit."""
    p = np.asarray(positions, np.float64).reshape(-1, 3)
    p = p[np.isfinite(p).all(axis=1)]
    if len(p) == 0:
        return 0.0
    extent = float(np.ptp(p, axis=0).max())
    return STEP * max(TOLERANCE_STEPS * extent, float(np.abs(p).max()))


def weld(
    positions: npt.ArrayLike, faces: npt.ArrayLike, more: npt.ArrayLike | None = None
) -> IntArray:
    """(N,) int: for each vertex the first one at the same place.

    positions: (N, 3), taken as float32, as the device holds them. faces: (F, 3) ints; vertices of
    no face are joined by equal numbers only, and the extent is that of the faces. more: (N, D),
    what else has to be alike, to the same tolerance (say how vertices move).
    """
    table = np.asarray(positions, np.float32).reshape(-1, 3).astype(np.float64)
    index = np.asarray(faces, np.int64).reshape(-1, 3)
    used = np.zeros(len(table), bool)
    used[index] = True
    tolerance = tolerance_of(table[used])
    if np.isfinite(table).all() and len(_near_others(table, tolerance)) == 0:
        return np.arange(len(table))  # a mesh without seams, whose vertices may move in each step
    longest = np.zeros(len(table))
    for k in range(3):
        ends = index[:, k], index[:, (k + 1) % 3]
        length = np.abs(table[ends[0]] - table[ends[1]]).max(axis=1, initial=0.0)
        for end in ends:
            np.maximum.at(longest, end, length)
    if more is not None:
        rest = np.asarray(more, np.float32).reshape(len(table), -1)
        table = np.concatenate([table, rest], axis=1)
    return first_alike(table, tolerance, longest >= MIN_EDGE * tolerance)


@dataclass(frozen=True, eq=False)
class Welding:
    """An answer of ``weld`` that joins equal rows only, and how long it stays the same for vertices
    that may come to lie on others."""

    n: int
    """Vertices."""
    repeats: IntArray
    first: IntArray
    """Of the vertices ``repeats`` the first ones at the same places."""
    ends: IntArray
    """Vertices that are watched, one per place."""
    at: npt.NDArray[np.float32]
    """Where they were, (len(ends), 3)."""
    apart: float
    """Least distance of two of them, along an axis."""

    @classmethod
    def of(
        cls, positions: npt.ArrayLike, first: IntArray, ends: IntArray | None = None
    ) -> Welding | None:
        """Return that of a welding; None where other rows than equal ones were joined.

        positions: (N, 3). first: the answer of ``weld``. ends: which vertices are watched, default
        all; a surface without a border has none that could close it.
        """
        table = np.asarray(positions, np.float32).reshape(-1, 3)
        repeats = np.flatnonzero(first != np.arange(len(first)))
        if not np.isfinite(table).all() or (table[repeats] != table[first[repeats]]).any():
            return None
        places = np.unique(first if ends is None else first[ends])
        rows = table[places].astype(np.float64)
        apart = np.inf
        if len(places) > 1:
            tree = cKDTree(rows, balanced_tree=False, compact_nodes=False)
            apart = float(tree.query(rows, k=2, p=np.inf)[0][:, 1].min())
        return cls(len(table), repeats, first[repeats], places, table[places], apart)

    def holds(self, positions: npt.ArrayLike) -> bool:
        """Whether the vertices that were joined still lie on one another, and no watched one has
        moved so far that it could lie on another watched one, or nearly: then ``weld`` gives the
        same among them, and ``warn_of_open_seams`` has nothing new to say. False where that is not
        known."""
        p = np.asarray(positions, np.float32).reshape(-1, 3)
        if len(p) != self.n:
            return False
        if len(self.repeats) and (p[self.repeats] != p[self.first]).any():
            return False
        if len(self.ends) < 2:
            return True
        moved = float(np.abs(p[self.ends] - self.at).max())
        low, high = p.min(axis=0), p.max(axis=0)
        extent, far = float((high - low).max()), float(max(-low.min(), high.max()))
        tolerance = STEP * max(TOLERANCE_STEPS * extent, far)
        # An edge is up to sqrt(3) extents long.
        return self.apart - 2.0 * moved > max(tolerance, 2.0 * NEAR_EDGE * extent)


def warn_of_open_seams(
    positions: npt.ArrayLike, faces: npt.ArrayLike, neighbors: npt.ArrayLike
) -> None:
    """Warn where border edges lie on one another, nearly: the surface has a seam that is open.

    positions: (N, 3). faces: (F, 3), rows of positions, welded. neighbors: (F, 3), across each of
    their edges, as of ``face_neighbors``. A silhouette runs along such edges, which nobody sees in
    the mesh.
    """
    p, index = np.asarray(positions, np.float64).reshape(-1, 3), np.asarray(faces).reshape(-1, 3)
    alone = (np.asarray(neighbors) < 0) & (index != index[:, [1, 2, 0]]).all(axis=1)[:, None]
    edges = np.sort(index[:, [[0, 1], [1, 2], [2, 0]]][alone], axis=1).astype(np.int64)
    # Where more than two faces meet all of them have none, too.
    key, count = np.unique(edges[:, 0] * len(p) + edges[:, 1], return_counts=True)
    key = key[count == 1]
    a, b = key // max(len(p), 1), key % max(len(p), 1)
    length = np.linalg.norm(p[b] - p[a], axis=1)
    usable = np.isfinite(length) & (length > 0.0)
    a, b, length = a[usable], b[usable], length[usable]
    if len(a) < 2:
        return
    # The nearest middle that is not the edge's own.
    _, near = cKDTree((p[a] + p[b]) / 2).query((p[a] + p[b]) / 2, k=2)
    other = np.where(near[:, 0] == np.arange(len(a)), near[:, 1], near[:, 0])

    def apart(u: IntArray, v: IntArray) -> npt.NDArray[np.float64]:
        return np.asarray(np.linalg.norm(p[u] - p[v], axis=1))

    alike = np.maximum(apart(a, a[other]), apart(b, b[other]))
    turned = np.maximum(apart(a, b[other]), apart(b, a[other]))
    miss = np.minimum(alike, turned)
    lying = miss <= NEAR_EDGE * length
    if lying.any():
        warn(
            f"{lying.sum()} of {len(a)} border edges of a mesh of {len(index)} faces lie on one "
            f"another, with ends up to {miss[lying].max():.2g} apart: a seam that is open, and "
            "silhouettes run along it\n  hint: give both sides the same vertices, or the same "
            f"positions; those up to {tolerance_of(p[np.unique(index)]):.2g} apart are one"
        )
