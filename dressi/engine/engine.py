"""The engine: a loss and an optimizer in, optimized data out (paper, A.5: DressiAD).

``exec_step`` is seven phases by name: backward, optimizer, traverse, substages, stages, Vulkan
objects, execution. The first six run when something changed; a steady step is one submit.
"""

from __future__ import annotations

import functools
import gc
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, cast

import numpy as np

from dressi import config
from dressi.ad.autodiff import build_backward
from dressi.ad.graph import Variable, graph_text, leaves
from dressi.ad.optim import GradientOnly, Optimizer, with_states
from dressi.ad.simplify import materialize
from dressi.ad.verify import check_graph, check_indices
from dressi.engine.checks import check_options, checked_limit, need_variable, positive_int, updated
from dressi.engine.evaluations import Evaluations
from dressi.engine.leafstore import LeafStore, present
from dressi.engine.stepper import Part, Step
from dressi.errors import DeviceError, GraphError, OutOfMemoryError
from dressi.inspect.draw import GraphView, graph_view
from dressi.inspect.dumps import dump, set_up_log
from dressi.inspect.report import (
    MemoryUse,
    Rebuild,
    Report,
    build_report,
    chrome_trace,
    median_ms,
    write_trace,
)
from dressi.packing import Options, Packed, Plan, check_plan, pack, plan_text, shaders_text
from dressi.packing.lower import lower
from dressi.vk import Device, DeviceInfo, open_device

log = logging.getLogger("dressi")

COLLECT_BYTES = 16 << 20
"""Growth of what leaves and evaluations hold after which the garbage collector runs before the next
build: graphs are reference cycles, and Python does not see what they hold on the device."""
LOGGED_REBUILDS = 256
"""Lines of the log that are kept."""


Method = TypeVar("Method", bound=Callable[..., Any])
Result = TypeVar("Result")


