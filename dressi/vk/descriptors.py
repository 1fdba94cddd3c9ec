"""Descriptor sets of a plan, and the layouts that they and its pipelines share.

In: bindings of substages, images, buffers, the uniform block. Out: ``Layouts``, and one
VkDescriptorSet per substage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from dressi.errors import DeviceError
from dressi.packing.layout import MOST_PUSHED
from dressi.packing.plan import Binding, SamplerPlan, SubstagePlan
from dressi.vk.api import Arena, CData
from dressi.vk.context import Context, Owned
from dressi.vk.resources import Resources

_TYPES = {
    "input": "INPUT_ATTACHMENT",
    "texture": "SAMPLED_IMAGE",
    "load": "STORAGE_IMAGE",
    "pixel": "SAMPLED_IMAGE",
    "sampler": "COMBINED_IMAGE_SAMPLER",
    "buffer": "STORAGE_BUFFER",
    "storage": "STORAGE_IMAGE",
    "uniform": "UNIFORM_BUFFER",
}
_STAGE_BITS = {"v": 1, "f": 16, "c": 32}
_ALL_STAGES = sum(_STAGE_BITS.values())


def push(ctx: Context, commands: CData, layout: CData, numbers: Sequence[int]) -> None:
    """Record that the shaders which run next see these integers as their push constants. layout: of
    their pipeline. numbers: at most MOST_PUSHED, or none."""
    if not numbers:
        return
    data = Arena(ctx.api).array("int32_t", numbers)
    size = 4 * len(numbers)
    ctx.api.lib.vkCmdPushConstants(commands, layout, _ALL_STAGES, 0, size, data)


class Layouts:
    """Descriptor set layouts, pipeline layouts and samplers of an executable, each made once."""

    def __init__(self, ctx: Context, owned: Owned) -> None:
        self._ctx = ctx
        self._owned = owned
        self._layouts: dict[tuple[object, ...], tuple[CData, CData]] = {}
        self._samplers: dict[SamplerPlan, CData] = {}

    def get(self, bindings: Sequence[Binding], what: str) -> tuple[CData, CData]:
        """(descriptor set layout, pipeline layout) of a list of bindings; numbers can be pushed to
        all shaders (``push``)."""
        key = tuple((b.binding, b.kind, b.shaders) for b in bindings)
        if key not in self._layouts:
            self._layouts[key] = self._create(bindings, what)
        return self._layouts[key]

    def _create(self, bindings: Sequence[Binding], what: str) -> tuple[CData, CData]:
        arena = Arena(self._ctx.api)
        entries = []
        for binding in bindings:
            if binding.kind not in _TYPES:
                raise DeviceError(f"binding {binding.binding} of {what}: kind {binding.kind!r}")
            stages = sum(_STAGE_BITS[letter] for letter in set(binding.shaders))
            entries.append(
                arena.struct(
                    "VkDescriptorSetLayoutBinding",
                    binding=binding.binding,
                    descriptorType=descriptor_type(self._ctx, binding.kind),
                    descriptorCount=1,
                    stageFlags=stages,
                )
            )
        info = arena.struct(
            "VkDescriptorSetLayoutCreateInfo",
            bindingCount=len(entries),
            pBindings=arena.array("VkDescriptorSetLayoutBinding", entries),
        )
        sets = self._owned.create("DescriptorSetLayout", info, what)
        ranges = [{"stageFlags": _ALL_STAGES, "size": 4 * MOST_PUSHED}]
        pipeline = arena.struct(
            "VkPipelineLayoutCreateInfo",
            setLayoutCount=1,
            pSetLayouts=arena.array("VkDescriptorSetLayout", [sets]),
            pushConstantRangeCount=len(ranges),
            pPushConstantRanges=arena.array("VkPushConstantRange", ranges),
        )
        return sets, self._owned.create("PipelineLayout", pipeline, what)

    def sampler(self, plan: SamplerPlan) -> CData:
        """The VkSampler of a sampler state."""
        if plan not in self._samplers:
            c, arena = self._ctx.api.c, Arena(self._ctx.api)
            filters = {"nearest": c.VK_FILTER_NEAREST, "linear": c.VK_FILTER_LINEAR}
            wraps = {
                "repeat": c.VK_SAMPLER_ADDRESS_MODE_REPEAT,
                "mirror": c.VK_SAMPLER_ADDRESS_MODE_MIRRORED_REPEAT,
                "clamp": c.VK_SAMPLER_ADDRESS_MODE_CLAMP_TO_EDGE,
                "border": c.VK_SAMPLER_ADDRESS_MODE_CLAMP_TO_BORDER,
            }
            along_v = plan.wrap_v or plan.wrap
            if plan.filter not in filters or plan.wrap not in wraps or along_v not in wraps:
                raise DeviceError(f"no such sampler: {plan}")
            info = arena.struct(
                "VkSamplerCreateInfo",
                magFilter=filters[plan.filter],
                minFilter=filters[plan.filter],
                mipmapMode=c.VK_SAMPLER_MIPMAP_MODE_NEAREST,
                addressModeU=wraps[plan.wrap],
                addressModeV=wraps[along_v],
                addressModeW=wraps[along_v],
                borderColor=c.VK_BORDER_COLOR_FLOAT_TRANSPARENT_BLACK,
            )
            self._samplers[plan] = self._owned.create("Sampler", info, str(plan))
        return self._samplers[plan]


def descriptor_type(ctx: Context, kind: str) -> int:
    """VkDescriptorType of a binding's kind."""
    return int(getattr(ctx.api.c, f"VK_DESCRIPTOR_TYPE_{_TYPES[kind]}"))


