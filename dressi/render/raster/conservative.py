"""Conservative rasterization of UV charts, for baking: every texel that a triangle touches at all.

In: texture coordinates and their faces. Out: ``Charts``, per texel: which face it shows and where
on it. Portable: each face is enlarged on its table (as in ``enlarge``) and the fragment decides by
the separating axes of the triangle and the texel's square. No extension of the device is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, VEC2, VEC3
from dressi.errors import GraphError
from dressi.render.raster.distance import interpolate, signed_distance
from dressi.render.raster.enlarge import SLACK_PX, build_enlarge
from dressi.render.raster.projection import (
    ScreenFaces,
    Size,
    check_faces,
    check_size,
    check_variables,
    gather,
    pixel_positions,
)

HALF_DIAGONAL_PX = 0.75
"""From the centre of a texel to its corners (0.7072), and what rounding and snapping may take."""


@dataclass(frozen=True)
class Charts:
    """What ``build_conservative`` gives, per texel.

    ids: INT, face number or -1. bary: VEC3 weights of the point of the face that is nearest to the
    texel's centre (the centre itself where the face covers it); 0 where there is no face. distance:
    FLOAT, texels from the centre to the face; 0 inside. touched: FLOAT, 1 where a face touches the
    texel. filled: FLOAT, 1 there and in the gutter. Gradient to the texture coordinates through
    bary and distance.
    """

    ids: Variable
    bary: Variable
    distance: Variable
    touched: Variable
    filled: Variable

    def interpolate(self, table: Variable, faces: Variable) -> Variable:
        """Attribute at each texel; 0 where there is no face. table: FLOAT or VECn @ (N, 1). faces:
        IVEC3 @ (F, 1), rows of the table. Gradient to the table and to bary."""
        return interpolate(gather(table, faces), self.ids, self.bary)


def build_conservative(
    uv: Variable, uv_faces: Variable, size: Size, gutter_px: Variable | float = 0.0
) -> Charts:
    """Find the face that every texel of an atlas belongs to.

    uv: VEC2 @ (T, 1), in [0, 1], origin top left; what lies outside is cut off. uv_faces: IVEC3 @
    (F, 1), rows of uv. size: of the atlas in texels. gutter_px: texels around a chart that are
    filled from it too, so that filters read nothing else at its border; a number >= 0 or a FLOAT @
    1x1, a run-time value. A texel is touched when a face has a point in the inside of its square:
    sharing a side or corner is not enough; faces without area (points, lines) touch too. Of several
    faces the one nearest to the centre wins, then the first. Gradient to uv. Raises GraphError for
    wrong types, sizes and gutters.
    """
    if not isinstance(uv, Variable) or uv.vtype is not VEC2 or uv.size[1] != 1:
        raise GraphError(f"conservative: uv must be VEC2 @ (T, 1), got {uv!r}")
    check_variables("conservative", uv_faces=uv_faces)
    check_faces(uv_faces)
    check_size("conservative", size)
    gutter = _checked_gutter(gutter_px)
    m = float(max(size))
    at = uv * (size[0] / m, size[1] / m)
    corners = tuple(F.vec4(v, 0.5, 1.0) for v in gather(at, uv_faces))
    nothing = F.expand(F.constant(0.0), uv_faces.size, uv.layers)
    screen = ScreenFaces((corners[0], corners[1], corners[2]), nothing, (size[0], size[1]))
    reach = F.maximum(gutter + 1.0 / 64, HALF_DIAGONAL_PX) * (1.0 / m)
    frag = F.rasterize(build_enlarge(screen, reach), screen.size)
    p = pixel_positions(screen.size, uv.layers)
    a, b, c = (F.lookup(F.stop_gradient(t), frag).xy * m for t in corners)
    centre = F.stop_gradient(p) * m
    hit = touches(a - centre, b - centre, c - centre)
    face = signed_distance(a, b, c, centre)
    outside = F.maximum(-face.distance, 0.0)
    # Touched texels before those of the gutter, the nearest face first.
    depth = F.where(hit, 0.0, 0.5) + 0.5 * outside / (outside + 1.0)
    keep = F.maximum(hit, F.logical_and(outside <= gutter, gutter > 0.0))
    ids = F.resolve(frag, depth, keep, background=-1)
    touched = F.resolve(hit, depth, keep, background=0)
    filled = F.to_float(F.compare("gte", ids, 0))
    a, b, c = (F.lookup(t, ids).xy for t in corners)
    face = signed_distance(a, b, c, p, least=SLACK_PX / m)
    return Charts(
        ids=ids,
        bary=F.where(filled, face.weights, 0.0),
        distance=F.where(filled, F.maximum(-face.distance, 0.0) * m, 0.0),
        touched=touched,
        filled=filled,
    )


def _checked_gutter(gutter_px: Variable | float) -> Variable:
    if isinstance(gutter_px, Variable):
        if gutter_px.vtype is not FLOAT or gutter_px.size != (1, 1):
            raise GraphError(f"gutter_px must be a FLOAT @ 1x1, got {gutter_px.label()}")
        return F.maximum(gutter_px, 0.0)
    if not isinstance(gutter_px, (int, float)) or not 0.0 <= gutter_px < 1e4:
        raise GraphError(f"gutter_px must be a number of texels >= 0, got {gutter_px!r}")
    return F.constant(float(gutter_px))


def touches(a: Variable, b: Variable, c: Variable) -> Variable:
    """1 where the triangle a b c has a point inside of the unit square around the origin, else 0.

    VEC2 each. By separating axes: the sides of the square and the edges of the triangle. An edge
    without length separates nothing, so segments and points are right too. No gradient.
    """
    low, high = F.minimum(F.minimum(a, b), c), F.maximum(F.maximum(a, b), c)
    apart = F.maximum(low >= 0.5, high <= -0.5)
    separated = F.max_components(apart)
    for u, v, w in ((a, b, c), (b, c, a), (c, a, b)):
        edge = v - u
        # Along the normal of the edge: where the edge lies, where the third corner does, and how
        # far the square reaches.
        side = edge.x * u.y - edge.y * u.x
        third = edge.x * w.y - edge.y * w.x
        reach = 0.5 * (F.abs(edge.x) + F.abs(edge.y))
        beyond = F.maximum(F.minimum(side, third) >= reach, F.maximum(side, third) <= -reach)
        separated = F.maximum(separated, beyond * (reach > 0.0))
    return 1.0 - separated


@dataclass(frozen=True)
class Baked:
    """What ``build_bake`` gives: VEC3 images of positions and unit normals (0 outside of the
    charts and their gutter), and the charts."""

    position: Variable
    normal: Variable
    charts: Charts


def build_bake(
    vtx_pos: Variable,
    faces: Variable,
    uv: Variable,
    uv_faces: Variable,
    size: Size,
    vtx_normal: Variable | None = None,
    gutter_px: Variable | float = 2.0,
) -> Baked:
    """Positions and normals of a surface as images over its texture coordinates.

    vtx_pos: VEC3 @ (N, 1). faces: IVEC3 @ (F, 1), rows of vtx_pos. uv, uv_faces, size, gutter_px:
    as for ``build_conservative``. vtx_normal: VEC3 @ (N, 1), default the normals of faces. Gradient
    to vtx_pos, vtx_normal and uv. Raises GraphError for wrong types and where faces and uv_faces
    differ in number.
    """
    if vtx_pos.vtype is not VEC3 or faces.size != uv_faces.size:
        raise GraphError(
            "bake needs VEC3 positions and as many faces as uv_faces, got "
            f"{vtx_pos.label()}, {faces.label()}, {uv_faces.label()}"
        )
    check_faces(faces)
    charts = build_conservative(uv, uv_faces, size, gutter_px)
    if vtx_normal is None:
        a, b, c = gather(vtx_pos, faces)
        normal = F.lookup(F.normalize(F.cross(b - a, c - a)), charts.ids)
    else:
        normal = F.normalize(charts.interpolate(vtx_normal, faces))
    return Baked(charts.interpolate(vtx_pos, faces), normal, charts)
