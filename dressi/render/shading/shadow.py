"""Shadow maps with soft filtering: the scene as a light sees it, and a smooth depth compare.

In: the tables of the casters and the light's matrix. Out: ``ShadowMap``, and for any positions a
FLOAT visibility. Source: Williams 1978 (shadow maps), Reeves et al. 1987 (percentage closer).
Differs: the compare is a sigmoid, so that it has a gradient; depths are distances along the light's
axis in world units, so that biases are lengths.

Gradients: to the positions of the receiver, to the depth of the casters (through the texels that
the light sees), and, with r > 0, to the outline of the casters in the light's view, which is how a
shadow's edge moves, and to the light's matrix sideways. With r = 0 the matrix has a gradient
through depths only.
"""

from __future__ import annotations

from dataclasses import dataclass

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, VEC3
from dressi.errors import GraphError
from dressi.render.raster.blend import probability
from dressi.render.raster.distance import interpolate
from dressi.render.raster.hardsoftras import Peel, build_rasterize
from dressi.render.raster.projection import Size, build_screen_faces, check_size, gather
from dressi.render.raster.topology import contour_edges, neighbor_table
from dressi.render.shading.values import (
    Value,
    as_variable,
    check_class,
    check_number,
    check_positive,
)

MAX_SLOPE = 8.0
"""Largest tangent of the angle between normal and light that the bias follows: beyond, n . l is so
small that an error in the shadow does not show."""


@dataclass(frozen=True)
class ShadowMap:
    """What a light sees, one layer for all views or one per view.

    depth: FLOAT @ size, world units along the light's axis (from its position; for a directional
    light from where its matrix puts 0). cover: FLOAT in [0, 1], how much of the texel is occluded.
    matrix: MAT4 @ 1x1, world to the light's clip space. rim_depth, rim_cover: the same of the
    nearest outline beside the texel, which may lie in front of what the texel shows; None for a
    hard map.
    """

    depth: Variable
    cover: Variable
    matrix: Variable
    rim_depth: Variable | None = None
    rim_cover: Variable | None = None

    @property
    def size(self) -> Size:
        """(width, height) of the map in texels."""
        return self.depth.size


def build_shadow_map(
    vtx_pos: Variable,
    faces: Variable,
    matrix: Variable,
    size: Size,
    r: float = 0.0,
) -> ShadowMap:
    """Draw the casters from the light.

    vtx_pos: VEC3 @ (N, 1), world units. faces: IVEC3 @ (F, 1). matrix: MAT4 @ 1x1
    (``directional_matrix``, ``spot_matrix``, or any camera's); layers: one light per view. size:
    texels. r: reach of gradients outside of the casters' outline, in the light's screen square; 0:
    a hard map, whose outline has no gradient. With r > 0 texels are covered by sigmoid(distance /
    (r / 7)) near the outline: the shadow's edge is that much softer. Gradient to vtx_pos and
    matrix. Raises GraphError for a bad size, r outside [0, 1], and as the rasterizer.
    """
    check_number("build_shadow_map: r", r, 0.0, 1.0)
    check_size("build_shadow_map", size, least=2)
    screen = build_screen_faces(vtx_pos, faces, matrix, size)
    # Only the contour needs a rim: behind it nothing else of a closed shape shows.
    edges = contour_edges(screen, neighbor_table(faces, vtx_pos)) if r > 0.0 else None
    peel = build_rasterize(screen, F.constant(float(r)), 1, edges)[0]
    corners = gather(vtx_pos, faces)

    def depth_of(layer: Peel) -> Variable:
        return axial(matrix, interpolate(corners, layer.ids, layer.bary))[1]

    if r == 0.0:
        return ShadowMap(depth_of(peel), peel.stencil, matrix)
    sigma = F.constant(r / 7.0)
    # Outside of a caster's outline the map shows what lies behind it, so that half of the soft edge
    # would be missing, and half of its gradient: the outlines alone, drawn once more.
    rim = build_rasterize(screen, F.constant(float(r)), 1, edges, shift=_rims_first, layer=1)[0]
    covers = probability(peel, sigma), probability(rim, sigma)
    return ShadowMap(depth_of(peel), covers[0], matrix, depth_of(rim), covers[1])


def _rims_first(depth: Variable, distance: Variable) -> Variable:
    """In the place of ``hardsoftras.shift``: the nearest rim in front of all faces."""
    return F.where(distance > 0.0, 1.0, F.abs(distance) * 0.5)


