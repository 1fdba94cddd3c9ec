"""Enlarge: every projected face grown so that its edges move out by r (paper, 3.4.2, fig. 5a).

In: ScreenFaces, r. Out: four clip positions per face (two triangles; the second is degenerate
unless they are its box), or three where faces grow by little. With F ops on per-face tables,
because some devices have no geometry shader. No gradient. Differs: the paper stretches from the
centroid; a homothety about the incentre moves all three edges by exactly r, with less area. The
paper takes the box of faces with an angle below 30 degrees; here that of faces whose box is smaller
than the grown triangle, and small boxes, cut off at the border, of those that grow beyond it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dressi.ad import F, Variable
from dressi.render.raster.projection import ScreenFaces
from dressi.render.raster.weights import cross

MIN_AREA = 1e-10
MIN_INRADIUS = 1e-6
"""Twice the area, and the radius of the inscribed circle (screen square units), below which a face
has no usable incentre: its box is used."""


SLACK_PX = 0.0625
"""Pixels by which even hard faces grow: hardware snaps vertices to 1/256 pixel (1/16 at least), so
coverage is decided by the exact inside test of the fragment, not by the snapped edges."""


NO_AREA = (0.0, 0.0, 0.5, 1.0)
"""Clip position of all corners of faces that are left out. Not off the screen: drivers clip whole
batches of triangles of which one corner lies there, and leave out what has no area sooner. (On
llvmpipe a draw of 700 triangles with such a corner takes 0.3 ms more.)"""


SMALL = 1 / 8
"""Side, in screen square units, of the faces that grow beyond the border as a box in the picture:
larger ones would have many more pixels there than as a triangle that the border cuts."""


@dataclass(frozen=True)
class _Grown:
    """Enlarged faces: their corners, the low and the high corner of their boxes in the picture,
    twice the area, that of the whole boxes, and FLOAT masks of faces without a usable incentre, and
    of those that had better be boxes because they grow beyond the border."""

    corners: tuple[Variable, ...]
    low: Variable
    high: Variable
    area2: Variable
    box_area: Variable
    narrow: Variable
    beyond: Variable

    def boxed(self, share: float) -> Variable:
        """FLOAT mask: 1 where the box, so many times, has less area than the grown triangle, or
        keeps the corners on the screen."""
        small = 2.0 * share * self.box_area < self.area2
        return F.maximum(F.maximum(self.narrow, small), self.beyond)


def _grow(screen: ScreenFaces, corners: Sequence[Variable], r: Variable) -> _Grown:
    a, b, c = (v.xy for v in corners)
    ab, bc, ca = b - a, c - b, a - c
    l_ab, l_bc, l_ca = F.length(ab), F.length(bc), F.length(ca)
    area2 = F.abs(cross(ab, -ca))
    perimeter = l_ab + l_bc + l_ca
    incentre = F.safe_div(a * l_bc + b * l_ca + c * l_ab, perimeter)
    factor = 1.0 + r * F.safe_div(perimeter, area2)  # 1 + r / inradius
    grown = tuple(incentre + (p - incentre) * factor for p in (a, b, c))
    low = F.minimum(F.minimum(a, b), c) - r
    high = F.maximum(F.maximum(a, b), c) + r
    sides = high - low
    narrow = area2 < F.maximum(perimeter * MIN_INRADIUS, MIN_AREA)
    low, high, beyond = box_in_picture(screen, grown, low, high, r)
    factor2 = factor * factor
    return _Grown(grown, low, high, area2 * factor2, sides.x * sides.y, narrow, beyond)


def box_in_picture(
    screen: ScreenFaces, corners: Sequence[Variable], low: Variable, high: Variable, r: Variable
) -> tuple[Variable, Variable, Variable]:
    """The low and the high corner of boxes, cut off at the border, and a FLOAT mask of those to be
    drawn in the place of other corners, of which one lies beyond the border: not large ones. All
    VEC2; r: how far they have grown."""
    first, last = _borders(screen)
    least, most = corners[0], corners[0]
    for p in corners[1:]:
        least, most = F.minimum(least, p), F.maximum(most, p)
    out = F.max_components(F.maximum(first - least, most - last)) > 0.0
    low, high = F.clamp(low, first, last), F.clamp(high, first, last)
    sides, allowed = high - low, SMALL + 2.0 * r
    return low, high, out * (sides.x * sides.y <= allowed * allowed)


def box_corners(low: Variable, high: Variable) -> list[Variable]:
    """VEC2 corners of boxes, in turn."""
    return [low, F.vec2(high.x, low.y), high, F.vec2(low.x, high.y)]


def _borders(screen: ScreenFaces) -> tuple[tuple[float, float], tuple[float, float]]:
    """Places, in screen square units, a little inside of the picture's border, so that what lies
    there is not clipped; centres of pixels are further inside."""
    w, h = screen.size
    m, hair = screen.scale, SLACK_PX / screen.scale
    return (hair, hair), (w / m - hair, h / m - hair)


def build_enlarge(
    screen: ScreenFaces,
    r: Variable,
    soft: Variable | None = None,
) -> tuple[Variable, Variable, Variable, Variable]:
    """Corners of the enlarged faces as VEC4 clip positions @ (F, 1).

    r: FLOAT @ 1x1, screen square units, a run-time value. soft: FLOAT mask @ (F, 1), the faces that
    are enlarged; default all. Crossing faces come back as they are, in clip space, for the hardware
    to clip. No gradient.
    """
    corners = [F.stop_gradient(c) for c in screen.corners]
    face = _grow(screen, corners, _reach(screen, r, soft))
    box, boxed = box_corners(face.low, face.high), face.boxed(1.0)
    quad = [F.where(boxed, box[k], face.corners[min(k, 2)]) for k in range(4)]
    out = [_drawn(screen, corners[min(k, 2)], quad[k]) for k in range(4)]
    return out[0], out[1], out[2], out[3]


def build_enlarge_little(
    screen: ScreenFaces,
    r: Variable,
    soft: Variable | None = None,
) -> tuple[Variable, Variable, Variable]:
    """Three corners of the enlarged faces, as ``build_enlarge``, in place of four: half of the
    triangles. What has a box there has a triangle around it, of twice the area, which is little
    where faces grow by little; it lies on the side where the picture has room. No gradient.
    """
    corners = [F.stop_gradient(c) for c in screen.corners]
    face = _grow(screen, corners, _reach(screen, r, soft))
    sides, boxed = face.high - face.low, face.boxed(2.0)
    turned = face.high + sides > _borders(screen)[1]
    low = F.where(turned, face.high, face.low)
    far = F.where(turned, face.low - sides, face.high + sides)
    around = [low, F.vec2(far.x, low.y), F.vec2(low.x, far.y)]
    out = [_drawn(screen, corners[k], F.where(boxed, around[k], face.corners[k])) for k in range(3)]
    return out[0], out[1], out[2]


def _reach(screen: ScreenFaces, r: Variable, soft: Variable | None) -> Variable:
    return F.maximum(r if soft is None else r * soft, SLACK_PX / screen.scale)


def _drawn(screen: ScreenFaces, corner: Variable, xy: Variable) -> Variable:
    """The clip position of a corner that moves to xy, but for crossing faces."""
    return F.where(screen.crossing, _clip_of(corner, screen), flat_position(xy, screen))


def _to_ndc(xy: Variable, screen: ScreenFaces) -> Variable:
    w, h = screen.size
    m = screen.scale
    return xy * (2.0 * m / w, 2.0 * m / h) - 1.0


def flat_position(xy: Variable, screen: ScreenFaces) -> Variable:
    """Clip position in the middle of the depth range: the depth comes from the fragment."""
    return F.vec4(_to_ndc(xy, screen), 0.5, 1.0)


def _clip_of(corner: Variable, screen: ScreenFaces) -> Variable:
    """The clip position that a corner came from."""
    w = F.safe_div(1.0, corner.w)
    return F.vec4(F.vec3(_to_ndc(corner.xy, screen), corner.z) * w, w)
