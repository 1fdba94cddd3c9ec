"""A plan, what is sent before it and what is read after it, as one submit.

In: places in plans. Out: recorded copies (``Transfer``) whose host memory stays mapped, and the
submits that they are part of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import numpy as np

from dressi.ad.graph import Variable
from dressi.engine.device import Batch, Device, Transfer
from dressi.engine.share import Share
from dressi.engine.stepper import Part
from dressi.engine.uploads import MOST_BYTES
from dressi.packing import DeviceLimits, arrays

KEPT_BATCHES = 64
"""Combinations of leaves that are sent together whose submits are kept; then all are made anew."""


class Reads:
    """A copy of results of plans to the host. places: (plan, lowered Variable) of each. What is
    larger than MOST_BYTES together has no host memory of its own, and is read by submits of its
    own."""

    def __init__(
        self,
        device: Device,
        limits: DeviceLimits,
        places: Sequence[tuple[Part, Variable]],
    ) -> None:
        self._limits = limits
        self._places = list(places)
        self.transfer: Transfer | None = None
        """None where there is nothing to read, or too much."""
        self._views: list[Any] = [None] * len(self._places)
        if not self._places:
            return
        if sum(n_bytes(*place) for place in self._places) > MOST_BYTES:
            return
        sources, self._first = sources_of(self._places)
        self.transfer = device.transfer("readback", sources, "download")
        made = [self._value(k) for k in range(len(self._places))]
        words = self.transfer.words
        # Most results are views of the memory, once and for all.
        self._views = [a if any(arrays.shares(a, w) for w in words) else None for a in made]

    def turn(self) -> Transfer | None:
        """Return the copy that the next submit ends with; None where there is none."""
        return self.transfer

    def values(self) -> list[Any]:
        """Return what the last submit of ``transfer`` read, (layers, H, W, *tail) each: views of
        memory that the next one overwrites. Without a transfer, read it now."""
        if self.transfer is not None:
            self.transfer.fetch()
        return [self._value(k) if a is None else a for k, a in enumerate(self._views)]

    def _value(self, k: int) -> Any:
        part, v = self._places[k]
        if self.transfer is None:
            return part.read(v, self._limits)
        if v.uid in part.packed.buffers:
            return arrays.from_buffer(self._whole(self._first[k]), v)
        numbers = range(self._first[k], self._first[k] + v.vtype.n_planes)
        return arrays.from_planes([self._whole(n) for n in numbers], v, self._limits)

    def _whole(self, nth: int) -> Any:
        assert self.transfer is not None
        pieces = self.transfer.views(nth)
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def close(self) -> None:
        """Free the host memory. Idempotent."""
        if self.transfer is not None:
            self.transfer.close()
            self.transfer, self._places, self._views = None, [], []


def sources_of(places: Sequence[tuple[Part, Variable]]) -> tuple[list[Any], list[int]]:
    """Images and buffers that hold results of plans, and the number of the first of each."""
    sources: list[Any] = []
    first: list[int] = []
    for part, v in places:
        first.append(len(sources))
        if v.uid in part.packed.buffers:
            sources += part.executable.buffers([part.packed.buffers[v.uid]])
        else:
            sources += part.executable.images(part.packed.images[v.uid])
    return sources, first


class Submits:
    """A plan with copies before and after it, as one submit; those made once are kept. share:
    another library among whose work they run."""

    def __init__(self, device: Device, share: Share | None = None) -> None:
        self._device, self._share = device, share
        self._kept: dict[tuple[object, ...], Batch] = {}

    def run(
        self,
        before: dict[int, Transfer],
        part: Part | None,
        after: Transfer | None,
    ) -> None:
        """Submit copies to leaves, a plan with the uniforms that it has, a copy to the host, and
        wait; with a share only its work waits. Without any of them nothing is done."""
        executable = None if part is None or part.is_empty else part.executable
        key = *before.values(), executable, after
        batch = self._kept.get(key)
        if batch is None:
            parts = [p for p in key if p is not None]
            if not parts:
                return
            if len(self._kept) >= KEPT_BATCHES:
                self._kept.clear()
            timeline = None if self._share is None else self._share.timeline
            batch = self._kept[key] = self._device.batch(parts, timeline)
        if self._share is None:
            submit(batch)
        else:
            self._share.run(batch)


def n_bytes(part: Part, v: Variable) -> int:
    """Bytes of what a plan leaves of a lowered Variable."""
    if v.uid in part.packed.buffers:
        return 4 * part.packed.plan.buffers[part.packed.buffers[v.uid]].n_words
    return sum(part.packed.plan.images[i].n_bytes for i in part.packed.images[v.uid])


def submit(batch: Batch) -> None:
    """Run a batch and wait for it."""
    batch.start()
    batch.finish()


@contextmanager
def outputs_kept(device: Device, part: Part) -> Iterator[None]:
    """What users may read of a plan is put back after the body, which may run it."""
    places = part.outputs()
    if not places:
        yield
        return
    with ExitStack() as stack:
        read, write = (
            stack.enter_context(closing(device.transfer(use, places, "outputs of a plan")))
            for use in ("readback", "upload")
        )
        submit(device.batch([read]))
        read.fetch()
        try:
            yield
        finally:
            for words, kept in zip(write.words, read.words, strict=True):
                words[:] = kept
            submit(device.batch([write]))
