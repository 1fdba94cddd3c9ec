"""What small neural networks have besides layers: activations, and the encoding of positions.

In: values per pixel. Out: the same, or a feature map (``neural``). All are graphs of other ops.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dressi.ad.functions._common import constant, leaf, needs_int, needs_variable
from dressi.ad.functions.arith import maximum, minimum
from dressi.ad.functions.elementary import cos, round, sigmoid, sin
from dressi.ad.functions.exponential import expm1, tanh
from dressi.ad.functions.image import expand
from dressi.ad.functions.layers import concat
from dressi.ad.functions.select import where
from dressi.ad.functions.vector import vec
from dressi.ad.graph import Variable, short
from dressi.ad.vtype import FLOAT, vector
from dressi.errors import GraphError


def _floats(name: str, x: Any) -> Variable:
    if needs_variable(name, x).vtype.is_int or x.vtype.is_matrix:
        raise GraphError(f"F.{name}: needs FLOAT or VECn, got {x.vtype.name}")
    return x


def relu(x: Variable) -> Variable:
    """max(x, 0). FLOAT, VECn. Gradient: 1 above 0, 0 below, 1/2 at 0."""
    return maximum(_floats("relu", x), 0.0)


def leaky_relu(x: Variable, slope: float = 0.01) -> Variable:
    """x above 0, slope * x below. FLOAT, VECn. slope: number in [0, 1). Gradient: 1 or slope; their
    mean at 0. Raises GraphError for another slope or type."""
    if not isinstance(slope, (int, float, np.number)) or not 0 <= float(slope) < 1:
        raise GraphError(f"F.leaky_relu: slope must be a number in [0, 1), got {short(slope)}")
    return maximum(_floats("leaky_relu", x), x * float(slope))


def elu(x: Variable) -> Variable:
    """x above 0, exp(x) - 1 below. FLOAT, VECn. Gradient: 1 above 0, exp(x) below (1 at 0)."""
    x = _floats("elu", x)
    return where(x >= 0.0, x, expm1(minimum(x, 0.0)))


def silu(x: Variable) -> Variable:
    """x * sigmoid(x), also called swish. FLOAT, VECn. Gradient everywhere."""
    return _floats("silu", x) * sigmoid(x)


def gelu(x: Variable) -> Variable:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), the usual approximation of x times the
    normal distribution function (Hendrycks and Gimpel, arXiv 1606.08415). FLOAT, VECn. Gradient
    everywhere."""
    x = _floats("gelu", x)
    inner = (x + x * x * x * 0.044715) * math.sqrt(2.0 / math.pi)
    return x * 0.5 * (tanh(inner) + 1.0)


def positional_encoding(x: Variable, n: int, include_input: bool = True) -> Variable:
    """Sines and cosines of x at n frequencies, as a feature map (Mildenhall et al., NeRF, eq. 4).

    x: FLOAT or VECn @ any size, one layer; meant to lie in [-1, 1] or [0, 1]. n: frequencies
    pi * 2^k, k = 0 to n - 1, 1 to 16. include_input: x itself first, in a layer of its own. Returns
    VEC4, for each k: VEC2: one layer (sin x, sin y, cos x, cos y); FLOAT: one (sin, cos, 0, 0);
    VEC3, VEC4: n layers of sines, then n of cosines, filled up with 0. Gradient to x.
    Raises GraphError for integers, matrices, several layers (F.reshape makes one image of a stack).
    """
    x = _floats("positional_encoding", x)
    n = needs_int("positional_encoding", "n", n)
    where_ = "F.positional_encoding"
    if not 1 <= n <= 16:
        raise GraphError(f"{where_}: n must be 1 to 16, got {n}")
    if x.layers != 1:
        raise GraphError(
            f"{where_}: needs one layer, since channels are layers; got {x.label()}\n"
            "  hint: F.reshape(x, (w, h * layers)) makes one tall image of a stack"
        )
    m = x.vtype.n
    # In half turns, of which whole turns are taken off without rounding: devices need only know the
    # sine between -pi and pi, and pi * 2^15 * x has no digits left of its fraction.
    half_turns = x * leaf(2.0 ** np.arange(n).reshape(n, 1, 1, 1), FLOAT, "frequencies")
    angle = (half_turns - 2.0 * round(half_turns * 0.5)) * math.pi
    s, c = sin(angle), cos(angle)
    parts = [_filled(vec(s, c))] if m <= 2 else [_filled(s), _filled(c)]
    return concat([_filled(x), *parts] if include_input else parts)


def _filled(x: Variable) -> Variable:
    """VEC4 with 0 in the components that x has not."""
    missing = 4 - x.vtype.n
    if missing == 0:
        return x
    zeros = expand(constant(0.0, vector(missing)), x.size, x.layers)
    return vec(x, zeros)
