"""The sum over devices, on the host: memory that devices wrote to memory that they read.

In: words of the gradients of each device. Out: their sum, in the order of the devices, in the
upload memory of each.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np

BLOCK = 1 << 17
"""Words that are added and then copied to all devices: 512 KB, which stay in the cache of a core.
So the sum is never read from upload memory, which is slow to read."""

FEWEST = 1 << 18
"""Words of a thread at least. Adding less takes no longer than handing it to another thread."""

MOST_THREADS = 4
"""More do not move bytes faster: memory is what limits (16.8 MB of two devices, on a server with 32
processors: 3.2, 1.7, 1.3, 1.9 ms by 1, 2, 4, 8 threads)."""

Words = Sequence[np.ndarray]
"""float32 arrays, as ``Transfer.words``."""


@functools.cache  # asking the system takes longer than a small sum
def n_threads() -> int:
    """How many threads may add."""
    return min(MOST_THREADS, os.cpu_count() or 1)


def add_words(parts: Sequence[Words], totals: Sequence[Words], threads: ThreadPoolExecutor) -> None:
    """Write the sum of the words of all devices into the words of each of ``totals``.

    Each word is added in the order of the devices, by one thread: for one split always the same
    bits. parts, totals: by device, arrays of the same lengths.
    """
    for k in range(len(parts[0])):
        sources, targets = [p[k] for p in parts], [t[k] for t in totals]
        size = len(sources[0])
        n = max(1, min(n_threads(), size // FEWEST))
        (first, *others) = itertools.pairwise(size * i // n for i in range(n + 1))
        rest = [threads.submit(_add, sources, targets, *span) for span in others]
        try:
            _add(sources, targets, *first)
        finally:
            if rest:
                wait(rest)  # they read and write memory of the devices
        for other in rest:
            other.result()


def _add(sources: Words, targets: Words, start: int, end: int) -> None:
    block = np.empty(min(BLOCK, end - start), np.float32)
    with np.errstate(all="ignore"):  # texels beyond a folded table hold anything
        for a in range(start, end, BLOCK):
            b = min(a + BLOCK, end)
            total = sources[0][a:b]
            for other in sources[1:]:
                total = np.add(total, other[a:b], out=block[: b - a])
            for target in targets:
                target[a:b] = total
