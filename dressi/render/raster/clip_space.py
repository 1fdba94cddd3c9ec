"""From clip positions to pixels, and how values on faces change from pixel to pixel.

In: VEC4 clip positions, faces (one table, or one per layer: meshes of different sizes). Out:
``HardRaster``, and the derivatives by the place in the picture of its weights and of attributes.
The entry below ``build_hard_raster`` for who has clip positions but no matrix.
"""

from __future__ import annotations

from collections.abc import Sequence

from dressi.ad import F, Variable
from dressi.ad.vtype import INT, IVEC3, VEC4
from dressi.errors import GraphError
from dressi.kinds import Cull
from dressi.render.raster.hard import HardRaster, rasterize_corners
from dressi.render.raster.projection import Size, check_size, check_variables, gather
from dressi.render.raster.weights import cross

Corners = tuple[Variable, Variable, Variable]


def opengl_to_vulkan(pos_clip: Variable) -> Variable:
    """VEC4 clip positions with z in [0, w], of those with z in [-w, w].

    y is left alone: row 0 of an image is then at the bottom, as in OpenGL. Gradient to pos_clip.
    """
    return F.vec4(pos_clip.xy, (pos_clip.z + pos_clip.w) * 0.5, pos_clip.w)


def build_clip_raster(
    pos_clip: Variable,
    faces: Variable,
    size: Size,
    cull: Cull | None = None,
    scissor: Sequence[int] | Sequence[Sequence[int]] | None = None,
    peel: int = 0,
) -> HardRaster:
    """Rasterize faces whose corners are given in clip space.

    pos_clip: VEC4 @ (N, 1), any layers, z in [0, w]. faces: IVEC3 @ (F, 1); of several layers: one
    table of faces per layer, where faces with three times the same corner are not drawn. size:
    image size in pixels. cull, scissor: as in F.rasterize. peel: number of the depth layer, 0 the
    nearest. Faces are cut at the near and far plane; corners may lie behind the camera. Gradient to
    pos_clip through bary and depth. Raises GraphError for wrong types and sizes.
    """
    check_variables("clip raster", pos_clip=pos_clip, faces=faces)
    check_size("clip raster", size)
    if pos_clip.vtype is not VEC4 or pos_clip.size[1] != 1:
        raise GraphError(f"clip raster needs VEC4 positions @ (N, 1), got {pos_clip.label()}")
    if faces.vtype is not IVEC3 or faces.size[1] != 1:
        raise GraphError(f"clip raster needs IVEC3 faces @ (F, 1), got {faces.label()}")
    return rasterize_corners(gather(pos_clip, faces), size, cull, scissor, peel)


def weight_derivatives(corners: Corners, ids: Variable, size: Size) -> Variable:
    """VEC4 (du/dX, du/dY, dv/dX, dv/dY): how the weights u and v of the first two corners change
    per pixel to the right (X) and down the rows (Y).

    corners: VEC4 tables @ (F, 1), clip positions. ids: INT @ size, face or -1. 0 where there is no
    face. Perspective-correct; the derivatives of the weights of the pixel itself, not clamped to
    the face. Gradient to the corners.
    """
    scale = (0.5 * size[0], 0.5 * size[1])
    at = F.pixel_coord(size, max(ids.layers, corners[0].layers)) * (1.0 / scale[0], 1.0 / scale[1])
    found = [F.lookup(t, ids) for t in corners]
    a, b, c = ((v.xy - (at - 1.0) * v.w) * scale for v in found)
    aw, bw, cw = (v.w for v in found)
    # Areas opposite the corners; a step in X moves each corner by -w, so they change linearly.
    areas = F.vec3(cross(b, c), cross(c, a), cross(a, b))
    by_x = F.vec3(b.y * cw - c.y * bw, c.y * aw - a.y * cw, a.y * bw - b.y * aw)
    by_y = F.vec3(c.x * bw - b.x * cw, a.x * cw - c.x * aw, b.x * aw - a.x * bw)
    total = F.sum_components(areas)
    weights = F.safe_div(areas, total)
    dx = F.safe_div(by_x - weights * F.sum_components(by_x), total)
    dy = F.safe_div(by_y - weights * F.sum_components(by_y), total)
    return F.vec4(dx.x, dy.x, dx.y, dy.y)


def image_derivatives(
    corners: Corners, ids: Variable, weights_by_pixel: Variable
) -> tuple[Variable, Variable]:
    """How an attribute changes per pixel to the right and per pixel down the rows.

    corners: tables @ (F, 1) of any float type, as of ``gather``. ids: INT @ size. weights_by_pixel:
    VEC4, of ``weight_derivatives``. 0 where there is no face. Gradient to the tables and to
    weights_by_pixel.
    """
    a, b, c = (F.lookup(t, ids) for t in corners)
    d = weights_by_pixel
    return (a - c) * d.x + (b - c) * d.z, (a - c) * d.y + (b - c) * d.w


def raster_image(raster: HardRaster, first_face: Variable | None = None) -> Variable:
    """VEC4 (u, v, z / w in [-1, 1], face + 1): a rasterization as one image, 0 where there is no
    face.

    first_face: INT @ 1x1, any layers, added to the numbers of faces (ranges of one long list).
    Numbers above 2^24 are not exact. Gradient through u and v; none through z / w and the number.
    Raises GraphError for another first_face.
    """
    numbers = raster.ids + 1
    if first_face is not None:
        if first_face.vtype is not INT:
            raise GraphError(f"raster_image: first_face must be INT, got {first_face.label()}")
        numbers = numbers + first_face
    depth = F.stop_gradient(raster.depth) * 2.0 - 1.0
    image = F.vec4(raster.bary.xy, depth, F.to_float(numbers))
    return F.where(raster.mask, image, 0.0)
