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
from dressi.render.raster.crossing import find_lines, reaches
from dressi.render.raster.near_edge import (
    BEYOND_PX,
    TURNED,
    FragmentEdge,
    band_edges,
    build_near_edge,
    pixel_at,
)
from dressi.render.raster.peel import HAIR_PX, Peel, face_weights
from dressi.render.raster.projection import ScreenFaces, pixel_positions
from dressi.render.raster.weights import free_weights, within_weights

HAIR_DEPTH, BEHIND_ALL = 1.0, 2.0
"""Depth of what is hard by a hair only, and of the background, behind what lies on the far
plane."""

TOUCH_PX = 1 / 16
"""A surface touches an edge that it passes behind by less than it recedes over so many pixels: the
step of the coarsest grid that hardware snaps corners to."""

TIE = 2.0**-20
"""Depths in [0, 1] that differ by less are the same, but for rounding."""

LENIENT_PX = 2.0
"""The surface that ends at an edge may lie before it by what the plane that is seen beside the edge
recedes over so many pixels, and by the depth of the edge's own face: near its outline a surface
curves away. Of a ball, the depth from the pixel to the edge is twice that of the plane."""


AWAY_SIGMAS = 5.0
"""Distance from an edge, in sigmas, from which on a line in the pixel counts in its place: what the
edge mixes into the pixel there is 0.7 %."""


@dataclass(frozen=True)
class Bands:
    """The nearest edge that is seen, per pixel, or a line of ``find_lines``.

    has: FLOAT mask, pixels within reach of an edge. inner: FLOAT mask, those that show the surface
    that ends there. other: FLOAT mask, whether there is a surface on the other side of the edge.
    share: FLOAT, how much of the pixel shows the surface that ends there; gradient to vertices.
    line: FLOAT mask, pixels with a line, of which the second peel shows the other side. moved:
    FLOAT, 0 with the gradient of the line's place, pixels, away from the pixel's centre.
    """

    has: Variable
    inner: Variable
    other: Variable
    share: Variable
    line: Variable
    moved: Variable

    def cover(self, hard: Variable) -> Variable:
        """Return the silhouette with soft edges. hard: FLOAT mask of what is seen."""
        mine = F.where(self.inner, self.share, 1.0 - self.share)
        return F.where(self.has, F.mix(self.other, hard, mine), hard)

    def mix(self, shown: Variable, other: Variable, background: Variable | float) -> Variable:
        """Return the picture with soft edges. shown: the hard one. other: what the second peel
        shows. Gradient to all, and through share and moved."""
        mine = F.where(self.inner, self.share, 1.0 - self.share)
        jump = F.stop_gradient(shown - other)
        crossed = shown + F.where(self.line, jump * self.moved, 0.0)
        beyond = F.where(self.other * (1.0 - self.line), other, background)
        soft = self.has * (1.0 - self.line * self.other)
        return F.where(soft, F.mix(beyond, crossed, mine), crossed)


def build_bands(
    screen: ScreenFaces,
    hard: Peel,
    neighbors: Variable,
    reach: Variable,
    sigma: Variable,
    cull: bool | Variable = False,
) -> tuple[Peel, Bands]:
    """A peel of what lies on the other side of the nearest edge or line, at its nearest point, and
    how it is blended with the hard one.

    screen: faces. hard: what is seen. neighbors: table of ``neighbor_table``. reach, sigma: FLOAT @
    1x1, screen square units. cull: whether backs are left out. An edge counts where it is on the
    contour of its face and, at its point that is nearest to the pixel, neither hidden nor touched
    by what is seen beyond it. Gradient to the corners of faces.
    """
    drawn, size = screen.drawn, screen.size
    slopes = depth_slopes(drawn)
    surface = surface_image(hard, slopes)

    def test(edge: FragmentEdge) -> tuple[Variable, Variable]:
        here = edge.at_pixel(surface)
        # What is hard by a hair only lies outside, and still shows the surface.
        by_a_hair = F.equal(here.x, HAIR_DEPTH)
        return _is_seen(drawn, surface, here, edge), F.maximum(edge.inner, by_a_hair)

    near = build_near_edge(drawn, band_edges(screen, neighbors, cull), reach, test, TURNED)
    across = neighbors if screen.parts is None else None
    lines = find_lines(drawn, hard.drawn_rows, surface, across)
    p, least = pixel_positions(size, screen.layers), HAIR_PX / screen.scale
    at_edge = tuple(F.lookup(t, near.row) for t in drawn.corners)
    away = near.signed_distance(at_edge)
    beyond, _ = pixel_at(near.point(p) * screen.scale + near.outwards * BEYOND_PX, size)
    rows = F.where(near.inside, F.lookup(hard.drawn_rows, beyond), near.row)
    rows = F.where(near.has, rows, -1)
    has_other = F.to_float(F.compare("gte", rows, 0))
    # The peel shows one of the two. An edge before nothing needs no peel for what lies beyond it.
    free = F.maximum(1.0 - has_other, near.distance > sigma * AWAY_SIGMAS)
    line = F.compare("gte", lines.row, 0) * free
    rows = F.where(line, lines.row, rows)
    a, b, c = (F.lookup(t, rows) for t in drawn.corners)
    # What lies beyond is shown where it meets the edge, which moves.
    place = F.where(line, p + lines.step * lines.at, near.point(p) + near.moved(at_edge))
    far = within_weights((a.xy - place, b.xy - place, c.xy - place), least)
    u = (a.xy - p, b.xy - p, c.xy - p)
    at_rim = near.weights() + near.sliding_weights(u, least)
    weights = F.where(F.maximum(near.inside, line), far, at_rim)
    # The jump at a line is that of both colours at the pixel, where the other one is known there.
    weights = F.where(line * reaches((a, b, c), p), free_weights(u), weights)
    bary = face_weights(screen, rows, (a, b, c), weights, weights)
    mine = tuple(F.lookup(t, hard.drawn_rows) for t in drawn.corners)
    steep = (F.lookup(slopes, hard.drawn_rows).xy, F.lookup(slopes, lines.row).xy)
    bands = Bands(
        has=near.has,
        inner=near.inside,
        other=has_other,
        share=F.sigmoid(F.safe_div(away, sigma)),
        line=line,
        moved=F.where(line, lines.moved(mine, (a, b, c), steep, p), 0.0),
    )
    return peel_of_rows(screen, rows, bary, near.distance, away), bands


