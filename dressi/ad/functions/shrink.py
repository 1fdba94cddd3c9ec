"""Means of an image over areas: downsampling by any factor, with no alias.

A composition: one axis after the other, a weighted sum of the texels that an area touches.
"""

from __future__ import annotations

import math

from dressi.ad.functions._common import needs_variable
from dressi.ad.functions.arith import add_n, maximum, minimum
from dressi.ad.functions.elementary import floor
from dressi.ad.functions.image import pixel_coord
from dressi.ad.functions.texture import texture
from dressi.ad.functions.vector import vec2
from dressi.ad.graph import Size, Variable, checked_shape
from dressi.errors import GraphError

NEAR = 2.0**-12
"""Texels by which a border of an area may miss one of a texel, by rounding, and be taken for it."""


def shrink(x: Variable, size: Size) -> Variable:
    """x at a lower resolution, each pixel the mean over the area that it covers.

    x: FLOAT or VECn @ any size, every layer by itself. size: (width, height) in pixels, no axis
    longer than x's; the ratio need not be whole: texels that an area covers in part count by that
    part. Reads ratio + 1 texels per axis. Gradient to x: the transposed map, exact. Raises
    GraphError for other types and larger sizes.
    """
    needs_variable("shrink", x)
    size, _ = checked_shape("F.shrink", size)
    if x.vtype.is_int or x.vtype.is_matrix:
        raise GraphError(f"F.shrink: needs FLOAT or VECn, got {x.label()}")
    if size[0] > x.size[0] or size[1] > x.size[1]:
        raise GraphError(f"F.shrink: {size[0]}x{size[1]} is larger than {x.label()}")
    for axis in (0, 1):
        if size[axis] != x.size[axis]:
            x = _along(x, axis, size[axis])
    return x


def _along(x: Variable, axis: int, n: int) -> Variable:
    """Means along one axis, which becomes n pixels long."""
    length = x.size[axis]
    ratio = length / n
    size = (n, x.size[1]) if axis == 0 else (x.size[0], n)
    at = pixel_coord(size, x.layers)
    place, other = (at.x, at.y) if axis == 0 else (at.y, at.x)
    begin = (place - 0.5) * ratio
    end = begin + ratio
    first = floor(begin + NEAR)
    taps = []
    for k in range(math.ceil(ratio) + (length % n != 0)):
        texel = first + float(k)
        share = maximum(minimum(end, texel + 1.0) - maximum(begin, texel), 0.0) * (1.0 / ratio)
        along, across = (texel + 0.5) * (1.0 / length), other * (1.0 / x.size[1 - axis])
        uv = vec2(along, across) if axis == 0 else vec2(across, along)
        taps.append(texture(x, uv, filter="nearest", wrap="clamp") * share)
    return add_n(taps) if len(taps) > 1 else taps[0]
