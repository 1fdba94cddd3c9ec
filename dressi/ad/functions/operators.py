"""The operators of Variables: they are ops of F, and the graph knows no op."""

from __future__ import annotations

from functools import partial
from typing import Any

from dressi.ad.functions import arith, elementary, matrix, power
from dressi.ad.functions.select import compare
from dressi.ad.functions.vector import swizzle
from dressi.ad.graph import Variable


def attach_operators() -> None:
    """Give Variable its operators."""
    v: Any = Variable
    v.__add__, v.__radd__ = arith.add, lambda a, b: arith.add(b, a)
    v.__sub__, v.__rsub__ = arith.sub, lambda a, b: arith.sub(b, a)
    v.__mul__, v.__rmul__ = arith.mul, lambda a, b: arith.mul(b, a)
    v.__truediv__, v.__rtruediv__ = arith.div, lambda a, b: arith.div(b, a)
    v.__matmul__ = matrix.matmul
    v.__neg__, v.__abs__, v.__pow__ = arith.neg, elementary.abs, power.pow
    v.__lt__ = lambda a, b: compare("lt", a, b)
    v.__le__ = lambda a, b: compare("lte", a, b)
    v.__gt__ = lambda a, b: compare("gt", a, b)
    v.__ge__ = lambda a, b: compare("gte", a, b)
    for comps in ["x", "y", "z", "w", "r", "g", "b", "a", "xy", "xz", "yz", "zw", "xyz", "rgb"]:
        setattr(v, comps, property(partial(swizzle, comps=comps), doc=f"Components {comps}."))