def axial(matrix: Variable, position: Variable) -> tuple[Variable, Variable, Variable]:
    """(VEC4 clip position, FLOAT depth along the axis, FLOAT clip w) of positions, as a light or a
    camera sees them; the depth in world units: clip w of a perspective, clip z of a parallel
    projection, by the length of the matrix' row. Gradient to both."""
    clip = matrix @ F.vec4(position, 1.0)
    z_row, w_row = F.length(F.linalg.row(matrix, 2).xyz), F.length(F.linalg.row(matrix, 3).xyz)
    is_perspective = w_row > 0.0
    depth = F.where(is_perspective, F.safe_div(clip.w, w_row), F.safe_div(clip.z, z_row))
    return clip, depth, clip.w


def shadow_visibility(
    shadow: ShadowMap,
    position: Variable,
    normal: Variable | None = None,
    to_light: Variable | None = None,
    taps: int = 2,
    softness: Value = 0.25,
    bias: Value = 1.5,
    slope_bias: Value = 1.0,
) -> Variable:
    """FLOAT in [0, 1] at every position: 1 lit, 0 in shadow.

    position: VEC3 @ pixels or vertices, any number of views, world units. normal, to_light: VEC3
    unit, for a bias that follows the slope; without them it is that of 45 degrees. taps: the
    compare is averaged over taps x taps bilinear samples ((taps + 1)^2 texels). Depths are compared
    by sigmoid((position - bias - map) / softness). softness, bias, slope_bias: FLOAT, in texels of
    the map at that depth: bias + slope_bias * (taps + 1) / 2 * tangent. With the defaults a lit
    plane is darkened by less than 0.3 %, and an occluder must be about 3 texels above what it
    shades. Outside of the map, and behind the light, everything is lit. Gradient to position (none
    through normal, to_light and the bias), to the map's depth, cover and matrix. Raises GraphError
    for other types, a softness that is not positive, taps < 1.
    """
    check_class("shadow_visibility: shadow", shadow, ShadowMap)
    as_variable("shadow_visibility: position", position, VEC3)
    if not isinstance(taps, int) or taps < 1:
        raise GraphError(f"shadow_visibility needs taps >= 1, got {taps!r}")
    check_positive("shadow_visibility: softness", softness)
    if (normal is None) != (to_light is None):
        raise GraphError("shadow_visibility needs normal and to_light, or neither")
    width, height = shadow.size
    clip, depth, w = axial(shadow.matrix, position)
    if shadow.rim_cover is None:
        # The outline of a hard map stays where it is: alone, the way of the receiver over the map
        # would be the slope of something else than the shadow, often of the other sign.
        clip = F.stop_gradient(shadow.matrix) @ F.vec4(position, 1.0)
    ndc = clip.xyz * F.safe_div(1.0, clip.w)
    texel = texel_size(shadow, w)
    if normal is None or to_light is None:
        slope = F.constant(1.0)
    else:
        n_l = F.dot(normal, to_light)
        sine = F.sqrt(F.maximum(1.0 - n_l * n_l, 0.0))
        slope = F.minimum(sine / F.maximum(n_l, 1.0 / (2.0 * MAX_SLOPE)), MAX_SLOPE)
        # Steep where light grazes, which is where surfaces begin to shade themselves: its gradient
        # would drown that of the picture, and tilt normals only to move a guard.
        slope = F.stop_gradient(slope)
    flat_bias = as_variable("shadow_visibility: bias", bias, FLOAT)
    steep_bias = as_variable("shadow_visibility: slope_bias", slope_bias, FLOAT)
    shift = texel * (flat_bias + steep_bias * slope * (0.5 * (taps + 1)))
    soft = texel * as_variable("shadow_visibility: softness", softness, FLOAT)

    at = F.vec2((ndc.x + 1.0) * (0.5 * width), (ndc.y + 1.0) * (0.5 * height))
    corner = at - 0.5 * taps
    first = F.floor(corner)
    part = corner - first
    compare = depth - shift
    rows = []
    for j in range(taps + 1):
        cells = []
        for i in range(taps + 1):
            occluded = _occlusion(shadow, first, i, j, compare, soft)
            cells.append(_weighted(occluded, part.x, i, taps))
        rows.append(_weighted(F.add_n(cells), part.y, j, taps))
    occlusion = F.add_n(rows) * (1.0 / (taps * taps))
    seen = (w > 0.0) * (ndc.z >= 0.0) * (ndc.z <= 1.0)
    return F.where(seen, 1.0 - occlusion, 1.0)


def texel_size(shadow: ShadowMap, w: Variable) -> Variable:
    """FLOAT: side of a texel in world units at that clip w."""
    width, height = shadow.size
    x = F.safe_div(2.0 / width, F.length(F.linalg.row(shadow.matrix, 0).xyz))
    y = F.safe_div(2.0 / height, F.length(F.linalg.row(shadow.matrix, 1).xyz))
    return F.abs(w) * F.maximum(x, y)


