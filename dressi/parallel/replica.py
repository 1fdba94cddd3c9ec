"""One device of several: an engine whose step comes in two halves, gradients and update.

In: the loss of some views, an optimizer. Out: gradients in memory of the host, and parameters
updated by the sum that is written there. Both halves are plans; parameters and optimizer state stay
on the device.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dressi.ad import F
from dressi.ad.autodiff import build_backward
from dressi.ad.graph import Variable, leaves
from dressi.ad.optim import Optimizer, with_states
from dressi.engine.engine import DressiAD, weakly
from dressi.engine.stepper import Part, Step
from dressi.errors import GraphError
from dressi.inspect.report import MemoryUse
from dressi.packing import Options
from dressi.parallel.exchange import Exchange
from dressi.parallel.shares import Share
from dressi.vk.image import Image

Planes = list[np.ndarray]
"""Words of the physical images of all parameters, plane by plane."""


class Replica(DressiAD):
    """The engine of one share of the views.

    ``recv_img``, ``recv_grad``, ``report``, ``memory`` and the like work as on any engine (plans
    and reports are those of the gradients); stepping is left to the DataParallel it belongs to.
    weight: factor of the loss.
    """

    def __init__(
        self,
        share: Share,
        device: str | int | None,
        options: Options | None,
        validate: bool | None,
        memory_limit: int | None,
    ) -> None:
        super().__init__(device, options, None, validate, memory_limit)
        self.share = share
        self.weight = 1.0
        self._update_step: Step | None = None
        self._sums: dict[Variable, Variable] = {}  # parameter -> leaf that gets the whole gradient
        self._gradient_of: dict[Variable, Variable] = {}  # parameter -> gradient of the share
        self._loss_states: list[tuple[Variable, Variable]] = []
        self._loss_out: Variable | None = None
        self._exchange: Exchange | None = None
        self._recorded: list[Part] = []  # what the exchange has

    def load(self, loss: Variable, optimizer: Optimizer, weight: float, image_dim: int) -> None:
        """Set what is to be done. image_dim: the largest image that all devices allow, so that
        images lie the same way on each and can be exchanged as they are."""
        self.limits = self._store.limits = self.limits.restrict(image_dim=image_dim)
        self.weight = weight
        self.set_loss_var(loss)
        self.set_optimizer(optimizer)

    @property
    def lock(self) -> threading.RLock:
        """Whoever holds it has the device alone."""
        return self._lock

    @property
    def parameters(self) -> list[Variable]:
        """What the optimizer updates, in the order of making. Builds the step if need be."""
        with self._lock:
            self._current_step()
            return list(self._sums)

    def prepare(self) -> None:
        """Build what is not built. Raises GraphError as ``exec_step`` does."""
        with self._lock:
            self._alive()
            self._current_step()
            self._record()

    # -- the two halves. The DataParallel calls these, and holds the lock of each replica meanwhile

    @property
    def is_ready(self) -> bool:
        """Whether everything is built (``prepare``)."""
        return self._step is not None and self._exchange is not None

    @property
    def gradients(self) -> tuple[np.ndarray, ...]:
        """Words of the gradients of the share that the device has written, as ``Transfer.words``.
        Valid until something is started."""
        assert self._exchange is not None
        return self._exchange.gradients

    @property
    def sums(self) -> tuple[np.ndarray, ...]:
        """Words of the sum of all devices, to be written only, before an update is started."""
        assert self._exchange is not None
        return self._exchange.sums

    def compute_gradients(self) -> None:
        """Loss and gradients at the current data, whatever has to be built or run again for it."""
        assert self._step is not None and self._exchange is not None
        self._epoch += 1
        self._step.run(1)
        self._record()
        self._exchange.start(download=True)
        self._exchange.finish()

    def note_update(self) -> None:
        """An update comes next. Nothing is under way."""
        assert self._update_step is not None
        self._update_step.count_plain()
        # The gradient half does not write them: its cache must be told.
        self._store.mark_changed(leaf for leaf, _ in self._updates or ())

    def is_plain(self) -> bool:
        """Whether loss and gradients are a matter of one submit."""
        assert self._step is not None
        return self._step.is_plain()

    def start(self, update: bool = False, gradients: bool = False) -> None:
        """Submit an update by ``sums`` (after ``note_update``), loss and gradients (where
        ``is_plain``), or both in this order. ``finish`` comes before anything else."""
        assert self._step is not None and self._exchange is not None
        self._epoch += 1
        if gradients:
            self._step.count_plain()
        self._exchange.start(update, gradients, download=gradients)

    def finish(self) -> None:
        """Wait for what was started."""
        assert self._exchange is not None
        self._exchange.finish()

    def _record(self) -> None:
        """Make the exchange, or tell it of the halves that the step has now."""
        step, update = self._step, self._update_step
        assert step is not None and update is not None
        parts = list(step.parts().values())
        if [id(p) for p in parts] == [id(p) for p in self._recorded]:
            return
        images: list[Image] = []
        for x in self._sums:
            made = self._outputs[self._gradient_of[x].uid].uid
            part = next(p for p in parts if made in p.packed.images)  # what is clean: the other one
            images += part.executable.images(part.packed.images[made])
        if self._exchange is None:
            sums = self._store.images(self._sums.values())
            self._exchange = Exchange(self._device, update.main, sums, step.main, images)
        else:
            self._exchange.record(step.main, images)
        self._recorded = parts

    def loss_value(self) -> float:
        """The loss of the last step, summed over its pixels, without the weight."""
        with self._lock:
            self._alive()
            if not self._outputs or self._step is None or self._step.steps == 0:
                raise GraphError("recv_loss: no step was done yet")
            made = self._outputs[self._need_loss().uid]
            part = next(p for p in self._step.parts().values() if made.uid in p.packed.images)
            return float(self._read(part, made, made).sum(dtype=np.float64))

    def read_parameters(self) -> Planes:
        """Parameters in raw form."""
        with self._lock:
            self._alive()
            return [np.frombuffer(p, np.float32) for p in self._store.read_planes(self._sums)]

    def write_parameters(self, planes: Sequence[Any]) -> None:
        """Replace the parameters by those of another replica."""
        with self._lock:
            self._alive()
            self._store.write_planes(list(self._sums), planes)
            self._epoch += 1

    # -- what the engine does otherwise

    def _advance(self, n: int) -> None:
        raise GraphError(
            "this engine is one of several of a DataParallel, which steps them together\n"
            "  hint: call the exec_step of the DataParallel"
        )

    def _current_step(self) -> Step:
        """The gradient half; builds both when something changed since the last step."""
        if self._is_built():
            assert self._step is not None
            return self._step
        begin = time.perf_counter()
        self._phases.clear()
        loss = self._need_loss()
        if self._updates is None:
            self._make_graphs(loss)
        assert self._updates is not None
        # First what writes the parameters: it puts them into images, where the other half then
        # reads them.
        packed, _ = self._pack([], self._updates, "update")
        update = Step(packed, weakly(self._compile), self._store, self._rebuilds, cache=False)
        try:
            assert self._loss_out is not None
            outputs = [self._loss_out, *self._gradient_of.values()]
            packed, made = self._pack(outputs, self._loss_states, "gradients")
            cache = self._options.cache
            step = Step(packed, weakly(self._compile), self._store, self._rebuilds, cache)
        except BaseException:
            update.close()
            raise
        self._step, self._update_step = step, update
        self._outputs = {v.uid: m for v, m in zip(outputs, made, strict=True)}
        self._outputs[loss.uid] = made[0]
        self._rebuilds.append(step.rebuild("first", self._why, time.perf_counter() - begin))
        return step

    def _make_graphs(self, loss: Variable) -> None:
        with self._phase("backward"):
            objective = loss if self.weight == 1.0 else loss * self.weight
            gradients = build_backward(objective)
            self._gradient_of = dict(gradients)
            scalar = loss.size == (1, 1) and loss.layers == 1
            self._loss_out = loss if scalar else F.sum(loss)
        with self._phase("optimizer"):
            sums = {
                x: Variable(x.vtype, x.size, x.layers, name=f"{x.name or 'x'}.grad")
                for x in gradients
            }
            pairs = self._call_optimizer(loss, sums)
        with self._phase("traverse"):
            # State that the optimizer reads belongs to its half, also where the loss reads it too:
            # both must see it as it was before the step. The rest goes with the gradients.
            updates = with_states([], pairs)
            taken = {leaf.uid for leaf, _ in updates}
            states = with_states([loss], [])
            self._loss_states = [(leaf, new) for leaf, new in states if leaf.uid not in taken]
        for leaf in sums.values():
            self._store.make_resident(leaf)
        self._sums, self._updates = sums, updates
        self._flags = tuple((v, v.requires_grad) for v in leaves([loss]))

    def _drop_builds(self, reason: str, keep_graph: bool = False) -> None:
        if self._exchange is not None:
            self._exchange.close()
        self._exchange, self._recorded = None, []
        if self._update_step is not None:
            self._update_step.close()
            self._update_step = None
        super()._drop_builds(reason, keep_graph)
        if not keep_graph:
            for leaf in self._sums.values():
                self._store.drop(leaf)
            self._sums = {}

    def memory(self) -> MemoryUse:
        """As of any engine, with both halves."""
        use = super().memory()
        if self._update_step is None:
            return use
        images, buffers = self._update_step.main.executable.own_bytes()
        return replace(use, images=use.images + images, buffers=use.buffers + buffers)
