"""Stage packing: substages into render passes, by the same strategy (paper, A.8).

In: substages in order of execution. Out: stages in order of execution, each a list of substages in
order.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dressi.ad.graph import Size, Variable
from dressi.ad.registry import RASTER
from dressi.errors import GraphError
from dressi.packing.layout import layout
from dressi.packing.substage import Context, Substage
from dressi.packing.units import ATTACHMENT, UNIFORM, in_buffer


@dataclass(eq=False)
class Stage:
    """Substages of one render pass (or the one of a dispatch), in order of execution."""

    substages: list[Substage] = field(default_factory=list)

    @property
    def is_dispatch(self) -> bool:
        return any(s.is_dispatch for s in self.substages)


def attachments(substage: Substage) -> set[int]:
    """Variables that are attachments of the subpass."""
    return set(_attached(substage))


def _attached(substage: Substage) -> dict[int, Variable]:
    found = {v.uid: v for v, ways in substage.reads.values() if substage.way(v, ways) == ATTACHMENT}
    return found | {v.uid: v for v in substage.outputs if not in_buffer(v)}


def fetched(substage: Substage) -> set[int]:
    """Images and buffers that the substage reads at any pixel."""
    return {
        v.uid
        for v, ways in substage.reads.values()
        if substage.way(v, ways) not in (ATTACHMENT, UNIFORM)
    }


def why_not_stage(substage: Substage, stage: Stage, context: Context) -> list[str]:
    """Obstacles that keep a substage out of a stage; empty when it fits."""
    if not stage.substages:
        return []
    members = [_Item(s, k, context) for k, s in enumerate(stage.substages)]
    grown = _Growing(members[0], context)
    for member in members[1:]:
        grown.add(member)
    return list(grown.obstacles(_Item(substage, -1, context)))


class _Item:
    """What the packer asks of a substage, found once."""

    def __init__(self, substage: Substage, position: int, context: Context) -> None:
        self.substage = substage
        self.position = position
        try:
            self.physical: Size = layout(*substage.domain, context.limits).physical
        except GraphError:  # who places the images names the one that is too large
            self.physical = substage.domain[0]
        self.made = {v.uid: v for v in substage.outputs}
        self.planes = {uid: v.vtype.n_planes for uid, v in _attached(substage).items()}
        """Attachments, and how many each takes."""
        self.fetched = fetched(substage)
        self.n_depth = int(substage.kind == RASTER)


class _Growing:
    """A stage that grows; the cost of a substage does not depend on those that it has."""

    def __init__(self, first: _Item, context: Context) -> None:
        self.first = first
        self.limit = context.limits.stage_attachments
        self.attached: set[int] = set()
        self.fetched: set[int] = set()
        self.n_attachments = 0
        self.substages: list[Substage] = []
        """From the last to the first."""
        self.edges: dict[int, int] = {}
        """Id of a substage -> number of its users in the stage."""
        self.add(first)

    def obstacles(self, item: _Item) -> Iterator[str]:
        """What keeps a substage out."""
        if item.substage.is_dispatch or self.first.substage.is_dispatch:
            yield "a dispatch stands alone"
            return
        mine, theirs = item.physical, self.first.physical
        if mine != theirs:
            yield f"framebuffer {mine[0]}x{mine[1]}, the stage's is {theirs[0]}x{theirs[1]}"
            return
        for uid, v in item.made.items():
            if uid in self.fetched:
                yield f"{v.label()} is read at other pixels in the stage"
        if any(uid in self.fetched and uid not in item.made for uid in item.planes):
            yield "an image is an attachment here and fetched in the stage"
        if not self.attached.isdisjoint(item.fetched):
            yield "an image is fetched here and an attachment in the stage"
        n = self.n_attachments + self._more(item)
        if n > self.limit:
            yield f"needs {n} attachments, a stage may have {self.limit}"

    def _more(self, item: _Item) -> int:
        """Attachments that the substage adds to those that the stage has."""
        new = (n for uid, n in item.planes.items() if uid not in self.attached)
        return sum(new) + item.n_depth

    def add(self, item: _Item) -> None:
        """Take a substage."""
        self.n_attachments += self._more(item)
        self.attached.update(item.planes)
        self.fetched |= item.fetched
        self.substages.append(item.substage)
        for producer in item.substage.producers:
            self.edges[id(producer)] = self.edges.get(id(producer), 0) + 1


REJECTIONS = 64
"""Substages without edges to the stage that are tried in a row before it counts as full."""


class _Packer:
    """State of the greedy packing, as in substage packing: substages all of whose users are packed
    wait on a shelf for their framebuffer size, except those that became ready by the stage that
    grows."""

    def __init__(self, substages: Sequence[Substage], context: Context) -> None:
        self.context = context
        self.items = [_Item(s, k, context) for k, s in enumerate(substages)]
        self.position = {id(s): k for k, s in enumerate(substages)}
        self.packed = [False] * len(substages)
        self.waiting = [len(s.users) for s in substages]
        self.latest: list[int] = []
        """Heap of -position over ready substages (and packed ones, dropped when met)."""
        self.shelves: dict[Size, list[int]] = {}
        for k, s in enumerate(substages):
            if not s.users:
                self.shelve(k)

    def shelve(self, k: int) -> None:
        heapq.heappush(self.latest, -k)
        heapq.heappush(self.shelves.setdefault(self.items[k].physical, []), -k)

    def take(self, item: _Item) -> list[int]:
        """Pack a substage; the producers that became ready."""
        self.packed[item.position] = True
        released = []
        for producer in item.substage.producers:
            k = self.position[id(producer)]
            self.waiting[k] -= 1
            if self.waiting[k] == 0:
                released.append(k)
        return released

    def run(self) -> list[Stage]:
        done: list[Stage] = []
        n_packed = 0
        while n_packed < len(self.items):
            item = self.items[-heapq.heappop(self.latest)]
            if self.packed[item.position]:
                continue
            stage = _Growing(item, self.context)
            released = self.take(item)
            if self.context.pack_stages and not item.substage.is_dispatch:
                released = self.grow(stage, released)
            for k in released:
                self.shelve(k)
            n_packed += len(stage.substages)
            done.append(Stage(stage.substages[::-1]))
        return done

    def grow(self, stage: _Growing, released: list[int]) -> list[int]:
        """Add ready substages, those with the most edges to the stage first, later ones first. Back
        come those that became ready and did not fit."""
        near: list[tuple[int, int]] = []

        def offer(k: int) -> None:
            heapq.heappush(near, (-stage.edges[id(self.items[k].substage)], -k))

        for k in released:
            offer(k)
        shelf = self.shelves[stage.first.physical]
        tried: list[int] = []
        left: list[int] = []
        rejections = 0
        while True:
            if near:
                k = -heapq.heappop(near)[1]
                rejected = left
            elif shelf and rejections < REJECTIONS:
                k = -heapq.heappop(shelf)
                if self.packed[k]:
                    continue
                rejected = tried
                rejections += 1
            else:
                break
            if next(stage.obstacles(self.items[k]), None) is not None:
                rejected.append(k)
                continue
            rejections = 0
            stage.add(self.items[k])
            for producer in self.take(self.items[k]):
                offer(producer)
        for k in tried:
            heapq.heappush(shelf, -k)
        return left


def pack_stages(substages: Sequence[Substage], context: Context) -> list[Stage]:
    """Stages in order of execution."""
    stages = _Packer(substages, context).run()
    stages.reverse()
    return stages


def in_levels(stages: Sequence[Stage]) -> list[Stage]:
    """The same stages, those first that wait for the fewest others in a row: neighbours of one
    level may run side by side. Without dispatches the order stays as it is."""
    if not any(stage.is_dispatch for stage in stages):
        return list(stages)
    level: dict[int, int] = {}  # by id of the substage
    levels: list[int] = []
    for stage in stages:
        found = [level[id(p)] for s in stage.substages for p in s.producers if id(p) in level]
        mine = max(found, default=-1) + 1
        level.update({id(s): mine for s in stage.substages})
        levels.append(mine)
    order = sorted(range(len(stages)), key=lambda k: levels[k])
    return [stages[k] for k in order]