def _exclusive(method: Method) -> Method:
    """One thread at a time: another one waits for its turn."""

    @functools.wraps(method)
    def locked(self: DressiAD, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            return method(self, *args, **kwargs)

    return cast(Method, locked)


def weakly(method: Method) -> Method:
    """A bound method that does not keep its object: what an engine gives to its parts, so that one
    that is dropped frees its device at once, not when the garbage collector finds the cycle."""
    reference = weakref.WeakMethod(method)

    def call(*args: Any) -> Any:
        found = reference()
        assert found is not None
        return found(*args)

    return cast(Method, call)


class DressiAD:
    """Differentiates, packs and runs a graph on one device.

    device: index, part of a name, name#k or UUID (default ``DRESSI_DEVICE``, else the best).
    options: switches of packing and execution. limits: numbers that replace those of the device,
    e.g. ``{"input_attachments": 4}`` to stand in for a weaker one. memory_limit: bytes of device
    memory that may be taken; what does not fit raises OutOfMemoryError before it is made. Raises
    DeviceError, naming what to install, when no device can be had. Use as a context manager or call
    ``close``.

    Parts of a step whose inputs did not change since the last one are not run again: after a few
    steps with the same leaves sent in each, the step is packed again without them (``rebuilds``).
    """

    def __init__(
        self,
        device: str | int | None = None,
        options: Options | None = None,
        limits: dict[str, int | bool] | None = None,
        validate: bool | None = None,
        memory_limit: int | None = None,
    ) -> None:
        check_options(options)
        self._lock = threading.RLock()
        self._device: Device = open_device(device, validate, checked_limit(memory_limit))
        try:
            try:
                self.limits = self._device.limits.restrict(**(limits or {}))
            except TypeError as error:
                raise GraphError(f"limits: {error}") from None
            self._store = LeafStore(self._device)
            self._store.limits = self.limits
        except BaseException:
            self._device.close()
            raise
        self._options = options or Options()
        self._loss: Variable | None = None
        self._optimizer: Optimizer | None = None
        self._step: Step | None = None
        self._outputs: dict[int, Variable] = {}  # of the step, by uid of the user's
        self._flags: tuple[tuple[Variable, bool], ...] = ()
        self._flag_changes = -1
        self._evaluations = Evaluations()
        self._collect_at = COLLECT_BYTES
        self._gradients: dict[Variable, Variable] = {}
        self._kept: dict[Variable, Variable] = {}  # of GradientOnly
        self._loss_version = -1  # store version at the last step
        self._closed = False
        self._updates: list[tuple[Variable, Variable]] | None = None  # of the step's graph
        self._made_states: list[Variable] = []  # by the optimizer, for these updates
        self._rebuilds: deque[Rebuild] = deque(maxlen=LOGGED_REBUILDS)
        self._epoch = 0  # calls of exec_steps
        self._why = "nothing was there"
        self._phases: list[tuple[str, float, float]] = []
        self._wall_s: deque[float] = deque(maxlen=64)  # per step, of the last calls
        self._host_s: deque[float] = deque(maxlen=64)
        self.n_rebuilds = 0
        """Plans compiled so far, evaluations and cached halves included."""
        set_up_log()

    # -- setting up

    @_exclusive
    def set_loss_var(self, loss: Variable) -> None:
        """The Variable to minimize: FLOAT or VECn, any size (1 is seeded at every pixel).
        Raises GraphError for an integer or per-fragment loss."""
        self._alive()
        need_variable("set_loss_var", loss)
        if loss.vtype.is_int or loss.vtype.is_matrix:
            raise GraphError(f"set_loss_var: the loss must be FLOAT or VECn, got {loss.label()}")
        check_graph([loss])
        self._loss = loss
        self._drop_builds("a loss was set")

    @_exclusive
    def set_optimizer(self, optimizer: Optimizer | None) -> None:
        """``optimizer(xs, gxs) -> updated xs``, a graph builder; None: forward only."""
        self._alive()
        if optimizer is not None and (isinstance(optimizer, type) or not callable(optimizer)):
            raise GraphError(
                "set_optimizer: needs an optimizer like Adam(lr=0.01) or a "
                f"function (xs, gxs) -> updated xs, got {optimizer!r}"
            )
        self._optimizer = optimizer
        self._drop_builds("an optimizer was set")

    @property
    def options(self) -> Options:
        """The switches. Setting them builds the step anew; all data stays, the optimizer's too."""
        return self._options

    @options.setter
    def options(self, options: Options) -> None:
        with self._lock:
            self._alive()
            check_options(options)
            if options != self._options:
                self._options = options
                self._drop_builds("the options changed", keep_graph=True)

    @_exclusive
    def send_img(self, var: Variable, array: Any) -> None:
        """Send data to a leaf.

        array: (H, W, C), (layers, H, W, C), a table (N, C), or numbers for 1x1; matrices (n, n) row
        by row. May be called before the first step. Raises GraphError for a wrong shape, NaN,
        infinity, an index outside its table, or an image larger than the device allows.
        """
        self._alive()
        checked = [] if self._loss is None else [self._loss]
        checked.extend(self._evaluations.asked())
        self._with_room(lambda: self._store.send(var, array, checked))

    # -- reading back

    @_exclusive
    def recv_img(self, var: Variable) -> np.ndarray:
        """Data of a Variable as float32 or int32: (H, W, C), (layers, H, W, C), (N, C) for tables.

        A leaf: its current data. The loss: its value in the last step, if nothing was sent since.
        Any other Variable (and the loss otherwise) is evaluated now, from the current data of the
        leaves.
        """
        self._alive()
        need_variable("recv_img", var)
        if var.creator is None:
            return present(self._store.receive(var), var)
        step = self._step
        made = self._outputs.get(var.uid)
        if made is not None and step is not None and self._loss_version == self._store.version:
            return self._read(next(p for p in step.parts().values() if p.holds(made)), made, var)
        return self._evaluate((var,))[0]

    @_exclusive
    def recv_imgs(self, variables: Sequence[Variable]) -> list[np.ndarray]:
        """Data of several Variables as ``recv_img`` gives it; what is computed, in one go."""
        self._alive()
        for var in variables:
            need_variable("recv_imgs", var)
        computed = tuple(v for v in variables if v.creator is not None)
        found = iter(self._evaluate(computed) if computed else ())
        return [self.recv_img(v) if v.creator is None else next(found) for v in variables]

    def _evaluate(self, asked: tuple[Variable, ...]) -> list[np.ndarray]:
        known = self._evaluations.get(asked)
        if known is not None and self._store.on_device(known.part.packed.uniforms):
            # A step writes a leaf that was a number of the uniform block when this was compiled.
            self._evaluations.drop(asked)
            known = None
        if known is None:
            self._phases.clear()
            packed, made = self._pack(asked, [], "evaluation")
            known = self._evaluations.add(asked, self._compile(packed), made)
        now = (self._store.version, self._epoch)
        if known.part.ran_at != now:
            known.part.run(1, self._store)
            known.part.ran_at = now
        return [self._read(known.part, m, v) for m, v in zip(known.outputs, asked, strict=True)]

    @_exclusive
    def recv_grad(self, var: Variable) -> np.ndarray:
        """Gradient of the (summed) loss to a leaf at the current data of all leaves, shaped like
        the leaf. Raises GraphError when no loss is set or the loss does not depend on the leaf."""
        self._alive()
        need_variable("recv_grad", var)
        loss = self._need_loss()
        if var not in self._gradients:
            grads = build_backward(loss, [var])
            if var not in grads:
                raise GraphError(
                    f"recv_grad: the loss {loss.label()} does not depend on "
                    f"{var.label()} through differentiable ops"
                )
            self._gradients[var] = materialize(grads[var])
        return self.recv_img(self._gradients[var])

    # -- running

    def exec_step(self) -> None:
        """One iteration: forward, backward, optimizer. Raises GraphError when no loss is set, a
        leaf has no data, or the loss depends on no parameter although an optimizer is set."""
        with self._lock:
            self._advance(1)

    def exec_steps(self, n: int) -> None:
        """n iterations with no host work in between. Ctrl-C stops between some of them."""
        count = positive_int(n)
        if count is None:
            raise GraphError(f"exec_steps: n must be an integer of at least 1, got {n!r}")
        with self._lock:
            self._advance(count)

    def _advance(self, n: int) -> None:
        context = self._device.context
        begin, waited = time.perf_counter(), context.waited_s
        self._alive()
        step = self._step
        if step is None or self._flag_changes != Variable.flag_changes:
            step = self._current_step()
        self._epoch += 1  # also if Ctrl-C comes in between: what was evaluated is old then
        self._loss_version = -1
        step.run(n)
        self._loss_version = self._store.version
        wall = time.perf_counter() - begin
        self._wall_s.append(wall / n)
        self._host_s.append((wall - (context.waited_s - waited)) / n)

    def _is_built(self) -> bool:
        """Whether a step is there and nothing changed since; drops one whose requires_grad did."""
        if self._step is not None and self._flag_changes == Variable.flag_changes:
            return True
        if any(v.requires_grad != flag for v, flag in self._flags):
            self._drop_builds("a requires_grad changed")
        self._flag_changes = Variable.flag_changes
        return self._step is not None

    def _current_step(self) -> Step:
        """Phases 1 to 6, when something changed since the last step."""
        if self._is_built():
            assert self._step is not None
            return self._step
        loss = self._need_loss()
        begin = time.perf_counter()
        self._phases.clear()
        if self._updates is None:
            with self._phase("backward"):
                gradients = build_backward(loss) if self._optimizer is not None else {}
            with self._phase("optimizer"):
                updates = self._call_optimizer(loss, gradients)
            with self._phase("traverse"):  # state that the graph keeps from step to step joins
                self._updates = with_states([loss], updates)
            self._flags = tuple((v, v.requires_grad) for v in leaves([loss]))
        kept = [loss, *self._kept.values()]
        packed, made = self._pack(kept, self._updates, "step", self._kept)  # substages, stages
        cache = self._options.cache
        compile = weakly(self._compile)
        step = Step(packed, compile, self._store, self._rebuilds, cache)  # Vulkan objects
        self._step, self._outputs = step, {v.uid: m for v, m in zip(kept, made, strict=True)}
        self._rebuilds.append(step.rebuild("first", self._why, time.perf_counter() - begin))
        return step

    def _call_optimizer(
        self, loss: Variable, gradients: dict[Variable, Variable]
    ) -> list[tuple[Variable, Variable]]:
        if self._optimizer is None:
            return []
        if not gradients:
            raise GraphError(
                f"the loss {loss.label()} made at {loss.line} does not depend on any parameter\n"
                "  hint: set requires_grad on a leaf that the loss reaches through "
                "differentiable ops"
            )
        xs = list(gradients)
        newest = Variable(loss.vtype).uid
        new = updated(self._optimizer(xs, [gradients[x] for x in xs]), xs)
        pairs = [(x, v) for x, v in zip(xs, new, strict=True) if v is not x]
        if isinstance(self._optimizer, GradientOnly):
            self._kept = gradients
            self._gradients.update(gradients)
        # Moments and counters that this call made: freed with the step, or they would pile up.
        self._made_states = [v for v, _ in with_states([], pairs) if v.uid > newest]
        return pairs

    def _pack(
        self,
        outputs: Sequence[Variable],
        updates: Sequence[tuple[Variable, Variable]],
        name: str,
        changing: Iterable[Variable] = (),
    ) -> tuple[Packed, list[Variable]]:
        """Simplify and pack any graph; the packed form and the lowered outputs. changing: as for
        ``pack``; then outputs may stay in buffers."""
        options, wanted = self._options, [*outputs, *(new for _, new in updates)]
        with self._phase("simplify"):
            check_graph(outputs)
            check_indices(outputs, self._store.index_feeds(outputs))
            profile = self._device.profile() if options.lowering == "auto" else None
            raw = len(outputs) if changing else 0
            lowered = lower(wanted, options, profile, self.limits, raw)
        n = len(outputs)
        pairs = [(leaf, new) for (leaf, _), new in zip(updates, lowered[n:], strict=True)]
        with self._phase("pack"):
            resident = self._store.resident
            uids = {v.uid for v in changing}
            packed = pack(lowered[:n], pairs, self.limits, options, name, resident, profile, uids)
        dump(name, graph_text(wanted), ".graph.txt")
        if config.debug_level() >= 3:
            log.debug("%s", graph_text(wanted))
        return packed, lowered[:n]

    def _compile(self, packed: Packed) -> Part:
        """Check a packed plan, upload its leaves, make its Vulkan objects."""
        plan = packed.plan
        with self._phase(f"check {plan.name}"):
            check_plan(plan, self.limits)
            dump(plan.name, plan_text(plan), ".plan.txt")
            dump(plan.name, shaders_text(plan), ".glsl")
        with self._phase(f"compile {plan.name}"):
            self._collect()
            self._with_room(lambda: self._store.ensure(packed))
            executable = self._with_room(lambda: self._device.compile(plan))
        self.n_rebuilds += 1
        counts = (plan.n_functions, plan.n_substages, len(plan.stages))
        log.info("built %s: %d functions, %d substages, %d stages", plan.name, *counts)
        if config.debug_level() >= 2:
            log.debug("%s", plan_text(plan))
        if config.debug_level() >= 4:
            log.debug("%s", shaders_text(plan))
        return Part(packed, executable)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self._phases.append((name, begin, time.perf_counter() - begin))

    def _read(self, part: Part, made: Variable, var: Variable) -> np.ndarray:
        return present(part.read(made, self.limits), var)

    # -- looking inside

    @property
    def device_info(self) -> DeviceInfo:
        """Name, driver and type of the device."""
        return self._device.info

    @property
    @_exclusive
    def plan(self) -> Plan:
        """The Plan of what a step runs (built now if need be). ``print(plan_text(ad.plan))`` shows
        it."""
        self._alive()
        return self._current_step().main.packed.plan

    @property
    @_exclusive
    def plans(self) -> dict[str, Plan]:
        """``step``, and, once the cache acts, ``static``: the clean part, run after changes."""
        self._alive()
        return {k: p.packed.plan for k, p in self._current_step().parts().items()}

    @property
    @_exclusive
    def ran(self) -> tuple[str, ...]:
        """Names of the stages that the last ``exec_steps`` ran, in order: plan and stage."""
        return () if self._step is None else tuple(self._step.last.stages())

    @property
    def rebuilds(self) -> tuple[Rebuild, ...]:
        """Builds of a step, the latest 256: the first ones and those of the cache."""
        return tuple(self._rebuilds)

    def graph_text(self) -> str:
        """The user's graph as text."""
        return graph_text([self._need_loss()])

    def glsl_text(self) -> str:
        """All generated shaders of a step."""
        return "\n".join(shaders_text(plan) for plan in self.plans.values())

    def show_graph(self) -> GraphView:
        """Functions in substages in stages, clean ones pale (paper, figure on stage packing).
        Shows itself in a notebook; ``save("graph.svg")`` or ``save("graph.dot")``."""
        return graph_view(self.plans)

    @_exclusive
    def memory(self) -> MemoryUse:
        """Bytes of live images, buffers and depth attachments, and what is held and allowed, the
        host buffers through which data moves left out."""
        self._alive()
        images, buffers, depth = self._device.stored_bytes()
        parts = [e.part for e in self._evaluations.values()]
        if self._step is not None:
            parts += self._step.parts().values()
        for part in parts:
            mine = part.executable.own_bytes()
            images, buffers = images + mine[0], buffers + mine[1]
        memory = self._device.memory
        return MemoryUse(images, buffers, depth, memory.taken(), memory.budget)

    @_exclusive
    def stage_times_ms(self, n: int = 5) -> list[tuple[str, float]]:
        """Median time of each stage of a step in ms over n runs, by timestamps, copies last. The
        data of leaves is what it was before."""
        self._alive()
        return self._stage_times(self._current_step().main, n)

    def _stage_times(self, part: Part, n: int) -> list[tuple[str, float]]:
        timed = self._device.compile(part.packed.plan, timestamps=True)
        kept = self._store.save(part.packed)
        try:
            if part.packed.uniforms:
                timed.write_uniforms(self._store.uniform_words(part.packed))
            rows = []
            for _ in range(n):
                timed.run(1)
                rows.append(timed.stage_times_ms())
            return [
                (rows[0][k][0], float(np.median([r[k][1] for r in rows])))
                for k in range(len(rows[0]))
            ]
        finally:
            timed.close()
            self._store.restore(kept)

    @_exclusive
    def report(self, times: bool = True, n: int = 5) -> Report:
        """Stages, substages, traffic, times, memory, cache and rebuilds of a step, as text or in a
        notebook. times: measure each stage over n runs (data stays as it is)."""
        self._alive()
        step = self._current_step()
        measured = {k: self._stage_times(p, n) for k, p in step.parts().items()} if times else {}
        return build_report(
            self.plans,
            measured,
            self.memory(),
            self._rebuilds,
            device=self._device.info.name,
            driver=self._device.info.driver,
            steps=step.steps,
            static_runs=step.static_runs,
            step_ms=median_ms(self._wall_s) if self._wall_s else None,
            build_times={name: seconds for name, _, seconds in self._phases},
        )

    @_exclusive
    def trace(self, path: str | Path, n: int = 5) -> None:
        """Write the last build and one step as a Chrome trace, for Perfetto."""
        report = self.report(n=n)
        host = self.host_ms() * 1e-3
        trace = chrome_trace(
            self._phases,
            report.stage_times(),
            host=[("submit", 0.0, host), ("wait", host, (report.gpu_ms or 0.0) * 1e-3)],
            static_stages=report.stage_times(clean=True),
            traffic=report.traffic_by_name(),
            gpu_delay_s=host,
            device=self._device.info.name,
        )
        write_trace(path, trace)

    def host_ms(self) -> float:
        """Median ms of a step, over the last calls of ``exec_step`` and ``exec_steps``, outside the
        wait for the device; 0 before the first."""
        return median_ms(self._host_s)

    @_exclusive
    def build_times(self) -> dict[str, float]:
        """Seconds that the last build of a step spent in its parts on the Vulkan side."""
        self._alive()
        return dict(self._current_step().main.executable.build_times)

    # -- life

    @_exclusive
    def close(self) -> None:
        """Free everything on the device. May be called twice."""
        if not self._closed:
            self._closed = True
            self._device.close()

    def __reduce__(self) -> str:
        raise DeviceError(
            "a DressiAD cannot be copied or pickled: it holds what lies on a device\n"
            "  hint: make a new one, and send it what recv_img gives here"
        )

    def __enter__(self) -> DressiAD:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _alive(self) -> None:
        """Raise DeviceError where the engine is closed; free what the user dropped since the last
        call."""
        if self._closed:
            raise DeviceError("this DressiAD is closed")
        self._evaluations.release()
        self._store.release()

    def _collect(self, needed: bool = False) -> None:
        """Free what the user dropped and only the garbage collector finds. needed: also where there
        is little of it."""
        held = self._store.n_bytes + self._evaluations.n_bytes()
        if not needed and held <= self._collect_at:
            return
        gc.collect()
        self._evaluations.release()
        self._store.release()
        held = self._store.n_bytes + self._evaluations.n_bytes()
        self._collect_at = max(held + COLLECT_BYTES, held + held // 2)

    def _with_room(self, make: Callable[[], Result]) -> Result:
        """What ``make`` returns; where memory runs out, once more without what can go: graphs that
        the user dropped, and evaluations, which are compiled again when they are asked for."""
        try:
            return make()
        except OutOfMemoryError:
            before = self._device.held_bytes() - self._device.memory.unused()
            self._evaluations.close()
            self._collect(needed=True)
            if self._device.held_bytes() - self._device.memory.unused() >= before:
                raise
        return make()

    def _need_loss(self) -> Variable:
        if self._loss is None:
            raise GraphError("no loss is set\n  hint: call set_loss_var first")
        return self._loss

    def _drop_builds(self, reason: str, keep_graph: bool = False) -> None:
        """Forget what was built. keep_graph: not what the optimizer made, nor its state."""
        self._why = reason
        if self._step is not None:
            self._step.close()
        self._evaluations.close()
        self._step = None
        self._outputs = {}
        self._loss_version = -1
        if keep_graph:
            return
        for leaf in self._made_states:
            self._store.drop(leaf)
        self._made_states = []
        self._updates, self._flags = None, ()
        self._gradients.clear()
        self._kept = {}
