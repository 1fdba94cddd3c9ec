"""Screen-space antialiasing: gradients of vertices through the coverage of silhouette pixels.

In: vertex positions, faces, matrices. Out: one hard layer, how much each pixel takes from its four
neighbours, the antialiased silhouette. The second method beside HardSoftRas: faces are drawn once,
as they are, and the reach is one pixel. Between two pixels of different faces the silhouette edge
of the nearer face says how much of each pixel lies beyond it. Source: Dr.Hair (CVPR 2024, arXiv
2403.17496, eq. 3-5: blend across borders of face ids by the distance to the silhouette edge).
Differs: the weight is the area that the edge cuts off the square of the pixel, exact for a straight
edge, not the length that it cuts off the line between the centres; and the edge is sought across
faces that are too thin to own a pixel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.graph import Derived
from dressi.ad.vtype import INT, MAT4, VEC3
from dressi.errors import GraphError
from dressi.render.raster.clip import Parts
from dressi.render.raster.hardsoftras import Peel, build_rasterize
from dressi.render.raster.projection import (
    ScreenFaces,
    Size,
    build_screen_faces,
    check_faces,
    check_size,
    check_variables,
    pixel_positions,
    project,
    to_screen,
)
from dressi.render.raster.topology import neighbor_table

N_CROSSED = 3
"""Faces without a pixel of their own that the search for the silhouette edge crosses. Near the
silhouette of a fine mesh faces are seen at a slant, thinner than a pixel."""

MIN_SLOPE = 1e-3
"""Smallest slope of an edge against its axis that is told from none: keeps quotients finite."""

BEYOND_PX = 1e-2
"""Pixels by which rounding may put the crossing past either pixel's centre. Farther away, it is the
edge of a surface that passes behind that pixel: the two meet between the pixels, without an edge.
"""

TIE = 2.0**-21
"""Depths that differ by less are the same, but for rounding (they lie in [0, 0.5])."""

ROUNDING = 1.0 + 1e-6
"""Keeps sums of weights from ending a hair above 1."""

_MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""What moves the right, left, lower, upper neighbour to a pixel, for F.image.shift."""

BEHIND_ALL = 2.0
"""Depth of the background, behind what lies on the far plane."""


@dataclass(frozen=True)
class Antialiased:
    """What ``build_antialias`` gives.

    peel: the hard layer, for the shading builders. hard: FLOAT mask. depth: FLOAT, z / w in [0, 1],
    1 where nothing is. weights: VEC4, what the pixel takes from its right, left, lower and
    upper neighbour; they sum to at most 1. silhouette: FLOAT in [0, 1], coverage. Gradient to
    vertices through weights, silhouette and peel.bary.
    """

    screen: ScreenFaces
    peel: Peel
    hard: Variable
    depth: Variable
    weights: Variable
    silhouette: Variable

    @property
    def ids(self) -> Variable:
        """INT face number at each pixel, -1 where nothing is."""
        return self.peel.ids

    @property
    def bary(self) -> Variable:
        """VEC3 perspective-correct weights of the pixel in its face. Gradient to the vertices."""
        return self.peel.bary

    def blend(self, color: Variable, background: Variable | float = 0.0) -> Variable:
        """Antialiased picture.

        color: FLOAT or VECn image, shaded at the hard surface. background: the same type, an image,
        a 1x1 or a number, where nothing is. Gradient to both, and to the vertices where neighbours
        of different colour meet at a silhouette edge.
        """
        if not isinstance(color, Variable) or color.vtype.is_int or color.vtype.is_matrix:
            raise GraphError(f"blend needs one FLOAT or VECn colour image, got {color!r}")
        if color.size not in ((1, 1), self.screen.size):
            raise GraphError(
                f"blend needs a colour image @ {self.screen.size}, got {color.label()}"
            )
        shown = out = F.where(self.hard, color, background)
        for to, k in zip(_MOVES, "xyzw", strict=True):
            neighbor = F.image.shift(shown, *to, border="clamp")
            # Exactly the hard picture where the weight is 0.
            out = out + (neighbor - shown) * F.swizzle(self.weights, k)
        return out


