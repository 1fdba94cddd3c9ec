"""From a loss and an optimizer to a step on the device: phases 1 to 6 of the seven (paper, A.6).

In: a loss, an optimizer, a ``Runtime``. Out: a ``Step``, which runs it, and what it leaves to be
read. Phases 1 to 3 (backward, optimizer, traverse) make graphs and are ``trace``; 4 to 6
(substages, stages, Vulkan objects) make plans and are ``build``.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass, field

from dressi.ad.autodiff import build_backward
from dressi.ad.explain import no_parameter
from dressi.ad.graph import Variable
from dressi.ad.optim import GradientOnly, Optimizer, with_states
from dressi.engine.checks import updated
from dressi.engine.runtime import Runtime
from dressi.engine.stepper import Part, Step
from dressi.errors import GraphError
from dressi.inspect.report import Rebuild

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


class StepBuilder:
    """Builds forward, backward and optimizer as one step. ``dressi.parallel`` builds two halves."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def trace(self, loss: Variable, optimizer: Optimizer | None) -> StepGraph:
        """Make the graphs. Raises GraphError where the loss depends on no parameter."""
        with self._runtime.phase("backward"):
            gradients = build_backward(loss) if optimizer is not None else {}
        with self._runtime.phase("optimizer"):
            updates, states = apply_optimizer(optimizer, loss, gradients)
        with self._runtime.phase("traverse"):  # state that the graph keeps from step to step joins
            kept = gradients if isinstance(optimizer, GradientOnly) else {}
            return StepGraph(list(gradients), with_states([loss], updates), states, kept)

    def build(self, loss: Variable, graph: StepGraph, rebuilds: MutableSequence[Rebuild]) -> Built:
        """Pack and compile them. rebuilds: the log that the step writes later rebuilds into."""
        runtime, kept = self._runtime, [loss, *graph.gradients.values()]
        packed, lowered = runtime.pack(kept, graph.updates, "step", graph.gradients)
        step = Step(packed, runtime.compile, runtime.store, rebuilds, runtime.options.cache)
        return Built(step, {v.uid: low for v, low in zip(kept, lowered, strict=True)})

    def parts(self) -> Sequence[Part]:
        """Return what is on the device beside the step that ``build`` returned: nothing."""
        return ()

    def drop(self, keep_graph: bool) -> None:
        """Free that. keep_graph: but not what belongs to the graphs."""


def apply_optimizer(
    optimizer: Optimizer | None, loss: Variable, gradients: dict[Variable, Variable]
) -> tuple[list[Pair], list[Variable]]:
    """Return the updates of the parameters and the states that the optimizer made for them. Raises
    GraphError for no gradients, and for an optimizer that returns something else than a Variable
    for each."""
    if optimizer is None:
        return [], []
    if not gradients:
        raise GraphError(
            f"the loss {loss.label()} made at {loss.line} does not depend on any parameter\n"
            f"  {no_parameter(loss)}"
        )
    xs = list(gradients)
    newest = Variable(loss.vtype).uid
    new = updated(optimizer(xs, [gradients[x] for x in xs]), xs)
    pairs = [(x, v) for x, v in zip(xs, new, strict=True) if v is not x]
    return pairs, [v for v, _ in with_states([], pairs) if v.uid > newest]
