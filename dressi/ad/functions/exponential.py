"""Exponentials, logarithms and hyperbolic functions that stay exact near 0 and do not overflow.

GLSL's own hyperbolic functions are differences of exponentials: near 0 only their absolute error is
small. These switch to series there.
"""

# A function below its row is a signature and a docstring; rows name functions that come later.
# mypy: disable-error-code="empty-body, has-type"

from __future__ import annotations

from math import factorial, log
from typing import Any

import numpy as np

from dressi.ad.functions.elementary import exp, sigmoid, sqrt
from dressi.ad.functions.select import compare, where, zero_div, zero_mul
from dressi.ad.functions.unary import log_glsl, number_glsl, unary
from dressi.ad.graph import Variable
from dressi.ad.registry import OPS, Case, apply
from dressi.ad.vtype import FLOAT, VEC2, VEC3

_LN2 = log(2)


def _horner(x: str, coefficients: list[float]) -> str:
    """GLSL of c0 + x (c1 + x (c2 + ...)) in the type {T}."""
    text = f"{{T}}({coefficients[-1]!r})"
    for c in reversed(coefficients[:-1]):
        text = f"({{T}}({c!r}) + {x} * {text})"
    return text


def _log1p_glsl(name: str, x: str) -> str:
    """Statement that declares ``name`` = log(1 + x).

    Inside (-0.3, 0.5) it is 2 atanh(x / (2 + x)) as a series, whose next term is 1e-8 of the first:
    log itself may be off by 2^-21 near 1 (Vulkan specification, precision of operations).
    """
    series = _horner(f"{name}_q", [2 / k for k in (1, 3, 5, 7, 9)])
    return (
        f"{{T}} {name}_s = {x} / ({{T}}(2.0) + {x}), {name}_q = {name}_s * {name}_s, "
        f"{name}_u = {{T}}(1.0) + {x};\n"
        f"  {{T}} {name} = mix({name}_s * {series}, {log_glsl(f'{name}_u')},\n"
        f"    greaterThan_(abs({x} - {{T}}(0.1)), {{T}}(0.4)));\n  "
    )


def _near(*names: str) -> tuple[Case, ...]:
    """Cases near 0, where the naive forms lose all digits in float32."""
    return tuple(
        Case(
            lambda a, name=name, low=low: apply(OPS[name], (a,)),
            ((VEC2, low, -low / 2),),
            transcendental=True,
        )
        for name in names
        for low in (-1e-3, -1e-6)
    )


@unary("{y} = exp2({x0});", np.exp2, lambda x, y, gy: zero_mul(gy, y * _LN2))
def exp2(x: Any) -> Variable:
    """2^x. FLOAT, VECn. Gradient: gy * y * log(2)."""


@unary(
    f"{{y}} = {log_glsl('{x0}', 'log2')};",
    np.log2,
    lambda x, y, gy: zero_div(gy * (1 / _LN2), x),
    0.1,
    4.0,
)
def log2(x: Any) -> Variable:
    """Logarithm to base 2; -infinity at 0, NaN below. FLOAT, VECn. Gradient: gy / (x log(2)), 0 at
    x = 0."""


@unary(
    _log1p_glsl("{y}_l", "{x0}") + "{y} = {y}_l;",
    np.log1p,
    lambda x, y, gy: zero_div(gy, 1.0 + x),
    -0.9,
    4.0,
    more=_near("log1p"),
)
def log1p(x: Any) -> Variable:
    """log(1 + x), exact for small x; -infinity at -1, NaN below. FLOAT, VECn. Gradient: gy / (1 +
    x), 0 at x = -1."""


@unary(
    f"{{y}} = mix({{x0}} * {_horner('{x0}', [1 / factorial(k) for k in range(1, 9)])},\n"
    "    exp({x0}) - {T}(1.0), greaterThan_(abs({x0}), {T}(0.5)));",
    np.expm1,
    lambda x, y, gy: zero_mul(gy, exp(x)),
    more=_near("expm1"),
)
def expm1(x: Any) -> Variable:
    """exp(x) - 1, exact for small x. FLOAT, VECn. Gradient: gy * exp(x)."""


@unary(
    "{T} {y}_q = {x0} * {x0};\n"
    f"  {{y}} = mix({{x0}} * {_horner('{y}_q', [1 / factorial(k) for k in (1, 3, 5, 7, 9)])},\n"
    "    {T}(0.5) * (exp({x0}) - exp(-{x0})), greaterThan_(abs({x0}), {T}(1.0)));",
    np.sinh,
    lambda x, y, gy: zero_mul(gy, cosh(x)),
    more=_near("sinh"),
)
def sinh(x: Any) -> Variable:
    """Hyperbolic sine. FLOAT, VECn. Gradient: gy * cosh(x)."""


