"""The stage that grows: what keeps a substage out of a render pass.

In: substages. Out: whether one may join (at the cost of the substage alone, whatever the stage
has).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from dressi.ad.graph import Variable
from dressi.errors import GraphError
from dressi.packing.defuse import DefUse
from dressi.packing.layout import layout
from dressi.packing.limits import DeviceLimits
from dressi.packing.obstacles import Obstacle, attachment_obstacle
from dressi.packing.substage import Substage
from dressi.packing.units import ATTACHMENT, UNIFORM, in_buffer


class Joining:
    """A substage that may join a stage, with what the packer asks of it again and again."""

    n_pixels = 0  # stages begin with the latest substage, whatever its size

    def __init__(
        self, substage: Substage, index: int, defuse: DefUse, limits: DeviceLimits
    ) -> None:
        self.substage = substage
        self.index = index
        self.producers: Sequence[int] = defuse.producers[index]
        self.n_users = len(defuse.users[index])
        try:
            self.shelf: Hashable = layout(*substage.domain, limits).physical
        except GraphError:  # placing the images names the one that is too large
            self.shelf = substage.domain[0]
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


class Growing:
    """A stage that grows; the cost of a substage does not depend on those that it has."""

    def __init__(self, first: Joining, limits: DeviceLimits) -> None:
        self.limits = limits
        self.is_dispatch = first.substage.is_dispatch
        self.framebuffer = first.shelf
        self.shelves = [] if self.is_dispatch else [first.shelf]
        self.attached: set[int] = set()
        self.fetched: set[int] = set()
        self.n_attachments = 0
        self.members: list[Joining] = []
        """From the last to the first."""
        self.edges: dict[int, int] = {}
        """Position of a substage -> number of its users in the stage."""
        self.add(first)

    def obstacle(self, item: Joining) -> Obstacle | None:
        """Return what keeps a substage out."""
        s = item.substage
        if s.is_dispatch or self.is_dispatch:
            return Obstacle("dispatch")
        if item.shelf != self.framebuffer:
            return Obstacle("framebuffer", item.shelf, self.framebuffer)
        for v in s.outputs:
            if v.uid in self.fetched:
                return Obstacle("fetched", v)
        if any(uid in self.fetched for uid in item.planes):
            return Obstacle("attached here")
        if not self.attached.isdisjoint(item.fetched):
            return Obstacle("fetched here")
        return attachment_obstacle(self.n_attachments + self._more(item), self.limits)

    def _more(self, item: Joining) -> int:
        """Return the attachments that the substage adds to those that the stage has."""
        new = (n for uid, n in item.planes.items() if uid not in self.attached)
        return sum(new) + item.substage.has_depth

    def add(self, item: Joining) -> None:
        """Take a substage."""
        self.n_attachments += self._more(item)
        self.attached.update(item.planes)
        self.fetched |= item.fetched
        self.members.append(item)
        for producer in item.producers:
            self.edges[producer] = self.edges.get(producer, 0) + 1

    def join(self, item: Joining, patience: int) -> bool | None:
        """Take a substage if nothing keeps it out."""
        if self.obstacle(item) is not None:
            return None
        self.add(item)
        return True

    def leave(self) -> int:
        """Never called: what has joined fits."""
        raise NotImplementedError


def why_not_stage(
    substage: Substage, others: Sequence[Substage], limits: DeviceLimits
) -> Obstacle | None:
    """Return what keeps a substage out of the stage of some others, which it would precede; None
    when it fits. others: in order of execution."""
    nodes = [substage, *others]
    index = DefUse(nodes)
    item, *members = (Joining(s, k, index, limits) for k, s in enumerate(nodes))
    if not members:
        return None
    grown = Growing(members[-1], limits)
    for member in reversed(members[:-1]):
        grown.add(member)
    return grown.obstacle(item)
