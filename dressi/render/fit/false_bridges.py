"""Bridges that no mask shows: cut.

In: a mesh that was fitted to masks, and the masks. Out: the mesh with fewer holes through it, or as
it was. A visual hull joins parts of an object that no view sees apart well enough; the pictures
then pull the bridge thinner and thinner, but vertices cannot take it away. Where one mask is empty
all around a ring of the surface, the ring is cut out, and its two ends are closed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from dressi.render.fit.patches import Ints, border_loops, exchanged, regions
from dressi.render.fit.remeshing import mean_edge_length
from dressi.render.fit.silhouettes import Silhouettes, distances_in_views, silhouettes
from dressi.render.scene import Mesh, surface_genus, surface_problems

OUTSIDE_PX = 1.0
"""Of a ring's vertices to the mask: a surface that fits as well as it can stands out less."""
_SMOOTHING_PX = 0.7  # of outlines, as in a hull


def without_false_bridges(
    mesh: Mesh,
    masks: npt.ArrayLike,
    matrices: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
    agreeing_views: int = 1,
) -> Mesh:
    """Return the mesh without the handles that masks show to be none.

    mesh: closed, near the outlines of the masks. masks: (views, H, W, 1) coverage in [0, 1].
    matrices: (views, 4, 4) world to clip. weights: (views, H, W, 1), pixels without any say
    nothing. agreeing_views: in so many views the whole ring must lie outside, more than one where
    masks may be wrong. A ring is cut only if that leaves one hole less and no more parts, and no
    face flipped or crossing that was not, and if all that masks show at the ring is covered by what
    is left: a thin part beside its place is no bridge. Raises GraphError (shapes, values).
    """
    if surface_genus(mesh) < 1:
        return mesh
    before = surface_problems(mesh)
    if not before.is_closed:
        return mesh
    views = silhouettes("without_false_bridges", masks, matrices, _SMOOTHING_PX)
    outside = _outside(mesh, views, weights)
    done: list[Ints] = []
    for bad in outside:
        faces = mesh.faces.astype(np.int64)
        for part in regions(faces, bad):
            loops = border_loops(faces[part], euler_number=0)
            if loops is None or len(loops) != 2 or any(np.isin(part, d).any() for d in done):
                continue
            ring = np.unique(faces[part])
            ring = ring[bad[ring]]
            if outside[:, ring].all(axis=1).sum() < agreeing_views:
                continue
            if _uncovers(mesh, views, ring):
                continue
            after = surface_problems(exchanged(mesh, [(part, loops), *_pairs(mesh, done)]))
            if (
                after.is_closed
                and after.genus == before.genus - 1 - len(done)
                and after.n_components == before.n_components
                and len(after.flipped_faces) <= len(before.flipped_faces)
                and len(after.intersections) <= len(before.intersections)
            ):
                done.append(part)
    return exchanged(mesh, _pairs(mesh, done))


def _pairs(mesh: Mesh, parts: list[Ints]) -> list[tuple[Ints, list[Ints]]]:
    """Return rings with the loops around them."""
    faces = mesh.faces.astype(np.int64)
    return [(part, border_loops(faces[part], euler_number=0) or []) for part in parts]


def _uncovers(mesh: Mesh, views: Silhouettes, ring: Ints) -> bool:
    """Return True where a mask shows something within an edge and a pixel of a ring's vertices, and
    of no other ones."""
    _, seen, per_unit, pixel = distances_in_views(views, mesh.positions.astype(np.float64))
    rest = np.ones(len(mesh.positions), bool)
    rest[ring] = False
    for k in range(views.n_views):
        here, others = pixel[k, ring[seen[k, ring]]], pixel[k, rest & seen[k]]
        if len(here) == 0:
            continue
        reach = mean_edge_length(mesh) * float(np.median(per_unit[k, ring])) + OUTSIDE_PX
        shown = np.argwhere(views.distances_px[k] > 0.0)[:, ::-1] + 0.5
        shown = shown[cKDTree(here).query(shown, distance_upper_bound=reach)[0] <= reach]
        if len(others) == 0 or (cKDTree(others).query(shown)[0] > reach).any():
            return len(shown) > 0
    return False


def _outside(
    mesh: Mesh, views: Silhouettes, weights: npt.ArrayLike | None
) -> npt.NDArray[np.bool_]:
    """(views, V) bool: where a vertex lies outside of a mask by OUTSIDE_PX."""
    distance, seen, _, pixel = distances_in_views(views, mesh.positions.astype(np.float64))
    out = np.asarray(seen & (distance < -OUTSIDE_PX))
    if weights is not None:
        known = np.asarray(weights)[..., 0] > 0.0
        height, width = known.shape[1:]
        for k in range(len(out)):
            at = np.clip(np.where(seen[k, :, None], pixel[k], 0.0), 0, [width - 1, height - 1])
            column, row = at.astype(np.int64).T
            out[k] &= known[k, row, column]
    return out
