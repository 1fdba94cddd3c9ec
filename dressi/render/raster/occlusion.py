"""Bands: soft edges wherever a surface ends before another one, at the outline and inside it.

In: hard faces and their contour edges. Out: per pixel the nearest edge that is seen, the side of it
that the pixel lies on, and what the pixel takes from the other side. Differs: the paper has soft
rims behind all hard faces and one edge mask, that of the whole stencil; so an edge before another
surface is hard there, without a gradient. Here no layer is peeled: the faces as they are and one
layer of bands along contour edges, on both of their sides.
"""

from __future__ import annotations

from dataclasses import dataclass

from dressi.ad import F, Variable
from dressi.render.raster.distance import perspective, signed_distance
from dressi.render.raster.enlarge import SLACK_PX, build_enlarge
from dressi.render.raster.peel import Peel
from dressi.render.raster.projection import ScreenFaces, Size, pixel_positions
from dressi.render.raster.topology import contour_edges
from dressi.render.raster.weights import edge_point

BEYOND_PX = 0.75
"""From the nearest point of an edge to the pixels that are read on either side of it: more than the
half diagonal of a pixel, so that the pixel's centre lies on that side."""

BEHIND_ALL = 2.0
"""Depth of the background, behind what lies on the far plane."""

TOUCH_PX = 1 / 16
"""A surface touches an edge that it passes behind by less than it recedes over so many pixels: the
step of the coarsest grid that hardware snaps corners to."""

TIE = 2.0**-20
"""Depths in [0, 1] that differ by less are the same, but for rounding."""

LENIENT_PX = 2.0
"""The surface that ends at an edge may lie before it by what the plane that is seen beside the edge
recedes over so many pixels, and by the depth of the edge's own face: near its outline a surface
curves away. Of a ball, the depth from the pixel to the edge is twice that of the plane."""

AT_EDGE_PX = 1e-3
"""Distance below which the direction from the edge to the pixel is not known."""

TURNED = 1e-3
"""Share of the squared distance along itself by which an edge counts as farther: at a corner the
edge that the pixel lies beside most squarely tells the side that it lies on."""

OFF_SCREEN = (2.0, 2.0, 0.5, 1.0)
"""Clip position of faces without a band."""

LAYER = 5
"""Of the rasterization of bands: tells it from peels of the same corners."""


@dataclass(frozen=True)
class Bands:
    """The nearest edge that is seen, per pixel.

    has: FLOAT mask, pixels within reach of one. inner: FLOAT mask, those that show the surface that
    ends there. beyond: INT, linear index of the pixel right beyond the edge. share: FLOAT, how
    much of the pixel shows that surface; gradient to vertices.
    """

    has: Variable
    inner: Variable
    beyond: Variable
    share: Variable

    def mix(self, shown: Variable, edge: Variable | float) -> Variable:
        """Return the picture with soft edges. shown: the hard one. edge: what is shown at the
        nearest point of the edge. Gradient to both, and through share."""
        near = F.where(self.inner, shown, edge)
        far = F.where(self.inner, F.lookup(shown, self.beyond), shown)
        return F.where(self.has, F.mix(far, near, self.share), shown)


