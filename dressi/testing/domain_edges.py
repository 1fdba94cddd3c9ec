"""Points at the edge of the domain of ops (R2): what the docstrings promise there.

Used in float64 (tests/ad), on the device (tests/engine) and by R2 of ``dressi bench reliability``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, log, nan, pi
from typing import Any

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import vector

FINITE = "finite"
ANYTHING = None


@dataclass(frozen=True)
class Edge:
    """One point. inputs: numbers or vectors; forward: the value, or ANYTHING (also NaN or
    infinity, where
    nothing is documented); grads: one an input: a value, FINITE, or ANYTHING."""

    name: str
    build: Callable[..., Variable]
    inputs: tuple[Any, ...]
    forward: Any
    grads: tuple[Any, ...]


def _e(name: str, build: Callable[..., Variable], inputs: Any, forward: Any, *grads: Any) -> Edge:
    return Edge(name, build, inputs if isinstance(inputs, tuple) else (inputs,), forward, grads)


ZERO3 = [0.0, 0.0, 0.0]

EDGES: tuple[Edge, ...] = (
    _e("sqrt(0)", F.sqrt, 0.0, 0.0, 0.0),
    _e("sqrt(1e-30)", F.sqrt, 1e-30, 1e-15, 5e14),
    _e("sqrt(0)^2", lambda x: F.sqrt(x) * F.sqrt(x), 0.0, 0.0, 0.0),
    _e("log(0)", F.log, 0.0, -inf, 0.0),
    _e("log(1)", F.log, 1.0, 0.0, 1.0),
    _e("sqrt(-1)", F.sqrt, -1.0, nan, ANYTHING),
    _e("inversesqrt(-1)", F.inversesqrt, -1.0, nan, ANYTHING),
    _e("log(-1)", F.log, -1.0, nan, ANYTHING),
    _e("length(0)", F.length, (ZERO3,), 0.0, ZERO3),
    _e("normalize(0)", F.normalize, (ZERO3,), ZERO3, ZERO3),
    _e("normalize(1e-10)", F.normalize, ([1e-10, 0.0, 0.0],), [1.0, 0.0, 0.0], FINITE),
    _e("normalize(0) . 1", lambda x: F.dot(F.normalize(x), (1, 1, 1)), (ZERO3,), 0.0, ZERO3),
    _e("pow(0, 2)", F.pow, (0.0, 2.0), 0.0, 0.0, 0.0),
    _e("pow(0, 1)", F.pow, (0.0, 1.0), 0.0, 1.0, 0.0),
    _e("pow(0, 0.5)", F.pow, (0.0, 0.5), 0.0, 0.0, 0.0),
    _e("pow(0, 0)", F.pow, (0.0, 0.0), 1.0, 0.0, 0.0),
    _e("pow(0, -1)", F.pow, (0.0, -1.0), inf, 0.0, 0.0),
    _e("0^-1", lambda x: F.pow(x, -1.0), 0.0, inf, 0.0),
    _e("0^-2", lambda x: F.pow(x, -2.0), 0.0, inf, 0.0),
    _e("0^0.5", lambda x: F.pow(x, 0.5), 0.0, 0.0, 0.0),
    _e("0^2", lambda x: F.pow(x, 2.0), 0.0, 0.0, 0.0),
    _e("pow(-2, 3)", F.pow, (-2.0, 3.0), -8.0, 12.0, 0.0),
    _e("pow(-2, 2)", F.pow, (-2.0, 2.0), 4.0, -4.0, 0.0),
    _e("pow(-2, -1)", F.pow, (-2.0, -1.0), -0.5, -0.25, 0.0),
    _e("pow(-2, 0)", F.pow, (-2.0, 0.0), 1.0, 0.0, 0.0),
    _e("pow(-2, 0.5)", F.pow, (-2.0, 0.5), nan, ANYTHING, 0.0),
    _e("pow(2, 0)", F.pow, (2.0, 0.0), 1.0, 0.0, log(2)),
    _e("pow(1, 100)", F.pow, (1.0, 100.0), 1.0, 100.0, 0.0),
    _e("asin(1)", F.asin, 1.0, pi / 2, 0.0),
    _e("asin(-1)", F.asin, -1.0, -pi / 2, 0.0),
    _e("acos(1)", F.acos, 1.0, 0.0, 0.0),
    _e("acos(-1)", F.acos, -1.0, pi, 0.0),
    _e("asin(1.5)", F.asin, 1.5, nan, ANYTHING),
    _e("acos(-1.5)", F.acos, -1.5, nan, ANYTHING),
    _e("acos(0)", F.acos, 0.0, pi / 2, -1.0),
    _e("atan(0)", F.atan, 0.0, 0.0, 1.0),
    _e("atan(1e30)", F.atan, 1e30, pi / 2, 0.0),
    _e("atan(-1e30)", F.atan, -1e30, -pi / 2, 0.0),
    _e("1 / 0", F.div, (1.0, 0.0), inf, 0.0, 0.0),
    _e("-1 / 0", F.div, (-1.0, 0.0), -inf, 0.0, 0.0),
    _e("0 / 0", F.div, (0.0, 0.0), ANYTHING, 0.0, 0.0),
    _e("safe_div(1, 0)", F.safe_div, (1.0, 0.0), 0.0, 0.0, 0.0),
    _e("safe_div(0, 0)", F.safe_div, (0.0, 0.0), 0.0, 0.0, 0.0),
    _e("safe_div(1, 1e-30)", F.safe_div, (0.0, 1e-30), 0.0, 1e30, 0.0),
    _e("minimum tie", F.minimum, (1.5, 1.5), 1.5, 0.5, 0.5),
    _e("maximum tie", F.maximum, (1.5, 1.5), 1.5, 0.5, 0.5),
    _e("minimum tie at 0", F.minimum, (0.0, 0.0), 0.0, 0.5, 0.5),
    _e("minimum of one", lambda x: F.minimum(x, x), 2.0, 2.0, 1.0),
    _e(
        "maximum, vector tie",
        F.maximum,
        ([1.0, 2.0], [1.0, 1.0]),
        [1.0, 2.0],
        [0.5, 1.0],
        [0.5, 0.0],
    ),
    _e("clamp below", lambda x: F.clamp(x, 0.0, 1.0), -1.0, 0.0, 0.0),
    _e("clamp low border", lambda x: F.clamp(x, 0.0, 1.0), 0.0, 0.0, 0.5),
    _e("clamp inside", lambda x: F.clamp(x, 0.0, 1.0), 0.25, 0.25, 1.0),
    _e("clamp high border", lambda x: F.clamp(x, 0.0, 1.0), 1.0, 1.0, 0.5),
    _e("clamp above", lambda x: F.clamp(x, 0.0, 1.0), 7.0, 1.0, 0.0),
    _e("exp(80)", F.exp, 80.0, np.exp(80.0), np.exp(80.0)),
    _e("exp(-100)", F.exp, -100.0, 0.0, 0.0),
    _e("exp(100)", F.exp, 100.0, ANYTHING, ANYTHING),  # beyond float32, and so is its derivative
    _e("abs(0)", F.abs, 0.0, 0.0, 0.0),
    _e("abs(-2)", F.abs, -2.0, 2.0, -1.0),
    _e("sign(0)", F.sign, 0.0, 0.0, ANYTHING),
    _e("sigmoid(1e3)", F.sigmoid, 1e3, 1.0, 0.0),
    _e("sigmoid(-1e3)", F.sigmoid, -1e3, 0.0, 0.0),
    _e("sigmoid(-80)", F.sigmoid, -80.0, 0.0, 0.0),
    _e("sigmoid(0)", F.sigmoid, 0.0, 0.5, 0.25),
    _e("softplus(1e3)", F.softplus, 1e3, 1e3, 1.0),
    _e("softplus(-1e3)", F.softplus, -1e3, 0.0, 0.0),
    _e("softplus(0)", F.softplus, 0.0, log(2), 0.5),
    _e("tanh(1e3)", F.tanh, 1e3, 1.0, 0.0),
    _e("tanh(-1e3)", F.tanh, -1e3, -1.0, 0.0),
    _e("tanh(50)", F.tanh, 50.0, 1.0, 0.0),
    _e("tanh(0)", F.tanh, 0.0, 0.0, 1.0),
    _e("tanh(2^-23)", lambda x: F.tanh(x) * 2**23, 2**-23, 1.0, 2**23),
    _e("tan(0)", F.tan, 0.0, 0.0, 1.0),
    _e("fract(2)", F.fract, 2.0, 0.0, 1.0),
    _e("fract(-0.25)", F.fract, -0.25, 0.75, 1.0),
    _e("floor(-0.5)", F.floor, -0.5, -1.0, ANYTHING),
    _e("ceil(-0.5)", F.ceil, -0.5, 0.0, ANYTHING),
    _e("mix at 0", F.mix, (1.0, 3.0, 0.0), 1.0, 1.0, 0.0, 2.0),
    _e("mix at 1", F.mix, (1.0, 3.0, 1.0), 3.0, 0.0, 1.0, 2.0),
    _e("round(0.5)", F.round, 0.5, 0.0, ANYTHING),
    _e("round(1.5)", F.round, 1.5, 2.0, ANYTHING),
    _e("round(-2.5)", F.round, -2.5, -2.0, ANYTHING),
    _e("trunc(-1.75)", F.trunc, -1.75, -1.0, ANYTHING),
    _e("mod(-1, 3)", F.mod, (-1.0, 3.0), 2.0, 1.0, 1.0),
    _e("mod(1, -3)", F.mod, (1.0, -3.0), -2.0, 1.0, 1.0),
    _e("mod(6, 3)", F.mod, (6.0, 3.0), 0.0, 1.0, -2.0),
    _e("mod(-6, 3)", F.mod, (-6.0, 3.0), 0.0, 1.0, 2.0),
    _e("mod(2, 0)", F.mod, (2.0, 0.0), 2.0, 1.0, 0.0),
    _e("inversesqrt(0)", F.inversesqrt, 0.0, inf, 0.0),
    _e("exp2(100)", F.exp2, 100.0, 2.0**100, 2.0**100 * log(2)),
    _e("exp2(-200)", F.exp2, -200.0, 0.0, 0.0),
    _e("log2(0)", F.log2, 0.0, -inf, 0.0),
    _e("log2(8)", F.log2, 8.0, 3.0, 1 / (8 * log(2))),
    _e("log1p(0)", F.log1p, 0.0, 0.0, 1.0),
    _e("log1p(2^-23)", lambda x: F.log1p(x) * 2**23, 2**-23, 1 - 2**-24, 2**23 - 1),
    _e("log1p(-1)", F.log1p, -1.0, -inf, 0.0),
    _e("log2(-1)", F.log2, -1.0, nan, ANYTHING),
    _e("log1p(-2)", F.log1p, -2.0, nan, ANYTHING),
    _e("log1p(-3)", F.log1p, -3.0, nan, ANYTHING),
    _e("log1p(1e30)", F.log1p, 1e30, 30 * log(10), 0.0),
    _e("expm1(0)", F.expm1, 0.0, 0.0, 1.0),
    _e("expm1(-2^-23)", lambda x: F.expm1(x) * 2**23, -(2**-23), 2**-24 - 1, 2**23 - 1),
    _e("expm1(-100)", F.expm1, -100.0, -1.0, 0.0),
    _e("sinh(0)", F.sinh, 0.0, 0.0, 1.0),
    _e("sinh(-80)", F.sinh, -80.0, -np.sinh(80.0), np.cosh(80.0)),
    _e("cosh(0)", F.cosh, 0.0, 1.0, 0.0),
    _e("cosh(-80)", F.cosh, -80.0, np.cosh(80.0), -np.sinh(80.0)),
    _e("asinh(0)", F.asinh, 0.0, 0.0, 1.0),
    _e("asinh(-1e30)", F.asinh, -1e30, -np.arcsinh(1e30), 0.0),
    _e("acosh(1)", F.acosh, 1.0, 0.0, 0.0),
    _e("acosh(1e30)", F.acosh, 1e30, np.arccosh(1e30), 0.0),
    _e("acosh(0.5)", F.acosh, 0.5, nan, ANYTHING),
    _e("acosh(-3)", F.acosh, -3.0, nan, ANYTHING),
    _e("atanh(0)", F.atanh, 0.0, 0.0, 1.0),
    _e("atanh(1)", F.atanh, 1.0, inf, 0.0),
    _e("atanh(-1)", F.atanh, -1.0, -inf, 0.0),
    _e("atanh(1.5)", F.atanh, 1.5, nan, ANYTHING),
    _e("atanh(-1.5)", F.atanh, -1.5, nan, ANYTHING),
    _e("atan2(0, 0)", F.atan2, (0.0, 0.0), 0.0, 0.0, 0.0),
    _e("atan2(0, 1)", F.atan2, (0.0, 1.0), 0.0, 1.0, 0.0),
    _e("atan2(1, 0)", F.atan2, (1.0, 0.0), pi / 2, 0.0, -1.0),
    _e("atan2(-1, -1)", F.atan2, (-1.0, -1.0), -0.75 * pi, -0.5, 0.5),
    _e("atan2(1e-30, 1e-30)", F.atan2, (1e-30, 1e-30), pi / 4, 5e29, -5e29),
    _e("atan2(1e30, -1e30)", F.atan2, (1e30, -1e30), 0.75 * pi, 0.0, 0.0),
    _e("smoothstep below", lambda x: F.smoothstep(0.0, 1.0, x), -1.0, 0.0, 0.0),
    _e("smoothstep low border", lambda x: F.smoothstep(0.0, 1.0, x), 0.0, 0.0, 0.0),
    _e("smoothstep high border", lambda x: F.smoothstep(0.0, 1.0, x), 1.0, 1.0, 0.0),
    _e("smoothstep of nothing", F.smoothstep, (1.0, 1.0, 1.0), 1.0, 0.0, 0.0, 0.0),
    _e("smoothstep below nothing", F.smoothstep, (1.0, 1.0, 0.5), 0.0, 0.0, 0.0, 0.0),
    _e("distance(a, a)", F.distance, ([1.0, 2.0], [1.0, 2.0]), 0.0, [0.0, 0.0], [0.0, 0.0]),
    _e(
        "refract, total",
        F.refract,
        ([0.8, -0.6, 0.0], [0.0, 1.0, 0.0], 1.5),
        ZERO3,
        ZERO3,
        ZERO3,
        0.0,
    ),
    _e(
        "refract, straight",
        F.refract,
        ([0.0, -1.0, 0.0], [0.0, 1.0, 0.0], 1.5),
        [0.0, -1.0, 0.0],
        FINITE,
        FINITE,
        0.0,
    ),
    _e("norm 1 of 0", lambda x: F.norm(x, 1), (ZERO3,), 0.0, ZERO3),
    _e("norm inf of 0", lambda x: F.norm(x, inf), (ZERO3,), 0.0, ZERO3),
    _e("norm inf tie", lambda x: F.norm(x, inf), ([2.0, -2.0],), 2.0, [0.5, -0.5]),
    _e("safe_normalize(0)", lambda x: F.safe_normalize(x, 0.5), (ZERO3,), ZERO3, [2.0, 2.0, 2.0]),
    _e("safe_normalize(1e-10)", F.safe_normalize, ([1e-10, 0.0],), [1e-4, 0.0], [1e6, 1e6]),
    _e("logsumexp(1e3)", F.logsumexp, ([1e3, 0.0],), 1e3, [1.0, 0.0]),
    _e("logsumexp(-1e3)", F.logsumexp, ([-1e3, -1e3],), -1e3 + log(2), [0.5, 0.5]),
    _e("softmax(1e3)", F.softmax, ([1e3, -1e3, 0.0],), [1.0, 0.0, 0.0], ZERO3),
    _e("softmax(1e3).x", lambda x: F.softmax(x).x, ([1e3, 1e3],), 0.5, [0.25, -0.25]),
    _e("logaddexp tie", F.logaddexp, (1e3, 1e3), 1e3 + log(2), 0.5, 0.5),
    _e("logaddexp far", F.logaddexp, (1e3, -1e3), 1e3, 1.0, 0.0),
    _e("log_sigmoid(0)", F.nn.log_sigmoid, 0.0, -log(2), 0.5),
    _e("log_sigmoid(1e3)", F.nn.log_sigmoid, 1e3, 0.0, 0.0),
    _e("log_sigmoid(-1e3)", F.nn.log_sigmoid, -1e3, -1e3, 1.0),
    _e("huber(0)", F.huber, (0.0, 0.5), 0.0, 0.0, 0.0),
    _e("huber at delta", F.huber, (-0.5, 0.5), 0.125, -0.5, 0.0),
    _e("huber(1e3)", F.huber, (1e3, 0.5), 499.875, 0.5, 999.5),
    _e("charbonnier(0)", F.charbonnier, (0.0, 0.5), 0.5, 0.0, 1.0),
    _e("charbonnier(0, 0)", F.charbonnier, (0.0, 0.0), 0.0, 0.0, 0.0),
    # where: what is not selected does not leak, forward or backward.
    _e("where(x > 0, sqrt x)", lambda x: F.where(x > 0.0, F.sqrt(x), 0.0), -1.0, 0.0, 0.0),
    _e("where(x > 0, log x)", lambda x: F.where(x > 0.0, F.log(x), 0.0), -1.0, 0.0, 0.0),
    _e("where(x > 0, log x) at 0", lambda x: F.where(x > 0.0, F.log(x), 0.0), 0.0, 0.0, 0.0),
    _e("where(x != 0, 1 / x)", lambda x: F.where(F.not_equal(x, 0.0), 1.0 / x, 0.0), 0.0, 0.0, 0.0),
    _e("where(x > 0, x^0.5)", lambda x: F.where(x > 0.0, F.pow(x, 0.5), 0.0), -1.0, 0.0, 0.0),
    _e("where(x < 1, asin x)", lambda x: F.where(x < 1.0, F.asin(x), 0.0), 2.0, 0.0, 0.0),
    _e("where(x < 9, exp(20 x))", lambda x: F.where(x < 9.0, F.exp(x * 20.0), 0.0), 10.0, 0.0, 0.0),
    _e("where(1, 2, nan)", lambda x: F.where(1.0, x * 2.0, F.log(x)), -1.0, -2.0, 2.0),
)


def leaf_of(value: Any) -> Variable:
    """Return a 1x1 leaf of the type of a number or vector."""
    return Variable(vector(np.size(value)), requires_grad=True)


def forward_obstacles(edge: Edge, forward: np.ndarray, rtol: float) -> list[str]:
    """Return what differs from the value that is promised; empty when all is well."""
    if edge.forward is ANYTHING or _close(forward, edge.forward, rtol):
        return []
    return [f"forward {forward.ravel()}, documented {edge.forward}"]


def gradient_obstacles(edge: Edge, grads: Sequence[np.ndarray | None], rtol: float) -> list[str]:
    """Return what differs from the gradients that are promised; empty when all is well."""
    out = []
    for i, (got, want) in enumerate(zip(grads, edge.grads, strict=True)):
        if want is ANYTHING:
            continue
        if got is None:
            out.append(f"no gradient to input {i}")
        elif isinstance(want, str):
            if not np.isfinite(got).all():
                out.append(f"gradient {i} is {got.ravel()}")
        elif not _close(got, want, rtol):
            out.append(f"gradient {i} is {got.ravel()}, documented {want}")
    return out


def _close(got: np.ndarray, want: Any, rtol: float) -> bool:
    atol = 1e-12 + rtol * 1e-2
    return bool(np.allclose(got.ravel(), np.ravel(want), rtol=rtol, atol=atol, equal_nan=True))
