"""Comparison and selection. A comparison gives a FLOAT or VECn mask of 1 and 0; ``where`` never leaks NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dressi.ad.functions._common import elementwise, fit, lift
from dressi.ad.graph import Function, Variable
from dressi.ad.registry import Case, Op, Shape, apply, broadcast, register
from dressi.ad.vtype import FLOAT, INT, VEC3, vector
from dressi.errors import GraphError

_COMPARE = {
    "lt": ("<", "lessThan_", np.less),
    "lte": ("<=", "lessThanEqual_", np.less_equal),
    "gt": (">", "greaterThan_", np.greater),
    "gte": (">=", "greaterThanEqual_", np.greater_equal),
    "eq": ("==", "equal_", np.equal),
    "ne": ("!=", "notEqual_", np.not_equal),
}


def _compare_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    vtype, size, layers = elementwise(xs, attrs)
    if vtype.is_matrix:
        raise GraphError("matrices cannot be compared")
    return vector(vtype.n), size, layers


def _operand(f: Function) -> str:
    n = f.output.vtype.n
    return vector(n, f.inputs[0].vtype.is_int).glsl


def _make(name: str) -> Op:
    _, function, ref = _COMPARE[name]
    return register(
        Op(
            name,
            _compare_infer,
            lambda f: f"{{y}} = {{T}}({function}({_operand(f)}({{x0}}), {_operand(f)}({{x1}})));",
            reference=lambda f, xs: ref(xs[0], xs[1]).astype(np.float64),
            cases=(
                Case(
                    lambda a, b: compare(name, a, b),
                    ((VEC3, -2, 2), (FLOAT, -2, 2)),
                    gradient=False,
                ),
                Case(
                    lambda a, b: compare(name, a, b), ((INT, -2, 2), (INT, -2, 2)), gradient=False
                ),
            ),
        )
    )


_ROWS = {name: _make(name) for name in _COMPARE}


def _where_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    cond, a, b = xs
    vtype, _, _ = elementwise((a, b), attrs)
    size, layers = broadcast(xs)
    if cond.vtype.is_matrix or cond.vtype.n not in (1, vtype.n):
        raise GraphError(f"the condition is {cond.vtype.name}, the values are {vtype.name}")
    if vtype.is_matrix and cond.vtype.n != 1:
        raise GraphError("a matrix is selected by a scalar condition")
    return vtype, size, layers


def _where_glsl(f: Function) -> str:
    cond = f.inputs[0].vtype
    if cond.n == 1:
        zero = "0" if cond.is_int else "0.0"
        return f"{{y}} = ({{x0}} != {zero}) ? {{T}}({{x1}}) : {{T}}({{x2}});"
    return "{y} = mix({T}({x2}), {T}({x1}), notEqual({x0}, {T0}(0)));"


def _where_backward(f: Function, gy: Variable, i: int) -> Variable | None:
    if i == 0:
        return None
    cond = f.inputs[0]
    zero = zeros_like(gy)
    return fit(where(cond, gy, zero) if i == 1 else where(cond, zero, gy), f.inputs[i])


WHERE = register(
    Op(
        "where",
        _where_infer,
        _where_glsl,
        backward=_where_backward,
        reference=lambda f, xs: np.where(xs[0] != 0, xs[1], xs[2]),
        cases=(
            Case(lambda a, b: where(a > 0.3, a, b * 2.0), ((FLOAT, -2, 2), (VEC3, -2, 2))),
            Case(lambda a, b: where(a > b, a, b), ((VEC3, -2, 2), (VEC3, -2, 2))),
        ),
    )
)

SAFE_DIV = register(
    Op(
        "safe_div",
        elementwise,
        lambda f: (
            "{y} = {T}({x0}) / mix({T}({x1}), {T}(1.0), equal_({T}({x1}), {T}(0.0))); "
            "{y} = mix({y}, {T}(0.0), equal_({T}({x1}), {T}(0.0)));"
        ),
        backward=lambda f, gy, i: _safe_div_backward(f, gy, i),
        reference=lambda f, xs: np.where(
            xs[1] == 0, 0.0, np.divide(xs[0], np.where(xs[1] == 0, 1.0, xs[1]))
        ),
        cases=(
            Case(lambda a, b: safe_div(a, b), ((VEC3, -2, 2), (FLOAT, 0.5, 2))),
            Case(lambda a: safe_div(a, a * 0.0), ((FLOAT, -2, 2),)),
        ),
    )
)


def _safe_div_backward(f: Function, gy: Variable, i: int) -> Variable:
    g = safe_div(gy, f.inputs[1])
    return fit(g if i == 0 else -(g * f.output), f.inputs[i])


def zeros_like(x: Variable) -> Variable:
    """A constant 0 of x's type (1x1: it broadcasts)."""
    from dressi.ad.functions._common import constant

    return constant(np.zeros(x.vtype.n_words), x.vtype)


def compare(kind: str, a: Any, b: Any) -> Variable:
    """Mask of 1 and 0 (FLOAT or VECn) of ``a kind b`` per component. kind: lt lte gt gte eq ne. No gradient."""
    return apply(_ROWS[kind], lift(a, b))


def equal(a: Any, b: Any) -> Variable:
    """1 where a == b, else 0, per component. No gradient."""
    return compare("eq", a, b)


def not_equal(a: Any, b: Any) -> Variable:
    """1 where a != b, else 0, per component. No gradient."""
    return compare("ne", a, b)


def where(cond: Any, a: Any, b: Any) -> Variable:
    """a where cond != 0, else b.

    cond: FLOAT, INT, or a VECn mask with as many components as the values. NaN in the value that is not
    selected does not leak, forward or backward. Gradient to a and b; none to cond.
    """
    (cond,) = lift(cond)
    a, b = lift(a, b)
    return apply(WHERE, (cond, a, b))


def safe_div(a: Any, b: Any) -> Variable:
    """a / b, and 0 where b is 0 (forward and gradient). FLOAT, VECn. Gradient to both."""
    return apply(SAFE_DIV, lift(a, b))
