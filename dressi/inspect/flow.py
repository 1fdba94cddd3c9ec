"""Who writes what others read: plans as a graph of substages, to be drawn.

In: plans by name ("static", "step"). Out: ``Flow``: stages of substages, leaves, edges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dressi.packing.bindings import FETCHED, bound, buffers_written
from dressi.packing.plan import Plan, StagePlan, SubstagePlan

STATIC = "static"
"""Name of the plan whose stages are clean: run only when something that they depend on changed."""

READ, COPY, IN_PLACE = "read", "copy", "in place"
"""Kinds of edges; the last two are updates of leaves."""


@dataclass(frozen=True)
class Node:
    """A substage, or a leaf: an image or buffer that outlives the plans."""

    id: str
    label: str
    clean: bool
    functions: tuple[str, ...] = ()
    """``op  file:line`` of each Function of a substage."""
    writes: tuple[str, ...] = ()
    """Name and format of what a substage writes."""


@dataclass(frozen=True)
class StageNodes:
    """A stage and the nodes of its substages, in order."""

    plan: str
    stage: StagePlan
    clean: bool
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Edge:
    """What goes from one node to another. ``values``: name and format of each."""

    source: str
    target: str
    kind: str
    values: tuple[str, ...]
    clean: bool


@dataclass(frozen=True)
class Flow:
    """Plans as a graph."""

    stages: tuple[StageNodes, ...]
    leaves: tuple[Node, ...]
    edges: tuple[Edge, ...]


_Place = tuple[str, str, int]
"""Plan ("" when it outlives the plan), image or buffer, position or key."""


@dataclass
class _Builder:
    writers: dict[_Place, str] = field(default_factory=dict)
    """Node that wrote a place last."""
    leaves: dict[_Place, Node] = field(default_factory=dict)
    values: dict[tuple[str, str, str], dict[str, None]] = field(default_factory=dict)

    def connect(self, source: str, target: str, kind: str, value: str) -> None:
        self.values.setdefault((source, target, kind), {})[value] = None

    def leaf(self, place: _Place, label: str) -> str:
        if place not in self.leaves:
            self.leaves[place] = Node(f"leaf{len(self.leaves)}", label, True)
        return self.leaves[place].id

    def read(self, node: str, place: _Place, label: str) -> None:
        source = self.writers.get(place)
        if source is None and not place[0]:
            source = self.leaf(place, label)
        if source is not None:
            self.connect(source, node, READ, label)

    def substage(self, plan: Plan, name: str, s: SubstagePlan, id: str) -> Node:
        buffers = buffers_written(plan, s)
        for index in bound(s, "input", "pixel", *FETCHED):
            self.read(id, *_image(plan, name, index))
        for index in bound(s, "buffer"):
            self.read(id, *_buffer(plan, name, index))
        writes = [_image(plan, name, i) for i in s.written]
        writes += [_buffer(plan, name, i) for i in sorted(buffers)]
        for place, label in writes:
            self.writers[place] = id
            if not place[0] and name != STATIC:  # the static plan keeps values, and updates nothing
                self.connect(id, self.leaf(place, label), IN_PLACE, label)
        return Node(id, s.name, name == STATIC, s.functions, tuple(label for _, label in writes))

    def updates(self, plan: Plan, name: str) -> None:
        for source, target in plan.updates:
            (a, label), (b, what) = _image(plan, name, source), _image(plan, name, target)
            origin = self.writers.get(a) or self.leaf(a, label)
            self.connect(origin, self.leaf(b, what), COPY, label)
        # A later plan finds new data in leaves, whatever wrote it.
        if name != STATIC:
            for leaf in self.leaves:
                self.writers.pop(leaf, None)


def _image(plan: Plan, name: str, index: int) -> tuple[_Place, str]:
    image = plan.images[index]
    label = f"{image.name} {image.format} {image.width}x{image.height}"
    if image.key is not None:
        return ("", "image", image.key), label
    return (name, "image", index), label


def _buffer(plan: Plan, name: str, index: int) -> tuple[_Place, str]:
    buffer = plan.buffers[index]
    label = f"buffer {buffer.name} {buffer.n_words} words"
    if buffer.key is not None:
        return ("", "buffer", buffer.key), label
    return (name, "buffer", index), label


def ordered(plans: Mapping[str, Plan]) -> dict[str, Plan]:
    """The plans in the order in which they run: the static one first."""
    return dict(sorted(plans.items(), key=lambda item: item[0] != STATIC))


def flow(plans: Mapping[str, Plan]) -> Flow:
    """The plans as a graph. An image that several values share counts as what was written last."""
    builder, stages = _Builder(), []
    for p, (name, plan) in enumerate(ordered(plans).items()):
        for i, stage in enumerate(plan.stages):
            nodes = tuple(
                builder.substage(plan, name, s, f"p{p}s{i}b{k}")
                for k, s in enumerate(stage.substages)
            )
            stages.append(StageNodes(name, stage, name == STATIC, nodes))
        builder.updates(plan, name)
    clean = {node.id for stage in stages for node in stage.nodes if node.clean}
    lit = {leaf for s, t, _ in builder.values for leaf in (s, t) if not {s, t} & clean}
    leaves = tuple(replace(n, clean=n.id not in lit) for n in builder.leaves.values())
    edges = tuple(
        Edge(s, t, kind, tuple(values), t in clean)
        for (s, t, kind), values in builder.values.items()
    )
    return Flow(tuple(stages), leaves, edges)