def build_bands(
    screen: ScreenFaces,
    hard: Peel,
    surface: Variable,
    neighbors: Variable,
    reach: Variable,
    sigma: Variable,
) -> tuple[Peel, Bands]:
    """The rim, a peel of the faces at the nearest edges, and how it is blended with the hard one.

    screen: faces. hard: what is seen. surface: the same as of ``surface_image``. neighbors: table
    of ``neighbor_table``. reach, sigma: FLOAT @ 1x1, screen square units. An edge counts where it
    is on the contour of its face and, at its point that is nearest to the pixel, neither hidden nor
    touched by what is seen beyond it. Gradient to the corners of faces.
    """
    drawn, size = screen.drawn, screen.size
    edges = _edges(screen, neighbors)
    soft = F.max_components(edges)
    corners = [F.where(soft, c, F.constant(OFF_SCREEN)) for c in build_enlarge(drawn, reach, soft)]
    frag = F.rasterize(corners, size, LAYER)
    near = _nearest(drawn, frag, F.lookup(edges, frag))
    own = F.where(near.inner, F.constant(0.0), _in_front(drawn, surface, near))
    keep = (near.distance <= reach) * _is_seen(drawn, surface, near) * (1.0 - own)
    rows = F.resolve(frag, F.clamp(near.rank, 0.0, 1.0), keep, background=-1)
    counted, has = F.lookup(edges, rows), F.to_float(F.compare("gte", rows, 0))
    near = _nearest(drawn, rows, counted)
    a, b, c = (F.lookup(t, rows) for t in drawn.corners)
    p = pixel_positions(size, screen.layers)
    face = signed_distance(a.xy, b.xy, c.xy, p, counted, SLACK_PX / screen.scale)
    away = F.where(face.inside, face.distance, -face.distance)
    away = F.where(near.inner, away, -away)
    bary = perspective(face.weights, F.vec3(a.w, b.w, c.w))
    beyond, _ = _pixel(near.point * screen.scale + near.outwards * BEYOND_PX, size)
    share = F.sigmoid(F.safe_div(away, sigma))
    parts = screen.parts
    ids = rows if parts is None else parts.face(rows)
    if parts is not None:
        cut = F.lookup(parts.cut, rows)
        of_cut = F.where(cut, rows, -1)
        shares = [F.lookup(t, of_cut) for t in parts.shares]
        bary = F.where(cut, shares[0] * bary.x + shares[1] * bary.y + shares[2] * bary.z, bary)
    depth = F.where(has, 0.5 + 0.5 * F.clamp(near.distance, 0.0, 1.0), 1.0)
    rim = Peel(ids, depth, away, bary, has, None if parts is None else rows)
    # What is hard by a hair only lies outside, and still shows the surface.
    by_a_hair = hard.stencil * (hard.depth >= 0.5)
    return rim, Bands(has, F.maximum(near.inner, by_a_hair), beyond, share)


def _edges(screen: ScreenFaces, neighbors: Variable) -> Variable:
    """VEC3 mask of the edges that may have a band: contour edges of front faces. A face that the
    hardware clips has none, nor has the edge that a neighbour shares with it."""
    edges = contour_edges(screen, neighbors, front=True)
    if screen.parts is not None:
        return edges
    across = F.vec3(*(F.lookup(screen.crossing, F.swizzle(neighbors, k)) for k in "xyz"))
    return edges * (1.0 - across) * (1.0 - screen.crossing)


def surface_image(drawn: ScreenFaces, hard: Peel) -> Variable:
    """VEC4 @ size, without gradient: depth of what is seen, by how much it grows along x and y (per
    screen square unit), and how far at most: the range of the face's depths. Background: depth
    BEHIND_ALL."""
    a, b, c = (F.stop_gradient(v) for v in drawn.corners)
    u, v = b.xyz - a.xyz, c.xyz - a.xyz
    area2 = u.x * v.y - u.y * v.x
    slope = F.vec2(u.z * v.y - v.z * u.y, v.z * u.x - u.z * v.x)
    high = F.maximum(F.maximum(a.z, b.z), c.z)
    span = high - F.minimum(F.minimum(a.z, b.z), c.z)
    table = F.vec3(F.safe_div(slope, area2), span) * (1.0 - drawn.crossing)
    rows = hard.ids if hard.rows is None else hard.rows
    # What is hard by a hair only is behind all other hard pixels, and counts as outside.
    depth = F.where(hard.depth < 0.5, hard.depth * 2.0, 1.0)
    depth = F.where(hard.stencil, depth, BEHIND_ALL)
    return F.stop_gradient(F.vec4(depth, F.lookup(table, rows)))


@dataclass(frozen=True)
class _Near:
    """The nearest point of a face's edges, without gradient. distance: FLOAT. rank: FLOAT, the
    distance by which edges are compared. point: VEC2, screen square. z: FLOAT, its depth. span:
    FLOAT, range of the face's depths. outwards: VEC2, from the surface across the edge. inner:
    FLOAT mask, pixels on the surface's side."""

    distance: Variable
    rank: Variable
    point: Variable
    z: Variable
    span: Variable
    outwards: Variable
    inner: Variable


