"""Rows of functions of one variable, and GLSL that is the same on every device outside of their
domain, where GLSL.std.450 leaves them undefined."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dressi.ad.functions._common import INFINITY, NAN, float_elementwise
from dressi.ad.graph import Function, Variable
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import OPS, Case, Infer, Op, apply
from dressi.ad.vtype import FLOAT, VEC3

Backward = Callable[[Variable, Variable, Variable], Variable]  # (x, y, gy) -> gx


def unary(
    name: str,
    glsl: str,
    ref: Callable[[np.ndarray], np.ndarray],
    backward: Backward | None,
    low: float = -2.0,
    high: float = 2.0,
    transcendental: bool = True,
    infer: Infer = float_elementwise,
    more: tuple[Case, ...] = (),
    exact: bool = False,
) -> Op:
    def bwd(f: Function, gy: Variable, i: int) -> Variable | None:
        return backward(f.inputs[0], f.output, gy) if backward else None

    return register(
        Op(
            name,
            infer,
            exact=exact,
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
            )
            + more,
        ),
        Kernel(glsl),
    )


def number_glsl(value: str, inside: str) -> str:
    """GLSL of the value where a condition holds, else NaN."""
    return f"mix({{T}}({NAN}), {value}, {inside})"


def log_glsl(x: str, function: str = "log") -> str:
    """GLSL of a logarithm that is minus infinity at 0 and NaN below."""
    inner = f"mix({{T}}({NAN}), {{T}}(-{INFINITY}), equal_({x}, {{T}}(0.0)))"
    return f"mix({inner}, {function}({x}), greaterThan_({x}, {{T}}(0.0)))"
