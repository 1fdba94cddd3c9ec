"""The memory that this process holds."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from dressi.errors import DressiError


def resident_bytes() -> int:
    """Return the memory of this process, without what the allocator keeps for later where it can
    tell. Raises DressiError where the system has no count of it."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
        if trim is not None:
            trim(0)
        return int(statm.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    try:
        import resource
    except ImportError:
        raise DressiError("resident memory is counted on Linux and macOS only") from None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS: bytes, and the largest