def _nearest(drawn: ScreenFaces, rows: Variable, mask: Variable) -> _Near:
    """The nearest point of the edges in a VEC3 mask."""
    p = pixel_positions(drawn.size, drawn.layers)
    corners = [F.lookup(F.stop_gradient(t), rows) for t in drawn.corners]
    u = [c.xy - p for c in corners]
    best: tuple[Variable, ...] | None = None
    for k, name in enumerate("xyz"):
        edge = edge_point(u[k], u[(k + 1) % 3], k)
        along = F.normalize(edge.along)
        normal = F.vec2(along.y, -along.x)
        normal = F.where(F.dot(normal, u[(k + 2) % 3] - u[k]) > 0.0, -normal, normal)
        square = F.dot(normal, u[k])
        rank = edge.distance2 + TURNED * F.maximum(edge.distance2 - square * square, 0.0)
        mine = (F.where(F.swizzle(mask, name), rank, 4.0), edge.distance2, edge.weights, normal)
        if best is None:
            best = mine
        else:
            first = best[0] <= mine[0]
            best = tuple(F.where(first, a, b) for a, b in zip(best, mine, strict=True))
    assert best is not None
    rank, distance2, weights, normal = best
    to_edge = u[0] * weights.x + u[1] * weights.y + u[2] * weights.z
    depths = F.vec3(*(c.z for c in corners))
    z, span = F.dot(weights, depths), F.max_components(depths) - F.min_components(depths)
    distance = F.sqrt(distance2)
    inner = F.dot(to_edge, normal) >= 0.0
    straight = F.safe_div(to_edge, distance)
    straight = F.where(inner, straight, -straight)
    outwards = F.where(distance * drawn.scale > AT_EDGE_PX, straight, normal)
    return _Near(distance, F.sqrt(rank), p + to_edge, z, span, outwards, inner)


def _pixel(place_px: Variable, size: Size) -> tuple[Variable, Variable]:
    """The nearest pixel of the picture to a place: INT, its linear index; VEC2, its centre,
    pixels."""
    x = F.floor(F.clamp(place_px.x, 0.0, size[0] - 0.5))
    y = F.floor(F.clamp(place_px.y, 0.0, size[1] - 0.5))
    return F.to_int(x) + F.to_int(y) * size[0], F.vec2(x, y) + 0.5


def _depth_at(seen: Variable, step: Variable) -> Variable:
    """Depth of the plane that is seen at a pixel, a step away from it, within the depths of its
    face."""
    change = seen.y * step.x + seen.z * step.y
    return seen.x + F.clamp(change, -seen.w, seen.w)


def _is_seen(drawn: ScreenFaces, surface: Variable, near: _Near) -> Variable:
    """1 where an edge is not hidden, and what is seen beyond it lies behind it without touching."""
    px, size = 1.0 / drawn.scale, drawn.size
    found = []
    for sign in (1.0, -1.0):
        place = near.point * drawn.scale
        index, centre = _pixel(place + near.outwards * (sign * BEYOND_PX), size)
        seen = F.lookup(surface, index)
        z = _depth_at(seen, (place - centre) * px)
        found.append((z, F.length(F.vec2(seen.y, seen.z)) * px))
    (beyond, slope), (own, own_slope) = found
    behind = beyond > near.z + TOUCH_PX * slope + TIE
    shown = own > near.z - near.span - LENIENT_PX * own_slope - TIE
    return behind * shown


def _in_front(drawn: ScreenFaces, surface: Variable, near: _Near) -> Variable:
    """1 where what is seen at the pixel itself is nearer than the edge, and where it would meet the
    edge it touches it or is nearer, too."""
    p = pixel_positions(drawn.size, drawn.layers)
    change = surface.y * (near.point.x - p.x) + surface.z * (near.point.y - p.y)
    touch = TOUCH_PX / drawn.scale * F.length(F.vec2(surface.y, surface.z)) + TIE
    return (surface.x < near.z) * (surface.x + change <= near.z + touch)
