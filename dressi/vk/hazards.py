"""Hazards between the stages of a plan, and between its copies: which need a barrier before them.

In: stages and copies, in the order in which they are recorded. Out: barriers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dressi.errors import DeviceError
from dressi.packing.bindings import buffers_written
from dressi.packing.plan import Plan, StagePlan
from dressi.vk.api import Arena, CData
from dressi.vk.context import Context
from dressi.vk.image import Image, barrier, dispatch_barrier


class Hazards:
    """What stages since the last barrier access, and fills that no barrier has waited for: the
    hazards of the next stage."""

    def __init__(self) -> None:
        self.read: set[tuple[str, int]] = set()
        self.written: set[tuple[str, int]] = set()
        self.filled: set[tuple[str, int]] = set()
        self.stages: set[str] = set()
        """Their kinds."""

    def may_join(self, plan: Plan, stage: StagePlan) -> bool:
        """Return whether a stage has no hazard, so needs no barrier before it."""
        read, written = _accessed(plan, stage)
        if not self.stages:
            return self.filled.isdisjoint(read | written)
        return (
            self.stages == {stage.kind} == {"compute"}
            and self.written.isdisjoint(read | written)
            and self.read.isdisjoint(written)
            and self.filled.isdisjoint(read | written)
        )

    def wait(self, ctx: Context, commands: CData, plan: Plan, stage: StagePlan) -> Hazards:
        """Record the barrier before a stage; return the accesses that are open after it."""
        read, written = _accessed(plan, stage)
        later = Hazards()
        if self.stages | {stage.kind} != {"compute"}:
            barrier(ctx, commands)
        elif self.filled.isdisjoint(read | written):
            dispatch_barrier(ctx, commands)
            later.filled = self.filled
        else:
            dispatch_barrier(ctx, commands, transfers=True)
        return later

    def add(self, plan: Plan, stage: StagePlan) -> None:
        """Add what a stage accesses."""
        read, written = _accessed(plan, stage)
        self.read |= read
        self.written |= written
        self.stages.add(stage.kind)


def _accessed(plan: Plan, stage: StagePlan) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
    """Return the images and buffers that a stage reads and writes."""
    read: set[tuple[str, int]] = set()
    written: set[tuple[str, int]] = set()
    for s in stage.substages:
        buffers = buffers_written(plan, s)
        written |= {("image", i) for i in s.written}
        for b in s.bindings:
            if b.kind == "buffer":
                (written if b.index in buffers else read).add(("buffer", b.index))
            elif b.kind not in ("uniform", "storage"):
                read.add(("image", b.index))
    return read, written


def record_copies(
    ctx: Context,
    commands: CData,
    plan: Plan,
    images: Sequence[Image],
    between: Callable[[Context, CData], None],
) -> None:
    """Record the updates, in order; a copy sees what earlier ones wrote. between: records a
    barrier."""
    c, arena = ctx.api.c, Arena(ctx.api)
    general = c.VK_IMAGE_LAYOUT_GENERAL
    layers = {"aspectMask": c.VK_IMAGE_ASPECT_COLOR_BIT, "layerCount": 1}
    read: set[int] = set()
    written: set[int] = set()
    for source, target in plan.updates:
        a, b = images[source], images[target]
        if (a.format, a.width, a.height) != (b.format, b.width, b.height) or source == target:
            raise DeviceError(
                f"plan '{plan.name}' cannot copy '{a.name}' ({a.format} {a.width}x{a.height}) to "
                f"'{b.name}' ({b.format} {b.width}x{b.height})"
            )
        if source in written or target in written or target in read:
            between(ctx, commands)
            read.clear()
            written.clear()
        read.add(source)
        written.add(target)
        region = arena.struct(
            "VkImageCopy",
            srcSubresource=layers,
            dstSubresource=layers,
            extent={"width": a.width, "height": a.height, "depth": 1},
        )
        ctx.api.lib.vkCmdCopyImage(commands, a.handle, general, b.handle, general, 1, region)
