"""Memory that is exported by a descriptor, and submits that are left running."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from dressi.packing.layout import Cells
from dressi.packing.plan import ImagePlan
from dressi.vk import Device
from dressi.vk.api import WHOLE_SIZE, Arena
from dressi.vk.context import Owned
from dressi.vk.external import Timeline, obstacle
from dressi.vk.image import create_images
from dressi.vk.query import TIMELINE
from dressi.vk.transfer import READBACK, UPLOAD, Batch, Transfer

pytestmark = pytest.mark.gpu


class Imported:
    """Exported memory, imported by Vulkan once more and mapped."""

    def __init__(self, device: Device, fd: int, n_bytes: int, size: int) -> None:
        ctx = self._ctx = device.context
        arena, ffi = Arena(ctx.api), ctx.api.ffi
        chain = arena.struct("VkImportMemoryFdInfoKHR", handleType=1, fd=fd)
        info = arena.struct("VkMemoryAllocateInfo", pNext=chain, allocationSize=size)
        self._memory, address = ffi.new("VkDeviceMemory *"), ffi.new("void **")
        lib = ctx.api.lib
        assert lib.vkAllocateMemory(ctx.device, info, ctx.api.null, self._memory) == 0
        assert lib.vkMapMemory(ctx.device, self._memory[0], 0, WHOLE_SIZE, 0, address) == 0
        self.words = np.frombuffer(ffi.buffer(address[0], n_bytes), np.float32)

    def close(self) -> None:
        """Free it."""
        self.words = np.zeros(0, np.float32)
        self._ctx.api.lib.vkFreeMemory(self._ctx.device, self._memory[0], self._ctx.api.null)


class Importer:
    """Imports memory of a device whose memory the host sees."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def memory(self, fd: int, n_bytes: int, size: int) -> Imported:
        """Import it."""
        assert os.fstat(fd) and size >= n_bytes
        return Imported(self._device, fd, n_bytes, size)


@pytest.fixture
def images(device: Device) -> Iterator[list[Any]]:
    if "VK_KHR_external_memory_fd" not in device.context.sharing:
        pytest.skip(obstacle(device.context))
    if device.info.type != "cpu":
        pytest.skip("the host maps what is imported: the device's memory must be its own")
    owned = Owned(device.context)
    plans = [ImagePlan(k, f"image {k}", "RGBA32F", 5, 3) for k in range(2)]
    yield create_images(device.context, device.memory, owned, plans)
    owned.destroy()


def test_what_is_written_to_exported_memory_comes_back(device: Device, images: list[Any]) -> None:
    before = Counter(device.live_handles())
    up = Transfer(device, UPLOAD, images, "up", Importer(device))
    down = Transfer(device, READBACK, images, "down", Importer(device))
    values = np.arange(60, dtype=np.float32)
    up.views(0)[0][:], up.views(1)[0][:] = values, -values
    Batch(device, [up, down]).run()
    assert np.array_equal(down.views(0)[0], values) and np.array_equal(down.views(1)[0], -values)
    up.close()
    down.close()
    device.shader_copies.close()
    assert Counter(device.live_handles()) == before  # where 0 is as good as missing


@pytest.mark.parametrize("fmt", ["R32F", "RG32F", "RGBA32F", "R32I", "RG32I", "RGBA32I"])
@pytest.mark.parametrize("size", [(1, 1), (70, 9), (32, 8)])
def test_whole_images_of_every_format_are_copied_by_shaders(
    device: Device, images: list[Any], fmt: str, size: tuple[int, int]
) -> None:
    owned = Owned(device.context)
    plans = [ImagePlan(k, f"image {k}", fmt, *size) for k in range(2)]
    made = create_images(device.context, device.memory, owned, plans)
    channels = 4 if "A" in fmt else 2 if "G" in fmt else 1
    cells = [Cells(channels, size[1], size[0] * size[1], 1)] * 2
    up = Transfer(device, UPLOAD, made, "up", Importer(device), cells)
    down = Transfer(device, READBACK, made, "down", Importer(device), cells)
    plain = Transfer(device, READBACK, made, "copies of the driver")
    assert up.packed(0) == down.packed(1) == (fmt != "RG32I")
    n = len(up.views(0)[0])
    values = np.arange(2 * n, dtype=np.int32).view(np.float32).reshape(2, n) if "I" in fmt else (
        np.random.default_rng(0).normal(size=(2, n)).astype(np.float32)
    )  # fmt: skip
    for k in (0, 1):
        up.views(k)[0][:] = values[k]
    Batch(device, [up, down, plain]).run()
    plain.fetch()
    for k in (0, 1):
        assert down.views(k)[0].tobytes() == values[k].tobytes() == plain.views(k)[0].tobytes()
    for one in (up, down, plain):
        one.close()
    owned.destroy()
    device.shader_copies.close()


