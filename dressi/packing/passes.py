"""The table of contents of packing: all passes from a simplified graph to a Plan, in order.

In: a Program with a task. Out: the Program with a Plan. Each pass has a name, its switches in
``Options`` (or says why it has none) and a sentence that is true after it. ``walk`` runs passes in
the order of their table; ``DRESSI_DEBUG=3`` checks and prints the program after each. Before
packing, ``lower`` simplifies the graph; see ``options``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dressi import config
from dressi.packing import steps
from dressi.packing.epilogue import append_epilogues
from dressi.packing.fold import fold
from dressi.packing.inspection import check_program, log_pass
from dressi.packing.program import Program
from dressi.packing.rederive import rederive
from dressi.packing.rematerialize import dissolve, drop_dead, recompute
from dressi.packing.sparse import mark_sparse


@dataclass(frozen=True)
class Pass:
    """One pass over a Program."""

    name: str
    run: Callable[[Program], Program]
    after: str
    """A sentence that is true afterwards, where the switches are on."""
    switches: tuple[str, ...] = ()
    """Names in Options. The pass runs where all of them are on."""
    runs_always: bool = False
    """Whether it runs where one is off, too, and does less."""
    no_switch: str = ""
    """Why it has no switch."""

    def __call__(self, program: Program) -> Program:
        """Return the Program after the pass, as the switches say."""
        options = program.task.options
        on = all(getattr(options, name) for name in self.switches)
        return self.run(program) if on or self.runs_always else program


def walk(passes: Sequence[Pass], program: Program) -> Program:
    """Return the Program after all of the passes."""
    for each in passes:
        program = each(program)
        if config.debug_level() >= 3:
            check_program(program)
            log_pass(program, each.name, each.after)
    return program


# -- choices for the whole graph -------------------------------------------------------------------

CHOICES = (
    Pass(
        "uniforms",
        steps.uniforms,
        "The 1x1 leaves that no step writes lie in the uniform block, as far as it has room.",
        no_switch="a leaf lies in the block or in an image; only the block needs no descriptor",
    ),
    Pass(
        "inline",
        steps.inline,
        "Every shader computes constants, coordinates, and short chains of them and of uniforms.",
        ("rematerialize",),
        runs_always=True,
    ),
)

# -- Functions to units ----------------------------------------------------------------------------

UNITS = (
    Pass(
        "units",
        steps.units,
        "Every Function that is not inline stands in one unit, a rasterization with its fragments.",
        no_switch="only the notation changes",
    ),
)

# -- units to substages ----------------------------------------------------------------------------


def _over_substages(name: str, change: steps.Change, after: str, *switches: str) -> Pass:
    needed = ("pack_substages", "rematerialize", *switches)
    return Pass(name, steps.over_substages(change), after, needed)


SUBSTAGES = (
    Pass(
        "substages",
        steps.substages,
        "Every unit stands in one substage, behind all that it reads, within the device's limits.",
        ("pack_substages",),
        runs_always=True,
    ),
    _over_substages(
        "recompute",
        recompute,
        "No substage reads a same-pixel value that a few of its other inputs give.",
    ),
    _over_substages(
        "drop dead outputs",
        drop_dead,
        "Every output is read by a later substage, or wanted.",
        "drop_dead_outputs",
    ),
    _over_substages(
        "dissolve",
        dissolve,
        "A substage of few same-pixel Functions of leaves is gone where all readers can run it.",
    ),
    _over_substages(
        "fold",
        fold,
        "A substage that one other reads, each pixel about once, is computed where it is fetched.",
    ),
    _over_substages(
        "epilogues",
        append_epilogues,
        "Operations on the one pixel that a workgroup sums run in its dispatch.",
    ),
    _over_substages(
        "rederive",
        rederive,
        "No pass carries what is predicted to be cheaper to compute from what is stored anyway.",
        "rederive",
    ),
    Pass(
        "sparse",
        steps.over_substages(mark_sparse),
        "A pass of which a mask makes most of the work needless runs that where the mask is not 0.",
        ("sparse",),
    ),
)

# -- substages to a Plan ---------------------------------------------------------------------------

PLAN = (
    Pass(
        "stages",
        steps.stages,
        "Every substage stands in one stage, and no stage fetches what it attaches.",
        ("pack_stages",),
        runs_always=True,
    ),
    Pass(
        "updates last",
        steps.updates_last,
        "What reads a leaf runs before what writes its next value, where that costs no stage.",
        ("zero_copy",),
    ),
    Pass(
        "levels",
        steps.levels,
        "Where there are dispatches, stages that wait for fewer others run first.",
        no_switch="only the order of independent stages changes",
    ),
    Pass(
        "places",
        steps.places,
        "Every value that a shader reads or writes has slots, images or a buffer of its own.",
        no_switch="a Plan names images, not Variables",
    ),
    Pass(
        "shaders",
        steps.shaders,
        "Every substage is GLSL with bindings, and the Plan is complete.",
        no_switch="this is what the device runs",
    ),
    Pass(
        "in place",
        steps.in_place,
        "No update is a copy where its new value can be written straight into the leaf.",
        ("zero_copy",),
    ),
    Pass(
        "reuse",
        steps.reuse,
        "Values of one format and size whose lifetimes do not meet share an image.",
        ("reuse_images",),
    ),
)

PASSES = (*CHOICES, *UNITS, *SUBSTAGES, *PLAN)
"""All passes in order. ``build`` walks UNITS once and SUBSTAGES for each candidate."""
