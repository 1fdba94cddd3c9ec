"""SignedDist and barycentrics of a pixel against one face (paper, 3.4.2, fig. 5b).

In: positions in the screen square. Out: ``FaceDistance``. Positive inside; the distance is to the
nearest point of the three edges.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dressi.ad import F, Variable
from dressi.ad.graph import ancestors, leaves
from dressi.errors import warn
from dressi.render.raster.weights import (
    EdgePoint,
    Triple,
    areas,
    distance2,
    edge_point,
    edge_slope,
    slopes,
)


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
    a: Variable,
    b: Variable,
    c: Variable,
    p: Variable,
    edges: Variable | None = None,
    least: float = 0.0,
) -> FaceDistance:
    """Distance of p to the face a b c. VEC2 each, screen square.

    Gradient of the distance to a, b, c and p: of the segment that is nearest; its nearest point
    moves along with the corners (the derivative with respect to the position on the segment is 0
    there). At distance exactly 0 the subgradient is 0. Edge-on faces have no inside. edges: VEC3
    mask of the edges ab, bc, ca that count; with none of them the distance is +-2 (HIDDEN) and has
    no gradient. least: width below which a face or an edge gives weights no larger gradient.
    """
    u = a - p, b - p, c - p
    spans = F.stop_gradient(areas(*u))
    area2 = F.sum_components(spans)
    beta = F.safe_div(spans, area2)
    inside = (F.min_components(beta) >= 0.0) * F.not_equal(area2, 0.0)
    edge, *others = (edge_point(u[k], u[(k + 1) % 3], k) for k in range(3))
    if edges is not None:
        edge, *others = (
            replace(e, distance2=F.where(F.swizzle(edges, k), e.distance2, HIDDEN))
            for e, k in zip((edge, *others), "xyz", strict=True)
        )
    for other in others:
        edge = edge.or_nearer(other)
    # From p to the nearest point, by the small differences a - p ...: exact near an edge.
    away = F.length(_sum(u, edge.weights))
    if edges is not None:
        any_edge = F.maximum(F.maximum(edges.x, edges.y), edges.z)
        away = F.where(any_edge, away, HIDDEN_DISTANCE)
    return FaceDistance(
        distance=F.where(inside, away, -away),
        inside=inside,
        weights=_moving(F.where(inside, beta, edge.weights), u, inside, edge, least),
        beta=beta,
    )


def _sum(corners: Triple, weights: Variable) -> Variable:
    return corners[0] * weights.x + corners[1] * weights.y + corners[2] * weights.z


def _moving(
    fixed: Variable, u: Triple, inside: Variable, edge: EdgePoint, least: float
) -> Variable:
    """Weights of a point with the gradient that they have to the corners u, seen from the pixel."""
    residual = _sum(u, fixed)
    moved = residual - F.stop_gradient(residual)
    within = F.vec3(*(F.dot(g, moved) for g in slopes(u, least)))
    # The nearest point of an edge slides when the edge moves along itself, and when it turns.
    turned = _sum(u, edge.ends)
    turned = F.dot(F.stop_gradient(residual), turned - F.stop_gradient(turned))
    slid = edge_slope(edge, least) * (F.dot(edge.along, moved) + turned)
    return fixed + F.where(inside, within, edge.ends * slid)


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
    spans = areas(ap, bp, cp)
    area2 = F.sum_components(spans)
    side = F.sign(area2)
    least = F.min_components(spans * side)
    inside = (least >= 0.0) * F.not_equal(side, 0.0)
    ends = F.dot(ap, ap), F.dot(bp, bp), F.dot(cp, cp)
    squared = F.minimum(
        F.minimum(
            distance2(ap, bp, b - a, spans.z, ends[0], ends[1]),
            distance2(bp, cp, c - b, spans.x, ends[1], ends[2]),
        ),
        distance2(cp, ap, a - c, spans.y, ends[2], ends[0]),
    )
    nearest = F.sqrt(squared)
    reach = F.vec3(*(F.abs(v.x) + F.abs(v.y) for v in (ap, bp, cp)))
    return FaceTest(F.where(inside, nearest, -nearest), spans, area2, reach)


def perspective(weights: Variable, inv_w: Variable) -> Variable:
    """VEC3 perspective-correct barycentric weights. weights: screen-space ones; inv_w: VEC3 of 1 /
    w of the corners. Gradient to both."""
    scaled = weights * inv_w
    return F.safe_div(scaled, F.sum_components(scaled))


def interpolate(
    corners: tuple[Variable, Variable, Variable], ids: Variable, bary: Variable
) -> Variable:
    """Attribute at each pixel: corner tables @ (F, 1) by face id and VEC3 weights. 0 where the id
    is -1. Layers are views: of tables with several, each view reads the one of its number; a
    DressiWarning where those come from other leaves than the views. Gradient to the tables and to
    bary."""
    _say_layers(corners[0], ids)
    a, b, c = (F.lookup(t, ids) for t in corners)
    return a * bary.x + b * bary.y + c * bary.z


def _say_layers(table: Variable, ids: Variable) -> None:
    """Warn of tables whose layers have nothing to do with the views that read them, but for their
    number: layers of features, say."""
    n = table.layers
    if n == 1 or ids.layers != n:
        return
    functions, of_views = ancestors([ids])
    stacked = [v for v in leaves([table]) if v.layers == n]
    drawn_here = any(f.op.fragment_exit for f in functions)
    if drawn_here and stacked and not {v.uid for v in stacked} & {v.uid for v in of_views}:
        warn(
            f"interpolate: {stacked[0].label()} has {n} layers and there are {n} views: each view "
            "reads the layer of its number\n  hint: layers that are features are read one by one, "
            "F.take_layer(table, k); F.lookup reads a table per view without asking"
        )
