"""stop_gradient: the identity whose gradient is nothing."""

from __future__ import annotations

from dressi.ad.functions._common import same
from dressi.ad.graph import Variable
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import Case, Op, apply
from dressi.ad.vtype import VEC3

STOP_GRADIENT = Op(
    "stop_gradient",
    same,
    flat=True,
    exact=True,
    reference=lambda f, xs: xs[0],
    cases=(Case(lambda a: stop_gradient(a), ((VEC3, -2, 2),), gradient=False),),
)
register(STOP_GRADIENT, Kernel("{y} = {x0};"))


def stop_gradient(x: Variable) -> Variable:
    """x; no gradient flows back."""
    return apply(STOP_GRADIENT, (x,))
