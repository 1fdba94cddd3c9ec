"""A substage: the units of one shader, and how the shader accesses its inputs.

In: units, outputs. Out: a frozen ``Substage``, whose reads follow from its units. A pass that
changes a substage makes another one (``rebuilt``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dressi.ad.graph import Variable
from dressi.ad.registry import COMP, RASTER, SAME
from dressi.packing.limits import DeviceLimits
from dressi.packing.obstacles import (
    BUFFERS,
    IMAGES,
    INPUTS,
    LEAVES,
    SAMPLED,
    SAMPLERS,
    SCATTERED,
    Obstacle,
    Use,
    limit_obstacle,
)
from dressi.packing.task import Context
from dressi.packing.units import (
    ATTACHMENT,
    BUFFER,
    HW_SAMPLER,
    TEXTURE,
    UNIFORM,
    VERTEX_TEXTURE,
    Domain,
    Unit,
    access,
    domain_text,
    in_buffer,
)

Reads = Mapping[int, tuple[Variable, frozenset[str]]]
"""Inputs from outside by uid, with all accesses that the units ask for."""


def one_access(accesses: Collection[str], attachable: bool) -> str:
    """The one access to an input that serves all units that read it."""
    if accesses == {ATTACHMENT} and attachable:
        return ATTACHMENT
    for each in (UNIFORM, BUFFER, HW_SAMPLER):
        if each in accesses:
            return each
    return VERTEX_TEXTURE if accesses == {VERTEX_TEXTURE} else TEXTURE


@dataclass(frozen=True, eq=False, repr=False)
class Substage:
    """Units of one shader, in order of execution. Made by ``make_substage`` and ``rebuilt``."""

    kind: str
    domain: Domain
    units: tuple[Unit, ...]
    outputs: tuple[Variable, ...]
    """Variables written to images or buffers."""
    reads: Reads
    as_textures: frozenset[int] = frozenset()
    """Same-pixel inputs that are fetched as textures because there are too few input
    attachments."""
    lowered: bool = False
    """Whether the fragment Functions run in a dispatch."""
    computed: Mapping[int, tuple[Unit, ...]] = field(default_factory=dict)
    """Variables by uid that are computed where they are read at any pixel: by these units."""

    def __repr__(self) -> str:
        return f"Substage({self.name} over {domain_text(self.domain)})"

    @property
    def inputs(self) -> Iterable[Variable]:
        """What it reads from outside."""
        return [v for v, _ in self.reads.values()]

    @property
    def n_functions(self) -> int:
        folded = sum(len(u.functions) for chain in self.computed.values() for u in chain)
        return folded + sum(len(u.functions) for u in self.units)

    @property
    def name(self) -> str:
        names = [f.op.name for u in self.units for f in u.functions]
        return ",".join(names[:3]) + (f",+{len(names) - 3}" if len(names) > 3 else "")

    def access(self, v: Variable, accesses: Collection[str]) -> str:
        """The one access by which the shader reads v (an image that is read at other pixels too is
        no attachment)."""
        return one_access(accesses, v.uid not in self.as_textures and not self.is_dispatch)

    @property
    def n_pixels(self) -> int:
        """Pixels that run the shader."""
        (width, height), layers = self.domain
        return width * height * layers

    @property
    def is_wide(self) -> bool:
        """Whether an image that is read or written pixel by pixel has more than two components."""
        same = [v for v, accesses in self.reads.values() if ATTACHMENT in accesses]
        written = [v for v in self.outputs if not in_buffer(v)]
        return any(v.vtype.plane.n > 2 for v in (*same, *written))

    @property
    def is_dispatch(self) -> bool:
        """Whether it is a compute dispatch, not a subpass."""
        return self.lowered or self.kind == COMP

    @property
    def reads_own_pixel_only(self) -> bool:
        """Whether no unit reads other pixels."""
        return all(read == SAME for u in self.units for _, read in u.reads)


def make_substage(
    kind: str,
    domain: Domain,
    units: Sequence[Unit],
    outputs: Sequence[Variable],
    context: Context,
    as_textures: Collection[int] = (),
    lowered: bool = False,
    computed: Mapping[int, Sequence[Unit]] | None = None,
) -> Substage:
    """A substage whose reads follow from its units. units: in order of execution."""
    chains = {uid: tuple(chain) for uid, chain in (computed or {}).items()}
    accesses: dict[int, tuple[Variable, set[str]]] = {}

    def add(unit: Unit, known: Collection[int], attach: bool) -> None:
        for v, read in unit.reads:
            if v.uid in known:
                continue
            how = access(v, read, domain, context.uniforms)
            if how == ATTACHMENT and not attach:
                how = TEXTURE
            accesses.setdefault(v.uid, (v, set()))[1].add(how)

    inside = {v.uid for u in units for v in u.outputs} | chains.keys()
    # Of a dispatch in groups only its epilogue reads the pixel it is at (``epilogue``).
    for unit in reversed(units):
        add(unit, inside, lowered or kind != COMP)
    for chain in chains.values():
        known = {v.uid for u in chain for v in u.outputs} | chains.keys()
        for unit in chain:
            add(unit, known, False)
    reads = {uid: (v, frozenset(hows)) for uid, (v, hows) in accesses.items()}
    return Substage(
        kind,
        domain,
        tuple(units),
        tuple(outputs),
        reads,
        frozenset(as_textures),
        lowered,
        chains,
    )


def rebuilt(s: Substage, context: Context, **changes: Any) -> Substage:
    """The substage with some fields replaced, and the reads that follow from them."""
    new = replace(s, **changes)
    return make_substage(
        new.kind,
        new.domain,
        new.units,
        new.outputs,
        context,
        new.as_textures,
        new.lowered,
        new.computed,
    )


def needed_units(units: Sequence[Unit], wanted: Iterable[Variable]) -> list[Unit]:
    """Those units that some values need, in order of execution."""
    needed = {v.uid for v in wanted}
    chain: list[Unit] = []
    for unit in reversed(units):
        if any(v.uid in needed for v in unit.outputs):
            chain.append(unit)
            needed |= {v.uid for v in unit.inputs}
    chain.reverse()
    return chain


def use_of(s: Substage) -> Use:
    """How much of each limit a substage uses."""
    use = [0] * 7
    for v, accesses in s.reads.values():
        count_input(use, s.access(v, accesses), v.vtype.n_planes, v.creator is None)
    for v in s.outputs:
        if in_buffer(v):
            use[BUFFERS] += 1
            use[SCATTERED] += 1
        else:
            use[IMAGES] += v.vtype.n_planes
    return use


def count_input(use: Use, how: str, n_planes: int, leaf: bool, sign: int = 1) -> None:
    """Add an input to what a shader uses, or take it away."""
    if how == ATTACHMENT:
        use[INPUTS] += sign * n_planes
        if leaf:
            use[LEAVES] += sign * n_planes
    elif how == BUFFER:
        use[BUFFERS] += sign
    elif how != UNIFORM:
        use[SAMPLED] += sign * n_planes
        if how == HW_SAMPLER:
            use[SAMPLERS] += sign * n_planes


def broken_limit(s: Substage, limits: DeviceLimits) -> Obstacle | None:
    """The limit of the device that a substage breaks, if any."""
    return limit_obstacle(use_of(s), limits, s.kind == RASTER, s.is_dispatch, s.lowered)
