"""Vulkan: devices, persistent images, and plans that run.

In: ``Plan`` (strings, numbers, tuples). Out: ``DeviceLimits`` and pixels. Knows no op and no
Variable.
"""

from dressi.vk.device import Device, equal_devices, list_devices, open_device
from dressi.vk.executor import Executable
from dressi.vk.query import DeviceInfo, unique_names
from dressi.vk.shader import compile_glsl

__all__ = [
    "Device",
    "DeviceInfo",
    "Executable",
    "compile_glsl",
    "equal_devices",
    "list_devices",
    "open_device",
    "unique_names",
]
