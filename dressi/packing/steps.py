"""The steps of packing, each from a Program to a Program: ``passes`` lists them in order.

In: a Program, of which the fields before a step are filled. Out: the Program with one more field,
or with another value in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dressi.ad.graph import leaves
from dressi.packing.assemble import plan_stages
from dressi.packing.greedy import pack_substages
from dressi.packing.inline import find_inline
from dressi.packing.lifetimes import Moves, reuse_images, write_in_place
from dressi.packing.order import in_levels, update_order
from dressi.packing.places import choose_uniforms, outside_values, place
from dressi.packing.plan import Plan
from dressi.packing.program import Program
from dressi.packing.stage import pack_stages
from dressi.packing.substage import Substage
from dressi.packing.task import Context
from dressi.packing.units import make_units

Step = Callable[[Program], Program]


def uniforms(p: Program) -> Program:
    """Choose the leaves that lie in the uniform block."""
    written = {leaf.uid for leaf, _ in p.task.updates}
    resident = written | p.task.resident
    chosen = tuple(choose_uniforms(leaves(p.wanted), resident, p.task.limits))
    return replace(p, task=replace(p.task, uniforms=chosen))


def inline(p: Program) -> Program:
    """Mark what every shader computes; short chains too, where they may be rematerialized."""
    known = {v.uid for v in p.task.uniforms}
    marked = find_inline(p.wanted, known, chains=p.task.options.rematerialize)
    return replace(p, task=replace(p.task, inline=frozenset(marked)))


def units(p: Program) -> Program:
    """Group the Functions that are computed here into units."""
    missing = [v for v in p.wanted if v.uid not in p.cut]
    return replace(p, units=tuple(make_units(missing, p.task.inline, p.cut)))


def substages(p: Program) -> Program:
    """Pack the units; one in each substage, where they may not be packed."""
    options = p.task.options
    packed = pack_substages(p.units, p.context, options.pack_substages, options.look_ahead)
    return replace(p, substages=tuple(packed))


Change = Callable[[Sequence[Substage], Context], Sequence[Substage]]
"""A pass over substages."""


def over_substages(change: Change) -> Step:
    """Return the step that applies a pass to the substages of a Program."""
    return lambda p: replace(p, substages=tuple(change(p.substages, p.context)))


def stages(p: Program) -> Program:
    """Pack the substages; one in each stage, where they may not be packed."""
    several = p.task.options.pack_stages
    return replace(p, stages=tuple(pack_stages(p.substages, p.index, p.task.limits, several)))


def updates_last(p: Program) -> Program:
    """Let readers of a leaf run before the writer of its next value."""
    order = tuple(update_order(p.index, p.updates))
    if not order:
        return p
    late = stages(replace(p, order=order))
    return late if len(late.stages) <= len(p.stages) else p


def levels(p: Program) -> Program:
    """Order stages by how many others they wait for."""
    return replace(p, stages=tuple(in_levels(p.stages, p.index)))


def places(p: Program) -> Program:
    """Give all values slots, images or buffers."""
    outside = outside_values(p.ordered, p.updates)
    kept = tuple(v for v in p.task.uniforms if p.all_uniforms or v.uid in outside)
    placed, plan = place(p.name, p.ordered, outside, kept, p.keyed, p.updates, p.context)
    return replace(p, outside=outside, uniforms=kept, places=placed, plan=plan)


def shaders(p: Program) -> Program:
    """Write the shaders of all stages into the Plan."""
    assert p.plan is not None
    return replace(p, plan=replace(p.plan, stages=plan_stages(p.stages, p.places, p.context)))


def in_place(p: Program) -> Program:
    """Write updates straight into their leaves."""
    assert p.plan is not None
    return _with_moves(p, *write_in_place(p.plan))


def reuse(p: Program) -> Program:
    """Let images share memory."""
    assert p.plan is not None
    kept = {i for v in p.outputs for i in p.places.images.get(v.uid, ())}
    return _with_moves(p, *reuse_images(p.plan, kept))


def _with_moves(p: Program, plan: Plan, moves: Moves) -> Program:
    """Return the Program with another Plan, in which images have moved."""
    images = {uid: tuple(moves[i] for i in at) for uid, at in p.places.images.items()}
    return replace(p, plan=plan, places=replace(p.places, images=images))
