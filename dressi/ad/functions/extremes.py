"""Largest and smallest pixel, where it is, and norms over pixels.

Pyramids of blocks as in ``reduce``. What is equal to the extreme shares the gradient evenly, so
that sums are kept, as at a tie of F.minimum.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from dressi.ad.functions._common import constant, like_components, needs_variable, sized
from dressi.ad.functions.arith import maximum, minimum, to_int
from dressi.ad.functions.components import sum_components
from dressi.ad.functions.elementary import abs, sqrt
from dressi.ad.functions.image import layer_index, pixel_coord
from dressi.ad.functions.reduce import (
    BLOCK,
    block_infer,
    block_loops,
    block_size,
    blocks,
    pixels_infer,
    sum,
)
from dressi.ad.functions.select import equal, safe_div, where
from dressi.ad.functions.stop import stop_gradient
from dressi.ad.functions.window import place_glsl
from dressi.ad.graph import Function, Variable, short
from dressi.ad.idioms import hinted
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import ANY, MACRO, Case, Op, apply
from dressi.ad.vtype import FLOAT, INT, IVEC2, VEC3
from dressi.errors import GraphError

_NUMPY = {"max": np.max, "min": np.min}


def _block_glsl(f: Function) -> str:
    pos, here = place_glsl(f)
    layer, first_layer = ("{y}_l", "0") if f.attr("merge_layers") else (here, here)
    is_table = f.inputs[0].size[1] == 1
    first = f"{pos}.x * {BLOCK * BLOCK}, 0" if is_table else f"{pos} * {BLOCK}"
    loops, at = block_loops(f, pos, "{y}_i", "{y}_j")
    lines = [f"{{y}} = {{fetch0}}(ivec2({first}), {first_layer});", *loops]
    return "\n  ".join([*lines, f"  {{y}} = {f.attr('kind')}({{y}}, {{fetch0}}({at}, {layer}));"])


def _block_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    kind = f.attr("kind")
    return blocks(f, xs[0], -np.inf if kind == "max" else np.inf, _NUMPY[kind])


BLOCK_EXTREME: Op = Op(
    "block_extreme",
    lambda xs, a: (like_components(xs, a)[0], *block_infer(xs, a)[1:]),
    reads=(ANY,),
    once=(0,),
    reference=_block_ref,
    cases=tuple(
        sized(
            lambda a, kind=kind, merge=merge: apply(
                BLOCK_EXTREME, (a,), kind=kind, merge_layers=merge
            ),
            (given,),
            size,
            gradient=False,
        )
        for kind in ("max", "min")
        for merge in (False, True)
        for given, size in (((VEC3, -2, -1), (13, 9)), ((INT, 1, 9), (100, 1)))
    ),
)
register(BLOCK_EXTREME, Kernel(_block_glsl))


def _extreme_expand(f: Function, xs: Sequence[Variable]) -> Variable:
    """A pyramid; layers are taken together in its last pass."""
    x, first = xs[0], True
    while first or x.size != (1, 1):
        first = False
        merge = block_size(x.size) == (1, 1) and not f.attr("per_layer")
        x = apply(BLOCK_EXTREME, (x,), kind=f.op.name, merge_layers=merge and x.layers > 1)
    return x


def _extreme_backward(f: Function, gy: Variable, i: int) -> Variable:
    x, y = f.inputs[0], f.output
    hit = equal(x, stop_gradient(y))
    share = safe_div(gy, sum(hit, f.attr("per_layer")))
    return where(hit, share, constant(0.0, gy.vtype))


def _extreme(name: str) -> Op:
    def build(a: Variable, per_layer: bool = False) -> Variable:
        return apply(_ROWS[name], (a,), per_layer=per_layer)

    return register(
        Op(
            name,
            lambda xs, a: (like_components(xs, a)[0], *pixels_infer(xs, a)[1:]),
            kind=MACRO,
            expand=_extreme_expand,
            backward=_extreme_backward,
            reference=lambda f, xs: _NUMPY[name](
                xs[0], axis=(1, 2) if f.attr("per_layer") else (0, 1, 2), keepdims=True
            ),
            cases=(
                Case(lambda a: build(a), ((VEC3, -2, 2),)),
                Case(lambda a: build(a * a, True), ((FLOAT, 0.1, 2),)),
                Case(lambda a: build(a), ((IVEC2, -99, 99),), gradient=False),
            ),
        )
    )


_ROWS = {name: _extreme(name) for name in _NUMPY}


def _apply_extreme(name: str, x: Variable, per_layer: bool) -> Variable:
    needs_variable(name, x)
    if x.size == (1, 1) and (x.layers == 1 or per_layer) and not x.vtype.is_matrix:
        return x
    return apply(_ROWS[name], (x,), per_layer=bool(per_layer))


def _one_or_two(name: str, a: Any, b: Any, per_layer: bool) -> Variable:
    """Return the extreme pixel of a, or of a and b component by component."""
    if isinstance(b, bool):
        message = f"F.{name}(x, {b}) is F.{name}(x, per_layer={b}) now"
        warnings.warn(message, DeprecationWarning, stacklevel=4)
        b, per_layer = None, b
    if b is None:
        return _apply_extreme(name, a, per_layer)
    if per_layer:
        raise GraphError(f"F.{name}: per_layer is for one operand, got two")
    return maximum(a, b) if name == "max" else minimum(a, b)


@hinted
def max(x: Any, b: Any = None, *, per_layer: bool = False) -> Variable:
    """Return the largest value of each component over all pixels and layers, @ 1x1 (``per_layer``:
    one per layer); of two operands the larger per component, as ``F.maximum`` does.

    x: FLOAT, VECn, INT, IVECn @ any size. b: None, or what F.maximum takes. Gradient: to the pixels
    that hold the value, in equal shares; of two operands as in F.maximum. Raises GraphError for a
    matrix, and for per_layer with two operands.
    """
    return _one_or_two("max", x, b, per_layer)


@hinted
def min(x: Any, b: Any = None, *, per_layer: bool = False) -> Variable:
    """Return the smallest value of each component over all pixels and layers, @ 1x1 (``per_layer``:
    one per layer); of two operands the smaller per component, as ``F.minimum`` does.

    x: FLOAT, VECn, INT, IVECn @ any size. b: None, or what F.minimum takes. Gradient: to the pixels
    that hold the value, in equal shares; of two operands as in F.minimum. Raises GraphError for a
    matrix, and for per_layer with two operands.
    """
    return _one_or_two("min", x, b, per_layer)


def _position(name: str, x: Variable, per_layer: bool) -> Variable:
    """The smallest number of a pixel that holds the extreme."""
    if needs_variable("arg" + name, x).vtype not in (FLOAT, INT):
        raise GraphError(f"F.arg{name}: needs FLOAT or INT, got {x.label()}")
    w, h = x.size
    at = pixel_coord(x.size)
    number = to_int(at.x) + to_int(at.y) * w
    if not per_layer and x.layers > 1:
        number = number + layer_index(x.layers) * (w * h)
    hit = equal(x, _apply_extreme(name, x, per_layer))
    return min(where(hit, number, constant(2**31 - 1, INT)), per_layer=per_layer)


@hinted
def argmax(x: Variable, per_layer: bool = False) -> Variable:
    """INT @ 1x1: number of the first pixel that holds the largest value, counted row by row, then
    layer by layer (``per_layer``: one a layer, counted in it). FLOAT, INT. No gradient."""
    return _position("max", x, per_layer)


@hinted
def argmin(x: Variable, per_layer: bool = False) -> Variable:
    """INT @ 1x1: number of the first pixel that holds the smallest value, counted row by row, then
    layer by layer (``per_layer``: one a layer, counted in it). FLOAT, INT. No gradient."""
    return _position("min", x, per_layer)


@hinted
def norm_pixels(x: Variable, p: int = 2, per_layer: bool = False) -> Variable:
    """FLOAT @ 1x1: norm over all components, pixels and layers (``per_layer``: one a layer).

    x: FLOAT, VECn @ any size. p: 1 (sum of absolute values) or 2 (Euclidean). Gradient to x: of p =
    1 the sign, of p = 2 x / norm; 0 where x is 0 for p = 1, and everywhere at norm 0. Raises
    GraphError for another p or type.
    """
    if needs_variable("norm_pixels", x).vtype.is_int or x.vtype.is_matrix:
        raise GraphError(f"F.norm_pixels: needs FLOAT or VECn, got {x.label()}")
    if p not in (1, 2):
        raise GraphError(f"F.norm_pixels: p must be 1 or 2, got {short(p)}")
    if p == 1:
        return sum(sum_components(abs(x)), per_layer)
    return sqrt(sum(sum_components(x * x), per_layer))
