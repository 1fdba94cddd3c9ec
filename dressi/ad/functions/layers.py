"""Images flipped and reshaped, and stacks of layers joined and taken apart.

Every one is a linear map of pixels, and its backward is the transposed map written as a read.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from dressi.ad.functions._common import needs_int, needs_variable, same, sized, table_index
from dressi.ad.functions.window import place_glsl
from dressi.ad.graph import Function, Size, Variable, checked_shape, short
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import ANY, Op, Shape, apply
from dressi.ad.vtype import FLOAT, INT, MAT2, VEC3, VEC4, VType
from dressi.errors import GraphError

FAN_IN = 8
"""Images that one pass of ``concat`` reads, of the 16 that every device can bind."""


# -- flips and reshaping


def _flip_glsl(f: Function) -> str:
    (w, h), (pos, layer) = f.output.size, place_glsl(f)
    at = (
        f"{w - 1} - {pos}.x" if f.attr("horizontal") else f"{pos}.x",
        f"{h - 1} - {pos}.y" if f.attr("vertical") else f"{pos}.y",
    )
    return f"{{y}} = {{fetch0}}(ivec2({at[0]}, {at[1]}), {layer});"


FLIP = Op(
    "flip",
    same,
    reads=(ANY,),
    exact=True,
    once=(0,),
    backward=lambda f, gy, i: flip(gy, f.attr("horizontal"), f.attr("vertical")),
    reference=lambda f, xs: xs[0][
        :, :: -1 if f.attr("vertical") else 1, :: -1 if f.attr("horizontal") else 1
    ],
    cases=tuple(
        sized(lambda a, x=x, y=y: flip(a, x, y), ((vtype, -2, 2),), (7, 5))
        for vtype, x, y in ((VEC3, True, False), (FLOAT, False, True), (MAT2, True, True))
    ),
)
register(FLIP, Kernel(_flip_glsl))


def _reshape_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    x, (w, h), layers = xs[0], attrs["size"], attrs["layers"]
    have, need = x.size[0] * x.size[1] * x.layers, w * h * layers
    if have != need:
        raise GraphError(f"{x.label()} has {have} pixels, {w}x{h}x{layers} has {need}")
    return x.vtype, (w, h), layers


def _reshape_glsl(f: Function) -> str:
    (w, h), (v, u) = f.output.size, f.inputs[0].size
    pos, layer = place_glsl(f)
    here = f"({layer} * {h} + {pos}.y) * {w} + {pos}.x"
    at = table_index(str(v), f"({{y}}_i % {v * u})", u == 1)
    return f"int {{y}}_i = {here};\n  {{y}} = {{fetch0}}({at}, {{y}}_i / {v * u});"


RESHAPE = Op(
    "reshape",
    _reshape_infer,
    reads=(ANY,),
    exact=True,
    once=(0,),
    backward=lambda f, gy, i: reshape(gy, f.inputs[0].size, f.inputs[0].layers),
    reference=lambda f, xs: xs[0].reshape(
        f.attr("layers"), f.attr("size")[1], f.attr("size")[0], *xs[0].shape[3:]
    ),
    cases=(
        *(
            sized(lambda a, size=size: reshape(a, size, a.layers), ((vtype, -2, 2),), given)
            for vtype, given, size in (
                (VEC3, (6, 4), (24, 1)),
                (FLOAT, (30, 1), (5, 6)),
                (MAT2, (6, 4), (3, 8)),
            )
        ),
        sized(lambda a: reshape(a, (3 * a.layers, 4)), ((VEC4, -2, 2),), (6, 2)),
        sized(lambda a: reshape(a, (1, 1), 6 * a.layers), ((FLOAT, -2, 2),), (6, 1)),
    ),
)
register(RESHAPE, Kernel(_reshape_glsl))


# -- layers


def one_type(xs: Sequence[Variable]) -> VType:
    """Return the type of all; GraphError where they differ."""
    if len({x.vtype for x in xs}) != 1:
        raise GraphError(f"needs one type, got {', '.join(x.vtype.name for x in xs)}")
    return xs[0].vtype


def _concat_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    vtype = one_type(xs)
    if len({x.size for x in xs}) != 1:
        raise GraphError("needs one size; use F.expand, F.pad or F.image.resize first")
    return vtype, xs[0].size, sum(x.layers for x in xs)


def _starts(f: Function) -> list[int]:
    """The first layer of each input."""
    return list(accumulate((x.layers for x in f.inputs), initial=0))


def pick_glsl(place: str, starts: Sequence[int], fetched: Sequence[str]) -> str:
    """Return GLSL that reads one of several inputs: the k-th from ``starts[k]`` on. fetched: pixel
    and layer in each."""
    lines = []
    for k, at in enumerate(fetched):
        test = f"if ({place} < {starts[k + 1]}) " if k + 1 < len(fetched) else ""
        lines.append(f"{'else ' if k else ''}{test}{{y}} = {{fetch{k}}}({at});")
    return "\n  ".join(lines)


def in_passes(op: Op, items: list[Variable]) -> Variable:
    """Return the items taken together by an op, in passes of as many as a device can bind."""
    width = max(FAN_IN // items[0].vtype.n_planes, 2)
    while len(items) > 1:
        parts = [items[i : i + width] for i in range(0, len(items), width)]
        items = [apply(op, part) if len(part) > 1 else part[0] for part in parts]
    return items[0]


def _concat_glsl(f: Function) -> str:
    pos, _ = place_glsl(f)
    starts = _starts(f)
    return pick_glsl("{layer}", starts, [f"{pos}, {{layer}} - {n}" for n in starts[:-1]])


CONCAT_LAYERS = Op(
    "concat",
    _concat_infer,
    reads=(ANY,),
    exact=True,
    once=tuple(range(FAN_IN)),
    backward=lambda f, gy, i: _slice(gy, _starts(f)[i], f.inputs[i].layers),
    reference=lambda f, xs: np.concatenate(xs),
    cases=(
        sized(lambda a, b, c: concat([a, b, c]), ((VEC3, -2, 2),) * 3, (7, 5)),
        sized(
            lambda a, b: concat([a * k for k in (1.0, 2.0, 3.0, 4.0, 5.0)] + [b] * 5),
            ((FLOAT, -2, 2),) * 2,
            (1, 1),
        ),
        sized(lambda a, b: concat([a, b, a, a, b]), ((MAT2, -2, 2),) * 2, (13, 1)),
        sized(lambda a, b: concat([a, b]), ((INT, -9, 9),) * 2, (7, 5)),
    ),
)
register(CONCAT_LAYERS, Kernel(_concat_glsl))


def _slice_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    start, n = attrs["start"], attrs["layers"]
    if start < 0 or n < 1 or start + n > xs[0].layers:
        raise GraphError(f"{xs[0].label()} has no layers {start} to {start + n - 1}")
    return xs[0].vtype, xs[0].size, n


def _slice_glsl(f: Function) -> str:
    pos, layer = place_glsl(f)
    return f"{{y}} = {{fetch0}}({pos}, {layer} + {f.attr('start')});"


SLICE = Op(
    "slice_layers",
    _slice_infer,
    reads=(ANY,),
    exact=True,
    backward=lambda f, gy, i: apply(
        UNSLICE, (gy,), start=f.attr("start"), layers=f.inputs[0].layers
    ),
    reference=lambda f, xs: xs[0][f.attr("start") : f.attr("start") + f.attr("layers")],
    cases=(
        sized(lambda a: split(concat([a, a * 2.0, a * a]), a.layers)[1], ((VEC3, -2, 2),), (7, 5)),
        sized(
            lambda a: concat(split(concat([a, a * 2.0, a * a]))[::-1]), ((FLOAT, -2, 2),), (13, 1)
        ),
    ),
)
register(SLICE, Kernel(_slice_glsl))


def _unslice_glsl(f: Function) -> str:
    pos, layer = place_glsl(f)
    start, n = f.attr("start"), f.inputs[0].layers
    return (
        "{y} = {T}(0);\n"
        f"  if ({layer} >= {start} && {layer} < {start + n}) "
        f"{{y}} = {{fetch0}}({pos}, {layer} - {start});"
    )


def _unslice_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    start, n = f.attr("start"), xs[0].shape[0]
    out = np.zeros((f.attr("layers"), *xs[0].shape[1:]))
    out[start : start + n] = xs[0]
    return out


UNSLICE: Op = Op(
    "slice_layers_transposed",
    lambda xs, a: (xs[0].vtype, xs[0].size, a["layers"]),
    reads=(ANY,),
    once=(0,),
    backward=lambda f, gy, i: _slice(gy, f.attr("start"), f.inputs[0].layers),
    reference=_unslice_ref,
    cases=(sized(lambda a: apply(UNSLICE, (a,), start=2, layers=6), ((VEC3, -2, 2),), (7, 5)),),
)
register(UNSLICE, Kernel(_unslice_glsl))


def _slice(x: Variable, start: int, n: int) -> Variable:
    return x if (start, n) == (0, x.layers) else apply(SLICE, (x,), start=start, layers=n)


def flip(x: Variable, horizontal: bool = True, vertical: bool = False) -> Variable:
    """x mirrored: left and right exchanged (horizontal), top and bottom (vertical).

    x: any type @ any size. Gradient to x: gy mirrored.
    """
    needs_variable("flip", x)
    if not horizontal and not vertical:
        return x
    return apply(FLIP, (x,), horizontal=bool(horizontal), vertical=bool(vertical))


def reshape(x: Variable, size: Size, layers: int = 1) -> Variable:
    """The same pixels in an image of another size: counted row by row, layer by layer.

    x: any type @ any size, e.g. a table (W H, 1) that becomes an image (W, H). Gradient to x: gy in
    the old shape. Raises GraphError when the number of pixels is another.
    """
    needs_variable("reshape", x)
    size, layers = checked_shape("F.reshape", size, layers)
    is_shaped = (size, layers) == (x.size, x.layers)
    return x if is_shaped else apply(RESHAPE, (x,), size=size, layers=layers)


def concat(xs: Sequence[Variable]) -> Variable:
    """The layers of all, one after the other.

    xs: Variables of one type and one size, any layers each. Gradient to all: their layers of gy.
    Raises GraphError for an empty list, or types or sizes that differ.
    """
    return in_passes(CONCAT_LAYERS, _listed("concat", xs))


def stack(xs: Sequence[Variable]) -> Variable:
    """A stack of n images: layer k is the k-th.

    xs: Variables of one type and one size, one layer each. Gradient to all: their layer of gy.
    Raises GraphError for an empty list, types or sizes that differ, or an image of several layers
    (F.concat).
    """
    for x in _listed("stack", xs):
        if x.layers != 1:
            raise GraphError(f"F.stack: needs one layer each, got {x.label()}; use F.concat")
    return concat(xs)


def _listed(name: str, xs: Any) -> list[Variable]:
    if not isinstance(xs, (list, tuple)) or not xs:
        raise GraphError(f"F.{name}: needs a list of Variables, got {short(xs)}")
    return [needs_variable(name, x) for x in xs]


def split(x: Variable, n: int = 1) -> list[Variable]:
    """The stack in parts of n layers each, in order; for n = 1 its images. The inverse of F.concat.

    x: any type @ any size. Gradient to x: each part's to its layers. Raises GraphError when n does
    not divide the number of layers. One layer by number, which may be a run-time value:
    F.take_layer.
    """
    layers = needs_variable("split", x).layers
    n = needs_int("split", "n", n)
    if n < 1 or layers % n:
        raise GraphError(f"F.split: {n} does not divide the {layers} layers of {x.label()}")
    return [_slice(x, start, n) for start in range(0, layers, n)]
