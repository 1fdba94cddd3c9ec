"""The engine: a loss and an optimizer in, optimized data out (paper, A.6: DressiAD).

``exec_step`` is seven phases: backward, optimizer, traverse, substages, stages, Vulkan objects,
execution. The first six (``step_builder``) run when something changed; a steady step is one submit.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from dressi.ad.doubts import say_mixed
from dressi.ad.graph import Variable
from dressi.ad.optim import Optimizer
from dressi.ad.verify import check_graph
from dressi.engine.anomaly import LossWatch, careful_steps
from dressi.engine.checkpoint import checked, keys
from dressi.engine.checks import (
    check_options,
    checked_limit,
    exclusive,
    need_variable,
    positive_int,
)
from dressi.engine.chunks import Callback, run_in_chunks
from dressi.engine.device import Device, opened
from dressi.engine.leafstore import present
from dressi.engine.program import Program
from dressi.engine.reports import Reports
from dressi.engine.runtime import Runtime
from dressi.engine.step_builder import StepBuilder
from dressi.engine.vjp import VJP
from dressi.errors import DeviceError, GraphError
from dressi.inspect.dumps import set_up_log
from dressi.inspect.report import Rebuild
from dressi.packing import DeviceLimits, Options, Plan
from dressi.vk import DeviceInfo

Self = TypeVar("Self", bound="Engine")


class Engine(Reports):
    """A program on a runtime, as users see it. ``DressiAD`` makes one; so does each replica of a
    ``DataParallel``, with a program that it steps itself."""

    def __init__(self, runtime: Runtime, program: Program, anomaly: bool = False) -> None:
        self.lock = threading.RLock()
        """Held by the thread that uses the device."""
        self.runtime = runtime
        """Leaves, evaluations and plans on the device: for looking at only."""
        self._program = program
        self._anomaly, self._watch = anomaly, LossWatch()
        self._wall_s: deque[float] = deque(maxlen=64)  # per step, of the last calls
        self._host_s: deque[float] = deque(maxlen=64)
        set_up_log()

    # -- setting up

    @exclusive
    def set_loss_var(self, loss: Variable) -> None:
        """Set the Variable to minimize: FLOAT or VECn, any size (1 is seeded at every pixel).
        Raises GraphError for an integer or per-fragment loss."""
        self.runtime.enter()
        need_variable("set_loss_var", loss)
        if loss.vtype.is_int or loss.vtype.is_matrix:
            raise GraphError(f"set_loss_var: the loss must be FLOAT or VECn, got {loss.label()}")
        check_graph([loss])
        say_mixed(loss)
        self._program.set_loss(loss)

    @exclusive
    def set_optimizer(self, optimizer: Optimizer | None) -> None:
        """Set ``optimizer(xs, gxs) -> updated xs``, a graph builder; None: forward only."""
        self.runtime.enter()
        if optimizer is not None and (isinstance(optimizer, type) or not callable(optimizer)):
            raise GraphError(
                "set_optimizer: needs an optimizer like Adam(lr=0.01) or a "
                f"function (xs, gxs) -> updated xs, got {optimizer!r}"
            )
        self._program.set_optimizer(optimizer)

    @property
    def options(self) -> Options:
        """The switches. Setting them builds the step anew; all data stays, the optimizer's too."""
        return self.runtime.options

    @options.setter
    def options(self, options: Options) -> None:
        with self.lock:
            self.runtime.enter()
            check_options(options)
            if options != self.runtime.options:
                self.runtime.options = options
                self._program.drop("the options changed", keep_graph=True)

    @property
    def limits(self) -> DeviceLimits:
        """What packing keeps to: limits of the device, or the stricter ones that were given."""
        return self.runtime.limits

    @exclusive
    def send_img(self, var: Variable, array: Any) -> None:
        """Send data to a leaf.

        array: (H, W, C), (layers, H, W, C), a table (N, C), or numbers for 1x1; matrices (n, n) row
        by row. May be called before the first step. Raises GraphError for a wrong shape, NaN,
        infinity, an index outside its table, or an image larger than the device allows.
        """
        self.runtime.enter()
        loss = self._program.loss
        self.runtime.send(var, array, () if loss is None else (loss,))

    # -- reading back

    @exclusive
    def recv_img(self, var: Variable) -> np.ndarray:
        """Data of a Variable as float32 or int32: (H, W, C), (layers, H, W, C), (N, C) for tables.

        A leaf: its current data. The loss: its value in the last step, if nothing was sent since.
        Any other Variable (and the loss otherwise) is evaluated now, from the current data of the
        leaves.
        """
        self.runtime.enter()
        need_variable("recv_img", var)
        if var.creator is None:
            return present(self.runtime.store.receive(var), var)
        value = self._program.read(var)
        if value is None:
            return self.runtime.evaluate((var,))[0]
        if var is self._program.loss:
            self._watch.note_value(var, value)
        return value

    @exclusive
    def recv_imgs(self, variables: Sequence[Variable]) -> list[np.ndarray]:
        """Data of many Variables as ``recv_img`` gives it. What is computed is evaluated by one
        plan, which shares what the graphs have in common; it takes one compilation, however many
        they are. Raises GraphError as ``recv_img``."""
        self.runtime.enter()
        for var in variables:
            need_variable("recv_imgs", var)
        computed = tuple(v for v in variables if v.creator is not None)
        values = iter(self.runtime.evaluate(computed) if computed else ())
        return [self.recv_img(v) if v.creator is None else next(values) for v in variables]

    @exclusive
    def recv_grad(self, var: Variable) -> np.ndarray:
        """Gradient of the (summed) loss to a leaf at the current data of all leaves, shaped like
        the leaf. Raises GraphError when no loss is set or the loss does not depend on the leaf."""
        self.runtime.enter()
        need_variable("recv_grad", var)
        return self.recv_img(self._program.gradient(var))

    @exclusive
    def vjp(self, outputs: Sequence[Variable], wrt: Sequence[Variable]) -> VJP:
        """Return the outputs and their vector-Jacobian product as two plans, for a program whose
        loss is computed elsewhere: ``forward()`` gives values, ``backward(upstream)`` the gradients
        of the leaves ``wrt``. Intermediates stay on the device in between; the loss and optimizer
        of this engine have no part in it. Raises GraphError for a leaf without a gradient, and for
        outputs that read a state."""
        self.runtime.enter()
        return VJP(self.runtime, self.lock, outputs, wrt)

    # -- running

    def exec_step(self) -> None:
        """Run one iteration: forward, backward, optimizer. Raises GraphError when no loss is set, a
        leaf has no data, or the loss depends on no parameter although an optimizer is set."""
        with self.lock:
            self._advance(1)

    def exec_steps(
        self,
        n: int,
        callback: Callback | None = None,
        progress: bool = False,
        every: int | None = None,
    ) -> None:
        """Run n iterations with no host work in between. Ctrl-C stops between some of them.

        callback: called with the number of steps done after each ``every`` of them and at the end;
        one that returns True stops. progress: show a bar with the loss, as often. every: default a
        hundredth of n. Warns where parameters wait for an optimizer that is not set, and, once in
        hundreds of steps, of a loss that is not finite.
        """
        count, chunk = positive_int(n), 1 if every is None else positive_int(every)
        if count is None or chunk is None:
            name, given = ("n", n) if count is None else ("every", every)
            raise GraphError(f"exec_steps: {name} must be an integer of at least 1, got {given!r}")
        if callback is not None and not callable(callback):
            raise GraphError(f"exec_steps: callback must be a function, got {callback!r}")
        if callback is None and not progress:
            with self.lock:
                self._advance(count)
            return

        def loss() -> float:
            return float(np.sum(self.recv_img(self._program.need_loss())))

        chunk = every or max(count // 100, 1)
        run_in_chunks(self.exec_steps, loss, count, callback, progress, chunk)

    def _advance(self, n: int) -> None:
        device = self.runtime.device
        begin, waited = time.perf_counter(), device.waited_s
        self.runtime.enter()
        if self._anomaly:
            careful_steps(n, self._program.n_steps, self._program, self.runtime)
        else:
            self._program.run(n)
            self._watch.note(n, self._program)
        wall = time.perf_counter() - begin
        self._wall_s.append(wall / n)
        self._host_s.append((wall - (device.waited_s - waited)) / n)

    # -- looking inside

    @property
    def device(self) -> Device:
        """The open device, for what the engine does not show: live handles, timings, low-level
        calls. What is done to it is not noticed by the engine."""
        return self.runtime.device

    @property
    def device_info(self) -> DeviceInfo:
        """Name, driver and type of the device."""
        return self.runtime.device.info

    @property
    @exclusive
    def plan(self) -> Plan:
        """The Plan of what a step runs (built now if need be). ``print(plan_text(ad.plan))`` shows
        it."""
        self.runtime.enter()
        return self._program.build().step.main.packed.plan

    @property
    @exclusive
    def plans(self) -> dict[str, Plan]:
        """``step``, and, once the cache acts, ``static``: the clean part, run after changes."""
        self.runtime.enter()
        return {k: p.packed.plan for k, p in self._program.build().step.parts().items()}

    @exclusive
    def plan_of(self, variables: Sequence[Variable]) -> Plan:
        """The Plan by which ``recv_imgs`` would evaluate these computed Variables; nothing is
        compiled or run."""
        self.runtime.enter()
        return self.runtime.pack(variables, [], "evaluation")[0].plan

    @property
    @exclusive
    def ran(self) -> tuple[str, ...]:
        """Names of the stages that the last ``exec_steps`` ran, in order: plan and stage."""
        built = self._program.built
        return () if built is None else tuple(built.step.last.stages())

    @property
    def rebuilds(self) -> tuple[Rebuild, ...]:
        """Builds of a step, the latest 256: the first ones and those of the cache."""
        return tuple(self._program.rebuilds)

    @property
    def n_rebuilds(self) -> int:
        """Plans compiled so far, evaluations and cached halves included."""
        return self.runtime.n_rebuilds

    @property
    @exclusive
    def parameters(self) -> list[Variable]:
        """Leaves that the optimizer updates, in the order of making (the step is built now if need
        be)."""
        self.runtime.enter()
        self._program.build()
        graph = self._program.graph
        return [] if graph is None else list(graph.parameters)

    @property
    @exclusive
    def optimizer_states(self) -> tuple[Variable, ...]:
        """Leaves that the optimizer made for the current step (moments, counters), in the order of
        their making; none before the step is built. ``recv_img`` and ``send_img`` take them: a
        checkpoint is their data and that of the parameters."""
        self.runtime.enter()
        self._program.is_built()
        graph = self._program.graph
        return () if graph is None else tuple(graph.states)

    @exclusive
    def state_dict(self) -> dict[str, np.ndarray]:
        """Copies of the parameters and of all that the optimizer and the loss keep from step to
        step (moments, counters), by name; ``np.savez(path, **state)`` writes them. The step is
        built now if need be. Data that you send (targets, a learning rate) is not in it."""
        return {k: self.recv_img(v) for k, v in self._updated().items()}

    @exclusive
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was taken, to the bit where a step's bits are reproducible
        (``Options.deterministic``): in this engine or one with the same loss and optimizer. Takes
        what ``np.load`` gives. Raises GraphError, with nothing changed, for other names or shapes.
        """
        for leaf, value in checked(state, self._updated()).items():
            self.send_img(leaf, value)

    def _updated(self) -> dict[str, Variable]:
        self.runtime.enter()
        self._program.build()
        graph = self._program.graph
        return {} if graph is None else keys(graph.parameters, [v for v, _ in graph.updates])

    # -- life

    @exclusive
    def close(self) -> None:
        """Free everything on the device. May be called twice."""
        self.runtime.close()

    def __reduce__(self) -> str:
        raise DeviceError(
            "a DressiAD cannot be copied or pickled: it holds what lies on a device\n"
            "  hint: make a new one, and send it what recv_img gives here"
        )

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class DressiAD(Engine):
    """Differentiates, packs and runs a graph on one device.

    device: index, part of a name, name#k or UUID (default ``DRESSI_DEVICE``, else the best); or an
    open device (that of ``dressi.testing.null_device`` needs no Vulkan), which the engine closes.
    options: switches of packing and execution. limits: numbers that replace those of the device,
    e.g. ``{"input_attachments": 4}`` to stand in for a weaker one. memory_limit: bytes of device
    memory that may be taken; what does not fit raises OutOfMemoryError before it is made. anomaly:
    look at the loss and all that is updated after every step, and raise NotFiniteError, naming op,
    pixel and line, at the first NaN or infinity (slow: for finding them). Raises DeviceError,
    naming what to install, when no device can be had. Use as a context manager or call ``close``.

    Parts of a step whose inputs did not change since the last one are not run again: after a few
    steps with the same leaves sent in each, the step is packed again without them (``rebuilds``).
    """

    def __init__(
        self,
        device: str | int | Device | None = None,
        options: Options | None = None,
        limits: dict[str, int | bool] | None = None,
        validate: bool | None = None,
        memory_limit: int | None = None,
        anomaly: bool = False,
    ) -> None:
        check_options(options)
        limit = checked_limit(memory_limit)
        runtime = Runtime(opened(device, validate, limit), options, limits)
        super().__init__(runtime, Program(runtime, StepBuilder(runtime)), bool(anomaly))
