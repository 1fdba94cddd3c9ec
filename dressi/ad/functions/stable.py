"""Norms, and forms that neither overflow nor lose digits: softmax, log-sums, robust losses.

All are compositions of other ops, so they fold into the shader that uses them and their gradients
are those of their parts. "Components" are those of a vector at one pixel.
"""

from __future__ import annotations

from math import inf
from typing import Any

from dressi.ad.functions._common import lift, needs_variable
from dressi.ad.functions.arith import maximum, minimum
from dressi.ad.functions.components import sum_components
from dressi.ad.functions.elementary import abs, exp, log, sqrt
from dressi.ad.functions.exponential import log1p
from dressi.ad.functions.select import safe_div
from dressi.ad.functions.stop import stop_gradient
from dressi.ad.functions.vector import length, max_components
from dressi.ad.graph import Variable, short
from dressi.errors import GraphError


def norm(x: Variable, order: float = 2) -> Variable:
    """FLOAT norm of the components at each pixel.

    x: FLOAT, VECn. order: 1 (sum of magnitudes), 2 (Euclidean, F.length) or ``math.inf`` (largest
    magnitude); else GraphError. Gradient: the subgradient 0 at 0; components that tie for the
    largest share it.
    """
    if order not in (1, 2, inf):
        raise GraphError(f"F.norm: order must be 1, 2 or inf, got {short(order)}")
    if order == 2:
        return length(x)
    x = abs(needs_variable("norm", x))
    if x.vtype.is_int:
        raise GraphError(f"F.norm: needs FLOAT or VECn, got {x.vtype.name}")
    return sum_components(x) if order == 1 else max_components(x)


def safe_normalize(x: Variable, epsilon: Any = 1e-6) -> Variable:
    """x / max(|x|, epsilon): a unit vector, but short where |x| < epsilon, and 0 at 0.

    x: FLOAT, VECn. epsilon: positive number or FLOAT. Gradient to x: bounded by 1 / epsilon, and gy
    / epsilon at 0, where F.normalize has none.
    """
    return safe_div(x, maximum(length(x), epsilon))


def logsumexp(x: Variable) -> Variable:
    """FLOAT log(sum of exp) over the components. FLOAT, VECn. Gradient: gy * softmax(x)."""
    top = stop_gradient(max_components(needs_variable("logsumexp", x)))
    return top + log(sum_components(exp(x - top)))


def softmax(x: Variable) -> Variable:
    """exp(x) divided by its sum over the components: positive, sum 1. FLOAT, VECn.

    Gradient: y * (gy - dot(gy, y)).
    """
    e = exp(x - stop_gradient(max_components(needs_variable("softmax", x))))
    return e / sum_components(e)


def logaddexp(a: Any, b: Any) -> Variable:
    """log(exp(a) + exp(b)) per component. FLOAT, VECn; a scalar mixes with a vector.

    Gradient: gy * sigmoid(a - b) to a, gy * sigmoid(b - a) to b.
    """
    a, b = lift("logaddexp", a, b)
    return maximum(a, b) + log1p(exp(-abs(a - b)))


def log_sigmoid(x: Any) -> Variable:
    """log(sigmoid(x)) = -softplus(-x), exact far from 0 too. FLOAT, VECn.

    Gradient: gy * sigmoid(-x).
    """
    (x,) = lift("log_sigmoid", x)
    return minimum(x, 0.0) - log1p(exp(-abs(x)))


def huber(x: Any, delta: Any = 1.0) -> Variable:
    """x^2 / 2 where |x| <= delta, else delta * (|x| - delta / 2): a robust loss, per component.

    x, delta: FLOAT, VECn; a scalar mixes with a vector; delta > 0. Gradient to both: gy * clamp(x,
    -delta, delta) to x. Source: Huber 1964.
    """
    x, delta = lift("huber", x, delta)
    size = abs(x)
    part = minimum(size, delta)
    return part * (size - 0.5 * part)


def charbonnier(x: Any, epsilon: Any = 1e-3) -> Variable:
    """sqrt(x^2 + epsilon^2): a smooth |x|, per component; epsilon at 0.

    x, epsilon: FLOAT, VECn; a scalar mixes with a vector. Gradient to both: gy * x / y to x, which
    is 0 at 0. Source: Charbonnier et al. 1994.
    """
    x, epsilon = lift("charbonnier", x, epsilon)
    return sqrt(x * x + epsilon * epsilon)
