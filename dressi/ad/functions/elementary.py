"""Elementary functions of one variable (and atan2, mod), with stable forms."""

# A function below its row is a signature and a docstring; rows name functions that come later.
# mypy: disable-error-code="empty-body, has-type"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dressi.ad.functions._common import call, elementwise, float_elementwise, lift
from dressi.ad.functions.arith import MUL, clamp, maximum, neg, to_float
from dressi.ad.functions.components import fit
from dressi.ad.functions.select import compare, safe_div, where, zero_div, zero_mul
from dressi.ad.functions.unary import log_glsl, number_glsl, unary
from dressi.ad.graph import Function, Variable
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import Case, Op
from dressi.ad.vtype import FLOAT, IVEC2, VEC2, VEC3


def _sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


# Differs: the paper's listing has cos(gy) as the gradient of sin.
@unary("{y} = sin({x0});", np.sin, lambda x, y, gy: zero_mul(gy, cos(x)))
def sin(x: Any) -> Variable:
    """Sine, radians. FLOAT, VECn. Gradient: gy * cos(x).

    Vulkan asks devices for an error below 2^-11, and only between -pi and pi; most do far better.
    """


@unary("{y} = cos({x0});", np.cos, lambda x, y, gy: neg(zero_mul(gy, sin(x))))
def cos(x: Any) -> Variable:
    """Cosine, radians. FLOAT, VECn. Gradient: -gy * sin(x). Precision as of F.sin."""


@unary("{y} = tan({x0});", np.tan, lambda x, y, gy: zero_mul(gy, 1.0 + y * y), -1.0, 1.0)
def tan(x: Any) -> Variable:
    """Tangent, radians. FLOAT, VECn. Gradient: gy * (1 + y^2). Precision as of F.sin."""


@unary("{y} = exp({x0});", np.exp, lambda x, y, gy: zero_mul(gy, y))
def exp(x: Any) -> Variable:
    """e^x. FLOAT, VECn. Gradient: gy * y."""


@unary(f"{{y}} = {log_glsl('{x0}')};", np.log, lambda x, y, gy: zero_div(gy, x), 0.1, 4.0)
def log(x: Any) -> Variable:
    """Natural logarithm; -infinity at 0, NaN below. Gradient gy / x, 0 at x = 0."""


@unary(
    f"{{y}} = {number_glsl('sqrt({x0})', 'greaterThanEqual_({x0}, {T}(0.0))')};",
    np.sqrt,
    lambda x, y, gy: zero_div(gy * 0.5, y),
    0.1,
    4.0,
)
def sqrt(x: Any) -> Variable:
    """Square root, NaN below 0. Gradient gy / (2 y), 0 at x = 0."""


@unary(
    "{y} = abs({x0});",
    np.abs,
    lambda x, y, gy: zero_mul(gy, sign(x)),
    -2.0,
    2.0,
    transcendental=False,
    infer=elementwise,
    more=(Case(lambda a: abs(a), ((IVEC2, -9, 9),), gradient=False),),
    exact=True,
)
def abs(x: Any) -> Variable:
    """Magnitude per component. FLOAT, VECn, INT, IVECn. Gradient gy * sign(x), 0 at 0; none for
    integers, of which -2^31 has no magnitude of 32 bits."""


@unary(
    "{y} = sign({x0});",
    np.sign,
    transcendental=False,
    infer=elementwise,
    more=(Case(lambda a: sign(a), ((IVEC2, -2, 2),), gradient=False),),
)
def sign(x: Any) -> Variable:
    """-1, 0 or 1 per component. FLOAT, VECn, INT, IVECn. No gradient."""


@unary("{y} = floor({x0});", np.floor, transcendental=False)
def floor(x: Any) -> Variable:
    """Largest integer not above x, as FLOAT or VECn. No gradient."""


@unary("{y} = ceil({x0});", np.ceil, transcendental=False)
def ceil(x: Any) -> Variable:
    """Smallest integer not below x, as FLOAT or VECn. No gradient."""


@unary(
    "{y} = roundEven({x0});",
    np.round,
    transcendental=False,
    more=(Case(lambda a: round(to_float(a) * 0.5), ((IVEC2, -9, 9),), gradient=False),),
)
def round(x: Any) -> Variable:
    """Nearest integer as FLOAT or VECn; halves go to the even one. No gradient."""


