"""explain: why is the gradient of a Variable zero or missing.

In: a Variable, a loss, and, where known, the data of the leaves. Out: an ``Explanation``, which
prints itself: the first reason that holds, and the ops, with the user's lines, at which the
gradient ends. It reads the reverse accumulation of ``autodiff.sweep``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dressi.ad.autodiff import Sweep, sweep
from dressi.ad.evaluate import evaluate
from dressi.ad.functions.stop import STOP_GRADIENT
from dressi.ad.gradcheck import data_of
from dressi.ad.graph import Function, Variable, leaves, short, topological
from dressi.errors import GraphError

INTEGER, INTEGER_LOSS, NO_PATH = "integer", "integer loss", "no path"
STOP, NO_OP_GRADIENT = "stop_gradient", "op without gradient"
REQUIRES_GRAD, ZERO, NONE = "requires_grad", "zero", "none"


@dataclass(frozen=True)
class Stop:
    """Where a gradient ends: the op, the user's line, the input that gets none, and why."""

    op: str
    line: str
    input: str
    why: str

    def text(self) -> str:
        """The stop as one line of text."""
        return f"F.{self.op} at {self.line} gives none to {self.input}: {self.why}"


@dataclass(frozen=True)
class Explanation:
    """Why a gradient is zero or missing; ``print`` shows it.

    ``reason``: one of ``integer``, ``integer loss``, ``no path``, ``stop_gradient``, ``op without
    gradient`` (every path ends at one), ``requires_grad`` (off), ``zero`` (with these data), and
    ``none`` (there is a gradient). ``stops``: where the gradient ends, nearest to the loss first;
    for ``none`` and ``requires_grad``, the ends of other paths.
    """

    variable: str
    reason: str
    message: str
    stops: tuple[Stop, ...] = ()

    def text(self) -> str:
        """The message, then a line for each place at which the gradient ends."""
        return "\n".join(
            [f"{self.variable}: {self.message}", *("  " + s.text() for s in self.stops)]
        )

    def __str__(self) -> str:
        return self.text()


def explain(
    var: Variable,
    loss: Variable,
    feeds: Mapping[Variable, Any] | None = None,
    engine: Any = None,
) -> Explanation:
    """Returns why the gradient of ``loss`` to ``var`` is zero or missing.

    var: any Variable, usually a leaf. loss: FLOAT or VECn @ any size. feeds: leaf -> array in any
    shape that ``evaluate`` takes; or engine: a ``DressiAD`` that holds the data. With data (also
    where every leaf holds some itself) the gradient is evaluated in float64, and followed to where
    it becomes exactly 0; without, the graph alone is examined. Raises GraphError unless var and
    loss are Variables, and for feeds that leave out a leaf.
    """
    for v in (var, loss):
        if not isinstance(v, Variable):
            raise GraphError(f"explain: needs a Variable, got {short(v)}")
    obvious = _without_sweep(var, loss)
    if obvious is not None:
        return obvious
    reverse = sweep(loss, [var])
    label, stops = var.label(), tuple(_structural_stop(f, i) for f, i in reverse.ends)
    if var.uid not in reverse.gradients:
        stopped = all(s.op == STOP_GRADIENT.name for s in stops)
        through = "F.stop_gradient" if stopped else "an op without one"
        message = f"no gradient: every path to the loss goes through {through}"
        return Explanation(label, STOP if stopped else NO_OP_GRADIENT, message, stops)
    if var.creator is None and not var.requires_grad:
        message = "the loss reaches it, but its requires_grad is off: set it on the leaf"
        return Explanation(label, REQUIRES_GRAD, message, stops)
    has_data = feeds is not None or engine is not None
    # Gradients may read leaves that the loss does not: counters of stochastic ones.
    needed = [loss, *reverse.gradients.values()]
    if has_data or all(v.data is not None or v.derived for v in leaves(needed)):
        return _with_data(var, reverse, data_of("explain", needed, feeds, engine))
    message = (
        "there is a gradient as far as the graph tells; with feeds or engine, also whether it is 0"
    )
    return Explanation(label, NONE, message, stops)


