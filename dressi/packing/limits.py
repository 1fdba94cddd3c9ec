"""What a device allows, as plain data.

In: nothing (presets) or the numbers that ``dressi.vk`` read from a driver. Out: ``DeviceLimits``,
the only thing that flows back from the device to the packer. Packing tests run on the presets, with
no device. Any device can be limited further (``dataclasses.replace``) to stand in for a weaker one,
as in the paper's table 2.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

UNLIMITED = 1048576
"""What NVIDIA's driver reports for input attachments; used as 'no limit'."""

CPU_LOOPS = 8
"""Functions of a shader that loop, on CPU drivers: compiled in a third of a second."""


@dataclass(frozen=True)
class DeviceLimits:
    """The limits and features of one device that packing and code generation look at.

    Counts are per shader (one subpass or one dispatch) unless the name says otherwise.
    """

    name: str
    image_dim: int = 4096
    """maxImageDimension2D and maxFramebufferWidth/Height, the smaller, in pixels."""
    input_attachments: int = 4
    color_outputs: int = 4
    sampled_images: int = 16
    samplers: int = 16
    storage_buffers: int = 4
    storage_images: int = 4
    uniform_slots: int = 1024
    """vec4 slots of one uniform block (maxUniformBufferRange / 16)."""
    storage_words: int = 1 << 25
    """32-bit words of one storage buffer (maxStorageBufferRange / 4)."""
    resources: int = 44
    """Inputs, buffers, and colour outputs of one shader together (maxPerStageResources)."""
    combined_outputs: int = 4
    """Colour outputs, storage buffers and storage images together
    (maxFragmentCombinedOutputResources)."""
    stage_attachments: int = 64
    """Attachments of a whole render pass. Vulkan sets no limit; 64 keeps framebuffers sane."""
    loops: int = UNLIMITED
    """Functions that loop. No limit of Vulkan: LLVM, by which CPU drivers compile, takes ever
    longer for loops behind each other (sums on llvmpipe: 8 in 0.4 s, 12 in 1.3, 16 in 38)."""
    group_lanes: int = 128
    """Invocations of a group of a dispatch (maxComputeWorkGroupInvocations, and those of x)."""
    fragment_stores: bool = False
    """fragmentStoresAndAtomics: a fragment shader may scatter."""
    float_atomics: bool = False
    """VK_EXT_shader_atomic_float, 32-bit add on buffers. Without: a compare-and-swap loop."""
    int64_atomics: bool = False
    """64-bit integers, and their atomic sum and maximum in buffers."""
    subgroup_arithmetic: bool = False
    """Sums over subgroups in compute shaders: basic, ballot, arithmetic and shuffle operations."""
    linear_float32: bool = False
    """Linear filtering of 32-bit float images. Without: four fetches in the shader."""

    def restrict(self, **changes: int | bool | str) -> DeviceLimits:
        """The same device with some numbers replaced; raises TypeError on an unknown name."""
        known = {f.name for f in fields(self)}
        unknown = set(changes) - known
        if unknown:
            raise TypeError(f"unknown limit(s) {sorted(unknown)}; known: {sorted(known)}")
        return replace(self, **changes)  # type: ignore[arg-type]


# The least that Vulkan 1.0 guarantees (specification, table "Required Limits").
MINIMUM = DeviceLimits("minimum")

# Mesa 22.3.6 llvmpipe, as read from the driver (``vk.query``).
LLVMPIPE = DeviceLimits(
    "llvmpipe",
    image_dim=16384,
    input_attachments=8,
    color_outputs=8,
    sampled_images=128,
    samplers=32,
    storage_buffers=32,
    storage_images=63,
    uniform_slots=4096,
    storage_words=1 << 25,
    resources=128,
    combined_outputs=104,
    loops=CPU_LOOPS,
    fragment_stores=True,
    float_atomics=True,
    int64_atomics=True,
    subgroup_arithmetic=True,
    group_lanes=1024,
    linear_float32=True,
)

# Intel UHD 620 (paper, table 2: 8 input attachments).
INTEL = LLVMPIPE.restrict(
    name="intel",
    float_atomics=False,
    int64_atomics=False,
    combined_outputs=16,
    loops=UNLIMITED,
)

# Arm Mali-G76 (paper, table 2: 4 input attachments).
MALI = DeviceLimits(
    "mali",
    image_dim=8192,
    input_attachments=4,
    color_outputs=4,
    sampled_images=128,
    samplers=128,
    storage_buffers=35,
    storage_images=8,
    uniform_slots=4096,
    resources=44,
    combined_outputs=39,
    fragment_stores=True,
)

# NVIDIA desktop and data-centre drivers.
NVIDIA = DeviceLimits(
    "nvidia",
    image_dim=32768,
    input_attachments=UNLIMITED,
    color_outputs=8,
    sampled_images=UNLIMITED,
    samplers=UNLIMITED,
    storage_buffers=UNLIMITED,
    storage_images=UNLIMITED,
    uniform_slots=4096,
    storage_words=1 << 30,
    resources=UNLIMITED,
    combined_outputs=UNLIMITED,
    fragment_stores=True,
    float_atomics=True,
    int64_atomics=True,
    subgroup_arithmetic=True,
    group_lanes=1024,
    linear_float32=True,
)

PRESETS = {p.name: p for p in (MINIMUM, LLVMPIPE, INTEL, MALI, NVIDIA)}