@unary("{y} = trunc({x0});", np.trunc, transcendental=False)
def trunc(x: Any) -> Variable:
    """Integer part, toward zero, as FLOAT or VECn. No gradient."""


@unary("{y} = fract({x0});", lambda x: x - np.floor(x), lambda x, y, gy: gy, 0.1, 0.9)
def fract(x: Any) -> Variable:
    """x - floor(x). Gradient: gy."""


@unary(
    # Two-sided: exp(-x) of the naive form overflows to infinity and the gradient becomes NaN.
    "{T} {y}_e = exp(-abs({x0})); "
    "{y} = mix({y}_e, {T}(1.0), greaterThanEqual_({x0}, {T}(0.0))) / ({T}(1.0) + {y}_e);",
    _sigmoid,
    lambda x, y, gy: zero_mul(gy, y * sigmoid(-x)),  # 1 - y has few digits where y is near 1
    -5.0,
    5.0,
)
def sigmoid(x: Any) -> Variable:
    """1 / (1 + exp(-x)), two-sided: it never overflows. Gradient: gy * y * sigmoid(-x)."""


@unary(
    "{y} = max({x0}, {T}(0.0)) + log({T}(1.0) + exp(-abs({x0})));",
    lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    lambda x, y, gy: zero_mul(gy, sigmoid(x)),
    -5.0,
    5.0,
)
def softplus(x: Any) -> Variable:
    """log(1 + exp(x)) in the form that never overflows. Gradient: gy * sigmoid(x)."""


_WITHIN_1 = "lessThanEqual_(abs({x0}), {T}(1.0))"


@unary(
    f"{{y}} = {number_glsl('asin({x0})', _WITHIN_1)};",
    np.arcsin,
    lambda x, y, gy: _inverse_sine(x, gy),
    -0.9,
    0.9,
)
def asin(x: Any) -> Variable:
    """Arc sine in radians, x in [-1, 1], else NaN. Gradient 0 at +-1."""


@unary(
    f"{{y}} = {number_glsl('acos({x0})', _WITHIN_1)};",
    np.arccos,
    lambda x, y, gy: neg(_inverse_sine(x, gy)),
    -0.9,
    0.9,
)
def acos(x: Any) -> Variable:
    """Arc cosine in radians, x in [-1, 1], else NaN. Gradient 0 at +-1."""


@unary("{y} = atan({x0});", np.arctan, lambda x, y, gy: zero_div(gy, 1.0 + x * x))
def atan(x: Any) -> Variable:
    """Arc tangent in radians. Gradient: gy / (1 + x^2)."""


def _inverse_sine(x: Variable, gy: Variable) -> Variable:
    rest = (1.0 - x) * (1.0 + x)  # 1 - x is exact near 1, 1 - x^2 is not
    return zero_div(gy, sqrt(where(compare("gt", rest, 0.0), rest, 0.0)))


ATAN2 = Op(
    "atan2",
    float_elementwise,
    backward=lambda f, gy, i: _atan2_backward(f, gy, i),
    # + 0.0 makes -0.0 positive; what the sign of 0 means is left open on devices.
    reference=lambda f, xs: np.where(
        (xs[0] == 0) & (xs[1] == 0), 0.0, np.arctan2(xs[0] + 0.0, xs[1] + 0.0)
    ),
    cases=(
        Case(lambda a, b: atan2(a, b), ((VEC3, 0.1, 2), (VEC3, -2, 2)), transcendental=True),
        Case(lambda a, b: atan2(a, b), ((FLOAT, -2, -0.1), (VEC2, -2, 2)), transcendental=True),
        Case(lambda a, b: atan2(a, b), ((VEC2, -2, 2), (FLOAT, 0.1, 2)), transcendental=True),
    ),
)
register(
    ATAN2,
    Kernel(
        # atan(0, 0) is undefined in GLSL.
        "{T} {y}_y = {T}({x0}), {y}_x = {T}({x1});\n"
        "  {y}_x = mix({y}_x, {T}(1.0), equal_(max(abs({y}_x), abs({y}_y)), {T}(0.0)));\n"
        "  {y} = atan({y}_y, {y}_x);"
    ),
)


def _atan2_backward(f: Function, gy: Variable, i: int) -> Variable:
    """x / (x^2 + y^2) and -y / (x^2 + y^2), without squares that overflow or vanish."""
    y, x = f.inputs
    largest = maximum(abs(x), abs(y))
    u, v = safe_div(x, largest), safe_div(y, largest)
    g = zero_div(gy, largest) * safe_div(u if i == 0 else neg(v), u * u + v * v)
    return fit(g, f.inputs[i])


