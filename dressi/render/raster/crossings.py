"""Where the faces of two pixels beside or below each other meet, and the colours at edges.

In: the hard layer, planes of faces in depth. Out: cuts of pairs of pixels by the line along which
two faces pass through each other, with the gradient of that line; how far the colours of pixels go
on until the edge beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dressi.ad import F, Variable
from dressi.render.raster.contours import AXES, Between
from dressi.render.raster.projection import ScreenFaces, Size, pixel_positions

MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""What moves the right, left, lower, upper neighbour to a pixel, for F.image.shift."""

MIN_SLOPE = 1e-3
"""Smallest slope of an edge against its axis that is told from none: keeps quotients finite."""

MIN_AREA = 1e-10
"""Twice the area of a face (screen square units) below which it has no plane."""

PARALLEL = 2.0**-17
"""Depth by which two planes part within a pixel, below which rounding decides where they meet."""

MOST_STEPS = 3.0
"""Steps between pixels by which a colour goes on at most."""


@dataclass(frozen=True)
class Cuts:
    """Where lines cut the pairs of pixels beside and below each other. at: VEC2, pixels from the
    first centre. slope: VEC2 in (0, 1], by how much the lines move along the axis per pixel across
    it; not positive where there is none."""

    at: Variable
    slope: Variable


def planes_of(drawn: ScreenFaces) -> Variable:
    """Return VEC3 @ rows of the drawn faces: their depth is the first times x, plus the second
    times y, plus the third; 0 for faces that are seen edge-on or cross a plane. Gradient to the
    corners."""
    a, b, c = drawn.corners
    u, v = b - a, c - a
    area = u.x * v.y - u.y * v.x
    usable = (F.abs(F.stop_gradient(area)) > MIN_AREA) * (1.0 - drawn.crossing)
    slopes = F.vec2(u.z * v.y - u.y * v.z, u.x * v.z - u.z * v.x)
    slopes = F.where(usable, slopes * (1.0 / F.where(usable, area, 1.0)), 0.0)
    return F.vec3(slopes, a.z - F.dot(slopes, a.xy))


def meeting(planes: Variable, rows: Variable, screen: ScreenFaces, folds: bool = False) -> Cuts:
    """Return where the faces that two pixels show meet: each is in front on its own side, or, at a
    fold, behind: two faces of one surface that faces the camera.

    planes: VEC3 table, of ``planes_of``. rows: INT @ size. folds: whether those count. Gradient to
    the planes.
    """
    fixed = F.lookup(F.stop_gradient(planes), rows)
    met = [_met(fixed, rows, axis, screen.scale, folds) for axis in (0, 1)]
    before = (F.image.shift(m, -to[0], -to[1]) for m, to in zip(met, MOVES[::2], strict=True))
    involved = F.maximum(F.maximum(*met), F.maximum(*before))
    # Of all pixels few get a gradient, so the backward adds few to the table.
    plane = F.lookup(planes, F.where(involved, rows, -1))
    p = pixel_positions(screen.size, screen.layers)
    at, slopes = [], []
    for axis, (across, along) in enumerate(AXES):
        gap = plane - F.image.shift(plane, *MOVES[2 * axis], border="clamp")
        opens = F.where(met[axis], F.swizzle(gap, across), 1.0)
        here = F.dot(gap.xy, p) + gap.z
        at.append(F.where(met[axis], -here * screen.scale / opens, 0.0))
        slope = F.abs(F.swizzle(F.stop_gradient(gap), along) / F.stop_gradient(opens))
        slopes.append(F.where(met[axis], F.maximum(slope, MIN_SLOPE), 0.0))
    return Cuts(F.vec2(*at), F.vec2(*slopes))


def _met(plane: Variable, rows: Variable, axis: int, scale: float, folds: bool) -> Variable:
    """FLOAT mask of the pixels whose face and that of the next one meet: along the axis, the face
    of either pixel falls behind the other's; with folds, or comes before it between the two
    centres. plane: VEC3 of what each pixel shows."""
    to, (across, along) = MOVES[2 * axis], AXES[axis]
    next_rows = F.image.shift(rows, *to, border="clamp")
    gap = plane - F.image.shift(plane, *to, border="clamp")
    opens, turns = F.swizzle(gap, across), F.abs(F.swizzle(gap, along))
    differ = F.not_equal(rows, next_rows) * F.compare("gte", F.minimum(rows, next_rows), 0)
    if folds:
        here = F.dot(gap.xy, pixel_positions(plane.size, plane.layers)) + gap.z
        between = (here >= 0.0) * (here + opens * (1.0 / scale) <= 0.0)
        differ = differ * F.where(opens < 0.0, between, 1.0)
        opens = F.abs(opens)
    steep = (opens >= turns) if axis == 0 else (opens > turns)
    return steep * differ * (opens > PARALLEL * scale)


def depth_px(matrix: Variable, size: Size, depth: Variable) -> Variable:
    """Return FLOAT @ size: how many pixels' width a point moves away when its depth grows by 1.
    matrix: MAT4, world to clip. No gradient."""
    fixed = F.stop_gradient(matrix)
    columns = [fixed @ F.constant(tuple(u)) for u in np.eye(4)[:3].tolist()]
    x, z, w = (F.length(F.vec3(*(F.swizzle(v, k) for v in columns))) for k in "xzw")
    return x * (0.5 * size[0]) / F.maximum(F.abs(z - w * depth), MIN_AREA)


def reach_of_colours(
    whole: Variable, at: Variable, between: Sequence[Between], depth: Variable, px: Variable
) -> Variable:
    """Return VEC4, of the pairs of each pixel and the next one on the right, and the one below: how
    many of the steps from the neighbour on its other side the colours of both go on until the edge
    between them, (right, below) of the pixel, (right, below) of the next.

    whole: VEC2 mask of the pairs without an edge. at: VEC2, of ``Cuts``. depth: FLOAT. px: of
    ``depth_px``. A step is as long as it is on the surface: at the limb of a round shape a fraction
    of a pixel is a long way. No gradient.
    """
    out = []
    for axis, (k, _) in enumerate(AXES):
        to, edge = MOVES[2 * axis], between[axis].depth
        back = (-to[0], -to[1])
        t = F.clamp(F.stop_gradient(F.swizzle(at, k)), 0.0, 1.0)
        following = F.image.shift(depth, *to, border="clamp")
        # Over the background no depth is known.
        same = F.swizzle(whole, k) * (F.equal(depth < 1.5, following < 1.5))
        px_following = F.image.shift(px, *to, border="clamp")
        step = F.where(same, depth - following, 0.0) * (0.5 * (px + px_following))
        mine, others = edge > 0.0, edge < 0.0
        climb = F.where(mine, edge - depth, 0.0) * px
        first = _steps(t, climb, F.image.shift(step, *back), mine)
        climb = F.where(others, -edge - following, 0.0) * px_following
        last = _steps(1.0 - t, climb, F.image.shift(step, *to), others)
        out += [first * F.image.shift(same, *back), last * F.image.shift(same, *to)]
    first, last, below_first, below_last = out
    return F.vec4(first, below_first, last, below_last)


def _steps(t: Variable, climb: Variable, step: Variable, inner: Variable) -> Variable:
    """How often a step fits into the way to the edge. t, climb: that way along the picture and away
    from the camera, pixels. step: how far a step leads away; counts where inner."""
    deep = F.where(inner, step, 0.0)
    return F.minimum(F.sqrt((t * t + climb * climb) / (1.0 + deep * deep)), MOST_STEPS)