def build_antialias(
    vtx_pos: Variable,
    faces: Variable,
    matrix: Variable,
    size: Size,
    jitter: Variable | tuple[float, float] | None = None,
    clip: bool = False,
) -> Antialiased:
    """Rasterize hard faces once and find the coverage of the pixels at silhouettes.

    vtx_pos: VEC3 @ (N, 1), world units. faces: IVEC3 leaf @ (F, 1); several meshes in one table are
    fine. matrix: MAT4 @ 1x1, layers = views. size: image size in pixels. jitter: VEC2 @ 1x1 in
    pixels, shifts the projection. An edge is on the silhouette when no face lies across it, or one
    that is turned the other way. Gradient to vtx_pos and matrix, from pixels beside a silhouette,
    inner ones (a face in front of a farther one) included; from faces that cross the near or the
    far plane only with clip, which cuts them there. Raises GraphError for wrong types or sizes.
    """
    check_variables("antialias", vtx_pos=vtx_pos, faces=faces, matrix=matrix)
    check_faces(faces)
    if faces.creator is not None:
        raise GraphError(f"antialias: faces must be a leaf, got {faces.label()}")
    if vtx_pos.vtype is not VEC3 or matrix.vtype is not MAT4:
        raise GraphError(
            f"antialias needs VEC3 positions and a MAT4, got {vtx_pos.label()}, {matrix.label()}"
        )
    check_size("antialias", size)
    if jitter is not None and not isinstance(jitter, Variable):
        jitter = F.constant(jitter)
    screen = build_screen_faces(vtx_pos, faces, matrix, size, jitter, clip)
    peel = build_rasterize(screen, F.constant(0.0), 1)[0]
    neighbors = neighbor_table(faces, vtx_pos)
    if screen.parts is None:
        # The same graph as inside build_screen_faces: merged, not run twice.
        points = to_screen(project(vtx_pos, matrix), size, jitter).xy
        start, end = (F.lookup(points, v) for v in _edge_ends(faces))
        ways, lines = _ways(screen, neighbors), _lines(start, end)
    else:
        ends = [v.xy for v in screen.parts.corners]
        ways = _ways_of_parts(screen, screen.parts, neighbors)
        lines = F.join([_lines(ends[k], ends[(k + 1) % 3]) for k in range(3)])
    cut = _Search(screen, peel, ways, lines).pairs()
    mine, others = cut.xy, F.swizzle(cut, "zw")
    raw = F.vec4(mine.x, F.image.shift(others, 1, 0).x, mine.y, F.image.shift(others, 0, 1).y)
    # A pixel between two edges may be asked for more than all of it.
    total = F.sum_components(raw)
    weights = raw * (1.0 / F.where(total > 1.0, total * ROUNDING, 1.0))
    hard = peel.stencil
    around = F.vec4(*(F.image.shift(hard, *to, border="clamp") for to in _MOVES)) - hard
    return Antialiased(
        screen=screen,
        peel=peel,
        hard=hard,
        depth=F.where(hard, F.minimum(peel.depth * 2.0, 1.0), 1.0),
        weights=weights,
        silhouette=hard + F.dot(around, weights),
    )


def _edge_ends(faces: Variable) -> tuple[Variable, Variable]:
    """INT leaves @ (3F, 1): first and second vertex of edge k of face f in row 3 f + k."""
    out = []
    for name, order in (("starts", [0, 1, 2]), ("ends", [1, 2, 0])):
        leaf = Variable(INT, (3 * faces.size[0], 1), name=f"{faces.name or 'faces'}.{name}")
        leaf.derived = Derived(faces, partial(_columns, order))
        out.append(leaf)
    return out[0], out[1]


def _columns(order: list[int], faces: np.ndarray) -> np.ndarray:
    return np.asarray(faces).reshape(-1, 3)[:, order].reshape(1, 1, -1, 1)


