"""2D images in the general layout: making them, moving pixels, the store of persistent ones, depth
images.

In: format, size, bytes. Out: ``Image`` (handle and view), bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dressi.errors import DeviceError
from dressi.packing.plan import BYTES_PER_PIXEL, ImagePlan
from dressi.vk.api import Arena, CData
from dressi.vk.context import Context, Owned
from dressi.vk.memory import Buffer, Memory, Staging
from dressi.vk.query import FORMATS


@dataclass(eq=False)
class Image:
    """One image with its view. ``alive`` turns False when it is destroyed."""

    name: str
    format: str
    width: int
    height: int
    handle: CData
    view: CData
    alive: bool = field(default=True)

    @property
    def row_bytes(self) -> int:
        return self.width * BYTES_PER_PIXEL[self.format]


def barrier(ctx: Context, commands: CData) -> None:
    """Everything before is finished and visible to everything after, transfers and host
    included."""
    c, arena = ctx.api.c, Arena(ctx.api)
    both = c.VK_ACCESS_MEMORY_READ_BIT | c.VK_ACCESS_MEMORY_WRITE_BIT
    memory = arena.struct(
        "VkMemoryBarrier", srcAccessMask=c.VK_ACCESS_MEMORY_WRITE_BIT, dstAccessMask=both
    )
    everything, null = c.VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, ctx.api.null
    ctx.api.lib.vkCmdPipelineBarrier(
        commands, everything, everything, 0, 1, memory, 0, null, 0, null
    )


def dispatch_barrier(ctx: Context, commands: CData, transfers: bool = False) -> None:
    """What dispatches before have written is visible to dispatches after, and with ``transfers``
    also what fills and copies have, and to them. These alone are waited for, which takes half the
    time of ``barrier`` where processors are many."""
    c, arena = ctx.api.c, Arena(ctx.api)
    read, write = c.VK_ACCESS_SHADER_READ_BIT, c.VK_ACCESS_SHADER_WRITE_BIT
    stages = c.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT
    if transfers:
        read |= c.VK_ACCESS_TRANSFER_READ_BIT | c.VK_ACCESS_UNIFORM_READ_BIT
        write |= c.VK_ACCESS_TRANSFER_WRITE_BIT
        stages |= c.VK_PIPELINE_STAGE_TRANSFER_BIT
    memory = arena.struct("VkMemoryBarrier", srcAccessMask=write, dstAccessMask=read | write)
    null = ctx.api.null
    ctx.api.lib.vkCmdPipelineBarrier(commands, stages, stages, 0, 1, memory, 0, null, 0, null)


def create_images(
    ctx: Context, memory: Memory, owned: Owned, plans: Iterable[ImagePlan]
) -> list[Image]:
    """Makes zero-filled images in the general layout, all in one submit.

    Raises DeviceError for a size or format the device does not take, OutOfMemoryError for memory.
    """
    images = [_create(ctx, memory, owned, plan) for plan in plans]
    if images:
        ctx.run_once(lambda commands: _clear(ctx, commands, images), "clearing new images")
    return images


def _create(ctx: Context, memory: Memory, owned: Owned, plan: ImagePlan) -> Image:
    api, c, what = ctx.api, ctx.api.c, f"image '{plan.name}'"
    limit = ctx.limits.image_dim
    if plan.format not in FORMATS:
        raise DeviceError(f"{what} has format {plan.format!r}; known: {', '.join(FORMATS)}")
    if not (1 <= plan.width <= limit and 1 <= plan.height <= limit):
        raise DeviceError(
            f"{what} is {plan.width}x{plan.height} pixels; "
            f"{ctx.info.name} allows 1 to {limit} (image_dim) on each side"
        )
    usage = (
        c.VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT
        | c.VK_IMAGE_USAGE_INPUT_ATTACHMENT_BIT
        | c.VK_IMAGE_USAGE_SAMPLED_BIT
        | c.VK_IMAGE_USAGE_TRANSFER_SRC_BIT
        | c.VK_IMAGE_USAGE_TRANSFER_DST_BIT
    )
    if plan.format in ctx.storage_formats:
        usage |= c.VK_IMAGE_USAGE_STORAGE_BIT
    aspect = c.VK_IMAGE_ASPECT_COLOR_BIT
    vk_format = getattr(api.c, FORMATS[plan.format])
    handle, view = create_image_and_view(
        ctx, memory, owned, vk_format, plan.width, plan.height, usage, aspect, what
    )
    image = Image(plan.name, plan.format, plan.width, plan.height, handle, view)
    owned.defer(lambda: setattr(image, "alive", False))
    return image


def create_image_and_view(
    ctx: Context,
    memory: Memory,
    owned: Owned,
    vk_format: int,
    width: int,
    height: int,
    usage: int,
    aspect: int,
    what: str,
) -> tuple[CData, CData]:
    """A 2D image of one level with memory bound, and a view of all of it; in the undefined
    layout."""
    api, c, arena = ctx.api, ctx.api.c, Arena(ctx.api)
    info = arena.struct(
        "VkImageCreateInfo",
        imageType=c.VK_IMAGE_TYPE_2D,
        format=vk_format,
        extent={"width": width, "height": height, "depth": 1},
        mipLevels=1,
        arrayLayers=1,
        samples=c.VK_SAMPLE_COUNT_1_BIT,
        tiling=c.VK_IMAGE_TILING_OPTIMAL,
        usage=usage,
    )
    handle = owned.create("Image", info, what)
    requirements = api.ffi.new("VkMemoryRequirements *")
    api.lib.vkGetImageMemoryRequirements(ctx.device, handle, requirements)
    like = c.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
    where = memory.allocate(owned, requirements, "image", what, like)
    result = api.lib.vkBindImageMemory(ctx.device, handle, where.memory, where.offset)
    ctx.check(result, "vkBindImageMemory", what)
    view = arena.struct(
        "VkImageViewCreateInfo",
        image=handle,
        viewType=c.VK_IMAGE_VIEW_TYPE_2D,
        format=vk_format,
        subresourceRange=_range(aspect),
    )
    return handle, owned.create("ImageView", view, f"view of {what}")


def _range(aspect: int) -> dict[str, int]:
    return {"aspectMask": aspect, "levelCount": 1, "layerCount": 1}


def _layers(aspect: int) -> dict[str, int]:
    return {"aspectMask": aspect, "layerCount": 1}


def to_layout(
    ctx: Context, commands: CData, handles: list[CData], layout: int, aspect: int
) -> None:
    """Moves new images out of the undefined layout."""
    c, arena = ctx.api.c, Arena(ctx.api)
    barriers = arena.array(
        "VkImageMemoryBarrier",
        [
            arena.struct(
                "VkImageMemoryBarrier",
                dstAccessMask=c.VK_ACCESS_MEMORY_READ_BIT | c.VK_ACCESS_MEMORY_WRITE_BIT,
                oldLayout=c.VK_IMAGE_LAYOUT_UNDEFINED,
                newLayout=layout,
                srcQueueFamilyIndex=c.VK_QUEUE_FAMILY_IGNORED,
                dstQueueFamilyIndex=c.VK_QUEUE_FAMILY_IGNORED,
                image=handle,
                subresourceRange=_range(aspect),
            )
            for handle in handles
        ],
    )
    everything, null = c.VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, ctx.api.null
    ctx.api.lib.vkCmdPipelineBarrier(
        commands, everything, everything, 0, 0, null, 0, null, len(handles), barriers
    )


def _clear(ctx: Context, commands: CData, images: list[Image]) -> None:
    c, arena = ctx.api.c, Arena(ctx.api)
    aspect, general = c.VK_IMAGE_ASPECT_COLOR_BIT, c.VK_IMAGE_LAYOUT_GENERAL
    to_layout(ctx, commands, [i.handle for i in images], general, aspect)
    # All bits zero is 0 for floats and integers alike.
    zero = arena.struct("VkClearColorValue")
    whole = arena.struct("VkImageSubresourceRange", **_range(aspect))
    for image in images:
        ctx.api.lib.vkCmdClearColorImage(commands, image.handle, general, zero, 1, whole)
    barrier(ctx, commands)


def _pieces(image: Image) -> Iterable[tuple[int, int]]:
    """(first row, number of rows) of each piece that fits into the staging buffer."""
    rows = max(1, Staging.CHUNK // image.row_bytes)
    return ((y, min(rows, image.height - y)) for y in range(0, image.height, rows))


def copy_region(
    ctx: Context, arena: Arena, image: Image, y: int, rows: int, offset: int = 0
) -> CData:
    """Some rows of an image, and where they lie in a buffer."""
    return arena.struct(
        "VkBufferImageCopy",
        bufferOffset=offset,
        imageSubresource=_layers(ctx.api.c.VK_IMAGE_ASPECT_COLOR_BIT),
        imageOffset={"y": y},
        imageExtent={"width": image.width, "height": rows, "depth": 1},
    )


def write_pixels(ctx: Context, staging: Staging, image: Image, data: Any) -> None:
    """Copies tightly packed pixels (row 0 first) into an image.

    ``data``: bytes-like, C-contiguous. Raises DeviceError when it does not have the image's size.
    """
    flat = memoryview(data).cast("B")
    expected = image.row_bytes * image.height
    if flat.nbytes != expected:
        raise DeviceError(
            f"{flat.nbytes} bytes for image '{image.name}', which is {image.format} "
            f"{image.width}x{image.height} = {expected} bytes"
        )
    general = ctx.api.c.VK_IMAGE_LAYOUT_GENERAL
    for y, rows in _pieces(image):
        start, size = y * image.row_bytes, rows * image.row_bytes
        buffer, arena = staging.get("upload", size), Arena(ctx.api)
        ctx.api.ffi.memmove(buffer.pointer, flat[start : start + size], size)
        region = copy_region(ctx, arena, image, y, rows)

        def record(commands: CData, source: CData = buffer.handle, region: CData = region) -> None:
            barrier(ctx, commands)
            ctx.api.lib.vkCmdCopyBufferToImage(commands, source, image.handle, general, 1, region)
            barrier(ctx, commands)

        ctx.run_once(record, f"upload of image '{image.name}'")


def read_pixels(ctx: Context, staging: Staging, image: Image) -> bytes:
    """Return the pixels of an image, tightly packed, row 0 first."""
    general, what = ctx.api.c.VK_IMAGE_LAYOUT_GENERAL, f"download of image '{image.name}'"
    parts = []
    for y, rows in _pieces(image):
        region = copy_region(ctx, Arena(ctx.api), image, y, rows)

        def copy(commands: CData, target: CData, region: CData = region) -> None:
            ctx.api.lib.vkCmdCopyImageToBuffer(commands, image.handle, general, target, 1, region)

        parts.append(_read_back(ctx, staging, rows * image.row_bytes, copy, what))
    return parts[0] if len(parts) == 1 else b"".join(parts)


OFFSET = 16
"""Bytes: copies begin at multiples of the largest pixel."""


def _side_by_side(images: Sequence[Image]) -> tuple[list[slice], int]:
    """Where each image lies in a staging buffer that holds all, and the bytes of all."""
    places, end = [], 0
    for image in images:
        start, size = -(-end // OFFSET) * OFFSET, image.row_bytes * image.height
        end = start + size
        places.append(slice(start, end))
    return places, end


def write_all(
    ctx: Context, staging: Staging, images: Sequence[Image], datas: Sequence[Any]
) -> None:
    """``write_pixels`` for several images, in one submit where the staging buffer holds all."""
    places, size = _side_by_side(images)
    if len(images) <= 1 or size > staging.CHUNK:
        for image, data in zip(images, datas, strict=True):
            write_pixels(ctx, staging, image, data)
        return
    buffer, arena = staging.get("upload", size), Arena(ctx.api)
    host = ctx.api.ffi.buffer(buffer.pointer, size)
    for place, data in zip(places, datas, strict=True):
        host[place] = memoryview(data).cast("B")
    general = ctx.api.c.VK_IMAGE_LAYOUT_GENERAL
    regions = [
        copy_region(ctx, arena, i, 0, i.height, p.start)
        for i, p in zip(images, places, strict=True)
    ]

    def record(commands: CData) -> None:
        barrier(ctx, commands)
        for image, region in zip(images, regions, strict=True):
            ctx.api.lib.vkCmdCopyBufferToImage(
                commands, buffer.handle, image.handle, general, 1, region
            )
        barrier(ctx, commands)

    ctx.run_once(record, f"upload of {len(images)} images, the first '{images[0].name}'")


def read_all(ctx: Context, staging: Staging, images: Sequence[Image]) -> list[bytes]:
    """``read_pixels`` of several images, in one submit where the staging buffer holds all."""
    places, size = _side_by_side(images)
    if len(images) <= 1 or size > staging.CHUNK:
        return [read_pixels(ctx, staging, image) for image in images]
    general, arena = ctx.api.c.VK_IMAGE_LAYOUT_GENERAL, Arena(ctx.api)

    def copy(commands: CData, target: CData) -> None:
        for image, place in zip(images, places, strict=True):
            region = copy_region(ctx, arena, image, 0, image.height, place.start)
            ctx.api.lib.vkCmdCopyImageToBuffer(commands, image.handle, general, target, 1, region)

    what = f"download of {len(images)} images, the first '{images[0].name}'"
    pixels = _read_back(ctx, staging, size, copy, what)
    return [pixels[place] for place in places]


def host_barrier(ctx: Context, commands: CData) -> None:
    """Transfers before are visible to the host after the fence."""
    c, arena = ctx.api.c, Arena(ctx.api)
    memory = arena.struct(
        "VkMemoryBarrier",
        srcAccessMask=c.VK_ACCESS_TRANSFER_WRITE_BIT,
        dstAccessMask=c.VK_ACCESS_HOST_READ_BIT,
    )
    transfer, host, null = (
        c.VK_PIPELINE_STAGE_TRANSFER_BIT,
        c.VK_PIPELINE_STAGE_HOST_BIT,
        ctx.api.null,
    )
    ctx.api.lib.vkCmdPipelineBarrier(commands, transfer, host, 0, 1, memory, 0, null, 0, null)


def read_buffer(ctx: Context, staging: Staging, source: Buffer, size: int, what: str) -> bytes:
    """Return the first bytes of a buffer of the device."""
    parts = []
    for start in range(0, size, staging.CHUNK):
        length = min(staging.CHUNK, size - start)
        region = Arena(ctx.api).struct("VkBufferCopy", srcOffset=start, size=length)

        def copy(commands: CData, target: CData, region: CData = region) -> None:
            ctx.api.lib.vkCmdCopyBuffer(commands, source.handle, target, 1, region)

        parts.append(_read_back(ctx, staging, length, copy, what))
    return b"".join(parts)


def _read_back(
    ctx: Context, staging: Staging, size: int, copy: Callable[[CData, CData], None], what: str
) -> bytes:
    """Return what one copy writes to the staging buffer. copy: records it, given the target."""
    buffer = staging.get("readback", size)

    def record(commands: CData) -> None:
        barrier(ctx, commands)
        copy(commands, buffer.handle)
        host_barrier(ctx, commands)

    ctx.run_once(record, what)
    staging.invalidate(buffer)
    return bytes(ctx.api.ffi.buffer(buffer.pointer, size))
