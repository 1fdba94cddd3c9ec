"""Rasterization: candidate fragments, and their way through the depth test to pixels.

``rasterize`` gives, per *fragment*, the number of the primitive that made it. Ops on it stay per
fragment (``Variable.fragment_of``), in the same shader, because they decide depth and discard.
``resolve`` takes a fragment value through the depth test: the pixel gets the value of its nearest
kept fragment. Neither has a gradient: differentiate through ``lookup`` with the resolved id. Paper:
Rasterize, SetFragDepth and PeelDepth in A.5. Differs: in the listing, the order of an attachment
after SetFragDepth is implied; here it is a data flow edge, so the packer cannot separate what
belongs together.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from dressi.ad.functions._common import lift, needs_int
from dressi.ad.graph import Size, Variable, checked_shape, short
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import RASTER, SAME, VERTEX, Op, Shape, apply
from dressi.ad.vtype import FLOAT, INT, VEC4
from dressi.errors import GraphError
from dressi.kinds import CULLS, Cull


def _rasterize_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    if len(xs) not in (3, 4) or any(x.vtype is not VEC4 for x in xs):
        raise GraphError("needs 3 or 4 tables of VEC4 clip positions")
    if len({(x.size, x.layers) for x in xs}) != 1:
        raise GraphError("the corner tables must have one size and one number of layers")
    return INT, attrs["size"], xs[0].layers


RASTERIZE = Op(
    "rasterize",
    _rasterize_infer,
    reads=(VERTEX,),
    kind=RASTER,
    no_cases="values per fragment; tested in test_evaluate.py and tests/render",
)
register(RASTERIZE, Kernel("{y} = {primitive};"))


def _resolve_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    value, depth, keep = xs
    if depth.vtype is not FLOAT or keep.vtype is not FLOAT:
        raise GraphError(f"depth and keep must be FLOAT, got {depth.vtype.name}, {keep.vtype.name}")
    if value.vtype.is_matrix:
        raise GraphError("a matrix cannot be resolved")
    if depth.fragment_of is None:
        raise GraphError("depth must be a value per fragment (made from F.rasterize)")
    raster = depth.fragment_of.output
    return value.vtype, raster.size, raster.layers


RESOLVE = Op(
    "resolve",
    _resolve_infer,
    reads=(SAME, SAME, SAME),
    fragment_exit=True,
    no_cases="values per fragment; tested in test_evaluate.py and tests/render",
)
register(RESOLVE, Kernel("{y} = {x0};"))


def rasterize(
    corners: Sequence[Variable],
    size: Size,
    layer: int = 0,
    cull: Cull | None = None,
    scissor: Sequence[int] | Sequence[Sequence[int]] | None = None,
) -> Variable:
    """Rasterize triangles (3 corners) or quads (4: triangles 0 1 2 and 0 2 3) with the hardware.

    corners: VEC4 clip positions @ (n, 1), layers: corner k of every primitive; z in [0, w] is kept,
    what lies outside is clipped. size: (width, height) of the image, from 1x1 on; each layer is
    drawn into its own. Returns INT per fragment: the number of the primitive. Vulkan's top-left
    rule: adjacent primitives share no pixel centre. layer: number of the depth peel; tells equal
    calls apart, since each has a depth test of its own. cull: None draws both orientations;
    ``back`` leaves out triangles that run clockwise in the picture (whose inside is seen, with the
    corners counter-clockwise from outside), ``front`` the others; each triangle of a quad is judged
    by itself, by its visible part where corners lie behind the camera. scissor: (x, y, width,
    height) in pixels, or one such rectangle a layer: nothing is drawn outside of it. No gradient.
    Raises GraphError for another cull mode and for rectangles that leave the image.
    """
    if not isinstance(corners, (list, tuple)):
        raise GraphError(f"F.rasterize: corners must be a list of Variables, got {short(corners)}")
    size, _ = checked_shape("F.rasterize", size)
    layer = needs_int("rasterize", "layer", layer)
    if cull not in (None, *CULLS):
        raise GraphError(f"F.rasterize: cull must be None, 'back' or 'front', got {short(cull)}")
    n_layers = max((c.layers for c in corners if isinstance(c, Variable)), default=1)
    return apply(
        RASTERIZE,
        tuple(corners),
        size=size,
        layer=layer,
        cull=cull or "none",
        scissor=_rectangles(scissor, size, n_layers),
    )


def _rectangles(scissor: Any, size: Size, layers: int) -> tuple[tuple[int, ...], ...]:
    """No rectangle, one for all layers, or one for each."""
    if scissor is None:
        return ()
    where = "F.rasterize"
    try:
        one = len(scissor) == 4 and not hasattr(scissor[0], "__len__")
        given = [scissor] if one else list(scissor)
        found = tuple(tuple(operator.index(v) for v in r) for r in given)
        ok = all(len(r) == 4 for r in found)
    except (TypeError, IndexError, KeyError):
        ok = False
    if not ok or not found:
        raise GraphError(
            f"{where}: scissor must be (x, y, width, height) in whole pixels, or one such "
            f"rectangle for each of {layers} layers, got {short(scissor)}"
        )
    if len(found) not in (1, layers):
        raise GraphError(f"{where}: {len(found)} scissors for {layers} layers (one, or one each)")
    for x, y, w, h in found:
        if min(x, y, w, h) < 0 or x + w > size[0] or y + h > size[1]:
            raise GraphError(
                f"{where}: scissor {(x, y, w, h)} leaves the image of {size[0]}x{size[1]} pixels"
            )
    return found


def resolve(
    value: Any, depth: Variable, keep: Any = 1.0, background: float = 0.0, peel: int = 0
) -> Variable:
    """Value of the nearest kept fragment at every pixel, or of the nearest behind other layers.

    value: per fragment, any type but matrices. depth: FLOAT per fragment in [0, 1], smaller is
    nearer; at a tie the primitive drawn first wins. keep: FLOAT per fragment, 0 discards.
    background: value (in every component) where there is no fragment. peel: number of the layer, 0
    the nearest; layer k is the nearest of the kept fragments that lie behind layer k - 1, so
    fragments of equal depth share a layer. Layers are drawn one by one (depth peeling), or found
    all at once in a compute shader (a k-buffer): the same ones. All resolves of one rasterization
    share depth and keep. No gradient. Raises GraphError for a peel below 0. Source: Everitt 2001,
    Interactive Order-Independent Transparency; paper, 3.4.2.
    """
    value, depth, keep = lift("resolve", value, depth, keep)
    peel = needs_int("resolve", "peel", peel)
    if peel < 0:
        raise GraphError(f"F.resolve: peel must be at least 0, got {peel}")
    return apply(RESOLVE, (value, depth, keep), background=float(background), peel=peel)
