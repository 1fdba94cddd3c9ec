"""From a loss and an optimizer to a step on the device: phases 1 to 6 of the seven (paper, A.5).

In: a loss, an optimizer, a ``Runtime``. Out: a ``Step`` and what it leaves to be read. Phases 1 to
3 (backward, optimizer, traverse) make graphs and are a ``StepBuilder``'s ``trace``; 4 to 6
(substages, stages, Vulkan objects) make plans and are its ``build``.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dressi.ad.autodiff import build_backward
from dressi.ad.graph import Variable, leaves
from dressi.ad.optim import GradientOnly, Optimizer, with_states
from dressi.ad.simplify import materialize
from dressi.engine.checks import updated
from dressi.engine.runtime import Runtime
from dressi.engine.stepper import Part, Step
from dressi.errors import GraphError
from dressi.inspect.report import Rebuild

LOGGED_REBUILDS = 256
"""Lines of the log that are kept."""

Pair = tuple[Variable, Variable]
"""A leaf and its next value."""


@dataclass
class StepGraph:
    """The graphs of a step. They stay when only the options change."""

    parameters: list[Variable]
    """Leaves that the optimizer got gradients of, in the order of making."""
    updates: list[Pair]
    states: list[Variable]
    """Moments and counters that the optimizer made for it: freed with it, or they would pile up."""
    gradients: dict[Variable, Variable] = field(default_factory=dict)
    """Those that the step keeps to be read, by leaf (``GradientOnly``)."""


@dataclass
class Built:
    """A step on the device, and its outputs."""

    step: Step
    outputs: dict[int, Variable]
    """Lowered Variables that can be read after a step, by the uid of the user's."""


class StepBuilder(Protocol):
    """One way to make a step: ``WholeStep``, or the two halves of ``dressi.parallel``."""

    def trace(self, loss: Variable, optimizer: Optimizer | None) -> StepGraph:
        """Make the graphs. Raises GraphError where the loss depends on no parameter."""
        ...

    def build(self, loss: Variable, graph: StepGraph, rebuilds: MutableSequence[Rebuild]) -> Built:
        """Pack and compile them. rebuilds: the log that the step writes later rebuilds into."""
        ...

    def parts(self) -> Sequence[Part]:
        """What is on the device beside the step that ``build`` returned."""
        ...

    def drop(self, keep_graph: bool) -> None:
        """Free that. keep_graph: but not what belongs to the graphs."""
        ...


