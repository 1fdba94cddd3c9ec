"""What the function files share: conversion of Python values, inference rules, gradient fitting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dressi.ad.graph import Function, Variable, user_line
from dressi.ad.registry import FREE, Op, Shape, apply, broadcast, register
from dressi.ad.vtype import VType, vector
from dressi.errors import GraphError

Arrays = Sequence[np.ndarray]


def literal(value: float, integer: bool) -> str:
    """A GLSL literal that reads back as the same float32 (or int32)."""
    if integer:
        # -2147483648 is not a literal but a negated one that overflows.
        return str(int(value)) if int(value) > -(2**31) else "(-2147483647 - 1)"
    text = repr(float(np.float32(value)))
    return text if any(c in text for c in ".e") else text + ".0"


def _const_glsl(f: Function) -> str:
    vtype: VType = f.attr("vtype")
    values = f.attr("values")
    if vtype.n_words == 1:
        return f"{{y}} = {literal(values[0], vtype.is_int)};"
    if vtype.is_matrix:  # stored row by row; GLSL wants columns
        values = [values[r * vtype.n + c] for c in range(vtype.n) for r in range(vtype.n)]
    return f"{{y}} = {{T}}({', '.join(literal(v, vtype.is_int) for v in values)});"


CONST = register(
    Op(
        "constant",
        infer=lambda xs, a: (a["vtype"], (1, 1), 1),
        glsl=_const_glsl,
        kind=FREE,
        reference=lambda f, xs: np.asarray(f.attr("values"), dtype=np.float64).reshape(
            (1, 1, 1, *f.attr("vtype").tail)
        ),
    )
)


def constant(value: Any, vtype: VType | None = None) -> Variable:
    """A value written into the shaders that use it.

    value: number (repeated in every component or entry), flat sequence of 2 to 4 numbers, or an n x n array
    for a matrix type. vtype: the type;
    default FLOAT or VECn (INT for Python ints is chosen only when asked for). Raises GraphError for NaN,
    infinity or a wrong count. No gradient.
    """
    array = np.asarray(value, dtype=np.float64)
    if vtype is None:
        if array.size not in (1, 2, 3, 4):
            raise GraphError(f"F.constant at {user_line()}: needs 1 to 4 numbers, got {array.size}")
        vtype = vector(array.size)
    if array.size == 1 and vtype.n_words > 1:
        array = np.full(vtype.n_words, array.reshape(-1)[0])
    if array.size != vtype.n_words:
        raise GraphError(
            f"F.constant at {user_line()}: {vtype.name} needs {vtype.n_words} numbers, got {array.size}"
        )
    values = tuple(float(v) for v in array.reshape(-1))
    if not all(math.isfinite(v) for v in values):
        raise GraphError(f"F.constant at {user_line()}: NaN or infinity in {value!r}")
    if vtype.is_int and any(v != int(v) for v in values):
        raise GraphError(f"F.constant at {user_line()}: {value!r} is not {vtype.name}")
    return apply(CONST, (), values=values, vtype=vtype)


def is_constant(x: Variable, value: float | None = None) -> bool:
    """Whether x is a constant (of that value in all components)."""
    if x.creator is None or x.creator.op is not CONST:
        return False
    return value is None or all(v == value for v in x.creator.attr("values"))


def lift(*values: Any) -> list[Variable]:
    """Variables as they are; numbers and sequences as constants of the base type of the Variables."""
    integer = any(isinstance(v, Variable) and v.vtype.is_int for v in values) and not any(
        isinstance(v, Variable) and not v.vtype.is_int for v in values
    )
    out = []
    for v in values:
        if isinstance(v, Variable):
            out.append(v)
        else:
            try:
                size = np.asarray(v, dtype=np.float64).size
            except (TypeError, ValueError):
                raise GraphError(
                    f"at {user_line()}: cannot use {type(v).__name__} {v!r} in a graph"
                ) from None
            if size not in (1, 2, 3, 4):
                raise GraphError(f"at {user_line()}: needs 1 to 4 numbers, got {size}")
            out.append(constant(v, vector(size, integer)))
    return out


def elementwise(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    """Equal types, or scalars mixed with one vector type of the same base."""
    size, layers = broadcast(xs)
    vtype = xs[0].vtype
    for x in xs[1:]:
        if x.vtype == vtype:
            continue
        if x.vtype.is_int != vtype.is_int:
            raise GraphError(
                f"{vtype.name} and {x.vtype.name} do not mix; convert with F.to_float or F.to_int"
            )
        if x.vtype.is_matrix or vtype.is_matrix:
            raise GraphError(
                f"{vtype.name} and {x.vtype.name} do not mix here; use F.matmul or F.scale"
            )
        if vtype.n == 1:
            vtype = x.vtype
        elif x.vtype.n != 1:
            raise GraphError(f"{vtype.name} and {x.vtype.name} do not mix")
    return vtype, size, layers


def float_elementwise(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    """Elementwise on FLOAT and VECn only."""
    vtype, size, layers = elementwise(xs, attrs)
    if vtype.is_int or vtype.is_matrix:
        raise GraphError(f"needs FLOAT or VECn, got {vtype.name}")
    return vtype, size, layers


def fit(g: Variable, x: Variable) -> Variable:
    """Gradient of a scalar that was mixed with a vector: the sum over components."""
    from dressi.ad.functions.vector import sum_components

    return sum_components(g) if x.vtype.n == 1 and g.vtype.n > 1 else g


def table_index(n_width: str, index: str, is_table: bool) -> str:
    """GLSL position of linear index ``index`` in an image of width ``n_width`` (a table has height 1)."""
    return f"ivec2({index}, 0)" if is_table else f"ivec2({index} % {n_width}, {index} / {n_width})"
