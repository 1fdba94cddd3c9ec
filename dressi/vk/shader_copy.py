"""Copies between images and buffers of the card by shaders: where a driver's own copies turn rows
into tiles slowly (two thirds of what eager calls take at 2048 x 2048 on an H200), a texel per
invocation is the way. In a buffer components lie one behind the other, without what an image has
beside them: fourth channels, texels behind the last row of a table.

In: whole images in the general layout, buffers that may be storage buffers. Out: recorded
dispatches. Pipelines are made once per device, format, number of components and direction.
"""

from __future__ import annotations

from typing import NamedTuple

from dressi.packing.layout import Cells
from dressi.packing.plan import BYTES_PER_PIXEL, Binding
from dressi.vk.api import Arena, CData
from dressi.vk.context import Context, Owned
from dressi.vk.descriptors import Layouts, descriptor_type, push
from dressi.vk.image import OFFSET, Image
from dressi.vk.memory import Buffer
from dressi.vk.pipeline import create_compute, create_modules
from dressi.vk.shader import compile_glsl

_QUALIFIERS = {f: f.lower() for f in ("R32F", "RG32F", "RGBA32F", "R32I", "RGBA32I")}

_GROUP = (32, 8)
_BINDINGS = (Binding(0, "storage", 0, "c"), Binding(1, "buffer", 0, "c"))


class _Made(NamedTuple):
    sets: CData
    layout: CData
    pipeline: CData


