"""Which contour edge lies between the centres of two pixels beside or below each other.

In: the faces on the screen, a mask of their contour edges, the hard layer. Out: ``Between``, per
pixel and axis. Each contour edge is rasterized as a triangle around what it sweeps when it moves by
one pixel to the left, or up: that covers the centres which have the edge on their right or below
them, within a pixel. So an edge is found however many faces lie between it and the next pixel that
shows its surface, and only pixels at contours pay for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from dressi.ad import F, Variable
from dressi.render.raster.enlarge import NO_AREA, SLACK_PX
from dressi.render.raster.projection import ScreenFaces, Size, pixel_positions

Triple = tuple[Variable, Variable, Variable]

BEHIND_ALL = 2.0
"""Depth of the background, behind what lies on the far plane."""

BEYOND_PX = 6e-3
"""Pixels by which a crossing may lie past either centre. A hair (``HAIR_PX``) outside of a face the
hard layer still shows it; what the two pixels show decides to which pair the crossing belongs."""

TIE = 2.0**-20
"""Depths in [0, 1] that differ by less are the same, but for rounding: an edge on what is seen."""

AXES = (("x", "y"), ("y", "x"))
"""Of pairs beside and below each other: the coordinate across the edges, and the one along them."""


@dataclass(frozen=True)
class Surface:
    """What is seen: the hard layer without gradient. rows: INT row of the drawn faces or -1. depth:
    FLOAT in [0, 1], BEHIND_ALL where nothing is. slopes: VEC2 table of the drawn faces, by how much
    the depth grows per unit of the screen square."""

    rows: Variable
    depth: Variable
    slopes: Variable

    def depth_at(self, index: Variable, away: Variable) -> Variable:
        """FLOAT: depth of the face that the pixel with an index shows, at a place away from the
        pixel's centre. away: VEC2, screen square units."""
        slope = F.lookup(self.slopes, F.lookup(self.rows, index))
        return F.lookup(self.depth, index) + F.dot(slope, away)


def lies_along(corners: Triple, axis: int) -> Variable:
    """VEC3 mask of the edges ab, bc, ca that pairs of an axis look for: rows of pixels (0) are cut
    by steep edges, columns by flat ones. No gradient."""
    out = []
    for k in range(3):
        d = F.stop_gradient(corners[(k + 1) % 3].xy - corners[k].xy)
        wide, high = F.abs(d.x), F.abs(d.y)
        steep = (high >= wide) * (high > 0.0)
        out.append(steep if axis == 0 else (wide > high) * 1.0)
    return F.vec3(*out)


@dataclass(frozen=True)
class Pair:
    """The nearest visible contour edge between the pixels of a pair. code: INT, says the rest; 0
    where there is none. face: INT row of the drawn faces, -1 where there is none. edge: INT, 0 to
    2. touches: FLOAT mask: the edge lies on what is seen on its outer side, so that nothing ends
    there."""

    code: Variable
    face: Variable
    edge: Variable
    touches: Variable


def pair_of(code: Variable) -> Pair:
    """Return what a code says: 1 + 6 face + 2 edge + touches."""
    found, number = F.compare("gt", code, 0), code - 1
    face = F.where(found, number / 6, -1)
    rest = number - face * 6
    edge = rest / 2
    return Pair(code, face, edge, found * F.equal(rest - edge * 2, 1))


@dataclass(frozen=True)
class Between(Pair):
    """Of each pixel and the next one, @ size. depth: FLOAT of the crossing, negative where the
    edge's face lies on the side of the next pixel, 0 where there is none or it touches."""

    depth: Variable

    def before(self, to: tuple[int, int]) -> Pair:
        """Return the pairs of the pixels before and each pixel. to: what moves those to it."""
        return pair_of(F.image.shift(self.code, *to))


def contour_between(drawn: ScreenFaces, edges: Variable, surface: Surface, axis: int) -> Between:
    """Find the contour edges between pixels and the next ones on the right (axis 0) or below (1).

    edges: VEC3 mask of the contour edges of the drawn faces. An edge is visible where the face that
    is seen on its outer side lies behind it, or touches it. No gradient.
    """
    a, b, c = (F.stop_gradient(v) for v in drawn.corners)
    frag = F.rasterize(_swept((a, b, c), edges, drawn.size, axis), drawn.size)
    corners = (F.lookup(a, frag), F.lookup(b, frag), F.lookup(c, frag))
    # Fragments, which are few, find anew which edges the axis looks for: one table serves both.
    mine = F.lookup(edges, frag) * lies_along(corners, axis)
    crossing = _crossing(corners, mine, drawn, axis)
    width, pixel = drawn.size[0], F.pixel_coord(drawn.size, drawn.layers)
    here, onward = F.to_int(pixel.x) + F.to_int(pixel.y) * width, (1, width)[axis]
    is_first = crossing.inner <= 0.0
    outer = here + F.to_int(is_first) * onward
    inner = here + F.to_int(1.0 - is_first) * onward
    away = crossing.away - is_first * (1.0 / drawn.scale)
    away = F.vec2(away, 0.0) if axis == 0 else F.vec2(0.0, away)
    behind = surface.depth_at(outer, away) - crossing.depth
    touches = behind <= TIE
    keep = crossing.found * (behind >= -TIE)
    keep = keep * F.not_equal(F.lookup(surface.rows, outer), F.lookup(surface.rows, inner))
    keep = keep * (F.swizzle(pixel, "xy"[axis]) < drawn.size[axis] - 1.0)
    code = frag * 6 + crossing.edge * 2 + F.to_int(touches) + 1
    # Behind all others: of an edge that touches only the gradient is asked.
    order = crossing.depth * 0.5 + touches * 0.5
    pair = pair_of(F.resolve(code, order, keep))
    depth = F.where(is_first, crossing.depth, -crossing.depth) * (1.0 - touches)
    depth = F.resolve(depth, order, keep)
    return Between(pair.code, pair.face, pair.edge, pair.touches, depth)


