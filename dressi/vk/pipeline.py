"""Shader modules and pipelines of a plan.

In: the substages with their render passes. Out: shader modules, and one pipeline per substage, made
by as many threads as there are processors: a driver compiles in the thread that calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dressi.errors import DeviceError
from dressi.interrupt import DeferredInterrupt
from dressi.packing.plan import SubstagePlan
from dressi.threads import in_threads
from dressi.vk.api import Arena, CData
from dressi.vk.context import Context, Owned
from dressi.vk.descriptors import Layouts


@dataclass(frozen=True)
class Bound:
    """What a substage binds."""

    pipeline: CData
    layout: CData
    descriptors: CData
    """Pointer to one VkDescriptorSet, or None when the substage has no bindings."""
    outside: CData = None
    """Pipeline of the first draw of a sparse pass."""


@dataclass(frozen=True)
class Job:
    """A substage with what its pipeline depends on. ``render_pass`` is None for compute."""

    substage: SubstagePlan
    render_pass: CData = None
    subpass: int = 0
    is_outside: bool = False
    """Whether it is the first draw of a sparse pass."""

    @property
    def fragment(self) -> str:
        """GLSL of its fragments."""
        return self.substage.outside if self.is_outside else self.substage.fragment


def first_draws(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs of the first draws of sparse passes, in the order of these."""
    return [replace(job, is_outside=True) for job in jobs if job.substage.outside]


def create_modules(
    ctx: Context, owned: Owned, sources: Sequence[tuple[str, str]], codes: Sequence[bytes]
) -> dict[tuple[str, str], CData]:
    """One VkShaderModule for each different SPIR-V, by the (stage, GLSL) it is of."""
    made: dict[bytes, CData] = {}
    for (stage, _), code in zip(sources, codes, strict=True):
        if code not in made:
            arena = Arena(ctx.api)
            words = ctx.api.ffi.from_buffer("uint32_t[]", code)
            info = arena.struct("VkShaderModuleCreateInfo", codeSize=len(code), pCode=words)
            made[code] = owned.create("ShaderModule", info, f"{stage} shader")
    return {source: made[code] for source, code in zip(sources, codes, strict=True)}


def create_pipelines(
    ctx: Context,
    owned: Owned,
    layouts: Layouts,
    jobs: Sequence[Job],
    modules: dict[tuple[str, str], CData],
    cache: CData,
) -> list[CData]:
    """The VkPipeline of each job, in order; jobs that want the same share one.

    Sharing matters on lavapipe, which compiles each pipeline to machine code and keeps only about
    500 of them.
    """
    arena = Arena(ctx.api)
    shared = _shared_state(ctx, arena)
    wanted: dict[tuple[object, ...], _Wanted] = {}
    keys: list[tuple[object, ...]] = []
    for job in jobs:
        s = job.substage
        what = f"substage '{s.name}'"
        layout = layouts.get(s.bindings, what)[1]
        texts = ("vert", s.vertex), ("frag", job.fragment), ("comp", s.compute)
        shaders = tuple(modules[text] for text in texts if text[1])
        key = (layout, job.render_pass, job.subpass, len(s.outputs), s.depth, s.cull, shaders)
        keys.append(key)
        if key in wanted:
            continue
        if job.render_pass is None:
            info = _compute_info(ctx, arena, modules[("comp", s.compute)], layout)
            wanted[key] = _Wanted("Compute", info, what)
        else:
            info = _graphics_info(ctx, arena, job, layout, modules, shared)
            wanted[key] = _Wanted("Graphics", info, what)
    handles = _create_all(ctx, owned, list(wanted.values()), cache)
    made = dict(zip(wanted, handles, strict=True))
    return [made[k] for k in keys]


def create_compute(ctx: Context, owned: Owned, module: CData, layout: CData, what: str) -> CData:
    """A compute pipeline by itself, in no cache of ours."""
    arena = Arena(ctx.api)
    info = _compute_info(ctx, arena, module, layout)
    return _create_all(ctx, owned, [_Wanted("Compute", info, what)], ctx.api.null)[0]


@dataclass(frozen=True)
class _Wanted:
    """A pipeline to make. kind: Graphics or Compute. info: pointer to its create info. what: names
    it in errors."""

    kind: str
    info: CData
    what: str


def _create_all(ctx: Context, owned: Owned, wanted: Sequence[_Wanted], cache: CData) -> list[CData]:
    """Make each pipeline by a call of its own, in threads."""
    api = ctx.api

    def create(one: _Wanted) -> tuple[int, CData]:
        out = api.ffi.new("VkPipeline *")
        call = getattr(api.lib, f"vkCreate{one.kind}Pipelines")
        return call(ctx.device, cache, 1, one.info, api.null, out), out[0]

    with DeferredInterrupt():  # what threads have made by then has an owner
        done = list(zip(wanted, in_threads(create, wanted), strict=True))
        # Where one fails, the others are handles all the same.
        made = [owned.adopt("Pipeline", p, one.what) for one, (_, p) in done if p != api.null]
    for one, (result, _) in done:
        ctx.check(result, f"vkCreate{one.kind}Pipelines", one.what)
    return made


def _compute_info(ctx: Context, arena: Arena, module: CData, layout: CData) -> CData:
    stage = _stage_info(arena, ctx.api.c.VK_SHADER_STAGE_COMPUTE_BIT, module)
    return arena.struct("VkComputePipelineCreateInfo", stage=stage[0], layout=layout)


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
        _stage_info(arena, c.VK_SHADER_STAGE_FRAGMENT_BIT, modules[("frag", job.fragment)]),
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
