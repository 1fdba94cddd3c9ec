"""The presets of limits hold the numbers that a specification or a driver states."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from dressi import DressiAD
from dressi.packing.limits import LLVMPIPE, MALI, MINIMUM

# Vulkan 1.0, table "Required Limits"; and features that no device must have.
REQUIRED = {
    "image_dim": 4096,
    "input_attachments": 4,
    "color_outputs": 4,
    "sampled_images": 16,
    "samplers": 16,
    "storage_buffers": 4,
    "storage_images": 4,
    "uniform_slots": 16384 // 16,
    "storage_words": 2**27 // 4,
    "combined_outputs": 4,
    "group_lanes": 128,
    "fragment_stores": False,
    "float_atomics": False,
    "int64_atomics": False,
    "subgroup_arithmetic": False,
    "linear_float32": False,
}


def test_minimum_is_what_vulkan_guarantees() -> None:
    stated = asdict(MINIMUM)
    assert {name: stated[name] for name in REQUIRED} == REQUIRED
    # maxPerStageResources is 128, and 44 on tilers of old: the smaller is kept.
    assert MINIMUM.resources == 44


def test_mali_has_the_attachments_of_the_paper() -> None:
    """Its table of devices: 4 input attachments."""
    assert MALI.input_attachments == 4
    assert MALI.color_outputs == 4


@pytest.mark.gpu
def test_the_preset_of_llvmpipe_is_what_its_driver_reports() -> None:
    with DressiAD() as ad:
        if "llvmpipe (LLVM 15.0.6" not in ad.limits.name:
            pytest.skip(f"another driver: {ad.limits.name}")
        assert asdict(ad.limits) == {**asdict(LLVMPIPE), "name": ad.limits.name}
