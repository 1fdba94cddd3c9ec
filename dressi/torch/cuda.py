"""CUDA's driver library: memory and semaphores of another API.

In: file descriptors that Vulkan exports. Out: addresses on the card, and signals and waits on
streams. Structures as in NVIDIA's reference of the driver API ("External Resource
Interoperability"); by ctypes, so that nothing has to be built or installed.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, Structure, Union, byref, c_char_p, c_int, c_uint, c_ulonglong, c_void_p
from typing import Any

from dressi.errors import DeviceError

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
            _declare(self._lib)
        card, self._context = c_int(), c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", byref(card), index)
        self._call("cuDevicePrimaryCtxRetain", byref(self._context), card)

    def _call(self, name: str, *args: Any) -> None:
        """Call a function of the driver. Raises DeviceError with its name for the result."""
        result = getattr(self._lib, name)(*args)
        if result:
            text = c_char_p()
            self._lib.cuGetErrorName(result, byref(text))
            said = (text.value or b"").decode(errors="replace")
            raise DeviceError(f"{name} failed: {said or 'CUresult'} ({result})")

    @contextmanager
    def _current(self) -> Iterator[None]:
        self._call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", byref(c_void_p()))

    def import_memory(self, fd: int, n_bytes: int, size: int) -> tuple[int, int]:
        """Return (handle, address) of memory of ``size`` bytes whose first n_bytes are mapped. The
        descriptor is taken over, also where this fails. Raises DeviceError."""
        desc = MemoryHandleDesc(type=OPAQUE_FD, size=size)
        desc.handle.fd = fd
        handle, address = c_void_p(), c_ulonglong()
        with self._current():
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
        with self._current():
            self._call("cuMemFree_v2", c_ulonglong(address))
            self._call("cuDestroyExternalMemory", c_void_p(handle))

    def import_timeline(self, fd: int) -> int:
        """Return the handle of a timeline semaphore. The descriptor is taken over, also where this
        fails. Raises DeviceError."""
        desc = SemaphoreHandleDesc(type=TIMELINE_FD)
        desc.handle.fd = fd
        handle = c_void_p()
        with self._current():
            try:
                self._call("cuImportExternalSemaphore", byref(handle), byref(desc))
            except DeviceError:
                os.close(fd)
                raise
        return int(handle.value or 0)

    def release_timeline(self, handle: int) -> None:
        """Forget an imported semaphore."""
        with self._current():
            self._call("cuDestroyExternalSemaphore", c_void_p(handle))

    def signal(self, timeline: int, value: int, stream: int) -> None:
        """Let a stream set the timeline to a number when it comes there."""
        self._on_stream("cuSignalExternalSemaphoresAsync", timeline, value, stream)

    def wait(self, timeline: int, value: int, stream: int) -> None:
        """Let a stream wait until the timeline has reached a number."""
        self._on_stream("cuWaitExternalSemaphoresAsync", timeline, value, stream)

    def _on_stream(self, name: str, timeline: int, value: int, stream: int) -> None:
        params, handle = SemaphoreParams(value=value), c_void_p(timeline)
        with self._current():
            self._call(name, byref(handle), byref(params), 1, c_void_p(stream))


def _declare(lib: Any) -> None:
    """Say the types of the functions, so that handles keep their 64 bits."""
    pointer = POINTER(c_void_p)
    semaphores = (pointer, POINTER(SemaphoreParams), c_uint, c_void_p)
    types: dict[str, tuple[Any, ...]] = {
        "cuInit": (c_uint,),
        "cuGetErrorName": (c_int, POINTER(c_char_p)),
        "cuDeviceGet": (POINTER(c_int), c_int),
        "cuDevicePrimaryCtxRetain": (pointer, c_int),
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
