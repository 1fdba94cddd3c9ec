"""Windows into images: crop, pad, tile, and the borders that neighbourhoods share.

A window is a linear map of pixels, and its backward is the transposed map written as a read: a
pixel of the input asks which pixels of the output have read it, so nothing is scattered and the
gradient is the same from run to run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dressi.ad.functions._common import (
    constant,
    constant_values,
    is_constant,
    literal,
    needs_int,
    needs_variable,
    sized,
)
from dressi.ad.functions.image import _modulo
from dressi.ad.functions.vector import vec
from dressi.ad.graph import Function, Size, Variable, checked_shape, short
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import ANY, SAME, Op, Shape, apply
from dressi.ad.vtype import FLOAT, INT, IVEC2, MAT2, VEC2, VEC3
from dressi.errors import GraphError
from dressi.kinds import BORDERS, Border


def checked_border(name: str, border: Any) -> Border:
    """border, or GraphError when it is none of BORDERS. name: the op."""
    if border not in BORDERS:
        raise GraphError(f"F.{name}: the border must be one of {BORDERS}, got {short(border)}")
    known: Border = border
    return known


def place_glsl(f: Function) -> tuple[str, str]:
    """GLSL of the pixel and layer of the output of f. A value of size 1x1 or of one layer may be
    computed inside a shader of more, whose own position is another."""
    y = f.output
    return "ivec2(0)" if y.size == (1, 1) else "{pos}", "0" if y.layers == 1 else "{layer}"


# -- coordinates beyond a border, along one axis


def border_glsl(border: Border, i: str, n: int) -> str:
    """GLSL of the coordinate that ``i`` reads in an axis of n pixels (zero: the caller tests)."""
    if border == "mirror":
        at = _modulo(f"({i})", str(2 * n))
        return f"min({at}, {2 * n - 1} - {at})"
    return _modulo(f"({i})", str(n)) if border == "repeat" else f"clamp({i}, 0, {n - 1})"


def border_index(border: Border, i: np.ndarray, n: int) -> np.ndarray:
    """The coordinates that ``i`` reads in an axis of n pixels; -1 where it reads nothing."""
    if border == "zero":
        return np.where((i >= 0) & (i < n), i, -1)
    if border == "clamp":
        return np.clip(i, 0, n - 1)
    at = i % (2 * n if border == "mirror" else n)
    return np.minimum(at, 2 * n - 1 - at) if border == "mirror" else at


def readers_glsl(border: Border, i: str, j: str, d: str, n: int, m: int) -> str:
    """Head of a GLSL loop over the ``i`` in [0, m) whose coordinate i + d reads j, of n pixels."""
    if border == "repeat":
        return f"for (int {i} = {_modulo(f'({j} - ({d}))', str(n))}; {i} < {m}; {i} += {n})"
    if border == "mirror":  # j itself, and the mirrored 2n - 1 - j
        target = f"(({i}_s == 0 ? {j} : {2 * n - 1} - {j}) - ({d}))"
        return (
            f"for (int {i}_s = 0; {i}_s < 2; {i}_s++)\n"
            f"  for (int {i} = {_modulo(target, str(2 * n))}; {i} < {m}; {i} += {2 * n})"
        )
    first = last = f"{j} - ({d})"
    if border == "clamp":
        first, last = f"({j} == 0 ? 0 : {first})", f"({j} == {n - 1} ? {m - 1} : {last})"
    return f"for (int {i} = max({first}, 0); {i} <= min({last}, {m - 1}); {i}++)"


def gather(x: np.ndarray, ys: np.ndarray, xs: np.ndarray) -> np.ndarray:
    """x (layers, H, W, *tail) at rows ys and columns xs, 0 where either is -1."""
    out = x[:, np.maximum(ys, 0)[:, None], np.maximum(xs, 0)[None, :]].copy()
    out[:, ys < 0] = 0
    out[:, :, xs < 0] = 0
    return out


def gather_transposed(g: np.ndarray, ys: np.ndarray, xs: np.ndarray, size: Size) -> np.ndarray:
    """The transposed of ``gather``: g added into an image of the given size."""
    out = np.zeros((g.shape[0], size[1], size[0], *g.shape[3:]))
    rows, columns = np.nonzero(ys >= 0)[0], np.nonzero(xs >= 0)[0]
    at: Any = (slice(None), ys[rows][:, None], xs[columns][None, :])
    np.add.at(out, at, g[:, rows[:, None], columns[None, :]])
    return out


# -- windows


def _window_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    x, offset = xs
    if offset.vtype is not IVEC2 or offset.size != (1, 1):
        raise GraphError(f"the offset must be IVEC2 @ 1x1, got {offset.label()}")
    if x.layers != offset.layers and 1 not in (x.layers, offset.layers):
        raise GraphError(f"an image of {x.layers} layers, an offset of {offset.layers}")
    if x.vtype.is_matrix and attrs.get("value", 0.0) != 0.0:
        raise GraphError(f"{x.vtype.name} is filled with 0 only")
    return x.vtype, attrs["size"], max(x.layers, offset.layers)


def _window_glsl(f: Function) -> str:
    pos, layer = place_glsl(f)
    border, (w, h) = f.attr("border"), f.inputs[0].size
    at = f"ivec2 {{y}}_p = {pos} + {{x1}};\n  "
    x, y = (border_glsl(border, f"{{y}}_p.{axis}", n) for axis, n in (("x", w), ("y", h)))
    if border != "zero":
        return f"{at}{{y}} = {{fetch0}}(ivec2({x}, {y}), {layer});"
    fill = literal(f.attr("value"), f.output.vtype.is_int)
    return (
        f"{at}{{y}} = {{T}}({fill});\n"
        f"  if ({{y}}_p.x >= 0 && {{y}}_p.x < {w} && {{y}}_p.y >= 0 && {{y}}_p.y < {h})\n"
        f"    {{y}} = {{fetch0}}({{y}}_p, {layer});"
    )


def _indices(f: Function, offset: np.ndarray, outer: Size, inner: Size) -> Iterator[Any]:
    """Yield, for each layer of the output, (rows, columns) of an image of size ``inner`` that a
    window of size ``outer`` reads."""
    for layer in range(f.output.layers):
        dx, dy = offset[layer % len(offset), 0, 0].astype(np.int64)
        border = f.attr("border")
        yield tuple(
            border_index(border, np.arange(outer[k]) + d, inner[k]) for k, d in ((1, dy), (0, dx))
        )


def _window_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    x, offset = xs
    out = []
    for k, (rows, columns) in enumerate(_indices(f, offset, f.output.size, f.inputs[0].size)):
        part = gather(x[[k % len(x)]], rows, columns)
        part[:, rows < 0] = f.attr("value")
        part[:, :, columns < 0] = f.attr("value")
        out.append(part)
    return np.concatenate(out)


WINDOW = Op(
    "window",
    _window_infer,
    reads=(ANY, SAME),
    backward=lambda f, gy, i: (
        apply(UNWINDOW, (gy, f.inputs[1]), size=f.inputs[0].size, border=f.attr("border"))
        if i == 0
        else None
    ),
    reference=_window_ref,
    cases=(
        *(
            sized(
                lambda a, d, border=border: _window(a, d, (9, 11), border),
                ((VEC3, -2, 2), (IVEC2, -12, 12)),
                (7, 5),
                (1, 1),
            )
            for border in BORDERS
        ),
        sized(
            lambda a, d: _window(a, d, (40, 1), "mirror"),
            ((FLOAT, -2, 2), (IVEC2, -99, 99)),
            (13, 1),
            (1, 1),
        ),
        sized(lambda a: pad(a, 2, 1, 3, 0, value=0.5), ((VEC2, -2, 2),), (4, 3)),
        sized(lambda a: tile(crop(a, 1, 1, 2, 1), 2, 3), ((MAT2, -2, 2),), (4, 3)),
        sized(lambda a: crop(a, 2, 1, 1, 1), ((FLOAT, -2, 2),), (4, 3)),
        sized(lambda a: pad(a, 1, 1, 2, 2, value=-7), ((INT, -9, 9),), (4, 3)),
    ),
)
register(WINDOW, Kernel(_window_glsl))


def _unwindow_glsl(f: Function) -> str:
    pos, layer = place_glsl(f)
    border, (w, h), (m, k) = f.attr("border"), f.output.size, f.inputs[0].size
    rows = readers_glsl(border, "{y}_i", "{y}_p.y", "{x1}.y", h, k)
    columns = readers_glsl(border, "{y}_j", "{y}_p.x", "{x1}.x", w, m)
    return (
        f"ivec2 {{y}}_p = {pos}; {{y}} = {{T}}(0);\n"
        f"  {rows}\n  {columns}\n    {{y}} += {{fetch0}}(ivec2({{y}}_j, {{y}}_i), {layer});"
    )


def _unwindow_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    (g, offset), size = xs, f.output.size
    read = enumerate(_indices(f, offset, f.inputs[0].size, size))
    parts = [gather_transposed(g[[k % len(g)]], ys, xs_, size) for k, (ys, xs_) in read]
    return np.concatenate(parts)


UNWINDOW: Op = Op(
    "window_transposed",
    _window_infer,
    reads=(ANY, SAME),
    backward=lambda f, gy, i: (
        _window(gy, f.inputs[1], f.inputs[0].size, f.attr("border")) if i == 0 else None
    ),
    reference=_unwindow_ref,
    cases=tuple(
        sized(
            lambda a, d, border=border: apply(UNWINDOW, (a, d), size=(4, 3), border=border),
            ((VEC3, -2, 2), (IVEC2, -9, 9)),
            (7, 5),
            (1, 1),
        )
        for border in BORDERS
    ),
)
register(UNWINDOW, Kernel(_unwindow_glsl))


def _window(
    x: Variable, offset: Variable, size: Size, border: Border, value: Any = 0.0
) -> Variable:
    """Pixel p reads x at p + offset."""
    return apply(WINDOW, (x, offset), size=size, border=border, value=value)


def offset_of(name: str, dx: Any, dy: Any) -> Variable:
    """IVEC2 of two whole numbers or INT @ 1x1 Variables. name: the op."""
    if not isinstance(dx, Variable) and not isinstance(dy, Variable):
        return constant([needs_int(name, "dx", dx), needs_int(name, "dy", dy)], IVEC2)
    parts = []
    for what, d in (("x", dx), ("y", dy)):
        if not isinstance(d, Variable):
            d = constant(needs_int(name, what, d), INT)
        elif d.vtype is not INT or d.size != (1, 1):
            raise GraphError(f"F.{name}: needs INT @ 1x1, got {d.label()}")
        parts.append(d)
    return vec(*parts)


def crop(x: Variable, left: Any, top: Any, width: int, height: int) -> Variable:
    """The part of x whose top left pixel is (left, top).

    x: any type @ any size. left, top: int, or INT @ 1x1 (a run-time value, one or one a layer; what
    lies outside of x is 0 then). Gradient to x: into its place, 0 elsewhere. Raises GraphError for
    a part that is not inside.
    """
    w, h = needs_variable("crop", x).size
    size, _ = checked_shape("F.crop", (width, height))
    offset = offset_of("crop", left, top)
    for what, start, n, whole in (("columns", left, size[0], w), ("rows", top, size[1], h)):
        if not isinstance(start, Variable) and not 0 <= start <= whole - n:
            raise GraphError(
                f"F.crop: {what} {start} to {start + n - 1} are not inside of {x.label()}"
            )
    return x if size == x.size and is_constant(offset, 0.0) else _window(x, offset, size, "zero")


def pad(
    x: Variable,
    left: int = 0,
    top: int = 0,
    right: int = 0,
    bottom: int = 0,
    border: Border = "zero",
    value: float = 0.0,
) -> Variable:
    """x with that many pixels more on each side, in every layer.

    x: any type @ any size. border: zero (filled with ``value`` in every component; a matrix with
    0), clamp, mirror (the pixel at the border appears twice) or repeat. Gradient to x: summed over
    the places where a pixel appears. Raises GraphError for a negative width or another border.
    """
    needs_variable("pad", x)
    checked_border("pad", border)
    widths = [
        needs_int("pad", what, n)
        for what, n in (("left", left), ("top", top), ("right", right), ("bottom", bottom))
    ]
    if min(widths) < 0:
        raise GraphError(f"F.pad: needs widths of at least 0, got {widths}")
    (fill, *_) = constant_values(constant(value, INT if x.vtype.is_int else FLOAT))
    size = (x.size[0] + widths[0] + widths[2], x.size[1] + widths[1] + widths[3])
    if size == x.size:
        return x
    return _window(
        x, offset_of("pad", -widths[0], -widths[1]), size, border, fill if border == "zero" else 0.0
    )


def tile(x: Variable, n_x: int, n_y: int = 1) -> Variable:
    """x repeated n_x times to the right and n_y times down, in every layer.

    x: any type @ any size. Gradient to x: summed over the copies. Raises GraphError for fewer than
    1.
    """
    needs_variable("tile", x)
    (n_x, n_y), _ = checked_shape("F.tile", (n_x, n_y))
    size = (x.size[0] * n_x, x.size[1] * n_y)
    return x if size == x.size else _window(x, offset_of("tile", 0, 0), size, "repeat")
