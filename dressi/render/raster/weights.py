"""Weights of corners that stay within the face, with a gradient of usual size.

In: the corners as seen from the pixel. Out: barycentric weights in [0, 1]. A needle thinner than
the grid that hardware snaps to covers pixels whose centre lies outside of it, and its float32 area
may be rounding alone: a quotient by it is any number. So the nearest point of the face counts
there, and what would divide by the width of a needle divides by SLACK_PX at least.

Corners are VEC2 relative to the pixel: xy - w p in clip space, or with w = 1 on the screen. The
weights l solve l_a a + l_b b + l_c c = 0 with sum 1, so their gradient is a linear map of that of
the *residual* R = sum of l_j (corner j), at fixed l: no quotient is differentiated.
"""

from __future__ import annotations

from dataclasses import dataclass

from dressi.ad import F, Variable

Triple = tuple[Variable, Variable, Variable]

TINY = 1e-30
"""Keeps the quotient of an edge without length finite; its first end is taken then."""

THIN = (1.0 / 256 / 0.0625) ** 2
"""Squared width, in those of SLACK_PX, below which a pixel's place across a face is not known: it
is that of one step of the grid to which hardware snaps corners."""


@dataclass(frozen=True)
class EdgePoint:
    """The nearest point to the pixel on an edge. weights: VEC3. ends: VEC3, -1 at the end where the
    edge begins, 1 where it ends, 0 opposite. along: VEC2, from end to end. length2: FLOAT, squared
    length, not 0. free: FLOAT, 1 where the point is none of the ends. distance2: FLOAT."""

    weights: Variable
    ends: Variable
    along: Variable
    length2: Variable
    free: Variable
    distance2: Variable

    def or_nearer(self, other: EdgePoint) -> EdgePoint:
        """Return this one unless the other is nearer."""
        mine = self.distance2 <= other.distance2
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return EdgePoint(*(F.where(mine, u, v) for u, v in pairs))


def edge_point(p: Variable, q: Variable, k: int) -> EdgePoint:
    """The nearest point to 0 on edge k (0: ab, 1: bc, 2: ca) from p to q, VEC2. No gradient. The
    squared distance has the same bits with p and q exchanged."""
    p, q = F.stop_gradient(p), F.stop_gradient(q)
    along = q - p
    length2 = F.maximum(F.dot(along, along), TINY)
    t = F.clamp(-F.dot(p, along) / length2, 0.0, 1.0)
    first, last = (tuple(float(i == j % 3) for i in range(3)) for j in (k, k + 1))
    ends = tuple(v - u for u, v in zip(first, last, strict=True))
    return EdgePoint(
        weights=F.constant(first) * (1.0 - t) + F.constant(last) * t,
        ends=F.constant(ends),
        along=along,
        length2=length2,
        free=(t > 0.0) * (t < 1.0),
        distance2=distance2(-p, -q, along, cross(p, q), F.dot(p, p), F.dot(q, q)),
    )


def distance2(
    ap: Variable, bp: Variable, edge: Variable, area: Variable, aa: Variable, bb: Variable
) -> Variable:
    """FLOAT: squared distance to a segment a b. ap, bp: VEC2, from its ends to the pixel. edge: b -
    a. area: cross(ap, bp). aa, bb: squared distances to its ends."""
    beside = area * area / F.maximum(F.dot(edge, edge), TINY)
    past_end = F.maximum(F.dot(ap, edge) <= 0.0, F.dot(bp, edge) >= 0.0)
    return F.where(past_end, F.minimum(aa, bb), beside)


def cross(u: Variable, v: Variable) -> Variable:
    """FLOAT: u.x v.y - u.y v.x."""
    return u.x * v.y - u.y * v.x


def areas(a: Variable, b: Variable, c: Variable) -> Variable:
    """VEC3: twice the signed areas that the pixel spans with the edges opposite the corners; in
    clip space the weights times a common factor, whichever signs the w have."""
    return F.vec3(cross(b, c), cross(c, a), cross(a, b))


def width2(corners: Triple) -> Variable:
    """FLOAT: squared width of a face, to a factor of 2. No gradient."""
    a, b, c = (F.stop_gradient(v) for v in corners)
    ab, bc, ca = b - a, c - b, a - c
    area2 = cross(ab, -ca)
    return area2 * area2 / F.maximum(F.dot(ab, ab) + F.dot(bc, bc) + F.dot(ca, ca), TINY)


