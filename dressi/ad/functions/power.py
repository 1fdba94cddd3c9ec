"""x^p: products and roots for the numbers p that have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dressi.ad.functions._common import INFINITY, NAN, constant_values, float_elementwise, lift
from dressi.ad.functions.components import fit
from dressi.ad.functions.elementary import log, sqrt
from dressi.ad.functions.select import compare, safe_div, where, zero_mul
from dressi.ad.graph import Function, Variable
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import Case, Op, apply
from dressi.ad.vtype import FLOAT, VEC2, VEC3


def pow(x: Any, p: Any) -> Variable:
    """x^p as np.power has it, per component: (-2)^3 is -8, and NaN where x < 0 and p is not whole.

    x, p: FLOAT, VECn; a scalar mixes with a vector. x^0 is 1 and 0^p infinite for p < 0; the sign
    of a zero is not looked at. Where p is a number, the powers 1, 2, 3, 4, -1, -2 and 0.5 become
    products, quotients and a root. Gradient: gy * p * x^(p - 1) to x, 0 at x = 0 (1 for p = 1); gy
    * x^p * log(x) to p, 0 for x <= 0.
    """
    x, p = lift("pow", x, p)
    y = apply(POW, (x, p))  # which raises what is wrong with the types
    values = set(constant_values(p))
    if len(values) != 1 or y.vtype != x.vtype:
        return y
    build = _SMALL_POWERS.get(values.pop())
    return y if build is None else build(x)


def _square(x: Variable) -> Variable:
    return x * x


# By products: x^p as exp2(p log2 x), which is what devices compute, loses digits and time.
_SMALL_POWERS: dict[float, Callable[[Variable], Variable]] = {
    1.0: lambda x: x,
    2.0: _square,
    3.0: lambda x: x * x * x,
    4.0: lambda x: _square(x * x),
    -1.0: lambda x: 1.0 / x,
    -2.0: lambda x: _square(1.0 / x),  # 1 / (x x) would be infinite where x x is denormal
    0.5: lambda x: sqrt(x),
}


def _pow_backward(f: Function, gy: Variable, i: int) -> Variable:
    x, p = f.inputs
    if i == 0:
        g = where(compare("eq", x, 0.0), compare("eq", p, 1.0), p * safe_div(f.output, x))
        return fit(zero_mul(gy, g), x)
    # d/dp x^p = x^p log x, and 0 at x = 0 (its limit for p > 0) and below, where x^p has holes.
    positive = compare("gt", x, 0.0)
    return fit(zero_mul(gy, where(positive, f.output * log(where(positive, x, 1.0)), 0.0)), p)


# GLSL's own pow(x, p) is undefined for x < 0, and for x = 0 with p <= 0: it sees |x|, or 1 for 0.
# {y}_n is the value for x < 0: -|x|^p where p is odd, NaN where it is not whole.
_POW = (
    "{T} {y}_x = {T}({x0}), {y}_p = {T}({x1}), {y}_m = abs({y}_x);\n"
    "  {y} = pow(mix({y}_m, {T}(1.0), equal_({y}_m, {T}(0.0))), {y}_p);\n"
    "  {T} {y}_n = mix(-{y}, {y}, equal_({T}(2.0) * floor({T}(0.5) * {y}_p), {y}_p));\n"
    f"  {{y}}_n = mix({{T}}({NAN}), {{y}}_n, equal_(floor({{y}}_p), {{y}}_p));\n"
    "  {y} = mix({y}, {y}_n, lessThan_({y}_x, {T}(0.0)));\n"
    f"  {{y}}_n = mix({{T}}(0.0), {{T}}({INFINITY}), lessThan_({{y}}_p, {{T}}(0.0)));\n"
    "  {y} = mix({y}, {y}_n, equal_({y}_m, {T}(0.0)));\n"
    "  {y} = mix({y}, {T}(1.0), equal_({y}_p, {T}(0.0)));"
)

POW = Op(
    "pow",
    float_elementwise,
    backward=_pow_backward,
    # + 0.0 makes -0.0 positive; what the sign of 0 means is left open on devices.
    reference=lambda f, xs: np.power(xs[0] + 0.0, xs[1]),
    cases=(
        Case(lambda a, b: pow(a, b), ((FLOAT, 0.2, 3), (FLOAT, -2, 2)), transcendental=True),
        Case(lambda a, b: pow(a, b), ((FLOAT, 0.2, 3), (VEC2, -2, 2)), transcendental=True),
        Case(lambda a: pow(a, 2.5), ((VEC3, 0.2, 3),), transcendental=True),
        Case(lambda a: pow(a, (3.0, -2.0, 5.0)), ((VEC3, -2, -0.4),), transcendental=True),
        *(
            Case(lambda a, p=p: pow(a, p), ((VEC3, low, -0.4),), transcendental=True)
            for p, low in ((1, -2), (2, -2), (3, -2), (4, -2), (5, -2), (-1, -2), (-2, -2))
        ),
        Case(lambda a: pow(a, 0.5), ((FLOAT, 0.2, 3),), transcendental=True),
    ),
)
register(POW, Kernel(_POW))
