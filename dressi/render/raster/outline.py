"""One layer with a soft outline, which every pixel within reach feels, on both sides.

In: hard faces and their contour edges. Out: a peel: the hard faces, beyond the outline the nearest
one, and the signed distance to the outline. Differs: the paper measures the distance to the edges
of the one face that a pixel shows.
"""

from __future__ import annotations

from dressi.ad import F, Variable
from dressi.render.raster.distance import HIDDEN_DISTANCE
from dressi.render.raster.near_edge import (
    BEYOND_PX,
    FragmentEdge,
    band_edges,
    build_near_edge,
    pixel_at,
)
from dressi.render.raster.peel import HAIR_PX, NEAREST_RIM, Peel, face_weights
from dressi.render.raster.projection import ScreenFaces, pixel_positions
from dressi.render.raster.weights import free_weights, within_weights

NOTHING = 0.75
"""Between the shifted depths of what is hard by a hair, 0.5, and of nothing, 1."""


def build_outline(
    screen: ScreenFaces,
    hard: Peel,
    neighbors: Variable,
    reach: Variable,
    cull: bool | Variable = False,
) -> Peel:
    """The hard faces, and around them the faces at the nearest edges up to reach away.

    screen: faces. hard: what is seen. neighbors: table of ``neighbor_table``. reach: FLOAT @ 1x1,
    screen square units. cull: whether backs are left out. What is nearest to a pixel outside lies
    on the outline; of a pixel inside those contour edges count beyond which nothing is seen. Where
    none is within reach the distance is HIDDEN_DISTANCE. Gradient to the corners of faces.
    """
    drawn, size = screen.drawn, screen.size
    p, hard_rows = pixel_positions(size, screen.layers), hard.drawn_rows
    # What is hard by a hair only lies outside: at an edge it is a rim, else it fills a hole.
    by_a_hair = hard.stencil * (hard.depth >= 0.5)
    solid = hard.stencil - by_a_hair

    def test(edge: FragmentEdge) -> tuple[Variable, Variable]:
        depth = edge.at_pixel(hard.depth)
        inside, hair = depth < 0.5, (depth >= 0.5) * (depth < NOTHING)
        outwards = edge.outwards(inside, drawn.scale)
        place = (p + edge.to_edge) * drawn.scale + outwards * BEYOND_PX
        index, centre = pixel_at(place, size)
        nothing = F.compare("lt", F.lookup(hard_rows, index), 0)
        # Beyond the frame nothing is known to be there.
        away = F.abs(place - centre)
        beyond = F.maximum(F.maximum(away.x, away.y) > 0.5, F.to_float(nothing))
        beside = F.maximum(1.0 - hair, edge.distance <= 2.0 * HAIR_PX / drawn.scale)
        return F.where(inside, beyond, beside), inside

    near = build_near_edge(drawn, band_edges(screen, neighbors, cull), reach, test)
    at_edge = tuple(F.lookup(t, near.row) for t in drawn.corners)
    solid = F.maximum(solid, by_a_hair * (1.0 - near.has))
    away = F.where(
        near.has, near.signed_distance(at_edge), F.where(solid, 1.0, -1.0) * HIDDEN_DISTANCE
    )
    rows = F.where(solid, hard_rows, near.row)
    a, b, c = (F.lookup(t, rows) for t in drawn.corners)
    u, least = (a.xy - p, b.xy - p, c.xy - p), HAIR_PX / screen.scale
    at_rim = near.weights() + near.sliding_weights(u, least)
    weights = F.where(solid, within_weights(u, least), at_rim)
    bary = face_weights(screen, rows, (a, b, c), weights, free_weights(u))
    rim = F.maximum(0.5 + 0.5 * F.clamp(near.distance, 0.0, 1.0), NEAREST_RIM)
    depth = F.where(hard.stencil, hard.depth, F.where(near.has, rim, 1.0))
    stencil, parts = F.maximum(hard.stencil, near.has), screen.parts
    if parts is None:
        return Peel(rows, depth, away, bary, stencil)
    return Peel(parts.face(rows), depth, away, bary, stencil, rows)
