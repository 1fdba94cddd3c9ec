"""From Functions to units: what the packer moves around.

In: output Variables of a simplified graph. Out: units. A unit is one Function, or a rasterization
with everything per fragment behind it (they decide depth and discard together, so they share one
shader). The packer knows no op by name: only shader type, reads, sizes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from dressi.ad.graph import Function, Size, Variable, topological
from dressi.ad.registry import ANY, COMP, FRAG, FREE, RASTER, SAME, SAMPLER, VERTEX
from dressi.packing.accumulate import EXACT

Domain = tuple[Size, int]

# How a shader gets at an input.
ATTACHMENT, TEXTURE, HW_SAMPLER, BUFFER, UNIFORM, VERTEX_TEXTURE = (
    "attachment",
    "texture",
    "sampler",
    "buffer",
    "uniform",
    "vertex",
)


@dataclass(eq=False, repr=False)
class Unit:
    """Functions that are packed together. ``index`` is the position in topological order."""

    index: int
    functions: list[Function]
    kind: str
    domain: Domain
    reads: list[tuple[Variable, str]] = field(default_factory=list)
    """Inputs from outside the unit (what is inline left out) and how they are read."""
    outputs: list[Variable] = field(default_factory=list)
    users: list[Unit] = field(default_factory=list)
    """Units that read an output, each once."""
    producers: list[Unit] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Unit({self.index}: {self.name})"  # not its users and theirs in turn

    @property
    def name(self) -> str:
        return self.functions[-1].where

    @property
    def is_uniform(self) -> bool:
        """Cheap work on one pixel, which may be repeated inside a larger shader (whose ``pos`` is
        another)."""
        return (
            self.domain[0] == (1, 1)
            and self.kind == FRAG
            and not self.has_scatter
            and all(read == SAME for _, read in self.reads)
        )

    @property
    def has_scatter(self) -> bool:
        return any(f.op.scatter for f in self.functions)


def in_buffer(v: Variable) -> bool:
    """Whether a Variable lives in a storage buffer (it is written by scattering)."""
    return v.creator is not None and v.creator.op.scatter is not None


def is_exact(v: Variable, way_to_add: str) -> bool:
    """Whether a buffer holds sums that do not depend on the order of additions: all do, or the
    Function asks for it (attribute ``fixed_point``)."""
    f = v.creator
    if f is None or f.op.scatter != "add":
        return False
    return way_to_add == EXACT or ("fixed_point", True) in f.attrs


def domain_of(f: Function) -> Domain:
    """The pixels that run a Function: those of its output, or of the input that a scatter reads."""
    if f.op.domain is not None:
        x = f.inputs[f.op.domain]
        return x.size, x.layers
    return f.output.size, f.output.layers


INLINE_UNIFORM, INLINE_PIXEL = 24, 4
"""Functions that a value made of constants and uniforms may take to be written into every shader
that uses it, for 1x1 values and for images: cheaper than a pass of its own, or than an
attachment."""


def find_inline(outputs: Iterable[Variable], uniforms: set[int], chains: bool = True) -> set[int]:
    """Variables that every shader recomputes: constants, coordinates, and (with ``chains``) short
    chains of cheap same-pixel Functions of them and of uniform leaves."""
    outs = list(outputs)
    functions = topological(outs)
    fetched = {v.uid for v in outs}
    for f in functions:
        fetched |= {x.uid for i, x in enumerate(f.inputs) if f.op.read(i) != SAME}
    cost: dict[int, int] = {}
    for f in functions:
        y = f.output
        if f.op.kind == FREE:
            cost[y.uid] = 0
            continue
        if (
            not chains
            or f.op.kind != FRAG
            or f.op.scatter
            or f.op.fragment_exit
            or y.fragment_of is not None
            or y.uid in fetched
            or not all(x.uid in cost or x.uid in uniforms for x in f.inputs)
        ):
            continue
        total = 1 + sum(cost.get(x.uid, 0) for x in f.inputs)
        if total <= (INLINE_UNIFORM if y.size == (1, 1) else INLINE_PIXEL):
            cost[y.uid] = total
    return set(cost)


def make_units(
    outputs: Iterable[Variable], inline: set[int], cut: Collection[int] = ()
) -> list[Unit]:
    """Units in topological order, connected. inline: what ``find_inline`` found. cut: uids of
    Variables that are not computed but read, like leaves."""
    functions = [f for f in topological(outputs, cut) if f.output.uid not in inline]
    groups: dict[int, list[Function]] = {}
    for f in functions:
        raster = f.output.fragment_of
        if raster is None and f.op.fragment_exit:
            raster = f.inputs[1].fragment_of
        groups.setdefault((raster or f).uid, []).append(f)
    # A group must stand where its last member stands: members may read what was made in between.
    ordered = sorted(groups.values(), key=lambda g: g[-1].uid)
    units: list[Unit] = []
    made_by: dict[int, Unit] = {}
    for members in ordered:
        first = members[0]
        kind = first.op.kind if first.op.kind in (RASTER, COMP) else FRAG
        unit = Unit(len(units), members, kind, domain_of(first))
        for f in members:
            made_by[f.output.uid] = unit
        units.append(unit)
    for unit in units:
        _connect(unit, made_by, inline)
    return _topological_units(units)


def _connect(unit: Unit, made_by: dict[int, Unit], inline: set[int]) -> None:
    inside = {f.output.uid for f in unit.functions}
    seen: set[tuple[int, str]] = set()
    known: set[int] = set()

    def read(x: Variable, how: str) -> None:
        if x.uid in inside or (x.uid, how) in seen:
            return
        seen.add((x.uid, how))
        if x.uid in inline:
            assert x.creator is not None
            for other in x.creator.inputs:
                read(other, SAME)
            return
        unit.reads.append((x, how))
        producer = made_by.get(x.uid)
        if producer is not None and producer.index not in known:
            known.add(producer.index)
            unit.producers.append(producer)
            producer.users.append(unit)

    for f in unit.functions:
        if f.output.fragment_of is None:
            unit.outputs.append(f.output)
        for i, x in enumerate(f.inputs):
            read(x, f.op.read(i))


def _topological_units(units: Sequence[Unit]) -> list[Unit]:
    """Kahn's algorithm, earliest index first (groups may have moved Functions past their users)."""
    import heapq

    waiting = {u.index: len(u.producers) for u in units}
    heap = [u.index for u in units if not u.producers]
    heapq.heapify(heap)
    order: list[Unit] = []
    while heap:
        unit = units[heapq.heappop(heap)]
        order.append(unit)
        for user in unit.users:
            waiting[user.index] -= 1
            if waiting[user.index] == 0:
                heapq.heappush(heap, user.index)
    assert len(order) == len(units), "cycle between units"
    for index, unit in enumerate(order):
        unit.index = index
    return order


def access(v: Variable, read: str, domain: Domain, uniforms: set[int]) -> str:
    """How a shader over ``domain`` gets at v when an op reads it as ``read``."""
    if v.uid in uniforms:
        return UNIFORM
    if in_buffer(v):
        return BUFFER
    if read == VERTEX:
        return VERTEX_TEXTURE
    if read == SAMPLER:
        return HW_SAMPLER
    if read == SAME and (v.size, v.layers) == domain:
        return ATTACHMENT
    assert read in (ANY, SAME)
    return TEXTURE