def create_descriptors(
    ctx: Context,
    owned: Owned,
    layouts: Layouts,
    substages: Sequence[SubstagePlan],
    resources: Resources,
) -> list[CData]:
    """Allocates and fills the descriptor set of each substage; pointers to VkDescriptorSet, or
    None where it has no bindings. Raises DeviceError for uniforms of a plan that has none, and for
    storage images of a format that the device does not take."""
    using = [s for s in substages if s.bindings]
    if not using:
        return [None] * len(substages)
    api, arena = ctx.api, Arena(ctx.api)
    sets = _allocate(ctx, owned, layouts, using, f"plan '{resources.plan.name}'")
    writes = [
        arena.struct(
            "VkWriteDescriptorSet",
            dstSet=handle,
            dstBinding=b.binding,
            descriptorCount=1,
            descriptorType=descriptor_type(ctx, b.kind),
            **_target(ctx, arena, layouts, b, substage, resources),
        )
        for substage, handle in zip(using, sets, strict=True)
        for b in substage.bindings
    ]
    array = arena.array("VkWriteDescriptorSet", writes)
    api.lib.vkUpdateDescriptorSets(ctx.device, len(writes), array, 0, api.null)
    pointers: Iterator[CData] = iter([arena.array("VkDescriptorSet", [handle]) for handle in sets])
    return [next(pointers) if s.bindings else None for s in substages]


def _allocate(
    ctx: Context, owned: Owned, layouts: Layouts, using: Sequence[SubstagePlan], what: str
) -> CData:
    """VkDescriptorSet[] of the substages, from a pool of its own."""
    api, arena = ctx.api, Arena(ctx.api)
    counts = Counter(b.kind for s in using for b in s.bindings)
    sizes = [
        {"type": descriptor_type(ctx, kind), "descriptorCount": n} for kind, n in counts.items()
    ]
    pool_info = arena.struct(
        "VkDescriptorPoolCreateInfo",
        maxSets=len(using),
        poolSizeCount=len(sizes),
        pPoolSizes=arena.array("VkDescriptorPoolSize", sizes),
    )
    set_layouts = [layouts.get(s.bindings, f"substage '{s.name}'")[0] for s in using]
    info = arena.struct(
        "VkDescriptorSetAllocateInfo",
        descriptorPool=owned.create("DescriptorPool", pool_info, what),
        descriptorSetCount=len(using),
        pSetLayouts=arena.array("VkDescriptorSetLayout", set_layouts),
    )
    sets = api.ffi.new("VkDescriptorSet[]", len(using))
    ctx.check(
        api.lib.vkAllocateDescriptorSets(ctx.device, info, sets), "vkAllocateDescriptorSets", what
    )
    return sets


def _target(
    ctx: Context,
    arena: Arena,
    layouts: Layouts,
    b: Binding,
    substage: SubstagePlan,
    resources: Resources,
) -> dict[str, CData]:
    """The field of VkWriteDescriptorSet that says what is bound."""
    if b.kind in ("buffer", "uniform"):
        if b.kind == "uniform" and resources.uniforms is None:
            raise DeviceError(
                f"substage '{substage.name}' binds uniforms, but plan '{resources.plan.name}' has "
                "no uniform slots"
            )
        source = resources.uniforms if b.kind == "uniform" else resources.buffers[b.index]
        assert source is not None
        info = arena.struct("VkDescriptorBufferInfo", buffer=source.handle, range=source.size)
        return {"pBufferInfo": info}
    image = resources.images[b.index]
    if b.kind in ("storage", "load") and image.format not in ctx.storage_formats:
        raise DeviceError(
            f"{ctx.info.name} has no storage images of format {image.format} "
            f"(substage '{substage.name}')"
        )
    sampler = ctx.api.null
    if b.kind == "sampler":
        sampler = layouts.sampler(b.sampler or SamplerPlan())
    info = arena.struct(
        "VkDescriptorImageInfo",
        sampler=sampler,
        imageView=image.view,
        imageLayout=ctx.api.c.VK_IMAGE_LAYOUT_GENERAL,
    )
    return {"pImageInfo": info}
