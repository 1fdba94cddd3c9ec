"""How far a surface has to move along its normals to be consistent with photos.

In: a mesh near the surface, photos. Out: a distance per vertex. Silhouettes leave hollows too full,
and what lies between two photos; there patches look alike only where the surface really is. The
distances minimize the sum of what photos say of each vertex and of slopes between neighbours; where
photos say nothing, nothing clearly better than the surface as it is, or farther inside just as much
(a highlight is the mirror image of a lamp, which lies behind the surface), they go to 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, diags, identity
from scipy.sparse.linalg import splu

from dressi.errors import GraphError
from dressi.render.fit.patches import adjacency
from dressi.render.fit.photo_consistency import Floats, GreyPhotos, patch_scores, pixel_sizes
from dressi.render.fit.remeshing import mean_edge_length
from dressi.render.fit.visibility import seen_points
from dressi.render.scene import Mesh, vertex_normals

STEP_PX = 1.2
"""Between offsets, in samples of a patch: half a sample of parallax at 25 degrees."""
OUTWARD = 1.0 / 3.0
"""Of the inward reach: what silhouettes and regularizers made too thin."""
SLOPE = 0.1
"""Cost of a slope of 1 along an edge, beside that of a score of 0 in the place of 1."""
UNKNOWN = 0.75
"""Cost of an inward offset that no pair of photos shows: that of a low score."""
FORBIDDEN = 1.5
"""Cost of offsets beyond silhouettes, and through the object."""
COUPLINGS = np.geomspace(0.02, 3.0, 14)
"""Weights, per squared edge length, of the bond between what photos choose and what is smooth."""
ANCHOR = 0.002
"""Weight that takes distances to 0 where nothing else does."""
THIN = 0.45
"""Share of the way to the opposite side that a vertex may move: two sides do not meet."""
LEAST_GAIN, CLEAR_GAIN = 0.05, 0.15
"""Gain of the score, over that of the surface as it is and over that of all places farther inside,
from which on it counts, and from which on it counts in full."""
BEYOND = 2
"""Offsets from the chosen one to what is farther inside: nearer ones are of the same peak."""
LEAST_SCORE, CLEAR_SCORE = 0.3, 0.5
"""The same of the score."""
RINGS = 4
"""Over which gain and score are averaged."""
HIDDEN = 4e-3
"""Parts of the diagonal that a face may lie before a vertex without hiding it."""
OPPOSITE = (0.85, -0.3)
"""Of the opposite side: least cosine of the way to it and the inward normal, and most of the two
normals."""
_ROWS = 500  # of pairs of vertices at a time


@dataclass(frozen=True, eq=False)
class ConsistentOffsets:
    """How far each vertex lies before the surface on which photos agree. distances: (V,) world
    units, inward. directions: (V, 3) unit vectors, outward: normals, smoothed. scores: (V,) of the
    surface as it is, NaN where photos say nothing. best: (V,) at the distances before they were
    taken back where nothing is gained."""

    distances: Floats
    directions: Floats
    scores: Floats
    best: Floats

    def moved(self, positions: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
        """Return the positions (V, 3) moved by the distances."""
        return (positions - self.distances[:, None] * self.directions).astype(np.float32)


def consistent_offsets(mesh: Mesh, photos: GreyPhotos, reach: float) -> ConsistentOffsets:
    """Return how far each vertex of a closed mesh has to move to be consistent with photos.

    photos: at least two. reach: of offsets inward, world units; a third of it outward. Vertices
    stay within all silhouettes, and short of the middle of what is thin. Raises GraphError (a bad
    mesh, reach not above 0).
    """
    mesh.check()
    if not (np.isfinite(reach) and reach > 0.0):
        raise GraphError(f"consistent_offsets: reach must be above 0, got {reach}")
    points = mesh.positions.astype(np.float64)
    joined = adjacency(mesh.faces, len(points))
    normals = vertex_normals(mesh.positions, mesh.faces).astype(np.float64)
    directions = _averaged(normals, joined, np.ones(len(points)), 2)
    directions /= np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-9)
    offsets = _offsets(photos, points, reach)
    seen = seen_points(points, mesh, photos.matrices, HIDDEN)
    scores = patch_scores(photos, points, directions, seen, offsets)
    most = THIN * thickness(points, normals)
    cost = _costs(scores, offsets, most)
    wanted = np.minimum(_smooth_choice(cost, offsets, joined, mean_edge_length(mesh)), most)
    now, best = _at(scores, offsets, 0.0 * wanted), _at(scores, offsets, wanted)
    known = np.isfinite(now) & np.isfinite(best)
    weight = np.where(known, 1.0, 1e-6)
    gain = _averaged(np.where(known, best - now, 0.0), joined, weight, RINGS)
    clear = best - _beyond(scores, offsets, wanted)
    clear = _averaged(np.where(known, clear, 0.0), joined, weight, RINGS)
    score = _averaged(np.where(known, best, 0.0), joined, weight, RINGS)
    share = _rising(np.minimum(gain, clear), LEAST_GAIN, CLEAR_GAIN)
    share *= _rising(score, LEAST_SCORE, CLEAR_SCORE)
    distances = _averaged(wanted * share, joined, np.ones(len(points)), 2)
    return ConsistentOffsets(distances, directions, now, best)


def thickness(points: Floats, normals: Floats) -> Floats:
    """Return (V,): the way from each vertex, inward, to the nearest vertex of the opposite side;
    infinite where there is none. points, normals: (V, 3), outward."""
    found = np.full(len(points), np.inf)
    for start in range(0, len(points), _ROWS):
        part = slice(start, start + _ROWS)
        # |p - q|^2 and n . (p - q), without an array of all differences.
        square = (points[part] ** 2).sum(axis=1)[:, None] + (points**2).sum(axis=1)
        away = np.sqrt(np.maximum(square - 2.0 * (points[part] @ points.T), 0.0))
        deep = (normals[part] * points[part]).sum(axis=1)[:, None] - normals[part] @ points.T
        opposite = (deep > OPPOSITE[0] * away) & (normals[part] @ normals.T < OPPOSITE[1])
        found[part] = np.where(opposite, away, np.inf).min(axis=1)
    return found


def _offsets(photos: GreyPhotos, points: Floats, reach: float) -> Floats:
    """Return the offsets that are tried, (D,), world units; 0 is one of them."""
    step = STEP_PX * photos.spacing_px * float(np.median(pixel_sizes(photos, points)))
    inward = max(int(np.ceil(reach / step)), 1)
    outward = max(int(np.ceil(OUTWARD * reach / step)), 1)
    return np.asarray(np.arange(-outward, inward + 1) * step, np.float64)


def _costs(scores: Floats, offsets: Floats, most: Floats) -> Floats:
    """Return (V, D): 1 less the score, and what stands for it where there is none."""
    unknown = np.isnan(scores)
    cost = np.where(unknown, np.where(offsets < 0.0, FORBIDDEN, UNKNOWN), 1.0 - scores)
    cost[(offsets > 0.0) & (offsets > most[:, None])] = FORBIDDEN
    cost[unknown.all(axis=1)] = 0.0
    return np.asarray(cost)


def _smooth_choice(cost: Floats, offsets: Floats, joined: csr_matrix, edge: float) -> Floats:
    """Return (V,) distances: nearly those of the least sum of costs and of squared slopes.

    In turns, as in DTAM (Newcombe et al. 2011): the best offset of each vertex near its smooth
    distance, by search, and the smooth distances near the best offsets, by a linear system; the
    bond between the two grows.
    """
    n, n_offsets = cost.shape
    degree = np.asarray(joined.sum(axis=1)).ravel()
    laplacian = SLOPE * (diags(degree) - joined)
    at, smooth = offsets / edge, np.zeros(n)
    for bond in COUPLINGS:
        total = cost + 0.5 * bond * (at - smooth[:, None]) ** 2
        best = total.argmin(axis=1)
        inner = np.clip(best, 1, n_offsets - 2)
        below, here, above = (total[np.arange(n), inner + k] for k in (-1, 0, 1))
        bent = np.maximum(below - 2.0 * here + above, 1e-9)
        between = np.where(best == inner, np.clip(0.5 * (below - above) / bent, -0.5, 0.5), 0.0)
        chosen = at[best] + between * (at[1] - at[0])
        system = (laplacian + (bond + ANCHOR) * identity(n)).tocsc()
        smooth = splu(system).solve(bond * chosen)
    return np.asarray(smooth * edge)


def _at(scores: Floats, offsets: Floats, distances: Floats) -> Floats:
    """Return (V,): the score at the offset nearest to each distance."""
    return np.asarray(scores[np.arange(len(scores)), _row(offsets, distances)])


def _beyond(scores: Floats, offsets: Floats, distances: Floats) -> Floats:
    """Return (V,): the highest score farther inside than each distance; that at the distance where
    there is none: a score that rises up to the end has no peak."""
    farther = np.arange(len(offsets)) >= _row(offsets, distances)[:, None] + BEYOND
    farther &= np.isfinite(scores)
    highest = np.where(farther, scores, -np.inf).max(axis=1)
    return np.where(farther.any(axis=1), highest, _at(scores, offsets, distances))


def _row(offsets: Floats, distances: Floats) -> npt.NDArray[np.int64]:
    """Return (V,): which offset is nearest to each distance."""
    place = (distances - offsets[0]) / (offsets[1] - offsets[0])
    return np.clip(np.round(place).astype(np.int64), 0, len(offsets) - 1)


def _averaged(values: Floats, joined: csr_matrix, weight: Floats, rings: int) -> Floats:
    """Return values (V,) or (V, C), each the weighted mean with its neighbours', so many times."""
    around = joined + identity(joined.shape[0])
    column = (-1, *[1] * (values.ndim - 1))
    total = np.asarray(around @ weight).reshape(column)
    for _ in range(rings):
        values = (around @ (values * weight.reshape(column))) / total
    return np.asarray(values)


def _rising(values: Floats, least: float, clear: float) -> Floats:
    """Return 0 up to the least, 1 from the clear value on, linear between."""
    return np.asarray(np.clip((values - least) / (clear - least), 0.0, 1.0))
