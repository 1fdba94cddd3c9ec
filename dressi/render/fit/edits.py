"""Splits, collapses and flips of edges, many at a time: the steps of remeshing.

In: a working surface (float64, with a wanted edge length per vertex). Out: another one. An edit is
made where it brings edges nearer to the wanted length, or angles nearer to even, and refused where
it would turn a face over or change the topology. Edits of one call do not touch each other: of
edges that would, the first in a ranking goes first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from dressi.render.scene.half_edges import EdgeTable
from dressi.render.scene.mesh import area_normals, unit_or_zero

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LONGEST, SHORTEST = 4.0 / 3.0, 4.0 / 5.0
"""Edges are split above and collapsed below these multiples of the wanted length: halves of a split
edge are not collapsed again, and edges of a collapse not split (Botsch and Kobbelt 2004)."""
_LEAST_TURN = 0.5
"""Cosine of the largest angle by which an edit may turn a face: 60 degrees."""
_ROUNDS = 12
"""Rounds of independent collapses per call; later calls go on where these end."""
_PASSES = 8
"""Passes over candidates per round: more find few. Where lengths rise along a strip, each finds one
edge of it, and a next round is as good."""
_WORTH = 0.002
"""A round of flips that changes fewer than this share of the edges is the last one of a call."""


@dataclass(frozen=True, eq=False)
class WorkingSurface:
    """positions: (V, 3). faces: (F, 3). lengths: (V,) wanted edge lengths, world units. rank: (V,)
    0 where a vertex may move within the surface, 1 along a crease, 2 not at all. creases: keys
    of edges (lower vertex times V plus higher), ascending.
    """

    positions: Floats
    faces: Ints
    lengths: Floats
    rank: Ints
    creases: Ints

    def is_crease(self, a: Ints, b: Ints) -> Bools:
        """(N,) bool: the edge between vertices a and b is a crease."""
        if len(self.creases) == 0:
            return np.zeros(len(a), bool)
        key = np.minimum(a, b) * len(self.positions) + np.maximum(a, b)
        return np.isin(key, self.creases)


def with_creases(surface: WorkingSurface, sharp_angle_deg: float | None) -> WorkingSurface:
    """Return the surface with ranks and creases of the dihedral angles that it has now.

    Borders do not move. Edges whose faces' normals differ by more than sharp_angle_deg are creases;
    a vertex on two of them may move along them, others with creases not at all. Chains of creases
    that are shorter than four wanted lengths are none: slivers make them, and no remeshed surface
    could show them. None: no creases.
    """
    p, n = surface.positions, len(surface.positions)
    table = EdgeTable.of(surface.faces)
    sharp = np.zeros((0, 2), np.int64)
    if sharp_angle_deg is not None:
        normals = steady_normals(p, surface.faces, table)
        pair = table.half_edges // 3
        cosine = np.einsum("ei,ei->e", normals[pair[:, 0]], normals[pair[:, 1]])
        edges = table.edges[table.edge[table.half_edges[:, 0]]]
        sharp = edges[cosine < np.cos(np.radians(sharp_angle_deg))]
    if len(sharp):
        graph = coo_matrix((np.ones(len(sharp)), sharp.T), shape=(n, n))
        chain = connected_components(graph, directed=False)[1][sharp[:, 0]]
        span = np.linalg.norm(p[sharp[:, 0]] - p[sharp[:, 1]], axis=1)
        share = np.bincount(chain, span / surface.lengths[sharp].mean(axis=1))
        sharp = sharp[share[chain] >= 4.0]
    count = np.bincount(sharp.ravel(), minlength=n)
    rank = np.where(count == 0, 0, np.where(count == 2, 1, 2))
    rank[table.edges[table.count != 2]] = 2
    return replace(surface, rank=rank, creases=np.sort(sharp[:, 0] * n + sharp[:, 1]))


def steady_normals(positions: Floats, faces: Ints, table: EdgeTable) -> Floats:
    """(F, 3) unit normals, with a tenth of those across the edges, by area.

    A sliver's own normal is that of rounding: here its neighbours' decide, elsewhere its own.
    """
    across = np.full(3 * len(faces), len(faces))  # the row of zeros, where no face is
    across[table.half_edges] = table.half_edges[:, ::-1] // 3
    normals = np.concatenate([area_normals(positions, faces), np.zeros((1, 3))])
    first, second, third = across.reshape(-1, 3).T
    return unit_or_zero(normals[:-1] + 0.1 * (normals[first] + normals[second] + normals[third]))


def split_long(surface: WorkingSurface) -> WorkingSurface:
    """Split edges of two faces that are too long in their middles. The surface stays as it is."""
    p, f = surface.positions, surface.faces
    table, n = EdgeTable.of(f), len(surface.positions)
    a, b = table.edges.T
    long = np.linalg.norm(p[a] - p[b], axis=1) > LONGEST * 0.5 * (
        surface.lengths[a] + surface.lengths[b]
    )
    long &= table.count == 2
    if not long.any():
        return surface
    a, b = a[long], b[long]
    middle = np.full(len(long), -1)
    middle[long] = n + np.arange(len(a))
    new_p = np.concatenate([p, 0.5 * (p[a] + p[b])])
    of_face = middle[table.edge].reshape(-1, 3)
    crease = surface.is_crease(a, b)
    halves = np.concatenate([np.stack([e, middle[long]], 1)[crease] for e in (a, b)])
    kept = surface.creases[~np.isin(surface.creases, (a * n + b)[crease])]
    whole = np.stack([kept // n, kept % n], axis=1)
    total = len(new_p)
    pairs = np.concatenate([whole, halves])
    return WorkingSurface(
        new_p,
        _cut(new_p, f, of_face),
        np.concatenate([surface.lengths, 0.5 * (surface.lengths[a] + surface.lengths[b])]),
        np.concatenate([surface.rank, crease.astype(np.int64)]),
        np.sort(pairs[:, 0] * total + pairs[:, 1]),
    )


def _cut(positions: Floats, faces: Ints, middle: Ints) -> Ints:
    """Faces cut at the middles of their edges. middle: (F, 3) vertex on each edge, or -1."""
    n_cut = (middle >= 0).sum(axis=1)
    out = [faces[n_cut == 0]]
    # Turned so that of one cut edge it is the first, of two the third is whole.
    start = np.where(n_cut == 1, (middle >= 0).argmax(axis=1), (middle < 0).argmax(axis=1) + 1) % 3
    order = (start[:, None] + np.arange(3)) % 3
    turned, at = np.take_along_axis(faces, order, 1), np.take_along_axis(middle, order, 1)
    one, two, three = (n_cut == k for k in (1, 2, 3))
    (a, b, c), m = turned[one].T, at[one, 0]
    out += [np.stack(t, axis=1) for t in ((a, m, c), (m, b, c))]
    (a, b, c), (m, k) = turned[two].T, at[two, :2].T
    first = np.linalg.norm(positions[a] - positions[k], axis=1) < np.linalg.norm(
        positions[m] - positions[c], axis=1
    )
    out += [
        np.stack([m, b, k], axis=1),
        np.stack([a, m, np.where(first, k, c)], axis=1),
        np.stack([np.where(first, a, m), k, c], axis=1),
    ]
    (a, b, c), (m, k, j) = faces[three].T, middle[three].T
    out += [np.stack(t, axis=1) for t in ((a, m, j), (m, b, k), (j, k, c), (m, k, j))]
    return np.concatenate(out)


def collapse_short(surface: WorkingSurface) -> WorkingSurface:
    """Collapse edges that are too short, where topology, creases and normals allow it."""
    refused = np.zeros(0, np.int64)
    n = len(surface.positions)
    live = np.ones(n, bool)  # the vertices of edges that may be short: those of the round before
    for _ in range(_ROUNDS):
        part = replace(surface, faces=_around(surface.faces, live))
        table = EdgeTable.of(part.faces)
        edges, target = _collapsible(part, table)
        key = edges[:, 0] * n + edges[:, 1]
        new = _any(live[edges]) & ~np.isin(key, refused, assume_unique=True)
        edges, target, key = edges[new], target[new], key[new]
        if len(edges) == 0:
            break
        chosen = np.flatnonzero(_apart(edges, _ranking(target), table.edges, n))
        good, place = _may_collapse(part, table, edges[chosen])
        live = np.zeros(n, bool)
        live[np.delete(edges, chosen[~good], axis=0)] = True
        refused = np.concatenate([refused, key[chosen[~good]]])
        surface = _collapse(surface, edges[chosen[good]], place[good])
    return _compacted(surface)


def _around(faces: Ints, live: Bools) -> Ints:
    """Return the faces, (N, 3) of (F, 3), of live vertices and of their neighbours: all that says
    whether an edge at a live vertex may be collapsed."""
    near = np.zeros(len(live), bool)
    near[faces[_any(live[faces])]] = True
    return faces[_any(near[faces])]


def _any(rows: Bools) -> Bools:
    """``rows.any(axis=1)`` of few columns, which NumPy takes five times as long for."""
    found = rows[:, 0].copy()
    for column in rows.T[1:]:
        found |= column
    return found


def _lengths(vectors: Floats) -> Floats:
    """``np.linalg.norm`` along the last of the axes, in half the time."""
    return np.sqrt(np.einsum("...i,...i->...", vectors, vectors))


def _ranking(cost: Floats) -> Ints:
    rank = np.empty(len(cost), np.int64)
    rank[np.argsort(cost, kind="stable")] = np.arange(len(cost))
    return rank


def _apart(edges: Ints, rank: Ints, all_edges: Ints, n: int) -> Bools:
    """Choose edges of which no two are joined by an edge: the lowest rank around goes first, and
    again among what that leaves free."""
    chosen, free = np.zeros(len(edges), bool), np.arange(len(edges))
    near = np.zeros(n, bool)
    near[edges] = True
    i, j = all_edges[near[all_edges].all(axis=1)].T
    for _ in range(_PASSES):
        ends, own = edges[free].T, rank[free]
        lowest = np.full(n, len(edges))
        for end in ends:
            np.minimum.at(lowest, end, own)
        around = lowest.copy()
        np.minimum.at(around, i, lowest[j])
        np.minimum.at(around, j, lowest[i])
        first = free[(own == around[ends[0]]) & (own == around[ends[1]])]
        chosen[first] = True
        beside = np.zeros(n, bool)
        beside[edges[first]] = True
        taken = beside.copy()
        taken[i[beside[j]]] = taken[j[beside[i]]] = True
        free = free[~_any(taken[edges[free]])]
    return chosen


def _collapsible(surface: WorkingSurface, table: EdgeTable) -> tuple[Ints, Floats]:
    """Edges that are short and may go by their ranks, and their lengths over the wanted ones."""
    a, b = table.edges.T
    ratio = _lengths(surface.positions[a] - surface.positions[b]) / (
        0.5 * (surface.lengths[a] + surface.lengths[b])
    )
    lower = np.minimum(surface.rank[a], surface.rank[b])
    allowed = (ratio < SHORTEST) & (table.count == 2) & (lower < 2)
    along = allowed & (lower == 1)
    allowed[along] = surface.is_crease(a[along], b[along])
    return table.edges[allowed], ratio[allowed]


def _may_collapse(surface: WorkingSurface, table: EdgeTable, edges: Ints) -> tuple[Bools, Floats]:
    """Which edges may be collapsed, and to which points (N, 3)."""
    p, f, n = surface.positions, surface.faces, len(surface.positions)
    a, b = edges.T
    rank_a, rank_b = surface.rank[a], surface.rank[b]
    share = np.where(rank_a == rank_b, 0.5, np.where(rank_a > rank_b, 0.0, 1.0))[:, None]
    place = p[a] + share * (p[b] - p[a])
    edge_of = np.full(n, -1)
    edge_of[a], edge_of[b] = np.arange(len(a)), np.arange(len(a))
    # The link condition: only the corners of the edge's two faces see both of its ends.
    ways = np.concatenate([table.edges, table.edges[:, ::-1]])
    of, seen = edge_of[ways[:, 0]], ways[:, 1]
    key, times = np.unique((of * n + seen)[of >= 0], return_counts=True)
    rows, common = np.divmod(key[times == 2], n)
    good = np.bincount(rows, minlength=len(a)) == 2
    valence = np.bincount(table.edges.ravel(), minlength=n)
    good[rows[valence[common] <= 3]] = False
    at = edge_of[f]
    owner = np.maximum(np.maximum(at[:, 0], at[:, 1]), at[:, 2])
    stays = np.flatnonzero((owner >= 0) & ((at >= 0) @ np.ones(3, np.int8) == 1))
    at, owner, corners = at[stays], owner[stays], p[f[stays]]
    moved = np.where((at >= 0)[..., None], place[owner][:, None], corners)
    normals = steady_normals(p, f, table)[stays]
    cosine = np.einsum("fi,fi->f", normals, unit_or_zero(_normals(moved)))
    good[owner[cosine < _LEAST_TURN]] = False
    far = surface.lengths[f[stays]].mean(axis=1) * LONGEST
    # Beside edges that are too long already, no more is asked than that they stay about as long.
    before, after = (_lengths(x - x[:, [2, 0, 1]]) for x in (corners, moved))
    before, after = (np.maximum(np.maximum(x[:, 0], x[:, 1]), x[:, 2]) for x in (before, after))
    about = before + _lengths(p[a] - p[b])[owner]
    worse = after > np.where(before > far, about, far)
    good[owner[worse]] = False
    return good, place


def _normals(corners: Floats) -> Floats:
    return np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])


def _collapse(surface: WorkingSurface, edges: Ints, place: Floats) -> WorkingSurface:
    a, b = edges.T
    positions, lengths = surface.positions.copy(), surface.lengths.copy()
    rank = surface.rank.copy()
    positions[a], lengths[a] = place, 0.5 * (lengths[a] + lengths[b])
    rank[a] = np.maximum(rank[a], rank[b])
    to, n = np.arange(len(positions)), len(positions)
    to[b] = a
    faces = to[surface.faces]
    faces = faces[~_any(faces == faces[:, [2, 0, 1]])]
    i, j = to[surface.creases // n], to[surface.creases % n]
    key = np.minimum(i, j) * n + np.maximum(i, j)
    return WorkingSurface(positions, faces, lengths, rank, np.unique(key[i != j]))


def _compacted(surface: WorkingSurface) -> WorkingSurface:
    """Return the surface without the vertices that no face has."""
    n = len(surface.positions)
    used, index = np.unique(surface.faces, return_inverse=True)
    number = np.full(n, -1)
    number[used] = np.arange(len(used))
    i, j = number[surface.creases // n], number[surface.creases % n]
    return WorkingSurface(
        surface.positions[used],
        np.reshape(index, (-1, 3)).astype(np.int64),
        surface.lengths[used],
        surface.rank[used],
        np.sort((i * len(used) + j)[(i >= 0) & (j >= 0)]),
    )


def flip_uneven(surface: WorkingSurface, rounds: int = 6) -> WorkingSurface:
    """Flip edges where the smallest angle at them grows, until few would; creases stay."""
    n = len(surface.positions)
    for _ in range(rounds):
        table = EdgeTable.of(surface.faces)
        corners, pair, gain = _flips(surface, table)
        if len(corners) == 0:
            break
        rank, lowest = _ranking(-gain), np.full(n, len(gain))
        for column in corners.T:
            np.minimum.at(lowest, column, rank)
        chosen = (rank[:, None] == lowest[corners]).all(axis=1)
        a, b, c, d = corners[chosen].T
        # Faces abc and bad become cdb and dca.
        faces = surface.faces.copy()
        faces[pair[chosen, 0]] = np.stack([c, d, b], axis=1)
        faces[pair[chosen, 1]] = np.stack([d, c, a], axis=1)
        surface = replace(surface, faces=faces)
        if chosen.sum() < _WORTH * len(faces):
            break
    return surface


def _flips(surface: WorkingSurface, table: EdgeTable) -> tuple[Ints, Ints, Floats]:
    """(N, 4) corners a, b, c, d of faces abc and bad whose edge ab had better be cd.

    Returns also the two faces (N, 2), and by how much the smallest angle grows, radians.
    """
    p, f, n = surface.positions, surface.faces, len(surface.positions)
    flat = f.ravel()
    h, g = table.half_edges[~table.turned[table.edge[table.half_edges[:, 0]]]].T
    a, b = flat[h], flat[h - h % 3 + (h + 1) % 3]
    c, d = flat[h - h % 3 + (h + 2) % 3], flat[g - g % 3 + (g + 2) % 3]
    valence = np.bincount(table.edges.ravel(), minlength=n)
    usable = (valence[a] > 3) & (valence[b] > 3) & (c != d) & ~surface.is_crease(a, b)
    a, b, c, d, h, g = (x[usable] for x in (a, b, c, d, h, g))
    old = _least_angle(p[f])
    new = np.minimum(*(_least_angle(p[np.stack(t, axis=1)]) for t in ((c, d, b), (d, c, a))))
    gain = new - np.minimum(old[h // 3], old[g // 3])
    better = np.flatnonzero(gain > 1e-3)  # less is rounding
    a, b, c, d, h, g, gain = (x[better] for x in (a, b, c, d, h, g, gain))
    before = unit_or_zero(_normals(p[f[h // 3]]) + _normals(p[f[g // 3]]))
    good = ~np.isin(np.minimum(c, d) * n + np.maximum(c, d), table.edges @ [n, 1])
    for t in ((c, d, b), (d, c, a)):
        after = unit_or_zero(_normals(p[np.stack(t, axis=1)]))
        good &= np.einsum("fi,fi->f", before, after) > _LEAST_TURN
    return np.stack([a, b, c, d], axis=1)[good], np.stack([h // 3, g // 3], 1)[good], gain[good]


def _least_angle(corners: Floats) -> Floats:
    """(N,) smallest angle of each triangle, radians."""
    a, b, c = np.moveaxis(corners, 1, 0)
    sides = np.stack([((q - r) ** 2).sum(axis=1) for q, r in ((b, c), (c, a), (a, b))])
    # It is across the shortest side, and the dot product of the others is half of this.
    cosine = sides.sum(axis=0) - 2.0 * sides.min(axis=0)
    return np.asarray(np.arctan2(2.0 * np.linalg.norm(_normals(corners), axis=1), cosine))
