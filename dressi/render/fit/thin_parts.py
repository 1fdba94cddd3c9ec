"""Parts of a hull that are thinner than a cell of its grid: points of the grid pass them on either
side, so they would be missing.

In: the values of the grid, the silhouettes. Out: the values, raised beside what is missing, so that
it is about a cell thick.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from dressi.render.fit.silhouettes import (
    Floats,
    Silhouettes,
    distances_in_views,
    lowest_distances,
)
from dressi.render.fit.undecided_holes import euler_gains
from dressi.threads import in_threads

_REACH = 0.87
"""Cells: no point of a cell is further from the nearest of its corners (half its diagonal)."""
_EXPLAINED = 0.9
"""Share of what is missing in one place of a picture that thin parts must explain: a part that one
silhouette cuts off, against another, is not thin."""

_AROUND = 3
"""Points around those that are raised that are, too."""


def with_thin_parts(
    values: Floats, views: Silhouettes, low: Floats, spacing: float, tolerance_px: float
) -> None:
    """Raise values (in place) where a silhouette shows what no point inside lies before.

    values: (X, Y, Z), distances to the hull, world units, positive inside. low: (3,), the place of
    the first point. spacing: between points.
    """
    reach = _REACH * spacing
    # The points beside the surface lie before all that those further in lie before.
    shell = (values > 0.0) & (values <= 2.0 * reach)
    near = (values <= 0.0) & (values > -reach)
    inside, beside = _seen(views, shell, low, spacing), _seen(views, near, low, spacing)

    def thin_in(k: int) -> npt.NDArray[np.bool_]:
        shown = views.distances_px[k] + tolerance_px > 0.0
        # Twice, so that the tips of sharp corners, which no point is near, are not taken for thin.
        missing = shown & (inside.away_px[k] > 2.0 * inside.per_unit[k] * reach + 1.0)
        place, n = ndimage.label(missing)
        explained = beside.away_px[k] <= beside.per_unit[k] * reach + 1.0
        shares = ndimage.mean(explained, place, np.arange(n + 1))
        missing &= (shares >= _EXPLAINED)[place]
        if not missing.any():
            return np.zeros(beside.seen.shape[1], bool)
        away = ndimage.distance_transform_edt(~missing)
        reached = away <= 2.0 * beside.per_unit[k] * reach + 1.0
        return np.asarray(beside.seen[k] & reached[beside.row[k], beside.column[k]])

    raised = np.zeros(near.shape, bool)
    raised[near] = np.any(in_threads(thin_in, range(views.n_views)), axis=0)
    # What is missing has gaps where a point inside happens to lie: its surroundings are thin, too.
    cube = np.ones((3, 3, 3), bool)
    raised = near & ndimage.binary_dilation(raised, cube, iterations=_AROUND)
    values[raised] += reach


def with_thin_joints(
    values: Floats, views: Silhouettes, low: Floats, spacing: float, tolerance_px: float
) -> None:
    """Raise values (in place) where parts thinner than a cell are whole between points inside.

    Arguments as of ``with_thin_parts``. A wire or a plate that points of the grid meet here and
    there comes in pieces and has holes. Beside ``thin_points``, what is nearest to each point is
    looked at in steps of a third of a cell; connected places that hold a part of the hull get its
    largest value where that changes how things hang together.
    """
    inside, reach = values > 0.0, _REACH * spacing
    cube = np.ones((3, 3, 3), bool)
    thin = thin_points(inside)
    # Two points away: pieces whose gap a silhouette does not show are no farther apart.
    near = ndimage.binary_dilation(thin, cube, iterations=2) & ~inside & (values > -reach)
    at = np.argwhere(near)
    steps = (np.argwhere(cube) - 1.0) / 3.0
    places = low + (at[:, None] + steps).reshape(-1, 3) * spacing
    found = lowest_distances(views, places, 1, tolerance_px)[0].reshape(len(at), len(steps))
    most = values.copy()
    most[tuple(at.T)] = found.max(axis=1)
    label, _ = ndimage.label((most > 0.0) & ~inside, cube)
    added = (euler_gains(inside, label) != 0)[label]
    values[added] = most[added]


def thin_points(inside: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return (X, Y, Z) bool: points inside that lie in no cube of two cells and are farther than
    two cells from all that do: wires and plates, not the ridges and corners of thicker parts."""
    # Filters go along one axis after another; the second one opens, and reaches two further.
    least = ndimage.minimum_filter(inside.view(np.uint8), 3, mode="constant")
    return np.asarray(inside & (ndimage.maximum_filter(least, 7, mode="constant") == 0))


@dataclass(frozen=True, eq=False)
class _Seen:
    """Points in the pictures. seen, row, column: (views, N). away_px: (views, H, W), from each
    pixel to the nearest of a point. per_unit: (views,), most pixels per world unit at a point."""

    seen: npt.NDArray[np.bool_]
    row: npt.NDArray[np.int64]
    column: npt.NDArray[np.int64]
    away_px: Floats
    per_unit: Floats


def _seen(views: Silhouettes, chosen: npt.NDArray[np.bool_], low: Floats, spacing: float) -> _Seen:
    """The chosen points of a grid in the pictures."""
    height, width = views.distances_px.shape[1:]
    points = np.asarray(low + np.argwhere(chosen) * spacing, np.float64)
    _, seen, per_unit, pixel = distances_in_views(views, points)
    at = np.clip(np.where(seen[..., None], pixel, 0.0), 0.0, [width - 1.0, height - 1.0])
    column, row = np.moveaxis(at.astype(np.int64), 2, 0)

    def away_in(k: int) -> Floats:
        free = np.ones((height, width), bool)
        free[row[k, seen[k]], column[k, seen[k]]] = False
        if free.all():
            return np.full((height, width), np.inf)
        return np.asarray(ndimage.distance_transform_edt(free))

    away = np.stack(in_threads(away_in, range(views.n_views)))
    largest = np.max(np.where(seen, per_unit, 0.0), axis=1, initial=0.0)
    return _Seen(seen, row, column, away, largest)
