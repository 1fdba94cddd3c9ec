"""Images at another resolution: nearest and bilinear resampling.

Half-texel convention: pixel o of m lies at (o + 0.5) n / m - 0.5 in the pixels of an image of n.
Positions are computed in integers, so which pixels are read is the same on every device. The
backward is the transposed map, one axis after the other, as reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dressi.ad.functions._common import needs_variable, sized
from dressi.ad.functions.window import place_glsl
from dressi.ad.graph import Function, Size, Variable, checked_shape
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import ANY, Op, Shape, apply
from dressi.ad.vtype import FLOAT, IVEC2, MAT2, VEC3
from dressi.errors import GraphError
from dressi.kinds import FILTERS, Filter

Tap = tuple[np.ndarray, np.ndarray]


def _taps(mode: str, n: int, m: int) -> list[Tap]:
    """(pixel of n, weight) for each of m pixels."""
    o = np.arange(m)
    if mode == "nearest":
        return [((2 * o + 1) * n // (2 * m), np.ones(m))]
    q = (2 * o + 1) * n - m
    i = q // (2 * m)
    t = (q - i * 2 * m) / (2 * m)
    return [(np.clip(i, 0, n - 1), 1 - t), (np.clip(i + 1, 0, n - 1), t)]


def _resampled(x: np.ndarray, axis: int, mode: str, m: int) -> np.ndarray:
    shape = [1] * x.ndim
    shape[axis] = m
    parts = [np.take(x, i, axis=axis) * w.reshape(shape) for i, w in _taps(mode, x.shape[axis], m)]
    return np.sum(parts, axis=0)


def _transposed(g: np.ndarray, axis: int, mode: str, n: int) -> np.ndarray:
    g = np.moveaxis(g, axis, 0)
    out = np.zeros((n, *g.shape[1:]))
    for i, w in _taps(mode, n, g.shape[0]):
        np.add.at(out, i, g * w.reshape(-1, *[1] * (g.ndim - 1)))
    return np.moveaxis(out, 0, axis)


def _resize_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    x, size = xs[0], attrs["size"]
    if x.vtype.is_int and attrs["filter"] == "linear":
        raise GraphError(f"{x.vtype.name} is resized with filter='nearest' only")
    for n, m in zip(x.size, size, strict=True):
        if 2 * n * m > 2**31 - 1:
            raise GraphError(f"{n} pixels to {m}: the product is beyond 2^30")
    return x.vtype, size, x.layers


def _tap_glsl(mode: str, name: str, o: str, n: int, m: int) -> str:
    """Declares the pixels ``name``_i (and for linear _k, and the weight of _k, _t) that o reads."""
    if mode == "nearest":
        return f"int {name}_i = ((2 * ({o}) + 1) * {n}) / {2 * m};"
    return (
        f"int {name}_q = (2 * ({o}) + 1) * {n} - {m}, "
        f"{name}_i = {name}_q < 0 ? -1 : {name}_q / {2 * m}; "
        f"float {name}_t = float({name}_q - {name}_i * {2 * m}) / {2 * m}.0; "
        f"int {name}_k = min({name}_i + 1, {n - 1}); {name}_i = max({name}_i, 0);"
    )


def _resize_glsl(f: Function) -> str:
    mode, (w, h), (m, k) = f.attr("filter"), f.inputs[0].size, f.output.size
    pos, layer = place_glsl(f)
    lines = [_tap_glsl(mode, "{y}_x", f"{pos}.x", w, m), _tap_glsl(mode, "{y}_y", f"{pos}.y", h, k)]

    def at(x: str, y: str) -> str:
        return f"{{fetch0}}(ivec2({{y}}_x_{x}, {{y}}_y_{y}), {layer})"

    if mode == "nearest":
        lines.append(f"{{y}} = {at('i', 'i')};")
    else:
        rows = [f"((1.0 - {{y}}_x_t) * {at('i', r)} + {{y}}_x_t * {at('k', r)})" for r in "ik"]
        lines.append(f"{{y}} = (1.0 - {{y}}_y_t) * {rows[0]}\n    + {{y}}_y_t * {rows[1]};")
    return "\n  ".join(lines)


def _resize_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    (w, h), mode = f.attr("size"), f.attr("filter")
    return _resampled(_resampled(xs[0], 2, mode, w), 1, mode, h)


def _resize_backward(f: Function, gy: Variable, i: int) -> Variable:
    """The axis that shrinks most goes first, so that the image between the two is small."""
    n, m = f.inputs[0].size, f.output.size
    for axis in sorted((0, 1), key=lambda a: n[a] / m[a]):
        if n[axis] != m[axis]:
            gy = apply(UNRESIZE, (gy,), axis=axis, n=n[axis], filter=f.attr("filter"))
    return gy


RESIZE = Op(
    "resize",
    _resize_infer,
    reads=(ANY,),
    backward=_resize_backward,
    reference=_resize_ref,
    cases=(
        *(
            sized(lambda a, size=size, mode=mode: resize(a, size, mode), ((vtype, -2, 2),), given)
            for mode in FILTERS
            for vtype, given, size in (
                (VEC3, (7, 5), (11, 13)),
                (FLOAT, (23, 9), (5, 4)),
                (VEC3, (4, 6), (8, 3)),
                (FLOAT, (13, 1), (40, 1)),
                (MAT2, (3, 3), (1, 1)),
                (FLOAT, (1, 1), (3, 2)),
            )
        ),
        sized(lambda a: resize(a, (9, 2), "nearest"), ((IVEC2, -9, 9),), (4, 3)),
    ),
)
register(RESIZE, Kernel(_resize_glsl))


def _unresize_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    if xs[0].vtype.is_int:
        raise GraphError(f"needs floats, got {xs[0].vtype.name}")
    size = list(xs[0].size)
    size[attrs["axis"]] = attrs["n"]
    return xs[0].vtype, (size[0], size[1]), xs[0].layers


def _unresize_glsl(f: Function) -> str:
    axis, n, mode = f.attr("axis"), f.attr("n"), f.attr("filter")
    m = f.inputs[0].size[axis]
    pos, layer = place_glsl(f)
    at = f"ivec2({{y}}_o, {pos}.y)" if axis == 0 else f"ivec2({pos}.x, {{y}}_o)"
    weight = "{y}_a_i == {y}_j ? 1.0 : 0.0"
    if mode == "linear":
        weight = "({y}_a_i == {y}_j ? 1.0 - {y}_a_t : 0.0) + ({y}_a_k == {y}_j ? {y}_a_t : 0.0)"
    # Who reads j lies between the pixels that read j - 1 and j + 2; those at the rim have weight 0.
    return (
        f"int {{y}}_j = {pos}.{'xy'[axis]}; {{y}} = {{T}}(0.0);\n"
        f"  for (int {{y}}_o = max(max({{y}}_j - 1, 0) * {m} / {n} - 1, 0); "
        f"{{y}}_o <= min(({{y}}_j + 2) * {m} / {n} + 1, {m - 1}); {{y}}_o++) {{\n"
        f"    {_tap_glsl(mode, '{y}_a', '{y}_o', n, m)}\n"
        f"    float {{y}}_w = {weight};\n"
        f"    if ({{y}}_w != 0.0) {{y}} += {{y}}_w * {{fetch0}}({at}, {layer});\n  }}"
    )


def _unresize_backward(f: Function, gy: Variable, i: int) -> Variable:
    return apply(RESIZE, (gy,), size=f.inputs[0].size, filter=f.attr("filter"))


UNRESIZE: Op = Op(
    "resize_transposed",
    _unresize_infer,
    reads=(ANY,),
    backward=_unresize_backward,
    reference=lambda f, xs: _transposed(xs[0], 2 - f.attr("axis"), f.attr("filter"), f.attr("n")),
    cases=tuple(
        sized(
            lambda a, axis=axis, n=n, mode=mode: apply(UNRESIZE, (a,), axis=axis, n=n, filter=mode),
            ((vtype, -2, 2),),
            (7, 5),
        )
        for mode in FILTERS
        for vtype, axis, n in ((VEC3, 0, 3), (FLOAT, 1, 17), (MAT2, 0, 1))
    ),
)
register(UNRESIZE, Kernel(_unresize_glsl))


def resize(x: Variable, size: Size, filter: Filter = "linear") -> Variable:
    """x resampled to another resolution, every layer by itself.

    x: FLOAT, VECn or MATn @ any size; INT and IVECn with nearest. size: (width, height) in pixels.
    filter: linear (the four pixels around; at the border the nearest one) or nearest. Pixel centres
    follow the half-texel convention. Shrinking reads no more pixels than that: blur first, or take
    means, against aliasing. Gradient to x: the transposed map, exact. Raises GraphError for another
    filter, integers with linear, and an axis whose old times new length is beyond 2^30.
    """
    needs_variable("resize", x)
    size, _ = checked_shape("F.resize", size)
    if filter not in FILTERS:
        raise GraphError(f"F.resize: filter must be one of {FILTERS}, got {filter!r}")
    if size == x.size and not (x.vtype.is_int and filter == "linear"):
        return x
    return apply(RESIZE, (x,), size=size, filter=filter)
