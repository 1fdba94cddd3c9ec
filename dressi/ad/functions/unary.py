"""Rows of functions of one variable, and GLSL that is the same on every device outside of their
domain, where GLSL.std.450 leaves them undefined."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from dressi.ad.functions._common import INFINITY, NAN, call, float_elementwise
from dressi.ad.graph import Function, Variable
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import Case, Infer, Op, apply
from dressi.ad.vtype import FLOAT, VEC3

Function1 = TypeVar("Function1", bound=Callable[[Any], Variable])
Backward = Callable[[Variable, Variable, Variable], Variable]  # (x, y, gy) -> gx


def unary(
    glsl: str,
    ref: Callable[[np.ndarray], np.ndarray],
    backward: Backward | None = None,
    low: float = -2.0,
    high: float = 2.0,
    transcendental: bool = True,
    infer: Infer = float_elementwise,
    more: tuple[Case, ...] = (),
    exact: bool = False,
) -> Callable[[Function1], Function1]:
    """Return a decorator that registers the op of a function's name, which the function then
    applies: the function itself is a signature and a docstring."""

    def bwd(f: Function, gy: Variable, i: int) -> Variable | None:
        return backward(f.inputs[0], f.output, gy) if backward else None

    def decorated(function: Function1) -> Function1:
        op: Op = register(
            Op(
                function.__name__,
                infer,
                exact=exact,
                backward=bwd,
                reference=lambda f, xs: ref(xs[0]),
                cases=tuple(
                    Case(
                        lambda a: apply(op, (a,)),
                        ((t, low, high),),
                        gradient=backward is not None,
                        transcendental=transcendental,
                    )
                    for t in (FLOAT, VEC3)
                )
                + more,
            ),
            Kernel(glsl),
        )
        applied: Any = wraps(function)(lambda x: call(op, x))
        return applied

    return decorated


def number_glsl(value: str, inside: str) -> str:
    """GLSL of the value where a condition holds, else NaN."""
    return f"mix({{T}}({NAN}), {value}, {inside})"


def log_glsl(x: str, function: str = "log") -> str:
    """GLSL of a logarithm that is minus infinity at 0 and NaN below."""
    inner = f"mix({{T}}({NAN}), {{T}}(-{INFINITY}), equal_({x}, {{T}}(0.0)))"
    return f"mix({inner}, {function}({x}), greaterThan_({x}, {{T}}(0.0)))"
