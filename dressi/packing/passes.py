"""The table of contents of packing: all passes from a simplified graph to a Plan, in order.

In: a Program with a task. Out: the Program with a Plan. Each pass has a name, its switches in
``Options`` (or says why it has none), a sentence that is true after it, a printer and a checker.
``walk`` runs passes in the order of their table; ``DRESSI_DEBUG=3`` checks and prints the program
after each. Before packing, ``lower`` simplifies the graph; see SWITCHES_ELSEWHERE.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dressi import config
from dressi.ad.graph import leaves
from dressi.packing.assemble import plan_stages
from dressi.packing.epilogue import append_epilogues
from dressi.packing.fold import fold
from dressi.packing.greedy import pack_substages
from dressi.packing.inspection import (
    check_choices,
    check_program_plan,
    check_stages,
    check_substages,
    check_units,
    choices_text,
    program_plan_text,
    stages_text,
    substages_text,
    units_text,
)
from dressi.packing.lifetimes import Moves, reuse_images, write_in_place
from dressi.packing.places import choose_uniforms, outside_values, place
from dressi.packing.plan import Plan
from dressi.packing.program import Program
from dressi.packing.rematerialize import dissolve, drop_dead, recompute
from dressi.packing.stage import in_levels, pack_stages, update_order
from dressi.packing.substage import Substage
from dressi.packing.task import Context
from dressi.packing.units import find_inline, make_units

Step = Callable[[Program], Program]

SWITCHES_ELSEWHERE = {
    "merge_duplicates": "ad.simplify, before packing",
    "fold_constants": "ad.simplify, before packing",
    "peeling": "packing.lower, before packing",
    "lowering": "packing.lower, before packing, and build.pack_functions, which tries both",
    "deterministic": "packing.accumulate: the GLSL of a scatter",
    "cache": "packing.reactive: which part of a step is a program of its own",
}
"""Switches of Options that belong to no pass, and where they act."""


@dataclass(frozen=True)
class Pass:
    """One pass over a Program."""

    name: str
    run: Step
    after: str
    """A sentence that is true afterwards, where the switches are on."""
    switches: tuple[str, ...] = ()
    """Names in Options. The pass runs where all of them are on."""
    off: Step | None = None
    """What runs in its place where one is off; None: nothing."""
    no_switch: str = ""
    """Why it has no switch."""
    text: Callable[[Program], str] = program_plan_text
    check: Callable[[Program], None] = check_program_plan

    def __call__(self, program: Program) -> Program:
        """The Program after the pass, as the switches say."""
        options = program.task.options
        if all(getattr(options, name) for name in self.switches):
            return self.run(program)
        return program if self.off is None else self.off(program)


def walk(passes: Sequence[Pass], program: Program) -> Program:
    """The Program after all of the passes."""
    debug = config.debug_level() >= 3
    for each in passes:
        program = each(program)
        if debug:
            each.check(program)
            logging.getLogger("dressi").debug(
                "%s: after the pass %s: %s\n%s",
                program.name,
                each.name,
                each.after,
                each.text(program),
            )
    return program


# -- choices for the whole graph -------------------------------------------------------------------


def _uniforms(p: Program) -> Program:
    written = {leaf.uid for leaf, _ in p.task.updates}
    resident = written | p.task.resident
    uniforms = tuple(choose_uniforms(leaves(p.wanted), resident, p.task.limits))
    return replace(p, task=replace(p.task, uniforms=uniforms))


def _inline(chains: bool) -> Step:
    def run(p: Program) -> Program:
        uniforms = {v.uid for v in p.task.uniforms}
        inline = frozenset(find_inline(p.wanted, uniforms, chains))
        return replace(p, task=replace(p.task, inline=inline))

    return run


CHOICES = (
    Pass(
        "uniforms",
        _uniforms,
        "The 1x1 leaves that no step writes lie in the uniform block, as far as it has room.",
        no_switch="a leaf lies in the block or in an image; only the block needs no descriptor",
        text=choices_text,
        check=check_choices,
    ),
    Pass(
        "inline",
        _inline(chains=True),
        "Constants, coordinates and short chains of them and of uniforms are marked; every shader "
        "computes them where it needs them.",
        ("rematerialize",),
        off=_inline(chains=False),
        text=choices_text,
        check=check_choices,
    ),
)

# -- Functions to units ----------------------------------------------------------------------------


def _units(p: Program) -> Program:
    missing = [v for v in p.wanted if v.uid not in p.cut]
    return replace(p, units=tuple(make_units(missing, p.task.inline, p.cut)))


UNITS = (
    Pass(
        "units",
        _units,
        "Every Function that is not inline stands in one unit, and a rasterization in one with its "
        "fragments, which share its shader.",
        no_switch="only the notation changes",
        text=units_text,
        check=check_units,
    ),
)

# -- units to substages ----------------------------------------------------------------------------


def _substages(several: bool) -> Step:
    def run(p: Program) -> Program:
        return replace(p, substages=tuple(pack_substages(p.units, p.context, several)))

    return run


def _substage_pass(
    name: str,
    change: Callable[[Sequence[Substage], Context], Sequence[Substage]],
    after: str,
    *switches: str,
) -> Pass:
    """A pass from substages to substages."""

    def run(p: Program) -> Program:
        return replace(p, substages=tuple(change(p.substages, p.context)))

    needed = ("pack_substages", "rematerialize", *switches)
    return Pass(name, run, after, needed, text=substages_text, check=check_substages)


SUBSTAGES = (
    Pass(
        "substages",
        _substages(several=True),
        "Every unit stands in one substage, behind all that it reads, and each substage keeps the "
        "limits of the device.",
        ("pack_substages",),
        off=_substages(several=False),
        text=substages_text,
        check=check_substages,
    ),
    _substage_pass(
        "recompute",
        recompute,
        "No substage reads a same-pixel value that a few of its other inputs give.",
    ),
    _substage_pass(
        "drop dead outputs",
        drop_dead,
        "Every output is read by a later substage, or wanted.",
        "drop_dead_outputs",
    ),
    _substage_pass(
        "dissolve",
        dissolve,
        "A substage of few same-pixel Functions of leaves is gone where all readers can run it.",
    ),
    _substage_pass(
        "fold",
        fold,
        "A substage that one other reads, each pixel about once, is computed where that fetches "
        "it.",
    ),
    _substage_pass(
        "epilogues",
        append_epilogues,
        "Operations on the one pixel that a workgroup sums run in its dispatch.",
    ),
)

# -- substages to a Plan ---------------------------------------------------------------------------


def _stages(several: bool) -> Step:
    def run(p: Program) -> Program:
        stages = pack_stages(p.substages, p.index, p.task.limits, several)
        return replace(p, stages=tuple(stages))

    return run


def _updates_last(p: Program) -> Program:
    order = tuple(update_order(p.index, p.updates))
    if not order:
        return p
    late = _stages(p.task.options.pack_stages)(replace(p, order=order))
    return late if len(late.stages) <= len(p.stages) else p


def _levels(p: Program) -> Program:
    return replace(p, stages=tuple(in_levels(p.stages, p.index)))


def _places(p: Program) -> Program:
    outside = outside_values(p.ordered, p.updates)
    uniforms = tuple(v for v in p.task.uniforms if p.all_uniforms or v.uid in outside)
    places, plan = place(p.name, p.ordered, outside, uniforms, p.keyed, p.updates, p.context)
    return replace(p, outside=outside, uniforms=uniforms, places=places, plan=plan)


def _shaders(p: Program) -> Program:
    assert p.plan is not None
    stages = plan_stages(p.stages, p.places, p.context)
    return replace(p, plan=replace(p.plan, stages=stages))


def _in_place(p: Program) -> Program:
    assert p.plan is not None
    return _with_moves(p, *write_in_place(p.plan))


def _reuse(p: Program) -> Program:
    assert p.plan is not None
    kept = {i for v in p.outputs for i in p.places.images.get(v.uid, ())}
    return _with_moves(p, *reuse_images(p.plan, kept))


def _with_moves(p: Program, plan: Plan, moves: Moves) -> Program:
    """The Program with another Plan, in which images have moved."""
    images = {uid: tuple(moves[i] for i in at) for uid, at in p.places.images.items()}
    return replace(p, plan=plan, places=replace(p.places, images=images))


PLAN = (
    Pass(
        "stages",
        _stages(several=True),
        "Every substage stands in one stage, and no stage fetches what it attaches.",
        ("pack_stages",),
        off=_stages(several=False),
        text=stages_text,
        check=check_stages,
    ),
    Pass(
        "updates last",
        _updates_last,
        "What reads a leaf runs before what writes its next value, where that costs no stage.",
        ("zero_copy",),
        text=stages_text,
        check=check_stages,
    ),
    Pass(
        "levels",
        _levels,
        "Where there are dispatches, stages that wait for fewer others run first.",
        no_switch="only the order of independent stages changes",
        text=stages_text,
        check=check_stages,
    ),
    Pass(
        "places",
        _places,
        "Every value that a shader reads or writes has slots, images or a buffer of its own.",
        no_switch="a Plan names images, not Variables",
        check=check_stages,
    ),
    Pass(
        "shaders",
        _shaders,
        "Every substage is GLSL with bindings, and the Plan is complete.",
        no_switch="this is what the device runs",
    ),
    Pass(
        "in place",
        _in_place,
        "No update is a copy where its new value can be written straight into the leaf.",
        ("zero_copy",),
    ),
    Pass(
        "reuse",
        _reuse,
        "Values of one format and size whose lifetimes do not meet share an image.",
        ("reuse_images",),
    ),
)

PASSES = (*CHOICES, *UNITS, *SUBSTAGES, *PLAN)
"""All passes in order. ``build`` walks UNITS once and SUBSTAGES for each candidate."""
