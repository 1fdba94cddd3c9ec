"""One device of several: the two halves of a step, and what goes between them.

In: the loss of some views, an optimizer. Out: gradients in memory of the host, and parameters
updated by the sum that is written there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dressi.ad.graph import Variable
from dressi.ad.optim import Optimizer
from dressi.engine.device import Device, opened
from dressi.engine.engine import Engine
from dressi.engine.program import Program
from dressi.engine.runtime import Runtime
from dressi.engine.step_builder import Built
from dressi.engine.stepper import Step
from dressi.errors import GraphError
from dressi.packing import Options
from dressi.parallel.exchange import Exchange
from dressi.parallel.halves import Halves
from dressi.parallel.shares import Share

Planes = list[np.ndarray]
"""Words of the physical images of all parameters, plane by plane."""


class _SteppedTogether(Program):
    """The program of an engine whose steps are those of a DataParallel."""

    def run(self, n: int) -> None:
        raise GraphError(
            "this engine is one of several of a DataParallel, which steps them together\n"
            "  hint: call the exec_step of the DataParallel"
        )


class Replica:
    """One share of the views on one device.

    ``engine`` looks into it, as into any engine (plans and reports are those of the gradients);
    stepping is left to the DataParallel, which holds the engine's lock meanwhile. weight: factor of
    the loss.
    """

    def __init__(
        self,
        share: Share,
        device: str | int | Device | None,
        options: Options | None,
        validate: bool | None,
        memory_limit: int | None,
    ) -> None:
        self.share = share
        self._runtime = Runtime(opened(device, validate, memory_limit), options)
        self._halves = Halves(self._runtime)
        self._program = _SteppedTogether(self._runtime, self._halves)
        self.engine = Engine(self._runtime, self._program)

    @property
    def weight(self) -> float:
        """Factor of the loss."""
        return self._halves.weight

    def load(self, loss: Variable, optimizer: Optimizer, weight: float, image_dim: int) -> None:
        """Set what is to be done. image_dim: the largest image that all devices allow, so that
        images lie the same way on each and can be exchanged as they are."""
        store = self._runtime.store
        store.limits = store.limits.restrict(image_dim=image_dim)
        self._halves.weight = weight
        self.engine.set_loss_var(loss)
        self.engine.set_optimizer(optimizer)

    @property
    def parameters(self) -> list[Variable]:
        """What the optimizer updates, in the order of making. Builds the step if need be."""
        return self.engine.parameters

    def prepare(self) -> None:
        """Build what is not built. Raises GraphError as ``exec_step`` does."""
        with self.engine.lock:
            self._runtime.enter()
            self._halves.record(self._program.build())

    # -- the two halves. The DataParallel calls these, and holds the lock of each replica meanwhile

    @property
    def is_ready(self) -> bool:
        """Whether everything is built (``prepare``)."""
        return self._program.built is not None and self._halves.exchange is not None

    @property
    def gradients(self) -> tuple[np.ndarray, ...]:
        """Words of the gradients of the share that the device has written, as ``Transfer.words``.
        Valid until something is started."""
        return self._exchange.gradients

    @property
    def sums(self) -> tuple[np.ndarray, ...]:
        """Words of the sum of all devices, to be written only, before an update is started."""
        return self._exchange.sums

    @property
    def steps(self) -> int:
        """Times that the gradients were computed since the step was built."""
        return 0 if self._program.built is None else self._program.built.step.steps

    def compute_gradients(self) -> None:
        """Loss and gradients at the current data, whatever has to be built or run again for it."""
        self._runtime.epoch += 1
        self._step.run(1)
        exchange = self._halves.record(self._built)
        exchange.start(download=True)
        exchange.finish()

    def note_update(self) -> None:
        """An update comes next. Nothing is under way."""
        assert self._halves.update is not None and self._program.graph is not None
        self._halves.update.count_plain()
        # The gradient half does not write them: its cache must be told.
        self._runtime.store.mark_changed(leaf for leaf, _ in self._program.graph.updates)

    def is_plain(self) -> bool:
        """Whether loss and gradients are a matter of one submit."""
        return self._step.is_plain()

    def start(self, update: bool = False, gradients: bool = False) -> None:
        """Submit an update by ``sums`` (after ``note_update``), loss and gradients (where
        ``is_plain``), or both in this order. ``finish`` comes before anything else."""
        self._runtime.epoch += 1
        if gradients:
            self._step.count_plain()
        self._exchange.start(update, gradients, download=gradients)

    def finish(self) -> None:
        """Wait for what was started."""
        self._exchange.finish()

    @property
    def _built(self) -> Built:
        assert self._program.built is not None
        return self._program.built

    @property
    def _step(self) -> Step:
        return self._built.step

    @property
    def _exchange(self) -> Exchange:
        assert self._halves.exchange is not None
        return self._halves.exchange

    # -- values

    def loss_value(self) -> float:
        """The loss of the last step, summed over its pixels, without the weight."""
        with self.engine.lock:
            self._runtime.enter()
            built = self._program.built
            if built is None or built.step.steps == 0:
                raise GraphError("recv_loss: no step was done yet")
            lowered = built.outputs[self._program.need_loss().uid]
            parts = built.step.parts().values()
            part = next(p for p in parts if lowered.uid in p.packed.images)
            return float(self._runtime.read(part, lowered, lowered).sum(dtype=np.float64))

    def read_parameters(self) -> Planes:
        """Parameters in raw form."""
        with self.engine.lock:
            self._runtime.enter()
            planes = self._runtime.store.read_planes(self._halves.sums)
            return [np.frombuffer(p, np.float32) for p in planes]

    def write_parameters(self, planes: Sequence[Any]) -> None:
        """Replace the parameters by those of another replica."""
        with self.engine.lock:
            self._runtime.enter()
            self._runtime.store.write_planes(list(self._halves.sums), planes)
            self._runtime.epoch += 1
