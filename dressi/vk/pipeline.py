"""Shader modules, descriptor sets and pipelines of a plan.

In: the substages with their render passes. Out: one ``Bound`` (pipeline, layout, descriptor set) a
substage, made in two vkCreate*Pipelines calls at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dressi.errors import DeviceError
from dressi.packing.plan import Binding, Plan, SamplerPlan, SubstagePlan
from dressi.vk.api import Arena, CData
from dressi.vk.context import Context, Owned
from dressi.vk.image import Image
from dressi.vk.memory import Buffer

_TYPES = {
    "input": "INPUT_ATTACHMENT",
    "texture": "SAMPLED_IMAGE",
    "pixel": "SAMPLED_IMAGE",
    "sampler": "COMBINED_IMAGE_SAMPLER",
    "buffer": "STORAGE_BUFFER",
    "storage": "STORAGE_IMAGE",
    "uniform": "UNIFORM_BUFFER",
}
_STAGE_BITS = {"v": 1, "f": 16, "c": 32}


@dataclass(frozen=True)
class Bound:
    """What a substage binds."""

    pipeline: CData
    layout: CData
    descriptors: CData
    """Pointer to one VkDescriptorSet, or None when the substage has no bindings."""


@dataclass(frozen=True)
class Job:
    """A substage with what its pipeline depends on. ``render_pass`` is None for compute."""

    substage: SubstagePlan
    render_pass: CData = None
    subpass: int = 0


class Layouts:
    """Descriptor set layouts, pipeline layouts and samplers of an executable, each made once."""

    def __init__(self, ctx: Context, owned: Owned) -> None:
        self._ctx = ctx
        self._owned = owned
        self._layouts: dict[tuple[tuple[int, str, str], ...], tuple[CData, CData]] = {}
        self._samplers: dict[SamplerPlan, CData] = {}

    def get(self, bindings: Sequence[Binding], what: str) -> tuple[CData, CData]:
        """(descriptor set layout, pipeline layout) of a list of bindings."""
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
        pipeline = arena.struct(
            "VkPipelineLayoutCreateInfo",
            setLayoutCount=1,
            pSetLayouts=arena.array("VkDescriptorSetLayout", [sets]),
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


def create_modules(
    ctx: Context, owned: Owned, sources: Sequence[tuple[str, str]], codes: Sequence[bytes]
) -> dict[tuple[str, str], CData]:
    """One VkShaderModule for each different (stage, GLSL)."""
    modules: dict[tuple[str, str], CData] = {}
    for source, code in zip(sources, codes, strict=True):
        if source not in modules:
            arena = Arena(ctx.api)
            words = arena.array("uint32_t", memoryview(code).cast("I"))
            info = arena.struct("VkShaderModuleCreateInfo", codeSize=len(code), pCode=words)
            modules[source] = owned.create("ShaderModule", info, f"{source[0]} shader")
    return modules


def create_pipelines(
    ctx: Context,
    owned: Owned,
    layouts: Layouts,
    jobs: Sequence[Job],
    modules: dict[tuple[str, str], CData],
    cache: CData,
) -> list[CData]:
    """The VkPipeline of each job, in order; jobs that want the same share one.

    Two vkCreate*Pipelines calls at most. Sharing matters on lavapipe, which compiles each pipeline
    to machine code and keeps only about 500 of them.
    """
    arena = Arena(ctx.api)
    shared = _shared_state(ctx, arena)
    infos: dict[str, dict[tuple[object, ...], CData]] = {"Graphics": {}, "Compute": {}}
    names: dict[str, list[str]] = {"Graphics": [], "Compute": []}
    keys: list[tuple[str, tuple[object, ...]]] = []
    for job in jobs:
        s = job.substage
        kind = "Compute" if job.render_pass is None else "Graphics"
        layout = layouts.get(s.bindings, f"substage '{s.name}'")[1]
        shaders = (s.vertex, s.fragment, s.compute)
        key = (layout, job.render_pass, job.subpass, len(s.outputs), s.depth, s.cull, shaders)
        keys.append((kind, key))
        if key in infos[kind]:
            continue
        names[kind].append(f"substage '{s.name}'")
        if kind == "Graphics":
            infos[kind][key] = _graphics_info(ctx, arena, job, layout, modules, shared)
        else:
            module = modules[("comp", s.compute)]
            stage = _stage_info(arena, ctx.api.c.VK_SHADER_STAGE_COMPUTE_BIT, module)
            infos[kind][key] = arena.struct(
                "VkComputePipelineCreateInfo", stage=stage[0], layout=layout
            )
    made = {}
    for kind, wanted in infos.items():
        handles = _create_all(ctx, owned, arena, kind, list(wanted.values()), names[kind], cache)
        made.update({(kind, key): h for key, h in zip(wanted, handles, strict=True)})
    return [made[k] for k in keys]


def _create_all(
    ctx: Context,
    owned: Owned,
    arena: Arena,
    kind: str,
    infos: Sequence[CData],
    names: Sequence[str],
    cache: CData,
) -> list[CData]:
    if not infos:
        return []
    api = ctx.api
    out = api.ffi.new("VkPipeline[]", len(infos))
    create = getattr(api.lib, f"vkCreate{kind}Pipelines")
    array = arena.array(f"Vk{kind}PipelineCreateInfo", infos)
    result = create(ctx.device, cache, len(infos), array, api.null, out)
    # On failure those that worked are handles, the others NULL.
    made = [owned.adopt("Pipeline", p, n) for p, n in zip(out, names, strict=True) if p != api.null]
    failed = [n for p, n in zip(out, names, strict=True) if p == api.null]
    ctx.check(result, f"vkCreate{kind}Pipelines", ", ".join(failed) or names[0])
    return made


def _stage_info(arena: Arena, bit: int, module: CData) -> CData:
    return arena.struct("VkPipelineShaderStageCreateInfo", stage=bit, module=module, pName=b"main")


def _shared_state(ctx: Context, arena: Arena) -> dict[str, CData]:
    """What all graphics pipelines have in common."""
    c = ctx.api.c
    dynamic = [c.VK_DYNAMIC_STATE_VIEWPORT, c.VK_DYNAMIC_STATE_SCISSOR]
    return {
        "pVertexInputState": arena.struct("VkPipelineVertexInputStateCreateInfo"),
        "pInputAssemblyState": arena.struct(
            "VkPipelineInputAssemblyStateCreateInfo",
            topology=c.VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST,
        ),
        "pViewportState": arena.struct(
            "VkPipelineViewportStateCreateInfo", viewportCount=1, scissorCount=1
        ),
        "pMultisampleState": arena.struct(
            "VkPipelineMultisampleStateCreateInfo", rasterizationSamples=c.VK_SAMPLE_COUNT_1_BIT
        ),
        "pDynamicState": arena.struct(
            "VkPipelineDynamicStateCreateInfo",
            dynamicStateCount=len(dynamic),
            pDynamicStates=arena.array("VkDynamicState", dynamic),
        ),
    }


def _graphics_info(
    ctx: Context,
    arena: Arena,
    job: Job,
    layout: CData,
    modules: dict[tuple[str, str], CData],
    shared: dict[str, CData],
) -> CData:
    c, substage = ctx.api.c, job.substage
    stages = [
        _stage_info(arena, c.VK_SHADER_STAGE_VERTEX_BIT, modules[("vert", substage.vertex)]),
        _stage_info(arena, c.VK_SHADER_STAGE_FRAGMENT_BIT, modules[("frag", substage.fragment)]),
    ]
    n_outputs = len(substage.outputs)
    blend = arena.struct(
        "VkPipelineColorBlendStateCreateInfo",
        attachmentCount=n_outputs,
        # Blending off, all four channels written.
        pAttachments=arena.array(
            "VkPipelineColorBlendAttachmentState", [{"colorWriteMask": 0xF}] * n_outputs
        ),
    )
    cull = {
        "none": c.VK_CULL_MODE_NONE,
        "back": c.VK_CULL_MODE_BACK_BIT,
        "front": c.VK_CULL_MODE_FRONT_BIT,
    }
    if substage.cull not in cull:
        raise DeviceError(f"substage '{substage.name}': cull mode {substage.cull!r}")
    depth = ctx.api.null
    if substage.depth:
        depth = arena.struct(
            "VkPipelineDepthStencilStateCreateInfo",
            depthTestEnable=1,
            depthWriteEnable=1,
            depthCompareOp=c.VK_COMPARE_OP_LESS,
        )
    return arena.struct(
        "VkGraphicsPipelineCreateInfo",
        stageCount=len(stages),
        pStages=arena.array("VkPipelineShaderStageCreateInfo", stages),
        pColorBlendState=blend,
        pDepthStencilState=depth,
        pRasterizationState=arena.struct(
            "VkPipelineRasterizationStateCreateInfo",
            polygonMode=c.VK_POLYGON_MODE_FILL,
            cullMode=cull[substage.cull],
            # As Vulkan counts it, with y down: what runs counter-clockwise for who looks at it.
            frontFace=c.VK_FRONT_FACE_COUNTER_CLOCKWISE,
            lineWidth=1.0,
        ),
        layout=layout,
        renderPass=job.render_pass,
        subpass=job.subpass,
        **shared,
    )


def create_descriptors(
    ctx: Context,
    owned: Owned,
    layouts: Layouts,
    plan: Plan,
    substages: Sequence[SubstagePlan],
    images: Sequence[Image],
    buffers: Sequence[Buffer],
    uniforms: Buffer | None,
) -> list[CData]:
    """Allocates and fills the descriptor set of each substage; pointers to VkDescriptorSet, or
    None."""
    using = [s for s in substages if s.bindings]
    if not using:
        return [None] * len(substages)
    api, c, arena = ctx.api, ctx.api.c, Arena(ctx.api)
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
    pool = owned.create("DescriptorPool", pool_info, f"plan '{plan.name}'")
    set_layouts = [layouts.get(s.bindings, f"substage '{s.name}'")[0] for s in using]
    info = arena.struct(
        "VkDescriptorSetAllocateInfo",
        descriptorPool=pool,
        descriptorSetCount=len(using),
        pSetLayouts=arena.array("VkDescriptorSetLayout", set_layouts),
    )
    sets = api.ffi.new("VkDescriptorSet[]", len(using))
    result = api.lib.vkAllocateDescriptorSets(ctx.device, info, sets)
    ctx.check(result, "vkAllocateDescriptorSets", f"plan '{plan.name}'")
    writes = []
    for substage, handle in zip(using, sets, strict=True):
        for b in substage.bindings:
            fields: dict[str, CData] = {}
            if b.kind in ("buffer", "uniform"):
                if b.kind == "uniform" and uniforms is None:
                    raise DeviceError(
                        f"substage '{substage.name}' binds uniforms, but plan '{plan.name}' has "
                        "no uniform slots"
                    )
                source = uniforms if b.kind == "uniform" else buffers[b.index]
                assert source is not None
                fields["pBufferInfo"] = arena.struct(
                    "VkDescriptorBufferInfo", buffer=source.handle, range=source.size
                )
            else:
                if b.kind == "storage" and images[b.index].format not in ctx.storage_formats:
                    raise DeviceError(
                        f"{ctx.info.name} has no storage images of format "
                        f"{images[b.index].format} (substage '{substage.name}')"
                    )
                sampler = api.null
                if b.kind == "sampler":
                    sampler = layouts.sampler(b.sampler or SamplerPlan())
                fields["pImageInfo"] = arena.struct(
                    "VkDescriptorImageInfo",
                    sampler=sampler,
                    imageView=images[b.index].view,
                    imageLayout=c.VK_IMAGE_LAYOUT_GENERAL,
                )
            writes.append(
                arena.struct(
                    "VkWriteDescriptorSet",
                    dstSet=handle,
                    dstBinding=b.binding,
                    descriptorCount=1,
                    descriptorType=descriptor_type(ctx, b.kind),
                    **fields,
                )
            )
    array = arena.array("VkWriteDescriptorSet", writes)
    api.lib.vkUpdateDescriptorSets(ctx.device, len(writes), array, 0, api.null)
    pointers = iter([arena.array("VkDescriptorSet", [handle]) for handle in sets])
    return [next(pointers) if s.bindings else None for s in substages]
