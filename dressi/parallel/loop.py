"""Whole steps on all devices: gradients, their sum on the host, the update.

In: replicas that are built. Out: ``Loop``, which keeps all of them at the same step. In the usual
case one submit per device and step is under way at all times but while the host adds: the update of
a step and the gradients of the next. What is unusual (a cache to rebuild, a clean part to run
again) is done step by step, by a thread per device.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from dressi.errors import DressiError, OutOfMemoryError
from dressi.parallel.replica import Replica
from dressi.parallel.sums import add_words

SYNC_STEPS = 100
"""Steps between copies of the parameters from the first device to the others, where devices are
unlike: their square roots and divisions may differ in the last bits. (The gradients that they apply
are the same, so what differs only adds up, and does not grow of itself.)"""


class Loop:
    """Steps of replicas, of which one thread at a time has the locks.

    alike: whether the devices are of one kind, so that equal updates leave equal parameters.
    threads: at least one per replica.
    """

    def __init__(self, replicas: Sequence[Replica], threads: ThreadPoolExecutor) -> None:
        self._replicas = replicas
        self._threads = threads
        kinds = {(i.name, i.driver) for i in (r.engine.device_info for r in replicas)}
        self.alike = len(kinds) == 1
        self.steps = 0
        self.wall_s: dict[str, deque[float]] = {
            name: deque(maxlen=64) for name in ("gradients", "sum", "update")
        }
        """Seconds of the parts of the last steps. Gradients that are submitted together with the
        update before them include it; then ``update`` is that of the last step of a call."""

    def run(self, n: int, stopped: Callable[[], bool]) -> None:
        """n steps; fewer, but whole ones, once ``stopped()``. Nothing is under way afterwards.
        Raises what the first device that fails raises, naming it; the devices may be at different
        steps then, and some at work."""
        have = False  # whether the gradients of the next step are on the host already
        for left in range(n - 1, -1, -1):
            if not have:
                self._timed("gradients", self._compute)
            self._timed("sum", self._add)
            self.steps += 1
            sync = not self.alike and self.steps % SYNC_STEPS == 0
            more = left > 0 and not stopped()
            # The gradients of the step after the last one of a call are not wanted: the loss is
            # that of the last step, and data may be sent before the next.
            have = self._update(more and not sync)
            if sync:
                self._timed("update", self._sync)
            if not more:
                return

    def _compute(self) -> None:
        if all(r.is_plain() for r in self._replicas):
            self._each(lambda r: r.start(gradients=True))
            self._each(lambda r: r.finish())
        else:
            self._on_all(lambda r: r.compute_gradients())

    def _add(self) -> None:
        gradients = [r.gradients for r in self._replicas]
        add_words(gradients, [r.sums for r in self._replicas], self._threads)

    def _update(self, more: bool) -> bool:
        """The update, and the gradients of the next step where these are wanted and a submit does;
        whether they are there."""
        begin = time.perf_counter()
        for replica in self._replicas:
            replica.note_update()
        ahead = more and all(r.is_plain() for r in self._replicas)
        self._each(lambda r: r.start(update=True, gradients=ahead))
        self._each(lambda r: r.finish())
        self.wall_s["gradients" if ahead else "update"].append(time.perf_counter() - begin)
        return ahead

    def _sync(self) -> None:
        parameters = self._replicas[0].read_parameters()
        for replica in self._replicas[1:]:
            replica.write_parameters(parameters)

    def _timed(self, name: str, work: Callable[[], None]) -> None:
        begin = time.perf_counter()
        work()
        self.wall_s[name].append(time.perf_counter() - begin)

    # -- the same on every device

    def _each(self, work: Callable[[Replica], None]) -> None:
        """In turn: what does not take long, or waits for what all devices do at the same time."""
        for k, replica in enumerate(self._replicas):
            try:
                work(replica)
            except Exception as error:
                raise self._named(k, error) from error

    def _on_all(self, work: Callable[[Replica], None]) -> None:
        """At the same time: the calls into the driver run without the interpreter lock. Raises what
        the first device that fails raises, once all are done."""
        futures = [self._threads.submit(work, r) for r in self._replicas]
        wait(futures)
        for k, future in enumerate(futures):
            error = future.exception()
            if error is not None:
                raise self._named(k, error) from error

    def _named(self, k: int, error: BaseException) -> BaseException:
        """The error with the device that it comes from, where it is of the library."""
        name = self._replicas[k].engine.device_info.name
        text = f"device {k} of {len(self._replicas)} ({name}): {error}"
        if isinstance(error, OutOfMemoryError):
            return OutOfMemoryError(text, error.needed, error.available)
        return type(error)(text) if isinstance(error, DressiError) else error
