"""Surfaces of grids without folds: where the triangles of a grid's values fold at the size of a
cell, the values there are smoothed until they do not.

In: one number per point of a grid, or any mesh (``shell``). Out: a closed mesh in order.
A rim of a thin wall, a slit or a strand as wide as a cell has no room to turn: triangles on its two
sides face away from each other. The values are raised a little and smoothed there, so that walls
and strands grow to a few cells, slits and handles narrower than that close, and all else stays.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from dressi.render.fit.closest import closest_on_surface
from dressi.render.fit.isosurface import isosurface, without_small_parts
from dressi.render.fit.merging import merged
from dressi.render.fit.surface_metrics import sample_surface
from dressi.render.fit.thin_parts import thin_points
from dressi.render.fit.winding import winding_numbers
from dressi.render.scene import Mesh, bounding_box, surface_area
from dressi.render.scene.intersections import intersecting_faces
from dressi.render.scene.mesh import flipped_faces
from dressi.render.scene.predicates import ExactPoints, has_area
from dressi.render.scene.welding import first_alike

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_RAISED = 0.4
"""Cells by which values are raised per round where faces fold: smoothing alone eats thin walls."""
_WIDTH = 2.0
"""Standard deviations at which the filter ends."""
_FARTHEST = 4.0
"""Cells beyond which values are taken to be equal, so that smoothing stays local."""
_ROUNDS = 24
"""Four to ten are what thin sheets and frames take; each smooths more strongly, and a quarter of a
cell further around."""


def even_isosurface(values: Floats, low: Floats, spacing: float, name: str) -> Mesh:
    """Return the surface of values (arguments of ``isosurface``) with one vertex near each point of
    the grid, where that keeps the topology and points of thin parts inside: even triangles, a
    quarter of them."""
    raw = isosurface(values, low, spacing, name)
    at = tuple(np.rint((raw.positions - low) / spacing).astype(np.int64).T)
    nearest = np.ravel_multi_index(at, values.shape)
    made = merged(raw, nearest)
    thin = thin_points(values > 0.0)
    if thin.any() and not _folded(made).any():  # what is folded is made anew
        lost = thin & (winding_numbers(made.positions, made.faces, low, spacing, values.shape) < 1)
        alone = np.flatnonzero(ndimage.binary_dilation(lost, np.ones((3, 3, 3), bool))[at])
        nearest[alone] = values.size + alone
        made = merged(raw, nearest) if len(alone) else made
    return made


def orderly_isosurface(values: Floats, low: Floats, spacing: float, name: str) -> Mesh:
    """Return the surface of values in even triangles, without flipped and crossing faces.

    values: (X, Y, Z), world units, positive inside, not so on the grid's sides. low, spacing: as of
    ``isosurface``. Where that takes more rounds than there are, the surface of the last one is
    returned.
    """
    made = even_isosurface(values, low, spacing, name)
    bad = _tangled(made)
    cells = np.clip(np.pad(values, 2, constant_values=-np.inf) / spacing, -_FARTHEST, _FARTHEST)
    corner = low - 2.0 * spacing
    for step in range(_ROUNDS):
        if not bad.any():
            break
        cells = _smoothed_at(cells, (made.positions[bad] - corner) / spacing, step)
        made = even_isosurface(cells * spacing, corner, spacing, name)
        bad = _tangled(made)
    return made


def shell(mesh: Mesh, cells: int = 96) -> Mesh:
    """Return a closed surface in order around a mesh that may be anything: what lies within a cell
    and a half of its faces, and what that encloses.

    cells: of the grid along the longest side of the mesh's box. Raises GraphError (a bad mesh, one
    without area).
    """
    box = bounding_box(mesh.positions)
    spacing = float(np.ptp(box, axis=0).max()) / cells
    low = box[0] - 4.0 * spacing
    shape = np.ceil((box[1] - low) / spacing).astype(int) + 5
    # Points of the surface, a third of a cell apart, say which points of the grid are near.
    area = surface_area(mesh.positions, mesh.faces)
    places = sample_surface(mesh, int(area / (0.3 * spacing) ** 2) + len(mesh.faces))[0]
    marked = np.zeros(shape, bool)
    marked[tuple(np.rint((places - low) / spacing).astype(np.int64).T)] = True
    near = np.argwhere(ndimage.distance_transform_edt(~marked) <= 3.0)
    values = np.full(shape, -1.5 * spacing)
    away = closest_on_surface(low + near * spacing, mesh.positions, mesh.faces).distance
    values[tuple(near.T)] = 1.5 * spacing - away
    whole = without_small_parts(values)
    return orderly_isosurface(whole, low, spacing, mesh.name)


def _smoothed_at(cells: Floats, places: Floats, step: int) -> Floats:
    """Values, in cells, smoothed around places, (N, 3) in cells; more widely per step."""
    marked = np.zeros(cells.shape, bool)
    marked[tuple(np.rint(places).astype(np.int64).T)] = True
    away = ndimage.distance_transform_edt(~marked)
    share = np.clip(3.0 + 0.25 * step - away, 0.0, 1.0)
    smooth = _smoothed_whole(cells, 0.7 + 0.05 * step)
    mixed = cells + share * (smooth - cells)
    for axis in range(3):
        for side in (0, -1):
            mixed[(slice(None),) * axis + (side,)] = -_FARTHEST
    # Slits that close leave cavities, which nothing can show.
    return without_small_parts(mixed)


def _smoothed_whole(cells: Floats, sigma: float) -> Floats:
    """Return values, in cells, raised and smoothed so that every thin part stays inside."""

    def smoothed(values: Floats) -> Floats:
        return ndimage.gaussian_filter(values, sigma, mode="nearest", truncate=_WIDTH)

    smooth = smoothed(cells) + _RAISED
    lost = np.where(thin_points(cells > 0.0), np.maximum(_RAISED - smooth, 0.0), 0.0)
    if not lost.any():
        return smooth
    # As wide as the filter, so that its means are nowhere below what is lost.
    wide = ndimage.maximum_filter(lost, 2 * int(_WIDTH * sigma + 0.5) + 1)
    return smooth + smoothed(wide)


def _folded(mesh: Mesh) -> Bools:
    """(V,) bool: the vertices of flipped faces."""
    bad = np.zeros(len(mesh.positions), bool)
    bad[mesh.faces[flipped_faces(mesh.positions, mesh.faces)]] = True
    return bad


def _tangled(mesh: Mesh) -> Bools:
    """(V,) bool: the vertices of faces that are flipped, without area, or meet others."""
    bad = _folded(mesh)
    if not bad.any():
        faces = first_alike(mesh.positions, 0.0)[mesh.faces]
        flat = ~has_area(ExactPoints(mesh.positions.astype(np.float64)), faces)
        bad[mesh.faces[flat]] = True
        bad[mesh.faces[intersecting_faces(mesh.positions, faces).ravel()]] = True
    return bad
