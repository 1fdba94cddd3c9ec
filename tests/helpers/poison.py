"""An ``ffi`` whose memory is overwritten as soon as nothing in Python holds it.

In: cffi's ffi object. Out: ``Poisoned``, in its place. Memory that is freed too early mostly still
holds what it held, so that reading it goes unnoticed; here it holds 0xDB at once. The last megabyte
is kept, so that what reads it reads that, not what the next owner wrote.
"""

from __future__ import annotations

from collections import deque
from typing import Any

POISON = 0xDB
QUARANTINE = 1 << 20
"""Bytes of dead memory that are kept."""


class Poisoned:
    """Stands for an ffi object; everything but ``new`` is its own."""

    def __init__(self, ffi: Any) -> None:
        self.real = self._ffi = ffi
        self._alive: dict[int, tuple[Any, int]] = {}
        self._dead: deque[tuple[Any, int]] = deque()
        self._held = 0
        self.new = ffi.new_allocator(self._take, self._give)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ffi, name)

    def _address(self, memory: Any) -> int:
        return int(self._ffi.cast("uintptr_t", memory))

    def _take(self, size: int) -> Any:
        memory = self._ffi.new("char[]", max(size, 1))
        self._alive[self._address(memory)] = memory, size
        return memory

    def _give(self, memory: Any) -> None:
        owner, size = self._alive.pop(self._address(memory))
        self._ffi.memmove(owner, bytes([POISON]) * size, size)
        self._dead.append((owner, size))
        self._held += size
        while self._held > QUARANTINE:
            self._held -= self._dead.popleft()[1]