def slopes(corners: Triple, least: Variable | float) -> Triple:
    """VEC2 for each weight: its derivative by the residual, inside of the face. No gradient.

    least: FLOAT > 0, length: a face that is narrower moves the weights as one of about that width
    does. It is damped least squares, with no damping for faces that are wider.
    """
    a, b, c = (F.stop_gradient(v) for v in corners)
    ab, bc, ca = b - a, c - b, a - c
    area2 = cross(ab, -ca)
    around = F.dot(ab, ab) + F.dot(bc, bc) + F.dot(ca, ca)
    damp = F.maximum(least * least - area2 * area2 / F.maximum(around, TINY), 0.0)
    scale = 1.0 / F.maximum(area2 * area2 + damp * (around + 3.0 * damp), TINY)
    # 3 (corner - centroid) is the difference of the two edges that meet there.
    g_a = (F.vec2(bc.y, -bc.x) * area2 + (ab - ca) * damp) * scale
    g_b = (F.vec2(ca.y, -ca.x) * area2 + (bc - ab) * damp) * scale
    return g_a, g_b, -g_a - g_b


def edge_slope(edge: EdgePoint, least: Variable | float) -> Variable:
    """FLOAT: the derivative of the weight of the edge's last end by the residual's part along the
    edge, times its length. No gradient.

    least: as in ``slopes``, of the length of the edge; as seen from a pixel far away from a short
    edge it is the longer, the farther, since there the edge's turning counts.
    """
    away = F.maximum(F.sqrt(edge.distance2), least)
    return -edge.free / F.maximum(edge.length2, away * least)


def free_weights(corners: Triple) -> Variable:
    """VEC3, sum 1: weights of the pixel, or 0 for a face without area. corners: VEC2, from the
    pixel. No gradient."""
    spans = F.stop_gradient(areas(*corners))
    return F.safe_div(spans, F.sum_components(spans))


def within_weights(corners: Triple, least: Variable | float) -> Variable:
    """VEC3 in [0, 1], sum 1: weights of the pixel in a face that it lies in; of one that it lies
    beside by a little, about those of the nearest point.

    corners: VEC2, from the pixel. least: width below which gradients grow no more. Gradient to the
    corners.
    """
    inner = F.maximum(free_weights(corners), 0.0)
    total = F.sum_components(inner)
    fixed = F.where(total > 0.0, F.safe_div(inner, total), 1.0 / 3.0)
    residual = corners[0] * fixed.x + corners[1] * fixed.y + corners[2] * fixed.z
    moved = residual - F.stop_gradient(residual)
    return fixed + F.vec3(*(F.dot(g, moved) for g in slopes(corners, least)))


def clip_weights(corners: Triple, w: Variable, least_px: float, moving: bool = True) -> Variable:
    """VEC3 in [0, 1], sum 1: perspective-correct weights of the pixel, or of the nearest point of
    the face where the pixel lies outside or the face is too thin to tell.

    corners: VEC2, xy - w p of the clip positions, in pixels. w: VEC3 of the corners. least_px:
    width in pixels below which gradients grow no more. Gradient to the corners, if moving.
    """
    a, b, c = (F.stop_gradient(v) for v in corners)
    spans = areas(a, b, c)
    side = F.sign(F.sum_components(spans))
    inner = F.maximum(spans * side, 0.0)
    weights = F.safe_div(inner, F.sum_components(inner))
    least = F.maximum(F.abs(F.dot(weights, F.stop_gradient(w))), TINY) * least_px
    within = F.min_components(spans * side) >= 0.0
    solid = within * F.not_equal(side, 0.0) * (width2((a, b, c)) >= least * least * THIN)
    edge = edge_point(a, b, 0).or_nearer(edge_point(b, c, 1)).or_nearer(edge_point(c, a, 2))
    fixed = F.stop_gradient(F.where(solid, weights, edge.weights))
    if not moving:
        return fixed
    residual = corners[0] * fixed.x + corners[1] * fixed.y + corners[2] * fixed.z
    moved = residual - F.stop_gradient(residual)
    inside = F.vec3(*(F.dot(g, moved) for g in slopes((a, b, c), least)))
    beside = edge.ends * (edge_slope(edge, least) * F.dot(edge.along, moved))
    return fixed + F.where(solid, inside, beside)
