"""SignedDist and barycentrics of a pixel against one face (paper, 3.3.2, fig. 4b).

In: positions in the screen square. Out: ``FaceDistance``. Positive inside; the distance is to the
nearest point of the three edges.
"""

from __future__ import annotations

from dataclasses import dataclass

from dressi.ad import F, Variable


@dataclass(frozen=True)
class FaceDistance:
    """distance: FLOAT, screen square units, positive inside. forward: FLOAT, the same without
    gradient, from a formula that gives equal bits for an edge seen from both of its faces (so that
    ties are ties). inside: FLOAT mask. weights: VEC3 barycentric weights (screen space) of the
    pixel, or of the nearest point of the face when the pixel is outside. beta: VEC3 weights of the
    pixel itself, not clamped."""

    distance: Variable
    forward: Variable
    inside: Variable
    weights: Variable
    beta: Variable


HIDDEN_DISTANCE = 2.0
"""Distance (screen square units, beyond its diagonal) given to edges that do not count."""
HIDDEN = HIDDEN_DISTANCE**2


def signed_distance(
    a: Variable, b: Variable, c: Variable, p: Variable, edges: Variable | None = None
) -> FaceDistance:
    """Distance of p to the face a b c. VEC2 each, screen square.

    Gradient of the distance to a, b, c and p: of the segment that is nearest; its nearest point
    moves along with the corners (the derivative with respect to the position on the segment is 0
    there). At distance exactly 0 the subgradient is 0. Edge-on faces have no inside. edges: VEC3
    mask of the edges ab, bc, ca that count; with none of them the distance is +-2 (HIDDEN) and has
    no gradient.
    """
    ap, bp, cp = p - a, p - b, p - c
    w_a, w_b, w_c = _cross(bp, cp), _cross(cp, ap), _cross(ap, bp)
    area2 = w_a + w_b + w_c
    beta = F.safe_div(F.vec3(w_a, w_b, w_c), area2)
    inside = (F.minimum(F.minimum(beta.x, beta.y), beta.z) >= 0.0) * F.not_equal(area2, 0.0)

    t_ab, d_ab = _segment(ap, bp, b - a)
    t_bc, d_bc = _segment(bp, cp, c - b)
    t_ca, d_ca = _segment(cp, ap, a - c)
    if edges is not None:
        d_ab = F.where(edges.x, d_ab, HIDDEN)
        d_bc = F.where(edges.y, d_bc, HIDDEN)
        d_ca = F.where(edges.z, d_ca, HIDDEN)
    first = (d_ab <= d_bc) * (d_ab <= d_ca)
    second = d_bc <= d_ca
    on_edge = F.where(
        first,
        F.vec3(1.0 - t_ab, t_ab, 0.0),
        F.where(second, F.vec3(0.0, 1.0 - t_bc, t_bc), F.vec3(t_ca, 0.0, 1.0 - t_ca)),
    )
    fixed = F.stop_gradient(on_edge)
    # p - nearest, from the small differences p - a ...: exact to the last bits near an edge.
    away = F.length(ap * fixed.x + bp * fixed.y + cp * fixed.z)
    nearest = F.sqrt(F.minimum(F.minimum(d_ab, d_bc), d_ca))
    if edges is not None:
        any_edge = F.maximum(F.maximum(edges.x, edges.y), edges.z)
        away = F.where(any_edge, away, HIDDEN_DISTANCE)
    return FaceDistance(
        distance=F.where(inside, away, -away),
        forward=F.where(inside, nearest, -nearest),
        inside=inside,
        weights=F.where(inside, beta, on_edge),
        beta=beta,
    )


def _cross(u: Variable, v: Variable) -> Variable:
    return u.x * v.y - u.y * v.x


def _segment(ap: Variable, bp: Variable, edge: Variable) -> tuple[Variable, Variable]:
    """(parameter in [0, 1] of the nearest point, squared distance) for the segment a b. ap, bp:
    from its ends to the pixel. The squared distance has the same bits with a and b exchanged."""
    along, length2 = F.dot(ap, edge), F.dot(edge, edge)
    t = F.clamp(F.safe_div(along, length2), 0.0, 1.0)
    ap, bp = F.stop_gradient(ap), F.stop_gradient(bp)
    area = _cross(ap, bp)
    beside = F.safe_div(area * area, F.stop_gradient(length2))
    end = F.minimum(F.dot(ap, ap), F.dot(bp, bp))
    before, behind = along <= 0.0, F.dot(bp, F.stop_gradient(edge)) >= 0.0
    return t, F.where(F.maximum(before, behind), end, beside)


def perspective(weights: Variable, inv_w: Variable) -> Variable:
    """VEC3 perspective-correct barycentric weights. weights: screen-space ones; inv_w: VEC3 of 1 /
    w of the corners. Gradient to both."""
    scaled = weights * inv_w
    return F.safe_div(scaled, F.sum_components(scaled))


def interpolate(
    corners: tuple[Variable, Variable, Variable], ids: Variable, bary: Variable
) -> Variable:
    """Attribute at each pixel: corner tables @ (F, 1) by face id and VEC3 weights. 0 where the id
    is -1. Gradient to the tables and to bary."""
    a, b, c = (F.lookup(t, ids) for t in corners)
    return a * bary.x + b * bary.y + c * bary.z