@pytest.mark.parametrize("fmt", ["RGBA32F", "RGBA32I"])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_what_does_not_count_is_not_copied(
    device: Device, images: list[Any], fmt: str, n: int
) -> None:
    """Two layers of a table of 10 rows, folded to 4 x 3 texels each, of which n channels count."""
    owned, kind = Owned(device.context), np.int32 if "I" in fmt else np.float32
    (image,) = create_images(
        device.context, device.memory, owned, [ImagePlan(0, "table", fmt, 4, 6)]
    )
    cells = Cells(n, 3, 10, 2)
    up = Transfer(device, UPLOAD, [image], "up", Importer(device), [cells])
    down = Transfer(device, READBACK, [image], "down", Importer(device), [cells])
    whole = Transfer(device, READBACK, [image], "copies of the driver")
    values = np.arange(1, 20 * n + 1).astype(kind)
    (words,) = up.views(0)
    assert words.shape == (20 * n,)
    words[:] = values.view(np.float32)
    Batch(device, [up, down, whole]).run()
    whole.fetch()
    assert down.views(0)[0].tobytes() == values.tobytes()
    texels = whole.views(0)[0].view(kind).reshape(2, 12, 4)
    assert np.array_equal(texels[:, :10, :n], values.reshape(2, 10, n))
    assert not texels[:, :10, n:].any()
    for one in (up, down, whole):
        one.close()
    owned.destroy()
    device.shader_copies.close()


def test_a_copy_reads_the_memory_of_another_which_it_outlives(
    device: Device, images: list[Any]
) -> None:
    before = Counter(device.live_handles())
    cells = Cells(3, 3, 15, 1)
    down = Transfer(device, READBACK, images, "down", Importer(device), [cells] * 2)
    again = Transfer(device, UPLOAD, images[:1], "again", None, [cells], (down, 1))
    values = np.random.default_rng(0).normal(size=45).astype(np.float32)
    down.views(1)[0][:] = values
    down.close()
    look = Transfer(device, READBACK, images[:1], "look", Importer(device), [cells])
    Batch(device, [again, look]).run()
    assert np.array_equal(look.views(0)[0], values)
    assert device.live_handles()["VkBuffer"] == before["VkBuffer"] + 2
    for one in (again, look):
        one.close()
    device.shader_copies.close()
    assert Counter(device.live_handles()) == before


def test_a_submit_waits_for_the_timeline_and_the_next_call_for_the_submit(
    device: Device, images: list[Any]
) -> None:
    if TIMELINE not in device.context.sharing:
        pytest.skip(f"no {TIMELINE}")
    ctx = device.context
    timeline = Timeline(device, exported=False)
    up, down = (Transfer(device, use, images[:1], use) for use in (UPLOAD, READBACK))
    batch = Batch(device, [up, down], timeline)
    name = "vkSignalSemaphoreKHR"
    found = ctx.api.lib.vkGetDeviceProcAddr(ctx.device, name.encode())
    signal = ctx.api.ffi.cast(f"PFN_{name}", found)
    for k in (1.0, 2.0):
        up.words[0][:] = k
        before, after = timeline.advance()
        batch.start()  # waits on the device, and not here
        info = Arena(ctx.api).struct(
            "VkSemaphoreSignalInfo", semaphore=timeline.handle, value=before
        )
        assert signal(ctx.device, info) == 0
        device.enter()
        down.fetch()
        assert (down.words[0] == k).all() and after == before + 1
    batch.finish()  # was done: returns at once
    for one in (up, down, timeline):
        one.close()
