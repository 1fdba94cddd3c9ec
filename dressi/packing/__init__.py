"""Packing: a graph into as few Vulkan render passes and subpasses as the limits allow (paper,
3.3.3)."""

from dressi.packing.build import Packed, pack
from dressi.packing.limits import PRESETS, DeviceLimits
from dressi.packing.options import Options
from dressi.packing.plan import Plan
from dressi.packing.show import plan_text, shaders_text
from dressi.packing.task import image_key
from dressi.packing.verify import check_plan

__all__ = [
    "PRESETS",
    "DeviceLimits",
    "Options",
    "Packed",
    "Plan",
    "check_plan",
    "image_key",
    "pack",
    "plan_text",
    "shaders_text",
]
