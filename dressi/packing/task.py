"""What is to be packed, and what all passes go by.

In: outputs and updates of a graph, limits, options. Out: ``Task``; ``Context``, what the passes
from units to shaders need of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from dressi.ad.graph import Variable
from dressi.ad.registry import FRAG
from dressi.errors import GraphError
from dressi.packing.accumulate import ATOMIC, EXACT, LOOP
from dressi.packing.limits import DeviceLimits
from dressi.packing.options import Options
from dressi.packing.profile import DeviceProfile
from dressi.packing.units import Unit

MAX_PLANES = 4
"""Planes of the widest type (MAT4); spaces the keys of persistent images."""


def image_key(v: Variable, plane: int = 0) -> int:
    """Key of the persistent image of one plane of a leaf or a cached value (or of its buffer)."""
    return v.uid * MAX_PLANES + plane


@dataclass(frozen=True)
class Context:
    """What packing needs to know beside the units."""

    limits: DeviceLimits
    final: Collection[int]
    """Variables that must be written to images: graph outputs and updates."""
    uniforms: Collection[int] = frozenset()
    """Leaves that lie in the uniform block."""
    inline: Collection[int] = frozenset()
    """Variables that every shader recomputes."""
    deterministic: bool = False
    per_primitive: bool = True
    """As in Options."""
    image_loads: bool = False
    """As in Options, where the profile says so."""
    push_lengths: bool = True
    """As in Options, where the device is no CPU."""
    lowering: str = "graphics"
    """As in Options; ``auto`` asks the profile."""
    profile: DeviceProfile | None = None
    spill: bool = False
    """Whether same-pixel inputs for which no attachment is left are fetched as textures, from
    an earlier pass; else they keep units out."""
    by_level: bool = False
    """Whether a unit that a later pass reads at other pixels keeps out of a substage that has to
    come later than the unit would have to."""
    memo: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """What the candidates of a graph find alike, by what it follows from."""

    def dispatches(self, unit: Unit) -> bool:
        """Return whether a substage that begins with this unit should be a dispatch."""
        if unit.kind != FRAG or self.lowering == "graphics":
            return False
        (width, height), layers = unit.domain
        return self.lowering == "compute" or (
            self.profile is not None and self.profile.prefers_dispatch(width * height * layers)
        )

    @property
    def accumulation(self) -> str:
        """How a scatter adds: one of the modes of ``accumulate``."""
        if self.deterministic:
            return EXACT
        return ATOMIC if self.limits.float_atomics else LOOP


@dataclass(frozen=True)
class Task:
    """What is to be packed, and the choices that hold for all parts of it."""

    name: str
    outputs: tuple[Variable, ...]
    """Variables to keep in images (results of FRAG or RASTER Functions)."""
    updates: tuple[tuple[Variable, Variable], ...]
    """(leaf, its next value)."""
    limits: DeviceLimits
    options: Options = field(default_factory=Options)
    resident: frozenset[int] = frozenset()
    """uids of 1x1 leaves that live in images because steps change them."""
    profile: DeviceProfile | None = None
    """Decides for ``lowering="auto"``; None: graphics."""
    changing: frozenset[int] = frozenset()
    """uids of leaves that are taken to change in every step although no update writes them."""
    uniforms: tuple[Variable, ...] = ()
    """Leaves in the uniform block: see the pass ``uniforms``."""
    inline: frozenset[int] = frozenset()
    """uids of what every shader recomputes: see the pass ``inline``."""

    def __post_init__(self) -> None:
        for leaf, new in self.updates:
            if (leaf.vtype, leaf.size, leaf.layers) != (new.vtype, new.size, new.layers):
                raise GraphError(
                    f"the update of {leaf.label()} is {new.label()}; type and size must match"
                )

    @property
    def wanted(self) -> list[Variable]:
        """Outputs and next values."""
        return [*self.outputs, *(new for _, new in self.updates)]

    def context(self, final: Iterable[Variable]) -> Context:
        """Return the Context in which the given Variables must be written."""
        on_cpu = self.profile is not None and self.profile.image_loads
        return Context(
            self.limits,
            final={v.uid for v in final},
            uniforms={v.uid for v in self.uniforms},
            inline=set(self.inline),
            deterministic=self.options.deterministic,
            per_primitive=self.options.per_primitive,
            image_loads=self.options.image_loads and on_cpu,
            push_lengths=self.options.push_lengths and not on_cpu,
            lowering=self.options.lowering,
            profile=self.profile,
        )