def no_parameter(loss: Variable) -> str:
    """Return why a loss has no gradient to any parameter: where it ends on the way to each leaf
    with ``requires_grad``, or the leaves that lack it. Looks at the graph alone."""
    floats = [v for v in leaves([loss]) if not v.vtype.is_int and v.update is None]
    meant = [v for v in floats if v.requires_grad]
    names = ", ".join(v.label() for v in floats[:4]) + (", ..." if len(floats) > 4 else "")
    lacking = f"none of its leaves has requires_grad: {names or 'it has no float leaves'}"
    texts = [] if meant else [lacking]
    for v in meant[:4]:
        ends = sweep(loss, [v]).ends
        stops = "".join(f"\n    {_structural_stop(f, i).text()}" for f, i in ends[:3])
        texts.append(f"{v.label()}: its gradient ends{stops or ' before the loss'}")
    texts.append(
        "hint: set requires_grad on a leaf that the loss reaches through differentiable ops"
    )
    return "\n  ".join(texts)


def _without_sweep(var: Variable, loss: Variable) -> Explanation | None:
    """An explanation that needs no sweep, or None."""
    label, where = var.label(), f"the loss {loss.label()} made at {loss.line}"
    if loss.vtype.is_int:
        return Explanation(label, INTEGER_LOSS, f"no gradient: {where} is an integer")
    if var.vtype.is_int:
        return Explanation(label, INTEGER, "no gradient: it is an integer")
    reached = {loss.uid, *(x.uid for f in topological([loss]) for x in f.inputs)}
    if var.uid not in reached:
        return Explanation(label, NO_PATH, f"no gradient: {where} does not use it")
    return None


def _structural_stop(f: Function, i: int) -> Stop:
    """The end of a gradient at an input to which the backward of f gives none."""
    x = f.inputs[i]
    if f.op is STOP_GRADIENT:
        why = "that is what it is for"
    elif f.output.vtype.is_int:
        why = "its result is an integer"
    elif f.op.backward is None:
        why = "this op has no gradient"
    else:
        why = "this op has no gradient to this input"
    return Stop(f.op.name, f.line, x.label(), why)


def _with_data(var: Variable, reverse: Sweep, data: dict[Variable, np.ndarray]) -> Explanation:
    """Explains by the values of the gradient: where, on the way from the loss, they become 0."""
    inputs = [x for f, _, _ in reverse.given for x in f.inputs if x.fragment_of is None]
    wanted = [*reverse.gradients.values(), *(g for _, _, g in reverse.given), *inputs]
    values = {v.uid: a for v, a in zip(wanted, evaluate(wanted, data), strict=True)}
    gradient = values[reverse.gradients[var.uid].uid]
    n = int(np.count_nonzero(gradient))
    if n:
        message = f"there is a gradient: {n} of {gradient.size} numbers are not 0"
        if not np.isfinite(gradient).all():
            message += f", {int((~np.isfinite(gradient)).sum())} are infinite or NaN"
        return Explanation(var.label(), NONE, message)

    def is_zero(v: Variable) -> bool:
        return not values[v.uid].any()

    stops: list[Stop] = []
    parts: dict[int, list[tuple[Function, int, Variable]]] = {}  # by uid of the input
    for f, i, g in reverse.given:
        x = f.inputs[i]
        parts.setdefault(x.uid, []).append((f, i, g))
        if is_zero(g) and not is_zero(reverse.gradients[f.output.uid]):
            stops.append(Stop(f.op.name, f.line, x.label(), _why_zero(f, i, values)))
    for uid, given in parts.items():
        if is_zero(reverse.gradients[uid]) and not all(is_zero(g) for _, _, g in given):
            f, i, _ = given[0]
            why = f"what its {len(given)} uses give adds up to 0"
            stops.append(Stop(f.op.name, f.line, f.inputs[i].label(), why))
    stops += [_structural_stop(f, i) for f, i in reverse.ends]
    message = "the gradient is exactly 0 with these data; it ends here"
    return Explanation(var.label(), ZERO, message, tuple(stops))


def _why_zero(f: Function, i: int, values: Mapping[int, np.ndarray]) -> str:
    """Why the derivative of f to its input i is 0 everywhere, as far as the values tell."""
    zeros = [
        x for k, x in enumerate(f.inputs) if k != i and x.uid in values and not values[x.uid].any()
    ]
    if f.op.why_zero:
        return f.op.why_zero
    if zeros:
        return f"{_source(zeros[0])} is 0 everywhere"
    return "its derivative is 0 wherever a gradient arrives"


def _source(x: Variable) -> str:
    """A Variable for a message: the op that computes it, or the leaf."""
    if x.creator is None:
        return f"the leaf {x.label()}"
    return x.creator.where
