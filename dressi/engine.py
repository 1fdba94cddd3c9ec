"""The engine: a loss and an optimizer in, optimized data out (paper, A.5: DressiAD).

``exec_step`` is seven phases by name: backward, optimizer, traverse, substages, stages, Vulkan
objects, execution. The first six run when something changed; a steady step is one submit.
"""

from __future__ import annotations

import functools
import itertools
import logging
import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, cast

import numpy as np

from dressi import config
from dressi.ad.autodiff import build_backward
from dressi.ad.graph import Variable, graph_text, leaves, user_line
from dressi.ad.optim import Optimizer
from dressi.ad.simplify import materialize, simplify
from dressi.ad.verify import check_graph, check_indices
from dressi.errors import DeviceError, DressiError, GraphError
from dressi.leafstore import LeafStore
from dressi.packing import Options, Packed, Plan, check_plan, pack, plan_text, shaders_text
from dressi.packing.arrays import from_planes
from dressi.vk import Device, DeviceInfo, Executable, open_device

log = logging.getLogger("dressi")

MAX_EVALUATIONS = 64
"""Compiled evaluations (``recv_img`` of something computed) that an engine keeps; the one that was
used longest ago goes first."""

_dumps = itertools.count()  # over all engines of the process, so that no dump overwrites another

Method = TypeVar("Method", bound=Callable[..., Any])


