"""Memory and a semaphore that another library on the same card sees, by file descriptors.

In: a device. Out: a ``Buffer`` in memory of the card and its descriptor, for who imports it; a
``Timeline`` that orders submits among the other library's work without the host waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from dressi.errors import DeviceError
from dressi.vk.api import Arena, CData
from dressi.vk.context import TIMEOUT, WAIT_NS, Context, Owned
from dressi.vk.memory import Buffer, Memory, bind, make_buffer
from dressi.vk.owner import Owner
from dressi.vk.query import MEMORY, SHARING

_EXPORTABLE, _DEDICATED_ONLY = 0x2, 0x1
"""VkExternalMemoryFeatureFlags."""


class Mapped(Protocol):
    """Imported memory."""

    words: Any
    """Its float32 words, (n,): an array of the other library."""

    def close(self) -> None:
        """Lets it go. Arrays of it that are held elsewhere may still be used."""
        ...


class Importer(Protocol):
    """The other library."""

    def memory(self, fd: int, n_bytes: int, size: int) -> Mapped:
        """Import memory of ``size`` bytes, of which the first n_bytes are used. The descriptor is
        the importer's from now on, also where it fails."""
        ...


def obstacle(ctx: Context) -> str:
    """Why memory of a device cannot be shared, as words for people; empty where it can."""
    if MEMORY not in ctx.sharing:
        return f"{ctx.info.name} does not offer {MEMORY}"
    api, arena = ctx.api, Arena(ctx.api)
    name = "vkGetPhysicalDeviceExternalBufferProperties"
    query = api.instance_function(ctx.instance.handle, name)
    if query is None:
        return f"{ctx.info.name} has no {name} (Vulkan 1.1)"
    info = arena.struct(
        "VkPhysicalDeviceExternalBufferInfo", usage=_usage(ctx), handleType=_opaque_fd(ctx)
    )
    found = arena.struct("VkExternalBufferProperties")
    query(ctx.physical, info, found)
    features = int(found.externalMemoryProperties.externalMemoryFeatures)
    if not features & _EXPORTABLE or features & _DEDICATED_ONLY:
        return f"{ctx.info.name} does not export memory of buffers (features {features:#x})"
    return ""


def has_timelines(ctx: Context) -> bool:
    """Whether a ``Timeline`` can be exported."""
    return ctx.sharing >= SHARING


def _usage(ctx: Context) -> int:
    c = ctx.api.c
    copies = c.VK_BUFFER_USAGE_TRANSFER_SRC_BIT | c.VK_BUFFER_USAGE_TRANSFER_DST_BIT
    return int(copies | c.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT)


def _opaque_fd(ctx: Context) -> int:
    return int(ctx.api.c.VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT)


def create_shared_buffer(
    ctx: Context, memory: Memory, owned: Owned, size: int, what: str
) -> Buffer:
    """A buffer of the card that can be copied from and to, in exportable memory of its own, which
    does not count against the memory limit."""
    arena, kind = Arena(ctx.api), _opaque_fd(ctx)
    chain = arena.struct("VkExternalMemoryBufferCreateInfo", handleTypes=kind)
    handle, requirements = make_buffer(ctx, owned, size, _usage(ctx), what, chain)
    like = ctx.api.c.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
    index = memory.find_type(requirements.memoryTypeBits, 0, like, what)
    export = arena.struct("VkExportMemoryAllocateInfo", handleTypes=kind)
    block = memory.raw_block(index, int(requirements.size), what, True, export)
    owned.defer(lambda: memory.free_block(index, block, True))
    bind(ctx, handle, block.memory, 0, what)
    return Buffer(handle, size, memory=block.memory)


def open_shared(
    ctx: Context, owned: Owned, importer: Importer, buffer: Buffer, what: str
) -> Mapped:
    """A shared buffer as the other library sees it; let go before ``owned`` frees its memory, which
    stays as long as the other library holds what it imported."""
    requirements = ctx.api.ffi.new("VkMemoryRequirements *")
    ctx.api.lib.vkGetBufferMemoryRequirements(ctx.device, buffer.handle, requirements)
    info = Arena(ctx.api).struct(
        "VkMemoryGetFdInfoKHR", memory=buffer.memory, handleType=_opaque_fd(ctx)
    )
    mapped = importer.memory(_fd(ctx, "Memory", info, what), buffer.size, int(requirements.size))
    owned.undo(mapped.close)
    return mapped


def _fd(ctx: Context, kind: str, info: CData, what: str) -> int:
    """A new descriptor, by ``vkGet<kind>FdKHR``."""
    name, out = f"vkGet{kind}FdKHR", ctx.api.ffi.new("int *")
    ctx.check(_function(ctx, name)(ctx.device, info, out), name, what)
    return int(out[0])