class WholeStep:
    """Forward, backward and optimizer in one step."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def trace(self, loss: Variable, optimizer: Optimizer | None) -> StepGraph:
        with self._runtime.phase("backward"):
            gradients = build_backward(loss) if optimizer is not None else {}
        with self._runtime.phase("optimizer"):
            updates, states = apply_optimizer(optimizer, loss, gradients)
        with self._runtime.phase("traverse"):  # state that the graph keeps from step to step joins
            kept = gradients if isinstance(optimizer, GradientOnly) else {}
            return StepGraph(list(gradients), with_states([loss], updates), states, kept)

    def build(self, loss: Variable, graph: StepGraph, rebuilds: MutableSequence[Rebuild]) -> Built:
        runtime, kept = self._runtime, [loss, *graph.gradients.values()]
        packed, lowered = runtime.pack(kept, graph.updates, "step", graph.gradients)
        step = Step(packed, runtime.compile, runtime.store, rebuilds, runtime.options.cache)
        return Built(step, {v.uid: low for v, low in zip(kept, lowered, strict=True)})

    def parts(self) -> Sequence[Part]:
        return ()

    def drop(self, keep_graph: bool) -> None:
        pass


def apply_optimizer(
    optimizer: Optimizer | None, loss: Variable, gradients: dict[Variable, Variable]
) -> tuple[list[Pair], list[Variable]]:
    """(updates of the parameters, states that the optimizer made for them). Raises GraphError for
    no gradients, and for an optimizer that returns something else than a Variable for each."""
    if optimizer is None:
        return [], []
    if not gradients:
        raise GraphError(
            f"the loss {loss.label()} made at {loss.line} does not depend on any parameter\n"
            "  hint: set requires_grad on a leaf that the loss reaches through "
            "differentiable ops"
        )
    xs = list(gradients)
    newest = Variable(loss.vtype).uid
    new = updated(optimizer(xs, [gradients[x] for x in xs]), xs)
    pairs = [(x, v) for x, v in zip(xs, new, strict=True) if v is not x]
    return pairs, [v for v, _ in with_states([], pairs) if v.uid > newest]


class Program:
    """A loss and an optimizer, and the step that is built for them when it is needed."""

    def __init__(self, runtime: Runtime, builder: StepBuilder) -> None:
        self.loss: Variable | None = None
        self.optimizer: Optimizer | None = None
        self.graph: StepGraph | None = None
        self.built: Built | None = None
        self.rebuilds: deque[Rebuild] = deque(maxlen=LOGGED_REBUILDS)
        self._runtime = runtime
        self._builder = builder
        self._gradients: dict[Variable, Variable] = {}
        self._flags: tuple[tuple[Variable, bool], ...] = ()
        self._flag_changes = -1
        self._ran_at = -1  # version of the store at the last step
        self._why = "nothing was there"

    def set_loss(self, loss: Variable) -> None:
        """Set what is minimized."""
        self.loss = loss
        self.drop("a loss was set")

    def set_optimizer(self, optimizer: Optimizer | None) -> None:
        """Set what makes the updates."""
        self.optimizer = optimizer
        self.drop("an optimizer was set")

    def need_loss(self) -> Variable:
        """The loss. Raises GraphError when none is set."""
        if self.loss is None:
            raise GraphError("no loss is set\n  hint: call set_loss_var first")
        return self.loss

    def gradient(self, x: Variable) -> Variable:
        """The gradient of the loss to a leaf, as a graph. Raises GraphError when the loss does not
        depend on it."""
        loss = self.need_loss()
        if x not in self._gradients:
            gradients = build_backward(loss, [x])
            if x not in gradients:
                raise GraphError(
                    f"recv_grad: the loss {loss.label()} does not depend on "
                    f"{x.label()} through differentiable ops"
                )
            self._gradients[x] = materialize(gradients[x])
        return self._gradients[x]

    # -- building

    def is_built(self) -> bool:
        """Whether a step is there and nothing changed since. Drops one whose requires_grad did."""
        if self.built is not None and self._flag_changes == Variable.flag_changes:
            return True
        if any(v.requires_grad != flag for v, flag in self._flags):
            self.drop("a requires_grad changed")
        self._flag_changes = Variable.flag_changes
        return self.built is not None

    def build(self) -> Built:
        """The step, built where something changed since the last one."""
        if self.is_built():
            assert self.built is not None
            return self.built
        loss = self.need_loss()
        begin = time.perf_counter()
        self._runtime.phases.clear()
        if self.graph is None:
            graph = self._builder.trace(loss, self.optimizer)
            self.graph = graph
            self._gradients.update(graph.gradients)
            self._flags = tuple((v, v.requires_grad) for v in leaves([loss]))
        self.built = built = self._builder.build(loss, self.graph, self.rebuilds)
        seconds = time.perf_counter() - begin
        self.rebuilds.append(built.step.rebuild("first", self._why, seconds))
        return built

    def drop(self, reason: str, keep_graph: bool = False) -> None:
        """Forget what was built. keep_graph: but not what the optimizer made, nor its state."""
        self._why = reason
        self._builder.drop(keep_graph)
        if self.built is not None:
            self.built.step.close()
        self._runtime.evaluations.close()
        self.built = None
        self._ran_at = -1
        if keep_graph:
            return
        if self.graph is not None:
            for leaf in self.graph.states:
                self._runtime.store.drop(leaf)
        self.graph, self._flags = None, ()
        self._gradients.clear()

    # -- running and reading

    def run(self, n: int) -> None:
        """n steps."""
        built = self.built
        if built is None or self._flag_changes != Variable.flag_changes:
            built = self.build()
        self._runtime.epoch += 1  # also if Ctrl-C comes in between: what was evaluated is old then
        self._ran_at = -1
        built.step.run(n)
        self._ran_at = self._runtime.store.version

    def find(self, v: Variable) -> tuple[Part, Variable] | None:
        """Where the last step left v, and v lowered; None where it must be evaluated: it is no
        output of the step, or something was sent since."""
        if self.built is None or self._ran_at != self._runtime.store.version:
            return None
        lowered = self.built.outputs.get(v.uid)
        if lowered is None:
            return None
        return next(p for p in self.built.step.parts().values() if p.holds(lowered)), lowered

    def parts(self) -> list[Part]:
        """Everything of the step that is on the device."""
        own = [] if self.built is None else list(self.built.step.parts().values())
        return own + list(self._builder.parts())
