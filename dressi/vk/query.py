"""What a physical device is and allows, read from the driver.

In: a VkPhysicalDevice. Out: ``DeviceInfo`` (for people) and ``DeviceLimits`` (for the packer).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from dressi.errors import DeviceError
from dressi.packing.limits import CPU_LOOPS, UNLIMITED, DeviceLimits
from dressi.vk.api import Api, Arena, CData

FORMATS = {
    "R32F": "VK_FORMAT_R32_SFLOAT",
    "RG32F": "VK_FORMAT_R32G32_SFLOAT",
    "RGBA32F": "VK_FORMAT_R32G32B32A32_SFLOAT",
    "R32I": "VK_FORMAT_R32_SINT",
    "RG32I": "VK_FORMAT_R32G32_SINT",
    "RGBA32I": "VK_FORMAT_R32G32B32A32_SINT",
}
"""Format of an ImagePlan to Vulkan's name. Vulkan 1.0 requires all six as colour attachments."""

MEMORY, TIMELINE = "VK_KHR_external_memory_fd", "VK_KHR_timeline_semaphore"
SHARING = frozenset({MEMORY, "VK_KHR_external_semaphore_fd", TIMELINE})
"""Extensions that ``dressi.vk.external`` needs."""

_TYPES = {1: "gpu-integrated", 2: "gpu-discrete", 3: "gpu-virtual", 4: "cpu"}


@dataclass(frozen=True)
class DeviceInfo:
    """One device as the driver describes it."""

    index: int
    """Position in ``list_devices()``; a selector of ``open_device``."""
    name: str
    driver: str
    type: str
    """gpu-discrete, gpu-integrated, gpu-virtual, cpu, or other."""
    api_version: str
    uuid: str = ""
    """Of the device itself, 8-4-4-4-12 hexadecimal digits: the same in every process, and what
    nvidia-smi shows behind ``GPU-``. Empty where the driver (Vulkan 1.0) tells none."""


def version_text(version: int) -> str:
    """A packed Vulkan version as ``major.minor.patch``."""
    return f"{version >> 22 & 0x7F}.{version >> 12 & 0x3FF}.{version & 0xFFF}"


def extensions(api: Api, physical: CData) -> set[str]:
    """Names of the device extensions that the driver offers."""
    return set(
        api.enumerate(
            api.lib.vkEnumerateDeviceExtensionProperties,
            "VkExtensionProperties",
            physical,
            api.null,
            call="vkEnumerateDeviceExtensionProperties",
            read=lambda e: api.ffi.string(e.extensionName).decode(),
        )
    )


def read_info(api: Api, instance: CData, physical: CData, index: int) -> DeviceInfo:
    """Reads name, driver and type of a device."""
    properties = api.ffi.new("VkPhysicalDeviceProperties *")
    api.lib.vkGetPhysicalDeviceProperties(physical, properties)
    driver, uuid = f"driver version {properties.driverVersion:#x}", ""
    query = api.instance_function(instance, "vkGetPhysicalDeviceProperties2KHR")
    if query is not None and "VK_KHR_driver_properties" in extensions(api, physical):
        arena = Arena(api)
        text = arena.struct("VkPhysicalDeviceDriverProperties")
        query(physical, arena.struct("VkPhysicalDeviceProperties2", pNext=text))
        names = (api.ffi.string(t).decode() for t in (text.driverName, text.driverInfo))
        driver = " ".join(n for n in names if n) or driver
    if query is not None and properties.apiVersion >= 1 << 22 | 1 << 12:
        arena = Arena(api)
        ids = arena.struct("VkPhysicalDeviceIDProperties")
        query(physical, arena.struct("VkPhysicalDeviceProperties2", pNext=ids))
        uuid = str(UUID(bytes=bytes(ids.deviceUUID)))
    return DeviceInfo(
        index=index,
        name=api.ffi.string(properties.deviceName).decode(),
        driver=driver,
        type=_TYPES.get(properties.deviceType, "other"),
        api_version=version_text(properties.apiVersion),
        uuid=uuid,
    )


def unique_names(infos: Sequence[DeviceInfo]) -> list[str]:
    """What to call each device so that no other is meant: its name, and where several have the
    same, ``name#k``, the k-th of them from 0 by index. Each is a selector of ``open_device``."""
    names = [i.name for i in infos]
    return [
        name if names.count(name) == 1 else f"{name}#{names[:k].count(name)}"
        for k, name in enumerate(names)
    ]


