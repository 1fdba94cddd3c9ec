"""HardSoftRas: far-range gradients with a hardware rasterizer (paper, 3.4).

In: vertex positions, faces, matrices, r. Out: K peels (ids, distances, barycentrics), then a
blended silhouette and colour. Written purely with F ops; the backward is ordinary AD through
``F.lookup`` with the id image.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dressi.ad import F, Variable
from dressi.errors import GraphError
from dressi.kinds import RIMS, Rims
from dressi.render.raster.blend import blend_color, blend_silhouette, edge_mask
from dressi.render.raster.distance import face_test, signed_distance
from dressi.render.raster.enlarge import (
    NO_AREA,
    SLACK_PX,
    build_enlarge,
    build_enlarge_little,
)
from dressi.render.raster.occlusion import Bands, build_bands
from dressi.render.raster.outline import build_outline
from dressi.render.raster.peel import HAIR_PX, NEAREST_RIM, Peel, face_weights
from dressi.render.raster.projection import (
    ScreenFaces,
    Size,
    build_screen_faces,
    check_faces,
    is_crossing,
    pixel_positions,
)
from dressi.render.raster.topology import contour_edges, left_out, neighbor_table
from dressi.render.raster.weights import free_weights, within_weights

FAR_INSIDE = 1.0
"""Distance given to faces that are clipped: wholly inside, so hard and without gradient."""


@dataclass(frozen=True)
class HardSoft:
    """What ``build_hardsoftras`` gives: the screen faces, K peels, the edge mask E and the
    silhouette. With occlusion: two peels, of the hard faces and of what lies on the other side of
    the nearest edge or line, with E the pixels near an edge, and how they are blended."""

    screen: ScreenFaces
    peels: tuple[Peel, ...]
    edge: Variable
    hard: Variable
    silhouette: Variable
    sigma: Variable
    bands: Bands | None = None

    def blend(self, colors: Sequence[Variable], background: Variable | float = 0.0) -> Variable:
        """Colour image from the colours of the K peels over a background. Gradient to all of
        them."""
        return blend_color(self, colors, background)


def shift(depth: Variable, distance: Variable) -> Variable:
    """Shift (paper, 3.4.2): hard faces in [0, 0.5], soft faces behind, nearer edges first.
    Differs: the listing has edge_dist * 0.5 + 0.5, which needs |edge_dist|."""
    soft = F.maximum(F.abs(distance) * 0.5 + 0.5, NEAREST_RIM)
    return F.where(distance >= 0.0, depth * 0.5, soft)


def any_edge(edges: Variable) -> Variable:
    """FLOAT mask: 1 for faces with an edge in a VEC3 mask of edges."""
    return F.maximum(F.maximum(edges.x, edges.y), edges.z)


def build_rasterize(
    screen: ScreenFaces,
    r: Variable,
    K: int = 1,
    edges: Variable | None = None,
    enlarge: Callable[..., tuple[Variable, ...]] = build_enlarge,
    shift: Callable[[Variable, Variable], Variable] = shift,
    soft: Variable | None = None,
    layer: int = 0,
    cull: bool | Variable = False,
) -> tuple[Peel, ...]:
    """Rasterize enlarged faces and peel K layers.

    r: FLOAT @ 1x1, screen square units, run-time value. A fragment is kept within r of its hard
    face. Layer k holds what lies behind the shifted depth of layer k - 1, as in F.resolve: faces of
    equal depth share a layer. An edge or vertex that several faces share gives all of them the same
    distance and depth, to the last bit, so it is one layer. Every surface is hard in one layer
    only: of its faces, the one that the pixel lies in. edges: VEC3 mask @ (F, 1) of the edges that
    distances are measured to; only faces with one get a soft rim; default all. soft: FLOAT mask @
    (F, 1) of faces with a rim, where it is not that. enlarge, shift: other functions in the place
    of ``build_enlarge`` and ``shift``, for ablations. layer: as for F.rasterize, to tell two of one
    table apart that differ in shift. cull: leave out faces that are seen from their back. Gradient
    to the corners.
    """
    if soft is None and edges is not None:
        soft = any_edge(edges)
    drawn = screen.drawn
    corners = enlarge(drawn, r, soft)
    if cull is not False:
        back = left_out(screen, cull)
        corners = tuple(F.where(back, F.constant(NO_AREA), c) for c in corners)
    p = pixel_positions(screen.size, screen.layers)
    frag = F.rasterize(corners, screen.size, layer)
    a, b, c = (F.lookup(F.stop_gradient(t), frag) for t in drawn.corners)
    face = face_test(a.xy, b.xy, c.xy, p)
    hair = (face.distance < 0.0) * (face.distance >= -HAIR_PX / screen.scale)
    distance = face.distance
    # Outside of a face the distance decides, not the depth.
    z = F.vec3(a.z, b.z, c.z)
    mixed = face.mix(z) if K == 1 else face.mix_alike(z)
    if screen.parts is None:
        # A clipped face is flat in its own projection; weights beyond [0, 1] are right there.
        clipped = is_crossing((a, b, c))
        hair = hair * (1.0 - clipped)
        distance = F.where(clipped, FAR_INSIDE, distance)
        mixed = mixed if K == 1 else F.where(clipped, face.mix(z), mixed)
    keep = F.maximum(distance >= -r, hair)
    z = F.clamp(mixed, 0.0, 1.0)
    if K == 1:
        depth = shift(F.where(hair, 1.0, z), F.where(hair, 0.0, distance))
    else:
        depth = shift(z, distance)
    peels = []
    for k in range(K):
        rows = F.resolve(frag, depth, keep, background=-1, peel=k)
        shifted = F.resolve(depth, depth, keep, background=1, peel=k)
        if k == 0 and K > 1:
            shifted = _fill_holes(shifted, screen.scale)
        counted = None if edges is None else F.lookup(edges, rows)
        if counted is not None and K == 1:
            # What is nearest to a pixel outside of everything lies on the contour. At a corner of
            # it, it may be a face that has the corner, and its own edge of the contour elsewhere.
            counted = F.where(shifted > 0.5, 1.0, counted)
        peels.append(_shade_geometry(screen, rows, shifted, p, counted))
    return tuple(peels)


def _fill_holes(depth: Variable, scale: float) -> Variable:
    """The shifted depth of the first layer, where the nearest rim is hard up to HAIR_PX."""
    # 0.51, so that no rounding of 0.5 + 0.5 * distance leaves a hole.
    return F.where(depth <= 0.5 + 0.51 * HAIR_PX / scale, F.minimum(depth, 0.5), depth)


def _shade_geometry(
    screen: ScreenFaces, rows: Variable, depth: Variable, p: Variable, edges: Variable | None
) -> Peel:
    """The differentiable geometry of the faces that won. rows: INT, of the parts of faces. edges:
    VEC3 mask @ size of those that count; default all."""
    parts = screen.parts
    a, b, c = (F.lookup(t, rows) for t in (screen if parts is None else parts).corners)
    face = signed_distance(a.xy, b.xy, c.xy, p, edges, SLACK_PX / screen.scale)
    distance, stencil = face.distance, F.to_float(F.compare("gte", rows, 0))
    bary = face_weights(screen, rows, (a, b, c), face.weights, face.beta)
    if parts is None:
        return Peel(
            rows, depth, F.where(is_crossing((a, b, c)), FAR_INSIDE, distance), bary, stencil
        )
    return Peel(parts.face(rows), depth, distance, bary, stencil, rows)


def _check(
    vtx_pos: object,
    faces: Any,
    matrix: object,
    size: Any,
    K: object,
    lengths: Mapping[str, object],
) -> None:
    """Raise GraphError for arguments of ``build_hardsoftras`` that cannot be. lengths: in screen
    square units, by name; None where there is a default."""
    inputs: dict[str, object] = {"vtx_pos": vtx_pos, "faces": faces, "matrix": matrix}
    for what, given in inputs.items():
        if not isinstance(given, Variable):
            raise GraphError(
                f"HardSoftRas: {what} must be a Variable, got {type(given).__name__}\n"
                "  hint: make a leaf and send the array to it, or F.leaf(array, vtype)"
            )
    check_faces(faces)
    if not isinstance(size, (tuple, list)) or len(size) != 2 or min(size) < 1:
        raise GraphError(f"HardSoftRas needs a size (width, height) of at least 1x1, got {size!r}")
    if not isinstance(K, (int, np.integer)) or K < 1:
        raise GraphError(f"HardSoftRas needs an integer K >= 1, got {K!r}")
    for name, value in lengths.items():
        if isinstance(value, Variable) or (value is None and name != "r"):
            continue
        if not isinstance(value, (int, float, np.number)) or not 0 <= float(value) <= 1:
            raise GraphError(
                f"{name} must be a number in [0, 1] (1 is the longer side) or a Variable, "
                f"got {value!r}"
            )
        if name == "sigma" and value == 0:
            raise GraphError("sigma must be positive, got 0")


def build_hardsoftras(
    vtx_pos: Variable,
    faces: Variable,
    matrix: Variable,
    size: Size,
    r: Variable | float,
    K: int = 1,
    sigma: Variable | float | None = None,
    delta: Variable | float | None = None,
    max_delta: float = 0.1,
    jitter: Variable | tuple[float, float] | None = None,
    rims: Rims | None = None,
    clip: bool = False,
    occlusion: bool = False,
    cull: bool | Variable = False,
) -> HardSoft:
    """The whole of HardSoftRas up to the silhouette.

    vtx_pos: VEC3 @ (N, 1), world units. faces: IVEC3 @ (F, 1). matrix: MAT4 @ 1x1, layers = views.
    size: image size in pixels. r: reach of gradients, screen square units (1 = the longer side). K:
    layers. sigma: softness, default r / 7 (paper, 3.4.3). delta: reach of the edge mask, default r;
    delta of one pixel with K = 1 is antialiasing mode, delta = 1 is SoftRas mode. r, sigma and
    delta are run-time values when given as Variables @ 1x1: changing them rebuilds nothing (r is
    then clamped to [0, 1]). max_delta: the largest delta that will be sent. jitter: VEC2 @ 1x1 in
    pixels, shifts the projection. rims: which faces get a soft rim, ``all``, ``contour`` (those
    with an edge on the contour) or ``front`` (of the two faces at an edge of the contour the one
    that is seen from its front, so that colours beyond the outline are those of what is seen);
    default front for K = 1, which then measures distances to the outline, inside too: see
    ``build_outline``; else all. clip: cut faces at the near and the far plane, so that they get a
    soft rim and gradients from what is left of them, also to corners that are cut off; by default
    they are drawn hard, without gradient, which is cheaper. occlusion: soft edges, and gradients,
    wherever a surface ends in the picture, before another one too: see ``build_bands``. There are
    two peels then, whatever K is; rims plays no part. cull: leave out faces that are seen from
    their back: the same picture of closed surfaces that are seen from outside, in less time; a
    FLOAT mask @ (F, 1) of the faces to leave out then, where others have two sides. Gradient to
    vtx_pos and matrix. Raises GraphError for wrong types, K < 1 or r outside [0, 1].
    """
    lengths = {"r": r, "delta": delta, "sigma": sigma, "max_delta": max_delta}
    _check(vtx_pos, faces, matrix, size, K, lengths)
    if jitter is not None and not isinstance(jitter, Variable):
        jitter = F.constant(jitter)
    radius = F.clamp(r, 0.0, 1.0) if isinstance(r, Variable) else F.constant(float(r))
    softness = radius * (1.0 / 7.0) if sigma is None else sigma
    softness = softness if isinstance(softness, Variable) else F.constant(float(softness))
    reach = radius if delta is None else delta
    if delta is None and not isinstance(r, Variable):
        max_delta = float(r)
    if not isinstance(reach, Variable):
        max_delta = float(reach)
        reach = F.constant(float(reach))
    screen = build_screen_faces(vtx_pos, faces, matrix, size, jitter, clip)
    rims = ("front" if K == 1 else "all") if rims is None else rims
    if rims not in RIMS:
        raise GraphError(f"rims must be all, contour or front, got {rims!r}")
    if occlusion:
        neighbors = neighbor_table(faces, vtx_pos)
        return _with_occlusion(screen, neighbors, radius, reach, softness, cull)
    if K == 1 and rims == "front":
        first = _hard_faces(screen, cull)
        neighbors = neighbor_table(faces, vtx_pos)
        peels: tuple[Peel, ...] = (build_outline(screen, first, neighbors, radius, cull),)
    else:
        edges, soft = _rims(screen, faces, vtx_pos, rims)
        peels = build_rasterize(screen, radius, K, edges, soft=soft, cull=cull)
        first = peels[0]
    hard = first.depth <= 0.5
    stencil = F.bits.pack_bits(first.depth, 0.5, below=True)
    edge = edge_mask(stencil, reach, screen.size, max_delta)
    silhouette = blend_silhouette(peels, hard, edge, softness)
    return HardSoft(screen, peels, edge, hard, silhouette, softness)


def _rims(
    screen: ScreenFaces, faces: Variable, vtx_pos: Variable, rims: Rims
) -> tuple[Variable | None, Variable | None]:
    """The edges that distances are measured to, VEC3 mask, and the faces with a soft rim; None:
    all."""
    if rims == "all":
        parts = screen.parts
        return None if parts is None else parts.edges(F.constant((1.0, 1.0, 1.0))), None
    neighbors = neighbor_table(faces, vtx_pos)
    edges = contour_edges(screen, neighbors)
    if rims == "contour":
        return edges, None
    # Distances are measured to all of them: a mesh that is inside out shows its backs.
    return edges, any_edge(contour_edges(screen, neighbors, front=True))


def _hard_faces(screen: ScreenFaces, cull: bool | Variable) -> Peel:
    """The faces as they are: distances are of no use."""
    little = build_enlarge_little
    hard = build_rasterize(screen, F.constant(0.0), 1, enlarge=little, cull=cull)[0]
    p, rows = pixel_positions(screen.size, screen.layers), hard.drawn_rows
    a, b, c = (F.lookup(t, rows) for t in screen.drawn.corners)
    u = a.xy - p, b.xy - p, c.xy - p
    weights = within_weights(u, HAIR_PX / screen.scale)
    bary = face_weights(screen, rows, (a, b, c), weights, free_weights(u))
    return replace(hard, bary=bary)


def _with_occlusion(
    screen: ScreenFaces,
    neighbors: Variable,
    r: Variable,
    delta: Variable,
    sigma: Variable,
    cull: bool | Variable,
) -> HardSoft:
    """Hard faces, bands at their edges up to r and delta away, and lines where faces meet."""
    hard = _hard_faces(screen, cull)
    rim, bands = build_bands(screen, hard, neighbors, F.minimum(r, delta), sigma, cull)
    silhouette = bands.cover(hard.stencil)
    return HardSoft(screen, (hard, rim), bands.has, hard.stencil, silhouette, sigma, bands)
