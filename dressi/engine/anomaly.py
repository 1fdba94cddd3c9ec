"""NaN and infinity: a cheap look at the loss now and then, and where they are born.

In: a program that ran. Out: a DressiWarning, or NotFiniteError that names the first Function whose
inputs are finite and whose output is not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dressi.ad.graph import Function, Variable, topological
from dressi.engine.leafstore import present
from dressi.engine.program import Program
from dressi.engine.runtime import Runtime
from dressi.errors import NotFiniteError, warn

FIRST_LOOK, RAREST_LOOK = 64, 1024
"""Steps before the first look at the loss, and, doubled each time, the most between two: reading
one number costs about as much as a small step."""
MOST_NUMBERS = 4096
"""Losses with more numbers than this are not looked at."""
AT_ONCE = 24
"""Functions whose values are computed by one plan."""


class LossWatch:
    """Counts steps, and looks at the loss now and then. Says once per loss that it is not
    finite."""

    def __init__(self) -> None:
        self._left, self._wait = FIRST_LOOK, FIRST_LOOK
        self._said: Variable | None = None

    def note(self, n: int, program: Program) -> None:
        """n steps were run."""
        self._left -= n
        if self._left <= 0:
            self._wait = self._left = min(2 * self._wait, RAREST_LOOK)
            self._look(program)

    def _look(self, program: Program) -> None:
        loss = program.loss
        if loss is None or loss is self._said or loss.size[0] * loss.size[1] > MOST_NUMBERS:
            return
        value = program.read(loss)
        if value is not None:
            self.note_value(loss, value)

    def note_value(self, loss: Variable, value: np.ndarray) -> None:
        """The loss of the last step was read: that costs nothing more."""
        if loss is not self._said and not np.isfinite(value).all():
            self._said = loss
            bad = value[~np.isfinite(value)][0]
            warn(
                f"the loss {loss.label()} made at {loss.line} is {bad}; the parameters are lost\n"
                "  hint: DressiAD(anomaly=True) stops at the first such step and names the op"
            )


def careful_steps(n: int, done: int, program: Program, runtime: Runtime) -> None:
    """Run n steps one by one, and raise NotFiniteError after the first that makes a number that is
    not finite, with the data of the leaves as they were before it. done: steps before these."""
    program.build()
    graph = program.graph
    leaves = [] if graph is None else [leaf for leaf, _ in graph.updates]
    store, loss = runtime.store, program.need_loss()
    for k in range(n):
        before = {v: np.array(store.receive(v)) for v in leaves}
        program.run(1)
        value = program.read(loss)
        values = [*([] if value is None else [value]), *(store.receive(v) for v in leaves)]
        if all(np.isfinite(a).all() for a in values):
            continue
        for v, a in before.items():
            store.send(v, a)
        wanted = [loss, *([] if graph is None else [new for _, new in graph.updates])]
        raise NotFiniteError(f"step {done + k + 1}: {_origin(wanted, runtime)}")


def _origin(wanted: Sequence[Variable], runtime: Runtime) -> str:
    """Return where what is not finite in the wanted Variables begins."""
    functions = [f for f in topological(wanted) if f.output.fragment_of is None]
    values: dict[int, np.ndarray] = {}
    for k in range(0, len(functions), AT_ONCE):
        asked = tuple(f.output for f in functions[k : k + AT_ONCE])
        values.update({v.uid: a for v, a in zip(asked, runtime.evaluate(asked), strict=True)})
    for f in functions:
        for x in f.inputs:
            if x.creator is None and x.uid not in values:
                values[x.uid] = present(runtime.store.receive(x), x)
    born = _born([v for v in wanted if v.uid in values], values)
    if not born:
        return "a number is not finite, and no op makes it when the step is computed again"
    f = min(born, key=lambda f: f.uid)
    forward = {g.uid for g in topological([wanted[0]])}
    return _text(f, values, "" if f.uid in forward else "the backward or the update of ")


def _born(ends: Sequence[Variable], values: dict[int, np.ndarray]) -> list[Function]:
    """Return the Functions behind ends that make what is not finite of finite inputs."""
    out, seen, stack = [], set(), [v for v in ends if not np.isfinite(values[v.uid]).all()]
    while stack:
        f = stack.pop().creator
        if f is None or f.uid in seen:
            continue
        seen.add(f.uid)
        bad = [x for i, x in enumerate(f.inputs) if _reaches(f, i, values)]
        if bad:
            stack += bad
        else:
            out.append(f)
    return out


def _reaches(f: Function, i: int, values: dict[int, np.ndarray]) -> bool:
    """Whether input i of f is not finite where f reads it."""
    value = values.get(f.inputs[i].uid)
    if value is None or np.isfinite(value).all():
        return False
    chosen = values.get(f.inputs[0].uid)
    if not f.op.chooses or i == 0 or chosen is None:
        return True
    try:
        return bool((~np.isfinite(value) & ((chosen != 0) == (i == 1))).any())
    except ValueError:  # sizes that only the device broadcasts
        return True


def _text(f: Function, values: dict[int, np.ndarray], of: str) -> str:
    y = f.output
    a = values[y.uid]
    at = tuple(int(i) for i in np.argwhere(~np.isfinite(a))[0])
    # Users' arrays leave out the axis of one layer and that of the one row of a table.
    shape = (y.layers, y.size[1], y.size[0], y.vtype.n_words)
    flat = np.ravel_multi_index(at, a.shape)
    layer, row, column, component = (int(i) for i in np.unravel_index(flat, shape))
    place = f"row {column}" if y.is_table else f"pixel ({column}, {row})"
    place += f" of layer {layer}" if y.layers > 1 else ""
    place += f", component {component}" if y.vtype.n_words > 1 else ""
    texts = []
    for x in f.inputs:
        if x.uid in values:
            v = values[x.uid].reshape(x.layers, x.size[1], x.size[0], -1)
            if x.size in (y.size, (1, 1)):
                here = v[layer % x.layers, row % x.size[1], column % x.size[0]].tolist()
                texts.append(f"{x.label()} = {here[0] if len(here) == 1 else here}")
            else:
                texts.append(f"{x.label()} in [{v.min():g}, {v.max():g}]")
    return (
        f"{of}F.{f.op.name} at {f.line} makes {a[at]} at {place} of {y.label()}\n"
        f"  inputs: {', '.join(texts) or 'none'}\n  the leaves hold what they held before this step"
    )
