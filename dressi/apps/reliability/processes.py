"""Work of a figure shared out among processes: what waits for Python, not for the device."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
MOST = 4
"""Processes at once, each with a device of its own."""


def shared_out(work: Callable[[list[Item]], Result], items: Sequence[Item]) -> list[Result]:
    """Return ``work`` of every share of the items, one share per process; in this process where one
    is enough. work: a function of a module, or a ``partial`` of one."""
    n = min(os.cpu_count() or 1, MOST, len(items))
    shares = [list(items[k::n]) for k in range(n)]
    if n < 2:
        return [work(share) for share in shares]
    # Not forked: a child of a process that holds a device could not use it.
    with ProcessPoolExecutor(n, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(work, shares))
