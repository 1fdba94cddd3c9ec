"""The nearest edge that counts, per pixel: contour edges are drawn as the bands around them.

In: drawn faces, a mask of their edges, a test of fragments. Out: ``NearEdge``: which edge it is,
how far away, where on the edge, and a signed distance whose gradient reaches the corners.
Fragments keep which edge is the nearest; the pixels that have one measure it again, to the same
bits, for most pixels have none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dressi.ad import F, Variable
from dressi.render.raster.distance import HIDDEN
from dressi.render.raster.enlarge import (
    NO_AREA,
    SLACK_PX,
    box_corners,
    box_in_picture,
    build_enlarge,
    flat_position,
)
from dressi.render.raster.projection import ScreenFaces, Size, pixel_positions
from dressi.render.raster.topology import contour_edges, left_out
from dressi.render.raster.weights import TINY, cross

BEYOND_PX = 0.75
"""From the nearest point of an edge to the pixels that are read on either side of it: more than the
half diagonal of a pixel, so that the pixel's centre lies on that side."""

AT_EDGE_PX = 1e-3
"""Distance below which the direction from the edge to the pixel is not known."""

TURNED = 1e-3
"""Share of the squared distance along itself by which an edge counts as farther: at a corner the
edge that the pixel lies beside most squarely tells the side that it lies on."""

LAYER = 5
"""Of the rasterization of bands: tells it from peels of the same corners."""


@dataclass(frozen=True)
class FragmentEdge:
    """The nearest point of a face's edges, per fragment and without gradient.

    edge: INT, 0 to 2. t: FLOAT in [0, 1], where on the edge. z: FLOAT, depth there; span: FLOAT,
    range of the face's depths. distance: FLOAT. rank: FLOAT, by which edges are compared. to_edge:
    VEC2, from the pixel, screen square. normal: VEC2, of the edge's line, away from the face.
    inner: FLOAT mask, pixels on the side of the line on which the face lies.
    """

    edge: Variable
    t: Variable
    z: Variable
    span: Variable
    distance: Variable
    rank: Variable
    to_edge: Variable
    normal: Variable
    inner: Variable

    def at_pixel(self, image: Variable) -> Variable:
        """An image at the pixel, as a value per fragment: what is made of it then is not stored."""
        return F.where(self.distance >= 0.0, image, 0.0)

    def outwards(self, inside: Variable, scale: float) -> Variable:
        """VEC2: from the surface across the edge, through the pixel, which lies inside or not.
        scale: pixels per unit of the screen square."""
        straight = self.to_edge * (F.safe_div(1.0, self.distance) * (inside * 2.0 - 1.0))
        return F.where(self.distance * scale > AT_EDGE_PX, straight, self.normal)


@dataclass(frozen=True)
class NearEdge:
    """The nearest edge that counts, per pixel.

    row: INT, row of the drawn faces, or -1. edge: INT, 0 to 2. has: FLOAT mask. inside: FLOAT
    mask, pixels on the side of the surface that ends there. distance: FLOAT, screen square units.
    outwards: VEC2, from that surface across the edge, through the pixel. t: FLOAT in [0, 1], where
    on the edge the nearest point lies. No gradient; where there is none inside is 1, the rest 0.
    """

    row: Variable
    edge: Variable
    has: Variable
    inside: Variable
    distance: Variable
    outwards: Variable
    t: Variable

    def mask(self) -> Variable:
        """VEC3 mask of the edge among those of its face."""
        return F.vec3(*(F.to_float(F.equal(self.edge, k)) for k in range(3))) * self.has

    def weights(self) -> Variable:
        """VEC3: the nearest point, of the corners, on the screen."""
        mask = self.mask()
        return mask * (1.0 - self.t) + F.swizzle(mask, "zxy") * self.t

    def signed_distance(self, corners: Sequence[Variable]) -> Variable:
        """FLOAT, positive inside. corners: VEC4 of the faces of ``row``, per pixel. The nearest
        point moves along with the edge, and the distance by how far that is outwards. Gradient to
        the corners."""
        still = F.where(self.inside, self.distance, -self.distance)
        return still + F.dot(self.outwards, self.moved(corners))

    def moved(self, corners: Sequence[Variable]) -> Variable:
        """VEC2 of zeros with the gradient of the nearest point, as it moves along with the edge.
        corners: VEC4 of the faces of ``row``, per pixel. Gradient to the corners."""
        weights = self.weights()
        a, b, c = (v.xy for v in corners)
        place = a * weights.x + b * weights.y + c * weights.z
        return place - F.stop_gradient(place)

    def sliding_weights(self, corners: Sequence[Variable], least: float) -> Variable:
        """VEC3 of zeros with the gradient of ``weights``: the nearest point slides along the edge
        when that moves along itself, and when it turns. corners: VEC2 of the faces of ``row``, from
        the pixel. least: width of faces below which gradients grow no more. Gradient to the
        corners."""
        mask, fixed = self.mask(), self.weights()
        ends = F.swizzle(mask, "zxy") - mask
        a, b, c = corners
        to_edge = a * fixed.x + b * fixed.y + c * fixed.z
        along = a * ends.x + b * ends.y + c * ends.z
        moved, turned = (v - F.stop_gradient(v) for v in (to_edge, along))
        to_edge, along = F.stop_gradient(to_edge), F.stop_gradient(along)
        free = (self.t > 0.0) * (self.t < 1.0)
        usual = F.maximum(F.dot(along, along), F.maximum(self.distance, least) * least)
        return ends * (-free / usual * (F.dot(along, moved) + F.dot(to_edge, turned)))

    def point(self, p: Variable) -> Variable:
        """VEC2: the nearest point of the edge to pixels at p, without gradient."""
        return p + self.outwards * F.where(self.inside, self.distance, -self.distance)