def _mod_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    x, y = xs
    return np.where(y == 0, x, np.mod(x, np.where(y == 0, 1.0, y)))


MOD = Op(
    "mod",
    float_elementwise,
    backward=lambda f, gy, i: fit(
        gy if i == 0 else neg(zero_mul(gy, _mod_quotient(f))), f.inputs[i]
    ),
    reference=_mod_ref,
    cases=(
        Case(lambda a, b: mod(a, b), ((VEC3, 0.1, 0.9), (FLOAT, 1, 2))),
        Case(lambda a, b: mod(a, b), ((FLOAT, -0.9, -0.1), (VEC2, 1, 2))),
        Case(lambda a, b: mod(a, b), ((VEC2, 4.2, 5.8), (VEC2, -2.0, -1.95))),
        Case(
            lambda a, b: mod(to_float(a), to_float(b)),
            ((IVEC2, -20, 20), (IVEC2, -5, 5)),
            gradient=False,
        ),
    ),
)
register(
    MOD,
    Kernel(
        # The quotient may be rounded to the next integer: the second and third line bring the
        # remainder back between 0 and y. What is added to a tiny remainder may round to y itself.
        "{T} {y}_x = {T}({x0}), {y}_y = {T}({x1}), {y}_a = abs({y}_y), {y}_s = sign({y}_y);\n"
        "  {y} = {y}_x - {y}_y * floor({y}_x / mix({y}_y, {T}(1.0), equal_({y}_a, {T}(0.0))));\n"
        "  {y} += mix({T}(0.0), {y}_y, lessThan_({y} * {y}_s, {T}(0.0)));\n"
        "  {y} -= mix({T}(0.0), {y}_y, greaterThanEqual_({y} * {y}_s, {y}_a));\n"
        "  {y} = mix({y}, {y}_x, equal_({y}_a, {T}(0.0)));"
    ),
)


def _mod_quotient(f: Function) -> Variable:
    x, y = f.inputs
    return round(safe_div(x - f.output, y))


def atan2(y: Any, x: Any) -> Variable:
    """Angle of the point (x, y) in radians, in [-pi, pi]; 0 at (0, 0).

    y, x: FLOAT, VECn; a scalar mixes with a vector. Gradient: gy * x / (x^2 + y^2) to y and -gy * y
    / (x^2 + y^2) to x, both 0 at (0, 0).
    """
    return call(ATAN2, y, x)


def mod(x: Any, y: Any) -> Variable:
    """x - y * floor(x / y): the remainder with the sign of y, so mod(-1, 3) is 2 and mod(1, -3) -2.

    x, y: FLOAT, VECn; a scalar mixes with a vector. mod(x, 0) is x. Gradient: gy to x and -gy *
    floor(x / y) to y, 0 where y is 0. Integers: F.imod.
    """
    return call(MOD, x, y)


def inversesqrt(x: Any) -> Variable:
    """1 / sqrt(x); infinite at 0, NaN below. FLOAT, VECn. Gradient: -gy * y / (2 x), 0 at x = 0."""
    return 1.0 / sqrt(x)


def radians(x: Any) -> Variable:
    """Degrees to radians. FLOAT, VECn. Gradient: gy * pi / 180."""
    return call(MUL, x, np.pi / 180)


def degrees(x: Any) -> Variable:
    """Radians to degrees. FLOAT, VECn. Gradient: gy * 180 / pi."""
    return call(MUL, x, 180 / np.pi)


def step(edge: Any, x: Any) -> Variable:
    """1 where x >= edge, else 0, per component. FLOAT, VECn, INT, IVECn. No gradient."""
    return compare("gte", x, edge)


def smoothstep(low: Any, high: Any, x: Any) -> Variable:
    """t^2 (3 - 2 t) of t = (x - low) / (high - low) clamped to [0, 1]; F.step where low = high.

    low, high, x: FLOAT, VECn; a scalar mixes with a vector. Gradient to all three; 0 outside and
    where low = high.
    """
    low, high, x = lift("smoothstep", low, high, x)
    t = clamp(safe_div(x - low, high - low), 0.0, 1.0)
    return where(compare("eq", low, high), step(low, x), t * t * (3.0 - 2.0 * t))
