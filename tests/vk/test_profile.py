"""The device profile: measured, kept, and thrown away when the file is damaged."""

from __future__ import annotations

import time
from dataclasses import asdict

import pytest

from dressi import config
from dressi.packing.profile import PRESETS, from_dict
from dressi.vk import Device
from dressi.vk import profile as measuring

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRESSI_PROFILE", raising=False)
    monkeypatch.setattr(measuring, "on_cpu", lambda device: False)


def test_times_are_positive_and_larger_images_cost_more(device: Device) -> None:
    profile = measuring.measure(device)
    for costs in (profile.graphics, profile.compute):
        assert all(0 < v < 1e9 for v in asdict(costs).values())
        # A pass over 512 x 512 takes longer than one over 8 x 8.
        assert costs.predicted_us(512 * 512) > costs.predicted_us(64)
    assert profile.name == device.info.name
    assert from_dict(profile.as_dict()) == profile


def test_it_is_measured_once(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    first = measuring.profile_of(device)
    assert first is not None

    def fails(device: Device) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(measuring, "measure", fails)
    assert measuring.profile_of(device) == first


def test_a_damaged_file_is_measured_again(device: Device) -> None:
    first = measuring.profile_of(device)
    assert first is not None
    for path in (config.cache_dir() / "profiles").iterdir():
        path.write_bytes(b"nonsense")
    assert measuring.profile_of(device) is not None


def test_a_cpu_driver_has_the_preset_and_stays_with_passes(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.delenv("DRESSI_PROFILE", raising=False)
    if not measuring.on_cpu(device):
        pytest.skip("not a CPU driver")
    profile = measuring.profile_of(device)
    assert profile == PRESETS["llvmpipe"]
    assert not profile.prefers_dispatch(1 << 24) and not profile.prefers_compute_raster


def test_off_and_presets_measure_nothing(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "measure", None)
    monkeypatch.setenv("DRESSI_PROFILE", "off")
    assert measuring.profile_of(device) is None
    monkeypatch.setenv("DRESSI_PROFILE", "h200")
    assert measuring.profile_of(device) == PRESETS["h200"]


def test_reading_it_costs_nothing(device: Device) -> None:
    measuring.profile_of(device)
    start = time.perf_counter()
    measuring.profile_of(device)
    assert time.perf_counter() - start < 1.0  # a file of a few hundred bytes
