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
    filled = inside.copy()
    for number, place in enumerate(ndimage.find_objects(label), 1):
        # A point around: what joins the part to the rest lies in there.
        box = tuple(slice(max(s.start - 1, 0), s.stop + 1) for s in place)
        before = filled[box]
        after = before | (label[box] == number)
        if euler_number(after) > euler_number(before):
            filled[box] = after
    return np.where(filled & ~inside, pixel, values)


def euler_number(inside: Bools) -> int:
    """Return parts less holes through them plus cavities, of points that the edges of
    ``isosurface`` join: the alternating sum of its points, edges, triangles and tetrahedra."""
    wide = np.pad(inside, ((0, 1),) * 3)
    nx, ny, nz = inside.shape
    at = {
        (x, y, z): wide[x : nx + x, y : ny + y, z : nz + z] for x, y, z in product((0, 1), repeat=3)
    }

    def chains(last: tuple[int, ...], met: Bools, sign: int) -> int:
        # Simplices of Kuhn's subdivision: corners of a cube, each beyond the one before.
        total = sign * int(np.count_nonzero(met))
        for corner, points in at.items():
            if corner != last and all(a >= b for a, b in zip(corner, last, strict=True)):
                total += chains(corner, met & points, -sign)
        return total

    return chains((0, 0, 0), at[0, 0, 0], 1)