class ShaderCopies:
    """Shaders that copy, of one device."""

    def __init__(self, ctx: Context) -> None:
        self._ctx, self._owned = ctx, Owned(ctx)
        self._layouts = Layouts(ctx, self._owned)
        self._made: dict[tuple[str, int, bool], _Made] = {}
        self._limits = ctx.properties.limits

    def takes(self, image: Image, cells: Cells) -> bool:
        """Whether a copy of a whole image, from or to a multiple of OFFSET bytes of a buffer, can
        be recorded."""
        return (
            image.format in _QUALIFIERS
            and image.format in self._ctx.storage_formats
            and OFFSET % int(self._limits.minStorageBufferOffsetAlignment) == 0
            and cells.n_bytes <= int(self._limits.maxStorageBufferRange)
        )

    def record(
        self,
        commands: CData,
        owned: Owned,
        image: Image,
        cells: Cells,
        buffer: Buffer,
        offset: int,
        to_image: bool,
    ) -> None:
        """Record a copy of a whole image that ``takes`` agrees to. owned: whose the descriptors
        are. A barrier before, and one after, are the caller's."""
        made, ctx = self._of(image.format, cells.components, to_image), self._ctx
        api, c, arena = ctx.api, ctx.api.c, Arena(ctx.api)
        sets = self._descriptors(owned, made, image, buffer, offset, cells.n_bytes)
        point, null = c.VK_PIPELINE_BIND_POINT_COMPUTE, api.null
        api.lib.vkCmdBindPipeline(commands, point, made.pipeline)
        bound = arena.array("VkDescriptorSet", [sets[0]])
        api.lib.vkCmdBindDescriptorSets(commands, point, made.layout, 0, 1, bound, 0, null)
        push(ctx, commands, made.layout, [cells.rows, cells.texels])
        groups = [-(-n // g) for n, g in zip((image.width, image.height), _GROUP, strict=True)]
        api.lib.vkCmdDispatch(commands, *groups, 1)

    def close(self) -> None:
        """Let the shaders go; they are made again when they are needed. What was recorded with them
        may not run any more."""
        self._owned.destroy()
        self._owned, self._made = Owned(self._ctx), {}
        self._layouts = Layouts(self._ctx, self._owned)

    def _of(self, fmt: str, n: int, to_image: bool) -> _Made:
        if (fmt, n, to_image) not in self._made:
            what = f"copy of {fmt}"
            source = ("comp", _glsl(fmt, n, to_image))
            modules = create_modules(self._ctx, self._owned, [source], compile_glsl([source]))
            sets, layout = self._layouts.get(_BINDINGS, what)
            pipeline = create_compute(self._ctx, self._owned, modules[source], layout, what)
            self._made[fmt, n, to_image] = _Made(sets, layout, pipeline)
        return self._made[fmt, n, to_image]

    def _descriptors(
        self, owned: Owned, made: _Made, image: Image, buffer: Buffer, offset: int, n_bytes: int
    ) -> CData:
        """VkDescriptorSet[1], from a pool of its own."""
        ctx = self._ctx
        api, arena = ctx.api, Arena(ctx.api)
        kinds = [descriptor_type(ctx, b.kind) for b in _BINDINGS]
        sizes = [{"type": kind, "descriptorCount": 1} for kind in kinds]
        pool = arena.struct(
            "VkDescriptorPoolCreateInfo",
            maxSets=1,
            poolSizeCount=len(sizes),
            pPoolSizes=arena.array("VkDescriptorPoolSize", sizes),
        )
        info = arena.struct(
            "VkDescriptorSetAllocateInfo",
            descriptorPool=owned.create("DescriptorPool", pool, image.name),
            descriptorSetCount=1,
            pSetLayouts=arena.array("VkDescriptorSetLayout", [made.sets]),
        )
        sets = api.ffi.new("VkDescriptorSet[]", 1)
        ctx.check(
            api.lib.vkAllocateDescriptorSets(ctx.device, info, sets),
            "vkAllocateDescriptorSets",
            image.name,
        )
        targets = (
            {
                "pImageInfo": arena.struct(
                    "VkDescriptorImageInfo",
                    imageView=image.view,
                    imageLayout=api.c.VK_IMAGE_LAYOUT_GENERAL,
                )
            },
            {
                "pBufferInfo": arena.struct(
                    "VkDescriptorBufferInfo", buffer=buffer.handle, offset=offset, range=n_bytes
                )
            },
        )
        writes = [
            arena.struct(
                "VkWriteDescriptorSet",
                dstSet=sets[0],
                dstBinding=k,
                descriptorCount=1,
                descriptorType=kind,
                **target,
            )
            for k, (kind, target) in enumerate(zip(kinds, targets, strict=True))
        ]
        array = arena.array("VkWriteDescriptorSet", writes)
        api.lib.vkUpdateDescriptorSets(ctx.device, len(writes), array, 0, api.null)
        return sets


def _glsl(fmt: str, n: int, to_image: bool) -> str:
    """n: components of a texel in the buffer, read as one vector where they are all it has."""
    kind, prefix = ("int", "i") if fmt.endswith("I") else ("float", "")
    whole = 4 * n == BYTES_PER_PIXEL[fmt]
    element = f"{prefix}vec{n}" if whole and n > 1 else kind
    places = ["elements[at]"] if whole else [f"elements[{n} * at + {k}]" for k in range(n)]
    if to_image:
        texel = ", ".join([*places, *"0" * (4 - n)])
        body = f"imageStore(texels, p, {prefix}vec4({texel}));"
    else:
        parts = ["xyzw"[:n]] if whole else "xyzw"[:n]
        stores = [f"{place} = t.{part};" for place, part in zip(places, parts, strict=True)]
        body = " ".join([f"{prefix}vec4 t = imageLoad(texels, p);", *stores])
    return f"""#version 450
layout(local_size_x = {_GROUP[0]}, local_size_y = {_GROUP[1]}) in;
layout({_QUALIFIERS[fmt]}, set = 0, binding = 0) uniform {prefix}image2D texels;
layout(std430, set = 0, binding = 1) buffer Elements {{ {element} elements[]; }};
layout(push_constant) uniform Cells {{ int rows, count; }};
void main() {{
  ivec2 p = ivec2(gl_GlobalInvocationID.xy), size = imageSize(texels);
  if (p.x >= size.x || p.y >= size.y) return;
  int layer = p.y / rows, at = (p.y - layer * rows) * size.x + p.x;
  if (at >= count) return;
  at += layer * count;
  {body}
}}
"""
