"""Optimizers made of optimizers: parameter groups and clipping of gradients.

In: optimizers. Out: optimizers, functions ``(xs, gxs) -> updated xs`` as any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from dressi.ad.functions import abs as magnitude
from dressi.ad.functions import add_n, clamp, dot, maximum, sqrt
from dressi.ad.functions import sum as total
from dressi.ad.functions.matrix import by_columns, column
from dressi.ad.graph import Variable
from dressi.ad.optim import Optimizer, largest_entry, need_number
from dressi.errors import GraphError

_TINY = 1e-30
"""Keeps the division of zeros by their largest entry finite."""


@dataclass
class ParameterGroups:
    """Each parameter by the optimizer of its name, e.g. ``ParameterGroups({"albedo": Adam(0.05)},
    default=Adam(1e-3))``.

    groups: name of a Variable -> optimizer; default: of all others. Each optimizer gets its
    parameters in one call. Calling it raises GraphError for a name that no parameter has, and for a
    parameter without a group where there is no default.
    """

    groups: Mapping[str, Optimizer]
    default: Optimizer | None = None

    def __post_init__(self) -> None:
        made = {**self.groups, "default": self.default or _unchanged}
        for name, optimizer in made.items():
            if isinstance(optimizer, type) or not callable(optimizer):
                raise GraphError(
                    f"ParameterGroups: {name!r} needs an optimizer like Adam(lr=0.01), got "
                    f"{optimizer!r}"
                )

    def __call__(self, xs: Sequence[Variable], gxs: Sequence[Variable]) -> list[Variable]:
        names = {x.name for x in xs}
        unknown = [name for name in self.groups if name not in names]
        if unknown:
            known = ", ".join(x.label() for x in xs)
            raise GraphError(
                f"ParameterGroups: no parameter is named {', '.join(map(repr, unknown))}; there "
                f"are: {known}"
            )
        members: dict[int, tuple[Optimizer, list[int]]] = {}
        for k, x in enumerate(xs):
            optimizer = self.groups.get(x.name or "", self.default)
            if optimizer is None:
                raise GraphError(
                    f"ParameterGroups: {x.label()} is in no group\n  hint: pass default="
                )
            members.setdefault(id(optimizer), (optimizer, []))[1].append(k)
        new = list(xs)
        for optimizer, numbers in members.values():
            made = list(optimizer([xs[k] for k in numbers], [gxs[k] for k in numbers]))
            if len(made) != len(numbers):
                raise GraphError(
                    f"ParameterGroups: {optimizer!r} returned {len(made)} Variables for "
                    f"{len(numbers)} parameters"
                )
            for k, v in zip(numbers, made, strict=True):
                new[k] = v
        return new


@dataclass
class GradientClipping:
    """Gradients made smaller before an optimizer gets them.

    norm: all of them together, as one long vector, are scaled to this Euclidean norm where theirs
    is larger. value: afterwards each entry is clamped to [-value, value]. Both in units of the loss
    per unit of the parameter; None: no such limit. Raises GraphError for a number that is not
    positive and finite, and where neither is given.
    """

    optimizer: Optimizer
    norm: float | None = None
    value: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.optimizer, type) or not callable(self.optimizer):
            raise GraphError(
                "GradientClipping: optimizer must be one like Adam(lr=0.01), got "
                f"{self.optimizer!r}"
            )
        if self.norm is None and self.value is None:
            raise GraphError("GradientClipping: norm or value must be given")
        for name in ("norm", "value"):
            if getattr(self, name) is not None:
                need_number(self, name, above=True)

    def __call__(self, xs: Sequence[Variable], gxs: Sequence[Variable]) -> Sequence[Variable]:
        gs = list(gxs)
        if self.norm is not None:
            norm = global_norm(gs)
            scale = self.norm / maximum(norm, self.norm)
            gs = [g * scale for g in gs]
        if self.value is not None:
            limit = self.value
            gs = [by_columns(lambda c: clamp(c, -limit, limit), g) for g in gs]
        return self.optimizer(xs, gs)


def global_norm(gs: Sequence[Variable]) -> Variable:
    """FLOAT @ 1x1: the Euclidean norm of all entries of float Variables together. Squares do not
    overflow: entries are divided by the largest first. No gradient is promised."""
    sizes = [by_columns(magnitude, g) for g in gs]
    largest = maximum(reduce(maximum, (largest_entry(s) for s in sizes)), _TINY)
    squares = [total(_squared(s * (1.0 / largest))) for s in sizes]
    return sqrt(add_n(squares)) * largest


def _squared(x: Variable) -> Variable:
    """FLOAT: the sum of squares of the components."""
    if x.vtype.is_matrix:
        return add_n([_squared(column(x, k)) for k in range(x.vtype.n)])
    return dot(x, x) if x.vtype.n > 1 else x * x


def _unchanged(xs: Sequence[Variable], gxs: Sequence[Variable]) -> list[Variable]:
    return list(xs)
