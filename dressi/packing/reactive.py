"""The reactive cache, as far as packing goes: which part of a step is clean, and a Plan for each
part (paper, 3.3.3 and figure on reactivity).

In: a Task or the substages it was packed into, and the uids of the leaves that change from step to
step. Out: ``Split``: a static Plan, run when something that it depends on changed, and a step Plan
that reads what it left in persistent images. Leaves that a step writes are never clean, so what
depends on a step counter (random numbers, schedules) is not either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from dressi.ad.graph import Variable
from dressi.ad.registry import FRAG, SAME
from dressi.packing.build import Packed, assemble, pack_functions
from dressi.packing.defuse import DefUse
from dressi.packing.substage import Substage
from dressi.packing.task import Task, image_key
from dressi.packing.units import Domain, Unit, in_buffer, make_units

MIN_GAIN = 0.1
"""Share of the predicted work of a step that a rebuild must leave out to be worth its time."""
MIN_CLEAN = 0.02
"""Share of the Functions x pixels that must be clean for a full rebuild to be tried at all."""
PASS_COST = 4096.0
"""What a pass costs before it touches a pixel, in Functions x pixels (30 us on lavapipe, where a
Function takes about 7 ns a pixel)."""


@dataclass(frozen=True)
class Split:
    """Two halves of a step and what lies between them."""

    static: Packed
    step: Packed
    keys: tuple[int, ...]
    """Keys of the persistent images and buffers that the static half writes."""
    left: float
    """Predicted work of the step half, in Functions x pixels."""
    gain: float
    """Share of the predicted work of a whole step that the step half leaves out."""
    depends: frozenset[int]
    """uids of the leaves that the static half depends on."""


def split_substages(packed: Packed, dirty: Collection[int]) -> Split | None:
    """The fast rebuild: the substages as they are, without the clean ones; no shader changes.
    None when too little is clean."""
    task = packed.task
    assert task is not None
    changed = _always_dirty(task) | set(dirty)
    stale: set[int] = set()  # uids of what dirty substages write
    clean: list[Substage] = []
    rest: list[Substage] = []
    for s in packed.substages:
        if any(uid in changed or uid in stale for uid in s.reads):
            stale |= {v.uid for v in s.outputs}
            rest.append(s)
        else:
            clean.append(s)
    cut = _cut({v.uid: v for s in clean for v in s.outputs}, _read_by(rest), task)
    if work(rest) > (1.0 - MIN_GAIN) * work(packed.substages):
        return None
    clean = _ancestors(clean, cut)
    return _halves(packed, clean, rest, cut, all_uniforms=True)


def split_functions(packed: Packed, dirty: Collection[int]) -> Split | None:
    """The full rebuild: Functions packed again, once those that are clean and once the others.
    packed: the whole step. None when too little is clean."""
    task = packed.task
    assert task is not None
    clean, rest = _by_cleanness(task, dirty)
    share = [sum(len(u.functions) * _pixels(u.domain) for u in part) for part in (clean, rest)]
    if share[0] < MIN_CLEAN * sum(share):
        return None
    read = {v.uid for u in rest for v, _ in u.reads}
    cut = _cut({v.uid: v for u in clean for v in u.outputs}, read, task)
    if task.options.rematerialize:
        cut = _cheaper(cut, clean, rest, task)
    static = pack_functions(task, list(cut.values()))
    step = pack_functions(task, task.wanted, set(cut))
    if work(step) > (1.0 - MIN_GAIN) * work(packed.substages):
        return None
    return _halves(packed, static, step, cut)


def split_changing(packed: Packed) -> Split:
    """What depends on leaves that were packed as ``changing``, and what the other outputs need: the
    backward and the forward pass of a graph whose upstream gradients are leaves.

    The forward pass is packed as if there were no other, and what it writes to images anyway
    (rasterizations, masks, tables) is what the backward pass reads; values that never leave a
    shader are computed again there. Kept in images, they would cost more: a branch that leaves a
    shader's work out at most pixels cannot leave out what is written.
    """
    task = packed.task
    assert task is not None
    stale = {v.uid for u in _by_cleanness(task, ())[1] for v in u.outputs}
    static = pack_functions(task, [v for v in task.wanted if v.uid not in stale])
    written = {v.uid: v for s in static for v in s.outputs}
    step = pack_functions(task, [v for v in task.wanted if v.uid in stale], set(written))
    return _halves(packed, static, step, _cut(written, _read_by(step), task))


def _by_cleanness(task: Task, dirty: Collection[int]) -> tuple[list[Unit], list[Unit]]:
    """Return the units that depend on nothing that changes, and the others."""
    changed = _always_dirty(task) | set(dirty)
    units = make_units(task.wanted, set(task.inline))
    stale: set[int] = set()
    clean: list[Unit] = []
    rest: list[Unit] = []
    for unit in units:
        if any(v.uid in changed or v.uid in stale for v, _ in unit.reads):
            stale |= {v.uid for v in unit.outputs}
            rest.append(unit)
        else:
            clean.append(unit)
    return clean, rest


def work(substages: Iterable[Substage]) -> float:
    """Predicted work, in Functions x pixels."""
    return sum(s.n_functions * _pixels(s.domain) + PASS_COST for s in substages)


def _pixels(domain: Domain) -> int:
    (width, height), layers = domain
    return width * height * layers


def _always_dirty(task: Task) -> set[int]:
    return {leaf.uid for leaf, _ in task.updates} | task.changing


def _cut(clean: dict[int, Variable], read: set[int], task: Task) -> dict[int, Variable]:
    """Clean values that the dirty part or the user needs."""
    needed = read | {v.uid for v in task.wanted}
    return {uid: v for uid, v in clean.items() if uid in needed}


def _read_by(substages: Iterable[Substage]) -> set[int]:
    return {uid for s in substages for uid in s.reads}


def _ancestors(clean: Sequence[Substage], cut: Collection[int]) -> list[Substage]:
    """Of the clean substages those that the cut needs."""
    needed = set(cut)
    kept: list[Substage] = []
    for s in reversed(clean):
        if any(v.uid in needed for v in s.outputs):
            needed |= set(s.reads)
            kept.append(s)
    kept.reverse()
    return kept


def _cheaper(
    cut: dict[int, Variable], clean: Sequence[Unit], rest: Sequence[Unit], task: Task
) -> dict[int, Variable]:
    """The cut moved towards the leaves where that makes it smaller: a value of one same-pixel
    Function is computed again from what the step reads anyway."""
    wanted = {v.uid for v in task.wanted}
    writer = DefUse(clean).writer
    out = dict(cut)
    read = {v.uid for u in rest for v, how in u.reads if how == SAME}
    for unit in reversed(clean):
        for v in unit.outputs:
            if v.uid not in out or v.uid in wanted or not _cheap(unit):
                continue
            inputs = [x for x, _ in unit.reads if x.uid not in read and x.uid not in out]
            if any(x.uid in writer and in_buffer(x) for x in inputs):
                continue
            if sum(_size(x) for x in inputs) >= _size(v):
                continue
            del out[v.uid]
            for x in inputs:
                if x.uid in writer:
                    out[x.uid] = x
            read |= {x.uid for x, _ in unit.reads}
    return out


def _cheap(unit: Unit) -> bool:
    f = unit.functions[0]
    return (
        len(unit.functions) == 1
        and f.op.kind == FRAG
        and not f.op.scatter
        and all(how == SAME for _, how in unit.reads)
    )


def _size(v: Variable) -> int:
    return v.size[0] * v.size[1] * v.layers * v.vtype.n_words


def _halves(
    packed: Packed,
    static: Sequence[Substage],
    step: Sequence[Substage],
    cut: dict[int, Variable],
    all_uniforms: bool = False,
) -> Split:
    task = packed.task
    assert task is not None
    keyed = set(cut)
    kept = [v for v in task.outputs if v.uid in keyed]
    first = assemble(task, "static", static, kept, (), keyed, all_uniforms)
    moving = [v for v in task.outputs if v.uid not in keyed]
    second = assemble(task, task.name, step, moving, task.updates, (), all_uniforms)
    keys = tuple(
        image_key(v, plane)
        for v in cut.values()
        for plane in range(1 if in_buffer(v) else v.vtype.n_planes)
    )
    depends = frozenset(v.uid for s in static for v, _ in s.reads.values() if v.creator is None)
    left = work(step)
    return Split(first, second, keys, left, 1.0 - left / work(packed.substages), depends)
