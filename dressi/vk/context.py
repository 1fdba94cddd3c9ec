"""The logical device that everything else in ``vk`` hangs on, and the book-keeping of Vulkan
handles.

In: an instance and a physical device. Out: ``Context`` (device, queue, checks, one-time submits)
and ``Owned`` (a set of handles that are destroyed together, in reverse order).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from dressi.errors import DeviceError, DeviceLostError, OutOfMemoryError, ValidationError
from dressi.vk import process
from dressi.vk.api import Api, Arena, CData, constant_case, result_name
from dressi.vk.instance import Instance
from dressi.vk.query import (
    FORMATS,
    SHARING,
    DeviceInfo,
    enabling,
    extensions,
    has_float_atomics,
    has_format_feature,
    has_int64_atomics,
    has_subgroup_arithmetic,
    queue_family,
    read_limits,
)

IN_FLIGHT = 2
"""Submits that the device has at the same time."""
ASK_FIRST_S = 3e-4
"""Seconds for which a fence is polled before the thread sleeps until it is signalled: a sleeper
wakes up late, and a step of 0.1 ms takes a quarter longer (H200). Not done where the device
computes on the processors that would poll."""

_NOT_READY, TIMEOUT = 1, 2
"""VK_NOT_READY, VK_TIMEOUT."""

WAIT_NS = 200_000_000
"""A fence is waited for in slices of 0.2 s, so that Python sees Ctrl-C in between."""


class Owned:
    """Vulkan objects that live and die together. ``destroy`` is idempotent and goes in reverse
    order."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._undo: list[Callable[[], None]] = []
        self._last: list[Callable[[], None]] = []
        ctx.owners[id(self)] = self

    def create(self, kind: str, info: CData, what: str) -> CData:
        """Creates an object by ``vkCreate<kind>``.

        ``info``: pointer to its create info. ``what``: its name in errors and debug labels.
        Raises DeviceError or OutOfMemoryError naming call and object.
        """
        ctx = self._ctx
        out = ctx.api.ffi.new(f"Vk{kind} *")
        create = getattr(ctx.api.lib, f"vkCreate{kind}")
        ctx.check(create(ctx.device, info, ctx.api.null, out), f"vkCreate{kind}", what)
        return self.adopt(kind, out[0], what)

    def adopt(self, kind: str, handle: CData, what: str) -> CData:
        """Takes over an object that was created elsewhere; destroyed by ``vkDestroy<kind>``."""
        ctx = self._ctx
        destroy = getattr(ctx.api.lib, f"vkDestroy{kind}")
        ctx.counts[f"Vk{kind}"] += 1

        def undo() -> None:
            destroy(ctx.device, handle, ctx.api.null)
            ctx.counts[f"Vk{kind}"] -= 1

        self._undo.append(undo)
        ctx.label(kind, handle, what)
        return handle

    def undo(self, undo: Callable[[], None]) -> None:
        """Adds something to undo in its turn."""
        self._undo.append(undo)

    def defer(self, undo: Callable[[], None]) -> None:
        """Adds something to undo after all objects are destroyed: the memory they were bound to."""
        self._last.append(undo)

    def destroy(self) -> None:
        """Destroys everything, newest first. What still runs may use it, and is waited for."""
        self._ctx.rest()
        self._ctx.owners.pop(id(self), None)
        for undo in (self._undo, self._last):
            while undo:
                undo.pop()()


