"""Antialiasing of a picture over a rasterization that is there already.

In: clip positions, faces, what a rasterization found, a picture of any number of channels. Out: the
picture with blended silhouettes, and the gradient of positions through them. The edges, weights and
their gradient are those of ``antialias``; differs: lines where faces cross give no gradient, and
what an edge uncovers has the colour at the centre of the neighbour.
"""

from __future__ import annotations

from collections.abc import Sequence

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, INT, IVEC3, VEC4
from dressi.errors import GraphError
from dressi.render.raster.antialias import edge_lines, ending, neighbor_weights
from dressi.render.raster.contours import BEHIND_ALL, Surface, contour_between
from dressi.render.raster.crossings import MOVES, planes_of
from dressi.render.raster.projection import check_variables, screen_faces_of_clip
from dressi.render.raster.topology import contour_edges, neighbor_table


def build_edge_weights(
    pos_clip: Variable,
    faces: Variable,
    ids: Variable,
    depth: Variable,
    neighbors: Variable | None = None,
) -> Variable:
    """VEC4 @ the size of ids, sum at most 1: what each pixel takes from its right, left, lower and
    upper neighbour (lower: the next row) at silhouettes.

    pos_clip: VEC4 @ (N, 1), z in [0, w]. faces: IVEC3 @ (F, 1), one table or one per layer. ids:
    INT, the row of faces at each pixel, -1 for none. depth: FLOAT, z / w in [0, 1] there.
    neighbors: IVEC3 like faces, the face across edge 01, 12, 20 of each, -1 for none (see
    ``face_neighbors``); default: of the faces, which must then be one leaf. Gradient to pos_clip,
    not from faces that cross the near or the far plane. Raises GraphError for other types.
    """
    check_variables("edge weights", pos_clip=pos_clip, faces=faces, ids=ids, depth=depth)
    wanted = ((pos_clip, VEC4), (faces, IVEC3), (ids, INT), (depth, FLOAT))
    for given, vtype in wanted:
        if given.vtype is not vtype:
            raise GraphError(f"edge weights need {vtype.name}, got {given.label()}")
    screen = screen_faces_of_clip(pos_clip, faces, ids.size)
    edges = contour_edges(screen, neighbor_table(faces) if neighbors is None else neighbors, True)
    is_shown = F.compare("gte", ids, 0)
    seen = F.where(is_shown, F.clamp(F.stop_gradient(depth), 0.0, 1.0), BEHIND_ALL)
    surface = Surface(ids, seen, F.stop_gradient(planes_of(screen)).xy)
    between = [contour_between(screen, edges, surface, axis) for axis in (0, 1)]
    lines = edge_lines(screen)
    weights, _ = neighbor_weights(lines, between, ending(lines.cuts(between), between))
    return weights


def blend_edges(images: Sequence[Variable], weights: Variable) -> list[Variable]:
    """The images, of one size, with silhouettes blended.

    images: FLOAT or VECn, any number: the channels of one picture in groups of up to four. weights:
    of ``build_edge_weights``. Gradient to both.
    """
    out = []
    for image in images:
        blended = image
        for to, k in zip(MOVES, "xyzw", strict=True):
            neighbor = F.image.shift(image, *to, border="clamp")
            blended = blended + (neighbor - image) * F.swizzle(weights, k)
        out.append(blended)
    return out
