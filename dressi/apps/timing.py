"""Times of engines side by side. In: engines that are ready. Out: milliseconds of their steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

WARM_UP = 14
"""Steps before the first that counts: the cache rebuilds after 3 and after 8 unchanged ones, and a
build's first step compiles in the driver."""


class Steps(Protocol):
    """An engine, or several that step together."""

    def exec_step(self) -> None: ...


def step_ms(ad: Steps, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the wall time of one step. clock: another one, in seconds: ``time.process_time`` is
    the processor time of all threads, which other programs hardly change."""
    begin = clock()
    ad.exec_step()
    return (clock() - begin) * 1e3


def alternating_ms(
    engines: Sequence[Steps],
    rounds: int,
    turn: int = 3,
    warm_up: int = WARM_UP,
    clock: Callable[[], float] = time.perf_counter,
) -> list[np.ndarray]:
    """Return the wall time of a step of each engine, (rounds,) ms. They take turns, in an order
    that changes, so that what else the machine does hits all alike. turn: timed steps of a turn, of
    which the shortest counts; one before them is not timed: the processor's caches hold another's
    images. warm_up: steps of each before the first turn. clock: as for ``step_ms``."""
    for ad in engines:
        for _ in range(warm_up):
            ad.exec_step()
    times = np.empty((len(engines), rounds))
    order = list(range(len(engines)))
    for k in range(rounds):
        for i in order:
            times[i, k] = min([step_ms(engines[i], clock) for _ in range(1 + turn)][1:])
        order = order[1:] + order[:1]
    return list(times)