def _lines(start: Variable, end: Variable) -> Variable:
    """VEC3 @ (3F, 1) of edges as lines: place on the axis where the line meets 0, slope, and the
    slope's absolute value. The latter is positive for lines x = place + slope * y, which pixels
    beside each other look for, negative for y = place + slope * x, 0 for edges without length.

    Of the two forms the one with |slope| <= 1 is taken. Gradient to start and end.
    """
    d = end - start
    steep = F.abs(d.y) >= F.abs(d.x)
    rise, run = F.where(steep, d.y, d.x), F.where(steep, d.x, d.y)
    slope = F.safe_div(run, rise)
    along, across = F.where(steep, start.x, start.y), F.where(steep, start.y, start.x)
    size = F.maximum(F.abs(slope), MIN_SLOPE) * (steep * 2.0 - 1.0)
    size = F.where(F.not_equal(rise, 0.0), size, 0.0)
    return F.vec3(along - slope * across, slope, size)


def _ways(screen: ScreenFaces, neighbors: Variable) -> tuple[Variable, Variable, Variable]:
    """Tables @ (F, 1), layers, without gradient: VEC4 (y of the corners, turn), VEC4 (x of the
    corners, -turn), IVEC3: across edges ab, bc, ca the face, or -1 where the edge is a silhouette;
    plus 2.

    turn: sign of the area on the screen; 0 for faces that cross a plane, which have no edges here:
    all their corners are at 0.
    """
    a, b, c = (F.stop_gradient(v).xy for v in screen.corners)
    u, v = b - a, c - a
    kept = 1.0 - screen.crossing
    turn = F.sign(u.x * v.y - u.y * v.x) * kept
    onward = []
    for k in "xyz":
        index = F.swizzle(neighbors, k)
        # Nothing across reads 0 and 0: like a face without area, the end of the surface.
        other, crossing = F.lookup(turn, index), F.lookup(screen.crossing, index)
        same = F.maximum(F.equal(other, turn), crossing)
        onward.append(F.where(same, index, -1) + 2)
    xs = F.where(kept, F.vec3(a.x, b.x, c.x), 0.0)
    ys = F.where(kept, F.vec3(a.y, b.y, c.y), 0.0)
    return F.vec4(ys, turn), F.vec4(xs, -turn), F.vec3(*onward)


def _ways_of_parts(
    screen: ScreenFaces, parts: Parts, neighbors: Variable
) -> tuple[Variable, Variable, Variable]:
    """The same tables @ (3F, 1) for the parts of faces."""
    assert screen.turn is not None
    a, b, c = (F.stop_gradient(v).xy for v in parts.corners)
    turn = F.join([screen.turn] * 3)
    onward = parts.across(screen.turn, neighbors)
    return F.vec4(a.y, b.y, c.y, turn), F.vec4(a.x, b.x, c.x, -turn), onward + 2


