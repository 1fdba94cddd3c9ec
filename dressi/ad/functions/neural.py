"""Small neural networks: dense layers and convolutions with trainable weights.

A feature map is a stack of VEC4 images: layer c holds channels 4c to 4c + 3. Weights are an image
of MAT4: row o, column t * C + c is the block from input layer c at tap t to output layer o (C input
layers; taps row by row; a dense layer has one tap). So one pass computes four outputs a pixel from
blocks of 4 x 4, and the whole layer is one op, however wide. Weights, inputs and gradients are one
bilinear map in three directions, so every backward is one of the other two.
``dressi.render.shading.neural`` makes weights and stacks layers. Paper: left for later (section 7).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from dressi.ad.functions._common import needs_int, needs_variable, sized
from dressi.ad.functions.layers import concat
from dressi.ad.functions.reduce import sum_layers
from dressi.ad.functions.window import border_glsl, border_index, checked_border, place_glsl
from dressi.ad.functions.written_out import dot_glsl, matmul_glsl
from dressi.ad.graph import Function, Size, Variable
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import ANY, MACRO, Op, Shape, apply
from dressi.ad.template import Value, expand_glsl
from dressi.ad.vtype import MAT4, VEC4
from dressi.errors import GraphError
from dressi.kinds import CONV_BORDERS, ConvBorder

LARGEST_KERNEL = 15


def _n_taps(f: Function) -> int:
    return int(f.attr("kernel")) ** 2


def _offsets(kernel: int) -> list[tuple[int, int]]:
    half = kernel // 2
    return [(x - half, y - half) for y in range(kernel) for x in range(kernel)]


_TAP = "ivec2 {y}_q = {y}_p {sign} ivec2({y}_t % {kernel} - {half}, {y}_t / {kernel} - {half}); "
_ZERO = "if ({y}_q.x < 0 || {y}_q.x >= {w} || {y}_q.y < 0 || {y}_q.y >= {h}) continue;"


def _tap_glsl(f: Function, sign: str) -> str:
    """GLSL of the pixel {y}_q that tap {y}_t reads from pixel {y}_p; sign ``-``: transposed."""
    kernel, (w, h), op = f.attr("kernel"), f.inputs[0].size, f.op.name
    if kernel == 1:
        return "ivec2 {y}_q = {y}_p;"
    x, y = (border_glsl("repeat", f"{{y}}_q.{a}", n) for a, n in (("x", w), ("y", h)))
    zero = f.attr("border") == "zero"
    inside = expand_glsl(op, _ZERO, w=w, h=h) if zero else f"{{y}}_q = ivec2({x}, {y});"
    return expand_glsl(op, _TAP, sign=sign, kernel=kernel, half=kernel // 2) + inside


def _expanded(f: Function, template: str, sign: str, **values: Value) -> str:
    """A template of one of the three directions, with what all of them know: {c} input and {o}
    output layers, {pos} {layer} of the output, and the {tap}."""
    pos, layer = place_glsl(f)
    return expand_glsl(f.op.name, template, pos=pos, layer=layer, tap=_tap_glsl(f, sign), **values)


# -- the layer


def _conv_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    x, weight = xs
    taps = attrs["kernel"] ** 2
    if x.vtype is not VEC4:
        raise GraphError(f"features must be VEC4 layers of four channels, got {x.vtype.name}")
    if weight.vtype is not MAT4 or weight.layers != 1:
        raise GraphError(f"weights must be MAT4 of one layer, got {weight.label()}")
    if weight.size[0] % taps:
        raise GraphError(
            f"weights of {weight.size[0]} columns are no multiple of the {taps} taps of the kernel"
        )
    if x.is_table and taps > 1:
        raise GraphError("a table has no neighbours to convolve with")
    c = weight.size[0] // taps
    if x.layers % c:
        raise GraphError(f"weights for {c} layers of features, but there are {x.layers}")
    return VEC4, x.size, x.layers // c * weight.size[1]


_SUM = """ivec2 {y}_p = {pos}; int {y}_v = {layer} / {n}, {y}_{to} = {layer} - {y}_v * {n};
  {y} = vec4(0.0);
  for (int {y}_t = 0; {y}_t < {taps}; {y}_t++) {
    {tap}
    for (int {y}_{over} = 0; {y}_{over} < {m}; {y}_{over}++) {
      mat4 {y}_w = {fetch1}(ivec2({y}_t * {c} + {y}_c, {y}_o), 0);
      vec4 {y}_{value} = {fetch0}({y}_q, {y}_v * {m} + {y}_{over});
      {y} += {product};
    }
  }"""
"""A layer, or its transpose: for each of n layers {to} the sum over taps and m layers {over}."""


def _sum_glsl(f: Function, transposed: bool = False) -> str:
    columns, o = f.inputs[1].size
    c = columns // _n_taps(f)
    if transposed:
        product = f"vec4({', '.join(dot_glsl('{y}_g', f'{{y}}_w[{k}]', 4) for k in range(4))})"
        values: dict[str, Value] = {"to": "c", "n": c, "over": "o", "m": o, "value": "g"}
    else:
        product = matmul_glsl("{y}_w", "{y}_x", 4)
        values = {"to": "o", "n": o, "over": "c", "m": c, "value": "x"}
    sign = "-" if transposed else "+"
    return _expanded(f, _SUM, sign, c=c, taps=_n_taps(f), product=product, **values)


def _read(x: np.ndarray, dx: int, dy: int, border: ConvBorder) -> np.ndarray:
    """(n, H, W, ...) moved so that each pixel holds the one at (dx, dy) from it."""
    h, w = x.shape[1:3]
    rows = border_index(border, np.arange(h) + dy, h)
    columns = border_index(border, np.arange(w) + dx, w)
    seen = (rows >= 0)[:, None] & (columns >= 0)[None, :]
    moved = x[:, np.maximum(rows, 0)[:, None], np.maximum(columns, 0)[None, :]]
    return np.asarray(np.where(seen.reshape(1, h, w, *[1] * (x.ndim - 3)), moved, 0.0))


def _by_image(x: np.ndarray, c: int) -> np.ndarray:
    """(n * c, H, W, 4) -> (n, H, W, c, 4)."""
    n = x.shape[0] // c
    return np.moveaxis(x.reshape(n, c, *x.shape[1:]), 1, 3)


def _by_layer(x: np.ndarray) -> np.ndarray:
    return np.moveaxis(x, 3, 1).reshape(-1, *x.shape[1:3], 4)


def _taps(f: Function, weight: np.ndarray) -> list[tuple[int, int, np.ndarray]]:
    """(dx, dy, blocks (o, c, 4, 4)) of each tap. weight: (1, o, taps * c, 4, 4)."""
    c = weight.shape[2] // _n_taps(f)
    return [
        (dx, dy, weight[0, :, t * c : (t + 1) * c])
        for t, (dx, dy) in enumerate(_offsets(f.attr("kernel")))
    ]


def _sum_ref(f: Function, xs: Sequence[np.ndarray], transposed: bool = False) -> np.ndarray:
    x, weight = xs
    sign, product = (-1, "ocij,nhwoi->nhwcj") if transposed else (1, "ocij,nhwcj->nhwoi")
    x = _by_image(x, weight.shape[1] if transposed else weight.shape[2] // _n_taps(f))
    out = 0.0
    for dx, dy, w in _taps(f, weight):
        out = out + np.einsum(product, w, _read(x, sign * dx, sign * dy, f.attr("border")))
    return _by_layer(np.asarray(out))


# Each is the backward of the other two. f: a Function with the same kernel and border.


def _to_output(f: Function, x: Variable, weight: Variable) -> Variable:
    return apply(CONV, (x, weight), kernel=f.attr("kernel"), border=f.attr("border"))


def _to_input(f: Function, gy: Variable, weight: Variable) -> Variable:
    return apply(CONV_X, (gy, weight), kernel=f.attr("kernel"), border=f.attr("border"))


def _to_weight(f: Function, x: Variable, gy: Variable, size: Size) -> Variable:
    return apply(CONV_W, (x, gy), kernel=f.attr("kernel"), border=f.attr("border"), size=size)


_KERNELS: tuple[tuple[int, ConvBorder], ...] = ((1, "zero"), (3, "zero"), (3, "repeat"))
"""Of the cases, with their borders."""


CONV: Op = Op(
    "conv_channels",
    _conv_infer,
    reads=(ANY,),
    backward=lambda f, gy, i: (
        _to_input(f, gy, f.inputs[1])
        if i == 0
        else _to_weight(f, f.inputs[0], gy, f.inputs[1].size)
    ),
    reference=_sum_ref,
    cases=tuple(
        sized(
            lambda a, b, w, k=k, border=border: apply(
                CONV, (concat([a, b]), w), kernel=k, border=border
            ),
            ((VEC4, -1, 1), (VEC4, -1, 1), (MAT4, -1, 1)),
            *(size, size, (2 * k**2, 2)),
            one_layer=True,
        )
        for (k, border), size in zip(_KERNELS, ((7, 5), (5, 4), (4, 2)), strict=True)
    ),
)
register(CONV, Kernel(_sum_glsl))


# -- to the features: the transposed blocks, read the other way


def _conv_x_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    gy, weight = xs
    c = weight.size[0] // attrs["kernel"] ** 2
    return VEC4, gy.size, gy.layers // weight.size[1] * c


CONV_X: Op = Op(
    "conv_channels_x",
    _conv_x_infer,
    reads=(ANY,),
    backward=lambda f, h, i: (
        _to_output(f, h, f.inputs[1]) if i == 0 else _to_weight(f, h, f.inputs[0], f.inputs[1].size)
    ),
    reference=partial(_sum_ref, transposed=True),
    cases=tuple(
        sized(
            lambda a, w, k=k, b=b: apply(CONV_X, (a, w), kernel=k, border=b),
            ((VEC4, -1, 1), (MAT4, -1, 1)),
            *((5, 4), (2 * k**2, 1)),
            one_layer=True,
            any_type=False,
        )
        for k, b in _KERNELS
    ),
)
register(CONV_X, Kernel(partial(_sum_glsl, transposed=True)))


# -- to the weights: a sum over all pixels, in chunks that run side by side


def _conv_w_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    x, gy = xs
    columns, o = f.attr("size")
    c = columns // _n_taps(f)
    x, gy = _by_image(x, c), _by_image(gy, o)
    out = np.zeros((1, o, columns, 4, 4))
    for t, (dx, dy) in enumerate(_offsets(f.attr("kernel"))):
        seen = _read(x, dx, dy, f.attr("border"))
        out[0, :, t * c : (t + 1) * c] = np.einsum("nhwoi,nhwcj->ocij", gy, seen)
    return out


def _n_pixels(x: Variable, c: int) -> int:
    return x.size[0] * x.size[1] * (x.layers // c)


def _conv_w_expand(f: Function, xs: Sequence[Variable]) -> Variable:
    x, gy = xs
    n = _n_pixels(x, f.attr("size")[0] // _n_taps(f))
    chunks = math.ceil(math.sqrt(n))  # as many chunks to add up as pixels in a chunk
    return sum_layers(apply(CONV_PART, (x, gy), **dict(f.attrs), chunks=chunks))


CONV_W: Op = Op(
    "conv_channels_w",
    lambda xs, a: (MAT4, a["size"], 1),
    kind=MACRO,
    expand=_conv_w_expand,
    backward=lambda f, h, i: (
        _to_input(f, f.inputs[1], h) if i == 0 else _to_output(f, f.inputs[0], h)
    ),
    reference=_conv_w_ref,
    cases=tuple(
        sized(
            lambda x, gy, k=k, b=b: apply(CONV_W, (x, gy), kernel=k, border=b, size=(k**2, 1)),
            ((VEC4, -1, 1), (VEC4, -1, 1)),
            (5, 4),
            any_type=False,
        )
        for k, b in _KERNELS
    ),
)
register(CONV_W)


_PART = """int {y}_t = {pos}.x / {c}, {y}_c = {pos}.x - {y}_t * {c}, {y}_o = {pos}.y;
  {y} = mat4(0.0);
  for (int {y}_k = {layer} * {length}; {y}_k < min(({layer} + 1) * {length}, {n}); {y}_k++) {
    ivec2 {y}_p = ivec2({y}_k % {w}, {y}_k / {w} % {h}); int {y}_v = {y}_k / {area};
    {tap}
    vec4 {y}_g = {fetch1}({y}_p, {y}_v * {o} + {y}_o);
    vec4 {y}_x = {fetch0}({y}_q, {y}_v * {c} + {y}_c);
    for (int {y}_i = 0; {y}_i < 4; {y}_i++) {y}[{y}_i] += {y}_g * {y}_x[{y}_i];
  }"""


def _part_glsl(f: Function) -> str:
    x = f.inputs[0]
    (columns, o), chunks = f.attr("size"), f.attr("chunks")
    c, (w, h) = columns // _n_taps(f), x.size
    n = _n_pixels(x, c)
    length = -(-n // chunks)
    return _expanded(f, _PART, "+", c=c, o=o, n=n, w=w, h=h, area=w * h, length=length)


def _part_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    (columns, o), (x, gy) = f.attr("size"), xs
    n, chunks = _n_pixels(f.inputs[0], columns // _n_taps(f)), f.attr("chunks")
    pixels = _by_image(gy, o)
    number = np.arange(n).reshape(pixels.shape[:3]) // -(-n // chunks)
    chosen = [np.where((number == k)[..., None, None], pixels, 0.0) for k in range(chunks)]
    return np.concatenate([_conv_w_ref(f, (x, _by_layer(part))) for part in chosen])


CONV_PART: Op = Op(
    "conv_channels_part",
    lambda xs, a: (MAT4, a["size"], a["chunks"]),
    reads=(ANY,),
    linear_in=(0, 1),
    reference=_part_ref,
    cases=tuple(
        sized(
            lambda x, gy, kernel=kernel: apply(
                CONV_PART, (x, gy), kernel=kernel, border="zero", size=(kernel**2, 1), chunks=4
            ),
            ((VEC4, -1, 1), (VEC4, -1, 1)),
            (5, 3),
            gradient=False,
            any_type=False,
        )
        for kernel in (1, 3)
    ),
)
register(CONV_PART, Kernel(_part_glsl))


def _layer(name: str, x: Any, weight: Any, bias: Any, kernel: int, border: str) -> Variable:
    """What dense and conv2d share."""
    needs_variable(name, x)
    needs_variable(name, weight)
    y = apply(CONV, (x, weight), kernel=kernel, border=border)
    if bias is None:
        return y
    o = weight.size[1]
    if needs_variable(name, bias).vtype is not VEC4 or (bias.size, bias.layers) != ((1, 1), o):
        raise GraphError(f"F.{name}: the bias must be VEC4@1x1x{o}, got {bias.label()}")
    n = y.layers // o
    return y + (bias if n == 1 else concat([bias] * n))


def dense(x: Variable, weight: Variable, bias: Variable | None = None) -> Variable:
    """A dense layer at every pixel: the matrix of all channels times the channels of the pixel.

    x: VEC4 @ any size, layers = n input channels / 4 (or a multiple: a stack of feature maps, one
    after the other). weight: MAT4 @ (input layers, output layers), blocks of the matrix. bias: VEC4
    @ 1x1, layers = output layers, or None. Returns VEC4 of x's size, layers = output channels / 4.
    Gradient to all three, exact. Raises GraphError for other types and for layers that do not fit.
    """
    return _layer("dense", x, weight, bias, 1, "zero")


def conv2d(
    x: Variable,
    weight: Variable,
    bias: Variable | None = None,
    kernel: int = 3,
    border: ConvBorder = "zero",
) -> Variable:
    """Convolution with trainable weights (a correlation, as networks have it); stride 1.

    x: VEC4 @ any size but tables, layers = input channels / 4 (or a multiple: a stack of feature
    maps). weight: MAT4 @ (kernel^2 * input layers, output layers); column t * input layers + c is
    the block of tap t, taps row by row from the top left. bias: VEC4 @ 1x1, layers = output layers.
    kernel: odd, up to 15. border: ``zero``, or ``repeat`` for textures that tile. Gradient to all
    three, exact. Raises GraphError for other types, kernels, and layers that do not fit.
    """
    kernel = needs_int("conv2d", "kernel", kernel)
    if kernel < 1 or kernel % 2 == 0 or kernel > LARGEST_KERNEL:
        raise GraphError(f"F.conv2d: the kernel must be odd, 1 to {LARGEST_KERNEL}, got {kernel}")
    if checked_border("conv2d", border) not in CONV_BORDERS:
        raise GraphError(f"F.conv2d: the border must be one of {CONV_BORDERS}, got {border!r}")
    return _layer("conv2d", x, weight, bias, kernel, border)