class Context:
    """A logical device with one queue of graphics and compute.

    Used by one thread at a time. Every public operation starts with ``enter``, which refuses a
    closed or lost device and a forked child.
    """

    def __init__(self, instance: Instance, physical: CData, info: DeviceInfo) -> None:
        self.instance = instance
        self.api: Api = instance.api
        self.physical = physical
        self.info = info
        self.counts: Counter[str] = Counter()
        self.owners: dict[int, Owned] = {}
        self.closed = False
        self.waited_s = 0.0
        """Seconds spent waiting for fences, in all."""
        self.ask_first_s = 0.0 if info.type == "cpu" else ASK_FIRST_S
        """Seconds of a wait in which the fence is asked again and again."""
        self._running = ""  # what was submitted and is not waited for yet
        self._until: Callable[[], None] | None = None  # waits for it, in place of the fence
        self._lost = ""
        self._pid = process.pid
        self.device = self.api.null
        api = self.api
        float_atomics = has_float_atomics(api, instance.handle, physical)
        int64_atomics = has_int64_atomics(api, instance.handle, physical)
        subgroups = has_subgroup_arithmetic(api, instance.handle, physical)
        self.limits = read_limits(api, physical, info.name, float_atomics, int64_atomics, subgroups)
        self.properties = api.ffi.new("VkPhysicalDeviceProperties *")
        api.lib.vkGetPhysicalDeviceProperties(physical, self.properties)
        self.family, self.timestamp_bits = queue_family(api, physical)
        if self.family is None:
            raise DeviceError(f"{info.name} has no queue that does both graphics and compute")
        self.storage_formats = self._storage_formats()
        self._create_device()
        queue = api.ffi.new("VkQueue *")
        api.lib.vkGetDeviceQueue(self.device, self.family, 0, queue)
        self.queue = queue[0]
        try:
            self._create_submit_objects()
        except BaseException:
            self.close()
            raise

    # Creation

    def _features(self) -> dict[str, int]:
        """The VkPhysicalDeviceFeatures to switch on: what plans may use, and nothing that costs."""
        have = self.api.ffi.new("VkPhysicalDeviceFeatures *")
        self.api.lib.vkGetPhysicalDeviceFeatures(self.physical, have)
        wanted = ["fragmentStoresAndAtomics", "shaderStorageImageExtendedFormats"]
        wanted += ["shaderInt64"] if self.limits.int64_atomics else []
        return {name: 1 for name in wanted if getattr(have, name)}

    def _storage_formats(self) -> frozenset[str]:
        test = has_format_feature(self.api, self.physical, "STORAGE_IMAGE")
        extended = "shaderStorageImageExtendedFormats" in self._features()
        # SPIR-V puts two-channel formats behind StorageImageExtendedFormats.
        return frozenset(f for f in FORMATS if test(f) and (extended or not f.startswith("RG3")))

    def _create_device(self) -> None:
        api, arena = self.api, Arena(self.api)
        offered = extensions(api, self.physical)
        self.sharing = SHARING & offered
        enabled, chain = enabling(api, arena, offered, self.limits)
        queues = arena.struct(
            "VkDeviceQueueCreateInfo",
            queueFamilyIndex=self.family,
            queueCount=1,
            pQueuePriorities=arena.array("float", [1.0]),
        )
        info = arena.struct(
            "VkDeviceCreateInfo",
            pNext=chain,
            queueCreateInfoCount=1,
            pQueueCreateInfos=queues,
            enabledExtensionCount=len(enabled),
            ppEnabledExtensionNames=arena.texts(enabled),
            pEnabledFeatures=arena.struct("VkPhysicalDeviceFeatures", **self._features()),
        )
        out = api.ffi.new("VkDevice *")
        result = api.lib.vkCreateDevice(self.physical, info, api.null, out)
        self.check(result, "vkCreateDevice", self.info.name)
        self.device = out[0]
        self.counts["VkDevice"] += 1

    def _create_submit_objects(self) -> None:
        api, arena = self.api, Arena(self.api)
        owned = Owned(self)
        pool = arena.struct(
            "VkCommandPoolCreateInfo",
            flags=api.c.VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
            queueFamilyIndex=self.family,
        )
        self.pool = owned.create("CommandPool", pool, "command pool")
        self._fences = [
            arena.array(
                "VkFence",
                [owned.create("Fence", arena.struct("VkFenceCreateInfo"), f"submit fence {i}")],
            )
            for i in range(IN_FLIGHT)
        ]
        self._transient = self.command_buffer(owned, "one-time commands")
        self._arena = arena
        self._transient_submit = self.submit_info([self._transient])

    def command_buffer(self, owned: Owned, what: str) -> CData:
        """A new primary command buffer, freed with ``owned``."""
        api, arena = self.api, Arena(self.api)
        info = arena.struct(
            "VkCommandBufferAllocateInfo", commandPool=self.pool, commandBufferCount=1
        )
        out = api.ffi.new("VkCommandBuffer *")
        result = api.lib.vkAllocateCommandBuffers(self.device, info, out)
        self.check(result, "vkAllocateCommandBuffers", what)
        self.counts["VkCommandBuffer"] += 1

        def undo() -> None:
            api.lib.vkFreeCommandBuffers(self.device, self.pool, 1, out)
            self.counts["VkCommandBuffer"] -= 1

        owned.undo(undo)
        return out[0]

    # Errors

    def enter(self) -> None:
        """Raises DeviceError as ``look`` does; waits for submits that were left running."""
        self.look()
        if self._running:
            self.finish(self._running)

    def look(self) -> None:
        """Raises DeviceError when the device is closed, lost, or belongs to a parent process."""
        if self._pid != process.pid:
            raise DeviceError(
                f"{self.info.name} was opened by process {self._pid}; this is its forked child "
                f"{process.pid}, where Vulkan does not work\n"
                "  hint: open the device after the fork, or use multiprocessing's 'spawn' method"
            )
        if self.closed:
            raise DeviceError(f"{self.info.name} is closed")
        if self._lost:
            raise DeviceLostError(self._lost)

    def check(self, result: int, call: str, what: str, needed: int = 0, available: int = 0) -> None:
        """Raises the typed error of a failed Vulkan call, naming call and object; returns on
        success."""
        if result >= 0:
            return
        c = self.api.c
        name = result_name(self.api, result)
        text = f"{call} of {what} failed on {self.info.name}: {name}"
        if result == c.VK_ERROR_DEVICE_LOST:
            self._lost = f"{text}\n  hint: open a new device; this one cannot be used any more"
            raise DeviceLostError(self._lost)
        if result in (c.VK_ERROR_OUT_OF_DEVICE_MEMORY, c.VK_ERROR_OUT_OF_HOST_MEMORY):
            raise OutOfMemoryError(text, needed, available)
        raise DeviceError(text)

    def check_validation(self) -> None:
        """Raises ValidationError listing the messages since the last call, and forgets them."""
        messages = self.instance.messages
        if messages:
            text = "\n".join(messages)
            count = len(messages)
            messages.clear()
            raise ValidationError(f"{count} message(s) of the validation layers:\n{text}")

    def label(self, kind: str, handle: CData, what: str) -> None:
        """Names an object for the validation layers and debuggers; free when they are off."""
        if self.instance.set_name is None:
            return
        ffi, arena = self.api.ffi, Arena(self.api)
        info = arena.struct(
            "VkDebugUtilsObjectNameInfoEXT",
            objectType=getattr(self.api.c, f"VK_OBJECT_TYPE_{constant_case(kind)}"),
            objectHandle=int(ffi.cast("uintptr_t", handle)),
            pObjectName=what.encode(),
        )
        self.instance.set_name(self.device, info)

    # Submission

    def submit_info(self, commands: Sequence[CData], **more: Any) -> tuple[Any, ...]:
        """Arguments of vkQueueSubmit that run command buffers one after the other, and what they
        point at. more: fields of VkSubmitInfo."""
        arena = Arena(self.api)
        info = arena.struct(
            "VkSubmitInfo",
            **more,
            commandBufferCount=len(commands),
            pCommandBuffers=arena.array("VkCommandBuffer", commands),
        )
        return info, arena

    def submit(self, info: CData, what: str) -> None:
        """Submits and waits. Ctrl-C is raised only after the device has finished."""
        try:
            self.start(info, what)
            self._running = ""
            self._wait(0, what)
        except BaseException:
            self._settle()
            raise

    def start(self, info: CData, what: str, until: Callable[[], None] | None = None) -> None:
        """Submits, and does not wait: that ``finish`` does, or what is done with the device next
        (``enter``). Until then nothing that it uses may be written by the host. until: waits for it
        and all before it, in place of a fence; more of the kind may follow while it runs."""
        if self._running and (until is None or self._until is None):
            self.finish(self._running)
        fence = self._fences[0][0] if until is None else self.api.null
        if result := self.api.lib.vkQueueSubmit(self.queue, 1, info, fence):
            self.check(result, "vkQueueSubmit", what)
        self._running, self._until = what, until

    def finish(self, what: str) -> None:
        """Waits for what ``start`` has submitted, unless that was done."""
        if not self._running:
            return
        until, self._until, self._running = self._until, None, ""
        try:
            if until is None:
                self._wait(0, what)
            else:
                until()
        except BaseException:
            self._settle()
            raise

    def rest(self) -> None:
        """Waits until the device does nothing, where a submit was left running."""
        if self._running:
            self._settle()

    def _settle(self) -> None:
        """Wait for the device: what handles an error may destroy what it is still working on."""
        self._running, self._until = "", None
        self.api.lib.vkDeviceWaitIdle(self.device)
        for fence in self._fences:
            self.api.lib.vkResetFences(self.device, 1, fence)

    def submit_all(self, infos: Sequence[CData], what: str) -> None:
        """Submits one after the other, two in flight, so that the device never waits for the host,
        and waits for all. Ctrl-C stops between two, after the device has finished."""
        lib = self.api.lib
        try:
            for i, info in enumerate(infos):
                if i >= IN_FLIGHT:
                    self._wait(i % IN_FLIGHT, what)
                result = lib.vkQueueSubmit(self.queue, 1, info, self._fences[i % IN_FLIGHT][0])
                self.check(result, "vkQueueSubmit", what)
            for i in range(max(len(infos) - IN_FLIGHT, 0), len(infos)):
                self._wait(i % IN_FLIGHT, what)
        except BaseException:
            self._settle()
            raise

    def _wait(self, nth: int, what: str) -> None:
        lib, fence = self.api.lib, self._fences[nth]
        begin = time.perf_counter()
        result, call = _NOT_READY, "vkGetFenceStatus"
        while result == _NOT_READY and time.perf_counter() - begin < self.ask_first_s:
            result = lib.vkGetFenceStatus(self.device, fence[0])
        while result in (_NOT_READY, TIMEOUT):
            call = "vkWaitForFences"
            result = lib.vkWaitForFences(self.device, 1, fence, 1, WAIT_NS)
        self.waited_s += time.perf_counter() - begin
        if result:
            self.check(result, call, what)
        if result := lib.vkResetFences(self.device, 1, fence):
            self.check(result, "vkResetFences", what)

    def run_once(self, record: Callable[[CData], None], what: str) -> None:
        """Records commands with ``record(command_buffer)``, runs them once and waits."""
        begin = Arena(self.api).struct(
            "VkCommandBufferBeginInfo",
            flags=self.api.c.VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT,
        )
        lib, commands = self.api.lib, self._transient
        self.check(lib.vkBeginCommandBuffer(commands, begin), "vkBeginCommandBuffer", what)
        record(commands)
        self.check(lib.vkEndCommandBuffer(commands), "vkEndCommandBuffer", what)
        self.submit(self._transient_submit[0], what)

    def close(self) -> None:
        """Waits for the device and destroys everything on it. Idempotent; does nothing in a forked
        child."""
        if self.closed or self._pid != process.pid:
            return
        self.closed = True
        if self.device != self.api.null:
            self.api.lib.vkDeviceWaitIdle(self.device)
            for owned in reversed(list(self.owners.values())):
                owned.destroy()
            self.api.lib.vkDestroyDevice(self.device, self.api.null)
            self.counts["VkDevice"] -= 1
        self.instance.close()
