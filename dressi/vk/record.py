"""Recording of a plan's command buffer: fills, stages in order, copies.

In: the plan and the Vulkan objects made for it. Out: a recorded VkCommandBuffer that may be
submitted any number of times (paper, A.9).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from dressi.errors import DeviceError
from dressi.packing.plan import DrawPlan, Plan, StagePlan, buffers_written
from dressi.vk.api import WHOLE_SIZE, Arena, CData
from dressi.vk.context import Context
from dressi.vk.image import Image, barrier, dispatch_barrier
from dressi.vk.memory import Buffer
from dressi.vk.pipeline import Bound
from dressi.vk.renderpass import RenderPass


@dataclass(frozen=True)
class Objects:
    """Everything that the commands of a plan name."""

    images: Sequence[Image]
    buffers: Sequence[Buffer]
    passes: Sequence[RenderPass | None]
    """By stage; None for compute."""
    bound: Sequence[Sequence[Bound]]
    """By stage and substage."""
    queries: CData = None
    """VkQueryPool with ``n_timestamps(plan)`` timestamps, or None."""


def n_timestamps(plan: Plan) -> int:
    """One before the first stage, one after each, one after the copies."""
    return len(plan.stages) + 2


def record(ctx: Context, commands: CData, plan: Plan, objects: Objects) -> None:
    """Records a whole step."""
    lib, what = ctx.api.lib, f"plan '{plan.name}'"
    begin = Arena(ctx.api).struct(
        "VkCommandBufferBeginInfo",
        flags=ctx.api.c.VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT,
    )
    ctx.check(lib.vkBeginCommandBuffer(commands, begin), "vkBeginCommandBuffer", what)
    only_dispatches = all(stage.kind == "compute" for stage in plan.stages)
    between = partial(dispatch_barrier, transfers=True) if only_dispatches else barrier
    if objects.queries is not None:
        lib.vkCmdResetQueryPool(commands, objects.queries, 0, n_timestamps(plan))
    # Orders this step after what comes before it in the same submit. After a submit that was waited
    # for everything is finished and available, and what is read here becomes visible.
    between(ctx, commands)
    # Dispatches that touch nothing that another one writes run side by side, and so do fills with
    # the stages that do not need them. Not when each is timed: then a time must be that of one
    # stage.
    timed = objects.queries is not None
    pending = _Accesses()
    for k, (buffer, p) in enumerate(zip(objects.buffers, plan.buffers, strict=True)):
        if p.fill:
            lib.vkCmdFillBuffer(commands, buffer.handle, 0, WHOLE_SIZE, p.empty)
            pending.filled.add(("buffer", k))
    if pending.filled and timed:
        between(ctx, commands)
        pending = _Accesses()
    _timestamp(ctx, commands, objects, 0)
    for i, stage in enumerate(plan.stages):
        render_pass = objects.passes[i]
        if (i and timed) or not pending.may_join(plan, stage):
            pending = pending.wait(ctx, commands, plan, stage)
        pending.add(plan, stage)
        if render_pass is not None:
            _graphics(ctx, commands, stage, render_pass, objects.bound[i])
        else:
            _compute(ctx, commands, stage, objects.bound[i])
        if timed:
            (dispatch_barrier if stage.kind == "compute" else barrier)(ctx, commands)
        _timestamp(ctx, commands, objects, i + 1)
    if plan.updates:
        between(ctx, commands)
    _copies(ctx, commands, plan, objects, between)
    _timestamp(ctx, commands, objects, len(plan.stages) + 1)
    # What comes after a step begins with a barrier, but one of dispatches does not wait for passes.
    if not only_dispatches:
        barrier(ctx, commands)
    ctx.check(lib.vkEndCommandBuffer(commands), "vkEndCommandBuffer", what)


class _Accesses:
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

    def wait(self, ctx: Context, commands: CData, plan: Plan, stage: StagePlan) -> _Accesses:
        """Record the barrier before a stage; return the accesses that are open after it."""
        read, written = _accessed(plan, stage)
        later = _Accesses()
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
    """Images and buffers that a stage reads and writes."""
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


def _timestamp(ctx: Context, commands: CData, objects: Objects, index: int) -> None:
    if objects.queries is not None:
        bottom = ctx.api.c.VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT
        ctx.api.lib.vkCmdWriteTimestamp(commands, bottom, objects.queries, index)


def _bind(ctx: Context, commands: CData, bound: Bound, point: int) -> None:
    lib, null = ctx.api.lib, ctx.api.null
    lib.vkCmdBindPipeline(commands, point, bound.pipeline)
    if bound.descriptors is not None:
        lib.vkCmdBindDescriptorSets(commands, point, bound.layout, 0, 1, bound.descriptors, 0, null)


def _graphics(
    ctx: Context,
    commands: CData,
    stage: StagePlan,
    render_pass: RenderPass,
    bound: Sequence[Bound],
) -> None:
    lib, c = ctx.api.lib, ctx.api.c
    inline = c.VK_SUBPASS_CONTENTS_INLINE
    lib.vkCmdBeginRenderPass(commands, render_pass.begin, inline)
    current: tuple[object, ...] | None = None
    for i, substage in enumerate(stage.substages):
        if i:
            lib.vkCmdNextSubpass(commands, inline)
        _bind(ctx, commands, bound[i], c.VK_PIPELINE_BIND_POINT_GRAPHICS)
        for draw in substage.draws:
            rectangle = (draw.x, draw.y, draw.width, draw.height, draw.scissor)
            if rectangle != current:
                _set_rectangle(ctx, commands, draw)
                current = rectangle
            lib.vkCmdDraw(commands, draw.n_vertices, 1, 0, draw.first_instance)
    lib.vkCmdEndRenderPass(commands)


def _set_rectangle(ctx: Context, commands: CData, draw: DrawPlan) -> None:
    arena = Arena(ctx.api)
    viewport = arena.struct(
        "VkViewport",
        x=draw.x,
        y=draw.y,
        width=draw.width,
        height=draw.height,
        minDepth=0.0,
        maxDepth=1.0,
    )
    x, y, width, height = draw.scissor or (draw.x, draw.y, draw.width, draw.height)
    scissor = arena.struct(
        "VkRect2D", offset={"x": x, "y": y}, extent={"width": width, "height": height}
    )
    ctx.api.lib.vkCmdSetViewport(commands, 0, 1, viewport)
    ctx.api.lib.vkCmdSetScissor(commands, 0, 1, scissor)


def _compute(ctx: Context, commands: CData, stage: StagePlan, bound: Sequence[Bound]) -> None:
    for i, substage in enumerate(stage.substages):
        if i:
            dispatch_barrier(ctx, commands)
        _bind(ctx, commands, bound[i], ctx.api.c.VK_PIPELINE_BIND_POINT_COMPUTE)
        allowed = tuple(ctx.properties.limits.maxComputeWorkGroupCount)
        if any(n > most for n, most in zip(substage.groups, allowed, strict=True)):
            raise DeviceError(
                f"substage '{substage.name}' dispatches {substage.groups} work groups; "
                f"{ctx.info.name} allows {allowed}"
            )
        ctx.api.lib.vkCmdDispatch(commands, *substage.groups)


def _copies(
    ctx: Context,
    commands: CData,
    plan: Plan,
    objects: Objects,
    between: Callable[[Context, CData], None],
) -> None:
    """The updates, in order; a copy sees what earlier ones wrote. between: records a barrier."""
    c, arena = ctx.api.c, Arena(ctx.api)
    general = c.VK_IMAGE_LAYOUT_GENERAL
    layers = {"aspectMask": c.VK_IMAGE_ASPECT_COLOR_BIT, "layerCount": 1}
    read: set[int] = set()
    written: set[int] = set()
    for source, target in plan.updates:
        a, b = objects.images[source], objects.images[target]
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
