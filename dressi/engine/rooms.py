"""Memory of the host for results that come again and again.

In: Variables. Out: arrays to write their values into, used again once nobody holds them. The C
library gives large arrays back to the system when they are freed, and each new one costs a fault
per page: of 1 MB more than its copy.
"""

from __future__ import annotations

import sys

import numpy as np

from dressi.ad.graph import Variable

LEAST_BYTES = 32 << 10
"""Of arrays that are kept; smaller ones come from memory that the C library keeps."""
KEPT = 2
"""Arrays per Variable: a loop holds the last result while the next one is made."""


class Rooms:
    """Arrays that were given out, by Variable. Used by one thread at a time."""

    def __init__(self) -> None:
        self._kept: dict[int, list[np.ndarray]] = {}

    def take(self, v: Variable) -> np.ndarray:
        """Return an array (layers, H, W, *tail) that nobody else holds, with any values in it."""
        kept = self._kept.setdefault(v.uid, [])
        for k in range(len(kept)):
            if _holders(kept, k) == _ALONE:
                return kept[k]
        shape = v.layers, v.size[1], v.size[0], *v.vtype.tail
        room: np.ndarray = np.empty(shape, np.int32 if v.vtype.is_int else np.float32)
        if _ALONE and room.nbytes >= LEAST_BYTES and len(kept) < KEPT:
            kept.append(room)
        return room

    def clear(self) -> None:
        """Hold nothing any more."""
        self._kept.clear()


def _holders(arrays: list[np.ndarray], k: int) -> int:
    """How many references there are to one of them; 0 where Python does not say. Views and tensors
    of its memory hold one."""
    return sys.getrefcount(arrays[k]) if hasattr(sys, "getrefcount") else 0


_ALONE = _holders([np.empty(1)], 0)
"""Of an array that the list alone holds."""
