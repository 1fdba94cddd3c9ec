"""Several scatters over the same pixels that add to one table, as one Function.

In: values and row numbers by turns. Out: a table, in one buffer that is cleared and read once. Not
an op of ``F``: ``ad.composed`` puts it in the place of a sum of ``scatter_add``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dressi.ad.functions.scatter import SCATTER_ADD
from dressi.ad.graph import Function, Variable
from dressi.ad.kernels import Kernel, implement
from dressi.ad.registry import Op, Shape
from dressi.ad.vtype import INT
from dressi.errors import GraphError


def _infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    values, rows = xs[::2], xs[1::2]
    shapes = {(v.vtype, v.size, v.layers) for v in values}
    if len(shapes) != 1 or len(values) != len(rows) or values[0].vtype.is_int:
        raise GraphError("needs float values of one type and size, and a row number for each")
    if any(i.vtype is not INT for i in rows):
        raise GraphError("row numbers must be INT")
    return values[0].vtype, attrs["size"], attrs["layers"]


def _glsl(f: Function) -> str:
    n = f.output.size[0] * f.output.size[1]
    base = f"{{layer}} * {n} + " if f.output.layers > 1 else ""
    return "\n  ".join(
        f"if ({{x{k + 1}}} >= 0 && {{x{k + 1}}} < {n}) {{add}}({base}{{x{k + 1}}}, {{x{k}}});"
        for k in range(0, len(f.inputs), 2)
    )


def _reference(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    assert SCATTER_ADD.reference is not None
    parts = [SCATTER_ADD.reference(f, xs[k : k + 2]) for k in range(0, len(xs), 2)]
    return np.asarray(sum(parts[1:], start=parts[0]))


SCATTER_ALL = Op(
    "scatter_all",
    _infer,
    reference=_reference,
    scatter="add",
    domain=0,
    zero_if=lambda f: tuple(range(0, len(f.inputs), 2)),
)
implement(SCATTER_ALL, Kernel(_glsl))
