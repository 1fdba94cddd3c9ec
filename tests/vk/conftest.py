"""One device for all tests of ``vk``, a cache folder of their own, and a garbage collector that is
always on.

Run with DRESSI_VALIDATE=1 to have every test checked by the validation layers.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dressi.errors import DeviceError
from dressi.vk import Device, open_device

# pytest's import mode `importlib` leaves the folder of a test off the path: this is for
# `hand_plans`.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = os.environ.get("DRESSI_CACHE")
    os.environ["DRESSI_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["DRESSI_CACHE"]
    else:
        os.environ["DRESSI_CACHE"] = before


@pytest.fixture(autouse=True)
def eager_collector() -> Iterator[None]:
    """Structs of the binding that nobody keeps alive are freed at once, not by luck later."""
    before = gc.get_threshold()
    gc.set_threshold(1)
    yield
    gc.set_threshold(*before)


@pytest.fixture(scope="session")
def shared_device(own_cache: None) -> Iterator[Device]:
    try:
        device = open_device()
    except DeviceError as error:
        pytest.skip(f"no Vulkan device: {error}")
    yield device
    device.close()
    assert not any(device.live_handles().values())


@pytest.fixture
def device(shared_device: Device) -> Iterator[Device]:
    """The shared device; no test leaves messages or Vulkan objects behind."""
    before = _settled(shared_device)
    yield shared_device
    shared_device.check_validation()
    assert _settled(shared_device) == before


def _settled(device: Device) -> dict[str, int]:
    """Live handles but for what is kept on purpose: memory blocks and staging buffers."""
    kept = {"VkDeviceMemory", "VkBuffer"}
    return {k: n for k, n in device.live_handles().items() if n and k not in kept}
