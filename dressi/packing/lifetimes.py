"""Plan to Plan: updates written in place, and images shared by values whose lifetimes do not meet
(paper, 3.3.3: automatic reuse of VkImage).

In: a Plan. Out: an equal Plan with fewer copies and images, and where each old image went.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from dressi.packing.bindings import FETCHED
from dressi.packing.plan import Plan, StagePlan, SubstagePlan

Moves = dict[int, int]
"""Old position in ``Plan.images`` -> new position."""


SAME_PIXEL = ("input", "pixel")
"""Kinds of bindings through which a shader reads the pixel that it computes, and no other."""


@dataclass
class _Use:
    """Where an image is written and read: (stage, substage) pairs."""

    writes: list[tuple[int, int]] = field(default_factory=list)
    reads: list[tuple[int, int, str]] = field(default_factory=list)
    """The string is the kind of the binding."""
    cleared: bool = False

    def stages(self) -> list[int]:
        return [w[0] for w in self.writes] + [r[0] for r in self.reads]


def _uses(plan: Plan) -> list[_Use]:
    uses = [_Use() for _ in plan.images]
    for i, stage in enumerate(plan.stages):
        for k, s in enumerate(stage.substages):
            for index, clear in zip(s.outputs, s.clears, strict=True):
                uses[index].writes.append((i, k))
                uses[index].cleared |= clear is not None
            for b in s.bindings:
                if b.kind == "storage":
                    uses[b.index].writes.append((i, k))
                elif b.kind in (*SAME_PIXEL, *FETCHED):
                    uses[b.index].reads.append((i, k, b.kind))
    return uses


def write_in_place(plan: Plan) -> tuple[Plan, Moves]:
    """Updates whose new value can be written straight into the leaf's image: every reader of the
    old value comes before, or reads the very pixel that is written in the same subpass. The others
    stay copies."""
    uses = _uses(plan)
    moves: Moves = {}
    for source, target in plan.updates:
        if source not in moves and _in_place(plan, uses, source, target):
            moves[source] = target
            uses[target].writes += uses[source].writes
            uses[target].reads += uses[source].reads
    kept = tuple((a, b) for a, b in plan.updates if moves.get(a) != b)
    return _moved(replace(plan, updates=kept), moves)


def _in_place(plan: Plan, uses: list[_Use], source: int, target: int) -> bool:
    new, old = uses[source], uses[target]
    if plan.images[source].key is not None or old.writes:
        return False
    if len(new.writes) != 1 or new.cleared:
        return False
    stage, substage = new.writes[0]
    for i, k, kind in old.reads:
        if (i, k) > (stage, substage) or (i == stage and kind not in SAME_PIXEL):
            return False
    # In one render pass an image is attached or fetched, not both.
    return not any(i == stage and kind not in SAME_PIXEL for i, _, kind in new.reads)


def reuse_images(plan: Plan, kept: Collection[int]) -> tuple[Plan, Moves]:
    """Values of one format and size share an image when one is read for the last time in an earlier
    stage than the other is written. kept: positions of images that are read after the step."""
    uses = _uses(plan)
    held = set(kept) | {i for pair in plan.updates for i in pair}
    spans = []
    for image in plan.images:
        stages = uses[image.index].stages()
        if image.key is None and stages and image.index not in held:
            spans.append((min(stages), max(stages), image.index))
    free: dict[tuple[str, int, int], list[int]] = {}
    busy: list[tuple[int, int]] = []  # heap of (last stage that uses it, image)
    moves: Moves = {}

    def kind(index: int) -> tuple[str, int, int]:
        image = plan.images[index]
        return image.format, image.width, image.height

    for first, last, index in sorted(spans):
        while busy and busy[0][0] < first:
            other = heapq.heappop(busy)[1]
            free.setdefault(kind(other), []).append(other)
        room = free.get(kind(index))
        at = index
        if room:
            at = room.pop()
            moves[index] = at
        heapq.heappush(busy, (last, at))
    return _moved(plan, moves)


def _moved(plan: Plan, moves: Moves) -> tuple[Plan, Moves]:
    """The plan with some images replaced by others, and the positions closed up."""
    order = [i.index for i in plan.images if i.index not in moves]
    position = {old: new for new, old in enumerate(order)}
    where = {i.index: position[moves.get(i.index, i.index)] for i in plan.images}
    images = tuple(replace(plan.images[old], index=new) for new, old in enumerate(order))
    stages = tuple(_moved_stage(s, where) for s in plan.stages)
    updates = tuple((where[a], where[b]) for a, b in plan.updates)
    return replace(plan, images=images, stages=stages, updates=updates), where


def _moved_stage(stage: StagePlan, where: Moves) -> StagePlan:
    return replace(stage, substages=tuple(_moved_substage(s, where) for s in stage.substages))


def _moved_substage(s: SubstagePlan, where: Moves) -> SubstagePlan:
    bindings = tuple(
        b if b.kind in ("buffer", "uniform") else replace(b, index=where[b.index])
        for b in s.bindings
    )
    return replace(s, bindings=bindings, outputs=tuple(where[i] for i in s.outputs))
