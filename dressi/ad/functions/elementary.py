"""Elementary functions of one variable (and pow, atan2), with stable forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dressi.ad.functions._common import call, fit, float_elementwise
from dressi.ad.functions.arith import neg
from dressi.ad.functions.select import compare, safe_div, where, zero_div, zero_mul
from dressi.ad.graph import Function, Variable
from dressi.ad.registry import OPS, Case, Op, apply, register
from dressi.ad.vtype import FLOAT, VEC3

Backward = Callable[[Variable, Variable, Variable], Variable]  # (x, y, gy) -> gx


def _unary(
    name: str,
    glsl: str,
    ref: Callable[[np.ndarray], np.ndarray],
    backward: Backward | None,
    low: float = -2.0,
    high: float = 2.0,
    transcendental: bool = True,
) -> Op:
    def bwd(f: Function, gy: Variable, i: int) -> Variable | None:
        return backward(f.inputs[0], f.output, gy) if backward else None

    return register(
        Op(
            name,
            float_elementwise,
            glsl,
            backward=bwd,
            reference=lambda f, xs: ref(xs[0]),
            cases=tuple(
                Case(
                    lambda a, name=name: apply(OPS[name], (a,)),
                    ((t, low, high),),
                    gradient=backward is not None,
                    transcendental=transcendental,
                )
                for t in (FLOAT, VEC3)
            ),
        )
    )


def _sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


# Differs: the paper's listing has cos(gy) as the gradient of sin.
_unary("sin", "{y} = sin({x0});", np.sin, lambda x, y, gy: zero_mul(gy, cos(x)))
_unary("cos", "{y} = cos({x0});", np.cos, lambda x, y, gy: neg(zero_mul(gy, sin(x))))
_unary("tan", "{y} = tan({x0});", np.tan, lambda x, y, gy: zero_mul(gy, 1.0 + y * y), -1.0, 1.0)
_unary("exp", "{y} = exp({x0});", np.exp, lambda x, y, gy: zero_mul(gy, y))
_unary("log", "{y} = log({x0});", np.log, lambda x, y, gy: zero_div(gy, x), 0.1, 4.0)
_unary("sqrt", "{y} = sqrt({x0});", np.sqrt, lambda x, y, gy: zero_div(gy * 0.5, y), 0.1, 4.0)
_unary(
    "abs",
    "{y} = abs({x0});",
    np.abs,
    lambda x, y, gy: zero_mul(gy, sign(x)),
    -2.0,
    2.0,
    transcendental=False,
)
_unary("sign", "{y} = sign({x0});", np.sign, None, transcendental=False)
_unary("floor", "{y} = floor({x0});", np.floor, None, transcendental=False)
_unary("ceil", "{y} = ceil({x0});", np.ceil, None, transcendental=False)
_unary("fract", "{y} = fract({x0});", lambda x: x - np.floor(x), lambda x, y, gy: gy, 0.1, 0.9)
_unary(
    "sigmoid",
    # Two-sided: exp(-x) of the naive form overflows to infinity and the gradient becomes NaN.
    "{T} {y}_e = exp(-abs({x0})); "
    "{y} = mix({y}_e, {T}(1.0), greaterThanEqual_({x0}, {T}(0.0))) / ({T}(1.0) + {y}_e);",
    _sigmoid,
    lambda x, y, gy: zero_mul(gy, y * (1.0 - y)),
    -5.0,
    5.0,
)
_unary(
    "softplus",
    "{y} = max({x0}, {T}(0.0)) + log({T}(1.0) + exp(-abs({x0})));",
    lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    lambda x, y, gy: zero_mul(gy, sigmoid(x)),
    -5.0,
    5.0,
)
_unary("tanh", "{y} = tanh({x0});", np.tanh, lambda x, y, gy: zero_mul(gy, 1.0 - y * y))
_unary("asin", "{y} = asin({x0});", np.arcsin, lambda x, y, gy: _inverse_sine(x, gy), -0.9, 0.9)
_unary(
    "acos", "{y} = acos({x0});", np.arccos, lambda x, y, gy: neg(_inverse_sine(x, gy)), -0.9, 0.9
)
_unary("atan", "{y} = atan({x0});", np.arctan, lambda x, y, gy: zero_div(gy, 1.0 + x * x))


def _inverse_sine(x: Variable, gy: Variable) -> Variable:
    rest = 1.0 - x * x
    return zero_div(gy, sqrt(where(compare("gt", rest, 0.0), rest, 0.0)))


def _pow_backward(f: Function, gy: Variable, i: int) -> Variable:
    x, p = f.inputs
    if i == 0:
        g = where(
            compare("eq", x, 0.0), where(compare("eq", p, 1.0), 1.0, 0.0), p * safe_div(f.output, x)
        )
        return fit(zero_mul(gy, g), x)
    # d/dp x^p = x^p log x, and 0 at x = 0 (its limit for p > 0).
    positive = compare("gt", x, 0.0)
    return fit(zero_mul(gy, where(positive, f.output * log(where(positive, x, 1.0)), 0.0)), p)


POW = register(
    Op(
        "pow",
        float_elementwise,
        # pow(0, p) with GLSL is undefined for p <= 0; p = 0 gives 1 here.
        "{y} = mix(pow({T}({x0}), {T}({x1})), {T}(1.0), equal_({T}({x1}), {T}(0.0)));",
        backward=_pow_backward,
        reference=lambda f, xs: np.power(xs[0], xs[1]),
        cases=(
            Case(lambda a, b: pow(a, b), ((FLOAT, 0.2, 3), (FLOAT, -2, 2)), transcendental=True),
            Case(lambda a: pow(a, 3.0), ((VEC3, 0.2, 3),), transcendental=True),
        ),
    )
)


def _apply(name: str, x: Any) -> Variable:
    return call(OPS[name], x)


def sin(x: Any) -> Variable:
    """Sine, radians. FLOAT, VECn. Gradient: gy * cos(x)."""
    return _apply("sin", x)


def cos(x: Any) -> Variable:
    """Cosine, radians. FLOAT, VECn. Gradient: -gy * sin(x)."""
    return _apply("cos", x)


def tan(x: Any) -> Variable:
    """Tangent, radians. FLOAT, VECn. Gradient: gy * (1 + y^2)."""
    return _apply("tan", x)


def asin(x: Any) -> Variable:
    """Arc sine in radians, x in [-1, 1]. Gradient 0 at +-1."""
    return _apply("asin", x)


def acos(x: Any) -> Variable:
    """Arc cosine in radians, x in [-1, 1]. Gradient 0 at +-1."""
    return _apply("acos", x)


def atan(x: Any) -> Variable:
    """Arc tangent in radians. Gradient: gy / (1 + x^2)."""
    return _apply("atan", x)


def exp(x: Any) -> Variable:
    """e^x. FLOAT, VECn. Gradient: gy * y."""
    return _apply("exp", x)


def log(x: Any) -> Variable:
    """Natural logarithm, x > 0. Gradient gy / x, 0 at x = 0."""
    return _apply("log", x)


def sqrt(x: Any) -> Variable:
    """Square root, x >= 0. Gradient gy / (2 y), 0 at x = 0."""
    return _apply("sqrt", x)


def tanh(x: Any) -> Variable:
    """Hyperbolic tangent. Gradient: gy * (1 - y^2)."""
    return _apply("tanh", x)


def abs(x: Any) -> Variable:
    """Magnitude per component. Gradient gy * sign(x), 0 at 0."""
    return _apply("abs", x)


def sign(x: Any) -> Variable:
    """-1, 0 or 1 per component. No gradient."""
    return _apply("sign", x)


def floor(x: Any) -> Variable:
    """Largest integer not above x, as FLOAT or VECn. No gradient."""
    return _apply("floor", x)


def ceil(x: Any) -> Variable:
    """Smallest integer not below x, as FLOAT or VECn. No gradient."""
    return _apply("ceil", x)


def fract(x: Any) -> Variable:
    """x - floor(x). Gradient: gy."""
    return _apply("fract", x)


def sigmoid(x: Any) -> Variable:
    """1 / (1 + exp(-x)) in the two-sided form that never overflows. Gradient: gy * y * (1 - y)."""
    return _apply("sigmoid", x)


def softplus(x: Any) -> Variable:
    """log(1 + exp(x)) in the form that never overflows. Gradient: gy * sigmoid(x)."""
    return _apply("softplus", x)


def pow(x: Any, p: Any) -> Variable:
    """x^p for x >= 0; x^0 = 1. Gradient to both; 0 at x = 0 (1 for p = 1)."""
    return call(POW, x, p)
