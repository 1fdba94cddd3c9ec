"""What runs on one device: data of leaves, compiled plans, evaluations, and the memory they share.

In: graphs and data. Out: ``Part`` (a plan on the device), values of Variables. Knows no loss and no
optimizer: see ``program``.
"""

from __future__ import annotations

import gc
import logging
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from dressi import config
from dressi.ad.doubts import say_doubts
from dressi.ad.graph import Variable
from dressi.ad.show import graph_text
from dressi.ad.verify import check_graph, check_indices
from dressi.engine.device import Device
from dressi.engine.evaluations import Evaluations
from dressi.engine.leafstore import LeafStore, present
from dressi.engine.moves import outputs_kept
from dressi.engine.share import Share
from dressi.engine.stepper import Part
from dressi.errors import DeviceError, GraphError, OutOfMemoryError
from dressi.inspect.dumps import dump
from dressi.inspect.report import MemoryUse
from dressi.packing import DeviceLimits, Options, Packed, check_plan, pack, plan_text, shaders_text
from dressi.packing.lower import lower

log = logging.getLogger("dressi")

COLLECT_BYTES = 16 << 20
"""Growth of what leaves and evaluations hold after which the garbage collector runs before the next
build: graphs are reference cycles, and Python does not see what they hold on the device."""