Test = Callable[[FragmentEdge], tuple[Variable, Variable]]
"""From a fragment's edge: a FLOAT mask, whether it counts; a FLOAT mask, whether the pixel is
inside."""


def band_edges(screen: ScreenFaces, neighbors: Variable, cull: bool | Variable = False) -> Variable:
    """VEC3 mask of the edges that may have a band: contour edges of front faces. A face that the
    hardware clips has none, nor has the edge that a neighbour shares with it. cull: nor has a face
    that is seen from its back."""
    edges = contour_edges(screen, neighbors, front=True)
    if cull is not False:
        edges = edges * (1.0 - left_out(screen, cull))
    if screen.parts is not None:
        return edges
    across = F.vec3(*(F.lookup(screen.crossing, F.swizzle(neighbors, k)) for k in "xyz"))
    return edges * (1.0 - across) * (1.0 - screen.crossing)


def build_near_edge(
    drawn: ScreenFaces, edges: Variable, reach: Variable, test: Test, turned: float = 0.0
) -> NearEdge:
    """Find the nearest edge of those in a VEC3 mask @ (F, 1) that passes a test, up to reach (FLOAT
    @ 1x1, screen square units) away. turned: TURNED where the edge tells the side that a pixel lies
    on."""
    frag = F.rasterize(band_corners(drawn, edges, reach), drawn.size, LAYER)
    near = fragment_edge(drawn, frag, F.lookup(edges, frag), turned)
    counts, _ = test(near)
    keep = (near.distance <= reach) * counts
    rank = F.clamp(near.rank, 0.0, 1.0)
    code = F.resolve(frag * 3 + near.edge, rank, keep, background=-1)
    has = F.to_float(F.compare("gte", code, 0))
    row = F.where(has, code / 3, -1)
    edge = code - row * 3
    # Measured again, to the same bits: few pixels have an edge, and all would keep its numbers.
    found = one_edge(drawn, row, edge, turned)
    _, inside = test(found)
    return NearEdge(
        row=row,
        edge=edge,
        has=has,
        inside=F.where(has, inside, 1.0),
        distance=F.where(has, found.distance, 0.0),
        outwards=F.where(has, found.outwards(inside, drawn.scale), 0.0),
        t=F.where(has, found.t, 0.0),
    )


def fragment_edge(
    drawn: ScreenFaces, rows: Variable, mask: Variable, turned: float
) -> FragmentEdge:
    """The nearest point of the edges in a VEC3 mask. turned: share of the squared distance along
    itself by which an edge counts as farther."""
    corners, u = _corners(drawn, rows)
    found = []
    for k in range(3):
        j = (k + 1) % 3
        rank, *rest = _measured(u[k], u[j], corners[k].z, corners[j].z, turned)
        found.append((F.where(F.swizzle(mask, "xyz"[k]), rank, HIDDEN), *rest))
    ranks = [f[0] for f in found]
    is_a = (ranks[0] <= ranks[1]) * (ranks[0] <= ranks[2])
    is_b = (1.0 - is_a) * (ranks[1] <= ranks[2])
    nearest = (F.where(is_a, a, F.where(is_b, b, c)) for a, b, c in zip(*found, strict=True))
    return _fragment_edge(corners, u, F.to_int(2.0 - 2.0 * is_a - is_b), *nearest)


