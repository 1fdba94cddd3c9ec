"""Screen-space antialiasing: gradients of vertices through the coverage of silhouette pixels.

In: vertex positions, faces, matrices. Out: one hard layer, how much each pixel takes from its four
neighbours, the antialiased silhouette. The second method beside HardSoftRas: faces are drawn once,
as they are, and the reach is one pixel. Between two pixels of different faces the silhouette edge
of the nearer face says how much of each pixel lies beyond it. Source: Dr.Hair (CVPR 2024, arXiv
2403.17496, eq. 3-5: blend across borders of face ids by the distance to the silhouette edge).
Differs: the weight is the area that the edge cuts off the square of the pixel, exact for a straight
edge, not the length that it cuts off the line between the centres; edges are rasterized, so faces
too thin to own a pixel hide none; and the gradient is that of the mean picture over sub-pixel
shifts: what an edge uncovers has the colours at the edge, and lines where faces cross count too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from dressi.ad import F, Variable
from dressi.ad.vtype import MAT4, VEC3
from dressi.errors import GraphError
from dressi.render.raster.contours import (
    BEHIND_ALL,
    BEYOND_PX,
    Between,
    Pair,
    Surface,
    contour_between,
)
from dressi.render.raster.crossings import (
    MIN_SLOPE,
    MOVES,
    Cuts,
    depth_px,
    meeting,
    planes_of,
    reach_of_colours,
)
from dressi.render.raster.enlarge import build_enlarge_little
from dressi.render.raster.hardsoftras import Peel, build_rasterize
from dressi.render.raster.projection import (
    ScreenFaces,
    Size,
    build_screen_faces,
    check_faces,
    check_size,
    check_variables,
    pixel_positions,
    project,
    to_screen,
)
from dressi.render.raster.shown import shown_weights
from dressi.render.raster.topology import contour_edges, left_out, neighbor_table

ROUNDING = 1.0 + 1e-6
"""Keeps sums of weights from ending a hair above 1."""


@dataclass(frozen=True)
class Antialiased:
    """What ``build_antialias`` gives.

    peel: the hard layer, for the shading builders. hard: FLOAT mask. depth: FLOAT, z / w in [0, 1],
    1 where nothing is. weights: VEC4, what the pixel takes from its right, left, lower and
    upper neighbour; they sum to at most 1. silhouette: FLOAT in [0, 1], coverage.
    crossings: VEC4 of zeros, with the gradient of such weights where two faces cross; facets: the
    same where any two faces meet. reach: VEC4, of ``reach_of_colours``. Gradient to vertices
    through weights, crossings, facets, silhouette and peel.bary.
    """

    screen: ScreenFaces
    peel: Peel
    hard: Variable
    depth: Variable
    weights: Variable
    silhouette: Variable
    crossings: Variable
    facets: Variable
    reach: Variable

    @property
    def ids(self) -> Variable:
        """INT face number at each pixel, -1 where nothing is."""
        return self.peel.ids

    @property
    def bary(self) -> Variable:
        """VEC3 perspective-correct weights of the pixel in its face. Gradient to the vertices."""
        return self.peel.bary

    def blend(
        self, color: Variable, background: Variable | float = 0.0, facets: bool = False
    ) -> Variable:
        """Antialiased picture.

        color: FLOAT or VECn image, shaded at the hard surface. background: the same type, an image,
        a 1x1 or a number, where nothing is. facets: whether every face is of one colour, by its own
        normal, say: then it jumps wherever two faces meet, and those lines have a gradient, too;
        without it colours go on over a surface. Gradient to both, and to the vertices where
        neighbours of different colour meet at a silhouette edge.
        """
        if not isinstance(color, Variable) or color.vtype.is_int or color.vtype.is_matrix:
            raise GraphError(f"blend needs one FLOAT or VECn colour image, got {color!r}")
        if color.size not in ((1, 1), self.screen.size):
            raise GraphError(
                f"blend needs a colour image @ {self.screen.size}, got {color.label()}"
            )
        shown = out = F.where(self.hard, color, background)
        still, weights = F.stop_gradient(shown), F.stop_gradient(self.weights)
        moved = self.weights - weights + (self.facets if facets else self.crossings)
        for axis in (0, 1):
            jump = self._jump(still, axis, facets)
            before = F.image.shift(jump, *MOVES[2 * axis + 1], border="zero")
            for n, sign, difference in ((2 * axis, 1.0, jump), (2 * axis + 1, -1.0, before)):
                neighbor = F.image.shift(shown, *MOVES[n], border="clamp")
                # Exactly the hard picture where the weight is 0.
                out = out + (neighbor - shown) * F.swizzle(weights, "xyzw"[n])
                # What an edge uncovers has the colours at the edge, not those at the centres.
                out = out + difference * (F.swizzle(moved, "xyzw"[n]) * sign)
        return out

    def _jump(self, shown: Variable, axis: int, facets: bool) -> Variable:
        """By how much the colour changes across the edge between each pixel and the next one: the
        surface of either goes on to it from the neighbour on its other side."""
        to, back = MOVES[2 * axis], MOVES[2 * axis + 1]
        after = F.image.shift(shown, *to, border="clamp")
        if facets:
            return after - shown
        before = F.image.shift(shown, *back, border="clamp")
        beyond = F.image.shift(shown, 2 * to[0], 2 * to[1], border="clamp")
        first, last = (F.swizzle(self.reach, k) for k in ("xz", "yw")[axis])
        return after + (after - beyond) * last - shown - (shown - before) * first


def build_antialias(
    vtx_pos: Variable,
    faces: Variable,
    matrix: Variable,
    size: Size,
    jitter: Variable | tuple[float, float] | None = None,
    clip: bool = False,
    cull: bool | Variable = False,
) -> Antialiased:
    """Rasterize hard faces once and find the coverage of the pixels at silhouettes.

    vtx_pos: VEC3 @ (N, 1), world units. faces: IVEC3 leaf @ (F, 1); several meshes in one table are
    fine. matrix: MAT4 @ 1x1, layers = views. size: image size in pixels. jitter: VEC2 @ 1x1 in
    pixels, shifts the projection. An edge is on the silhouette when no face lies across it, or one
    that is turned the other way. Gradient to vtx_pos and matrix, from pixels beside a silhouette,
    inner ones (a face in front of a farther one) and, in blended pictures, lines where faces cross
    included; from faces that cross the near or the far plane only with clip, which cuts them there.
    cull: leave out faces that are seen from their back: the same picture of closed surfaces that
    are seen from outside, in less time; or a mask of faces, as of ``build_hardsoftras``. Raises
    GraphError for wrong types or sizes.
    """
    check_variables("antialias", vtx_pos=vtx_pos, faces=faces, matrix=matrix)
    check_faces(faces)
    if faces.creator is not None:
        raise GraphError(f"antialias: faces must be a leaf, got {faces.label()}")
    if vtx_pos.vtype is not VEC3 or matrix.vtype is not MAT4:
        raise GraphError(
            f"antialias needs VEC3 positions and a MAT4, got {vtx_pos.label()}, {matrix.label()}"
        )
    check_size("antialias", size)
    if jitter is not None and not isinstance(jitter, Variable):
        jitter = F.constant(jitter)
    screen = build_screen_faces(vtx_pos, faces, matrix, size, jitter, clip)
    little = build_enlarge_little
    peel = build_rasterize(screen, F.constant(0.0), 1, enlarge=little, cull=cull)[0]
    drawn, rows = screen.drawn, peel.ids if peel.rows is None else peel.rows
    peel = replace(peel, bary=_of_whole(screen, peel, shown_weights(drawn, rows)))
    edges = contour_edges(screen, neighbor_table(faces, vtx_pos), front=True)
    if cull is not False:
        edges = edges * (1.0 - left_out(screen, cull))
    depth = F.where(peel.stencil, F.minimum(peel.depth * 2.0, 1.0), BEHIND_ALL)
    planes = planes_of(drawn)
    surface = Surface(rows, depth, F.stop_gradient(planes).xy)
    between = [contour_between(drawn, edges, surface, axis) for axis in (0, 1)]
    # The same graph as inside build_screen_faces: merged, not run twice.
    points = to_screen(project(vtx_pos, matrix), size, jitter).xy
    lines = edge_lines(screen, faces, points)
    cut_by = lines.cuts(between)
    touches = F.vec2(*(b.touches for b in between))
    met, folded = (
        _or_half(meeting(planes, rows, screen, folds), cut_by, touches) for folds in (False, True)
    )
    cut_by = ending(cut_by, between)
    found = cut_by.slope > 0.0
    weights, near = neighbor_weights(lines, between, cut_by)
    at = F.where(found, cut_by.at, met.at)
    hard = peel.stencil
    whole = (1.0 - found) * F.equal(met.slope, 0.0)
    reach = reach_of_colours(whole, at, between, depth, depth_px(matrix, size, depth))
    around = F.vec4(*(F.image.shift(hard, *to, border="clamp") for to in MOVES)) - hard
    return Antialiased(
        screen=screen,
        peel=peel,
        hard=hard,
        depth=F.where(hard, F.minimum(peel.depth * 2.0, 1.0), 1.0),
        weights=weights,
        silhouette=F.where(near, hard + F.dot(around, weights), hard),
        crossings=_gradient_alone(met, found),
        facets=_gradient_alone(folded, found),
        reach=reach,
    )


def _of_whole(screen: ScreenFaces, peel: Peel, weights: Variable) -> Variable:
    """VEC3: weights of the corners of faces, from those of what is left of them."""
    parts, rows = screen.parts, peel.rows
    if parts is None or rows is None:
        return weights
    cut = F.lookup(parts.cut, rows)
    a, b, c = (F.lookup(t, F.where(cut, rows, -1)) for t in parts.shares)
    return F.where(cut, a * weights.x + b * weights.y + c * weights.z, weights)


def _gradient_alone(met: Cuts, found: Variable) -> Variable:
    """VEC4 of zeros: where faces meet nothing is blended, only the gradient is that of an edge.
    found: VEC2 mask of the pairs with an edge, which counts in the place of it."""
    crossed = _taken(cut_off(met.at, F.where(found, 0.0, met.slope)))
    return crossed - F.stop_gradient(crossed)


def _taken(cut: Variable) -> Variable:
    """VEC4: what pixels take from their right, left, lower and upper neighbours, of the areas of
    ``cut_off``."""
    mine, others = cut.xy, F.swizzle(cut, "zw")
    return F.vec4(mine.x, F.image.shift(others, 1, 0).x, mine.y, F.image.shift(others, 0, 1).y)


def _or_half(met: Cuts, edges: Cuts, touches: Variable) -> Cuts:
    """Where faces meet at an edge of one of them, the line follows the edge when that is lifted,
    and the planes when it is pressed in: half of either derivative is that of both sides."""
    at = F.where(touches * (met.slope > 0.0), edges.at, met.at)
    return Cuts((met.at + at) * 0.5, met.slope)


def _line(start: Variable, end: Variable) -> tuple[Variable, Variable, Variable]:
    """FLOATs of an edge as a line: place on the axis where the line meets 0, slope, and the slope's
    absolute value. The latter is positive for lines x = place + slope * y, which pixels beside each
    other look for, negative for y = place + slope * x, 0 for edges without length.

    Of the two forms the one with |slope| <= 1 is taken. Gradient to start and end.
    """
    d = end - start
    steep = F.abs(d.y) >= F.abs(d.x)
    rise, run = F.where(steep, d.y, d.x), F.where(steep, d.x, d.y)
    slope = F.safe_div(run, rise)
    along, across = F.where(steep, start.x, start.y), F.where(steep, start.y, start.x)
    tilt = F.abs(slope)
    # A choice, not a maximum: where no gradient arrives, none is computed.
    size = F.where(F.stop_gradient(tilt) > MIN_SLOPE, tilt, MIN_SLOPE) * (steep * 2.0 - 1.0)
    return along - slope * across, slope, F.where(F.not_equal(rise, 0.0), size, 0.0)


Ends = Callable[[Pair], tuple[Variable, Variable]]
"""Edges of pairs -> VEC2s @ size, where they start and end; 0 for pairs without an edge."""


@dataclass(frozen=True)
class EdgeLines:
    """The edges of faces as lines. Pixels make those that they need: far fewer than there are.
    ends: of the edges, with their gradient. screen: the faces."""

    ends: Ends
    screen: ScreenFaces

    def cuts(self, pairs: Sequence[Pair], back: float = 0.0) -> Cuts:
        """Where the edges of pairs beside and below each other cut them, from the first pixel.
        back: by how many pixels that lies before each pixel. Gradient to the edges."""
        right, below = (_line(*self.ends(b)) for b in pairs)
        size, layers, scale = self.screen.size, self.screen.layers, self.screen.scale
        p = pixel_positions(size, layers)
        first = p if back == 0.0 else (F.pixel_coord(size, layers) - back) * (1.0 / scale)
        place, slope = F.vec2(right[0], below[0]), F.vec2(right[1], below[1])
        at = (place + slope * F.swizzle(p, "yx") - first) * scale
        return Cuts(at, F.vec2(right[2], -below[2]))


def edge_lines(
    screen: ScreenFaces, faces: Variable | None = None, points: Variable | None = None
) -> EdgeLines:
    """Return the lines of edges, with their gradient to the corners of what is drawn.

    faces, points: IVEC3 rows of VEC2 places of vertices in the screen square, where they are known:
    edges of whole faces then lie between those, and the gradient goes to them.
    """
    if faces is not None and points is not None and screen.parts is None:
        return EdgeLines(partial(_ends_of_vertices, faces, points), screen)
    return EdgeLines(partial(_ends_of_corners, [v.xy for v in screen.drawn.corners]), screen)


def _ends_of_vertices(faces: Variable, points: Variable, pair: Pair) -> tuple[Variable, Variable]:
    vertices = F.lookup(faces, pair.face)
    found = F.compare("gte", pair.face, 0)
    start, end = (
        F.lookup(points, F.where(found, v, -1))
        for v in _of_edge([F.swizzle(vertices, k) for k in "xyz"], pair.edge)
    )
    return start, end


def _ends_of_corners(corners: Sequence[Variable], pair: Pair) -> tuple[Variable, Variable]:
    return _of_edge([F.lookup(v, pair.face) for v in corners], pair.edge)


def _of_edge(corners: Sequence[Variable], edge: Variable) -> tuple[Variable, Variable]:
    """Of what is at the three corners of a face: what is where an edge starts and ends."""
    a, b, c = corners
    first, second = F.equal(edge, 0), F.equal(edge, 1)
    return F.where(first, a, F.where(second, b, c)), F.where(first, b, F.where(second, c, a))


def ending(cuts: Cuts, pairs: Sequence[Pair]) -> Cuts:
    """The cuts without edges that touch: nothing ends there."""
    return Cuts(cuts.at, F.where(F.vec2(*(b.touches for b in pairs)), 0.0, cuts.slope))


def neighbor_weights(
    lines: EdgeLines, between: Sequence[Between], cuts: Cuts
) -> tuple[Variable, Variable]:
    """VEC4, sum at most 1: what each pixel takes from its right, left, lower and upper neighbour;
    FLOAT mask of the pixels that have an edge on any side: the others take nothing.

    cuts: of the pairs with the next pixels. Those with the pixels before are found again, so that
    a pixel needs codes of its neighbours and no image of areas; few pixels have any. Gradient to
    the lines.
    """
    before = [b.before(MOVES[2 * axis + 1]) for axis, b in enumerate(between)]
    cuts_before = ending(lines.cuts(before, 1.0), before)
    near = F.max_components(F.vec4(*(F.compare("gt", b.code, 0) for b in (*between, *before))))
    at, slope = F.vec4(cuts.at, cuts_before.at), F.vec4(cuts.slope, cuts_before.slope)
    raw = F.swizzle(_areas(at, slope), "xzyw")
    # A pixel between two edges may be asked for more than all of it.
    total = F.sum_components(raw)
    weights = raw * (1.0 / F.where(total > 1.0, total * ROUNDING, 1.0))
    return F.where(near, weights, 0.0), near


def cut_off(at: Variable, slope: Variable) -> Variable:
    """VEC4: the areas that edges cut off the unit squares around the centres of two pixels, on the
    sides that the centres face each other: of the one at 0, for two edges, and of the one at 1.

    at: VEC2, pixels from 0 to the edges, clamped to [0, 1]; 0 area where it is outside by more than
    rounding. slope: VEC2 in (0, 1], by how much the edges move along the axis from one side of the
    square to the other, at most its width; 0 area where it is not positive. Continuous with its
    first derivative. Gradient to both.
    """
    return _areas(F.vec4(at, at), F.vec4(slope, slope))


def _areas(at: Variable, slope: Variable) -> Variable:
    """The same of four edges: the first two seen from the pixels at 0, the others from those at
    1."""
    # The areas and their derivatives first, without gradient, and then the tangent: the backward
    # reads one image, not each step of the way.
    x, s = F.stop_gradient(at), F.stop_gradient(slope)
    valid = (s > 0.0) * (x >= -2.0 * BEYOND_PX) * (x <= 1.0 + 2.0 * BEYOND_PX)
    held = F.clamp(x, 0.0, 1.0)
    d = F.vec4(held.xy, 1.0 - F.swizzle(held, "zw"))
    rest = 0.5 + 0.5 * s - d
    # Share of the sides that the edge meets: minus the derivative by the distance.
    part = F.clamp(F.safe_div(rest, s), 0.0, 1.0)
    area = F.where(rest > s, 0.5 - d, 0.5 * s * part * part)
    area, part = F.where(valid, area, 0.0), F.where(valid, part, 0.0)
    dx, ds = at - x, slope - s
    turned = part * (1.0 - part) * 0.5
    return area + part * F.vec4(-dx.xy, F.swizzle(dx, "zw")) + turned * ds
