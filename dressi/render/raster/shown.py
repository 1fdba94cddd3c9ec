"""Where on its face a pixel lies that shows the face.

In: faces on the screen, the row that each pixel shows. Out: perspective-correct weights. On the
screen they are affine, so a table of faces holds all that takes long, and what is left for the
pixels is little. A soft rim needs more than that: the nearest point of an edge (``distance``).
"""

from __future__ import annotations

from dressi.ad import F, Variable
from dressi.render.raster.enlarge import SLACK_PX
from dressi.render.raster.projection import ScreenFaces, pixel_positions
from dressi.render.raster.weights import slopes

KNOWN_PX = 1.0 / 256
"""Width of a face, pixels, below which a place across it is not known: one step of the grid to
which hardware snaps corners. Damped there, weights tell only the place along the face."""


def shown_weights(drawn: ScreenFaces, rows: Variable) -> Variable:
    """Return VEC3 in [0, 1], sum 1: perspective-correct weights of the corners at each pixel, 0
    where there is no face. rows: INT of the drawn faces, -1 for none. Gradient to the corners, of
    faces narrower than SLACK_PX as of faces of that width.
    """
    place, slope = _affine(drawn)
    inv_w = F.vec3(*(v.w for v in drawn.corners))
    at, by, w = (F.lookup(t, rows) for t in (place, slope, inv_w))
    away = pixel_positions(drawn.size, drawn.layers) - F.stop_gradient(at).xy
    first = at.z + F.dot(by.xy, away)
    second = at.w + F.dot(F.swizzle(by, "zw"), away)
    scaled = F.vec3(first, second, 1.0 - first - second) * w
    bary = scaled * F.safe_div(1.0, F.sum_components(scaled))
    # A centre may lie beside the face by a hair, and hardware covers as it snaps.
    still = F.stop_gradient(bary)
    within = F.maximum(still, 0.0)
    return bary + (F.safe_div(within, F.sum_components(within)) - still)


def _affine(drawn: ScreenFaces) -> tuple[Variable, Variable]:
    """Tables of the first two weights on the screen: VEC4, the centroid and their values there;
    VEC4, their derivatives by x and y. Gradient to the corners, but for the centroid: the values
    there move in its place."""
    corners = [v.xy for v in drawn.corners]
    a, b, c = corners
    known = slopes((a, b, c), KNOWN_PX / drawn.scale)
    mild = slopes((a, b, c), SLACK_PX / drawn.scale)
    moved = [v - F.stop_gradient(v) for v in corners]
    centre = F.stop_gradient(a + b + c) * (1.0 / 3.0)
    values, rises = [], []
    for k in range(2):
        # A corner that moves takes its share of a place along, which is its weight there.
        taken = [F.dot(mild[k], m) for m in moved]
        values.append(1.0 / 3.0 + (taken[0] + taken[1] + taken[2]) * (1.0 / 3.0))
        turned = mild[0] * taken[0] + mild[1] * taken[1] + mild[2] * taken[2]
        rises.append(-known[k] - turned)
    return F.vec4(centre, *values), F.vec4(*rises)
