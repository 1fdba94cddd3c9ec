"""Holes through a hull that its masks do not decide: narrower than the grid can hold, and nowhere
further from an outline than a pixel.

In: the values of a grid. Out: the values, such holes filled. Where outlines of several views nearly
meet, whether a few points of the grid lie inside or outside is chance: they make handles that no
view shows, and that no round of a fit can take away.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt
from scipy import ndimage

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_NARROW = 1.5
"""Cells: half the width of the holes that are looked at; wider ones have points of their own."""


def without_undecided_holes(values: Floats, pixel: float) -> Floats:
    """Return the values, raised where that closes holes through what is inside.

    values: (X, Y, Z), distances to the hull, world units, positive inside, not so on the grid's
    sides. pixel: of the masks, world units. Filled are connected parts of holes up to three cells
    wide whose points lie at most a pixel outside, each only if fewer holes (or, where it closes off
    a cavity, no more) are left after it.
    """
    inside = values > 0.0
    solid = ndimage.distance_transform_edt(~inside) <= _NARROW
    closed = ndimage.distance_transform_edt(solid) > _NARROW
    label, _ = ndimage.label(closed & ~inside & (values > -pixel), np.ones((3, 3, 3)))
    closes = euler_gains(inside, label) > 0
    return np.where(closes[label] & ~inside, pixel, values)


def euler_gains(inside: Bools, label: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Return by how much each part, if added, raises the Euler number of points inside: parts less
    holes through them plus cavities, of points that the edges of ``isosurface`` join.

    inside: (X, Y, Z). label: (X, Y, Z), the numbers of parts outside, 0: of none; no two parts are
    corners of one cube. Returns (largest label + 1,), the first 0.
    """
    wide, parts = np.pad(inside, 1), np.pad(label, 1)
    strides = np.array([wide.shape[1] * wide.shape[2], wide.shape[2], 1])
    corners = list(product((0, 1), repeat=3))
    offsets = np.array(corners) @ strides
    # The cubes with corners in a part, each by its lowest corner.
    at = np.unique(np.flatnonzero(parts)[:, None] - offsets)[:, None] + offsets
    before, part = wide.ravel()[at], parts.ravel()[at]
    after = before | (part > 0)

    def chains(last: int, met: Bools, filled: Bools, sign: int) -> npt.NDArray[np.int64]:
        # Simplices of Kuhn's subdivision: corners of a cube, each beyond the one before.
        total = sign * (filled.astype(np.int64) - met)
        for k, corner in enumerate(corners):
            if k != last and all(a >= b for a, b in zip(corner, corners[last], strict=True)):
                total += chains(k, met & before[:, k], filled & after[:, k], -sign)
        return total

    gains = chains(0, before[:, 0], after[:, 0], 1)
    return np.bincount(part.max(axis=1), gains, minlength=int(label.max()) + 1).astype(np.int64)
