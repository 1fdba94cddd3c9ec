"""Images as a whole: pixel coordinates, layer numbers, expansion, neighbourhoods, layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dressi.ad.functions._common import (
    constant,
    lift,
    like,
    like_float,
    needs_int,
    needs_variable,
    sized,
)
from dressi.ad.functions.arith import add_n, clamp, to_float, to_int
from dressi.ad.graph import Function, Size, Variable, checked_shape
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import ANY, FREE, MACRO, SAME, Case, Op, Shape, apply
from dressi.ad.vtype import FLOAT, INT, VEC2, VEC3
from dressi.errors import GraphError


def _coord_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    w, h = f.attr("size")
    return np.stack(np.meshgrid(np.arange(w) + 0.5, np.arange(h) + 0.5), -1)


PIXEL_COORD = Op(
    "pixel_coord",
    lambda xs, a: (VEC2, a["size"], a["layers"]),
    kind=FREE,
    reference=_coord_ref,
    no_cases="no inputs; tested in test_evaluate.py",
)
register(
    PIXEL_COORD,
    Kernel(
        # Inside a larger shader {pos} is that shader's.
        lambda f: "{y} = vec2(0.5);" if f.attr("size") == (1, 1) else "{y} = vec2({pos}) + 0.5;"
    ),
)

LAYER_INDEX = Op(
    "layer_index",
    lambda xs, a: (INT, (1, 1), a["layers"]),
    kind=FREE,
    reference=lambda f, xs: np.arange(f.attr("layers"), dtype=np.float64).reshape(-1, 1, 1, 1),
    no_cases="no inputs; tested in test_evaluate.py",
)
register(LAYER_INDEX, Kernel(lambda f: "{y} = 0;" if f.attr("layers") == 1 else "{y} = {layer};"))


EXPAND = Op(
    "expand",
    lambda xs, a: (xs[0].vtype, a["size"], a["layers"]),
    additive=True,
    exact=True,
    zero_if=(0,),
    backward=lambda f, gy, i: gy,
    reference=lambda f, xs: xs[0],
    cases=(sized(lambda a: expand(a, (5, 3), 2), ((VEC3, -2, 2),), (1, 1), one_layer=True),),
)
register(EXPAND, Kernel("{y} = {x0};"))

_EDGE_GLSL = (
    "float {y}_c = {fetch0}({pos}, {layer}), {y}_d = 0.0; ivec2 {y}_p = {pos};\n"
    "  if ({y}_p.x > 0) {y}_d += abs({fetch0}({y}_p - ivec2(1, 0), {layer}) - {y}_c);\n"
    "  if ({y}_p.x < {w0} - 1) {y}_d += abs({fetch0}({y}_p + ivec2(1, 0), {layer}) - {y}_c);\n"
    "  if ({y}_p.y > 0) {y}_d += abs({fetch0}({y}_p - ivec2(0, 1), {layer}) - {y}_c);\n"
    "  if ({y}_p.y < {h0} - 1) {y}_d += abs({fetch0}({y}_p + ivec2(0, 1), {layer}) - {y}_c);\n"
    "  {y} = {y}_d > 0.0 ? 1.0 : 0.0;"
)


def differs(x: np.ndarray) -> np.ndarray:
    """Return whether pixels of x (layers, H, W, ...) differ from one of their four neighbours."""
    out = np.zeros(x.shape, bool)
    dx, dy = x[:, :, 1:] != x[:, :, :-1], x[:, 1:] != x[:, :-1]
    out[:, :, 1:] |= dx
    out[:, :, :-1] |= dx
    out[:, 1:] |= dy
    out[:, :-1] |= dy
    return out


BORDER = Op(
    "border",
    like_float,
    reads=(ANY,),
    flat=True,
    reference=lambda f, xs: differs(xs[0]),
    cases=(
        sized(lambda a: border((a > 0.5).__add__(0.0)), ((FLOAT, 0, 1),), (7, 5), gradient=False),
    ),
)
register(BORDER, Kernel(_EDGE_GLSL))


def spread(x: np.ndarray, axis: int, steps: Iterable[int]) -> np.ndarray:
    """Return the largest of each pixel and those that many steps away, on both sides of an axis; a
    step beyond the border reads the pixel there."""
    out, last, here = x.copy(), x.shape[axis] - 1, np.arange(x.shape[axis])
    for step in steps:
        for at in (np.maximum(here - step, 0), np.minimum(here + step, last)):
            np.maximum(out, np.take(x, at, axis), out=out)
    return out


def _max_tap_glsl(f: Function) -> str:
    """A tap beyond the frame reads the pixel there: an earlier pass has spread what lies inside
    over it, and of its reach a part is inside."""
    before, behind = (
        ("ivec2(max({pos}.x - {x1}, 0), {pos}.y)", "ivec2(min({pos}.x + {x1}, {w0} - 1), {pos}.y)")
        if f.attr("axis") == 0
        else (
            "ivec2({pos}.x, max({pos}.y - {x1}, 0))",
            "ivec2({pos}.x, min({pos}.y + {x1}, {h0} - 1))",
        )
    )
    return (
        "{y} = {fetch0}({pos}, {layer});\n"
        f"  {{y}} = max({{y}}, max({{fetch0}}({before}, {{layer}}), "
        f"{{fetch0}}({behind}, {{layer}})));"
    )


MAX_TAP: Op = Op(
    "max_tap",
    like_float,
    reads=(ANY, SAME),
    reference=lambda f, xs: spread(xs[0], 2 - f.attr("axis"), xs[1].reshape(-1).astype(int)),
    cases=(
        sized(
            lambda a: apply(MAX_TAP, (a, constant(2, INT)), axis=0),
            ((FLOAT, 0, 1),),
            (7, 5),
            gradient=False,
        ),
    ),
)
register(MAX_TAP, Kernel(_max_tap_glsl))


def _dilate_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    if xs[1].vtype is not FLOAT or xs[1].size != (1, 1):
        raise GraphError(f"the radius must be a FLOAT of size 1x1, got {xs[1].label()}")
    return like_float(xs, attrs)


def _widths(max_radius: int) -> list[int]:
    """How far each pass reaches: 1, 3, 9, ... until their sum is at least max_radius."""
    widths: list[int] = []
    while sum(widths) < max_radius:
        widths.append(3 ** len(widths))
    return widths


def _dilate_expand(f: Function, xs: Sequence[Variable]) -> Variable:
    """Steps that triple the reach: 3 taps a pass, log3(radius) passes an axis."""
    image, radius = xs
    reach = 0
    for width in _widths(f.attr("max_radius")):
        step = to_int(clamp(radius + 0.5 - float(reach), 0.0, float(width)))
        for axis in (0, 1):
            image = apply(MAX_TAP, (image, step), axis=axis)
        reach += width
    return image


def _dilate_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    reach = sum(_widths(f.attr("max_radius")))
    radius = int(np.floor(np.clip(xs[1].reshape(-1)[0] + 0.5, 0, reach)))
    rows = spread(xs[0], 1, range(1, radius + 1))
    return spread(rows, 2, range(1, radius + 1))


DILATE = Op(
    "dilate",
    _dilate_infer,
    kind=MACRO,
    expand=_dilate_expand,
    reference=_dilate_ref,
    cases=tuple(
        sized(
            lambda a, r=r: dilate((a > 0.9).__add__(0.0), r, 12),
            ((FLOAT, 0, 1),),
            (37, 21),
            gradient=False,
        )
        for r in (0.0, 1.0, 2.0, 5.0, 11.6, 99.0)
    ),
)
register(DILATE)


def _modulo(i: str, n: str) -> str:
    """GLSL of i modulo n, from 0 to n - 1 (its own operator is undefined for negative numbers)."""
    return f"({i} >= 0 ? {i} % {n} : {n} - 1 - (-1 - {i}) % {n})"


def _take_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    x, index = xs
    if index.vtype is not INT or index.size != (1, 1):
        raise GraphError(f"the layer must be INT @ 1x1, got {index.label()}")
    return x.vtype, x.size, index.layers


def _take_backward(f: Function, gy: Variable, i: int) -> Variable | None:
    if i == 1:
        return None
    x, index = f.inputs
    pairs = [(gy, index)]
    if index.layers > 1:
        pairs = [(take_layer(gy, k), take_layer(index, k)) for k in range(index.layers)]
    return add_n([apply(PUT_LAYER, pair, size=x.size, layers=x.layers) for pair in pairs])


TAKE_LAYER = Op(
    "take_layer",
    _take_infer,
    reads=(ANY, SAME),
    why_zero="another layer is taken",
    backward=_take_backward,
    reference=lambda f, xs: xs[0][xs[1].reshape(-1).astype(int) % len(xs[0])],
    cases=tuple(
        sized(
            lambda a, n=n: take_layer(
                # Of four layers of three the last is the first again: its gradient is a sum.
                a * (to_float(layer_index(3)) * 1.5 + 1.0),
                layer_index(4) if n is None else n,
            ),
            ((VEC3, -2, 2),),
            (4, 3),
        )
        for n in (0, 2, 7, -1, None)
    ),
)
register(TAKE_LAYER, Kernel("{y} = {fetch0}({pos}, " + _modulo("{x1}", "{l0}") + ");"))


def _put_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    layers = f.attr("layers")
    out = np.zeros((layers, *xs[0].shape[1:]))
    out[int(xs[1].reshape(-1)[0]) % layers] = xs[0][0]
    return out


PUT_LAYER: Op = Op(
    "put_layer",
    lambda xs, a: (_take_infer(xs, a)[0], a["size"], a["layers"]),
    reads=(SAME, SAME),
    backward=lambda f, gy, i: take_layer(gy, f.inputs[1]) if i == 0 else None,
    reference=_put_ref,
    cases=(
        sized(
            lambda a: apply(PUT_LAYER, (take_layer(a, 2), constant(1, INT)), size=(4, 3), layers=3),
            ((VEC3, -2, 2),),
            (4, 3),
        ),
    ),
)
register(PUT_LAYER, Kernel("{y} = " + _modulo("{x1}", "{ly}") + " == {layer} ? {x0} : {T}(0);"))


# -- the Sobol sequence

_like_int = like("INT", lambda t: t is INT)


def _sobol_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    out = np.empty((*xs[0].shape[:3], 2))
    for where, n in np.ndenumerate(xs[0][..., 0].astype(np.int64)):
        a = b = 0
        v, bits = 1 << 31, int(n)
        for k in range(32):
            if bits >> k & 1:
                a ^= 1 << (31 - k)
                b ^= v
            v ^= v >> 1
        out[where] = a / 2**32, b / 2**32
    return out


SOBOL: Op = Op(
    "sobol",
    lambda xs, a: (VEC2, *_like_int(xs, a)[1:]),
    reference=_sobol_ref,
    cases=(Case(lambda a: apply(SOBOL, (a,)), ((INT, 0, 500),), gradient=False),),
)
register(
    SOBOL,
    Kernel(
        "uint {y}_n = uint({x0}), {y}_v = 0x80000000u, {y}_r = 0u;\n"
        "  for (uint i = {y}_n; i != 0u; i >>= 1) { if ((i & 1u) != 0u) {y}_r ^= {y}_v; "
        "{y}_v ^= {y}_v >> 1; }\n"
        "  {y} = vec2(float(bitfieldReverse({y}_n) >> 8), float({y}_r >> 8)) / 16777216.0;"
    ),
)


def take_layer(x: Variable, index: Any) -> Variable:
    """One layer of a stack, e.g. the view of this step; of several indices a stack of as many.

    x: any type @ any size, n layers. index: INT @ 1x1, a layer per index, run-time values, taken
    modulo n, so that a step counter goes through all layers in turn. Gradient to x: to those
    layers, 0 elsewhere. Raises GraphError for another index.
    """
    needs_variable("take_layer", x)
    if not isinstance(index, Variable):
        index = constant(needs_int("take_layer", "index", index), INT)
    return apply(TAKE_LAYER, (x, index))


def pixel_coord(size: Size, layers: int = 1) -> Variable:
    """VEC2 @ size: position of each pixel's centre in pixels from the top left, (x + 0.5, y + 0.5).
    No gradient."""
    size, layers = checked_shape("F.pixel_coord", size, layers)
    return apply(PIXEL_COORD, (), size=size, layers=layers)


def layer_index(layers: int) -> Variable:
    """INT @ 1x1, layers: the number of the layer, from 0. No gradient."""
    return apply(LAYER_INDEX, (), layers=checked_shape("F.layer_index", (1, 1), layers)[1])


def expand(x: Variable, size: Size, layers: int = 1) -> Variable:
    """x repeated to the given size and layers: 1x1 to any size, one layer to n.

    x: any type. Gradient: summed. Raises GraphError when x does not fit.
    """
    needs_variable("expand", x)
    size, layers = checked_shape("F.expand", size, layers)
    if x.size == size and x.layers == layers:
        return x
    if x.size not in ((1, 1), size) or x.layers not in (1, layers):
        raise GraphError(f"F.expand: {x.label()} does not expand to {size} x {layers} layers")
    return apply(EXPAND, (x,), size=size, layers=layers)


def border(mask: Variable) -> Variable:
    """1 where a FLOAT mask differs from one of its four neighbours in the same layer, else 0.
    No gradient."""
    return apply(BORDER, (mask,))


def dilate(mask: Variable, radius: Any, max_radius: int) -> Variable:
    """Maximum of a FLOAT image over the square of (2 R + 1)^2 pixels, R = floor(radius + 0.5).

    radius: FLOAT @ 1x1, pixels, a run-time value up to max_radius (larger ones act as the reach
    that the passes have, at least max_radius). Stops at the border of each layer. No gradient.
    Raises GraphError for a max_radius below 0.
    """
    (radius,) = lift("dilate", radius)
    if needs_int("dilate", "max_radius", max_radius) < 0:
        raise GraphError(f"F.dilate: max_radius must not be negative, got {max_radius}")
    return apply(DILATE, (mask, to_float(radius)), max_radius=int(max_radius))


def sobol(index: Variable) -> Variable:
    """VEC2 in [0, 1)^2: point ``index`` (INT, from 0) of the two-dimensional Sobol sequence.
    No gradient. Source: Sobol 1967; paper, 3.3.2."""
    return apply(SOBOL, (index,))