def peel_of_rows(
    screen: ScreenFaces, rows: Variable, bary: Variable, distance: Variable, away: Variable
) -> Peel:
    """A peel of rims. rows: INT, of the drawn faces, or -1. bary: VEC3, weights of the corners of
    the rows. distance: FLOAT, to the edge, without gradient; away: the same, signed."""
    has = F.to_float(F.compare("gte", rows, 0))
    depth = F.where(has, 0.5 + 0.5 * F.clamp(distance, 0.0, 1.0), 1.0)
    parts = screen.parts
    if parts is None:
        return Peel(rows, depth, away, bary, has)
    return Peel(parts.face(rows), depth, away, bary, has, rows)


def depth_slopes(drawn: ScreenFaces) -> Variable:
    """VEC3 @ (F, 1), without gradient: by how much the depth of a face grows along x and y, per
    screen square unit, and the range of its depths. 0 for faces that the hardware clips."""
    a, b, c = (F.stop_gradient(v) for v in drawn.corners)
    u, v = b.xyz - a.xyz, c.xyz - a.xyz
    area2 = u.x * v.y - u.y * v.x
    slope = F.vec2(u.z * v.y - v.z * u.y, v.z * u.x - u.z * v.x)
    high = F.maximum(F.maximum(a.z, b.z), c.z)
    span = high - F.minimum(F.minimum(a.z, b.z), c.z)
    return F.vec3(F.safe_div(slope, area2), span) * (1.0 - drawn.crossing)


def surface_image(hard: Peel, slopes: Variable) -> Variable:
    """VEC4 @ size, without gradient: depth of what is seen, and its ``depth_slopes``, of which the
    last is how far it changes at most. Background: depth BEHIND_ALL."""
    # What is hard by a hair only is behind all other hard pixels, and counts as outside.
    depth = F.where(hard.depth < 0.5, hard.depth * 2.0, HAIR_DEPTH)
    depth = F.where(hard.stencil, depth, BEHIND_ALL)
    return F.stop_gradient(F.vec4(depth, F.lookup(slopes, hard.drawn_rows)))


def _depth_at(seen: Variable, step: Variable) -> Variable:
    """Depth of the plane that is seen at a pixel, a step away from it, within the depths of its
    face."""
    change = seen.y * step.x + seen.z * step.y
    return seen.x + F.clamp(change, -seen.w, seen.w)


def _is_seen(drawn: ScreenFaces, surface: Variable, here: Variable, near: FragmentEdge) -> Variable:
    """1 where an edge is not hidden, and what is seen beyond it lies behind it without touching.
    here: the surface at the pixel."""
    px, size = 1.0 / drawn.scale, drawn.size
    p = pixel_positions(size, drawn.layers)
    place, outwards = (p + near.to_edge) * drawn.scale, near.outwards(near.inner, drawn.scale)
    found = []
    for sign in (1.0, -1.0):
        index, centre = pixel_at(place + outwards * (sign * BEYOND_PX), size)
        seen = F.lookup(surface, index)
        z = _depth_at(seen, (place - centre) * px)
        found.append((z, F.length(F.vec2(seen.y, seen.z)) * px))
    (beyond, slope), (own, own_slope) = found
    behind = beyond > near.z + TOUCH_PX * slope + TIE
    shown = own > near.z - near.span - LENIENT_PX * own_slope - TIE
    before = F.where(near.inner, F.constant(0.0), _in_front(drawn, here, near))
    # Beyond an outline nothing is seen, and what is nearest to nothing is an outline.
    nothing = here.x >= BEHIND_ALL
    seen = F.maximum(behind * shown, beyond >= BEHIND_ALL) * (1.0 - before)
    return F.where(near.inner, seen, F.maximum(seen, nothing))


def _in_front(drawn: ScreenFaces, surface: Variable, near: FragmentEdge) -> Variable:
    """1 where what is seen at the pixel itself is nearer than the edge, and where it would meet the
    edge it touches it or is nearer, too."""
    change = surface.y * near.to_edge.x + surface.z * near.to_edge.y
    touch = TOUCH_PX / drawn.scale * F.length(F.vec2(surface.y, surface.z)) + TIE
    return (surface.x < near.z) * (surface.x + change <= near.z + touch)