def has_float_atomics(api: Api, instance: CData, physical: CData) -> bool:
    """Whether a shader may add 32-bit floats to storage buffers atomically."""
    query = api.instance_function(instance, "vkGetPhysicalDeviceFeatures2KHR")
    if query is None or "VK_EXT_shader_atomic_float" not in extensions(api, physical):
        return False
    arena = Arena(api)
    atomics = arena.struct("VkPhysicalDeviceShaderAtomicFloatFeaturesEXT")
    query(physical, arena.struct("VkPhysicalDeviceFeatures2", pNext=atomics))
    return bool(atomics.shaderBufferFloat32AtomicAdd)


def has_int64_atomics(api: Api, instance: CData, physical: CData) -> bool:
    """Whether a shader may change 64-bit words of storage buffers atomically (add, maximum)."""
    query = api.instance_function(instance, "vkGetPhysicalDeviceFeatures2KHR")
    if query is None or "VK_KHR_shader_atomic_int64" not in extensions(api, physical):
        return False
    arena = Arena(api)
    atomics = arena.struct("VkPhysicalDeviceShaderAtomicInt64Features")
    features = arena.struct("VkPhysicalDeviceFeatures2", pNext=atomics)
    query(physical, features)
    return bool(atomics.shaderBufferInt64Atomics and features.features.shaderInt64)


_SUBGROUP_OPERATIONS = 0x1 | 0x4 | 0x8 | 0x10
"""VkSubgroupFeatureFlags: basic, arithmetic, ballot, shuffle."""
_COMPUTE_STAGE = 0x20


def has_subgroup_arithmetic(api: Api, instance: CData, physical: CData) -> bool:
    """Whether compute shaders may add up over their subgroups, of 4 invocations or more."""
    query = api.instance_function(instance, "vkGetPhysicalDeviceProperties2KHR")
    properties = api.ffi.new("VkPhysicalDeviceProperties *")
    api.lib.vkGetPhysicalDeviceProperties(physical, properties)
    if query is None or properties.apiVersion < 1 << 22 | 1 << 12:  # part of Vulkan 1.1
        return False
    arena = Arena(api)
    subgroup = arena.struct("VkPhysicalDeviceSubgroupProperties")
    query(physical, arena.struct("VkPhysicalDeviceProperties2", pNext=subgroup))
    operations = subgroup.supportedOperations & _SUBGROUP_OPERATIONS == _SUBGROUP_OPERATIONS
    stages = bool(subgroup.supportedStages & _COMPUTE_STAGE)
    return operations and stages and subgroup.subgroupSize >= 4


def format_features(api: Api, physical: CData, vk_format: str) -> int:
    """VkFormatFeatureFlags of a format in optimal tiling."""
    properties = api.ffi.new("VkFormatProperties *")
    api.lib.vkGetPhysicalDeviceFormatProperties(physical, getattr(api.c, vk_format), properties)
    return int(properties.optimalTilingFeatures)


def has_format_feature(api: Api, physical: CData, feature: str) -> Callable[[str], bool]:
    """A test ``format -> bool`` for a feature, for instance ``STORAGE_IMAGE``."""
    bit = getattr(api.c, f"VK_FORMAT_FEATURE_{feature}_BIT")
    return lambda name: bool(format_features(api, physical, FORMATS[name]) & bit)


MOST_ON_LLVMPIPE = 63
"""Storage images of a shader. Mesa's CPU driver (22.3.6) says 64; a shader that has as many reads
wrong pixels, or the driver crashes."""


