"""A substage: the units of one shader, and how the shader accesses its inputs.

In: units, outputs. Out: a frozen ``Substage``, whose reads follow from its units. A pass that
changes a substage makes another one (``rebuilt``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from dressi.ad.graph import Variable
from dressi.ad.registry import COMP, RASTER, SAME
from dressi.packing.guard import Guard, Mixed
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
    """Return the one access to an input that serves all units that read it."""
    first = [each for each in (UNIFORM, BUFFER, HW_SAMPLER) if each in accesses]
    last = VERTEX_TEXTURE if accesses == {VERTEX_TEXTURE} else TEXTURE
    return ATTACHMENT if accesses == {ATTACHMENT} and attachable else [*first, last][0]


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
    guard: Guard | None = None
    """Of a sparse pass: see ``sparse``."""
    mixed: Mapping[int, Mixed] = field(default_factory=dict)
    """How inputs by uid are fetched that a pass writes in tiles."""

    def __repr__(self) -> str:
        return f"Substage({self.name} over {domain_text(self.domain)})"

    @cached_property
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
    def has_depth(self) -> bool:
        """Whether it has a depth attachment."""
        return self.kind == RASTER or (self.guard is not None and self.guard.tiles is None)

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
) -> Substage:
    """Return a substage whose reads follow from its units. units: in order of execution."""
    new = Substage(kind, domain, tuple(units), tuple(outputs), {}, frozenset(as_textures), lowered)
    return rebuilt(new, context)


def rebuilt(s: Substage, context: Context, **changes: Any) -> Substage:
    """Return the substage with some fields replaced, and the reads that follow from them. It is no
    sparse pass."""
    s = replace(s, **changes, guard=None)
    accesses: dict[int, tuple[Variable, set[str]]] = {}

    def add(unit: Unit, known: Collection[int], attach: bool) -> None:
        for v, read in unit.reads:
            if v.uid in known:
                continue
            how = access(v, read, s.domain, context.uniforms)
            if how == ATTACHMENT and not attach:
                how = TEXTURE
            accesses.setdefault(v.uid, (v, set()))[1].add(how)

    inside = {v.uid for u in s.units for v in u.outputs} | s.computed.keys()
    # Of a dispatch in groups only its epilogue reads the pixel it is at (``epilogue``).
    for unit in reversed(s.units):
        add(unit, inside, s.lowered or s.kind != COMP)
    for chain in s.computed.values():
        known = {v.uid for u in chain for v in u.outputs} | s.computed.keys()
        for unit in chain:
            add(unit, known, False)
    for mixed in s.mixed.values():
        for unit in mixed.units:
            add(unit, mixed.known, False)
    return replace(s, reads={uid: (v, frozenset(hows)) for uid, (v, hows) in accesses.items()})
