"""Exact screen-space derivatives of uv, from the faces of a peel.

In: screen faces, a peel, uv tables. Out: how uv changes from pixel to pixel, perspective-correct,
for F.texture_lod. With uv = sum of P_i uv_i, weights P_i = beta_i k_i / D, D = sum of beta_i k_i
and k = 1 / w: beta is affine on the screen, so d uv = sum of d beta_i k_i (uv_i - uv) / D. Unlike
differences between pixels this needs no neighbours: it is right at silhouettes and for faces of one
pixel.
"""

from __future__ import annotations

from dressi.ad import F, Variable
from dressi.kinds import Footprint
from dressi.render.raster import (
    HardRaster,
    Peel,
    ScreenFaces,
    gather,
    image_derivatives,
    weight_derivatives,
)


def face_uv_derivatives(
    screen: ScreenFaces, peel: Peel, uv: Variable, uv_faces: Variable, gradient: bool = False
) -> tuple[Variable, Variable]:
    """VEC2 change of uv to the next pixel on the right, and to the one below, at each pixel.

    uv: VEC2 @ (T, 1). uv_faces: IVEC3 @ (F, 1), rows of uv. At soft pixels, of the nearest point of
    the face; 0 where there is no face. gradient: whether it flows, to uv and positions; not by
    default.
    """
    corners = [F.lookup(c, peel.ids) for c in screen.corners]
    values = [F.lookup(t, peel.ids) for t in gather(uv, uv_faces)]
    bary = peel.bary
    if not gradient:
        corners, values = ([F.stop_gradient(v) for v in vs] for vs in (corners, values))
        bary = F.stop_gradient(bary)
    weights = (bary.x, bary.y, bary.z)
    here = F.add_n([v * p for v, p in zip(values, weights, strict=True)])
    inv_d = F.add_n([F.safe_div(p, c.w) for p, c in zip(weights, corners, strict=True)])
    a, b, c = (v.xy for v in corners)
    area2 = (b - a).x * (c - a).y - (b - a).y * (c - a).x
    along_x, along_y = [], []
    for i, (p, q) in enumerate(((b, c), (c, a), (a, b))):
        step = (values[i] - here) * (corners[i].w * inv_d)
        along_x.append(step * (p.y - q.y))
        along_y.append(step * (q.x - p.x))
    pixel = area2 * screen.scale
    return F.safe_div(F.add_n(along_x), pixel), F.safe_div(F.add_n(along_y), pixel)


def face_lod(
    screen: ScreenFaces,
    peel: Peel,
    uv: Variable,
    uv_faces: Variable,
    size: tuple[int, int] | Variable | F.image.MipMap,
    footprint: Footprint = "mean",
    gradient: bool = False,
) -> Variable:
    """FLOAT level of detail for F.texture_mip at each pixel. uv, uv_faces, gradient: see
    ``face_uv_derivatives``; size, footprint: see F.texture_lod. Gradient: none by default."""
    d = face_uv_derivatives(screen, peel, uv, uv_faces, gradient)
    return F.texture_lod(*d, size, footprint, gradient)


def hard_lod(
    raster: HardRaster,
    uv: Variable,
    uv_faces: Variable,
    size: tuple[int, int] | Variable | F.image.MipMap,
    footprint: Footprint = "mean",
    gradient: bool = False,
) -> Variable:
    """FLOAT level of detail for F.texture_mip at each pixel of a hard rasterization; -30 where no
    face is. uv, uv_faces: see ``face_uv_derivatives``; size, footprint, gradient: see
    F.texture_lod, the gradient flows to uv and positions."""
    weights = weight_derivatives(raster.corners, raster.ids, raster.ids.size)
    dx, dy = image_derivatives(gather(uv, uv_faces), raster.ids, weights)
    return F.texture_lod(dx, dy, size, footprint, gradient)
