"""A step in two halves: loss and gradients of a share of the views, and the update by their sum.

In: a loss, an optimizer. Out: two plans on one device, and the ``Exchange`` between them.
Parameters and optimizer state stay on the device.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Any

from dressi.ad import F
from dressi.ad.autodiff import build_backward
from dressi.ad.graph import Variable
from dressi.ad.optim import Optimizer, with_states
from dressi.engine.runtime import Runtime
from dressi.engine.step_builder import Built, Pair, StepBuilder, StepGraph, apply_optimizer
from dressi.engine.stepper import Part, Step
from dressi.inspect.report import Rebuild
from dressi.parallel.exchange import Exchange


class Halves(StepBuilder):
    """The ``StepBuilder`` of a replica: the step that it builds is the half of the gradients.

    weight: factor of the loss, to be set before anything is built.
    """

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.weight = 1.0
        self.sums: dict[Variable, Variable] = {}
        """Parameter -> leaf that gets the whole gradient, in the order of making."""
        self.gradient_of: dict[Variable, Variable] = {}
        """Parameter -> gradient of the share."""
        self.update: Step | None = None
        """The half that reads the sums."""
        self.exchange: Exchange | None = None
        self._loss_states: list[Pair] = []
        self._loss_out: Variable | None = None
        self._recorded: list[Part] = []  # what the exchange has

    def trace(self, loss: Variable, optimizer: Optimizer | None) -> StepGraph:
        """The graphs of both halves; their updates are those of the update half."""
        runtime = self._runtime
        with runtime.phase("backward"):
            objective = loss if self.weight == 1.0 else loss * self.weight
            gradients = build_backward(objective)
            self.gradient_of = dict(gradients)
            scalar = loss.size == (1, 1) and loss.layers == 1
            self._loss_out = loss if scalar else F.sum(loss)
        with runtime.phase("optimizer"):
            sums = {
                x: Variable(x.vtype, x.size, x.layers, name=f"{x.name or 'x'}.grad")
                for x in gradients
            }
            pairs, made = apply_optimizer(optimizer, loss, sums)
        with runtime.phase("traverse"):
            # State that the optimizer reads belongs to its half, also where the loss reads it too:
            # both must see it as it was before the step. The rest goes with the gradients.
            updates = with_states([], pairs)
            taken = {leaf.uid for leaf, _ in updates}
            states = with_states([loss], [])
            self._loss_states = [(leaf, new) for leaf, new in states if leaf.uid not in taken]
        for leaf in sums.values():
            runtime.store.make_resident(leaf)
        self.sums = sums
        return StepGraph(list(sums), updates, made)

    def build(self, loss: Variable, graph: StepGraph, rebuilds: MutableSequence[Rebuild]) -> Built:
        """Build both. First what writes the parameters: it puts them into images, where the other
        half then reads them."""
        runtime = self._runtime
        packed, _ = runtime.pack([], graph.updates, "update")
        update = Step(packed, runtime.compile, runtime.store, rebuilds, cache=False)
        try:
            assert self._loss_out is not None
            outputs = [self._loss_out, *self.gradient_of.values()]
            packed, lowered = runtime.pack(outputs, self._loss_states, "gradients")
            cache = runtime.options.cache
            step = Step(packed, runtime.compile, runtime.store, rebuilds, cache)
        except BaseException:
            update.close()
            raise
        self.update = update
        found = {v.uid: low for v, low in zip(outputs, lowered, strict=True)}
        return Built(step, found | {loss.uid: lowered[0]})

    def parts(self) -> Sequence[Part]:
        return () if self.update is None else (self.update.main,)

    def drop(self, keep_graph: bool) -> None:
        if self.exchange is not None:
            self.exchange.close()
        self.exchange, self._recorded = None, []
        if self.update is not None:
            self.update.close()
            self.update = None
        if not keep_graph:
            for leaf in self.sums.values():
                self._runtime.store.drop(leaf)
            self.sums = {}

    def record(self, built: Built) -> Exchange:
        """The exchange, made or told of the halves that the step has now."""
        assert self.update is not None
        parts = list(built.step.parts().values())
        if self.exchange is not None and [*map(id, parts)] == [*map(id, self._recorded)]:
            return self.exchange
        images: list[Any] = []
        for x in self.sums:
            uid = built.outputs[self.gradient_of[x].uid].uid
            part = next(p for p in parts if uid in p.packed.images)  # what is clean: the other one
            images += part.executable.images(part.packed.images[uid])
        if self.exchange is None:
            device, sums = self._runtime.device, self._runtime.store.images(self.sums.values())
            main = self.update.main
            self.exchange = Exchange(device, main, sums, built.step.main, images)
        else:
            self.exchange.record(built.step.main, images)
        self._recorded = parts
        return self.exchange
