"""Optimizers as graph builders. Their state stays on the device.

An optimizer is a callable ``(xs, gxs) -> updated xs`` (paper, A.6: ``Optimizer``), so a user writes
one with F ops. State (moments, step counters) lives in leaves with an ``update``: the engine writes
the update back into the leaf after every step.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from dressi.ad.functions import (
    constant,
    exp,
    expm1,
    max_components,
    maximum,
    minimum,
    sqrt,
    to_float,
)
from dressi.ad.functions import max as extreme_max
from dressi.ad.functions.matrix import by_columns, column
from dressi.ad.graph import Variable, leaves, short
from dressi.ad.idioms import OptimizerIdioms
from dressi.ad.vtype import FLOAT, INT, VType
from dressi.errors import GraphError

Value = float | Variable
Optimizer = Callable[[Sequence[Variable], Sequence[Variable]], Sequence[Variable]]


def state(
    vtype: VType, size: tuple[int, int] = (1, 1), layers: int = 1, name: str = "state"
) -> Variable:
    """A leaf of zeros that the device keeps from step to step; set ``update`` to its next value.

    vtype: any type. size, layers: of the leaf. No gradient. Raises GraphError for a size or layer
    count below 1.
    """
    leaf = Variable(vtype, size, layers, name=name)
    dtype = np.int32 if vtype.is_int else np.float32
    leaf.data = np.zeros((layers, size[1], size[0], *vtype.tail), dtype)
    return leaf


def step_counter(name: str = "step") -> Variable:
    """INT @ 1x1: the number of steps done before this one; starts at 0 and lives on the device.
    No gradient."""
    counter = state(INT, name=name)
    counter.update = counter + constant(1, INT)
    return counter


def need_number(
    who: object, name: str, low: float = 0.0, high: float = math.inf, above: bool = False
) -> None:
    """Raise GraphError, naming the argument, unless the attribute ``name`` of an optimizer is a
    number in [low, high), or in (low, high) where it has to be ``above``."""
    value = getattr(who, name)
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if number and math.isfinite(value) and low <= value < high and not (above and value == low):
        return
    words = f"above {low:g}" if above else f"at least {low:g}"
    words += "" if high == math.inf else f" and below {high:g}"
    what = f"{name}, the learning rate," if name == "lr" else name
    raise GraphError(
        f"{type(who).__name__}: {what} must be a finite number, {words}, got {short(value)}"
    )


def _need_rate(who: object) -> None:
    """Raise GraphError unless the learning rate is a number or FLOAT @ 1x1."""
    lr = who.lr  # type: ignore[attr-defined]
    if not isinstance(lr, Variable):
        need_number(who, "lr")
    elif lr.vtype != FLOAT or not lr.is_uniform_sized or lr.layers != 1:
        raise GraphError(f"{type(who).__name__}: lr must be FLOAT@1x1, got {lr.label()}")


def _decayed(g: Variable, x: Variable, decay: float) -> Variable:
    """The gradient of the loss with decay / 2 * |x|^2 added."""
    return g + x * decay if decay else g


def _average(mean: Variable, new: Variable, beta: float, t: Variable) -> Variable:
    """The bias-corrected moving average of Adam after ``new``, the t-th value, from the one before.

    The moment m = beta m + (1 - beta) g divided by 1 - beta^t, in one: mean + (g - mean) w with
    w = (1 - beta) / (1 - beta^t). Neither 1 - beta^t nor beta itself is rounded near 1, where
    float32 has few digits left of the difference from 1, and a constant gradient stays what it is.
    """
    if beta == 0.0:
        return new
    return mean + (new - mean) * ((beta - 1.0) / expm1(t * math.log(beta)))


@dataclass
class GradientOnly(OptimizerIdioms):
    """Updates nothing: a step computes the loss and its gradients and leaves these on the device,
    for ``recv_grad``. Functions of a parameter run in every step, as if it had been sent anew."""

    def __call__(self, xs: Sequence[Variable], gxs: Sequence[Variable]) -> list[Variable]:
        return list(xs)


@dataclass
class SGD(OptimizerIdioms):
    """Gradient descent: x - lr * g.

    lr: number, or FLOAT @ 1x1 (send a new value at any time without a rebuild). weight_decay: is
    added to the gradient, times x; for this optimizer that is decoupled weight decay too.
    GraphError for a number that is negative or not finite.
    """

    lr: float | Variable = 0.01
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _need_rate(self)
        need_number(self, "weight_decay")

    def __call__(self, xs: Sequence[Variable], gxs: Sequence[Variable]) -> list[Variable]:
        _need_rate(self)  # it may have been replaced
        decay = self.weight_decay
        return [x - _decayed(g, x, decay) * self.lr for x, g in zip(xs, gxs, strict=True)]


@dataclass
class Momentum(OptimizerIdioms):
    """Gradient descent with momentum: v = momentum * v + g, then x - lr * v (Polyak 1964).

    lr: number, or FLOAT @ 1x1. momentum: in [0, 1). weight_decay: is added to g, times x (coupled,
    as an L2 penalty). GraphError for a number that is negative or not finite. State: v, of each
    parameter's size.
    """

    lr: float | Variable = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _need_rate(self)
        need_number(self, "momentum", high=1.0)
        need_number(self, "weight_decay")

    def __call__(self, xs: Sequence[Variable], gxs: Sequence[Variable]) -> list[Variable]:
        _need_rate(self)
        out = []
        for x, g in zip(xs, gxs, strict=True):
            g = _decayed(g, x, self.weight_decay)
            v = state(x.vtype, x.size, x.layers, f"{x.name or 'x'}.velocity")
            # v * momentum would round momentum near 1, and 1 - momentum counts in the long run.
            v.update = (v - v * (1.0 - self.momentum)) + g
            out.append(x - v.update * self.lr)
        return out


@dataclass
class _AdamSettings(OptimizerIdioms):
    lr: float | Variable = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _need_rate(self)
        need_number(self, "beta1", high=1.0)
        need_number(self, "beta2", high=1.0)
        need_number(self, "eps", above=True)
        need_number(self, "weight_decay")


@dataclass
class Adam(_AdamSettings):
    """Adam (Kingma and Ba 2015) with bias correction; RMSprop for beta1 = 0.

    lr: number, or FLOAT @ 1x1 (send a new value at any time without a rebuild). beta1, beta2: in
    [0, 1); eps: above 0. weight_decay: decoupled from the gradient (AdamW, Loshchilov and Hutter
    2019): lr * weight_decay * x is subtracted beside the step, and the moments do not see it; not
    negative. GraphError else. State: two moments of each parameter's size, kept corrected for their
    bias (exact also for beta near 1), and one step counter.
    """

    def __call__(self, xs: Sequence[Variable], gxs: Sequence[Variable]) -> list[Variable]:
        def change(m: Variable, v: Variable, rate: Value) -> Variable:
            return by_columns(lambda m, v: m * rate / (sqrt(v) + self.eps), m, v)

        return _adam(self, xs, gxs, change)


@dataclass
class AdamUniform(_AdamSettings):
    """Adam with one step size for all components of a parameter: its largest second moment
    (Nicolet et al. 2021, "Large Steps in Inverse Rendering of Geometry", 3.4).

    Adam divides each component by its own root mean square, which undoes the smoothness of a
    gradient; this one keeps its direction. Made for the parameters of
    ``dressi.render.fit.large_steps``. lr: number, or FLOAT @ 1x1 (send a new value at any time
    without a rebuild). beta1, beta2: in [0, 1); eps: above 0; weight_decay: as in ``Adam``;
    GraphError else. State: two moments of each parameter's size and one step counter.
    """

    def __call__(self, xs: Sequence[Variable], gxs: Sequence[Variable]) -> list[Variable]:
        def change(m: Variable, v: Variable, rate: Value) -> Variable:
            step = rate / (sqrt(largest_entry(v)) + self.eps)
            return by_columns(lambda m: m * step, m)

        return _adam(self, xs, gxs, change)


def _adam(
    settings: _AdamSettings,
    xs: Sequence[Variable],
    gxs: Sequence[Variable],
    change: Callable[[Variable, Variable, Value], Variable],
) -> list[Variable]:
    """The updated parameters of both variants. change: (first moment, second moment, rate) -> what
    is subtracted from the parameter."""
    t = to_float(step_counter("adam.step")) + 1.0
    _need_rate(settings)
    rate, decay = settings.lr, settings.weight_decay
    out = []
    for x, g in zip(xs, gxs, strict=True):
        name = x.name or "x"
        m = state(x.vtype, x.size, x.layers, f"{name}.m")
        v = state(x.vtype, x.size, x.layers, f"{name}.v")
        m.update = _average(m, g, settings.beta1, t)
        v.update = _average(v, by_columns(lambda g: g * g, g), settings.beta2, t)
        step = change(m.update, v.update, rate)
        out.append(x - (step + x * (rate * decay) if decay else step))
    return out


def largest_entry(x: Variable) -> Variable:
    """FLOAT @ 1x1: the largest entry over components, pixels and layers."""
    n = x.vtype.n
    columns = [column(x, k) for k in range(n)] if x.vtype.is_matrix else [x]
    largest = [extreme_max(max_components(c) if c.vtype.n > 1 else c) for c in columns]
    return reduce(maximum, largest)


def with_states(
    outputs: Sequence[Variable], updates: Sequence[tuple[Variable, Variable]]
) -> list[tuple[Variable, Variable]]:
    """The updates, (leaf, its next value), and those of every state leaf that they or the outputs
    read."""
    pairs = list(updates)
    known = {leaf.uid for leaf, _ in pairs}
    frontier = [*outputs, *(new for _, new in pairs)]
    while frontier:
        states = [(v, v.update) for v in leaves(frontier) if v.update is not None]
        unknown = [(v, new) for v, new in states if v.uid not in known]
        known.update(v.uid for v, _ in unknown)
        pairs += unknown
        frontier = [new for _, new in unknown]
    return pairs


def exponential_decay(start: float, end: float, n_steps: int) -> Variable:
    """FLOAT @ 1x1 that goes from start to end geometrically over n_steps and then stays at end.

    It is computed on the device, from a step counter. No gradient. Raises GraphError unless start,
    end and n_steps are positive.
    """
    if not (start > 0 and end > 0 and n_steps > 0):
        raise GraphError(
            "exponential_decay needs positive numbers, "
            f"got start={start}, end={end}, n_steps={n_steps}"
        )
    t = minimum(to_float(step_counter("schedule.step")) * (1.0 / n_steps), 1.0)
    # start stays outside: log(start) in the exponent would cost digits, also at t = 0.
    return exp(t * math.log(end / start)) * start