def one_edge(drawn: ScreenFaces, rows: Variable, edge: Variable, turned: float) -> FragmentEdge:
    """The nearest point of one edge. edge: INT, 0 to 2."""
    corners, u = _corners(drawn, rows)
    is_a, is_b = F.equal(edge, 0), F.equal(edge, 1)
    ends = [F.vec3(v, c.z) for v, c in zip(u, corners, strict=True)]
    first = F.where(is_a, ends[0], F.where(is_b, ends[1], ends[2]))
    last = F.where(is_a, ends[1], F.where(is_b, ends[2], ends[0]))
    measured = _measured(first.xy, last.xy, first.z, last.z, turned)
    return _fragment_edge(corners, u, edge, *measured)


def _corners(drawn: ScreenFaces, rows: Variable) -> tuple[list[Variable], list[Variable]]:
    """VEC4 corners of faces; VEC2, from the pixel to them."""
    p = pixel_positions(drawn.size, drawn.layers)
    corners = [F.lookup(F.stop_gradient(v), rows) for v in drawn.corners]
    return corners, [c.xy - p for c in corners]


def _measured(
    first: Variable, last: Variable, z_first: Variable, z_last: Variable, turned: float
) -> tuple[Variable, Variable, Variable, Variable, Variable]:
    """Squared rank, t, z and to_edge of ``FragmentEdge``, and the VEC2 along the edge. first, last:
    VEC2, from the pixel to the ends of the edge."""
    along = last - first
    length2 = F.maximum(F.dot(along, along), TINY)
    t = F.clamp(-F.dot(first, along) / length2, 0.0, 1.0)
    # Exact at both ends, which other edges have too.
    to_edge = first * (1.0 - t) + last * t
    beside = cross(first, last)
    square, distance2 = beside * beside / length2, F.dot(to_edge, to_edge)
    rank = distance2 + F.maximum(distance2 - square, 0.0) * turned if turned else distance2
    return rank, t, z_first * (1.0 - t) + z_last * t, to_edge, along


def _fragment_edge(
    corners: Sequence[Variable],
    u: Sequence[Variable],
    edge: Variable,
    rank: Variable,
    t: Variable,
    z: Variable,
    to_edge: Variable,
    along: Variable,
) -> FragmentEdge:
    turn = F.where(cross(u[1] - u[0], u[2] - u[0]) >= 0.0, 1.0, -1.0)
    normal = F.normalize(F.vec2(along.y, -along.x)) * turn
    depths = F.vec3(*(v.z for v in corners))
    return FragmentEdge(
        edge=edge,
        t=t,
        z=z,
        span=F.max_components(depths) - F.min_components(depths),
        distance=F.length(to_edge),
        rank=F.sqrt(rank),
        to_edge=to_edge,
        normal=normal,
        inner=F.dot(to_edge, normal) >= 0.0,
    )


def band_corners(drawn: ScreenFaces, edges: Variable, reach: Variable) -> list[Variable]:
    """VEC4 clip positions @ (F, 1) of four corners: around what lies within reach of the edges in a
    mask; of a face with one of them a rectangle along it, or a box in the picture. No gradient."""
    a, b, c = (F.stop_gradient(v.xy) for v in drawn.corners)
    reach = F.maximum(reach, 0.0) + SLACK_PX / drawn.scale
    is_a, is_b = edges.x, edges.y
    p = F.where(is_a, a, F.where(is_b, b, c))
    q = F.where(is_a, b, F.where(is_b, c, a))
    length = F.length(q - p)
    along = F.where(length > 0.0, F.safe_div(q - p, length), F.constant((1.0, 0.0))) * reach
    side = F.vec2(along.y, -along.x)
    alone = [p - along - side, q + along - side, q + along + side, p - along + side]
    low, high = F.minimum(p, q) - reach, F.maximum(p, q) + reach
    low, high, beyond = box_in_picture(drawn, alone, low, high, reach)
    alone = [F.where(beyond, *at) for at in zip(box_corners(low, high), alone, strict=True)]
    n = F.sum_components(edges)
    several = build_enlarge(drawn, reach, F.to_float(n > 1.0))
    out = []
    for place, grown in zip(alone, several, strict=True):
        place = flat_position(place, drawn)
        drawn_place = F.where(n > 1.0, grown, place)
        out.append(F.where(n > 0.0, drawn_place, F.constant(NO_AREA)))
    return out


def pixel_at(place_px: Variable, size: Size) -> tuple[Variable, Variable]:
    """The nearest pixel of the picture to a place: INT, its linear index; VEC2, its centre,
    pixels."""
    x = F.floor(F.clamp(place_px.x, 0.0, size[0] - 0.5))
    y = F.floor(F.clamp(place_px.y, 0.0, size[1] - 0.5))
    return F.to_int(x) + F.to_int(y) * size[0], F.vec2(x, y) + 0.5