@dataclass(frozen=True)
class _Search:
    """For every pixel, the silhouette edges between its centre and the next ones."""

    screen: ScreenFaces
    peel: Peel
    ways: tuple[Variable, Variable, Variable]
    lines: Variable

    def pairs(self) -> Variable:
        """VEC4 in [0, 0.5]: what the pixel takes from the next one on the right, on the one below,
        and what those two take from it. Gradient to the lines."""
        p = pixel_positions(self.screen.size, self.screen.layers)
        right, below = (F.lookup(self.lines, self.edge(axis, p)) for axis in (0, 1))
        place, slope = F.vec2(right.x, below.x), F.vec2(right.y, below.y)
        at = (place + slope * F.swizzle(p, "yx") - p) * self.screen.scale
        size = F.vec2(right.z, -below.z)
        return cut_off(at, size)

    def edge(self, axis: int, p: Variable) -> Variable:
        """INT: row of the silhouette edge between the pixel and the next one on the right (axis 0)
        or below (1), -1 where there is none."""
        ids = self.peel.ids if self.peel.rows is None else self.peel.rows
        depth = F.where(self.peel.stencil, self.peel.depth, BEHIND_ALL)
        to = _MOVES[2 * axis]
        next_ids = F.image.shift(ids, *to, border="clamp")
        behind = F.image.shift(depth, *to, border="clamp") - depth
        # Of faces in one plane the first is drawn, on whichever side of the other it lies.
        tied, first = F.abs(behind) <= TIE, F.compare("lt", ids, next_ids)
        mine = F.where(tied, first, behind > 0.0)
        near, far = F.where(mine, ids, next_ids), F.where(mine, next_ids, ids)
        near = F.where(F.not_equal(ids, next_ids), near, -1)
        line = F.swizzle(p, "yx"[axis])
        corners = F.lookup(self.ways[axis], near)
        # Which way the search goes, times which way faces turn: of the two edges that the line
        # meets, the one to leave by runs this way across the line. The same test, of the same
        # numbers, for both faces of an edge: the search cannot lose its way.
        sense = F.where(mine, corners.w, -corners.w)
        row, onward = self.leave(corners, near, line, sense)
        for _ in range(N_CROSSED):
            goes_on = F.compare("gte", onward, 0) * F.not_equal(onward, far)
            face = F.where(goes_on, onward, -1)
            new_row, new_onward = self.leave(F.lookup(self.ways[axis], face), face, line, sense)
            row, onward = F.where(goes_on, new_row, row), F.where(goes_on, new_onward, onward)
        # Against the background there is a silhouette, even if it is more faces away.
        ends = F.maximum(F.equal(onward, -1), F.equal(far, -1) * F.compare("gte", onward, 0))
        return F.where(ends, row, -1)

    def leave(
        self, corners: Variable, face: Variable, line: Variable, sense: Variable
    ) -> tuple[Variable, Variable]:
        """(row of the edge by which the line leaves the face, face across or -1 for none); -2 for
        the latter where the line does not meet the face."""
        before = F.compare("lt", corners.xyz, line)
        out = (before - F.swizzle(before, "yzx")) * sense > 0.0  # at most one of the three
        onward = F.sum_components(F.lookup(self.ways[2], face) * F.to_int(out)) - 2
        number, parts = F.to_int(F.dot(out, (0.0, 1.0, 2.0))), self.screen.parts
        if parts is not None:
            return face + number * (3 * parts.n_faces), onward
        return face * 3 + number, onward


def cut_off(at: Variable, slope: Variable) -> Variable:
    """VEC4: the areas that edges cut off the unit squares around the centres of two pixels, on the
    sides that the centres face each other: of the one at 0, for two edges, and of the one at 1.

    at: VEC2, pixels from 0 to the edges, clamped to [0, 1]; 0 area where it is outside by more than
    rounding. slope: VEC2 in (0, 1], by how much the edges move along the axis from one side of the
    square to the other, at most its width; 0 area where it is not positive. Continuous with its
    first derivative. Gradient to both.
    """
    # The areas and their derivatives first, without gradient, and then the tangent: the backward
    # reads one image, not each step of the way.
    x, s = F.stop_gradient(at), F.stop_gradient(slope)
    valid = (s > 0.0) * (x >= -BEYOND_PX) * (x <= 1.0 + BEYOND_PX)
    held = F.clamp(x, 0.0, 1.0)
    d, s, valid = F.vec4(held, 1.0 - held), F.vec4(s, s), F.vec4(valid, valid)
    rest = 0.5 + 0.5 * s - d
    # Share of the sides that the edge meets: minus the derivative by the distance.
    part = F.clamp(F.safe_div(rest, s), 0.0, 1.0)
    area = F.where(rest > s, 0.5 - d, 0.5 * s * part * part)
    area, part = F.where(valid, area, 0.0), F.where(valid, part, 0.0)
    dx, ds = at - F.stop_gradient(at), slope - F.stop_gradient(slope)
    turned = part * (1.0 - part) * 0.5
    return area + part * F.vec4(-dx, dx) + turned * F.vec4(ds, ds)
