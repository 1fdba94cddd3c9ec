"""explain: why is the gradient of a Variable zero or missing.

In: a Variable, a loss, and, if they are there, the data of the leaves. Out: an ``Explanation``,
which prints itself: the first reason that holds, and the ops, with the user's lines, at which the
gradient ends. The sweep is that of the reverse mode, with what every op gives every input kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dressi.ad.autodiff import _reduce_to, _total
from dressi.ad.evaluate import evaluate
from dressi.ad.functions import constant
from dressi.ad.gradcheck import data_of
from dressi.ad.graph import Function, Variable, leaves, short, topological
from dressi.errors import GraphError, origin

INTEGER, INTEGER_LOSS, NO_PATH = "integer", "integer loss", "no path"
STOP, NO_OP_GRADIENT = "stop_gradient", "op without gradient"
REQUIRES_GRAD, ZERO, NONE = "requires_grad", "zero", "none"

_ARRIVES = "wherever a gradient arrives"
_WHY_ZERO = {
    "where": f"it selects the other value {_ARRIVES}",
    "minimum": f"the other input is the smaller one {_ARRIVES}",
    "maximum": f"the other input is the larger one {_ARRIVES}",
    "lookup": f"the index points outside the table {_ARRIVES}",
    "scatter_add": "no index points to where a gradient arrives",
    "take_layer": "another layer is taken",
}


@dataclass(frozen=True)
class Stop:
    """Where a gradient ends: the op, the user's line, the input that gets none, and why."""

    op: str
    line: str
    input: str
    why: str

    def text(self) -> str:
        """One line."""
        return f"F.{self.op} at {self.line} gives none to {self.input}: {self.why}"


