"""Recording of a plan's command buffer: fills, stages in order, copies.

In: the plan and the Vulkan objects made for it. Out: a recorded VkCommandBuffer that may be
submitted any number of times (paper, A.10).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from dressi.errors import DeviceError
from dressi.packing.plan import DrawPlan, Plan, StagePlan
from dressi.vk.api import WHOLE_SIZE, Arena, CData
from dressi.vk.context import Context
from dressi.vk.descriptors import push
from dressi.vk.hazards import Hazards, record_copies
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
    """VkQueryPool (start of the first stage, end of each, end of the copies), or None."""


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
        lib.vkCmdResetQueryPool(commands, objects.queries, 0, len(plan.stages) + 2)
    # Orders this step after what comes before it in the same submit. After a submit that was waited
    # for everything is finished and available, and what is read here becomes visible.
    between(ctx, commands)
    # Dispatches that touch nothing that another one writes run side by side, and so do fills with
    # the stages that do not need them. Not when each is timed: then a time must be that of one
    # stage.
    timed = objects.queries is not None
    pending = Hazards()
    for k, (buffer, p) in enumerate(zip(objects.buffers, plan.buffers, strict=True)):
        if p.fill:
            lib.vkCmdFillBuffer(commands, buffer.handle, 0, WHOLE_SIZE, p.empty)
            pending.filled.add(("buffer", k))
    if pending.filled and timed:
        between(ctx, commands)
        pending = Hazards()
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
    record_copies(ctx, commands, plan, objects.images, between)
    _timestamp(ctx, commands, objects, len(plan.stages) + 1)
    # What comes after a step begins with a barrier, but one of dispatches does not wait for passes.
    if not only_dispatches:
        barrier(ctx, commands)
    ctx.check(lib.vkEndCommandBuffer(commands), "vkEndCommandBuffer", what)


def _timestamp(ctx: Context, commands: CData, objects: Objects, index: int) -> None:
    if objects.queries is not None:
        bottom = ctx.api.c.VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT
        ctx.api.lib.vkCmdWriteTimestamp(commands, bottom, objects.queries, index)


def _bind(ctx: Context, commands: CData, bound: Bound, pushed: Sequence[int], point: int) -> None:
    lib, null = ctx.api.lib, ctx.api.null
    lib.vkCmdBindPipeline(commands, point, bound.pipeline)
    if bound.descriptors is not None:
        lib.vkCmdBindDescriptorSets(commands, point, bound.layout, 0, 1, bound.descriptors, 0, null)
    push(ctx, commands, bound.layout, pushed)


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
        _bind(ctx, commands, bound[i], substage.pushed, c.VK_PIPELINE_BIND_POINT_GRAPHICS)
        for k, draw in enumerate(substage.draws):
            if bound[i].outside is not None and k < 2:
                pipeline = bound[i].pipeline if k else bound[i].outside
                lib.vkCmdBindPipeline(commands, c.VK_PIPELINE_BIND_POINT_GRAPHICS, pipeline)
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
        _bind(ctx, commands, bound[i], substage.pushed, ctx.api.c.VK_PIPELINE_BIND_POINT_COMPUTE)
        allowed = tuple(ctx.properties.limits.maxComputeWorkGroupCount)
        if any(n > most for n, most in zip(substage.groups, allowed, strict=True)):
            raise DeviceError(
                f"substage '{substage.name}' dispatches {substage.groups} work groups; "
                f"{ctx.info.name} allows {allowed}"
            )
        ctx.api.lib.vkCmdDispatch(commands, *substage.groups)