@unary(
    "{y} = {T}(0.5) * (exp({x0}) + exp(-{x0}));",
    np.cosh,
    lambda x, y, gy: zero_mul(gy, sinh(x)),
)
def cosh(x: Any) -> Variable:
    """Hyperbolic cosine. FLOAT, VECn. Gradient: gy * sinh(x)."""


@unary(
    # The exponential of what is negative does not overflow, as those of sinh / cosh would.
    "{T} {y}_q = {x0} * {x0}, {y}_e = exp({T}(-2.0) * abs({x0}));\n"
    f"  {{T}} {{y}}_s = {{x0}} * {_horner('{y}_q', [1 / factorial(k) for k in (1, 3, 5, 7)])},\n"
    f"    {{y}}_c = {_horner('{y}_q', [1 / factorial(k) for k in (0, 2, 4, 6, 8)])};\n"
    "  {y} = mix({y}_s / {y}_c, sign({x0}) * (({T}(1.0) - {y}_e) / ({T}(1.0) + {y}_e)),\n"
    "    greaterThan_(abs({x0}), {T}(0.5)));",
    np.tanh,
    lambda x, y, gy: zero_mul(gy, 4.0 * sigmoid(2.0 * x) * sigmoid(-2.0 * x)),  # 1 - y^2 is coarse
    more=_near("tanh"),
)
def tanh(x: Any) -> Variable:
    """Hyperbolic tangent. FLOAT, VECn. Gradient: gy / cosh(x)^2, exact far from 0 too."""


@unary(
    # log1p(a + a^2 / (1 + sqrt(1 + a^2))); beyond 1e4 the difference from log(2 a) is < 1e-8.
    "{T} {y}_a = min(abs({x0}), {T}(1e4));\n"
    "  {y}_a += {y}_a * {y}_a / ({T}(1.0) + sqrt({T}(1.0) + {y}_a * {y}_a));\n  "
    + _log1p_glsl("{y}_l", "{y}_a")
    + f"{{y}}_l = mix({{y}}_l, log(abs({{x0}})) + {{T}}({_LN2!r}),\n"
    "    greaterThan_(abs({x0}), {T}(1e4)));\n"
    "  {y} = mix({y}_l, -{y}_l, lessThan_({x0}, {T}(0.0)));",
    np.arcsinh,
    lambda x, y, gy: zero_div(gy, sqrt(1.0 + x * x)),
    more=_near("asinh"),
)
def asinh(x: Any) -> Variable:
    """Inverse hyperbolic sine. FLOAT, VECn. Gradient: gy / sqrt(1 + x^2)."""


@unary(
    # With t = x - 1; the product of roots does not overflow where t (t + 2) does.
    "{T} {y}_t = {x0} - {T}(1.0);\n  {y}_t += sqrt({y}_t) * sqrt({y}_t + {T}(2.0));\n  "
    + _log1p_glsl("{y}_l", "{y}_t")
    + f"{{y}} = {number_glsl('{y}_l', 'greaterThanEqual_({x0}, {T}(1.0))')};",
    np.arccosh,
    lambda x, y, gy: zero_div(gy, _root((x - 1.0) * (x + 1.0))),
    1.1,
    4.0,
    more=(Case(lambda a: acosh(a), ((FLOAT, 1.001, 1.01),), transcendental=True),),
)
def acosh(x: Any) -> Variable:
    """Inverse hyperbolic cosine, NaN below 1. FLOAT, VECn. Gradient: gy / sqrt(x^2 - 1), 0 at x =
    1."""


@unary(
    "{T} {y}_n = -{x0};\n  "
    + _log1p_glsl("{y}_l", "{x0}")
    + _log1p_glsl("{y}_m", "{y}_n")
    + "{y} = {T}(0.5) * ({y}_l - {y}_m);",
    np.arctanh,
    lambda x, y, gy: zero_div(gy, (1.0 - x) * (1.0 + x)),
    -0.9,
    0.9,
    more=_near("atanh") + (Case(lambda a: atanh(a), ((VEC3, 0.9, 0.99),), transcendental=True),),
)
def atanh(x: Any) -> Variable:
    """Inverse hyperbolic tangent; infinite at +-1, NaN beyond. FLOAT, VECn. Gradient: gy / (1 -
    x^2), 0 at +-1."""


def _root(x: Variable) -> Variable:
    """Square root, and 0 below 0."""
    return sqrt(where(compare("gt", x, 0.0), x, 0.0))
