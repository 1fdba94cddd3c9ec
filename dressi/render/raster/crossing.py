"""Lines where one face goes over into another without an edge between surfaces that hides: where
faces pass through or touch each other, and where the normal turns. The picture jumps there, and the
jump moves with the planes of both faces.

In: what is seen, per pixel. Out: ``Lines``: the line that cuts a pixel's square, the face on its
other side, and how the line moves. Between a pixel and the next one, which show faces a and b, f =
z_a - z_b is linear on the screen and changes its sign on the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dressi.ad import F, Variable
from dressi.render.raster.projection import ScreenFaces, pixel_positions
from dressi.render.raster.weights import areas, free_weights

FLAT = 0.02
"""Difference of the slopes of two planes, in slopes, below which the line where they meet is not
known: they are one surface, but for rounding."""

TIE = 2.0**-20
"""Depths in [0, 1] that differ by less are the same, but for rounding."""

BESIDE_PX = 0.75
"""Pixels by which the line may lie outside of the faces: beside the seam of two faces of one
surface, a pixel and the next one show faces that do not lie before each other."""

HALF = 0.5
"""Pixels from a centre to the border of its square."""

STEPS = ((1, 0), (-1, 0), (0, 1), (0, -1))
"""To the pixels beside a pixel. Of several lines in its square the first one counts."""

N = len(STEPS)


@dataclass(frozen=True)
class Lines:
    """The line in the square of a pixel. row: INT, row of the drawn faces on its other side, or -1.
    step: VEC2, to the pixel that shows it, screen square units. at: FLOAT, steps from the pixel's
    centre to the line. No gradient."""

    row: Variable
    step: Variable
    at: Variable

    def moved(
        self,
        mine: Sequence[Variable],
        others: Sequence[Variable],
        weights: Variable,
        slopes: tuple[Variable, Variable],
        p: Variable,
    ) -> Variable:
        """FLOAT of zeros with the gradient of ``at``. mine, others: VEC4, corners of the pixel's
        face and of the one across. weights: VEC3, of the latter at the line. slopes: VEC2 of both,
        as of ``depth_slopes``. p: VEC2, the pixel. Gradient to the corners."""
        place = p + self.step * self.at
        a, b, c = (v.xy - place for v in mine)
        change = []
        for corners, w in ((mine, free_weights((a, b, c))), (others, F.stop_gradient(weights))):
            a, b, c = (v.xyz for v in corners)
            at = a * w.x + b * w.y + c * w.z
            change.append(at - F.stop_gradient(at))
        first, second = slopes
        moved = F.dot(F.vec3(-first, 1.0), change[0]) - F.dot(F.vec3(-second, 1.0), change[1])
        return -F.safe_div(moved, F.dot(first - second, self.step))


def find_lines(drawn: ScreenFaces, rows: Variable, surface: Variable) -> Lines:
    """Find the lines. rows: INT, what is seen. surface: as of ``surface_image``."""
    px = 1.0 / drawn.scale
    code, at = _first(rows, surface, px)
    has = F.to_float(F.compare("gte", code, 0))
    # Planes meet everywhere: the line has to lie where both faces are.
    place = pixel_positions(drawn.size, drawn.layers) + _step(code - code / N * N, px) * at
    for of in (F.where(has, rows, -1), F.where(has, code / N, -1)):
        corners = [F.lookup(t, of) for t in drawn.corners]
        has = has * _covers(corners, place, BESIDE_PX * px)
    # Fetched, so that all of the above is a pass of its own: few pixels have a line.
    code, at = (F.image.shift(v, 0, 0) for v in (F.where(has, code, -1), at))
    row = F.where(F.compare("gte", code, 0), code / N, -1)
    return Lines(row, _step(code - row * N, px), at)


def _step(which: Variable, px: float) -> Variable:
    """VEC2: of STEPS."""
    x = F.equal(which, 0) - F.equal(which, 1)
    return F.vec2(x, F.equal(which, 2) - F.equal(which, 3)) * px


def _first(rows: Variable, surface: Variable, px: float) -> tuple[Variable, Variable]:
    """INT: row across the first line, times N, plus its step, or -1; FLOAT, where it lies."""
    out: tuple[Variable, ...] | None = None
    for k, (x, y) in enumerate(STEPS):
        other = F.image.shift(rows, -x, -y, border="clamp")
        theirs = F.image.shift(surface, -x, -y, border="clamp")
        here = surface.x - theirs.x + (theirs.y * x + theirs.z * y) * px
        there = surface.x - theirs.x + (surface.y * x + surface.z * y) * px
        turn = F.abs(theirs.yz - surface.yz)
        along, across = (turn.x, turn.y) if x else (turn.y, turn.x)
        steep = along >= across if x else along > across
        steepest = F.length(surface.yz) + F.length(theirs.yz)
        known = along * px > FLAT * px * steepest + TIE
        at = F.safe_div(here, here - there)
        # What lies exactly between two centres belongs to one of them.
        mine = at < HALF if x + y > 0 else at <= HALF
        meet = F.where(here * there < 0.0, known * steep * mine, 0.0)
        meet = meet * F.not_equal(rows, other) * F.compare("gte", rows, 0)
        meet = meet * F.compare("gte", other, 0)
        found = (F.where(meet, other * N + k, -1), F.where(meet, at, 0.0))
        if out is None:
            out = found
        else:
            first = F.compare("gte", out[0], 0)
            out = tuple(F.where(first, a, b) for a, b in zip(out, found, strict=True))
    assert out is not None
    return out[0], out[1]


def _covers(corners: Sequence[Variable], at: Variable, slack: float) -> Variable:
    """1 where a point is at most so far outside of the lines of a face's edges."""
    a, b, c = (F.stop_gradient(v.xy) - at for v in corners)
    spans = areas(a, b, c)
    sides = F.vec3(F.length(b - c), F.length(c - a), F.length(a - b))
    inside = spans * F.sign(F.sum_components(spans)) + sides * slack
    return F.min_components(inside) >= 0.0
