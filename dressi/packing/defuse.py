"""The def-use index of units or substages: who writes each Variable, and who reads it.

In: nodes in order of execution. Out: ``DefUse``. A pass computes it once from what it is given and
does not change it; positions in the order stand for the nodes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from dressi.ad.graph import Variable


class Node(Protocol):
    """A unit or a substage."""

    @property
    def outputs(self) -> Sequence[Variable]: ...

    @property
    def inputs(self) -> Iterable[Variable]:
        """What it reads from outside; perhaps more than once."""


N = TypeVar("N", bound=Node)


def needed(nodes: Sequence[N], wanted: Iterable[Variable]) -> tuple[N, ...]:
    """Return those nodes that some values need, in order of execution."""
    uids = {v.uid for v in wanted}
    chain: list[N] = []
    for node in reversed(nodes):
        for v in node.outputs:  # a loop: ``any`` takes twice the time, and this runs often
            if v.uid in uids:
                chain.append(node)
                uids.update([x.uid for x in node.inputs])
                break
    return tuple(reversed(chain))


class DefUse:
    """Positions of writers and readers. ``order``: pairs (position, position) of nodes of which the
    first must come before the second although the second reads nothing of it."""

    def __init__(self, nodes: Sequence[Node], order: Iterable[tuple[int, int]] = ()) -> None:
        self.writer = {v.uid: k for k, node in enumerate(nodes) for v in node.outputs}
        """uid of a Variable -> the node that writes it."""
        self.readers: dict[int, list[int]] = {}
        """uid of a Variable -> the nodes that read it, each once, in order."""
        producers: list[dict[int, None]] = []
        for k, node in enumerate(nodes):
            mine: dict[int, None] = {}
            for uid in dict.fromkeys(v.uid for v in node.inputs):
                self.readers.setdefault(uid, []).append(k)
                producer = self.writer.get(uid)
                if producer is not None and producer != k:
                    mine[producer] = None
            producers.append(mine)
        for first, second in order:
            producers[second][first] = None
        self.producers = [tuple(mine) for mine in producers]
        """Of each node the nodes that must come before it."""
        self.users: list[list[int]] = [[] for _ in producers]
        """Of each node the nodes that must come after it."""
        for k, mine in enumerate(producers):
            for producer in mine:
                self.users[producer].append(k)


def topological_order(nodes: Sequence[Node]) -> list[int]:
    """Return positions by Kahn's algorithm, the earliest first."""
    index = DefUse(nodes)
    waiting = [len(producers) for producers in index.producers]
    heap = [k for k, n in enumerate(waiting) if n == 0]
    order: list[int] = []
    while heap:
        k = heapq.heappop(heap)
        order.append(k)
        for user in index.users[k]:
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(heap, user)
    assert len(order) == len(nodes), "a cycle"
    return order
