"""SignedDist and barycentrics of a pixel against one face (paper, 3.3.2, fig. 4b).

In: positions in the screen square. Out: ``FaceDistance``. Positive inside; the distance is to the
nearest point of the three edges.
"""

from __future__ import annotations

from dataclasses import dataclass

from dressi.ad import F, Variable


@dataclass(frozen=True)
class FaceDistance:
    """distance: FLOAT, screen square units, positive inside. inside: FLOAT mask. weights: VEC3
    barycentric weights (screen space) of the pixel, or of the nearest point of the face when the
    pixel is outside. beta: VEC3 weights of the pixel itself, not clamped."""

    distance: Variable
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
    if edges is not None:
        any_edge = F.maximum(F.maximum(edges.x, edges.y), edges.z)
        away = F.where(any_edge, away, HIDDEN_DISTANCE)
    return FaceDistance(
        distance=F.where(inside, away, -away),
        inside=inside,
        weights=F.where(inside, beta, on_edge),
        beta=beta,
    )


@dataclass(frozen=True)
class FaceTest:
    """What a fragment needs to know of its face. distance: FLOAT, screen square units, positive
    inside. areas: VEC3, twice the signed areas opposite the corners, and area2, their sum: the
    barycentric weights of the pixel, not clamped, are areas / area2. reach: VEC3, how far the
    corners are from the pixel, |x| + |y|."""

    distance: Variable
    areas: Variable
    area2: Variable
    reach: Variable

    def mix(self, values: Variable) -> Variable:
        """Linear interpolation (screen space) of the three corner values in a VEC3; 0 where the
        face is edge-on."""
        return F.safe_div(F.dot(self.areas, values), self.area2)

    def mix_alike(self, values: Variable) -> Variable:
        """The same; for a pixel that lies exactly on an edge, from the ends of the edge alone, so
        that both of its faces get the same bits, and at a corner the value of that corner.

        On an edge the area opposite is 0, and the pixel divides it as its distances to the ends do:
        in any norm, since they lie on one line. So the weight of an end is the reach of the other.
        """
        on = F.equal(self.areas, 0.0)
        ends = F.swizzle(on, "yzx") * F.swizzle(self.reach, "zxy")
        ends = (1.0 - on) * (ends + F.swizzle(on, "zxy") * F.swizzle(self.reach, "yzx"))
        # Not a dot product: a device may fuse a part of it, and then the order of the ends counts.
        along = F.sum_components(F.safe_div(ends, F.sum_components(ends)) * values)
        return F.where(F.maximum(F.maximum(on.x, on.y), on.z), along, self.mix(values))


def face_test(a: Variable, b: Variable, c: Variable, p: Variable) -> FaceTest:
    """Signed distance of p to the face a b c, to the same number as ``signed_distance`` but for
    rounding, without gradient and cheaper: it runs for every fragment. VEC2 each, screen square.

    Signs of areas decide what is inside and squared distances have equal bits for an edge seen from
    both of its faces: every pixel of a closed surface is inside one of them, and ties are ties.
    """
    a, b, c, p = (F.stop_gradient(v) for v in (a, b, c, p))
    ap, bp, cp = p - a, p - b, p - c
    areas = _cross(bp, cp), _cross(cp, ap), _cross(ap, bp)
    area2 = areas[0] + areas[1] + areas[2]
    side = F.sign(area2)
    least = F.minimum(F.minimum(areas[0] * side, areas[1] * side), areas[2] * side)
    inside = (least >= 0.0) * F.not_equal(side, 0.0)
    ends = F.dot(ap, ap), F.dot(bp, bp), F.dot(cp, cp)
    squared = F.minimum(
        F.minimum(
            _squared(ap, bp, b - a, areas[2], ends[0], ends[1]),
            _squared(bp, cp, c - b, areas[0], ends[1], ends[2]),
        ),
        _squared(cp, ap, a - c, areas[1], ends[2], ends[0]),
    )
    nearest = F.sqrt(squared)
    reach = F.vec3(*(F.abs(v.x) + F.abs(v.y) for v in (ap, bp, cp)))
    return FaceTest(F.where(inside, nearest, -nearest), F.vec3(*areas), area2, reach)


TINY = 1e-30
"""Keeps the quotient of an edge without length finite; the nearer end is taken then."""


def _squared(
    ap: Variable, bp: Variable, edge: Variable, area: Variable, aa: Variable, bb: Variable
) -> Variable:
    """Squared distance to a segment. area: cross(ap, bp); aa, bb: squared distances to its ends."""
    beside = area * area / F.maximum(F.dot(edge, edge), TINY)
    past_end = F.maximum(F.dot(ap, edge) <= 0.0, F.dot(bp, edge) >= 0.0)
    return F.where(past_end, F.minimum(aa, bb), beside)


def _cross(u: Variable, v: Variable) -> Variable:
    return u.x * v.y - u.y * v.x


def _segment(ap: Variable, bp: Variable, edge: Variable) -> tuple[Variable, Variable]:
    """(parameter in [0, 1] of the nearest point, squared distance) for the segment a b. ap, bp:
    from its ends to the pixel. The squared distance has the same bits with a and b exchanged."""
    along, length2 = F.dot(ap, edge), F.dot(edge, edge)
    t = F.clamp(F.safe_div(along, length2), 0.0, 1.0)
    ap, bp, edge = (F.stop_gradient(v) for v in (ap, bp, edge))
    squared = _squared(ap, bp, edge, _cross(ap, bp), F.dot(ap, ap), F.dot(bp, bp))
    return t, squared


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
