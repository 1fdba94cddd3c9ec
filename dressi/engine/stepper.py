"""A step and its halves: what runs, what is clean, when to rebuild (paper, 3.3.3: reactive cache).

In: a packed step, a compiler, the store of leaves. Out: iterations. Nothing here walks a graph in a
steady step: what changed is a set of uids that the store collects.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, MutableSequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dressi.ad.graph import Variable
from dressi.engine.device import Executable
from dressi.engine.leafstore import LeafStore
from dressi.errors import OutOfMemoryError
from dressi.inspect.report import Rebuild
from dressi.packing import Packed
from dressi.packing.arrays import from_buffer, from_planes
from dressi.packing.limits import DeviceLimits
from dressi.packing.reactive import MIN_GAIN, Split, split_functions, split_substages

log = logging.getLogger("dressi")

FAST_REBUILD_COUNT = 3
"""Steps of unchanged dirty flags after which stages are packed again."""
FULL_REBUILD_COUNT = 8
"""Steps of unchanged dirty flags after which Functions are packed again."""
FAST, FULL = "fast", "full"

Flags = frozenset[int]
"""uids of the leaves whose data was sent since the step before."""
NOTHING: Flags = frozenset()


@dataclass
class Part:
    """A plan on the device."""

    packed: Packed
    executable: Executable
    uniforms_version: int = -1
    """``newest`` of the uniforms that the block holds."""
    _version: int = -1
    """Version of the store when that was looked at."""
    ran_at: tuple[int, int] = (-1, -1)
    """Version of the store, and calls of exec_steps, at the last run."""

    def __post_init__(self) -> None:
        plan = self.packed.plan
        self.is_empty = not (plan.stages or plan.updates)
        """Whether a run does nothing at all."""
        self._uniforms = tuple(v.uid for v in self.packed.uniforms)

    def holds(self, v: Variable) -> bool:
        """Whether a lowered Variable can be read from here."""
        return v.uid in self.packed.images or v.uid in self.packed.buffers

    def read(self, v: Variable, limits: DeviceLimits) -> np.ndarray:
        """Its data, (layers, H, W, *tail)."""
        if v.uid in self.packed.buffers:
            words = self.executable.download_buffer(self.packed.buffers[v.uid])
            return from_buffer(words, v)
        planes = [self.executable.download(i) for i in self.packed.images[v.uid]]
        return from_planes(planes, v, limits)

    def outputs(self) -> list[Any]:
        """Images and buffers of what users may read from here, for a ``Transfer``."""
        task = self.packed.task
        held = {v.uid for v in (() if task is None else task.outputs) if self.holds(v)}
        numbers = {i for uid in held for i in self.packed.images.get(uid, ())}
        buffers = {self.packed.buffers[uid] for uid in held if uid in self.packed.buffers}
        return [*self.executable.images(sorted(numbers)), *self.executable.buffers(sorted(buffers))]

    def run(self, store: LeafStore, n: int) -> None:
        """n runs with the uniforms that the store has now."""
        self.refresh(store)
        self.executable.run(n)

    def refresh(self, store: LeafStore) -> None:
        """Write the uniform block where what it holds is old. Not while a run is under way."""
        if not self._uniforms or self._version == store.version:
            return
        newest = store.newest(self._uniforms)
        if self.uniforms_version != newest:
            self.executable.write_uniforms(store.uniform_words(self.packed))
            self.uniforms_version = newest
        self._version = store.version


class DirtyFlags:
    """When a rebuild is due, from the dirty flags of the steps alone."""

    def __init__(self) -> None:
        self.flags: Flags | None = None
        self.count = 0
        """Steps since the flags changed."""
        self.patience = 1
        """Factor of both counts; doubles, so that n steps cost O(log n) rebuilds at most."""
        self.built: tuple[Flags | None, str] = (None, "")
        """The flags that the current halves were made for, and how."""
        self._settled = False
        self._refused: set[tuple[Flags, str]] = set()
        self._considered = 0

    def note(self, flags: Flags, n: int = 1) -> None:
        """n steps with these flags come next."""
        if flags == self.flags:
            self.count += n
        else:
            self.flags, self.count, self._settled = flags, n - 1, False

    def is_settled(self, flags: Flags, n: int) -> bool:
        """Whether nothing can become due while the flags stay the same: most steps end here."""
        if n != 1 or flags != self.flags:
            return False
        if not self._settled:
            self._settled = not (self._open(flags, FULL) or self._open(flags, FAST))
        return self._settled

    def due(self) -> str | None:
        """The rebuild that should come before this step."""
        assert self.flags is not None
        for kind, count in ((FULL, FULL_REBUILD_COUNT), (FAST, FAST_REBUILD_COUNT)):
            if self.count >= count * self.patience and self._open(self.flags, kind):
                return kind
        return None

    def ahead(self, flags: Flags) -> int | None:
        """Steps with these flags that may come before a rebuild is due; None: any number."""
        count = self.count if flags == self.flags else -1
        steps = [
            at * self.patience - count
            for kind, at in ((FULL, FULL_REBUILD_COUNT), (FAST, FAST_REBUILD_COUNT))
            if self._open(flags, kind)
        ]
        return max(min(steps), 1) if steps else None

    def _open(self, flags: Flags, kind: str) -> bool:
        made_for, how = self.built
        if made_for == flags and (how == FULL or kind == FAST):
            return False
        return (flags, kind) not in self._refused

    def settle(self, kind: str, built: bool) -> None:
        """A rebuild was made, or refused because too little is clean."""
        assert self.flags is not None
        if built:
            self.built = (self.flags, kind)
            self._refused = {r for r in self._refused if r[0] == self.flags}
        else:
            self._refused.add((self.flags, kind))
        self._considered += 1
        if self._considered > 2:  # the first pair
            self.patience *= 2

    def undo(self) -> None:
        """The step is whole again."""
        self.built = (None, "")
        self._settled = False


@dataclass
class Run:
    """What one call of ``Step.run`` did: (half, number of runs), in order."""

    parts: list[tuple[str, Part, int]] = field(default_factory=list)

    def stages(self) -> Iterator[str]:
        for label, part, n in self.parts:
            for _ in range(n):
                for stage in part.packed.plan.stages:
                    yield f"{label} {stage.name}"


class Step:
    """The iterations of one loss and optimizer."""

    def __init__(
        self,
        packed: Packed,
        compile: Callable[[Packed], Part],
        store: LeafStore,
        log: MutableSequence[Rebuild],
        cache: bool,
    ) -> None:
        self.whole = packed
        """The step as it was packed first, with nothing left out."""
        self.main = compile(packed)
        self.static: Part | None = None
        self.flags = DirtyFlags()
        self.last = Run()
        self._usual: Run | None = None  # of one step in which nothing but the step half ran
        self.run_half: Callable[[Part, LeafStore, int], None] = Part.run
        """Runs the step half that many times and waits: with it, one may copy what it leaves."""
        self.steps = 0
        self.static_runs = 0
        self._compile = compile
        self._store = store
        self._log = log
        self._cache = cache
        self._split: Split | None = None
        self._stale = False
        assert packed.task is not None
        self._watched = frozenset(v.uid for v in (*packed.leaves, *packed.uniforms))
        store.take_changed()

    def is_plain(self) -> bool:
        """Whether ``run(1)`` now would run the step half and nothing else: no rebuild is due and
        nothing that is kept is old. Changes nothing."""
        flags = self._watched & self._store.changed  # in this order: it is a frozenset
        stale = self._stale or (self._split is not None and bool(flags & self._split.depends))
        return not self._cache or (not stale and self.flags.is_settled(flags, 1))

    def count_plain(self) -> Part:
        """As ``run(1)`` where ``is_plain``, but that submitting what is returned is left to the
        caller."""
        self._store.take_changed()
        self.main.refresh(self._store)
        self.steps += 1
        self._note_plain(1)
        return self.main

    def run(self, n: int) -> None:
        """n iterations, in as few submits as rebuilds allow."""
        flags = self._store.take_changed()
        if flags:
            flags &= self._watched
            if self._split is not None and flags & self._split.depends:
                self._stale = True
        if not self._cache or (not self._stale and self.flags.is_settled(flags, n)):
            self._advance(n)
            self._note_plain(n)
            return
        self.last = Run()
        while n > 0:
            self.flags.note(flags)
            kind = self.flags.due()
            if kind is not None:
                self._rebuild(kind)
            many = 1
            if flags == NOTHING or n > 1:
                ahead = self.flags.ahead(NOTHING)
                rest = n - 1 if ahead is None else min(n - 1, ahead - 1)
                if rest > 0:
                    self.flags.note(NOTHING, rest)
                    many += rest
            if self.static is not None and self._stale:
                self.static.run(self._store, 1)
                self.static_runs += 1
                self.last.parts.append(("static", self.static, 1))
                self._stale = False
            self._advance(many)
            self.last.parts.append(("step", self.main, many))
            n -= many
            flags = NOTHING

    def _note_plain(self, n: int) -> None:
        if n != 1 or self._usual is None:
            self.last = Run([("step", self.main, n)])
            self._usual = self.last if n == 1 else self._usual
        else:
            self.last = self._usual

    def _advance(self, n: int) -> None:
        if not self.main.is_empty:
            self.run_half(self.main, self._store, n)
        self.steps += n

    def parts(self) -> dict[str, Part]:
        """The halves by name; the step alone while nothing is cached."""
        if self.static is None:
            return {"step": self.main}
        return {"static": self.static, "step": self.main}

    def close(self) -> None:
        """Free everything but the data of leaves."""
        for part in self.parts().values():
            part.executable.close()
        self._drop_keys(())

    def _drop_keys(self, kept: tuple[int, ...]) -> None:
        if self._split is not None:
            for key in set(self._split.keys) - set(kept):
                self._store.device.drop(key)

    def _rebuild(self, kind: str) -> None:
        begin = time.perf_counter()
        flags = self.flags.flags or NOTHING
        if kind == FAST:
            split = split_substages(self.whole, flags)
        else:
            split = split_functions(self.whole, flags)
        made_for = self.flags.built[0]
        serves = self._split is not None and made_for is not None and flags <= made_for
        if split is not None and self._split is not None and serves:
            if split.left > (1.0 - MIN_GAIN) * self._split.left:
                split = None  # what there is does as well
        whole_again = split is None and self._split is not None and not serves
        try:
            if split is not None:
                self._use(split)
                reason = f"{100 * split.gain:.0f} % of the predicted work is clean"
            elif whole_again:
                # The static half would run in every step from now on.
                main = self._compile(self.whole)
                self.close()
                self.main, self.static, self._split, self._usual = main, None, None, None
                self.flags.undo()
                reason = "too little is clean any more"
        except OutOfMemoryError as error:
            # The step goes on as it is: a cache is not worth stopping for.
            log.info("no %s rebuild: %s", kind, error)
            split, whole_again = None, False
        self.flags.settle(kind, split is not None)
        if split is not None or whole_again:
            self._log.append(self.rebuild(kind, reason, time.perf_counter() - begin))

    def rebuild(self, kind: str, reason: str, seconds: float) -> Rebuild:
        """A line of the log about what there is now."""
        plans = [p.packed.plan for p in self.parts().values()]
        return Rebuild(
            self.steps,
            kind,
            reason,
            seconds,
            sum(p.n_functions for p in plans),
            sum(p.n_substages for p in plans),
            sum(len(p.stages) for p in plans),
        )

    def _use(self, split: Split) -> None:
        old = set(self._split.keys) if self._split is not None else set()
        halves: list[Part] = []
        try:
            halves.append(self._compile(split.static))
            halves.append(self._compile(split.step))
        except BaseException:
            for part in halves:
                part.executable.close()
            for key in set(split.keys) - old:
                self._store.device.drop(key)
            raise
        for part in self.parts().values():
            part.executable.close()
        self._drop_keys(split.keys)
        self.static, self.main = halves
        self._split = split
        self._usual = None
        self._stale = True
