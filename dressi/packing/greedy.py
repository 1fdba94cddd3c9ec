"""Greedy packing, from the last outputs backwards: units into substages, substages into stages
(paper, A.8 and A.9).

In: items (units or substages) in order of execution. Out: groups of them (substages or stages), in
order of execution. Of the items all of whose users are packed, the one with the most edges to the
active group that fits is taken; when none fits, a new group begins. Differs from the listing: it
pushes its last group and registers the graph's final outputs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from dressi.packing.active import begin, candidates
from dressi.packing.options import LOOK_AHEAD
from dressi.packing.substage import Substage
from dressi.packing.task import Context
from dressi.packing.units import Unit

PATIENCE = LOOK_AHEAD
"""Units that a substage may take beyond its limits: producers that follow may turn inputs into
inner values again, as forward and backward over the same pixels do (``MOST_CARRIED``)."""

REJECTIONS = 64
"""Items without edges to the group that are tried in a row before it counts as full."""


def pack_substages(
    units: Sequence[Unit], context: Context, several: bool = True, patience: int = PATIENCE
) -> list[Substage]:
    """Return substages in order of execution. several: whether a shader may have several units.
    patience: units that it may take beyond its limits."""
    rounds = (patience, 0) if several else ()
    groups = pack_greedily(candidates(units, context), lambda c: begin(c, context), rounds)
    return [active.substage() for active in groups]


class Item(Protocol):
    """A unit or a substage that may join a group."""

    index: int
    producers: Sequence[int]
    n_users: int
    n_pixels: int
    """Groups begin with the fewest: then a large one begins only when nothing else holds its items
    back (a pyramid that sums the loss, say), and forward and backward of a pixel end up in one
    shader."""
    shelf: Hashable
    """Where it waits; a group looks at some shelves only."""


class Group(Protocol):
    """A substage or a stage that takes one item after the other, and gives back the last."""

    @property
    def edges(self) -> Mapping[int, int]:
        """Index of an item -> number of its users in the group."""

    @property
    def shelves(self) -> Sequence[Hashable]:
        """Where items wait that may fit; none where the group stands alone."""

    def join(self, item: Any, patience: int) -> bool | None:
        """Take an item; return whether all limits are kept, or None where it stays out. patience:
        how many may join while a limit is broken that items which follow can mend."""

    def leave(self) -> int:
        """Give the last item back; return its index."""


G = TypeVar("G", bound=Group)


def pack_greedily(
    items: Sequence[Item], begin: Callable[[Any], G], rounds: Sequence[int]
) -> list[G]:
    """Return groups in order of execution. begin: makes a group of its first item. rounds: the
    patience of each round in which a group grows; with patience, limits may be broken on the way,
    and the longest prefix that keeps them is the result."""
    packer = _Packer[G](items)
    done: list[G] = []
    while packer.latest:
        item = items[-heapq.heappop(packer.latest)[1]]
        if packer.packed[item.index]:
            continue
        group = begin(item)
        released = dict.fromkeys(packer.take(item))
        for patience in rounds:
            packer.grow(group, released, patience)
        for index in filter(packer.is_ready, released):
            packer.shelve(items[index])
        done.append(group)
    done.reverse()
    return done


class _Packer(Generic[G]):
    """State of the greedy packing: which items are packed, which are ready.

    Ready items are those all of whose users are packed. They wait on shelves, except those that
    became ready while the active group grew: only these have edges to it.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.packed = [False] * len(items)
        self.waiting = [item.n_users for item in items]
        self.shelves: dict[Hashable, list[int]] = {}
        """Heaps of -index over ready items (and packed ones, dropped when met)."""
        self.latest: list[tuple[int, int]] = []
        """Heap of (pixels, -index) over the same."""
        for item in items:
            if item.n_users == 0:
                self.shelve(item)

    def shelve(self, item: Item) -> None:
        """Let a ready item wait for a group."""
        heapq.heappush(self.latest, (item.n_pixels, -item.index))
        heapq.heappush(self.shelves.setdefault(item.shelf, []), -item.index)

    def fetch(self, group: Group) -> Item | None:
        """Take the latest item for a group from its shelves."""
        while True:
            filled = [heap for heap in map(self.shelves.get, group.shelves) if heap]
            if not filled:
                return None
            item = self.items[-heapq.heappop(min(filled))]
            if not self.packed[item.index]:
                return item

    def take(self, item: Item) -> list[int]:
        """Pack an item; return the producers that became ready."""
        self.packed[item.index] = True
        for producer in item.producers:
            self.waiting[producer] -= 1
        return [producer for producer in item.producers if self.waiting[producer] == 0]

    def untake(self, index: int) -> None:
        """Undo ``take``."""
        self.packed[index] = False
        for producer in self.items[index].producers:
            self.waiting[producer] += 1

    def is_ready(self, index: int) -> bool:
        """Return whether all users of an item are packed, but not the item."""
        return self.waiting[index] == 0 and not self.packed[index]

    def grow(self, group: G, released: dict[int, None], patience: int) -> None:
        """Add ready items, those with the most edges to the group first, later ones first.
        released: items that became ready since the group began; added to."""
        if not group.shelves:
            return
        near = [(-group.edges[index], -index) for index in released if self.is_ready(index)]
        heapq.heapify(near)
        fetched: list[Item] = []
        rejections = beyond = 0  # beyond: items taken since the limits were kept
        while beyond <= patience:
            item: Item | None
            if near:
                item = self.items[-heapq.heappop(near)[1]]
            else:
                item = self.fetch(group) if rejections < REJECTIONS else None
                if item is None:
                    break
                fetched.append(item)
                rejections += 1
            fits = group.join(item, patience)
            if fits is None:
                continue
            rejections = 0
            beyond = 0 if fits else beyond + 1
            for index in self.take(item):
                released[index] = None
                heapq.heappush(near, (-group.edges[index], -index))
        for _ in range(beyond):
            self.untake(group.leave())
        for item in fetched:
            if not self.packed[item.index]:
                heapq.heappush(self.shelves[item.shelf], -item.index)
