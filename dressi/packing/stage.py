"""Stage packing: substages into render passes, by the same strategy (paper, A.8).

In: substages in order of execution. Out: stages in order of execution, each a list of substages in
order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dressi.ad.registry import COMP, RASTER
from dressi.packing.layout import layout
from dressi.packing.substage import Context, Substage
from dressi.packing.units import ATTACHMENT, UNIFORM, in_buffer


@dataclass(eq=False)
class Stage:
    """Substages of one render pass (or the one of a dispatch), in order of execution."""

    substages: list[Substage] = field(default_factory=list)

    @property
    def is_dispatch(self) -> bool:
        return any(s.kind == COMP for s in self.substages)


def attachments(substage: Substage) -> set[int]:
    """Variables that are attachments of the subpass."""
    reads = {v.uid for v, ways in substage.reads.values() if substage.way(v, ways) == ATTACHMENT}
    return reads | {v.uid for v in substage.outputs if not in_buffer(v)}


def fetched(substage: Substage) -> set[int]:
    """Images and buffers that the substage reads at any pixel."""
    return {
        v.uid
        for v, ways in substage.reads.values()
        if substage.way(v, ways) not in (ATTACHMENT, UNIFORM)
    }


def why_not_stage(substage: Substage, stage: Stage, context: Context) -> list[str]:
    """Obstacles that keep a substage out of a stage; empty when it fits."""
    if not stage.substages:
        return []
    out: list[str] = []
    if substage.kind == COMP or stage.is_dispatch:
        return ["a dispatch stands alone"]
    mine = layout(*substage.domain, context.limits).physical
    theirs = layout(*stage.substages[0].domain, context.limits).physical
    if mine != theirs:
        return [f"framebuffer {mine[0]}x{mine[1]}, the stage's is {theirs[0]}x{theirs[1]}"]
    made = {v.uid: v for v in substage.outputs}
    attached = attachments(substage)
    for other in stage.substages:
        for uid in fetched(other):
            if uid in made:
                out.append(f"{made[uid].label()} is read at other pixels in the stage")
            elif uid in attached:
                out.append("an image is an attachment here and fetched in the stage")
        if fetched(substage) & attachments(other):
            out.append("an image is fetched here and an attachment in the stage")
    members = [substage, *stage.substages]
    n = 0
    for uid in set().union(*(attachments(s) for s in members)):
        n += _planes(uid, members)
    n += sum(s.kind == RASTER for s in members)
    if n > context.limits.stage_attachments:
        out.append(f"needs {n} attachments, a stage may have {context.limits.stage_attachments}")
    return out


def _planes(uid: int, members: Sequence[Substage]) -> int:
    for s in members:
        for v in s.outputs:
            if v.uid == uid:
                return v.vtype.n_planes
        if uid in s.reads:
            return s.reads[uid][0].vtype.n_planes
    return 1


def pack_stages(substages: Sequence[Substage], context: Context) -> list[Stage]:
    """Stages in order of execution."""
    position = {id(s): i for i, s in enumerate(substages)}
    waiting = {id(s): len(s.users) for s in substages}
    ready = [(-position[id(s)], s) for s in substages if not s.users]
    stages: list[Stage] = []
    while ready:
        stage = Stage()
        rejected: list[tuple[int, Substage]] = []
        candidates = ready
        ready = []
        while candidates:
            best = _best(candidates, stage)
            candidates.remove(best)
            substage = best[1]
            if stage.substages and (
                not context.pack_stages or why_not_stage(substage, stage, context)
            ):
                rejected.append(best)
                continue
            stage.substages.insert(0, substage)
            for producer in substage.producers:
                waiting[id(producer)] -= 1
                if waiting[id(producer)] == 0:
                    candidates.append((-position[id(producer)], producer))
        stages.append(stage)
        ready = rejected
    stages.reverse()
    return stages


def _best(candidates: Sequence[tuple[int, Substage]], stage: Stage) -> tuple[int, Substage]:
    """The candidate with the most edges to the stage; later ones first."""
    inside = {id(s) for s in stage.substages}
    return max(candidates, key=lambda c: (sum(id(u) in inside for u in c[1].users), -c[0]))