Result = TypeVar("Result")


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pause the garbage collector in the body, which makes many objects and drops few: looking
    through all of them again and again took a quarter of the time of packing."""
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


class Runtime:
    """Leaves, plans and evaluations of one engine on one device, which it closes.

    limits: numbers that replace those of the device. Raises GraphError for unknown ones, after
    closing the device.
    """

    def __init__(
        self,
        device: Device,
        options: Options | None = None,
        limits: Mapping[str, int | bool] | None = None,
    ) -> None:
        self.device = device
        try:
            restricted = device.limits.restrict(**(limits or {}))
        except BaseException as error:
            device.close()
            if isinstance(error, TypeError):
                raise GraphError(f"limits: {error}") from None
            raise
        self.store = LeafStore(device, restricted)
        self.options = options or Options()
        self.evaluations = Evaluations()
        self.closed = False
        self.n_rebuilds = 0
        """Plans compiled so far."""
        self.epoch = 0
        """Times that steps were run: what was evaluated before is old."""
        self.phases: list[tuple[str, float, float]] = []
        """(name, start, seconds) of each phase of the last build."""
        self.on_phase: Callable[[str], object] | None = None
        """Called with the name of each phase as it begins: for a line that shows progress."""
        self.users: weakref.WeakSet[Any] = weakref.WeakSet()
        """Objects with plans of their own: ``outputs``, their graph, ``parts()``, and ``close()``,
        which frees the plans until they are needed."""
        self.orphans: deque[Any] = deque()
        """What dropped objects held on the device, to be closed; filled by the garbage collector,
        in any thread."""
        self.on_full: list[Callable[[], None]] = []
        """Called where memory runs out: they drop what can be made again."""
        self._collect_at = COLLECT_BYTES

    @property
    def limits(self) -> DeviceLimits:
        """What packing must keep to."""
        return self.store.limits

    # -- graphs to plans on the device

    def pack(
        self,
        outputs: Sequence[Variable],
        updates: Sequence[tuple[Variable, Variable]],
        name: str,
        changing: Iterable[Variable] = (),
    ) -> tuple[Packed, list[Variable]]:
        """Simplify and pack any graph; return the packed form and the lowered outputs. changing: as
        for ``packing.pack``; then outputs may stay in buffers."""
        options, wanted = self.options, [*outputs, *(new for _, new in updates)]
        with self.phase("simplify"):
            check_graph(outputs)
            check_indices(outputs, self.store.index_feeds(outputs))
            say_doubts(outputs, self.store.at_hand)
            profile = self.device.profile() if options.lowering == "auto" else None
            raw = len(outputs) if changing else 0
            with _uncollected():
                lowered = lower(wanted, options, profile, self.limits, raw)
        n = len(outputs)
        pairs = [(leaf, new) for (leaf, _), new in zip(updates, lowered[n:], strict=True)]
        with self.phase("pack"):
            resident = self.store.resident
            uids = {v.uid for v in changing}
            with _uncollected():
                packed = pack(
                    lowered[:n], pairs, self.limits, options, name, resident, profile, uids
                )
        dump(name, lambda: graph_text(wanted), ".graph.txt")
        if config.debug_level() >= 3:
            log.debug("%s", graph_text(wanted))
        return packed, lowered[:n]

    def compile(self, packed: Packed) -> Part:
        """Check a packed plan, upload its leaves, make its objects on the device."""
        plan = packed.plan
        with self.phase(f"check {plan.name}"):
            check_plan(plan, self.limits)
            dump(plan.name, lambda: plan_text(plan), ".plan.txt")
            dump(plan.name, lambda: shaders_text(plan), ".glsl")
        with self.phase(f"compile {plan.name}"):
            self._collect()
            self.with_room(lambda: self.store.ensure(packed))
            executable = self.with_room(lambda: self.device.compile(plan, source=packed))
        self.n_rebuilds += 1
        counts = (plan.n_functions, plan.n_substages, len(plan.stages))
        log.info("built %s: %d functions, %d substages, %d stages", plan.name, *counts)
        if config.debug_level() >= 2:
            log.debug("%s", plan_text(plan))
        if config.debug_level() >= 4:
            log.debug("%s", shaders_text(plan))
        return Part(packed, executable)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time that the body takes to ``phases``."""
        if self.on_phase is not None:
            self.on_phase(name)
        begin = time.perf_counter()
        yield
        self.phases.append((name, begin, time.perf_counter() - begin))

    # -- values

    def send(
        self, v: Variable, value: Any, checked: Iterable[Variable], wait: bool = False
    ) -> None:
        """Send data to a leaf. checked: graphs whose static indices are checked against it, beside
        those that were evaluated or belong to ``users``. wait: as ``LeafStore.send``."""
        graphs: list[Variable] = []
        if isinstance(v, Variable) and v.vtype.is_int:
            used = [out for user in self.users for out in user.outputs]
            graphs = [*checked, *self.evaluations.asked(), *used]
        self.with_room(lambda: self.store.send(v, value, graphs, wait))

    def share(self, v: Variable, share: Share, value: Any, noted: bool = True) -> None:
        """Send an array of another library on the same card to a leaf, as ``LeafStore.share``."""
        try:
            self.store.share(v, share, value, noted)
        except OutOfMemoryError:
            self.with_room(lambda: self.store.share(v, share, value, noted))

    def evaluate(self, asked: tuple[Variable, ...]) -> list[np.ndarray]:
        """Values of computed Variables at the current data of the leaves, by one plan, which is
        kept for the next time."""
        known = self.evaluations.get(asked)
        if known is not None and self.store.on_device(known.part.packed.uniforms):
            # A step writes a leaf that was a number of the uniform block when this was compiled.
            self.evaluations.drop(asked)
            known = None
        if known is None:
            self.phases.clear()
            packed, lowered = self.pack(asked, [], "evaluation")
            known = self.evaluations.add(asked, self.compile(packed), lowered)
        now = (self.store.version, self.epoch)
        if known.part.ran_at != now:
            known.part.run(self.store, 1)
            known.part.ran_at = now
        return [self.read(known.part, m, v) for m, v in zip(known.outputs, asked, strict=True)]

    def read(self, part: Part, lowered: Variable, v: Variable) -> np.ndarray:
        """What a part left of v, shaped as users see it."""
        return present(part.read(lowered, self.limits), v)

    def stage_times_ms(self, part: Part, n: int) -> list[tuple[str, float]]:
        """Median time of each stage in ms over n runs, copies last. Data of leaves is put back, and
        so is what can be read."""
        part.refresh(self.store)
        kept = self.store.save(part.packed)
        with outputs_kept(self.device, part):
            try:
                rows = [part.executable.run_timed() for _ in range(n)]
            finally:
                self.store.restore(kept)
        names = [name for name, _ in rows[0]]
        return [(name, float(np.median([r[k][1] for r in rows]))) for k, name in enumerate(names)]

    # -- memory

    def memory(self, parts: Iterable[Part]) -> MemoryUse:
        """Bytes that leaves, evaluations and these parts of steps take."""
        images, buffers, depth = self.device.stored_bytes()
        of_users = [p for user in self.users for p in user.parts()]
        for part in (*(e.part for e in self.evaluations.values()), *of_users, *parts):
            own = part.packed.plan.own_bytes
            images, buffers = images + own[0], buffers + own[1]
        taken, limit = self.device.taken_bytes(), self.device.memory_limit
        return MemoryUse(images, buffers, depth, taken, limit)

    def enter(self, wait: bool = True) -> None:
        """Raise DeviceError where the engine is closed; free what was dropped since the last
        call. wait: for what was left running on the device, too."""
        if self.closed:
            raise DeviceError(
                "this DressiAD is closed\n  hint: read it within its with block, or before close()"
            )
        (self.device.enter if wait else self.device.look)()
        if self.orphans or self.evaluations.dead or self.store.dead:
            self.release()

    def release(self) -> None:
        """Free what belonged to Variables that are gone."""
        while self.orphans:
            self.orphans.popleft().close()
        self.evaluations.release()
        self.store.release()

    def _held_bytes(self) -> int:
        return self.store.n_bytes + self.evaluations.n_bytes()

    def _collect(self, needed: bool = False) -> None:
        """Free what the user dropped and only the garbage collector finds. needed: also where there
        is little of it."""
        if not needed and self._held_bytes() <= self._collect_at:
            return
        gc.collect()
        self.release()
        held = self._held_bytes()
        self._collect_at = max(held + COLLECT_BYTES, held + held // 2)

    def with_room(self, make: Callable[[], Result]) -> Result:
        """Return what ``make`` returns; where memory runs out, try again without graphs that the
        user dropped and evaluations, then without the plans of ``users``: all of them are compiled
        again when they are asked for."""
        for free in (self._free_idle, self._free_users):
            try:
                return make()
            except OutOfMemoryError:
                before = self.device.used_bytes()
                free()
                if free == self._free_users and self.device.used_bytes() >= before:
                    raise
        return make()

    def _free_idle(self) -> None:
        """Free evaluations, and what nobody uses now."""
        self.evaluations.close()
        for drop in self.on_full:
            drop()
        self._collect(needed=True)

    def _free_users(self) -> None:
        """Free plans of users too: they run what they need again. None of them runs while a leaf is
        sent or a plan is compiled."""
        for user in list(self.users):
            user.close()
        self.release()

    def close(self) -> None:
        """Free everything on the device. May be called twice."""
        if not self.closed:
            self.closed = True
            self.device.close()
            for one in (*self.users, *self.orphans):
                one.close()  # arrays of another library keep memory, too
            self.store.uploads.forget()
