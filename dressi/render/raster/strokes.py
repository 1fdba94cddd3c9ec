"""Points and lines on the screen: discs and strands with round ends.

In: positions, widths, matrices. Out: ``Strokes``, per pixel: which point or segment it shows, where
along it, how deep; and a soft coverage whose gradient reaches positions and widths. A segment is
what a disc covers that moves from one end to the other while its radius changes evenly, which is
what perspective makes of a strand of even thickness. Segments are cut at the near and the far plane
by arithmetic, with gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, IVEC2, MAT4, VEC3
from dressi.errors import GraphError
from dressi.kinds import UNITS, Unit
from dressi.render.raster.enlarge import SLACK_PX
from dressi.render.raster.projection import (
    MIN_W,
    Size,
    check_size,
    check_variables,
    pixel_positions,
    project,
    to_screen,
)

FAR_OUTSIDE = 2.0
"""Distance (screen square units, beyond its diagonal) outside of everything that reaches a
pixel."""

MIN_LENGTH = 1e-12
"""Squared length (screen square units) below which a segment has no direction: it is a disc."""

END_BIAS = 1e-6
"""Depth by which round ends lie behind what else is as deep."""

LAST_DEPTH = 1.0 - 2.0**-20
"""Deepest that a stroke is drawn: 1 would lose against the cleared depth."""


@dataclass(frozen=True)
class Strokes:
    """What ``build_points`` and ``build_lines`` give, per pixel and view.

    ids: INT, the nearest point or segment whose inside covers the pixel's centre, or -1. t: FLOAT
    in [0, 1], where on the segment, in the world, from its first vertex to its second (0 for
    points). depth: FLOAT, z in NDC in [0, 1]; 1 where there is nothing. mask: FLOAT, 1 where there
    is something. distance: FLOAT, signed distance to the outline of all strokes together, screen
    square units, positive inside, -2 out of reach. soft_ids: INT, the one that distance is measured
    to, -1 out of reach. coverage: FLOAT in [0, 1], sigmoid(distance / sigma), 0 out of reach.
    Gradient through t, depth, distance and coverage.
    """

    ids: Variable
    t: Variable
    depth: Variable
    mask: Variable
    distance: Variable
    soft_ids: Variable
    coverage: Variable

    def interpolate(self, table: Variable, segments: Variable | None = None) -> Variable:
        """Attribute of vertices at each pixel; 0 where there is nothing. table: FLOAT or VECn @
        (N, 1). segments: IVEC2 @ (S, 1) of ``build_lines``; None for points. Gradient to the table
        and to t."""
        if segments is None:
            return F.lookup(table, self.ids)
        a, b = (F.lookup(F.lookup(table, v), self.ids) for v in (segments.x, segments.y))
        return a + (b - a) * self.t


def build_points(
    vtx_pos: Variable,
    radius: Variable | float,
    matrix: Variable,
    size: Size,
    r: Variable | float = 0.02,
    sigma: Variable | float | None = None,
    unit: Unit = "px",
) -> Strokes:
    """Points as discs that face the camera.

    vtx_pos: VEC3 @ (N, 1), world units. radius: of the discs, a number, FLOAT @ 1x1 or @ (N, 1);
    unit: ``px``, or ``world``, which perspective scales. matrix: MAT4 @ 1x1, layers = views. size:
    image size in pixels. r: reach of the soft rim, screen square units. sigma: softness, default r
    / 7. Points before the near or behind the far plane are not drawn. Gradient to vtx_pos, radius
    and matrix. Raises GraphError for wrong types, sizes and units.
    """
    _check(vtx_pos, matrix, size, unit)
    clip = project(vtx_pos, matrix)
    h = radius_at(_table("radius", radius, vtx_pos), clip, matrix, size, unit)
    seen = _in_range(F.stop_gradient(clip))
    end = to_screen(clip, size)
    zero = F.expand(F.constant(0.0), vtx_pos.size)
    return _build(_Ends(end, end, h, h, seen, zero, zero), size, r, sigma)


def build_lines(
    vtx_pos: Variable,
    segments: Variable,
    width: Variable | float,
    matrix: Variable,
    size: Size,
    r: Variable | float = 0.02,
    sigma: Variable | float | None = None,
    unit: Unit = "px",
) -> Strokes:
    """Segments as strands with round ends; where they share vertices, polylines.

    vtx_pos: VEC3 @ (N, 1), world units. segments: IVEC2 @ (S, 1), rows of vtx_pos; without length
    they are discs. width: of the strand, a number, FLOAT @ 1x1 or of each vertex @ (N, 1); unit:
    ``px``, or ``world``, which perspective scales. matrix, size, r, sigma: as for ``build_points``.
    A segment that crosses the near or the far plane is cut there. Coverage is that of all strands
    together: where segments meet or cross, nothing is counted twice. Of two strands the nearer one
    shows; in a polyline, each segment up to the vertex that it shares with the next. Gradient to
    vtx_pos, width and matrix. Raises GraphError for wrong types, sizes and units.
    """
    _check(vtx_pos, matrix, size, unit)
    if not isinstance(segments, Variable) or segments.vtype is not IVEC2 or segments.size[1] != 1:
        raise GraphError(f"lines: segments must be an IVEC2 table @ (S, 1), got {segments!r}")
    clip = project(vtx_pos, matrix)
    half = _table("width", width, vtx_pos) * 0.5
    a, b = (F.lookup(clip, v) for v in (segments.x, segments.y))
    h_a, h_b = (F.lookup(half, v) for v in (segments.x, segments.y))
    t_a, t_b = _cut(a, b)
    seen = F.stop_gradient(t_a) <= F.stop_gradient(t_b)
    start, stop = a + (b - a) * t_a, a + (b - a) * t_b
    first, last = (
        (to_screen(c, size), radius_at(h_a + (h_b - h_a) * t, c, matrix, size, unit))
        for c, t in ((start, t_a), (stop, t_b))
    )
    ends = _Ends(first[0], last[0], first[1], last[1], seen, t_a, t_b)
    return _build(ends, size, r, sigma)


@dataclass(frozen=True)
class _Ends:
    """Tables @ (S, 1), layers: VEC4 screen positions of the visible ends (as ``to_screen`` gives
    them), FLOAT radii there (screen square units), FLOAT whether anything is visible, FLOAT where
    the ends lie between the vertices."""

    a: Variable
    b: Variable
    h_a: Variable
    h_b: Variable
    seen: Variable
    t_a: Variable
    t_b: Variable


def _in_range(clip: Variable) -> Variable:
    """1 where a clip position lies between the near and the far plane."""
    return (clip.z >= 0.0) * (clip.z <= clip.w) * (clip.w > 0.0)


def _cut(a: Variable, b: Variable) -> tuple[Variable, Variable]:
    """The part of the segment a b, clip positions, between the planes: parameters of its ends in
    [0, 1]; the first is past the second where there is none. Gradient to a and b."""
    low, high = F.constant(0.0), F.constant(1.0)
    for da, db in ((a.z, b.z), (a.w - a.z, b.w - b.z)):
        at = F.safe_div(da, da - db)  # in (0, 1) where the segment crosses the plane
        out_a, out_b = F.stop_gradient(da) < 0.0, F.stop_gradient(db) < 0.0
        low = F.maximum(low, F.where(out_a, F.where(out_b, 2.0, at), 0.0))
        high = F.minimum(high, F.where(out_b, F.where(out_a, -1.0, at), 1.0))
    return F.clamp(low, 0.0, 1.0), F.where(low <= high, F.clamp(high, 0.0, 1.0), -1.0)


def radius_at(
    radius: Variable, clip: Variable, matrix: Variable, size: Size, unit: str
) -> Variable:
    """Radius on the screen, screen square units, of one in pixels or in the world. Gradient to
    all."""
    m = float(max(size))
    if unit == "px":
        return radius * (1.0 / m)
    # World units across the view per w, from the matrix: the row of y without its part along the
    # view (which an off-centre camera has).
    up, along = F.linalg.row(matrix, 1).xyz, F.linalg.row(matrix, 3).xyz
    across = up - along * F.safe_div(F.dot(up, along), F.dot(along, along))
    w = F.maximum(clip.w, MIN_W)
    return radius * F.length(across) * (0.5 * size[1] / m) / w


def _build(ends: _Ends, size: Size, r: Variable | float, sigma: Variable | float | None) -> Strokes:
    reach = _number("r", r)
    reach = F.clamp(reach, 0.0, 1.0)
    softness = reach * (1.0 / 7.0) if sigma is None else _number("sigma", sigma)
    layers = ends.a.layers
    p = pixel_positions(size, layers)
    still = _Ends(*(F.stop_gradient(v) for v in vars(ends).values()))

    least = SLACK_PX / max(size)

    def winner(layer: int, rim: Variable) -> tuple[Variable, Variable, Variable]:
        frag = F.rasterize(_quads(still, rim, size), size, layer=layer)
        d, _, z, past = _measure(still, frag, p, least)
        # The round end of one segment lies inside of the next segment of its polyline: behind its
        # surface, so that the next one shows there, as the same slope goes on.
        slope = F.abs(F.lookup(still.b.z, frag) - F.lookup(still.a.z, frag))
        return frag, d, F.clamp(z + slope * past + END_BIAS * (past > 0.0), 0.0, LAST_DEPTH)

    frag, d, z = winner(0, F.constant(0.0))
    ids = F.resolve(frag, z, d >= 0.0, background=-1)
    frag, d, _ = winner(1, reach)
    # The deepest inside first: the outline is that of all strokes together.
    order = 0.5 - 0.5 * d / (F.abs(d) + 1.0 / max(size))
    soft_ids = F.resolve(frag, order, d >= -reach, background=-1)

    mask, near = (F.to_float(F.compare("gte", v, 0)) for v in (ids, soft_ids))
    _, s, z, _ = _measure(ends, ids, p, least)
    # Even steps on the screen are no even steps in the world.
    w_a, w_b = F.lookup(ends.a.w, ids), F.lookup(ends.b.w, ids)
    along = F.safe_div(s * w_b, (1.0 - s) * w_a + s * w_b)
    t_a, t_b = F.lookup(ends.t_a, ids), F.lookup(ends.t_b, ids)
    distance, _, _, _ = _measure(ends, soft_ids, p, least)
    soft = F.sigmoid(F.safe_div(distance, softness))
    return Strokes(
        ids=ids,
        t=F.where(mask, t_a + (t_b - t_a) * along, 0.0),
        depth=F.where(mask, F.clamp(z, 0.0, 1.0), 1.0),
        mask=mask,
        distance=F.where(near, distance, -FAR_OUTSIDE),
        soft_ids=soft_ids,
        coverage=near * F.where(softness > 0.0, soft, distance >= 0.0),
    )


def _measure(
    ends: _Ends, ids: Variable, p: Variable, least: float
) -> tuple[Variable, Variable, Variable, Variable]:
    """(signed distance, parameter between the ends on the screen, depth, how far past an end) of p
    and stroke ids; the last in lengths of the segment, up to 1.

    The distance is the largest of radius - distance to the centre over all discs between the ends.
    Gradient to the ends, of the distance by its largest disc, which moves along with them. least:
    length of a segment, screen square units, below which the parameter's gradient grows no more; it
    is longer for pixels beside a short and wide one.
    """
    a, b = F.lookup(ends.a, ids), F.lookup(ends.b, ids)
    h_a, h_b = F.lookup(ends.h_a, ids), F.lookup(ends.h_b, ids)
    edge, ap = b.xy - a.xy, p - a.xy
    length2 = F.dot(edge, edge)
    is_long = F.stop_gradient(length2) > MIN_LENGTH
    length = F.sqrt(F.where(is_long, length2, 1.0))
    grow = F.where(is_long, (h_b - h_a) / length, 0.0)  # of the radius, per length
    lean = 1.0 - grow * grow
    tapers = F.stop_gradient(lean) > 1e-6
    x = F.dot(ap, edge) / length
    y = F.abs(ap.x * edge.y - ap.y * edge.x) / length
    best = (x + y * grow / F.sqrt(F.where(tapers, lean, 1.0))) / length
    # Where one end's disc holds the other's, it is the larger of the two.
    s = F.where(tapers, best, F.stop_gradient(grow) > 0.0)
    s = F.where(is_long, F.clamp(s, 0.0, 1.0), F.stop_gradient(h_b) > F.stop_gradient(h_a))
    at = F.stop_gradient(s)
    usual = F.stop_gradient(length2 * F.maximum(lean, 0.0) / (least * F.maximum(y, least)))
    s = at + (s - at) * F.minimum(usual, 1.0)
    distance = h_a + (h_b - h_a) * at - F.length(ap - edge * at)
    past = F.where(is_long, F.minimum(F.abs(F.stop_gradient(best) - at), 1.0), 0.0)
    return distance, s, a.z + (b.z - a.z) * s, past


def _quads(ends: _Ends, rim: Variable, size: Size) -> tuple[Variable, ...]:
    """Four corners, VEC4 clip positions @ (S, 1), of a rectangle around each stroke and its
    rim."""
    a, b = ends.a.xy, ends.b.xy
    edge = b - a
    length2 = F.dot(edge, edge)
    along = F.where(
        length2 > MIN_LENGTH, edge / F.sqrt(F.maximum(length2, MIN_LENGTH)), F.constant((1.0, 0.0))
    )
    half = F.maximum(ends.h_a, ends.h_b) + rim + SLACK_PX / max(size)
    ahead, side = along * half, F.vec2(-along.y, along.x) * half
    w, h = size
    m = float(max(size))
    out = []
    for corner in (a - ahead - side, b + ahead - side, b + ahead + side, a - ahead + side):
        ndc = corner * (2.0 * m / w, 2.0 * m / h) - 1.0
        out.append(F.where(ends.seen, F.vec4(ndc, 0.5, 1.0), F.constant((2.0, 2.0, 0.5, 1.0))))
    return tuple(out)


def _number(name: str, value: Variable | float) -> Variable:
    if isinstance(value, Variable):
        if value.vtype is not FLOAT or value.size != (1, 1):
            raise GraphError(f"{name} must be a number or a FLOAT @ 1x1, got {value.label()}")
        return value
    if not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0:
        raise GraphError(
            f"{name} must be a number in [0, 1] (1 is the longer side) or a FLOAT @ 1x1, "
            f"got {value!r}"
        )
    if name == "sigma" and value == 0.0:
        raise GraphError("sigma must be positive, got 0")
    return F.constant(float(value))


def _table(name: str, value: Variable | float, vtx_pos: Variable) -> Variable:
    """FLOAT @ (N, 1), not negative."""
    if not isinstance(value, Variable):
        if not isinstance(value, (int, float)) or not 0.0 <= value < 1e6:
            raise GraphError(f"{name} must be a number >= 0 or a FLOAT Variable, got {value!r}")
        value = F.constant(float(value))
    if value.vtype is not FLOAT or value.size not in ((1, 1), vtx_pos.size):
        raise GraphError(
            f"{name} must be a FLOAT @ 1x1 or @ {vtx_pos.size[0]}x1, got {value.label()}"
        )
    return F.expand(F.maximum(value, 0.0), vtx_pos.size, value.layers)


def _check(vtx_pos: Variable, matrix: Variable, size: Size, unit: str) -> None:
    check_variables("strokes", vtx_pos=vtx_pos, matrix=matrix)
    if vtx_pos.vtype is not VEC3 or vtx_pos.size[1] != 1 or matrix.vtype is not MAT4:
        raise GraphError(
            f"needs VEC3 positions @ (n, 1) and a MAT4, got {vtx_pos.label()}, {matrix.label()}"
        )
    check_size("strokes", size)
    if unit not in UNITS:
        raise GraphError(f"unit must be one of {UNITS}, got {unit!r}")
