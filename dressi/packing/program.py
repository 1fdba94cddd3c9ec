"""A step on its way from a graph to a Plan: what one pass hands to the next.

In: a ``Task``. Out: a frozen ``Program``, of which each pass fills or replaces some fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from dressi.ad.graph import Variable
from dressi.packing.defuse import DefUse
from dressi.packing.plan import Plan
from dressi.packing.shader_text import Places
from dressi.packing.stage import Stage
from dressi.packing.substage import Substage
from dressi.packing.task import Context, Task
from dressi.packing.units import Unit


@dataclass(frozen=True)
class Program:
    """The fields stand in the order in which the passes fill them."""

    task: Task
    name: str
    context: Context
    wanted: tuple[Variable, ...] = ()
    """Values to compute."""
    outputs: tuple[Variable, ...] = ()
    """Those of them that are kept for the user."""
    updates: tuple[tuple[Variable, Variable], ...] = ()
    """(leaf, its next value)."""
    cut: frozenset[int] = frozenset()
    """uids of values that are not computed, because another program keeps them."""
    keyed: frozenset[int] = frozenset()
    """uids of values that are kept for another program."""
    all_uniforms: bool = False
    """Whether the whole uniform block is kept, so that shaders stay as they were."""
    units: tuple[Unit, ...] = ()
    substages: tuple[Substage, ...] = ()
    """In order of execution."""
    stages: tuple[Stage, ...] = ()
    """In order of execution."""
    order: tuple[tuple[int, int], ...] = ()
    """Positions of substages that run one before the other although nothing is read."""
    outside: Mapping[int, Variable] = field(default_factory=dict)
    """By uid what the substages read and do not write, and leaves with updates."""
    uniforms: tuple[Variable, ...] = ()
    """Leaves in the uniform block of this program."""
    places: Places = field(default_factory=Places)
    """Where Variables lie."""
    plan: Plan | None = None

    @cached_property
    def index(self) -> DefUse:
        """Writers and readers among the substages."""
        return DefUse(self.substages, self.order)

    @property
    def ordered(self) -> tuple[Substage, ...]:
        """The substages in the order of the stages."""
        return tuple(s for stage in self.stages for s in stage.substages)
