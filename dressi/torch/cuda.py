"""CUDA's driver library: memory and semaphores of another API.

In: file descriptors that Vulkan exports. Out: addresses on the card, and signals and waits on
streams. Structures as in NVIDIA's reference of the driver API ("External Resource
Interoperability"); by ctypes, so that nothing has to be built or installed.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable
from ctypes import POINTER, Structure, Union, byref, c_char_p, c_int, c_uint, c_ulonglong, c_void_p
from typing import Any

from dressi.errors import DeviceError

log = logging.getLogger("dressi")

LIBRARY = "libcuda.so.1"

OPAQUE_FD = 1
"""CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD."""
TIMELINE_FD = 9
"""CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD."""


class _Win32(Structure):
    _fields_ = (("handle", c_void_p), ("name", c_void_p))


class _Handle(Union):
    _fields_ = (("fd", c_int), ("win32", _Win32), ("object", c_void_p))


class MemoryHandleDesc(Structure):
    """CUDA_EXTERNAL_MEMORY_HANDLE_DESC."""

    _fields_ = (
        ("type", c_int),
        ("handle", _Handle),
        ("size", c_ulonglong),
        ("flags", c_uint),
        ("reserved", c_uint * 16),
    )


class MemoryBufferDesc(Structure):
    """CUDA_EXTERNAL_MEMORY_BUFFER_DESC."""

    _fields_ = (
        ("offset", c_ulonglong),
        ("size", c_ulonglong),
        ("flags", c_uint),
        ("reserved", c_uint * 16),
    )


class SemaphoreHandleDesc(Structure):
    """CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC."""

    _fields_ = (
        ("type", c_int),
        ("handle", _Handle),
        ("flags", c_uint),
        ("reserved", c_uint * 16),
    )


class SemaphoreParams(Structure):
    """CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS and CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS: what differs
    between them, behind ``value``, stays zero here."""

    _fields_ = (
        ("value", c_ulonglong),  # params.fence.value
        ("others", c_ulonglong * 8),  # the rest of params: nvSciSync, keyedMutex, reserved
        ("flags", c_uint),
        ("reserved", c_uint * 16),
    )


class Cuda:
    """The primary context of one card, the one that PyTorch uses. Methods make it current."""

    def __init__(self, index: int, library: Any = None) -> None:
        """index: of the card, as CUDA counts. library: in place of the driver's, for tests. Raises
        DeviceError where the library or the card is not there."""
        try:
            self._lib = ctypes.CDLL(LIBRARY) if library is None else library
        except OSError as error:
            raise DeviceError(f"CUDA's driver library cannot be loaded: {error}") from None
        if library is None:
            try:
                _declare(self._lib)
            except AttributeError as error:  # a driver before CUDA 10
                raise DeviceError(f"CUDA's driver library is too old: {error}") from None
        card, self._context = c_int(), c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", byref(card), index)
        self._call("cuDevicePrimaryCtxRetain", byref(self._context), card)
        self._current = _Current(self._call, self._context)
        # What hand-overs pass by address, made once: the driver reads it before it returns.
        self._timeline, self._reach, self._found = c_void_p(), SemaphoreParams(), c_void_p()
        self._place = byref(self._timeline), byref(self._reach), 1

    def _call(self, name: str, *args: Any) -> None:
        """Call a function of the driver. Raises DeviceError with its name for the result."""
        result = getattr(self._lib, name)(*args)
        if result:
            text = c_char_p()
            self._lib.cuGetErrorName(result, byref(text))
            said = (text.value or b"").decode(errors="replace")
            raise DeviceError(f"{name} failed: {said or 'CUresult'} ({result})")

    def import_memory(self, fd: int, n_bytes: int, size: int) -> tuple[int, int]:
        """Return (handle, address) of memory of ``size`` bytes whose first n_bytes are mapped. The
        descriptor is taken over, also where this fails. Raises DeviceError."""
        desc = MemoryHandleDesc(type=OPAQUE_FD, size=size)
        desc.handle.fd = fd
        handle, address = c_void_p(), c_ulonglong()
        with self._current:
            try:
                self._call("cuImportExternalMemory", byref(handle), byref(desc))
            except DeviceError:
                os.close(fd)  # the driver owns it only where it succeeds
                raise
            buffer = MemoryBufferDesc(offset=0, size=n_bytes)
            try:
                self._call("cuExternalMemoryGetMappedBuffer", byref(address), handle, byref(buffer))
            except DeviceError:
                self._call("cuDestroyExternalMemory", handle)
                raise
        return int(handle.value or 0), int(address.value)

    def release_memory(self, handle: int, address: int) -> None:
        """Unmap and forget imported memory, after the card is done with it."""
        self._release(
            ("cuMemFree_v2", c_ulonglong(address)), ("cuDestroyExternalMemory", c_void_p(handle))
        )

    def import_timeline(self, fd: int) -> int:
        """Return the handle of a timeline semaphore. The descriptor is taken over, also where this
        fails. Raises DeviceError."""
        desc = SemaphoreHandleDesc(type=TIMELINE_FD)
        desc.handle.fd = fd
        handle = c_void_p()
        with self._current:
            try:
                self._call("cuImportExternalSemaphore", byref(handle), byref(desc))
            except DeviceError:
                os.close(fd)
                raise
        return int(handle.value or 0)

    def release_timeline(self, handle: int) -> None:
        """Forget an imported semaphore."""
        self._release(("cuDestroyExternalSemaphore", c_void_p(handle)))

    def _release(self, *calls: tuple[str, Any]) -> None:
        """Call functions that give something back. What fails has nothing to give back any more: at
        the end of a process CUDA may be gone first."""
        try:
            with self._current:
                for name, argument in calls:
                    self._call(name, argument)
        except DeviceError as error:
            log.debug("dressi.torch: %s", error)

    def between(
        self, timeline: int, before: int | None, after: int, stream: int, submit: Callable[[], None]
    ) -> None:
        """Let a stream set the timeline to ``before`` when it comes there, submit what waits for
        that, and let the stream wait until the timeline has reached ``after``. before: None where
        the submit waits for nothing of the stream."""
        self._call("cuCtxGetCurrent", byref(self._found))
        if self._found.value != self._context.value:
            with self._current:
                self._hand_over(timeline, before, after, stream, submit)
        else:
            self._hand_over(timeline, before, after, stream, submit)

    def _hand_over(
        self, timeline: int, before: int | None, after: int, stream: int, submit: Callable[[], None]
    ) -> None:
        """``between`` where the context is current."""
        self._timeline.value = timeline
        if before is not None:
            self._reach.value = before
            self._call("cuSignalExternalSemaphoresAsync", *self._place, stream)
        submit()
        self._reach.value = after
        self._call("cuWaitExternalSemaphoresAsync", *self._place, stream)


class _Current:
    """While it is entered, a context is that of the thread."""

    def __init__(self, call: Callable[..., None], context: c_void_p) -> None:
        self._call, self._context, self._popped = call, context, byref(c_void_p())

    def __enter__(self) -> None:
        self._call("cuCtxPushCurrent_v2", self._context)

    def __exit__(self, *_: object) -> None:
        self._call("cuCtxPopCurrent_v2", self._popped)


def _declare(lib: Any) -> None:
    """Say the types of the functions, so that handles keep their 64 bits."""
    pointer = POINTER(c_void_p)
    semaphores = (pointer, POINTER(SemaphoreParams), c_uint, c_void_p)
    types: dict[str, tuple[Any, ...]] = {
        "cuInit": (c_uint,),
        "cuGetErrorName": (c_int, POINTER(c_char_p)),
        "cuDeviceGet": (POINTER(c_int), c_int),
        "cuDevicePrimaryCtxRetain": (pointer, c_int),
        "cuCtxGetCurrent": (pointer,),
        "cuCtxPushCurrent_v2": (c_void_p,),
        "cuCtxPopCurrent_v2": (pointer,),
        "cuImportExternalMemory": (pointer, POINTER(MemoryHandleDesc)),
        "cuExternalMemoryGetMappedBuffer": (
            POINTER(c_ulonglong),
            c_void_p,
            POINTER(MemoryBufferDesc),
        ),
        "cuMemFree_v2": (c_ulonglong,),
        "cuDestroyExternalMemory": (c_void_p,),
        "cuImportExternalSemaphore": (pointer, POINTER(SemaphoreHandleDesc)),
        "cuDestroyExternalSemaphore": (c_void_p,),
        "cuSignalExternalSemaphoresAsync": semaphores,
        "cuWaitExternalSemaphoresAsync": semaphores,
    }
    for name, arguments in types.items():
        function = getattr(lib, name)
        function.argtypes, function.restype = arguments, c_int
