"""Strands of hair on the screen: ribbons that face the camera, in layers.

In: points of polylines, widths, a matrix. Out: ``Ribbons``: per pixel and layer which segment
shows, where along and across it, how deep, and how much of the pixel it covers. Segments of a
polyline share the two corners where they meet, so nothing is drawn twice there. A ribbon is one
pixel wider than its strand, and its coverage that of a box one pixel wide across it: strands much
thinner than a pixel are faint and not broken, and no edge is a staircase. Layers are blended front
to back (Porter and Duff 1984); what lies behind the last one is not seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, IVEC2, MAT4, VEC3
from dressi.errors import GraphError
from dressi.render.raster.projection import (
    Size,
    check_size,
    check_variables,
    pixel_positions,
    project,
    to_screen,
)
from dressi.render.raster.strokes import LAST_DEPTH, MIN_LENGTH, radius_at

MIN_ALPHA = 1.0 / 64.0
"""Fragments that cover less take no layer."""


@dataclass(frozen=True)
class Ribbons:
    """What ``build_ribbons`` gives; images with one layer per layer of ribbons, the nearest first.

    ids: INT, row of the segments or -1. t: FLOAT in [0, 1], where on the segment, in the world,
    from  its first point to its second. across: FLOAT in [-1, 1], offset from the middle of the
    strand by  half of its width, along cross(to_eye, tangent). depth: FLOAT, z in NDC; 1 where
    there is  nothing. alpha: FLOAT in [0, 1], share of the pixel that the strand covers. Gradient
    through all  but ids.
    """

    ids: Variable
    t: Variable
    across: Variable
    depth: Variable
    alpha: Variable

    @property
    def mask(self) -> Variable:
        """FLOAT: 1 where there is a strand. No gradient."""
        return F.to_float(F.compare("gte", self.ids, 0))

    def interpolate(self, table: Variable, segments: Variable) -> Variable:
        """Attribute of points at each pixel and layer; 0 where there is nothing. table: FLOAT or
        VECn @ (P, 1). segments: IVEC2 @ (N, 1). Gradient to the table and to t."""
        a, b = (F.lookup(F.lookup(table, v), self.ids) for v in (segments.x, segments.y))
        return a + (b - a) * self.t

    @property
    def weights(self) -> Variable:
        """FLOAT: how much of each layer is seen: its alpha by what the layers in front let through.
        Their sum is the coverage. Gradient to alpha."""
        through: Variable | None = None
        weights = []
        for k in range(self.alpha.layers):
            alpha = F.take_layer(self.alpha, k)
            weights.append(alpha if through is None else alpha * through)
            through = 1.0 - alpha if through is None else through * (1.0 - alpha)
        return F.stack(weights)

    def blend(self, colors: Variable, background: Variable | float = 0.0) -> Variable:
        """Colour over a background. colors: FLOAT or VECn, a layer each. Gradient to all."""
        weights = self.weights
        return F.sum_layers(colors * weights) + (1.0 - F.sum_layers(weights)) * background


def build_ribbons(
    vtx_pos: Variable,
    segments: Variable,
    neighbors: Variable,
    width: Variable,
    matrix: Variable,
    size: Size,
    n_layers: int = 4,
    occluder: Variable | None = None,
) -> Ribbons:
    """Rasterize strands.

    vtx_pos: VEC3 @ (P, 1), world units. segments: IVEC2 @ (N, 1), rows of points. neighbors: IVEC2
    @ (P, 1), rows of the points before and behind, as ``Strands`` has them. width: FLOAT @ 1x1 or @
    (P, 1), thickness in world units. matrix: MAT4 @ 1x1, one view. size: pixels. n_layers: 1 or
    more. occluder: FLOAT @ size, z in NDC of what hides strands behind it (``HardRaster.depth``).
    Segments with an end before the near or behind the far plane are not drawn. Gradient to vtx_pos,
    width and matrix through t, across, depth and alpha. Raises GraphError for wrong types and
    sizes.
    """
    _check(vtx_pos, segments, neighbors, width, matrix, size, n_layers)
    clip = project(vtx_pos, matrix)
    screen = to_screen(clip, size)
    half = radius_at(F.expand(width, vtx_pos.size) * 0.5, clip, matrix, size, "world")
    is_seen = (clip.z >= 0.0) * (clip.z <= clip.w) * (clip.w > 0.0)
    before, behind = (F.lookup(screen.xy, rows) for rows in (neighbors.x, neighbors.y))
    along = behind - before
    length2 = F.dot(along, along)
    along = F.where(
        length2 > MIN_LENGTH,
        along * F.inversesqrt(F.maximum(length2, MIN_LENGTH)),
        F.constant((1.0, 0.0)),
    )
    # Where a strand is more than a pixel from its middle, a box around the pixel misses it.
    side = F.vec2(along.y, -along.x) * (half + 0.5 / max(size))
    corners = _quads(screen, side, is_seen, segments, size)
    ends = tuple(
        (F.lookup(screen, rows), F.lookup(half, rows)) for rows in (segments.x, segments.y)
    )
    p = pixel_positions(size)
    still = tuple((F.stop_gradient(s), F.stop_gradient(h)) for s, h in ends)
    frag = F.rasterize([F.stop_gradient(c) for c in corners], size)
    _, _, alpha, depth = _measure(still, frag, p, size)
    keep = alpha >= MIN_ALPHA
    if occluder is not None:
        keep = keep * (depth <= F.stop_gradient(occluder))
    depth = F.clamp(depth, 0.0, LAST_DEPTH)
    ids = F.stack([F.resolve(frag, depth, keep, -1.0, peel=k) for k in range(n_layers)])
    t, across, alpha, depth = _measure(ends, ids, p, size)
    mask = F.to_float(F.compare("gte", ids, 0))
    return Ribbons(
        ids=ids,
        t=F.where(mask, t, 0.0),
        across=F.where(mask, across, 0.0),
        depth=F.where(mask, depth, 1.0),
        alpha=F.where(mask, alpha, 0.0),
    )


def _quads(
    screen: Variable, side: Variable, is_seen: Variable, segments: Variable, size: Size
) -> list[Variable]:
    """Four corners, VEC4 clip positions @ (N, 1), of each segment."""
    scale = tuple(2.0 * max(size) / n for n in size)
    drawn = F.lookup(is_seen, segments.x) * F.lookup(is_seen, segments.y)
    corners = []
    for rows, sign in (
        (segments.x, -1.0),
        (segments.x, 1.0),
        (segments.y, 1.0),
        (segments.y, -1.0),
    ):
        at = F.lookup(screen.xy + side * sign, rows) * scale - 1.0
        corners.append(F.where(drawn, F.vec4(at, 0.5, 1.0), F.constant((2.0, 2.0, 0.5, 1.0))))
    return corners


def _measure(
    ends: tuple[tuple[Variable, Variable], ...], ids: Variable, p: Variable, size: Size
) -> tuple[Variable, Variable, Variable, Variable]:
    """(t, across, alpha, depth) of p and rows of segments. ends: VEC4 screen positions and FLOAT
    half widths, screen square units. Gradient to the ends."""
    (a, h_a), (b, h_b) = (tuple(F.lookup(x, ids) for x in end) for end in ends)
    edge, ap = b.xy - a.xy, p - a.xy
    length2 = F.maximum(F.dot(edge, edge), MIN_LENGTH)
    s = F.clamp(F.dot(ap, edge) / length2, 0.0, 1.0)
    off = (ap.x * edge.y - ap.y * edge.x) * F.inversesqrt(length2)
    half = h_a + (h_b - h_a) * s
    along = F.safe_div(s * b.w, (1.0 - s) * a.w + s * b.w)
    width_px, off_px = half * (2.0 * max(size)), F.abs(off) * float(max(size))
    alpha = F.clamp(0.5 + 0.5 * width_px - off_px, 0.0, F.minimum(width_px, 1.0))
    across = F.clamp(F.safe_div(off, half), -1.0, 1.0)
    return along, across, alpha, a.z + (b.z - a.z) * s


def _check(
    vtx_pos: Variable,
    segments: Variable,
    neighbors: Variable,
    width: Variable,
    matrix: Variable,
    size: Size,
    n_layers: int,
) -> None:
    check_variables(
        "build_ribbons",
        vtx_pos=vtx_pos,
        segments=segments,
        neighbors=neighbors,
        width=width,
        matrix=matrix,
    )
    if vtx_pos.vtype is not VEC3 or vtx_pos.size[1] != 1 or vtx_pos.layers != 1:
        raise GraphError(f"build_ribbons: vtx_pos must be VEC3 @ (P, 1), got {vtx_pos.label()}")
    for name, table in (("segments", segments), ("neighbors", neighbors)):
        if table.vtype is not IVEC2 or table.size[1] != 1:
            raise GraphError(f"build_ribbons: {name} must be an IVEC2 table, got {table.label()}")
    if neighbors.size != vtx_pos.size:
        raise GraphError(
            f"build_ribbons: neighbors must be a row per point, got {neighbors.label()} for "
            f"{vtx_pos.label()}"
        )
    if width.vtype is not FLOAT or width.size not in ((1, 1), vtx_pos.size):
        raise GraphError(
            f"build_ribbons: width must be FLOAT @ 1x1 or @ {vtx_pos.size[0]}x1, "
            f"got {width.label()}"
        )
    if matrix.vtype is not MAT4 or matrix.size != (1, 1) or matrix.layers != 1:
        raise GraphError(f"build_ribbons: matrix must be MAT4 @ 1x1, got {matrix.label()}")
    check_size("build_ribbons", size)
    if not isinstance(n_layers, int) or n_layers < 1:
        raise GraphError(f"build_ribbons: n_layers must be 1 or more, got {n_layers!r}")
