"""Render passes and framebuffers.

In: a graphics StagePlan, its images. Out: the VkRenderPass of its ``PassShape``, and the
VkFramebuffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dressi.errors import DeviceError
from dressi.packing.plan import StagePlan
from dressi.vk.api import Arena, CData
from dressi.vk.context import Context, Owned
from dressi.vk.image import Image
from dressi.vk.pass_shape import (
    BUFFER,
    DEPTH,
    EXTERNAL,
    OTHER_READ,
    READ,
    WRITE,
    PassShape,
    SubpassShape,
    shape_of,
)
from dressi.vk.query import FORMATS
from dressi.vk.store import DepthPool


@dataclass(frozen=True)
class RenderPass:
    """A VkRenderPass with the framebuffer of one stage and the clear values of a run."""

    handle: CData
    framebuffer: CData
    begin: CData
    """Pointer to VkRenderPassBeginInfo."""
    arena: Arena
    """Keeps what ``begin`` points at."""


class RenderPasses:
    """Maker of an executable's render passes.

    Stages that differ only in their images share a VkRenderPass, so that their pipelines can be
    shared as well.
    """

    def __init__(self, ctx: Context, owned: Owned, depths: DepthPool) -> None:
        self._ctx = ctx
        self._owned = owned
        self._depths = depths
        self._handles: dict[tuple[object, ...], CData] = {}

    def create(self, stage: StagePlan, images: Sequence[Image]) -> RenderPass:
        """Render pass and framebuffer of a graphics stage; ``images``: all images of the plan."""
        ctx, owned, shape = self._ctx, self._owned, shape_of(stage)
        what, arena = f"stage '{stage.name}'", Arena(self._ctx.api)
        limit = ctx.limits.image_dim
        if not (1 <= stage.width <= limit and 1 <= stage.height <= limit):
            raise DeviceError(
                f"{what} is {stage.width}x{stage.height} pixels; {ctx.info.name} allows 1 to "
                f"{limit} (image_dim) on each side"
            )
        for index in shape.images:
            image = images[index]
            if (image.width, image.height) != (stage.width, stage.height):
                raise DeviceError(
                    f"{what} is {stage.width}x{stage.height}, its attachment '{image.name}' is "
                    f"{image.width}x{image.height}"
                )
        formats = tuple(images[i].format for i in shape.images)
        key = (formats, shape.load, shape.n_depths, shape.subpasses, shape.dependencies)
        if key not in self._handles:
            self._handles[key] = self._create_handle(shape, formats, what)
        handle = self._handles[key]
        views = [images[i].view for i in shape.images]
        views += [
            self._depths.acquire(owned, stage.width, stage.height, nth)
            for nth in range(shape.n_depths)
        ]
        frame = arena.struct(
            "VkFramebufferCreateInfo",
            renderPass=handle,
            attachmentCount=len(views),
            pAttachments=arena.array("VkImageView", views),
            width=stage.width,
            height=stage.height,
            layers=1,
        )
        framebuffer = owned.create("Framebuffer", frame, what)
        clears = [
            _clear_value(images[i], c) for i, c in zip(shape.images, shape.clears, strict=True)
        ]
        clears += [{"depthStencil": {"depth": 1.0}}] * shape.n_depths
        begin = arena.struct(
            "VkRenderPassBeginInfo",
            renderPass=handle,
            framebuffer=framebuffer,
            renderArea={"extent": {"width": stage.width, "height": stage.height}},
            clearValueCount=len(clears),
            pClearValues=arena.array("VkClearValue", clears),
        )
        return RenderPass(handle, framebuffer, begin, arena)

    def _create_handle(self, shape: PassShape, formats: Sequence[str], what: str) -> CData:
        ctx, arena = self._ctx, Arena(self._ctx.api)
        attachments = _attachment_infos(ctx, arena, shape, formats)
        subpasses = [_subpass_info(ctx, arena, s) for s in shape.subpasses]
        dependencies = [_dependency_info(ctx, arena, *d) for d in shape.dependencies]
        info = arena.struct(
            "VkRenderPassCreateInfo",
            attachmentCount=len(attachments),
            pAttachments=arena.array("VkAttachmentDescription", attachments),
            subpassCount=len(subpasses),
            pSubpasses=arena.array("VkSubpassDescription", subpasses),
            dependencyCount=len(dependencies),
            pDependencies=arena.array("VkSubpassDependency", dependencies),
        )
        return self._owned.create("RenderPass", info, what)


def _clear_value(image: Image, values: tuple[float, ...] | None) -> dict[str, object]:
    if values is None:
        return {}
    if len(values) != 4:
        raise DeviceError(f"image '{image.name}' has {len(values)} clear values; 4 are needed")
    if image.format.endswith("I"):
        return {"color": {"int32": [int(v) for v in values]}}
    return {"color": {"float32": [float(v) for v in values]}}


def _attachment_infos(
    ctx: Context, arena: Arena, shape: PassShape, formats: Sequence[str]
) -> list[CData]:
    c = ctx.api.c
    ops = {
        "load": c.VK_ATTACHMENT_LOAD_OP_LOAD,
        "clear": c.VK_ATTACHMENT_LOAD_OP_CLEAR,
        "dont_care": c.VK_ATTACHMENT_LOAD_OP_DONT_CARE,
    }
    dont_care = c.VK_ATTACHMENT_STORE_OP_DONT_CARE

    def info(vk_format: int, load: str, store: int, layout: int) -> CData:
        return arena.struct(
            "VkAttachmentDescription",
            format=vk_format,
            samples=c.VK_SAMPLE_COUNT_1_BIT,
            loadOp=ops[load],
            storeOp=store,
            stencilLoadOp=ops["dont_care"],
            stencilStoreOp=dont_care,
            initialLayout=layout,
            finalLayout=layout,
        )

    store, general = c.VK_ATTACHMENT_STORE_OP_STORE, c.VK_IMAGE_LAYOUT_GENERAL
    infos = [
        info(getattr(c, FORMATS[fmt]), load, store, general)
        for fmt, load in zip(formats, shape.load, strict=True)
    ]
    layout = c.VK_IMAGE_LAYOUT_DEPTH_STENCIL_ATTACHMENT_OPTIMAL
    depth = info(c.VK_FORMAT_D32_SFLOAT, "clear", dont_care, layout)
    return infos + [depth] * shape.n_depths


def _subpass_info(ctx: Context, arena: Arena, shape: SubpassShape) -> CData:
    c = ctx.api.c

    def references(numbers: Sequence[int | None]) -> CData:
        general = c.VK_IMAGE_LAYOUT_GENERAL
        unused = 0xFFFFFFFF  # VK_ATTACHMENT_UNUSED
        return arena.array(
            "VkAttachmentReference",
            [{"attachment": unused if n is None else n, "layout": general} for n in numbers],
        )

    depth = ctx.api.null
    if shape.depth is not None:
        depth = arena.struct(
            "VkAttachmentReference",
            attachment=shape.depth,
            layout=c.VK_IMAGE_LAYOUT_DEPTH_STENCIL_ATTACHMENT_OPTIMAL,
        )
    return arena.struct(
        "VkSubpassDescription",
        pipelineBindPoint=c.VK_PIPELINE_BIND_POINT_GRAPHICS,
        inputAttachmentCount=len(shape.inputs),
        pInputAttachments=references(shape.inputs),
        colorAttachmentCount=len(shape.outputs),
        pColorAttachments=references(shape.outputs),
        pDepthStencilAttachment=depth,
        preserveAttachmentCount=len(shape.preserve),
        pPreserveAttachments=arena.array("uint32_t", shape.preserve),
    )


def _dependency_info(
    ctx: Context, arena: Arena, source: int, target: int, pairs: frozenset[tuple[str, str]]
) -> CData:
    c = ctx.api.c
    everything = (
        c.VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
        c.VK_ACCESS_MEMORY_READ_BIT | c.VK_ACCESS_MEMORY_WRITE_BIT,
    )
    fragment = c.VK_PIPELINE_STAGE_FRAGMENT_SHADER_BIT
    vertex = c.VK_PIPELINE_STAGE_VERTEX_SHADER_BIT
    masks = {
        READ: (fragment, c.VK_ACCESS_INPUT_ATTACHMENT_READ_BIT),
        WRITE: (
            c.VK_PIPELINE_STAGE_COLOR_ATTACHMENT_OUTPUT_BIT,
            c.VK_ACCESS_COLOR_ATTACHMENT_READ_BIT | c.VK_ACCESS_COLOR_ATTACHMENT_WRITE_BIT,
        ),
        OTHER_READ: (fragment | vertex, c.VK_ACCESS_SHADER_READ_BIT),
        BUFFER: (
            fragment | vertex,
            c.VK_ACCESS_SHADER_READ_BIT | c.VK_ACCESS_SHADER_WRITE_BIT,
        ),
        DEPTH: (
            c.VK_PIPELINE_STAGE_EARLY_FRAGMENT_TESTS_BIT
            | c.VK_PIPELINE_STAGE_LATE_FRAGMENT_TESTS_BIT,
            c.VK_ACCESS_DEPTH_STENCIL_ATTACHMENT_READ_BIT
            | c.VK_ACCESS_DEPTH_STENCIL_ATTACHMENT_WRITE_BIT,
        ),
    }

    def side(subpass: int, accesses: set[str]) -> tuple[int, int]:
        if subpass == EXTERNAL:
            return everything
        stages = access = 0
        for each in accesses:
            stages |= masks[each][0]
            access |= masks[each][1]
        return stages, access

    src_stages, src_access = side(source, {a for a, _ in pairs})
    dst_stages, dst_access = side(target, {b for _, b in pairs})
    inside = EXTERNAL not in (source, target)
    local = inside and all({a, b} <= {READ, WRITE} for a, b in pairs)
    return arena.struct(
        "VkSubpassDependency",
        srcSubpass=source,
        dstSubpass=target,
        srcStageMask=src_stages,
        dstStageMask=dst_stages,
        srcAccessMask=src_access,
        dstAccessMask=dst_access,
        dependencyFlags=c.VK_DEPENDENCY_BY_REGION_BIT if local else 0,
    )
