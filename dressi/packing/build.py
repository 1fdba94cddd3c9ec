"""From a simplified graph to a frozen Plan: ``pack`` walks the passes of ``passes``.

In: outputs and updates of a graph, limits, options. Out: ``Packed``: the Plan and where each
Variable lies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from dressi.ad.graph import Variable
from dressi.packing.limits import DeviceLimits
from dressi.packing.obstacles import INPUTS
from dressi.packing.options import Options
from dressi.packing.order import in_levels
from dressi.packing.passes import CHOICES, PLAN, SUBSTAGES, UNITS, walk
from dressi.packing.plan import Plan
from dressi.packing.predict import moved_us, predicted_us, words_written
from dressi.packing.profile import DeviceProfile
from dressi.packing.program import Program
from dressi.packing.stage import Stage, pack_stages
from dressi.packing.substage import Substage
from dressi.packing.task import Task
from dressi.packing.use import use_of

TRIES_UP_TO = 4000
"""Units of a graph that is packed twice, to keep the candidate with fewer passes; for larger ones
the time is not spent twice."""


@dataclass(frozen=True)
class Packed:
    """A Plan, and where its Variables lie."""

    plan: Plan
    images: dict[int, tuple[int, ...]]
    """Variable uid -> positions in ``plan.images`` of its planes."""
    buffers: dict[int, int]
    slots: dict[int, int]
    """Uniform leaf uid -> first slot in the uniform block."""
    leaves: tuple[Variable, ...] = ()
    """Leaves that lie in persistent images."""
    uniforms: tuple[Variable, ...] = ()
    substages: tuple[Substage, ...] = field(default=(), repr=False)
    """In order of execution."""
    task: Task | None = field(default=None, repr=False)


def pack(
    outputs: Sequence[Variable],
    updates: Iterable[tuple[Variable, Variable]],
    limits: DeviceLimits,
    options: Options | None = None,
    name: str = "step",
    resident: Iterable[int] = (),
    profile: DeviceProfile | None = None,
    changing: Iterable[int] = (),
) -> Packed:
    """Pack a graph without macros.

    outputs: Variables to keep in images (results of FRAG or RASTER Functions). updates: (leaf, its
    next value): written in place where nothing reads the old value later, else copied after the
    last stage. resident: uids of 1x1 leaves that live in images on the device because steps change
    them. profile: how fast the device is, for ``lowering="auto"``. changing: uids of leaves that
    the cache takes to change in every step. An output that a scatter makes stays in its buffer.
    Raises PackingError, and GraphError for images too large for the device.
    """
    choices = frozenset(resident), profile, frozenset(changing)
    task = Task(name, tuple(outputs), tuple(updates), limits, options or Options(), *choices)
    return pack_task(task)


def pack_task(task: Task) -> Packed:
    """Functions into substages, substages into stages, stages into a Plan."""
    task = walk(CHOICES, Program(task, task.name, task.context(()), tuple(task.wanted))).task
    substages = pack_functions(task, task.wanted)
    return assemble(task, task.name, substages, task.outputs, task.updates)


def pack_functions(
    task: Task, wanted: Sequence[Variable], cut: Collection[int] = ()
) -> Sequence[Substage]:
    """Substages, in order of execution, that compute ``wanted``; cut: uids of Variables that are
    not computed because their persistent images hold them."""
    context, profile = task.context(wanted), task.profile
    start = Program(task, task.name, context, tuple(wanted), cut=frozenset(cut))
    start = walk(UNITS, start)
    best = _fewest_passes(start)
    mixed = len({s.is_dispatch for s in best.substages}) > 1
    if not mixed or profile is None or task.options.lowering != "auto":
        return best.substages
    # Each substage was chosen for itself. All lowered alike may be faster: nothing is changed over.
    candidates = [best]
    for lowering in ("graphics", "compute"):
        alike = replace(context, lowering=lowering)
        candidates.append(_fewest_passes(replace(start, context=alike)))
    return min(candidates, key=lambda p: predicted_us(_stages(p), profile)).substages


def _fewest_passes(start: Program) -> Program:
    """Return the best of two orders in which units join substages; where a profile says what a
    pass costs, also of those with inputs that spill."""
    best = _better_order(start)
    if start.task.profile is None or not _may_spill(best):
        return best
    spilled = _better_order(replace(start, context=replace(start.context, spill=True)))
    profile = start.task.profile
    return min(best, spilled, key=lambda p: moved_us(_stages(p), profile))


def _better_order(start: Program) -> Program:
    candidates = []
    for by_level in (False, True):
        context = replace(start.context, by_level=by_level)
        candidates.append(walk(SUBSTAGES, replace(start, context=context)))
        if len(start.units) > TRIES_UP_TO or not start.task.options.pack_substages:
            return candidates[0]
    return min(candidates, key=lambda p: (len(_stages(p)), _words_written(p.substages)))


def _may_spill(program: Program) -> bool:
    """Return whether input attachments are what substages are short of."""
    options = program.task.options
    if len(program.units) > TRIES_UP_TO or not (options.pack_substages and options.spill):
        return False
    passes = [s for s in program.substages if not s.is_dispatch]
    most = max((use_of(s)[INPUTS] for s in passes), default=0)
    return most > program.task.limits.input_attachments // 2


def _stages(program: Program) -> list[Stage]:
    """Return the stages that there would be."""
    several = program.task.options.pack_stages
    stages = pack_stages(program.substages, program.index, program.task.limits, several)
    return in_levels(stages, program.index)


def _words_written(substages: Sequence[Substage]) -> int:
    """Return how many words the substages write to images."""
    return sum(map(words_written, substages))


def assemble(
    task: Task,
    name: str,
    substages: Sequence[Substage],
    outputs: Sequence[Variable],
    updates: Sequence[tuple[Variable, Variable]],
    keyed: Collection[int] = (),
    all_uniforms: bool = False,
) -> Packed:
    """Return the Plan of some substages. What they read and do not write lies in persistent images.
    keyed: uids of what they write into persistent images. all_uniforms: keep the whole uniform
    block, so that shaders stay as they were."""
    wanted = [*outputs, *(new for _, new in updates)]
    program = Program(
        task,
        name,
        task.context(wanted),
        tuple(wanted),
        tuple(outputs),
        tuple(updates),
        keyed=frozenset(keyed),
        all_uniforms=all_uniforms,
        substages=tuple(substages),
    )
    p = walk(PLAN, program)
    assert p.plan is not None
    return Packed(
        p.plan,
        p.places.images,
        p.places.buffers,
        p.places.slots,
        tuple(
            v for v in p.outside.values() if v.creator is None and v.uid not in p.context.uniforms
        ),
        p.uniforms,
        p.ordered,
        task,
    )
