"""Substage packing: units into shaders, greedily from the last outputs backwards (paper, A.7).

In: units, limits. Out: substages in order of execution. Of the units all of whose users are packed,
the one with the most edges to the active substage that fits is taken; when none fits, a new
substage begins. Differs from the listing: it pushes its last substage and registers the graph's
final outputs.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from dressi.ad.registry import COMP
from dressi.packing.active import Active, Candidate, Change, begin, candidates
from dressi.packing.substage import Substage
from dressi.packing.task import Context
from dressi.packing.units import Domain, Unit


def pack_substages(units: Sequence[Unit], context: Context, several: bool = True) -> list[Substage]:
    """Substages in order of execution. several: whether a shader may have several units."""
    substages = _Packer(units, context).run(several)
    substages.reverse()
    return substages


PATIENCE = 400
"""Units that a substage may take beyond its limits in the hope that their producers, which follow,
turn inputs into inner values again. A forward and backward chain over the same pixels needs that:
cut at the first full substage, it would carry dozens of values through attachments."""

REJECTIONS = 64
"""Units without edges to the substage that are tried in a row before it counts as full. Without a
bound, each of the n/8 substages would try all ready units."""


class _Packer:
    """State of the greedy packing: which units are packed, which are ready.

    Ready units are those all of whose users are packed. They wait on shelves, except those that
    became ready while the active substage grew: only these have edges to it.
    """

    def __init__(self, units: Sequence[Unit], context: Context) -> None:
        self.items = candidates(units, context)
        self.context = context
        self.packed = [False] * len(units)
        self.waiting = [item.n_users for item in self.items]
        self.shelves: dict[tuple[Domain, bool], list[int]] = {}
        """By domain and whether they write images: heaps of -index over ready units (and packed
        ones, dropped when met)."""
        # Heap of (pixels, -index) over the same. New substages begin with the smallest domain:
        # then a large one begins only when nothing else holds its Functions back (a pyramid that
        # sums the loss, say), and forward and backward of a pixel end up in one shader.
        self.latest: list[tuple[int, int]] = []
        for item in self.items:
            if item.n_users == 0:
                self.shelve(item)

    def shelve(self, item: Candidate) -> None:
        (w, h), layers = item.unit.domain
        heapq.heappush(self.latest, (w * h * layers, -item.index))
        shelf = self.shelves.setdefault((item.unit.domain, item.writes_images), [])
        heapq.heappush(shelf, -item.index)

    def fetch(self, active: Active) -> Candidate | None:
        """The latest unit on the shelves for a substage, taken down. All that stands there writes
        all its outputs: without room for images, only units that scatter come into question."""
        kinds = (True, False) if active.has_room else (False,)
        while True:
            heaps = [self.shelves.get((active.domain, writes_images)) for writes_images in kinds]
            filled = [heap for heap in heaps if heap]
            if not filled:
                return None
            item = self.items[-heapq.heappop(min(filled))]
            if not self.packed[item.index]:
                return item

    def take(self, item: Candidate) -> list[int]:
        """Pack a unit; the producers that became ready."""
        self.packed[item.index] = True
        released = []
        for producer in item.producers:
            self.waiting[producer] -= 1
            if self.waiting[producer] == 0:
                released.append(producer)
        return released

    def untake(self, item: Candidate) -> None:
        for producer in item.producers:
            self.waiting[producer] += 1
        self.packed[item.index] = False

    def is_ready(self, index: int) -> bool:
        return self.waiting[index] == 0 and not self.packed[index]

    def run(self, several: bool) -> list[Substage]:
        """Substages, the last one first."""
        done: list[Substage] = []
        n_packed = 0
        while n_packed < len(self.items):
            item = self.items[-heapq.heappop(self.latest)[1]]
            if self.packed[item.index]:
                continue
            active = begin(item, self.context)
            released = dict.fromkeys(self.take(item))
            if several and active.kind != COMP:
                self.grow(active, released, PATIENCE)
                self.grow(active, released, 0)
            for index in released:
                if self.is_ready(index):
                    self.shelve(self.items[index])
            n_packed += len(active.joined)
            done.append(active.substage())
        return done

    def grow(self, active: Active, released: dict[int, None], patience: int) -> None:
        """Add ready units, those with the most edges to the substage first, later ones first. With
        patience, limits on inputs may be broken on the way; the longest prefix that keeps them is
        the result. released: units that became ready since the substage began; added to."""
        near: list[tuple[int, int]] = []
        domains = {active.domain, ((1, 1), 1), ((1, 1), active.domain[1])}

        def offer(index: int) -> None:
            if self.items[index].unit.domain in domains:
                heapq.heappush(near, (-active.edges[index], -index))

        for index in released:
            if self.is_ready(index):
                offer(index)
        fetched: list[Candidate] = []
        rejections = beyond = 0  # beyond: units taken since the limits were kept
        while beyond <= patience:
            item: Candidate | None
            if near:
                item = self.items[-heapq.heappop(near)[1]]
            else:
                item = self.fetch(active) if rejections < REJECTIONS else None
                if item is None:
                    break
                fetched.append(item)
                rejections += 1
            change = active.change(item, patience > 0)
            if not isinstance(change, Change):
                continue
            active.add(change)
            rejections = 0
            beyond = 0 if change.fits else beyond + 1
            for index in self.take(item):
                released[index] = None
                offer(index)
        for _ in range(beyond):
            self.untake(active.undo())
        for item in fetched:
            if not self.packed[item.index]:
                shelf = self.shelves[item.unit.domain, item.writes_images]
                heapq.heappush(shelf, -item.index)
