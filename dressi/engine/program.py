"""A loss and an optimizer, and the step that is built for them: when it is built, run and read.

In: a loss, an optimizer, a ``StepBuilder``. Out: iterations, and where a step left a value.
"""

from __future__ import annotations

import time
from collections import deque

import numpy as np

from dressi.ad.autodiff import build_backward
from dressi.ad.explain import explain
from dressi.ad.graph import Variable, leaves
from dressi.ad.idioms import settings_of
from dressi.ad.optim import Optimizer
from dressi.ad.simplify import materialize
from dressi.engine.leafstore import present
from dressi.engine.loss_reads import LossReads
from dressi.engine.runtime import Runtime
from dressi.engine.step_builder import Built, StepBuilder, StepGraph
from dressi.engine.stepper import Part
from dressi.errors import GraphError, warn
from dressi.inspect.report import Rebuild

LOGGED_REBUILDS = 256
"""Lines of the log that are kept."""


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
        self._loss_reads: LossReads | None = None
        self._gradients: dict[Variable, Variable] = {}
        self._flags: tuple[tuple[Variable, bool], ...] = ()
        self._flag_changes = -1
        self._ran_at = -1  # version of the store at the last step
        self._why = "nothing was there"
        self._idle = False
        """Whether parameters wait for an optimizer, so that more steps than one do nothing."""
        self._settings: dict[str, object] = {}
        """Of the optimizer, when the graph was made with it."""

    def set_loss(self, loss: Variable) -> None:
        """Set what is minimized."""
        self.loss = loss
        self.drop("a loss was set")

    def set_optimizer(self, optimizer: Optimizer | None) -> None:
        """Set what makes the updates."""
        self.optimizer = optimizer
        self.drop("an optimizer was set")

    def need_loss(self) -> Variable:
        """Return the loss. Raises GraphError when none is set."""
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
                    f"{x.label()} through differentiable ops\n  {explain(x, loss)}"
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
        """Return the step, built where something changed since the last one."""
        if self.is_built():
            assert self.built is not None
            return self.built
        loss = self.need_loss()
        begin = time.perf_counter()
        self._runtime.phases.clear()
        if self.graph is None:
            graph = self._builder.trace(loss, self.optimizer)
            self._settings = settings_of(self.optimizer)
            self.graph = graph
            self._gradients.update(graph.gradients)
            self._flags = tuple((v, v.requires_grad) for v in leaves([loss]))
            waiting = any(flag for _, flag in self._flags)
            self._idle = self.optimizer is None and waiting and not graph.updates
        self.built = built = self._builder.build(loss, self.graph, self.rebuilds)
        runtime, lowered = self._runtime, built.outputs[loss.uid]
        self._loss_reads = LossReads(runtime.device, runtime.limits, lowered)
        built.step.run_half = self._loss_reads.run
        seconds = time.perf_counter() - begin
        self.rebuilds.append(built.step.rebuild("first", self._why, seconds))
        return built

    def drop(self, reason: str, keep_graph: bool = False) -> None:
        """Forget what was built. keep_graph: but not what the optimizer made, nor its state."""
        self._why = reason
        self._builder.drop(keep_graph)
        if self.built is not None:
            self.built.step.close()
        if self._loss_reads is not None:
            self._loss_reads.close()
            self._loss_reads = None
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
        """Run n steps."""
        built = self.built
        if built is None or self._flag_changes != Variable.flag_changes:
            built = self.build()
        if n > 1 and self._idle:
            self._idle = False  # once
            warn(
                f"{n} steps without an optimizer: the parameters stay as they are\n"
                "  hint: ad.set_optimizer(Adam(lr=0.01)); one exec_step() computes the loss"
            )
        if (now := settings_of(self.optimizer)) != self._settings:
            self._say_late(now)
        self._runtime.epoch += 1  # also if Ctrl-C comes in between: what was evaluated is old then
        self._ran_at = -1
        built.step.run(n)
        self._ran_at = self._runtime.store.version

    def _say_late(self, now: dict[str, object]) -> None:
        what = ", ".join(name for name in now if now[name] != self._settings.get(name))
        self._settings = now  # once
        warn(
            f"exec_steps: {what} of {type(self.optimizer).__name__} was set after its graph was "
            "made, which goes on with what it was\n  hint: lr = Variable(FLOAT), Adam(lr) and "
            "ad.send_img(lr, value) change it from step to step; ad.set_optimizer(Adam(...)) "
            "begins anew"
        )

    @property
    def n_steps(self) -> int:
        """Number of steps that the present build ran."""
        return 0 if self.built is None else self.built.step.steps

    def read(self, v: Variable) -> np.ndarray | None:
        """What the last step left of v, shaped as users see it; None where it must be evaluated: it
        is no output of the step, or something was sent since."""
        if self.built is None or self._ran_at != self._runtime.store.version:
            return None
        lowered = self.built.outputs.get(v.uid)
        if lowered is None:
            return None
        part = next(p for p in self.built.step.parts().values() if p.holds(lowered))
        if v is self.loss and self._loss_reads is not None:
            return present(self._loss_reads.value(part), v)
        return self._runtime.read(part, lowered, v)

    def parts(self) -> list[Part]:
        """Return everything of the step that is on the device."""
        own = [] if self.built is None else list(self.built.step.parts().values())
        return own + list(self._builder.parts())
