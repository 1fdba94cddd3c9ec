"""Level of detail of texture reads, from how uv changes between neighbouring pixels.

Compositions of other ops. Where the geometry is known, ``dressi.render.shading.face_lod`` has the
exact derivatives; differences need nothing but the image of uv, and need neighbours.
"""

from __future__ import annotations

from typing import Any

from dressi.ad.functions._common import constant, needs_variable
from dressi.ad.functions.arith import maximum
from dressi.ad.functions.elementary import sqrt
from dressi.ad.functions.exponential import log2
from dressi.ad.functions.image import pixel_coord
from dressi.ad.functions.mipmap import MipMap
from dressi.ad.functions.neighbors import shift
from dressi.ad.functions.select import compare, equal, where
from dressi.ad.functions.stop import stop_gradient
from dressi.ad.functions.vector import dot
from dressi.ad.graph import Size, Variable, checked_shape
from dressi.ad.shape import broadcast
from dressi.ad.vtype import FLOAT, INT, VEC2
from dressi.errors import GraphError
from dressi.kinds import FOOTPRINTS, Footprint

SMALLEST = 2.0**-60
"""Least squared footprint, texels: a level of -30, where uv stands still."""

MEAN_SHARE = 0.25
"""Of the sum of both squared steps. Their mean would be the pixel's extent (1/2); a texel of a
level is already a mean over its square, and is read by a kernel two texels wide, so half a level
less is as blurred as a pixel. Measured: ``dressi experiment mip_rules``."""


def uv_derivatives(uv: Variable, ids: Variable | None = None) -> tuple[Variable, Variable]:
    """How uv changes from pixel to pixel: VEC2 along x (to the right), VEC2 along y (down).

    uv: VEC2 @ any size. ids: INT or FLOAT @ the same size, face numbers or a stencil: no
    difference is taken between pixels whose ids differ. The mean of the differences to both sides;
    where one side is another face or outside of the layer, that to the other side; where both are,
    0. Gradient to uv. Raises GraphError for other types and sizes.
    """
    needs_variable("uv_derivatives", uv)
    if uv.vtype is not VEC2:
        raise GraphError(f"F.uv_derivatives: uv must be VEC2, got {uv.label()}")
    if ids is not None:
        needs_variable("uv_derivatives", ids)
        if ids.vtype not in (INT, FLOAT) or ids.size != uv.size or ids.layers not in (1, uv.layers):
            raise GraphError(
                "F.uv_derivatives: ids must be INT or FLOAT, of the size of "
                f"{uv.label()}, got {ids.label()}"
            )
    at = pixel_coord(uv.size)
    out = []
    for axis in (0, 1):
        place, n = (at.x, at.y)[axis], float(uv.size[axis])
        sides = []
        for sign in (1, -1):
            step = (-sign, 0) if axis == 0 else (0, -sign)
            inside = compare("lt", place, n - 1.0) if sign > 0 else compare("gt", place, 1.0)
            if ids is not None:
                inside = inside * equal(shift(ids, *step, "clamp"), ids)
            sides.append((inside, where(inside, (shift(uv, *step, "clamp") - uv) * sign, 0.0)))
        (n_a, a), (n_b, b) = sides
        out.append((a + b) / maximum(n_a + n_b, 1.0))
    return out[0], out[1]


def texture_lod(
    du_dx: Variable,
    du_dy: Variable,
    size: Size | Variable | MipMap,
    footprint: Footprint = "mean",
    gradient: bool = False,
) -> Variable:
    """FLOAT level of detail for F.texture_mip: log2 of a pixel's extent in texels of level 0.

    du_dx, du_dy: VEC2, change of uv from pixel to pixel along x and y. size: (width, height) of the
    texture, or the texture or MipMap itself. footprint: ``mean``, half the root of the sum of both
    steps' squares, which comes closest to supersampled pictures (``dressi experiment mip_rules``)
    and does not depend on how the image is turned; ``axes``, the longer of the two steps, as GPUs
    do; ``ellipse``, the longest step in any direction (the largest singular value). Where uv stands
    still: -30. Gradient: none, unless ``gradient``; a level of detail is a means, and its gradient
    pulls towards blurred or sharp places. Raises GraphError for another footprint or types. Source
    of the other two: OpenGL 4.6, 8.14.1;
    Heckbert 1989.
    """
    if footprint not in FOOTPRINTS:
        raise GraphError(f"F.texture_lod: footprint must be one of {FOOTPRINTS}, got {footprint!r}")
    for d in (du_dx, du_dy):
        if needs_variable("texture_lod", d).vtype is not VEC2:
            raise GraphError(f"F.texture_lod: needs VEC2, got {d.label()}")
    try:
        broadcast((du_dx, du_dy))
    except GraphError as error:
        raise GraphError(f"F.texture_lod: {error.reason}") from None
    texels = constant(_texels(size))
    a, b = (d * texels for d in (du_dx, du_dy))
    if not gradient:
        a, b = stop_gradient(a), stop_gradient(b)
    aa, bb = dot(a, a), dot(b, b)
    if footprint == "mean":
        square = (aa + bb) * MEAN_SHARE
    elif footprint == "axes":
        square = maximum(aa, bb)
    else:
        half, ab = (aa - bb) * 0.5, dot(a, b)
        square = (aa + bb) * 0.5 + sqrt(half * half + ab * ab)
    return log2(maximum(square, SMALLEST)) * 0.5


def uv_lod(
    uv: Variable,
    size: Size | Variable | MipMap,
    ids: Variable | None = None,
    footprint: Footprint = "mean",
    gradient: bool = False,
) -> Variable:
    """FLOAT level of detail for F.texture_mip from differences of uv between pixels.

    uv, ids: see F.uv_derivatives. size, footprint, gradient: see F.texture_lod. A face of one pixel
    has no neighbours: its level is -30, so give numbers of charts or a stencil rather than of tiny
    faces, or the derivatives of ``dressi.render.shading.texture_detail``. Gradient: none, unless
    ``gradient``, then to uv.
    """
    return texture_lod(*uv_derivatives(uv, ids), size, footprint, gradient)


def _texels(size: Any) -> tuple[float, float]:
    if isinstance(size, MipMap):
        size = size.sizes[0]
    elif isinstance(size, Variable):
        size = size.size
    (w, h), _ = checked_shape("F.texture_lod", size)
    return float(w), float(h)