@dataclass(frozen=True)
class Explanation:
    """Why a gradient is zero or missing; ``print`` shows it.

    ``reason``: one of ``integer``, ``integer loss``, ``no path``, ``stop_gradient``, ``op without
    gradient`` (every path ends at one), ``requires_grad`` (off), ``zero`` (with these data), and
    ``none`` (there is a gradient). ``stops``: where it ends, nearest to the loss first; for
    ``none`` and ``requires_grad``, those of other paths.
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
    """Why the gradient of ``loss`` to ``var`` is zero or missing.

    var: any Variable, usually a leaf. loss: FLOAT or VECn @ any size. feeds: leaf -> array, or
    engine: a ``DressiAD`` that holds the data. Without either, and where leaves have no data of
    their own, only the graph is looked at; with data, also where the gradient becomes exactly 0, in
    float64. Raises GraphError for what is no Variable, and for feeds that leave out a leaf.
    """
    for v in (var, loss):
        if not isinstance(v, Variable):
            raise GraphError(f"explain: needs a Variable, got {short(v)}")
    found = _structural(var, loss)
    if found is not None:
        return found
    sweep = _sweep(var, loss)
    if var.uid not in sweep.totals:
        stops = tuple(_structural_stop(f, i) for f, i in sweep.ends)
        if all(s.op == "stop_gradient" for s in stops):
            message = "no gradient: every path to the loss goes through F.stop_gradient"
            return Explanation(var.label(), STOP, message, stops)
        message = "no gradient: every path to the loss goes through an op without one"
        return Explanation(var.label(), NO_OP_GRADIENT, message, stops)
    if var.creator is None and not var.requires_grad:
        return Explanation(
            var.label(),
            REQUIRES_GRAD,
            "the loss reaches it, but its requires_grad is off: set it on the leaf",
            tuple(_structural_stop(f, i) for f, i in sweep.ends),
        )
    known = feeds is not None or engine is not None
    # Gradients may read leaves that the loss does not: counters of stochastic ones.
    asked = [loss, *sweep.totals.values()]
    if known or all(v.data is not None or v.derived for v in leaves(asked)):
        return _with_data(var, loss, sweep, data_of("explain", asked, feeds, engine))
    return Explanation(
        var.label(),
        NONE,
        "there is a gradient as far as the graph tells; with feeds or engine, also whether it is 0",
        tuple(_structural_stop(f, i) for f, i in sweep.ends),
    )


def _structural(var: Variable, loss: Variable) -> Explanation | None:
    """Reasons that need no sweep."""
    label = var.label()
    if loss.vtype.is_int:
        message = f"no gradient: the loss {loss.label()} made at {loss.line} is an integer"
        return Explanation(label, INTEGER_LOSS, message)
    if var.vtype.is_int:
        message = "no gradient: it is an integer"
        return Explanation(label, INTEGER, message)
    reached = {loss.uid, *(x.uid for f in topological([loss]) for x in f.inputs)}
    if var.uid not in reached:
        message = f"no gradient: the loss {loss.label()} made at {loss.line} does not use it"
        return Explanation(label, NO_PATH, message)
    return None


@dataclass
class _Sweep:
    """Reverse mode with everything kept: gradients of Variables, what each Function gives each
    input, and the (Function, input) that give nothing, nearest to the loss first."""

    totals: dict[int, Variable]
    given: list[tuple[Function, int, Variable]]
    ends: list[tuple[Function, int]]


def _sweep(var: Variable, loss: Variable) -> _Sweep:
    functions = topological([loss])
    on_path = {var.uid}
    for f in functions:
        if any(x.uid in on_path for x in f.inputs):
            on_path.add(f.output.uid)
    parts: dict[int, list[Variable]] = {loss.uid: [constant(1.0, loss.vtype)]}
    sweep = _Sweep({}, [], [])
    for f in reversed(functions):
        y = f.output
        if y.uid not in parts or y.uid not in on_path:
            continue
        with origin(f.line):
            gy = sweep.totals[y.uid] = _total(parts.pop(y.uid), y)
            for i, x in enumerate(f.inputs):
                if x.uid not in on_path:
                    continue
                gx = None if f.op.backward is None else f.op.backward(f, gy, i)
                if gx is None:
                    sweep.ends.append((f, i))
                    continue
                g = _total([_reduce_to(gx, x)], x)
                sweep.given.append((f, i, g))
                parts.setdefault(x.uid, []).append(g)
    if var.uid in parts:
        sweep.totals[var.uid] = _total(parts[var.uid], var)
    return sweep


def _structural_stop(f: Function, i: int) -> Stop:
    x = f.inputs[i]
    if f.op.name == "stop_gradient":
        why = "that is what it is for"
    elif f.output.vtype.is_int:
        why = "its result is an integer"
    elif f.op.backward is None:
        why = "this op has no gradient"
    else:
        why = "this op has no gradient to this input"
    return Stop(f.op.name, f.line, x.label(), why)


def _with_data(
    var: Variable, loss: Variable, sweep: _Sweep, data: dict[Variable, np.ndarray]
) -> Explanation:
    """Follow the values of the gradient from the loss to var, to where they become exactly 0."""
    others = [x for f, _, _ in sweep.given for x in f.inputs if x.fragment_of is None]
    wanted = [*sweep.totals.values(), *(g for _, _, g in sweep.given), *others]
    values = {v.uid: a for v, a in zip(wanted, evaluate(wanted, data), strict=True)}
    gradient = values[sweep.totals[var.uid].uid]
    n = int(np.count_nonzero(gradient))
    if n:
        message = f"there is a gradient: {n} of {gradient.size} numbers are not 0"
        if not np.isfinite(gradient).all():
            message += f", {int((~np.isfinite(gradient)).sum())} are infinite or NaN"
        return Explanation(var.label(), NONE, message)
    stops: list[Stop] = []
    given_to: dict[int, list[bool]] = {}
    for f, i, g in sweep.given:
        x = f.inputs[i]
        alive = bool(values[g.uid].any())
        given_to.setdefault(x.uid, []).append(alive)
        if values[sweep.totals[f.output.uid].uid].any() and not alive:
            stops.append(Stop(f.op.name, f.line, x.label(), _why_zero(f, i, values)))
    for uid, alive_ones in given_to.items():
        if any(alive_ones) and not values[sweep.totals[uid].uid].any():
            x = next(f.inputs[i] for f, i, _ in sweep.given if f.inputs[i].uid == uid)
            users = [f for f, i, _ in sweep.given if f.inputs[i].uid == uid]
            why = f"what its {len(users)} uses give adds up to 0"
            stops.append(Stop(users[0].op.name, users[0].line, x.label(), why))
    stops += [_structural_stop(f, i) for f, i in sweep.ends]
    message = "the gradient is exactly 0 with these data; it ends here"
    return Explanation(var.label(), ZERO, message, tuple(stops))


def _why_zero(f: Function, i: int, values: Mapping[int, np.ndarray]) -> str:
    """What the values say about a derivative that is 0 everywhere."""
    zeros = [
        x for k, x in enumerate(f.inputs) if k != i and x.uid in values and not values[x.uid].any()
    ]
    if f.op.name in _WHY_ZERO:
        return _WHY_ZERO[f.op.name]
    if zeros:
        return f"{_source(zeros[0])} is 0 everywhere"
    return f"its derivative is 0 {_ARRIVES}"


def _source(x: Variable) -> str:
    if x.creator is None:
        return f"the leaf {x.label()}"
    return x.creator.where
