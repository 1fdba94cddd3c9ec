"""Comparison and selection, and the products and quotients of gradients that let nothing leak.

A comparison gives a FLOAT or VECn mask of 1 and 0. What ``where`` does not select gets a gradient
of exactly 0; ``zero_mul`` and ``zero_div``, which backwards are written with, keep it 0 where the
local derivative is infinite or NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dressi.ad.functions._common import (
    call,
    constant,
    constant_values,
    elementwise,
    float_elementwise,
    is_constant,
    lift,
    linear,
)
from dressi.ad.functions.components import fit
from dressi.ad.graph import Function, Variable
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import OPS, Case, Op, Shape, apply
from dressi.ad.shape import broadcast
from dressi.ad.vtype import FLOAT, INT, MAT2, VEC3, vector
from dressi.errors import GraphError
from dressi.kinds import Comparison

_COMPARE: dict[Comparison, tuple[str, str, Any]] = {
    "lt": ("<", "lessThan_", np.less),
    "lte": ("<=", "lessThanEqual_", np.less_equal),
    "gt": (">", "greaterThan_", np.greater),
    "gte": (">=", "greaterThanEqual_", np.greater_equal),
    "eq": ("==", "equal_", np.equal),
    "ne": ("!=", "notEqual_", np.not_equal),
}


def _compare_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    vtype, size, layers = elementwise(xs, attrs)
    return vector(vtype.n), size, layers


def _operand(f: Function) -> str:
    n = f.output.vtype.n
    return vector(n, f.inputs[0].vtype.is_int).glsl


def _make(name: Comparison) -> Op:
    _, function, ref = _COMPARE[name]
    return register(
        Op(
            name,
            _compare_infer,
            flat=True,
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
        ),
        Kernel(
            lambda f: f"{{y}} = {{T}}({function}({_operand(f)}({{x0}}), {_operand(f)}({{x1}})));"
        ),
    )


_ROWS = {name: _make(name) for name in _COMPARE}


def _where_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    cond, a, b = xs
    vtype, _, _ = linear((a, b), attrs)
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
    zero = constant(0.0, gy.vtype)
    return fit(where(cond, gy, zero) if i == 1 else where(cond, zero, gy), f.inputs[i])


WHERE = Op(
    "where",
    _where_infer,
    exact=True,
    why_zero="it selects the other value wherever a gradient arrives",
    zero_if=(1, 2),
    chooses=True,
    backward=_where_backward,
    reference=lambda f, xs: np.where(
        (xs[0][..., None] if f.output.vtype.is_matrix else xs[0]) != 0, xs[1], xs[2]
    ),
    cases=(
        Case(lambda a, b: where(a > 0.3, a, b * 2.0), ((FLOAT, -2, 2), (VEC3, -2, 2))),
        Case(lambda a, b: where(a > b, a, b), ((VEC3, -2, 2), (VEC3, -2, 2))),
        Case(
            lambda a, b: where(apply(OPS["sum_components"], (a,)) > 0.0, a, b),
            ((MAT2, -2, 2), (MAT2, -2, 2)),
        ),
    ),
)
register(WHERE, Kernel(_where_glsl))

_QUOTIENT = (
    "{y} = {T}({x0}) / mix({T}({x1}), {T}(1.0), equal_({T}({x1}), {T}(0.0))); "
    "{y} = mix({y}, {T}(0.0), equal_({T}({x1}), {T}(0.0)));"
)
_ZERO_IF_0 = " {y} = mix({y}, {T}(0.0), equal_({T}({x0}), {T}(0.0)));"


def _quotient(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    return np.where(xs[1] == 0, 0.0, np.divide(xs[0], np.where(xs[1] == 0, 1.0, xs[1])))


def _quotient_backward(f: Function, gy: Variable, i: int) -> Variable:
    g = zero_div(gy, f.inputs[1])
    return fit(g if i == 0 else -zero_mul(g, f.output), f.inputs[i])


SAFE_DIV = Op(
    "safe_div",
    float_elementwise,
    backward=_quotient_backward,
    reference=_quotient,
    cases=(
        Case(lambda a, b: safe_div(a, b), ((VEC3, -2, 2), (FLOAT, 0.5, 2))),
        Case(lambda a: safe_div(a, a * 0.0), ((FLOAT, -2, 2),)),
    ),
)
register(SAFE_DIV, Kernel(_QUOTIENT))


ZERO_DIV = Op(
    "zero_div",
    float_elementwise,
    zero_if=(0,),
    backward=_quotient_backward,
    reference=lambda f, xs: np.where(xs[0] == 0, 0.0, _quotient(f, xs)),
    cases=(
        Case(lambda a, b: zero_div(a, b), ((VEC3, -2, 2), (FLOAT, 0.5, 2))),
        Case(lambda a, b: zero_div(a * 0.0, a * 0.0 + b), ((FLOAT, -2, 2), (FLOAT, 0.5, 2))),
    ),
)
register(ZERO_DIV, Kernel(_QUOTIENT + _ZERO_IF_0))

ZERO_MUL = Op(
    "zero_mul",
    float_elementwise,
    zero_if=(0,),
    backward=lambda f, gy, i: fit(zero_mul(gy, f.inputs[1 - i]), f.inputs[i]),
    reference=lambda f, xs: np.where(xs[0] == 0, 0.0, xs[0] * xs[1]),
    cases=(
        Case(lambda a, b: zero_mul(a, b), ((FLOAT, -2, 2), (VEC3, -2, 2))),
        Case(lambda a, b: zero_mul(a, b), ((VEC3, -2, 2), (FLOAT, -2, 2))),
    ),
)
register(ZERO_MUL, Kernel("{y} = {x0} * {x1};" + _ZERO_IF_0))


def zero_mul(g: Variable, d: Variable) -> Variable:
    """g * d, and exactly 0 where g is 0, even if d is infinite or NaN. Gradient to both.

    FLOAT, VECn. For backwards: g is a gradient, d a derivative.
    """
    if is_constant(d) or (is_constant(g) and 0.0 not in constant_values(g)):
        return g * d
    return apply(ZERO_MUL, (g, d))


def zero_div(g: Variable, d: Variable) -> Variable:
    """g / d, and exactly 0 where g or d is 0. FLOAT, VECn. For backwards. Gradient to both."""
    return apply(ZERO_DIV, (g, d))


def compare(kind: Comparison, a: Any, b: Any) -> Variable:
    """Mask of 1 and 0 (FLOAT or VECn) of ``a kind b`` per component. No gradient.

    a, b: FLOAT, VECn, INT, IVECn; a scalar mixes with a vector. kind: lt lte gt gte eq ne. Raises
    GraphError for another kind.
    """
    if kind not in _ROWS:
        raise GraphError(f"F.compare: kind must be one of {tuple(_ROWS)}, got {kind!r}")
    return call(_ROWS[kind], a, b)


def equal(a: Any, b: Any) -> Variable:
    """1 where a == b, else 0, per component. No gradient."""
    return compare("eq", a, b)


def not_equal(a: Any, b: Any) -> Variable:
    """1 where a != b, else 0, per component. No gradient."""
    return compare("ne", a, b)


def where(cond: Any, a: Any, b: Any) -> Variable:
    """a where cond != 0, else b.

    cond: FLOAT, INT, or a VECn mask with as many components as the values. a, b: FLOAT, VECn, INT,
    IVECn, or MATn of one type. NaN and infinity in the value that is not selected do not leak: not
    forward, nor backward through ops that work component by component, F.dot and F.length. Gradient
    to a and b; none to cond.
    """
    (cond,) = lift("where", cond)
    a, b = lift("where", a, b)
    return apply(WHERE, (cond, a, b))


def safe_div(a: Any, b: Any) -> Variable:
    """a / b, and 0 where b is 0 (forward and gradient). FLOAT, VECn. Gradient to both."""
    return call(SAFE_DIV, a, b)
