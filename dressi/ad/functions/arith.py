"""Arithmetic: + - * / negation, minimum, maximum, clamp, mix, sums of many, type conversion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dressi.ad.functions._common import (
    call,
    constant_values,
    elementwise,
    is_constant,
    lift,
    linear,
    needs_variable,
)
from dressi.ad.functions.components import fit
from dressi.ad.functions.matrix import scale
from dressi.ad.functions.select import compare, zero_div, zero_mul
from dressi.ad.graph import Function, Variable, short
from dressi.ad.idioms import hinted
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import OPS, Case, Op, Shape, apply, every_input
from dressi.ad.vtype import FLOAT, INT, IVEC2, MAT3, VEC2, VEC3, VEC4, vector
from dressi.errors import GraphError
from dressi.kinds import Comparison

ADD = Op(
    "add",
    linear,
    additive=True,
    neutral=(0.0, 0.0),
    zero_if=every_input,
    backward=lambda f, gy, i: fit(gy, f.inputs[i]),
    reference=lambda f, xs: xs[0] + xs[1],
    cases=(
        Case(lambda a, b: a + b, ((FLOAT, -2, 2), (FLOAT, -2, 2))),
        Case(lambda a, b: a + b, ((VEC3, -2, 2), (FLOAT, -2, 2))),
        Case(lambda a, b: a + b, ((IVEC2, -9, 9), (INT, -9, 9)), gradient=False),
        Case(lambda a, b: a + b, ((MAT3, -2, 2), (MAT3, -2, 2))),
    ),
)
register(ADD, Kernel("{y} = {x0} + {x1};"))
SUB = Op(
    "sub",
    linear,
    additive=True,
    neutral=(None, 0.0),
    zero_if=every_input,
    backward=lambda f, gy, i: fit(gy if i == 0 else neg(gy), f.inputs[i]),
    reference=lambda f, xs: xs[0] - xs[1],
    cases=(
        Case(lambda a, b: a - b, ((VEC2, -2, 2), (VEC2, -2, 2))),
        Case(lambda a, b: a - b, ((FLOAT, -2, 2), (VEC4, -2, 2))),
    ),
)
register(SUB, Kernel("{y} = {x0} - {x1};"))
MUL = Op(
    "mul",
    elementwise,
    linear_in=(0, 1),
    neutral=(1.0, 1.0),
    zero_if=lambda f: next(((i,) for i in (0, 1) if is_constant(f.inputs[1 - i])), None),
    backward=lambda f, gy, i: fit(zero_mul(gy, f.inputs[1 - i]), f.inputs[i]),
    reference=lambda f, xs: xs[0] * xs[1],
    cases=(
        Case(lambda a, b: a * b, ((FLOAT, -2, 2), (FLOAT, -2, 2))),
        Case(lambda a, b: a * b, ((FLOAT, -2, 2), (VEC3, -2, 2))),
        Case(lambda a: a * a, ((VEC3, -2, 2),)),
        Case(lambda a, b: a * b, ((INT, -9, 9), (INT, -9, 9)), gradient=False),
    ),
)
register(MUL, Kernel("{y} = {x0} * {x1};"))


def _div_glsl(f: Function) -> str:
    divisors = constant_values(f.inputs[1])
    if not f.output.vtype.is_int or (divisors and not {0, -1} & set(divisors)):
        return "{y} = {x0} / {x1};"
    # Integers by 0, and -2^31 by -1, are undefined in SPIR-V. d ^ d >> 31 is 0 for both divisors.
    return (
        "{T} {y}_x = {T}({x0}), {y}_d = {T}({x1});\n"
        "  {y} = {y}_x / mix({y}_d, {T}(1), equal_({y}_d ^ ({y}_d >> 31), {T}(0)));\n"
        "  {y} = mix({y}, -{y}_x, equal_({y}_d, {T}(-1)));\n"
        "  {y} = mix({y}, {T}(0), equal_({y}_d, {T}(0)));"
    )


def _div_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    if not f.output.vtype.is_int:
        return np.divide(xs[0], xs[1])
    q = np.where(xs[1] == 0, 0, np.trunc(xs[0] / np.where(xs[1] == 0, 1, xs[1])))
    return (q + 2.0**31) % 2.0**32 - 2.0**31


DIV = Op(
    "div",
    elementwise,
    linear_in=(0,),
    neutral=(None, 1.0),
    backward=lambda f, gy, i: _div_backward(f, gy, i),
    reference=_div_ref,
    cases=(
        Case(lambda a, b: a / b, ((VEC3, -2, 2), (FLOAT, 0.5, 2))),
        Case(lambda a, b: a / b, ((FLOAT, -2, 2), (VEC2, 0.5, 2))),
        Case(lambda a, b: a / b, ((INT, 0, 99), (INT, 1, 9)), gradient=False),
        Case(lambda a, b: a / b, ((IVEC2, -20, 20), (INT, -2, 2)), gradient=False),
        Case(lambda a: a / 7, ((IVEC2, -20, 20),), gradient=False),
    ),
)
register(DIV, Kernel(_div_glsl))


def _div_backward(f: Function, gy: Variable, i: int) -> Variable:
    g = zero_div(gy, f.inputs[1])
    return fit(g if i == 0 else neg(zero_mul(g, f.output)), f.inputs[i])


NEG = Op(
    "neg",
    linear,
    additive=True,
    exact=True,
    zero_if=(0,),
    backward=lambda f, gy, i: neg(gy),
    reference=lambda f, xs: -xs[0],
    cases=(Case(lambda a: -a, ((VEC3, -2, 2),)),),
)
register(NEG, Kernel("{y} = -{x0};"))


def _tie(
    name: str, glsl: str, ref: Any, strictly: Comparison, loosely: Comparison, better: str
) -> Op:
    """minimum and maximum: at a tie each input gets half of the gradient, so that sums are kept."""

    def backward(f: Function, gy: Variable, i: int) -> Variable:
        a, b = f.inputs[i], f.inputs[1 - i]
        weight = 0.5 * (compare(strictly, a, b) + compare(loosely, a, b))
        return fit(gy * weight, a)

    return register(
        Op(
            name,
            elementwise,
            exact=True,
            why_zero=f"the other input is the {better} one wherever a gradient arrives",
            backward=backward,
            reference=ref,
            cases=(
                Case(lambda a, b: apply(OPS[name], (a, b)), ((VEC3, -2, 2), (VEC3, -2, 2))),
                Case(lambda a, b: apply(OPS[name], (a, b)), ((FLOAT, -2, 2), (VEC3, -2, 2))),
            ),
        ),
        Kernel(glsl),
    )


MINIMUM = _tie(
    "minimum",
    "{y} = min({T}({x0}), {T}({x1}));",
    lambda f, xs: np.minimum(xs[0], xs[1]),
    "lt",
    "lte",
    "smaller",
)
MAXIMUM = _tie(
    "maximum",
    "{y} = max({T}({x0}), {T}({x1}));",
    lambda f, xs: np.maximum(xs[0], xs[1]),
    "gt",
    "gte",
    "larger",
)


ADD_N = Op(
    "add_n",
    linear,
    additive=True,
    zero_if=every_input,
    backward=lambda f, gy, i: fit(gy, f.inputs[i]),
    reference=lambda f, xs: sum(xs[1:], start=xs[0]),
    cases=(Case(lambda a, b, c: add_n([a, b, c]), ((VEC2, -2, 2),) * 3),),
)
register(
    ADD_N, Kernel(lambda f: "{y} = " + " + ".join(f"{{x{i}}}" for i in range(len(f.inputs))) + ";")
)


def _convert(name: str, integer: bool, glsl: str, ref: Any) -> Op:
    def infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
        if xs[0].vtype.is_matrix:
            raise GraphError(f"needs a scalar or vector, got {xs[0].vtype.name}")
        return vector(xs[0].vtype.n, integer), xs[0].size, xs[0].layers

    return register(
        Op(
            name,
            infer,
            reference=ref,
            cases=(
                Case(
                    (lambda a: to_int(a)) if integer else (lambda a: to_float(a)),
                    ((VEC2, -9, 9) if integer else (IVEC2, -9, 9),),
                    gradient=False,
                ),
            ),
        ),
        Kernel(glsl),
    )


def _to_int_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    return np.trunc(np.clip(np.nan_to_num(xs[0], nan=0.0), -(2.0**31), 2.0**31 - 1))


TO_INT = _convert(
    "to_int",
    True,
    # The conversion of NaN, and of what integers do not reach, is undefined in SPIR-V.
    "{y} = {T}(mix({T0}(0.0), {x0}, lessThan_(abs({x0}), {T0}(2147483648.0))));\n"
    "  {y} = mix({y}, {T}(2147483647), greaterThanEqual_({x0}, {T0}(2147483648.0)));\n"
    "  {y} = mix({y}, {T}(-2147483647 - 1), lessThanEqual_({x0}, {T0}(-2147483648.0)));",
    _to_int_ref,
)
TO_FLOAT = _convert("to_float", False, "{y} = {T}({x0});", lambda f, xs: xs[0])


def add(a: Any, b: Any) -> Variable:
    """a + b. FLOAT, VECn, INT, IVECn, MATn @ any size; scalars mix with vectors. Gradient to
    both."""
    return call(ADD, a, b)


def sub(a: Any, b: Any) -> Variable:
    """a - b. FLOAT, VECn, INT, IVECn, MATn @ any size; scalars mix with vectors. Gradient to
    both."""
    return call(SUB, a, b)


def mul(a: Any, b: Any) -> Variable:
    """a * b, component by component. Gradient to both.

    FLOAT, VECn, INT, IVECn @ any size; a scalar mixes with a vector. MATn times FLOAT, in either
    order, is F.scale; other products of matrices are F.matmul.
    """
    a, b = lift("mul", a, b)
    if a.vtype.is_matrix and b.vtype is FLOAT:
        return scale(a, b)
    if b.vtype.is_matrix and a.vtype is FLOAT:
        return scale(b, a)
    if is_constant(b, 1.0) and b.vtype.n == 1:
        return a
    if is_constant(a, 1.0) and a.vtype.n == 1:
        return b
    return apply(MUL, (a, b))


def div(a: Any, b: Any) -> Variable:
    """a / b, component by component; integers truncate. Gradient to both; 0 where b is 0.

    FLOAT, VECn, INT, IVECn @ any size; a scalar mixes with a vector. x / 0 is infinite; of integers
    it is 0, and -2^31 / -1 wraps to -2^31.
    """
    return call(DIV, a, b)


def neg(a: Variable) -> Variable:
    """-a. Any type. Gradient: -gy."""
    return apply(NEG, (a,))


def minimum(a: Any, b: Any) -> Variable:
    """Smaller of a and b per component. At a tie both get half of the gradient.

    Where one is NaN the result is one of the two, and which one differs between devices.
    """
    return call(MINIMUM, a, b)


def maximum(a: Any, b: Any) -> Variable:
    """Larger of a and b per component. At a tie both get half of the gradient.

    Where one is NaN the result is one of the two, and which one differs between devices.
    """
    return call(MAXIMUM, a, b)


@hinted
def clamp(x: Any, low: Any, high: Any) -> Variable:
    """minimum(maximum(x, low), high): gradient 1 inside, 0 outside, 1/2 on the border."""
    return minimum(maximum(x, low), high)


def mix(a: Any, b: Any, t: Any) -> Variable:
    """a + (b - a) * t. FLOAT, VECn; MATn with a FLOAT t. Gradient to all three."""
    a, b, t = lift("mix", a, b, t)
    return a + (b - a) * t


def add_n(xs: Sequence[Variable]) -> Variable:
    """Sum of many as a balanced tree of fan-in 4 (Vulkan guarantees only 4 input attachments).
    Gradient to all. Raises GraphError for an empty list."""
    if not isinstance(xs, (list, tuple)):
        raise GraphError(f"F.add_n: needs a list of Variables, got {short(xs)}")
    items = lift("add_n", *xs)
    if not items:
        raise GraphError("F.add_n: nothing to add")
    while len(items) > 1:
        items = [
            apply(ADD_N, items[i : i + 4]) if len(items[i : i + 4]) > 1 else items[i]
            for i in range(0, len(items), 4)
        ]
    return items[0]


def to_int(x: Variable) -> Variable:
    """INT or IVECn of x (FLOAT, VECn, INT, IVECn), toward zero; what lies beyond 32 bits becomes
    the nearest of them, NaN 0. No gradient."""
    return x if needs_variable("to_int", x).vtype.is_int else apply(TO_INT, (x,))


def to_float(x: Variable) -> Variable:
    """FLOAT or VECn of x (FLOAT, VECn, INT, IVECn). Gradient: gy to a float x, none to integers."""
    t = needs_variable("to_float", x).vtype
    return apply(TO_FLOAT, (x,)) if t.is_int or t.is_matrix else x