@dataclass(frozen=True)
class _Crossing:
    """Where an edge crosses the line between two centres. found: FLOAT mask. away: FLOAT, from the
    first centre, screen square units. depth: FLOAT. inner: FLOAT, positive where its face lies
    beyond the crossing. edge: INT, 0 to 2."""

    found: Variable
    away: Variable
    depth: Variable
    inner: Variable
    edge: Variable

    def or_nearer(self, other: _Crossing) -> _Crossing:
        """Return this one unless the other is nearer, or alone there."""
        mine = self.found * F.maximum(1.0 - other.found, self.depth <= other.depth)
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return _Crossing(*(F.where(mine, u, v) for u, v in pairs))


def _crossing(corners: Triple, edges: Variable, screen: ScreenFaces, axis: int) -> _Crossing:
    """The nearest crossing with the edges in a mask."""
    across, along = AXES[axis]
    p = pixel_positions(screen.size, screen.layers)
    line, start = F.swizzle(p, along), F.swizzle(p, across)
    xs = [F.swizzle(v, across) - start for v in corners]
    # Compared, not subtracted: the ends that two edges share are on one side for both.
    before = [F.compare("lt", F.swizzle(v, along), line) for v in corners]
    ys = [F.swizzle(v, along) - line for v in corners]
    beyond = BEYOND_PX / screen.scale
    best: _Crossing | None = None
    for k in range(3):
        i, j, apex = k, (k + 1) % 3, (k + 2) % 3
        rise = ys[j] - ys[i]
        t = -F.safe_div(ys[i], rise)
        run = xs[j] - xs[i]
        away = xs[i] + run * t
        found = F.not_equal(before[i], before[j]) * F.swizzle(edges, "xyz"[k])
        found = found * (away >= -beyond) * (away <= 1.0 / screen.scale + beyond)
        inner = xs[apex] - xs[i] - F.safe_div(run, rise) * (ys[apex] - ys[i])
        z = corners[i].z + (corners[j].z - corners[i].z) * t
        mine = _Crossing(found, away, F.clamp(z, 0.0, 1.0), inner, F.to_int(F.constant(k)))
        best = mine if best is None else best.or_nearer(mine)
    assert best is not None
    return best


def _swept(corners: Triple, edges: Variable, size: Size, axis: int) -> list[Variable]:
    """VEC4 clip positions of three corners: around what the edges in a mask sweep, of those that an
    axis looks for. A triangle around a parallelogram has twice its area, which is little, and most
    faces have no such edge: those have no area, and a corner less to draw."""
    edges = edges * lies_along(corners, axis)
    a, b, c = (v.xy for v in corners)
    scale = float(max(size))
    slack, reach = SLACK_PX / scale, (1.0 + SLACK_PX) / scale
    back, on = ((reach, 0.0), (slack, 0.0)) if axis == 0 else ((0.0, reach), (0.0, slack))
    first, second = edges.x, edges.y
    p = F.where(first, a, F.where(second, b, c))
    q = F.where(first, b, F.where(second, c, a))
    d = q - p
    longer = d * F.safe_div(slack, F.max_components(F.abs(d)))
    p, q = p - longer, q + longer
    # Twice the sides of the parallelogram at its corner p - back.
    beside = 2.0 * (p + on) - (p - back)
    swept = [p - back, 2.0 * (q - back) - (p - back), beside]
    low = F.minimum(F.minimum(a, b), c) - slack - back
    far = 2.0 * (F.maximum(F.maximum(a, b), c) + slack) - low
    box = [low, F.vec2(far.x, low.y), F.vec2(low.x, far.y)]
    n = F.sum_components(edges)
    to_ndc = (2.0 * scale / size[0], 2.0 * scale / size[1])
    nowhere = F.constant(NO_AREA)
    out = []
    for alone, several in zip(swept, box, strict=True):
        place = F.where(n > 1.0, several, alone) * to_ndc - 1.0
        out.append(F.where(n > 0.0, F.vec4(place, 0.5, 1.0), nowhere))
    return out
