"""Tables joined end to end, as several meshes are into one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from dressi.ad.functions._common import needs_variable, sized
from dressi.ad.functions.layers import FAN_IN, in_passes, one_type, pick_glsl
from dressi.ad.functions.window import crop, place_glsl
from dressi.ad.graph import Function, Variable, short
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import ANY, Op, Shape
from dressi.ad.vtype import FLOAT, INT, MAT2, VEC3
from dressi.errors import GraphError


def _join_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    vtype = one_type(xs)
    for x in xs:
        if x.size[1] != 1:
            raise GraphError(f"needs tables (n, 1), got {x.label()}")
    layers = {x.layers for x in xs} - {1}
    if len(layers) > 1:
        raise GraphError(f"layers {sorted(layers)} do not broadcast (equal, or 1)")
    return vtype, (sum(x.size[0] for x in xs), 1), max(layers, default=1)


def _starts(f: Function) -> list[int]:
    """The first row of each input."""
    return list(accumulate((x.size[0] for x in f.inputs), initial=0))


def _join_glsl(f: Function) -> str:
    pos, layer = place_glsl(f)
    starts = _starts(f)
    layers = [layer if x.layers > 1 else "0" for x in f.inputs]
    fetched = [f"ivec2({pos}.x - {n}, 0), {of}" for n, of in zip(starts, layers, strict=False)]
    return pick_glsl(f"{pos}.x", starts, fetched)


def _join_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    layers = f.output.layers
    return np.concatenate([np.broadcast_to(x, (layers, *x.shape[1:])) for x in xs], axis=2)


JOIN = Op(
    "join",
    _join_infer,
    reads=(ANY,),
    once=tuple(range(FAN_IN)),
    backward=lambda f, gy, i: crop(gy, _starts(f)[i], 0, f.inputs[i].size[0], 1),
    reference=_join_ref,
    cases=(
        sized(lambda a, b, c: join([a, b, c, a]), ((VEC3, -2, 2),) * 3, (13, 1), (1, 1), (4, 1)),
        sized(
            lambda a, b: join([a * k for k in (1.0, 2.0, 3.0, 4.0, 5.0)] + [b] * 5),
            ((FLOAT, -2, 2),) * 2,
            (3, 1),
            (5, 1),
        ),
        sized(lambda a, b: join([a, b, a]), ((MAT2, -2, 2),) * 2, (7, 1), (2, 1)),
        sized(lambda a, b: join([a, b]), ((INT, -9, 9),) * 2, (7, 1), (5, 1)),
    ),
)
register(JOIN, Kernel(_join_glsl))


def join(tables: Sequence[Variable]) -> Variable:
    """The rows of all tables, one table after the other.

    tables: Variables of one type @ (n, 1), any n each; layers equal, or 1 (the table of all
    layers). Each row is read once, in passes of up to 8 tables. Gradient to all: their rows of gy.
    Raises GraphError for an empty list, types that differ, and what is no table. Layers one after
    the other: F.concat.
    """
    if not isinstance(tables, (list, tuple)) or not tables:
        raise GraphError(f"F.join: needs a list of tables, got {short(tables)}")
    items = [needs_variable("join", x) for x in tables]
    if len(items) == 1:
        _join_infer(items, {})
    return in_passes(JOIN, items)
