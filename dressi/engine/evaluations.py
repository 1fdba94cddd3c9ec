"""Compiled evaluations: what ``recv_img`` of a computed Variable keeps for the next time.

In: the Variables that were asked for, and their compiled plan. Out: the same plan again, until a
Variable is gone or the bytes run out. An evaluation holds its leaves but no graph, so that a graph
that the user dropped goes away, its evaluation with it, and then its leaves.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dressi.ad.graph import Variable
from dressi.engine.stepper import Part

KEPT_BYTES = 256 << 20
"""What all evaluations may hold; those used longest ago go first."""
KEPT_ALWAYS = 4
"""The latest ones, however large: pictures that a loop reads in turn are not compiled anew each
time."""
SUBSTAGE_BYTES = 1 << 19
"""Allowance for the pipeline of a substage, which no driver tells (lavapipe: 0.3 to 1 MB)."""

Key = tuple[int, ...]


@dataclass(eq=False)
class Evaluation:
    """A compiled plan and how its answers are read."""

    part: Part
    asked: tuple[weakref.ref[Variable], ...]
    """As the user made them."""
    outputs: tuple[Variable, ...]
    """Stand-ins for the same, lowered: uid, type and size, no graph."""

    def n_bytes(self) -> int:
        """Estimate of the memory that goes away with it."""
        plan = self.part.packed.plan
        return sum(plan.own_bytes) + SUBSTAGE_BYTES * plan.n_substages


class Evaluations:
    """The compiled evaluations of an engine, by the uids of what was asked."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, Evaluation] = OrderedDict()
        self.dead: deque[Key] = deque()
        """What ``release`` closes; filled by the garbage collector, in any thread."""

    def __len__(self) -> int:
        return len(self._kept)

    def values(self) -> list[Evaluation]:
        """All of them, the latest used last."""
        return list(self._kept.values())

    def get(self, asked: Sequence[Variable]) -> Evaluation | None:
        """The evaluation of these Variables, which becomes the latest used."""
        key = tuple(v.uid for v in asked)
        evaluation = self._kept.get(key)
        if evaluation is not None:
            self._kept.move_to_end(key)
        return evaluation

    def add(self, asked: Sequence[Variable], part: Part, lowered: Sequence[Variable]) -> Evaluation:
        """Keep a new one, and close those that do not fit beside it."""
        key = tuple(v.uid for v in asked)
        dead = self.dead

        def gone(_: object) -> None:
            dead.append(key)

        part.packed = replace(part.packed, substages=(), task=None)  # they hold the graph
        references = tuple(weakref.ref(v, gone) for v in asked)
        new = Evaluation(part, references, tuple(_stand_in(v) for v in lowered))
        self._kept[key] = new
        total = self.n_bytes()
        while total > KEPT_BYTES and len(self._kept) > KEPT_ALWAYS:
            _, oldest = self._kept.popitem(last=False)
            total -= oldest.n_bytes()
            oldest.part.executable.close()
        return new

    def drop(self, asked: Sequence[Variable]) -> None:
        """Close the evaluation of these Variables, which must be there."""
        self._kept.pop(tuple(v.uid for v in asked)).part.executable.close()

    def asked(self) -> list[Variable]:
        """The Variables that were asked for and are still there."""
        return [v for e in self._kept.values() for r in e.asked if (v := r()) is not None]

    def n_bytes(self) -> int:
        """Estimate of what all of them hold."""
        return sum(e.n_bytes() for e in self._kept.values())

    def release(self) -> None:
        """Close those that nobody can ask for any more."""
        while self.dead:
            evaluation = self._kept.pop(self.dead.popleft(), None)
            if evaluation is not None:
                evaluation.part.executable.close()

    def close(self) -> None:
        """Close all."""
        for evaluation in self._kept.values():
            evaluation.part.executable.close()
        self._kept.clear()
        self.dead.clear()


def _stand_in(v: Variable) -> Variable:
    """Return a leaf with the uid, name, type and size of ``v`` that does not keep v's graph
    alive."""
    out = Variable(v.vtype, v.size, v.layers, name=v.name)
    out.uid, out.line = v.uid, v.line
    return out