def read_limits(
    api: Api,
    physical: CData,
    name: str,
    float_atomics: bool,
    int64_atomics: bool,
    subgroup_arithmetic: bool,
) -> DeviceLimits:
    """Reads what the packer looks at.

    Raises DeviceError when the driver reports 0 input attachments or 0 colour outputs, without
    which no plan can run.
    """
    properties = api.ffi.new("VkPhysicalDeviceProperties *")
    api.lib.vkGetPhysicalDeviceProperties(physical, properties)
    features = api.ffi.new("VkPhysicalDeviceFeatures *")
    api.lib.vkGetPhysicalDeviceFeatures(physical, features)
    m = properties.limits

    def count(*values: int) -> int:
        # Some drivers report 2^32 - 1 for 'no limit'; one number for that keeps comparisons simple.
        return min(*values, UNLIMITED)

    limits = DeviceLimits(
        name,
        image_dim=count(m.maxImageDimension2D, m.maxFramebufferWidth, m.maxFramebufferHeight),
        input_attachments=count(
            m.maxPerStageDescriptorInputAttachments, m.maxDescriptorSetInputAttachments
        ),
        color_outputs=count(m.maxColorAttachments, m.maxFragmentOutputAttachments),
        sampled_images=count(m.maxPerStageDescriptorSampledImages, m.maxDescriptorSetSampledImages),
        samplers=count(m.maxPerStageDescriptorSamplers, m.maxDescriptorSetSamplers),
        storage_buffers=count(
            m.maxPerStageDescriptorStorageBuffers, m.maxDescriptorSetStorageBuffers
        ),
        storage_images=count(
            m.maxPerStageDescriptorStorageImages,
            m.maxDescriptorSetStorageImages,
            MOST_ON_LLVMPIPE if name.startswith("llvmpipe") else UNLIMITED,
        ),
        loops=CPU_LOOPS if _TYPES.get(properties.deviceType) == "cpu" else UNLIMITED,
        uniform_slots=count(m.maxUniformBufferRange // 16),
        storage_words=m.maxStorageBufferRange // 4,
        group_lanes=min(m.maxComputeWorkGroupInvocations, m.maxComputeWorkGroupSize[0]),
        resources=count(m.maxPerStageResources),
        combined_outputs=count(m.maxFragmentCombinedOutputResources),
        fragment_stores=bool(features.fragmentStoresAndAtomics),
        float_atomics=float_atomics,
        int64_atomics=int64_atomics,
        subgroup_arithmetic=subgroup_arithmetic,
        linear_float32=all(
            map(
                has_format_feature(api, physical, "SAMPLED_IMAGE_FILTER_LINEAR"),
                ("R32F", "RG32F", "RGBA32F"),
            )
        ),
    )
    if limits.input_attachments == 0:
        raise DeviceError(
            f"{name} reports maxPerStageDescriptorInputAttachments = 0; Vulkan requires at least 4"
        )
    if limits.color_outputs == 0:
        raise DeviceError(f"{name} reports maxColorAttachments = 0; Vulkan requires at least 4")
    return limits


def queue_family(api: Api, physical: CData) -> tuple[int | None, int]:
    """Index of the first family with graphics and compute (None: there is none), and its timestamp
    bits."""
    count = api.ffi.new("uint32_t *")
    api.lib.vkGetPhysicalDeviceQueueFamilyProperties(physical, count, api.null)
    families = api.ffi.new("VkQueueFamilyProperties[]", max(count[0], 1))
    api.lib.vkGetPhysicalDeviceQueueFamilyProperties(physical, count, families)
    wanted = api.c.VK_QUEUE_GRAPHICS_BIT | api.c.VK_QUEUE_COMPUTE_BIT
    for i in range(count[0]):
        if families[i].queueFlags & wanted == wanted:
            return i, int(families[i].timestampValidBits)
    return None, 0


def enabling(
    api: Api, arena: Arena, offered: set[str], limits: DeviceLimits
) -> tuple[list[str], CData]:
    """Names of the extensions to switch on, and the chain of their features for
    VkDeviceCreateInfo."""
    # A driver on top of another API (MoltenVK) must be asked for by this name where it is offered.
    enabled = sorted(({"VK_KHR_portability_subset"} | SHARING) & offered)
    chain = api.null
    if TIMELINE in offered:
        chain = arena.struct("VkPhysicalDeviceTimelineSemaphoreFeatures", timelineSemaphore=1)
    if limits.float_atomics:
        enabled.append("VK_EXT_shader_atomic_float")
        chain = arena.struct(
            "VkPhysicalDeviceShaderAtomicFloatFeaturesEXT",
            pNext=chain,
            shaderBufferFloat32AtomicAdd=1,
        )
    if limits.int64_atomics:
        enabled.append("VK_KHR_shader_atomic_int64")
        chain = arena.struct(
            "VkPhysicalDeviceShaderAtomicInt64Features", pNext=chain, shaderBufferInt64Atomics=1
        )
    return enabled, chain