def _exclusive(method: Method) -> Method:
    """One thread at a time: another one waits for its turn."""

    @functools.wraps(method)
    def locked(self: DressiAD, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            return method(self, *args, **kwargs)

    return cast(Method, locked)


@dataclass
class _Build:
    """A compiled graph: the outputs by their uid in the user's graph, and what runs them."""

    packed: Packed
    executable: Executable
    outputs: dict[int, Variable]
    asked: tuple[Variable, ...]
    """The outputs as the user made them."""
    uniforms_version: int = -1
    flags: tuple[bool, ...] = ()
    leaves: tuple[Variable, ...] = ()


class DressiAD:
    """Differentiates, packs and runs a graph on one device.

    device: index or part of a name (default ``DRESSI_DEVICE``, else the best: GPU before CPU).
    options: switches of the packer. limits: numbers that replace those of the device, e.g.
    ``{"input_attachments": 4}`` to stand in for a weaker one. Raises DeviceError, naming what to
    install, when no device can be had. Use as a context manager or call ``close``.
    """

    def __init__(
        self,
        device: str | int | None = None,
        options: Options | None = None,
        limits: dict[str, int | bool] | None = None,
        validate: bool | None = None,
    ) -> None:
        if options is not None and not isinstance(options, Options):
            raise GraphError(f"options must be dressi.Options, got {type(options).__name__}")
        self._lock = threading.RLock()
        self._device: Device = open_device(device, validate)
        try:
            try:
                self.limits = self._device.limits.restrict(**(limits or {}))
            except TypeError as error:
                raise GraphError(f"limits at {user_line()}: {error}") from None
            self._store = LeafStore(self._device)
            self._store.limits = self.limits
        except BaseException:
            self._device.close()
            raise
        self._options = options or Options()
        self._loss: Variable | None = None
        self._optimizer: Optimizer | None = None
        self._step: _Build | None = None
        self._evaluations: OrderedDict[int, _Build] = OrderedDict()
        self._gradients: dict[Variable, Variable] = {}
        self._loss_version = -1  # store version at the last step; -1: no step yet
        self._closed = False
        self._made_states: list[Variable] = []  # by the optimizer, for the current step
        self.n_rebuilds = 0
        _set_up_log()

    # -- setting up

    @_exclusive
    def set_loss_var(self, loss: Variable) -> None:
        """The Variable to minimize: FLOAT or VECn, any size (1 is seeded at every pixel).
        Raises GraphError for an integer or per-fragment loss."""
        self._alive()
        _need_variable("set_loss_var", loss)
        if loss.vtype.is_int or loss.vtype.is_matrix:
            raise GraphError(
                f"set_loss_var at {user_line()}: the loss must be FLOAT or VECn, got {loss.label()}"
            )
        check_graph([loss])
        self._loss = loss
        self._drop_builds()

    @_exclusive
    def set_optimizer(self, optimizer: Optimizer | None) -> None:
        """``optimizer(xs, gxs) -> updated xs``, a graph builder; None: forward only."""
        self._alive()
        if optimizer is not None and (isinstance(optimizer, type) or not callable(optimizer)):
            raise GraphError(
                f"set_optimizer at {user_line()}: needs an optimizer like Adam(lr=0.01) or a "
                f"function (xs, gxs) -> updated xs, got {optimizer!r}"
            )
        self._optimizer = optimizer
        self._drop_builds()

    @_exclusive
    def send_img(self, var: Variable, array: Any) -> None:
        """Send data to a leaf.

        array: (H, W, C), (layers, H, W, C), a table (N, C), or numbers for 1x1; matrices (n, n) row
        by row. May be called before the first step. Raises GraphError for a wrong shape, NaN,
        infinity, an index outside its table, or an image larger than the device allows.
        """
        self._alive()
        checked = [] if self._loss is None else [self._loss]
        for build in self._evaluations.values():
            checked.extend(build.asked)
        self._store.send(var, array, checked)

    # -- reading back

    @_exclusive
    def recv_img(self, var: Variable) -> np.ndarray:
        """Data of a Variable as float32 or int32: (H, W, C), (layers, H, W, C), (N, C) for tables.

        A leaf: its current data. The loss: its value in the last step, if nothing was sent since.
        Any other Variable (and the loss otherwise) is evaluated now, from the current data of the
        leaves.
        """
        self._alive()
        _need_variable("recv_img", var)
        if var.creator is None:
            return _present(self._store.receive(var), var)
        if (
            var is self._loss
            and self._step is not None
            and self._loss_version == self._store.version
        ):
            return self._read(self._step, var)
        build = self._evaluations.get(var.uid)
        if build is None:
            build = self._build([var], [], "evaluation")
            self._evaluations[var.uid] = build
            if len(self._evaluations) > MAX_EVALUATIONS:
                self._evaluations.popitem(last=False)[1].executable.close()
        self._evaluations.move_to_end(var.uid)
        self._run(build, 1)
        return self._read(build, var)

    @_exclusive
    def recv_grad(self, var: Variable) -> np.ndarray:
        """Gradient of the (summed) loss to a leaf at the current data of all leaves, shaped like
        the leaf. Raises GraphError when no loss is set or the loss does not depend on the leaf."""
        self._alive()
        _need_variable("recv_grad", var)
        loss = self._need_loss()
        if var not in self._gradients:
            grads = build_backward(loss, [var])
            if var not in grads:
                raise GraphError(
                    f"recv_grad at {user_line()}: the loss {loss.label()} does not depend on "
                    f"{var.label()} through differentiable ops"
                )
            self._gradients[var] = materialize(grads[var])
        return self.recv_img(self._gradients[var])

    # -- running

    def exec_step(self) -> None:
        """One iteration: forward, backward, optimizer. Raises GraphError when no loss is set, a
        leaf has no data, or the loss depends on no parameter although an optimizer is set."""
        self.exec_steps(1)

    @_exclusive
    def exec_steps(self, n: int) -> None:
        """n iterations in one submit, with no host work in between (Ctrl-C waits for its end)."""
        self._alive()
        try:
            count = operator.index(n)
        except TypeError:
            count = 0
        if count < 1 or isinstance(n, bool):
            raise GraphError(
                f"exec_steps at {user_line()}: n must be an integer of at least 1, got {n!r}"
            )
        build = self._current_step()
        self._run(build, count)
        self._loss_version = self._store.version

    def _current_step(self) -> _Build:
        """Phases 1 to 6, when something changed since the last step."""
        if self._step is not None:
            if self._step.flags == tuple(v.requires_grad for v in self._step.leaves):
                return self._step
            self._drop_builds()
        loss = self._need_loss()
        # 1) backward
        gradients = build_backward(loss) if self._optimizer is not None else {}
        # 2) optimizer
        updates = self._call_optimizer(loss, gradients)
        # 3) traverse: state that the graph keeps from step to step joins
        updates = _with_states([loss], updates)
        # 4) substages, 5) stages, 6) Vulkan objects
        self._step = self._build([loss], updates, "step")
        self._step.leaves = tuple(leaves([loss]))
        self._step.flags = tuple(v.requires_grad for v in self._step.leaves)
        return self._step

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
        made = self._optimizer(xs, [gradients[x] for x in xs])
        new = list(made) if isinstance(made, Iterable) else []
        if len(new) != len(xs) or not all(isinstance(v, Variable) for v in new):
            raise GraphError(
                f"the optimizer returned {len(new)} Variables for {len(xs)} parameters: {made!r}"
            )
        pairs = list(zip(xs, new, strict=True))
        # Moments and counters that this call made: freed with the step, or they would pile up.
        self._made_states = [v for v, _ in _with_states([], pairs) if v.uid > newest]
        return pairs

    def _build(
        self, outputs: Sequence[Variable], updates: Sequence[tuple[Variable, Variable]], name: str
    ) -> _Build:
        """Phases 4 to 6 for any graph: simplify, pack, check, compile."""
        check_graph(outputs)
        check_indices(outputs, self._store.index_feeds(outputs))
        wanted = [*outputs, *(new for _, new in updates)]
        lowered = [_own_image(v) for v in simplify(wanted)]
        n = len(outputs)
        pairs = [(leaf, new) for (leaf, _), new in zip(updates, lowered[n:], strict=True)]
        packed = pack(lowered[:n], pairs, self.limits, self._options, name, self._store.resident)
        check_plan(packed.plan, self.limits)
        self._dump(name, wanted, packed.plan)
        self._store.ensure(packed)
        executable = self._device.compile(packed.plan)
        self.n_rebuilds += 1
        plan = packed.plan
        counts = (plan.n_functions, plan.n_substages, len(plan.stages))
        log.info("built %s: %d functions, %d substages, %d stages", plan.name, *counts)
        level = config.debug_level()
        for at, text in ((2, plan_text(plan)), (3, graph_text(wanted)), (4, shaders_text(plan))):
            if level >= at:
                log.debug("%s", text)
        return _Build(
            packed,
            executable,
            {o.uid: v for o, v in zip(outputs, lowered, strict=False)},
            tuple(outputs),
        )

    def _run(self, build: _Build, n: int) -> None:
        """Phase 7: execution."""
        if build.packed.uniforms and build.uniforms_version != self._store.version:
            build.executable.write_uniforms(self._store.uniform_words(build.packed))
            build.uniforms_version = self._store.version
        build.executable.run(n)

    def _read(self, build: _Build, var: Variable) -> np.ndarray:
        made = build.outputs[var.uid]
        planes = [build.executable.download(i) for i in build.packed.images[made.uid]]
        return _present(from_planes(planes, made, self.limits), var)

    # -- looking inside

    @property
    def device_info(self) -> DeviceInfo:
        """Name, driver and type of the device."""
        return self._device.info

    @property
    @_exclusive
    def plan(self) -> Plan:
        """The Plan of a step (built now if need be). ``print(plan_text(ad.plan))`` shows it."""
        self._alive()
        return self._current_step().packed.plan

    def graph_text(self) -> str:
        """The user's graph as text."""
        return graph_text([self._need_loss()])

    def glsl_text(self) -> str:
        """All generated shaders of a step."""
        return shaders_text(self.plan)

    @_exclusive
    def stage_times_ms(self, n: int = 5) -> list[tuple[str, float]]:
        """Median time of each stage in ms over n runs *of a step* (parameters move), by
        timestamps."""
        self._alive()
        build = self._current_step()
        timed = self._device.compile(build.packed.plan, timestamps=True)
        try:
            if build.packed.uniforms:
                timed.write_uniforms(self._store.uniform_words(build.packed))
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

    @_exclusive
    def build_times(self) -> dict[str, float]:
        """Seconds that the last build of a step spent in its parts on the Vulkan side."""
        self._alive()
        return dict(self._current_step().executable.build_times)

    # -- life

    @_exclusive
    def close(self) -> None:
        """Free everything on the device. May be called twice."""
        if not self._closed:
            self._closed = True
            self._device.close()

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
        if self._closed:
            raise DeviceError("this DressiAD is closed")

    def _need_loss(self) -> Variable:
        if self._loss is None:
            raise GraphError(f"at {user_line()}: no loss is set\n  hint: call set_loss_var first")
        return self._loss

    def _drop_builds(self) -> None:
        for build in [self._step, *self._evaluations.values()]:
            if build is not None:
                build.executable.close()
        for leaf in self._made_states:
            self._store.drop(leaf)
        self._made_states = []
        self._step = None
        self._evaluations.clear()
        self._gradients.clear()
        self._loss_version = -1

    def _dump(self, name: str, outputs: Sequence[Variable], plan: Plan) -> None:
        folder: Path | None = config.dump_dir()
        if folder is None:
            return
        stem = folder / f"{next(_dumps):03d}_{name}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stem.with_suffix(".graph.txt").write_text(graph_text(outputs) + "\n")
            stem.with_suffix(".plan.txt").write_text(plan_text(plan) + "\n")
            stem.with_suffix(".glsl").write_text(shaders_text(plan))
        except OSError as error:
            raise DressiError(f"DRESSI_DUMP={folder}: cannot write: {error}") from None


def _need_variable(what: str, value: object) -> None:
    if not isinstance(value, Variable):
        raise GraphError(f"{what} at {user_line()}: needs a Variable, got {type(value).__name__}")


def _set_up_log() -> None:
    """DRESSI_DEBUG: 1 a line a build, 2 plans, 3 graphs, 4 shaders, on standard error."""
    if config.debug_level() > 0 and not log.handlers:
        log.addHandler(logging.StreamHandler())
        log.setLevel(logging.DEBUG)


def _own_image(v: Variable) -> Variable:
    """v, or a copy of it where v itself has no image that can be read back (leaves, constants,
    buffers)."""
    f = v.creator
    if f is None or f.op.kind == "free" or f.op.scatter is not None:
        return materialize(v)
    return v


def _with_states(
    outputs: Sequence[Variable], updates: Sequence[tuple[Variable, Variable]]
) -> list[tuple[Variable, Variable]]:
    """Updates, and those of every state leaf that they or the outputs read."""
    pairs = list(updates)
    known = {leaf.uid for leaf, _ in pairs}
    frontier = [*outputs, *(new for _, new in pairs)]
    while frontier:
        found = [v for v in leaves(frontier) if v.update is not None and v.uid not in known]
        frontier = []
        for v in found:
            known.add(v.uid)
            assert v.update is not None
            pairs.append((v, v.update))
            frontier.append(v.update)
    return pairs


def _present(a: np.ndarray, v: Variable) -> np.ndarray:
    """(layers, H, W, *tail) -> the shape that users see."""
    out = np.array(a, np.int32 if v.vtype.is_int else np.float32)  # a copy that users may write to
    if v.is_table:
        out = out[:, 0]
    return out if v.layers > 1 else out[0]
