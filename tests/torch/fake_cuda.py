"""A stand-in for CUDA's driver library, for a card whose memory the host sees: lavapipe's. What is
imported are Vulkan's own descriptors; what was asked is recorded."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from dressi import DressiAD
from dressi.torch.cuda import Cuda
from dressi.vk import Device
from dressi.vk.api import WHOLE_SIZE, Arena
from dressi.vk.context import Owned
from dressi.vk.external import Timeline, obstacle

CARD = torch.device("cpu")


class FakeDriver:
    """Functions of the driver by name, as ``ctypes`` would call them."""

    def __init__(self, own: Device | None = None) -> None:
        self.own = own
        self.calls: list[tuple[Any, ...]] = []
        """(function, numbers that it was given)."""
        self.fail = ""
        """Name of a function that fails."""
        self.current: int | None = None
        """The context of the thread, beside those."""
        self.depth = 0
        """Contexts that were pushed and not popped."""
        self.timeline: Any = None
        self.stream: ThreadPoolExecutor | None = None
        """Does in turn what is put on a stream; None: the host does it at once."""
        self._memory: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*args: Any) -> int:
            self.calls.append((name, *(_plain(a) for a in args)))
            if name == self.fail:
                return 101
            found = getattr(self, f"_{name}", None)
            if found is not None:
                found(*args)
            return 0

        return call

    def named(self, name: str) -> list[tuple[Any, ...]]:
        """The arguments of all calls of a function."""
        return [c[1:] for c in self.calls if c[0] == name]

    def _cuGetErrorName(self, _: int, text: Any) -> None:
        text._obj.value = b"CUDA_ERROR_FAKE"

    def _cuDevicePrimaryCtxRetain(self, context: Any, _: Any) -> None:
        context._obj.value = 33

    def _cuCtxGetCurrent(self, context: Any) -> None:
        context._obj.value = self.current

    def _cuCtxPushCurrent_v2(self, _: Any) -> None:
        self.depth += 1

    def _cuCtxPopCurrent_v2(self, _: Any) -> None:
        self.depth -= 1

    def _cuImportExternalMemory(self, handle: Any, desc: Any) -> None:
        if self.own is None:
            os.close(desc._obj.handle.fd)
            handle._obj.value = 77
            return
        ctx = self.own.context
        arena, out = Arena(ctx.api), ctx.api.ffi.new("VkDeviceMemory *")
        size, fd = desc._obj.size, desc._obj.handle.fd
        chain = arena.struct("VkImportMemoryFdInfoKHR", handleType=desc._obj.type, fd=fd)
        info = arena.struct("VkMemoryAllocateInfo", pNext=chain, allocationSize=size)
        assert ctx.api.lib.vkAllocateMemory(ctx.device, info, ctx.api.null, out) == 0
        owned = Owned(ctx)  # the device's, which may be closed first
        owned.undo(lambda: ctx.api.lib.vkFreeMemory(ctx.device, out[0], ctx.api.null))
        self._memory.append((out, owned))
        handle._obj.value = len(self._memory)

    def _cuExternalMemoryGetMappedBuffer(self, address: Any, handle: Any, _: Any) -> None:
        if self.own is None:
            address._obj.value = 4096
            return
        ctx = self.own.context
        memory, out = self._memory[handle.value - 1][0][0], ctx.api.ffi.new("void **")
        assert ctx.api.lib.vkMapMemory(ctx.device, memory, 0, WHOLE_SIZE, 0, out) == 0
        address._obj.value = int(ctx.api.ffi.cast("uintptr_t", out[0]))

    def _cuDestroyExternalMemory(self, handle: Any) -> None:
        if self.own is not None and not self.own.context.closed:
            self._memory[handle.value - 1][1].destroy()

    def _cuImportExternalSemaphore(self, handle: Any, desc: Any) -> None:
        os.close(desc._obj.handle.fd)
        handle._obj.value = 5

    def _cuSignalExternalSemaphoresAsync(self, _: Any, params: Any, n: int, stream: Any) -> None:
        self._put(self._signal, params._obj.value)

    def _cuWaitExternalSemaphoresAsync(self, _: Any, params: Any, n: int, stream: Any) -> None:
        self._put(self._wait, params._obj.value)

    def _put(self, work: Callable[[int], None], value: int) -> None:
        if self.timeline is None:
            return
        if self.stream is None:
            work(value)
        else:
            self.stream.submit(work, value)

    def _signal(self, value: int) -> None:
        info = self._arena().struct("VkSemaphoreSignalInfo", semaphore=self.timeline, value=value)
        assert self._function("vkSignalSemaphoreKHR")(self._device(), info) == 0

    def _wait(self, value: int) -> None:
        arena = self._arena()
        info = arena.struct(
            "VkSemaphoreWaitInfo",
            semaphoreCount=1,
            pSemaphores=arena.array("VkSemaphore", [self.timeline]),
            pValues=arena.array("uint64_t", [value]),
        )
        assert self._function("vkWaitSemaphoresKHR")(self._device(), info, 10**10) == 0

    def _arena(self) -> Arena:
        assert self.own is not None
        return Arena(self.own.context.api)

    def _device(self) -> Any:
        assert self.own is not None
        return self.own.context.device

    def _function(self, name: str) -> Any:
        assert self.own is not None
        api = self.own.context.api
        found = api.lib.vkGetDeviceProcAddr(self.own.context.device, name.encode())
        return api.ffi.cast(f"PFN_{name}", found)


class FakeStream:
    """A stream whose work is done at once."""

    cuda_stream = 9

    def synchronize(self) -> None:
        """Do nothing."""

    def wait_stream(self, other: object) -> None:
        """Do nothing."""


def words_of_host(address: int, n: int, _: torch.device, owner: object) -> torch.Tensor:
    """``dressi.torch.share.words_at`` for memory of the host."""
    memory = (ctypes.c_float * n).from_address(address)
    memory.owner = owner  # type: ignore[attr-defined] # torch keeps the one, and it the other
    return torch.frombuffer(memory, dtype=torch.float32)


@contextmanager
def shared_engine(
    monkeypatch: pytest.MonkeyPatch, share: Any
) -> Iterator[tuple[DressiAD, FakeDriver, Any]]:
    """An engine that shares memory with tensors of the CPU: the engine, the driver, and what moves
    tensors. share: the module ``dressi.torch.share``."""
    with DressiAD() as ad:
        own = ad.runtime.device
        assert isinstance(own, Device)
        if "VK_KHR_external_memory_fd" not in own.context.sharing:
            pytest.skip(obstacle(own.context))
        if own.info.type != "cpu":
            pytest.skip("the fake maps memory of the card: the host must see it")
        driver = FakeDriver(own)
        timeline = Timeline(own, exported=False)
        driver.timeline = timeline.handle
        monkeypatch.setattr(timeline, "fd", lambda: os.open(os.devnull, os.O_RDONLY))
        monkeypatch.setattr(share, "Timeline", lambda _: timeline)
        monkeypatch.setattr(share, "words_at", words_of_host)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _: FakeStream())
        monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 9, raising=False)
        yield ad, driver, share.TorchShare(own, CARD, Cuda(0, driver))


def _plain(argument: Any) -> Any:
    """Numbers of what a function was given, structures as their bytes."""
    argument = getattr(argument, "_obj", argument)
    if isinstance(argument, ctypes.Structure):
        return bytes(argument)
    return getattr(argument, "value", argument)
