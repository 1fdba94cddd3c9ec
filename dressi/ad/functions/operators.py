"""The operators of Variables: they are ops of F, and the graph knows no op."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NoReturn

from dressi.ad.functions import arith, elementary, matrix, power
from dressi.ad.functions.select import compare
from dressi.ad.functions.vector import swizzle
from dressi.ad.graph import Variable
from dressi.ad.idioms import attach_absent, no_op
from dressi.errors import GraphError, called_file, warn

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

_TENSOR_OPS: dict[str, Callable[..., Variable]] = {
    "add": arith.add,
    "sub": arith.sub,
    "mul": arith.mul,
    "div": arith.div,
    "pow": power.pow,
    "matmul": matrix.matmul,
    "lt": partial(compare, "lt"),
    "le": partial(compare, "lte"),
    "gt": partial(compare, "gt"),
    "ge": partial(compare, "gte"),
}
"""PyTorch's functions behind operators, with a tensor on the left."""


def attach_operators(ops: Callable[[], Iterable[str]]) -> None:
    """Give Variable its operators. ops: returns the names of all ops, for what it does not have."""

    def ufunc(x: Variable, function: Any, method: str, *inputs: Any, **more: Any) -> Variable:
        if method == "__call__" and function.__name__ in _UFUNCS and not more:
            return _UFUNCS[function.__name__](*inputs)
        raise foreign(f"np.{function.__name__}", f" on {x.label()}")

    def torch_function(
        owner: type, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Variable:
        if function.__name__ in _TENSOR_OPS and not kwargs:
            return _TENSOR_OPS[function.__name__](*args)
        found = next((f" on {x.label()}" for x in args if isinstance(x, Variable)), "")
        raise foreign(f"torch.{function.__name__}", found)

    def foreign(name: str, on: str) -> GraphError:
        said = str(no_op(name.partition(".")[2], ops())).partition("; ")[2]
        return GraphError(
            f"{name} does not work{on or ' on a Variable'}, which holds no numbers\n"
            f"  hint: {said or 'only ops of F work on Variables'}"
        )

    v: Any = Variable
    v.__array_ufunc__, v.__torch_function__ = ufunc, classmethod(torch_function)
    v.__add__, v.__radd__ = arith.add, lambda a, b: arith.add(b, a)
    v.__sub__, v.__rsub__ = arith.sub, lambda a, b: arith.sub(b, a)
    v.__mul__, v.__rmul__ = arith.mul, lambda a, b: arith.mul(b, a)
    v.__truediv__, v.__rtruediv__ = _over, lambda a, b: _over(b, a)
    v.__matmul__ = matrix.matmul
    v.__neg__, v.__abs__, v.__pow__ = arith.neg, elementary.abs, power.pow
    v.__rpow__ = lambda a, b: power.pow(b, a)
    v.__lt__ = lambda a, b: compare("lt", a, b)
    v.__le__ = lambda a, b: compare("lte", a, b)
    v.__gt__ = lambda a, b: compare("gt", a, b)
    v.__ge__ = lambda a, b: compare("gte", a, b)
    for comps in ["x", "y", "z", "w", "r", "g", "b", "a", "xy", "xz", "yz", "zw", "xyz", "rgb"]:
        part = property(partial(swizzle, comps=comps), _set_component, doc=f"Components {comps}.")
        setattr(v, comps, part)
    attach_absent(v, ops)


def _over(a: Any, b: Any) -> Variable:
    """a / b. Warns a user whose a and b are integers: Python's quotient of them has a fraction."""
    quotient = arith.div(a, b)
    if quotient.vtype.is_int and called_file() == __file__:
        warn(
            f"{quotient.creator.where if quotient.creator else 'F.div'}: a / b of integers drops "
            "the fraction\n  hint: F.to_float(a) / b has it; F.div(a, b), or F.idiv(a, b), which "
            "rounds down, where it is meant"
        )
    return quotient


def _set_component(x: Variable, value: Any) -> NoReturn:
    raise GraphError(
        f"{x.label()}: components cannot be set\n  hint: F.with_components(x, 'x', value) "
        "is a Variable with others"
    )
