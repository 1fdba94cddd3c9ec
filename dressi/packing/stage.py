"""Stage packing: substages into render passes, by the same strategy (paper, A.8).

In: substages in order of execution, their def-use index. Out: stages in order of execution, each a
list of substages in order.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from dressi.ad.graph import Size, Variable
from dressi.ad.registry import RASTER
from dressi.errors import GraphError
from dressi.packing.defuse import DefUse
from dressi.packing.layout import layout
from dressi.packing.limits import DeviceLimits
from dressi.packing.obstacles import Obstacle, attachment_obstacle
from dressi.packing.substage import Substage
from dressi.packing.units import ATTACHMENT, UNIFORM, in_buffer


@dataclass(frozen=True, eq=False)
class Stage:
    """Substages of one render pass (or the one of a dispatch), in order of execution."""

    substages: tuple[Substage, ...]
    positions: tuple[int, ...] = ()
    """Of the substages in the order in which they were given to be packed."""

    @property
    def is_dispatch(self) -> bool:
        return any(s.is_dispatch for s in self.substages)


def why_not_stage(
    substage: Substage, others: Sequence[Substage], limits: DeviceLimits
) -> Obstacle | None:
    """What keeps a substage out of the stage of some others, which it would precede; None when it
    fits. others: in order of execution."""
    members = [_Candidate(s, -1, limits) for s in reversed(others)]
    if not members:
        return None
    grown = _Growing(members[0], limits)
    for member in members[1:]:
        grown.add(member, ())
    return grown.obstacle(_Candidate(substage, -1, limits))


class _Candidate:
    """A substage that may join a stage, with what the packer asks of it again and again."""

    def __init__(self, substage: Substage, position: int, limits: DeviceLimits) -> None:
        self.substage = substage
        self.position = position
        self.is_dispatch = substage.is_dispatch
        try:
            self.physical: Size = layout(*substage.domain, limits).physical
        except GraphError:  # placing the images names the one that is too large
            self.physical = substage.domain[0]
        self.written = {v.uid: v for v in substage.outputs}
        self.fetched: set[int] = set()
        """uids of images and buffers that it reads at any pixel."""
        attached: dict[int, Variable] = {}
        for v, accesses in substage.reads.values():
            how = substage.access(v, accesses)
            if how == ATTACHMENT:
                attached[v.uid] = v
            elif how != UNIFORM:
                self.fetched.add(v.uid)
        attached |= {v.uid: v for v in substage.outputs if not in_buffer(v)}
        self.planes = {uid: v.vtype.n_planes for uid, v in attached.items()}
        """Attachments, and how many each takes."""
        self.n_depth = int(substage.kind == RASTER)


class _Growing:
    """A stage that grows; the cost of a substage does not depend on those that it has."""

    def __init__(self, first: _Candidate, limits: DeviceLimits) -> None:
        self.first = first
        self.limits = limits
        self.attached: set[int] = set()
        self.fetched: set[int] = set()
        self.n_attachments = 0
        self.members: list[_Candidate] = []
        """From the last to the first."""
        self.edges: dict[int, int] = {}
        """Position of a substage -> number of its users in the stage."""

    def obstacle(self, item: _Candidate) -> Obstacle | None:
        """What keeps a substage out."""
        if item.is_dispatch or self.first.is_dispatch:
            return Obstacle("dispatch")
        if item.physical != self.first.physical:
            return Obstacle("framebuffer", item.physical, self.first.physical)
        for uid, v in item.written.items():
            if uid in self.fetched:
                return Obstacle("fetched", v)
        if any(uid in self.fetched for uid in item.planes):
            return Obstacle("attached here")
        if not self.attached.isdisjoint(item.fetched):
            return Obstacle("fetched here")
        return attachment_obstacle(self.n_attachments + self._more(item), self.limits)

    def _more(self, item: _Candidate) -> int:
        """Attachments that the substage adds to those that the stage has."""
        new = (n for uid, n in item.planes.items() if uid not in self.attached)
        return sum(new) + item.n_depth

    def add(self, item: _Candidate, producers: Sequence[int]) -> None:
        """Take a substage. producers: positions of the substages that it needs."""
        self.n_attachments += self._more(item)
        self.attached.update(item.planes)
        self.fetched |= item.fetched
        self.members.append(item)
        for producer in producers:
            self.edges[producer] = self.edges.get(producer, 0) + 1

    def stage(self) -> Stage:
        """The stage, its substages in order of execution."""
        members = self.members[::-1]
        return Stage(tuple(m.substage for m in members), tuple(m.position for m in members))


REJECTIONS = 64
"""Substages without edges to the stage that are tried in a row before it counts as full."""


class _Packer:
    """State of the greedy packing, as in substage packing: substages all of whose users are packed
    wait on a shelf for their framebuffer size, except those that became ready by the stage that
    grows."""

    def __init__(
        self, substages: Sequence[Substage], index: DefUse, limits: DeviceLimits, several: bool
    ) -> None:
        self.index, self.limits, self.several = index, limits, several
        self.items = [_Candidate(s, k, limits) for k, s in enumerate(substages)]
        self.packed = [False] * len(substages)
        self.waiting = [len(users) for users in index.users]
        self.latest: list[int] = []
        """Heap of -position over ready substages (and packed ones, dropped when met)."""
        self.shelves: dict[Size, list[int]] = {}
        for k, n in enumerate(self.waiting):
            if n == 0:
                self.shelve(k)

    def shelve(self, k: int) -> None:
        heapq.heappush(self.latest, -k)
        heapq.heappush(self.shelves.setdefault(self.items[k].physical, []), -k)

    def take(self, k: int, stage: _Growing) -> list[int]:
        """Pack a substage; the producers that became ready."""
        self.packed[k] = True
        stage.add(self.items[k], self.index.producers[k])
        released = []
        for producer in self.index.producers[k]:
            self.waiting[producer] -= 1
            if self.waiting[producer] == 0:
                released.append(producer)
        return released

    def run(self) -> list[Stage]:
        """Stages, the last one first."""
        done: list[Stage] = []
        n_packed = 0
        while n_packed < len(self.items):
            k = -heapq.heappop(self.latest)
            if self.packed[k]:
                continue
            stage = _Growing(self.items[k], self.limits)
            released = self.take(k, stage)
            if self.several and not self.items[k].is_dispatch:
                released = self.grow(stage, released)
            for k in released:
                self.shelve(k)
            n_packed += len(stage.members)
            done.append(stage.stage())
        return done

    def grow(self, stage: _Growing, released: list[int]) -> list[int]:
        """Add ready substages, those with the most edges to the stage first, later ones first.
        Returns those that became ready and did not fit."""
        near: list[tuple[int, int]] = []

        def offer(k: int) -> None:
            heapq.heappush(near, (-stage.edges[k], -k))

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
            if stage.obstacle(self.items[k]) is not None:
                rejected.append(k)
                continue
            rejections = 0
            for producer in self.take(k, stage):
                offer(producer)
        for k in tried:
            heapq.heappush(shelf, -k)
        return left


def pack_stages(
    substages: Sequence[Substage], index: DefUse, limits: DeviceLimits, several: bool = True
) -> list[Stage]:
    """Stages in order of execution. several: whether a stage may have several substages."""
    stages = _Packer(substages, index, limits, several).run()
    stages.reverse()
    return stages


def update_order(
    index: DefUse, updates: Sequence[tuple[Variable, Variable]]
) -> list[tuple[int, int]]:
    """Pairs (reader of a leaf, substage that writes its next value) that nothing orders yet and
    that may run in this order, so that the value can be written in place."""
    order: dict[tuple[int, int], None] = {}
    users = [list(k) for k in index.users]
    for leaf, new in updates:
        writer = index.writer.get(new.uid)
        if writer is None:
            continue
        for reader in index.readers.get(leaf.uid, ()):
            known = reader == writer or reader in index.producers[writer]
            if known or (reader, writer) in order or _leads_to(users, writer, reader):
                continue
            order[reader, writer] = None
            users[reader].append(writer)
    return list(order)


def _leads_to(users: Sequence[Sequence[int]], first: int, last: int) -> bool:
    """Whether the last substage needs the first, directly or not."""
    seen, stack = {first}, [first]
    while stack:
        for user in users[stack.pop()]:
            if user == last:
                return True
            if user not in seen:
                seen.add(user)
                stack.append(user)
    return first == last


def in_levels(stages: Sequence[Stage], index: DefUse) -> list[Stage]:
    """The same stages, those first that wait for the fewest others in a row: neighbours of one
    level may run side by side. Without dispatches the order stays as it is."""
    if not any(stage.is_dispatch for stage in stages):
        return list(stages)
    level: dict[int, int] = {}  # by position of the substage
    levels: list[int] = []
    for stage in stages:
        before = [level[p] for k in stage.positions for p in index.producers[k] if p in level]
        mine = max(before, default=-1) + 1
        level.update(dict.fromkeys(stage.positions, mine))
        levels.append(mine)
    order = sorted(range(len(stages)), key=lambda k: levels[k])
    return [stages[k] for k in order]
