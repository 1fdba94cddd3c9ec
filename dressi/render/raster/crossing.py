"""Lines where one face goes over into another without an edge between surfaces that hides: where
faces pass through or touch each other, and where the normal turns. The picture jumps there, and the
jump moves with the planes of both faces.

In: what is seen, per pixel. Out: a term whose value is 0 and whose gradient is that of the line.
Between two pixels beside each other that show faces a and b, f = z_a - z_b is linear on the screen
and changes its sign on the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dressi.ad import F, Variable
from dressi.render.raster.projection import ScreenFaces, pixel_positions
from dressi.render.raster.weights import areas

FLAT = 0.02
"""Difference of the slopes of two planes, in slopes, below which the line where they meet is not
known: they are one surface, but for rounding."""

TIE = 2.0**-20
"""Depths in [0, 1] that differ by less are the same, but for rounding."""

BESIDE_PX = 0.75
"""Pixels by which the line may lie outside of the faces: beside the seam of two faces of one
surface, a pixel and the next one show faces that do not lie before each other."""

_MOVES = ((-1, 0), (0, -1))
"""What moves the right, the lower neighbour to a pixel, for F.image.shift."""


@dataclass(frozen=True)
class Crossing:
    """The line between a pixel and the next one on the right or below.

    right, below: FLOAT masks, where there is a line between the two; of a pixel one at most. place:
    FLOAT in [0, 1], pixels from the pixel's centre to the line; gradient to the corners of both
    faces. before, behind: FLOAT masks, whether the pixel before this one, and the one behind the
    next, shows the same face as its neighbour.
    """

    right: Variable
    below: Variable
    place: Variable
    before: Variable
    behind: Variable

    def term(self, shown: Variable) -> Variable:
        """Return an image of zeros with the gradient of the lines in a hard picture: the jump of
        colours times the area that the line sweeps. Gradient to corners, not to shown."""
        c = F.stop_gradient(shown)
        at = F.stop_gradient(self.place)
        moved, out = self.place - at, None
        first = at < 0.5
        for mask, (x, y) in zip((self.right, self.below), _MOVES, strict=True):
            back = F.image.shift(c, -x, -y, border="clamp")
            after = F.image.shift(c, x, y, border="clamp")
            later = F.image.shift(c, 2 * x, 2 * y, border="clamp")
            mine = c + F.where(self.before, (c - back) * at, 0.0)
            other = after + F.where(self.behind, (after - later) * (1.0 - at), 0.0)
            swept = F.where(mask, (mine - other) * moved, 0.0)
            # The line lies in the square of the pixel or of the next one.
            term = F.where(first, swept, 0.0)
            term = term + F.image.shift(F.where(first, 0.0, swept), -x, -y)
            out = term if out is None else out + term
        assert out is not None
        return out


def build_crossing(
    drawn: ScreenFaces, rows: Variable, surface: Variable, neighbors: Variable | None
) -> Crossing:
    """Find the lines. rows: INT, what is seen. surface: as of ``surface_image``. neighbors: IVEC3
    table of the rows across edges, where faces are not cut: faces that share an edge and are not
    seen well enough to know their colours at it are left out."""
    px = 1.0 / drawn.scale
    found = [_between(rows, surface, axis, px, neighbors) for axis in (0, 1)]
    right = found[0][0]
    below = found[1][0] * (1.0 - right)
    other = F.where(right, found[0][1], found[1][1])
    a, b = (F.where(F.maximum(right, below), v, -1) for v in (rows, other))
    p = pixel_positions(drawn.size, drawn.layers)
    step = F.where(right, F.constant((px, 0.0)), F.constant((0.0, px)))
    corners = [[F.lookup(t, row) for t in drawn.corners] for row in (a, b)]
    mine, others = (_plane(c, p) for c in corners)
    here = mine.x - others.x
    there = here + F.dot(mine.yz - others.yz, step)
    place = F.clamp(F.safe_div(here, here - there), 0.0, 1.0)
    before, behind = (F.where(right, found[0][k], found[1][k]) for k in (2, 3))
    # Planes meet everywhere: the line has to lie where both faces are.
    at = p + F.stop_gradient(place) * step
    there = _covers(corners[0], at, BESIDE_PX * px) * _covers(corners[1], at, BESIDE_PX * px)
    return Crossing(right * there, below * there, place, before, behind)


def _between(
    rows: Variable, surface: Variable, axis: int, px: float, neighbors: Variable | None
) -> tuple[Variable, Variable, Variable, Variable]:
    """Mask of lines between pixels and the next ones along an axis; the row there; whether the
    pixels before and behind the two show the same faces. No gradient."""
    x, y = _MOVES[axis]
    other = F.image.shift(rows, x, y, border="clamp")
    theirs = F.image.shift(surface, x, y, border="clamp")
    slope = F.swizzle(surface, "yz"[axis]), F.swizzle(theirs, "yz"[axis])
    here = surface.x - theirs.x + slope[1] * px
    there = surface.x + slope[0] * px - theirs.x
    turn = F.abs(theirs.yz - surface.yz)
    along, across = F.swizzle(turn, "xy"[axis]), F.swizzle(turn, "yx"[axis])
    steep = along >= across if axis == 0 else along > across
    steepest = F.length(surface.yz) + F.length(theirs.yz)
    known = along * px > FLAT * px * steepest + TIE
    meet = F.where(here * there < 0.0, known * steep, 0.0)
    meet = meet * F.not_equal(rows, other) * F.compare("gte", rows, 0) * F.compare("gte", other, 0)
    before = F.equal(F.image.shift(rows, -x, -y, border="clamp"), rows)
    behind = F.equal(F.image.shift(rows, 2 * x, 2 * y, border="clamp"), other)
    # Surfaces that pass through each other show the nearer one on either side.
    through = (here < 0.0) * (there > 0.0)
    if neighbors is not None:
        across_edges = F.lookup(neighbors, F.where(meet, rows, -1))
        shared = F.max_components(F.to_float(F.equal(across_edges, other)))
        through = through * (1.0 - shared)
    return meet * F.maximum(through, before * behind), other, before, behind


def _plane(corners: Sequence[Variable], p: Variable) -> Variable:
    """VEC3: depth of the plane of a face at p, and its slopes along x and y. Gradient to the
    corners."""
    a, b, c = corners
    u, v = b.xyz - a.xyz, c.xyz - a.xyz
    area2 = u.x * v.y - u.y * v.x
    slope = F.vec2(u.z * v.y - v.z * u.y, v.z * u.x - u.z * v.x)
    slope = F.safe_div(slope, area2)
    return F.vec3(a.z + F.dot(slope, p - a.xy), slope)


def _covers(corners: Sequence[Variable], at: Variable, slack: float) -> Variable:
    """1 where a point is at most so far outside of the lines of a face's edges."""
    a, b, c = (F.stop_gradient(v.xy) - at for v in corners)
    spans = areas(a, b, c)
    sides = F.vec3(F.length(b - c), F.length(c - a), F.length(a - b))
    inside = spans * F.sign(F.sum_components(spans)) + sides * slack
    return F.min_components(inside) >= 0.0