def _function(ctx: Context, name: str) -> Any:
    """A function of an extension of the device. Raises DeviceError where it has none."""
    function = ctx.api.lib.vkGetDeviceProcAddr(ctx.device, name.encode())
    if function == ctx.api.null:
        raise DeviceError(f"{ctx.info.name} has no {name}")
    return ctx.api.ffi.cast(f"PFN_{name}", function)


class Timeline:
    """A semaphore that counts. What is submitted with it waits until the other library has
    signalled ``before``, and signals ``after`` when it is done."""

    def __init__(self, device: Owner, exported: bool = True) -> None:
        ctx = self._ctx = device.context
        ctx.enter()
        api = ctx.api
        arena, self._owned = Arena(api), Owned(ctx)
        kind = arena.struct(
            "VkSemaphoreTypeCreateInfo", semaphoreType=api.c.VK_SEMAPHORE_TYPE_TIMELINE
        )
        if exported:
            opaque = api.c.VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT
            kind = arena.struct("VkExportSemaphoreCreateInfo", pNext=kind, handleTypes=opaque)
        info = arena.struct("VkSemaphoreCreateInfo", pNext=kind)
        self.handle = self._owned.create("Semaphore", info, "timeline")
        self._before, self._after = api.ffi.new("uint64_t[1]"), api.ffi.new("uint64_t[1]")
        self._wanted, self._count = api.ffi.new("uint64_t[1]"), api.ffi.new("uint64_t[1]")
        self.reached = 0
        """What it is known to have come to."""
        self.last = 0
        """What the last submit signals."""
        self._ask = _function(ctx, "vkGetSemaphoreCounterValueKHR")
        self._wait = _function(ctx, "vkWaitSemaphoresKHR")
        self._arena = Arena(api)
        self._wait_info = self._arena.struct(
            "VkSemaphoreWaitInfo",
            semaphoreCount=1,
            pSemaphores=self._arena.array("VkSemaphore", [self.handle]),
            pValues=self._wanted,
        )
        self.waits = True
        """Whether the next submit waits for the other library."""
        self.signalling: dict[str, Any] = {
            "pNext": self._arena.struct(
                "VkTimelineSemaphoreSubmitInfo",
                signalSemaphoreValueCount=1,
                pSignalSemaphoreValues=self._after,
            ),
            "signalSemaphoreCount": 1,
            "pSignalSemaphores": self._arena.array("VkSemaphore", [self.handle]),
        }
        """Fields of VkSubmitInfo of submits that do not."""
        self.waiting: dict[str, Any] = {
            **self.signalling,
            "pNext": self._arena.struct(
                "VkTimelineSemaphoreSubmitInfo",
                waitSemaphoreValueCount=1,
                pWaitSemaphoreValues=self._before,
                signalSemaphoreValueCount=1,
                pSignalSemaphoreValues=self._after,
            ),
            "waitSemaphoreCount": 1,
            "pWaitSemaphores": self._arena.array("VkSemaphore", [self.handle]),
            "pWaitDstStageMask": self._arena.array(
                "VkPipelineStageFlags", [api.c.VK_PIPELINE_STAGE_ALL_COMMANDS_BIT]
            ),
        }
        """The same of those that do."""

    def fd(self) -> int:
        """A descriptor for who imports it."""
        opaque = self._ctx.api.c.VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT
        info = Arena(self._ctx.api).struct(
            "VkSemaphoreGetFdInfoKHR", semaphore=self.handle, handleType=opaque
        )
        return _fd(self._ctx, "Semaphore", info, "timeline")

    def advance(self, waits: bool = True) -> tuple[int, int]:
        """Return (before, after) of the next submit: numbers that no earlier one had. waits: for
        the other library to signal ``before``; else it is only after the submits before it."""
        self.waits = waits
        before, self.last = self.last + 1, self.last + 2
        self._before[0], self._after[0] = before, self.last
        return before, self.last

    def wait(self, value: int | None = None) -> None:
        """Wait until it has reached a number, default that of the last submit. Ctrl-C is raised in
        between."""
        wanted = self.last if value is None else value
        if wanted <= self.reached:
            return
        ctx, begin = self._ctx, time.perf_counter()
        self._wanted[0], result = wanted, TIMEOUT
        ctx.check(self._ask(ctx.device, self.handle, self._count), "vkGetSemaphoreCounterValue", "")
        if self._count[0] < wanted:
            while result == TIMEOUT:
                result = self._wait(ctx.device, self._wait_info, WAIT_NS)
            ctx.check(result, "vkWaitSemaphores", "a timeline")
        ctx.waited_s += time.perf_counter() - begin
        self.reached = max(wanted, int(self._count[0]))

    def at_close(self, undo: Callable[[], None]) -> None:
        """Call something before it is destroyed."""
        self._owned.undo(undo)

    def close(self) -> None:
        """Destroys it. Idempotent."""
        if not self._ctx.closed:
            self._owned.destroy()
