"""The transfer curve of sRGB, both ways, with gradients that stay finite.

Compositions of other ops. The straight part near 0 is what keeps the slope of the root finite; the
root and the power are only given what they are used for, so nothing infinite is multiplied by 0.
"""

from __future__ import annotations

from typing import Any

from dressi.ad.functions._common import lift
from dressi.ad.functions.arith import maximum
from dressi.ad.functions.power import pow
from dressi.ad.functions.select import compare, where
from dressi.ad.functions.vector import swizzle, vec
from dressi.ad.graph import Variable

_DECODE, _ENCODE = 0.04045, 0.0031308
"""Where the straight part ends, in encoded and in linear values."""


def srgb_to_linear(x: Any) -> Variable:
    """Linear values of values encoded with the sRGB curve, per component.

    x: FLOAT, VECn (an alpha is a component like the others: take .rgb). Below 0 the straight part
    goes on, above 1 the power. Gradient to x: from 1 / 12.92 at 0 to 2.27 at 1. Source: IEC
    61966-2-1.
    """
    (x,) = lift("srgb_to_linear", x)
    power = pow((maximum(x, _DECODE) + 0.055) / 1.055, 2.4)
    return where(compare("lte", x, _DECODE), x / 12.92, power)


def linear_to_srgb(x: Any) -> Variable:
    """Values encoded with the sRGB curve, per component: the inverse of F.image.srgb_to_linear.

    x: FLOAT, VECn (an alpha is a component like the others: take .rgb). Below 0 the straight part
    goes on, above 1 the root. Gradient to x: 12.92 up to 0.0031308, then falling, 0.44 at 1.
    Source: IEC 61966-2-1.
    """
    (x,) = lift("linear_to_srgb", x)
    root = 1.055 * pow(maximum(x, _ENCODE), 1 / 2.4) - 0.055
    return where(compare("lte", x, _ENCODE), x * 12.92, root)


def decoded(x: Variable) -> Variable:
    """An image of sRGB values in linear ones; the alpha of a VEC4 is kept."""
    if x.vtype.n < 4:
        return srgb_to_linear(x)
    return vec(srgb_to_linear(swizzle(x, "rgb")), swizzle(x, "a"))
