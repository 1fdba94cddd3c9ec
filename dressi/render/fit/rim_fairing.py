"""Fair surfaces between rims: where silhouettes do not decide, a surface bends as little as it can.

In: a mesh that was fitted to masks, and the masks. Out: the mesh with the same faces. A silhouette
touches the object along a rim, a curve on which the surface is seen edge-on; between the rims of
two views it says only that the surface lies within both cones. A visual hull fills that space up to
a ridge where the cones meet, and a fit that starts there keeps the ridge, because no picture
contradicts it. Here the rims stay and all else is moved to the least bending that stays within the
cones: the space between rims is as smooth as they allow.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, diags, identity
from scipy.sparse.linalg import splu

from dressi.errors import GraphError
from dressi.render.fit.patches import adjacency
from dressi.render.fit.silhouettes import Floats, Silhouettes, distances_in_views, silhouettes
from dressi.render.scene import Mesh, vertex_normals
from dressi.render.scene.half_edges import EdgeTable

Bools = npt.NDArray[np.bool_]

TURNS = 6
"""Rims move with the surface: they are found anew so many times."""
RIM = 10.0
"""Weight of a rim's distance to its outline, beside the bending: rims move little."""
ANCHOR = 1e-3
"""Weight of staying: the bending has its way over about 35 edges."""
NEAR_PX = 1.5
"""Of a rim to its outline: contours farther inside are those of one part before another."""
SLACK_PX = 0.5
"""That the surface may stand out of a silhouette: outlines of photos are not better than that.
Where it stood out more (cameras that are a little off contradict each other), it still may."""
_SMOOTHING_PX = 0.7  # of outlines, as in a hull


def faired_between_rims(
    mesh: Mesh,
    masks: npt.ArrayLike,
    matrices: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
) -> Mesh:
    """Return the mesh, moved along its normals to the least bending that keeps its rims.

    mesh: closed, near the outlines of the masks, edges about even. masks: (views, H, W, 1) coverage
    in [0, 1]. matrices: (views, 4, 4) world to clip. weights: (views, H, W, 1), pixels without any
    say nothing. A vertex is on the rim of a view where it is seen edge-on within NEAR_PX of the
    outline; of those at one place of an outline the one that the bending pulls inward least counts:
    a silhouette says that its ray meets the object somewhere. The surface stands out of silhouettes
    by no more than SLACK_PX, or than it did. It may end folded: see ``untangle``. Raises GraphError
    (a bad mesh, shapes, values).
    """
    mesh.check()
    views = silhouettes("faired_between_rims", masks, matrices, _SMOOTHING_PX)
    known = np.ones(views.distances_px.shape, bool)
    if weights is not None:
        known = np.asarray(weights)[..., 0] > 0.0
        if known.shape != views.distances_px.shape:
            raise GraphError(
                f"faired_between_rims: weights must be (views, H, W, 1), got {np.shape(weights)}"
            )
    points = mesh.positions.astype(np.float64)
    joined = adjacency(mesh.faces, len(points))
    edges = EdgeTable.of(mesh.faces).edges
    degree = np.asarray(joined.sum(axis=1)).ravel()
    laplacian = (diags(1.0 / np.maximum(degree, 1.0)) @ joined - identity(len(points))).tocsr()
    slack = np.maximum(SLACK_PX, -_lowest(views, known, points, 0.0, in_pixels=True))
    for _ in range(TURNS):
        edge = float(np.linalg.norm(points[edges[:, 0]] - points[edges[:, 1]], axis=1).mean())
        normals = _normals(points, mesh.faces, joined)
        rims = _rims(views, known, points, normals, edges)
        way = _least_bending(views, rims, points, normals, laplacian, edge)
        points = points + np.clip(way, -edge, edge)[:, None] * normals
        points = points + np.minimum(_lowest(views, known, points, slack), 0.0)[:, None] * normals
    return replace(mesh, positions=points.astype(np.float32))


