"""The operators of Variables: they are ops of F, and the graph knows no op."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dressi.ad.functions import arith, elementary, matrix, power
from dressi.ad.functions.select import compare
from dressi.ad.functions.vector import swizzle
from dressi.ad.graph import Variable
from dressi.ad.idioms import no_op
from dressi.errors import GraphError

_UFUNCS: dict[str, Callable[..., Variable]] = {
    "add": arith.add,
    "subtract": arith.sub,
    "multiply": arith.mul,
    "divide": arith.div,
    "power": power.pow,
    "less": partial(compare, "lt"),
    "less_equal": partial(compare, "lte"),
    "greater": partial(compare, "gt"),
    "greater_equal": partial(compare, "gte"),
}
"""NumPy's functions behind operators: what ``np.float32(2) * x`` calls."""


def array_ufunc(self: Variable, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Variable:
    """Return the op of an operator whose left side is a number or array of NumPy. Raises GraphError
    for other functions of NumPy, naming the op."""
    if method == "__call__" and ufunc.__name__ in _UFUNCS and not kwargs:
        return _UFUNCS[ufunc.__name__](*inputs)
    from dressi.ad import functions  # it attaches these operators

    said = str(no_op(ufunc.__name__, functions.public_ops()))
    hint = said.partition("; ")[2] or "only ops of F work on Variables"
    raise GraphError(
        f"np.{ufunc.__name__} does not work on {self.label()}, which holds no numbers\n"
        f"  hint: {hint}"
    )


def attach_operators() -> None:
    """Give Variable its operators."""
    v: Any = Variable
    v.__add__, v.__radd__ = arith.add, lambda a, b: arith.add(b, a)
    v.__sub__, v.__rsub__ = arith.sub, lambda a, b: arith.sub(b, a)
    v.__mul__, v.__rmul__ = arith.mul, lambda a, b: arith.mul(b, a)
    v.__truediv__, v.__rtruediv__ = arith.div, lambda a, b: arith.div(b, a)
    v.__matmul__ = matrix.matmul
    v.__neg__, v.__abs__, v.__pow__ = arith.neg, elementary.abs, power.pow
    v.__rpow__, v.__array_ufunc__ = lambda a, b: power.pow(b, a), array_ufunc
    v.__lt__ = lambda a, b: compare("lt", a, b)
    v.__le__ = lambda a, b: compare("lte", a, b)
    v.__gt__ = lambda a, b: compare("gt", a, b)
    v.__ge__ = lambda a, b: compare("gte", a, b)
    for comps in ["x", "y", "z", "w", "r", "g", "b", "a", "xy", "xz", "yz", "zw", "xyz", "rgb"]:
        setattr(v, comps, property(partial(swizzle, comps=comps), doc=f"Components {comps}."))
