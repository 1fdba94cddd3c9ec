"""A function over many items in threads, for calls that run without the interpreter lock.

In: a function, items. Out: its results. Compilers, drivers, and what NumPy and SciPy do with large
arrays run at the same time this way.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from threadpoolctl import threadpool_limits

from dressi import config

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST = 16
"""Threads at most: more would hold more temporaries at a time, and wait for the interpreter."""


in_one_blas_thread = partial(threadpool_limits, limits=1, user_api="blas")
"""Returns a context for work with many small matrices: their products run in the thread that asks
for them. More threads gain nothing there, and those of OpenBLAS wait busily in between, on
processors that others need. Commands have this limit from their start (``config.one_blas_thread``).
"""


def cores() -> int:
    """Return the number of processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return the function of each item, in order, with as many threads as there are processors, or
    as ``DRESSI_THREADS`` says.

    function: may be called for several items at a time. Raises what it raised for the first item of
    those that failed, when no call is under way any more.
    """
    return list(streamed(function, items))


def streamed(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Give the results of ``in_threads`` one after another.

    items: taken by the thread that reads the results, while those before them are under way. There
    are never many more items and results than threads, however many there are in all.
    """
    workers = config.most_threads() or min(MOST, cores())
    if workers == 1:
        yield from map(function, items)
        return
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for item in items:
            if len(waiting) > workers:
                yield waiting.popleft().result()
            waiting.append(pool.submit(function, item))
        while waiting:
            yield waiting.popleft().result()