def _normals(points: Floats, faces: npt.NDArray[np.integer], joined: csr_matrix) -> Floats:
    """Return (V, 3): normals, each the mean with its neighbours'."""
    normals = vertex_normals(points.astype(np.float32), faces).astype(np.float64)
    normals = normals + joined @ normals
    return np.asarray(normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-12))


def _rims(
    views: Silhouettes, known: Bools, points: Floats, normals: Floats, edges: npt.NDArray[np.int64]
) -> Bools:
    """Return (views, V): the vertices on the rim of each view: of edges of which one end is seen
    from the front and one from behind, the end that is seen more edge-on."""
    eyes = np.linalg.svd(views.matrices[:, [0, 1, 3]])[2][:, 3]  # homogeneous
    to_eye = eyes[:, None, :3] - eyes[:, None, 3:] * points
    front = (to_eye * normals).sum(axis=2) / np.maximum(np.linalg.norm(to_eye, axis=2), 1e-12)
    away, seen, _, pixel = distances_in_views(views, points)
    rims = np.zeros(front.shape, bool)
    for one, facing in zip(rims, front, strict=True):
        a, b = edges[facing[edges[:, 0]] * facing[edges[:, 1]] < 0.0].T
        one[np.where(np.abs(facing[a]) < np.abs(facing[b]), a, b)] = True
    return np.asarray(rims & seen & _known(known, pixel) & (np.abs(away) < NEAR_PX))


def _known(known: Bools, pixel: Floats) -> Bools:
    """Return (views, V): whether the pixel (views, V, 2) of each point, or the nearest one, is."""
    column, row = np.moveaxis(np.floor(pixel).astype(np.int64), -1, 0)
    column, row = column.clip(0, known.shape[2] - 1), row.clip(0, known.shape[1] - 1)
    return known[np.arange(len(known))[:, None], row, column]


def _least_bending(
    views: Silhouettes,
    rims: Bools,
    points: Floats,
    normals: Floats,
    laplacian: csr_matrix,
    edge: float,
) -> Floats:
    """Return (V,): ways along the normals to the least bending with all rims, less those that are
    pulled inward more than another at the same place of an outline."""
    away, _, per_unit, pixel = distances_in_views(views, points)
    bending = (laplacian.T @ laplacian).tocsc()
    pull = laplacian.T @ (normals * (laplacian @ points)).sum(axis=1)

    def solved(held: Bools) -> Floats:
        n_held = held.sum(axis=0)
        target = np.where(held, away / per_unit, 0.0).sum(axis=0) / np.maximum(n_held, 1)
        weight = RIM * (n_held > 0)
        system = (bending + diags(weight + ANCHOR)).tocsc()
        return np.asarray(splu(system).solve(weight * target - pull))

    inward = bending @ solved(rims) + pull
    view, vertex = np.nonzero(rims)
    if len(view) == 0:
        return solved(rims)
    side = max(edge * float(np.median(per_unit[view, vertex])), 1.0)
    place = np.floor(pixel[view, vertex] / side).astype(np.int64)
    order = np.lexsort((inward[vertex], place[:, 0], place[:, 1], view))
    keys = np.column_stack([view, place])[order]
    first = np.ones(len(order), bool)
    first[1:] = (keys[1:] != keys[:-1]).any(axis=1)
    held = np.zeros_like(rims)
    held[view[order[first]], vertex[order[first]]] = True
    return solved(held)


def _lowest(
    views: Silhouettes,
    known: Bools,
    points: Floats,
    slack_px: Floats | float,
    in_pixels: bool = False,
) -> Floats:
    """Return (V,): the least distance of each point to an outline, slack added, positive inside;
    world units or pixels. Infinite where no view knows."""
    away, seen, per_unit, pixel = distances_in_views(views, points)
    unit = 1.0 if in_pixels else per_unit
    counted = seen & _known(known, pixel)
    return np.asarray(np.where(counted, (away + slack_px) / unit, np.inf).min(axis=0))
