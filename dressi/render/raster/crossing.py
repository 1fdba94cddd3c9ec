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
"""To the pixels beside a pixel. Of several lines in its square the nearest one counts."""

FARTHEST = 0.5
"""Of a face, as a weight of its corners, by which its colours are extrapolated to the pixel."""

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
        slopes: tuple[Variable, Variable],
        p: Variable,
    ) -> Variable:
        """FLOAT of zeros with the gradient of ``at``. mine, others: VEC4, corners of the pixel's
        face and of the one across. slopes: VEC2 of both, as of ``depth_slopes``. p: VEC2, the
        pixel. Gradient to the corners."""
        place, change = p + self.step * self.at, []
        for corners in (mine, others):
            a, b, c = (v.xy - place for v in corners)
            w = free_weights((a, b, c))
            a, b, c = (v.xyz for v in corners)
            at = a * w.x + b * w.y + c * w.z
            change.append(at - F.stop_gradient(at))
        first, second = slopes
        moved = F.dot(F.vec3(-first, 1.0), change[0]) - F.dot(F.vec3(-second, 1.0), change[1])
        return -F.safe_div(moved, F.dot(first - second, self.step))


def find_lines(
    drawn: ScreenFaces, rows: Variable, surface: Variable, neighbors: Variable | None
) -> Lines:
    """Find the lines. rows: INT, what is seen. surface: as of ``surface_image``. neighbors: IVEC3
    table of the rows across edges, where faces are not cut: faces that share an edge and are not
    seen well enough to know their colours at it are left out."""
    px = 1.0 / drawn.scale
    code, at, known = _nearest(rows, surface, px, neighbors)
    has = F.to_float(F.compare("gte", code, 0))
    # Planes meet everywhere: the line has to lie where both faces are.
    p = pixel_positions(drawn.size, drawn.layers)
    place = p + _step(code - code / N * N, px) * at
    for of in (F.where(has, rows, -1), F.where(has, code / N, -1)):
        corners = [F.lookup(t, of) for t in drawn.corners]
        has = has * _covers(corners, place, BESIDE_PX * px)
    has = has * F.maximum(known, reaches(corners, p))
    # Fetched, so that all of the above is a pass of its own: few pixels have a line.
    code, at = (F.image.shift(v, 0, 0) for v in (F.where(has, code, -1), at))
    row = F.where(F.compare("gte", code, 0), code / N, -1)
    return Lines(row, _step(code - row * N, px), at)


def reaches(corners: Sequence[Variable], p: Variable) -> Variable:
    """1 where the colours of a face are known at a pixel that it does not cover, from its slopes.
    corners: VEC4."""
    a, b, c = (F.stop_gradient(v.xy) - p for v in corners)
    weights = free_weights((a, b, c))
    return (F.min_components(weights) >= -FARTHEST) * F.not_equal(F.max_components(weights), 0.0)


def _step(which: Variable, px: float) -> Variable:
    """VEC2: of STEPS."""
    x = F.equal(which, 0) - F.equal(which, 1)
    return F.vec2(x, F.equal(which, 2) - F.equal(which, 3)) * px


def _nearest(
    rows: Variable, surface: Variable, px: float, neighbors: Variable | None
) -> tuple[Variable, Variable, Variable]:
    """INT: row across the nearest line, times N, plus its step, or -1; FLOAT, where it lies; FLOAT
    mask, whether the jump at the line is known from the faces that are seen."""
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
        before = F.equal(F.image.shift(rows, x, y, border="clamp"), rows)
        behind = F.equal(F.image.shift(rows, -2 * x, -2 * y, border="clamp"), other)
        # Surfaces that pass through each other show the nearer one on either side.
        through = (here < 0.0) * (there > 0.0)
        if neighbors is not None:
            across_edges = F.lookup(neighbors, F.where(meet, rows, -1))
            shared = F.max_components(F.to_float(F.equal(across_edges, other)))
            through = through * (1.0 - shared)
        seen = F.maximum(through, before * behind)
        found = (F.where(meet, other * N + k, -1), F.where(meet, at, 1.0), seen)
        if out is None:
            out = found
        else:
            first = out[1] <= found[1]
            out = tuple(F.where(first, a, b) for a, b in zip(out, found, strict=True))
    assert out is not None
    return out[0], out[1], out[2]


def _covers(corners: Sequence[Variable], at: Variable, slack: float) -> Variable:
    """1 where a point is at most so far outside of the lines of a face's edges."""
    a, b, c = (F.stop_gradient(v.xy) - at for v in corners)
    spans = areas(a, b, c)
    sides = F.vec3(F.length(b - c), F.length(c - a), F.length(a - b))
    inside = spans * F.sign(F.sum_components(spans)) + sides * slack
    return F.min_components(inside) >= 0.0
