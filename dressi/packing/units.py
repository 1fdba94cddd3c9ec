"""From Functions to units: what the packer moves around.

In: output Variables of a simplified graph. Out: units. A unit is one Function, or a rasterization
with everything per fragment behind it (they decide depth and discard together, so they share one
shader). The packer knows no op by name: only shader type, reads, sizes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from dressi.ad.graph import Function, Size, Variable, topological
from dressi.ad.registry import ANY, COMP, FRAG, RASTER, SAME, SAMPLER, VERTEX
from dressi.packing.accumulate import EXACT
from dressi.packing.defuse import topological_order
from dressi.packing.loops import loops

Domain = tuple[Size, int]


def domain_text(domain: Domain) -> str:
    """Return width x height, and x layers where there are several."""
    (w, h), layers = domain
    return f"{w}x{h}" + (f"x{layers}" if layers > 1 else "")


# How a shader accesses an input.
ATTACHMENT, TEXTURE, HW_SAMPLER = "attachment", "texture", "sampler"
BUFFER, UNIFORM, VERTEX_TEXTURE = "buffer", "uniform", "vertex"


@dataclass(frozen=True, eq=False, repr=False)
class Unit:
    """Functions that are packed together. ``index`` is the position in topological order."""

    index: int
    functions: tuple[Function, ...]
    kind: str
    domain: Domain
    reads: tuple[tuple[Variable, str], ...] = ()
    """Inputs from outside the unit (what is inline left out) and how they are read."""
    outputs: tuple[Variable, ...] = ()
    loops: bool = False  # whether the shader does for it

    def __repr__(self) -> str:
        return f"Unit({self.index}: {self.name})"

    @cached_property
    def inputs(self) -> list[Variable]:
        """What it reads from outside."""
        return [v for v, _ in self.reads]

    @property
    def name(self) -> str:
        return self.functions[-1].where

    @cached_property
    def is_uniform(self) -> bool:
        """Cheap work on one pixel, which a larger shader (whose ``pos`` is another) may repeat."""
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
    """Return whether a Variable lives in a storage buffer (it is written by scattering)."""
    return v.creator is not None and v.creator.op.scatter is not None


def is_exact(v: Variable, accumulation: str) -> bool:
    """Return whether a buffer holds sums that do not depend on the order of additions: all do, or
    the Function asks for it (attribute ``fixed_point``)."""
    f = v.creator
    if f is None or f.op.scatter != "add":
        return False
    return accumulation == EXACT or ("fixed_point", True) in f.attrs


def domain_of(f: Function) -> Domain:
    """Return the pixels that run a Function: of its output, or of what a scatter reads."""
    x = f.output if f.op.domain is None else f.inputs[f.op.domain]
    return x.size, x.layers


def make_units(
    outputs: Iterable[Variable], inline: Collection[int], cut: Collection[int] = ()
) -> list[Unit]:
    """Return units in topological order. inline: what ``find_inline`` returned. cut: uids of
    Variables that are not computed but read, like leaves."""
    functions = [f for f in topological(outputs, cut) if f.output.uid not in inline]
    groups: dict[int, list[Function]] = {}
    for f in functions:
        raster = f.output.fragment_of
        if raster is None and f.op.fragment_exit:
            raster = f.inputs[1].fragment_of
        groups.setdefault((raster or f).uid, []).append(f)
    # A group must stand where its last member stands: members may read what is written in between.
    ordered = sorted(groups.values(), key=lambda g: g[-1].uid)
    units = [_unit(k, group, inline) for k, group in enumerate(ordered)]
    # Groups may have moved Functions past their users.
    order = topological_order(units)
    return [u if (u := units[k]).index == i else replace(u, index=i) for i, k in enumerate(order)]


def _unit(index: int, functions: Sequence[Function], inline: Collection[int]) -> Unit:
    inside = {f.output.uid for f in functions}
    reads: dict[tuple[int, str], tuple[Variable, str] | None] = {}

    def read(x: Variable, how: str) -> None:
        if x.uid in inside or (x.uid, how) in reads:
            return
        reads[x.uid, how] = None if x.uid in inline else (x, how)
        if x.uid in inline:
            assert x.creator is not None
            for other in x.creator.inputs:
                read(other, SAME)

    for f in functions:
        for i, x in enumerate(f.inputs):
            read(x, f.op.read(i))
    first = functions[0]
    return Unit(
        index,
        tuple(functions),
        first.op.kind if first.op.kind in (RASTER, COMP) else FRAG,
        domain_of(first),
        tuple(r for r in reads.values() if r is not None),
        tuple(f.output for f in functions if f.output.fragment_of is None),
        any(map(loops, functions)),
    )


def access(v: Variable, read: str, domain: Domain, uniforms: Collection[int]) -> str:
    """Return how a shader over ``domain`` gets at v when an op reads it as ``read``."""
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
