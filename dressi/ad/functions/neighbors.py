"""Neighbourhoods: shift, convolution with constant weights, blurs, image gradients, erosion.

All stop at the border of each layer. One row does the work: a correlation with a small kernel of
numbers, whose transposed is a read too (a pixel asks which pixels have read it, and through which
weights), so gradients are exact under every border and nothing is scattered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dressi.ad.functions._common import (
    like_floats,
    literal,
    needs_int,
    needs_variable,
    numbers,
    sized,
)
from dressi.ad.functions.arith import neg
from dressi.ad.functions.image import dilate
from dressi.ad.functions.window import (
    BORDERS,
    WINDOW,
    border_glsl,
    border_index,
    checked_border,
    gather,
    gather_transposed,
    offset_of,
    place_glsl,
    readers_glsl,
)
from dressi.ad.graph import Function, Variable, short
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import ANY, Case, Op, Shape, apply
from dressi.ad.vtype import FLOAT, VEC2, VEC3
from dressi.errors import GraphError
from dressi.kinds import IMAGE_GRADIENTS, Border, ImageGradient

Weights = tuple[tuple[float, ...], ...]

UNROLLED = 9
"""Taps up to which the loop over a kernel is written out: no weights to look up."""
MOST_TAPS = 1 << 12
"""Numbers of one kernel: they are constants of the shader."""
SOBEL = ((-1, 0, 1), (-2, 0, 2), (-1, 0, 1))
CENTRAL = ((-0.5, 0.0, 0.5),)
LAPLACIAN = ((0, 1, 0), (1, -4, 1), (0, 1, 0))


def _infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    x = xs[0]
    if x.vtype.is_int or x.vtype.is_matrix:
        raise GraphError(f"needs FLOAT or VECn, got {x.vtype.name}")
    return x.vtype, x.size, x.layers


def _taps(kernel: Weights) -> list[tuple[int, int, float]]:
    """(dx, dy, weight) of every weight that is not 0."""
    cy, cx = len(kernel) // 2, len(kernel[0]) // 2
    return [
        (i - cx, j - cy, weight)
        for j, row in enumerate(kernel)
        for i, weight in enumerate(row)
        if weight != 0.0
    ]


def _over_taps(taps: list[tuple[int, int, float]], body: str) -> list[str]:
    """GLSL of ``body`` for every tap; {y}_d is its offset and {y}_w its weight."""
    if len(taps) <= UNROLLED:
        return [
            f"{{ const ivec2 {{y}}_d = ivec2({dx}, {dy}); const float {{y}}_w = "
            f"{literal(w, False)};\n    {body} }}"
            for dx, dy, w in taps
        ]
    n = len(taps)
    # A row or a column counts its offsets; only what is neither looks them up.
    xs, ys = ({t[k] for t in taps} for k in (0, 1))
    first = (taps[0][0], taps[0][1])
    declared = []
    if len(ys) == 1 and [t[0] for t in taps] == list(range(first[0], first[0] + n)):
        offset = f"ivec2({{y}}_k + ({first[0]}), {first[1]})"
    elif len(xs) == 1 and [t[1] for t in taps] == list(range(first[1], first[1] + n)):
        offset = f"ivec2({first[0]}, {{y}}_k + ({first[1]}))"
    else:
        listed = ", ".join(f"ivec2({dx}, {dy})" for dx, dy, _ in taps)
        declared.append(f"const ivec2 {{y}}_ds[{n}] = ivec2[]({listed});")
        offset = "{y}_ds[{y}_k]"
    weights = {w for _, _, w in taps}
    weight = literal(taps[0][2], False)
    if len(weights) > 1:
        listed = ", ".join(literal(w, False) for _, _, w in taps)
        declared.append(f"const float {{y}}_ws[{n}] = float[]({listed});")
        weight = "{y}_ws[{y}_k]"
    return [
        *declared,
        f"for (int {{y}}_k = 0; {{y}}_k < {n}; {{y}}_k++) {{\n"
        f"    ivec2 {{y}}_d = {offset}; float {{y}}_w = {weight};\n    {body}\n  }}",
    ]


def _glsl(f: Function) -> str:
    (w, h), border = f.output.size, f.attr("border")
    pos, layer = place_glsl(f)
    at, inside = f"ivec2 {{y}}_p = {pos} + {{y}}_d; ", ""
    if border == "zero":
        inside = f"if ({{y}}_p.x >= 0 && {{y}}_p.x < {w} && {{y}}_p.y >= 0 && {{y}}_p.y < {h}) "
        place = "{y}_p"
    else:
        x, y = (border_glsl(border, f"{{y}}_p.{a}", n) for a, n in (("x", w), ("y", h)))
        place = f"ivec2({x}, {y})"
    body = f"{at}{inside}{{y}} += {{y}}_w * {{fetch0}}({place}, {layer});"
    return "\n  ".join(["{y} = {T}(0.0);", *_over_taps(_taps(f.attr("kernel")), body)])


def _transposed_glsl(f: Function) -> str:
    """Who reads a pixel: away from the rim one pixel a tap; at the rim also those whose reads a
    border brought back there (clamp: to the outermost pixels; mirror: as far in as the kernel
    reaches)."""
    (w, h), border, kernel = f.output.size, f.attr("border"), f.attr("kernel")
    pos, layer = place_glsl(f)
    taps, rim = _taps(kernel), []
    for axis, n, reach in (("x", w, len(kernel[0]) // 2), ("y", h, len(kernel) // 2)):
        depth = reach if border == "mirror" else min(reach, 1)
        if depth:
            rim.append(f"{{y}}_p.{axis} < {depth} || {{y}}_p.{axis} >= {n - depth}")
    plain = (
        "ivec2 {y}_q = {y}_p - {y}_d; "
        f"if ({{y}}_q.x >= 0 && {{y}}_q.x < {w} && {{y}}_q.y >= 0 && {{y}}_q.y < {h}) "
        f"{{y}} += {{y}}_w * {{fetch0}}({{y}}_q, {layer});"
    )
    rows = readers_glsl(border, "{y}_i", "{y}_p.y", "{y}_d.y", h, h)
    columns = readers_glsl(border, "{y}_j", "{y}_p.x", "{y}_d.x", w, w)
    all_readers = (
        f"{rows}\n    {columns}\n"
        f"      {{y}} += {{y}}_w * {{fetch0}}(ivec2({{y}}_j, {{y}}_i), {layer});"
    )
    lines = [f"ivec2 {{y}}_p = {pos}; {{y}} = {{T}}(0.0);"]
    if rim:
        lines += [f"if ({' || '.join(rim)}) {{", *_over_taps(taps, all_readers), "} else {"]
    lines += _over_taps(taps, plain)
    return "\n  ".join([*lines, "}"] if rim else lines)


def _indices(f: Function, dx: int, dy: int) -> tuple[np.ndarray, np.ndarray]:
    (w, h), border = f.output.size, f.attr("border")
    return (
        border_index(border, np.arange(h) + dy, h),
        border_index(border, np.arange(w) + dx, w),
    )


def _ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    out = np.zeros_like(xs[0])
    for dx, dy, weight in _taps(f.attr("kernel")):
        out += weight * gather(xs[0], *_indices(f, dx, dy))
    return out


def _transposed_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    out = np.zeros_like(xs[0])
    for dx, dy, weight in _taps(f.attr("kernel")):
        out += weight * gather_transposed(xs[0], *_indices(f, dx, dy), f.output.size)
    return out


def _backward(f: Function, gy: Variable, i: int) -> Variable:
    """Where what comes in from outside does so evenly, the transposed is a correlation with the
    kernel turned over (for mirror: with itself, if it is symmetric)."""
    kernel, border = f.attr("kernel"), f.attr("border")
    op, even = CONVOLVE_TRANSPOSED, kernel == kernel[::-1] == tuple(r[::-1] for r in kernel)
    if border in ("zero", "repeat") or (border == "mirror" and even):
        op, kernel = CONVOLVE, tuple(row[::-1] for row in kernel[::-1])
    return apply(op, (gy,), kernel=kernel, border=border)


_KERNELS: tuple[tuple[str, Weights], ...] = (
    *((border, ((0.5, -1.0, 0.25), (0.0, 2.0, 0.0), (0.125, 1.5, -0.75))) for border in BORDERS),
    *((border, ((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1),)) for border in BORDERS),
    ("clamp", ((1.0,), (0.5,), (-0.25,))),
    ("mirror", tuple(tuple(0.1 * (i + 1) - 0.3 * j for i in range(3)) for j in range(5))),
    ("zero", tuple((0.25,) for _ in range(13))),
    ("mirror", ((0.25, 0.5, 0.25), (1.0, 2.0, 1.0), (0.25, 0.5, 0.25))),
    ("mirror", ((0.25, 0.5, 0.25), (1.0, 2.0, 1.0), (0.5, 0.5, 0.25))),
)


def _cases(name: str) -> tuple[Case, ...]:
    def build(a: Variable, border: str, kernel: Weights) -> Variable:
        op = CONVOLVE if name == "convolve" else CONVOLVE_TRANSPOSED
        return apply(op, (a,), kernel=kernel, border=border)

    return tuple(
        sized(
            lambda a, border=border, kernel=kernel: build(a, border, kernel),
            ((vtype, -2, 2),),
            size,
        )
        for border, kernel in _KERNELS
        if name == "convolve" or border in ("clamp", "mirror")
        for vtype, size in ((VEC3, (7, 5)), (FLOAT, (13, 1)), (VEC2, (1, 1)))
    )


CONVOLVE = Op(
    "convolve",
    like_floats,
    reads=(ANY,),
    backward=_backward,
    reference=_ref,
    cases=_cases("convolve"),
)
register(CONVOLVE, Kernel(_glsl))
CONVOLVE_TRANSPOSED = Op(
    "convolve_transposed",
    like_floats,
    reads=(ANY,),
    backward=lambda f, gy, i: apply(
        CONVOLVE, (gy,), kernel=f.attr("kernel"), border=f.attr("border")
    ),
    reference=_transposed_ref,
    cases=_cases("convolve_transposed"),
)
register(CONVOLVE_TRANSPOSED, Kernel(_transposed_glsl))


def _checked(name: str, x: Variable, border: Border) -> None:
    needs_variable(name, x)
    checked_border(name, border)


def shift(x: Variable, dx: Any, dy: Any, border: Border = "zero") -> Variable:
    """x moved by dx pixels to the right and dy down: pixel p gets what was at p - (dx, dy).

    x: any type @ any size. dx, dy: ints, or INT @ 1x1 (run-time values, one or one a layer).
    border: what comes in, zero, clamp, mirror or repeat. Gradient to x: moved back; none to dx and
    dy. Raises GraphError for fractions or another border.
    """
    _checked("shift", x, border)
    offset = neg(offset_of("shift", dx, dy))
    return apply(WINDOW, (x, offset), size=x.size, border=border, value=0.0)


def convolve(x: Variable, kernel: Any, border: Border = "clamp") -> Variable:
    """x correlated with a kernel of numbers: y[p] = sum of kernel[j][i] x[p + (i, j) - centre].

    x: FLOAT, VECn @ any size; every component and layer by itself. kernel: rows of weights, both
    lengths odd (3 x 3), used as written, not turned over; row 0 is above. border: zero, clamp,
    mirror or repeat. Gradient to x: the transposed map, exact at borders too; the weights have
    none. Raises GraphError for even or uneven rows, NaN or infinity, and other types.
    """
    _checked("convolve", x, border)
    array = numbers("convolve", kernel)
    if array.ndim != 2 or array.shape[0] % 2 == 0 or array.shape[1] % 2 == 0:
        raise GraphError(
            f"F.convolve: the kernel needs rows and columns of odd number, got shape {array.shape}"
        )
    if not np.isfinite(array).all():
        raise GraphError("F.convolve: NaN or infinity in the kernel")
    if array.size > MOST_TAPS:
        raise GraphError(
            f"F.convolve: {array.size} weights, at most {MOST_TAPS}; "
            "hint: a separable kernel is a row, then a column"
        )
    return _convolve(x, array, border)


def _convolve(x: Variable, kernel: Any, border: Border) -> Variable:
    rows = tuple(tuple(float(w) for w in row) for row in np.asarray(kernel))
    return apply(CONVOLVE, (x,), kernel=rows, border=border)


def _separable(x: Variable, weights: np.ndarray, border: Border) -> Variable:
    """Along rows, then along columns; an axis of one pixel only where it changes something."""
    for kernel, n in ((weights[None, :], x.size[0]), (weights[:, None], x.size[1])):
        if n > 1 or border == "zero":
            x = _convolve(x, kernel, border)
    return x


def box_blur(x: Variable, radius: int, border: Border = "clamp") -> Variable:
    """Mean over the square of (2 radius + 1)^2 pixels around each pixel, in two passes.

    x: FLOAT, VECn @ any size. radius: int, pixels. border: zero, clamp, mirror or repeat; with
    zero, what is outside counts as 0 in the mean. Gradient to x: exact. Raises GraphError for a
    negative radius and other types.
    """
    _checked("box_blur", x, border)
    radius = needs_int("box_blur", "radius", radius)
    if not 0 <= 2 * radius < MOST_TAPS:
        raise GraphError(f"F.box_blur: needs a radius from 0 to {MOST_TAPS // 2 - 1}, got {radius}")
    n = 2 * radius + 1
    return _separable(x, np.full(n, 1.0 / n), border)


def gaussian_weights(sigma: float) -> np.ndarray:
    """The weights of ``gaussian_blur`` along one axis: of k from -R to R, their sum 1."""
    radius = math.ceil(3.0 * sigma)
    k = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (k / sigma) ** 2) if sigma > 0 else np.ones(1)
    return weights / weights.sum()


def gaussian_blur(x: Variable, sigma: float, border: Border = "clamp") -> Variable:
    """x blurred with a Gaussian, in two passes. The weights end at R = ceil(3 sigma) pixels and sum
    to 1.

    x: FLOAT, VECn @ any size. sigma: number >= 0, standard deviation in pixels. border: zero,
    clamp, mirror or repeat. Gradient to x: exact. Raises GraphError for a sigma below 0 and other
    types.
    """
    _checked("gaussian_blur", x, border)
    array = numbers("gaussian_blur", sigma)
    if array.size != 1 or not 0 <= float(array.reshape(-1)[0]) <= (MOST_TAPS - 1) / 6 - 1:
        raise GraphError(
            f"F.gaussian_blur: needs a sigma from 0 to {MOST_TAPS // 6 - 1}, got {short(sigma)}"
        )
    return _separable(x, gaussian_weights(float(array.reshape(-1)[0])), border)


def image_gradient(
    x: Variable, kind: ImageGradient = "central", border: Border = "clamp"
) -> tuple[Variable, Variable]:
    """(dx/du, dx/dv) of an image along its columns and its rows, per pixel; v points down.

    x: FLOAT, VECn @ any size. kind: central ((right - left) / 2; with clamp half of the one-sided
    difference at the border) or sobel (central, smoothed across with 1 2 1, divided by 4). border:
    zero, clamp, mirror or repeat. Gradient to x: exact. Raises GraphError for other kinds and
    types.
    """
    _checked("image_gradient", x, border)
    if kind not in IMAGE_GRADIENTS:
        raise GraphError(f"F.image_gradient: kind must be central or sobel, got {short(kind)}")
    kernel = np.array(CENTRAL) if kind == "central" else np.array(SOBEL) / 8.0
    return _convolve(x, kernel, border), _convolve(x, kernel.T, border)


def laplacian(x: Variable, border: Border = "clamp") -> Variable:
    """The four neighbours minus four times the pixel: the discrete Laplacian per square pixel.

    x: FLOAT, VECn @ any size. border: zero, clamp (no flow across it: the sum over a layer is 0),
    mirror or repeat. Gradient to x: exact. Raises GraphError for other types.
    """
    _checked("laplacian", x, border)
    return _convolve(x, LAPLACIAN, border)


def erode(mask: Variable, radius: Any, max_radius: int) -> Variable:
    """Minimum of a FLOAT image over the square of (2 R + 1)^2 pixels, R = floor(radius + 0.5).

    radius: FLOAT @ 1x1, pixels, a run-time value up to max_radius, as of F.image.dilate. Stops at
    the border of each layer: what is outside does not erode. No gradient.
    """
    return neg(dilate(neg(needs_variable("erode", mask)), radius, max_radius))