def _weighted(value: Variable, part: Variable, k: int, taps: int) -> Variable:
    """value by the weight of texel k of taps + 1 along an axis: bilinear at both ends."""
    if k == 0:
        return value * (1.0 - part)
    return value * part if k == taps else value


def _occlusion(
    shadow: ShadowMap, first: Variable, i: int, j: int, compare: Variable, soft: Variable
) -> Variable:
    """How much the texel (first + (i, j)) hides what lies at depth ``compare``; 0 off the map."""
    width, height = shadow.size
    x, y = first.x + float(i), first.y + float(j)
    inside = (x >= 0.0) * (x < float(width)) * (y >= 0.0) * (y < float(height))
    # Positions far off the map would leave the range of integers.
    column = F.to_int(F.clamp(x, 0.0, width - 1.0))
    row = F.to_int(F.clamp(y, 0.0, height - 1.0))
    index = F.where(inside, row * width + column, -1)  # looked up as 0: not covered
    layers = [(shadow.depth, shadow.cover)]
    if shadow.rim_depth is not None and shadow.rim_cover is not None:
        layers.append((shadow.rim_depth, shadow.rim_cover))
    hidden = [
        F.sigmoid(F.safe_div(compare - F.lookup(depth, index), soft)) * F.lookup(cover, index)
        for depth, cover in layers
    ]
    # A rim covers half at most: it counts where the face beside it does not.
    return hidden[0] if len(hidden) == 1 else F.maximum(hidden[0], hidden[1])


def directional_matrix(direction: Value, center: Value, radius: Value) -> Variable:
    """MAT4 @ 1x1, world to clip, of a directional light's map: the sphere (center, radius).

    direction: VEC3, the way the light travels. center: VEC3; radius: FLOAT > 0, world units. All
    may be parameters, with layers. Gradient to all. Raises GraphError for a radius that is not
    positive.
    """
    check_positive("directional_matrix: radius", radius)
    right, up, forward = _axes(as_variable("directional_matrix: direction", direction, VEC3))
    middle = as_variable("directional_matrix: center", center, VEC3)
    scale = F.safe_div(1.0, as_variable("directional_matrix: radius", radius, FLOAT))
    return F.linalg.from_rows(
        _plane(right * scale, middle, 0.0),
        _plane(-up * scale, middle, 0.0),
        _plane(forward * (0.5 * scale), middle, 0.5),
        F.vec4(F.constant((0.0, 0.0, 0.0)), F.constant(1.0)),
    )


def spot_matrix(
    position: Value, direction: Value, outer_cone_angle: Value, near: float, far: float
) -> Variable:
    """MAT4 @ 1x1, world to clip, of a spot light's map: the square around its cone.

    position: VEC3. direction: VEC3, the way the light travels. outer_cone_angle: FLOAT, radians,
    below pi / 2. near, far: world units along the axis; casters must lie between. Gradient to the
    first three. Raises GraphError unless 0 < near < far, and for an angle out of range.
    """
    if not 0.0 < near < far:
        raise GraphError(f"spot_matrix needs 0 < near < far, got {near}, {far}")
    check_number("spot_matrix: outer_cone_angle", outer_cone_angle, 1e-3, 1.55)
    right, up, forward = _axes(as_variable("spot_matrix: direction", direction, VEC3))
    eye = as_variable("spot_matrix: position", position, VEC3)
    angle = as_variable("spot_matrix: outer_cone_angle", outer_cone_angle, FLOAT)
    scale = F.safe_div(1.0, F.tan(angle))
    depth = far / (far - near)
    return F.linalg.from_rows(
        _plane(right * scale, eye, 0.0),
        _plane(-up * scale, eye, 0.0),
        _plane(forward * depth, eye, -near * depth),
        _plane(forward, eye, 0.0),
    )


def _axes(direction: Variable) -> tuple[Variable, Variable, Variable]:
    """(right, up, forward): unit vectors of a camera that looks along direction."""
    forward = F.normalize(direction)
    # Any up will do that is not parallel; +Y, or +Z for light from nearly above.
    steep = F.abs(forward.y) > 0.9
    up = F.where(steep, F.constant((0.0, 0.0, 1.0)), F.constant((0.0, 1.0, 0.0)))
    right = F.normalize(F.cross(forward, up))
    return right, F.cross(right, forward), forward


def _plane(axis: Variable, through: Variable, offset: float) -> Variable:
    """VEC4 row of a matrix: dot(axis, p - through) + offset."""
    return F.vec4(axis, offset - F.dot(axis, through))
