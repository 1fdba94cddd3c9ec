"""A function over many items: what is there is read, the rest is computed, nothing is lost.

In: a function, items, a folder, workers. Out: ``Run``: results in the order of the items, what was
set aside, what is stale.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dressi.errors import DressiError
from dressi.many import claims
from dressi.many.futures import Submitter, ended_futures, outcome_of
from dressi.many.store import Result, Store
from dressi.many.tasks import Fit, Task, fingerprint, make_tasks, resolve
from dressi.many.work import Job, Outcome, attempt, warm_here

TRIES = 3
"""Attempts before a task is set aside."""

POLL_S = 0.25
"""Seconds between looks at tasks that another run has."""

NO_WORKER_S = 60.0
"""Seconds without any worker after which a run gives up: one that died is back in a few."""


@dataclass(frozen=True)
class Progress:
    """How far a run is. total: tasks; found: that were there before; done, failed (set aside): by
    now; workers: that are there; worker: tasks done by each; last: what has just ended."""

    total: int
    found: int
    done: int
    failed: int
    seconds: float
    workers: int
    worker: Mapping[str, int]
    last: Outcome | None = None
    dashboard: str | None = None

    @property
    def seconds_left(self) -> float | None:
        """Seconds until all is done at the pace so far; None before the first."""
        computed = self.done + self.failed - self.found
        left = self.total - self.done - self.failed
        return self.seconds / computed * left if computed > 0 else None


@dataclass
class Run:
    """What came of the items. results: one per item, in order; None where the task was set aside.
    failures: key -> tracebacks of what was set aside. keys: of the items. stale: keys of results in
    the folder that are of these settings, but of another version or other files. others: of other
    settings. computed: tasks that this run computed. seconds: that it took."""

    results: list[Result | None]
    failures: dict[str, tuple[str, ...]]
    keys: list[str]
    stale: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    computed: int = 0
    seconds: float = 0.0
    scheduler_bytes: int = 0

    def require_all(self) -> list[Result]:
        """Return all results. Raises DressiError with the first traceback where one is missing."""
        there = [r for r in self.results if r is not None]
        if len(there) < len(self.results):
            texts = next(iter(self.failures.values()), ())
            raise DressiError(
                f"{len(self.results) - len(there)} of {len(self.results)} tasks failed; the first "
                f"with\n{texts[-1] if texts else 'nothing to tell'}"
            )
        return there


def map_fits(
    function: Fit | str,
    items: Iterable[Mapping[str, Any]],
    scheduler: str | None = None,
    *,
    folder: str | Path | None = None,
    workers: int | None = None,
    devices: str | Sequence[str | int] | None = None,
    version: str | None = None,
    files: Sequence[str] = (),
    tries: int = TRIES,
    retry_failed: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Run:
    """Return the results of a function over items, computed by workers where they are not there.

    function: takes settings, or settings and a ``Context``, and returns figures and arrays by name;
    itself or ``module:name``. items: settings, plain data. scheduler: address of a Dask scheduler;
    None: workers of this machine. folder: of the results, which are kept there and found again;
    None keeps nothing. workers: how many processes; 0: this one alone; None: one per device, on CPU
    drivers one per core. devices: ``all``, ``0,1`` or selectors, spread over the workers. version:
    text that results depend on, None: Dressi's and the function's source. files: settings that are
    paths; what is in the files counts. tries: attempts before a task is set aside. retry_failed:
    try again what was set aside earlier. progress: called after every task.

    The same results for any number of workers and any order, where the function gives the same for
    the same settings. Raises DressiError for what can be seen to be wrong before anything runs, and
    where results cannot be written.
    """
    _check(scheduler, workers, devices, tries)
    of = fingerprint(function, version, files)
    tasks = make_tasks(items, of)
    job = Job(function, of, None if folder is None else str(Path(folder).resolve()), _name(), tries)
    runner = Runner(job, tasks, retry_failed, progress)
    try:
        if runner.left and workers == 0 and scheduler is None:
            runner.run_here()
        elif runner.left:
            deaths = None if folder is not None else tries - 1
            with _open(scheduler, workers, devices, len(runner.left), deaths) as there:
                runner.run_on(there)
    finally:
        runner.sweep(None if scheduler is not None else job.run)
    return runner.finish()


def _name() -> str:
    return secrets.token_hex(8)


def _check(scheduler: str | None, workers: int | None, devices: object, tries: int) -> None:
    if workers is not None and (isinstance(workers, bool) or workers < 0):
        raise DressiError(f"workers must be a number of processes, at least 0, got {workers!r}")
    if scheduler is not None and workers is not None:
        raise DressiError("workers are those of the scheduler: give scheduler or workers, not both")
    if scheduler is not None and devices is not None:
        raise DressiError(
            "devices are those of the scheduler's workers: give scheduler or devices, not both\n"
            "  hint: DRESSI_DEVICE=0 dask worker ADDRESS --nthreads 1"
        )
    if tries < 1:
        raise DressiError(f"tries must be at least 1, got {tries}")


@contextmanager
def _open(
    scheduler: str | None,
    workers: int | None,
    devices: str | Sequence[str | int] | None,
    tasks: int,
    deaths: int | None,
) -> Iterator[Any]:
    from dressi.many import cluster

    if scheduler is not None:
        with cluster.connected(scheduler) as there:
            yield there
        return
    cluster.require_dask()
    n, chosen = cluster.spread(workers, devices)
    deaths = cluster.DEATHS if deaths is None else deaths
    with cluster.local(max(1, min(n, tasks)), chosen, deaths) as there:
        yield there


class Runner:
    """The course of one run. left: tasks to compute, in the order of the items."""

    def __init__(
        self,
        job: Job,
        tasks: Sequence[Task],
        retry_failed: bool,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self.job, self.tasks = job, tasks
        self.results: dict[str, Result] = {}
        self.failures: dict[str, tuple[str, ...]] = {}
        self._progress = progress
        self._begin = time.perf_counter()
        self._of_worker: dict[str, int] = {}
        self._n_workers, self._dashboard = 1, None
        self._attempts: dict[str, int] = {}
        self.scheduler_bytes = 0
        by_key = {task.key: task for task in tasks}
        self.store = None if job.folder is None else Store(job.folder)
        if self.store is not None:
            if retry_failed:
                self.store.forget_failures(by_key)
            self._find(by_key)
        self.found = len(self.results)
        self.total = len(by_key)
        self.left = [
            t for k, t in by_key.items() if k not in self.results and k not in self.failures
        ]
        if self.left:
            resolve(job.function)  # raises for a name that leads nowhere, before anything is made
        if self.store is not None:
            self.store.make()

    def _find(self, by_key: Mapping[str, Task]) -> None:
        assert self.store is not None
        for key in self.store.keys() & by_key.keys():
            result = self.store.result(key)
            if result is not None:
                self.results[key] = result
        for key in self.store.failed_keys() & by_key.keys() - self.results.keys():
            failure = self.store.failure(key) or {}
            self.failures[key] = tuple(failure.get("tracebacks", ()))

    # -- running

    def run_here(self) -> None:
        """Compute what is left in this process, one after another."""
        queue = deque(self.left)
        taken = 0  # in a row
        with warm_here() as warm:
            while queue:
                task = queue.popleft()
                outcome = attempt(self.job, task, warm, "here")
                if self._note(outcome):
                    queue.append(task)
                taken = taken + 1 if outcome.status == "taken" else 0
                if taken and taken >= len(queue):
                    time.sleep(POLL_S)

    def run_on(self, workers: Any) -> None:
        """Compute what is left on workers of Dask."""
        from dressi.many.cluster import check_folder

        if self.store is not None and not workers.local:
            token = f".run-{self.job.run}"
            (self.store.folder / token).touch()
            try:
                check_folder(workers, str(self.store.folder), token)
            finally:
                (self.store.folder / token).unlink()
        self._dashboard = workers.dashboard
        self._n_workers = workers.count()
        self._tell(None)
        self._loop(workers)
        self.scheduler_bytes = workers.scheduler_memory()

    def _loop(self, workers: Any) -> None:
        from distributed import as_completed

        by_key = {task.key: task for task in self.left}
        submit = Submitter(workers.client, self.job)
        waiting: list[Task] = []  # for another run
        coming = as_completed(submit(self.left), with_results=True, raise_errors=False)
        seen = time.monotonic()  # when something was heard last
        while not by_key.keys() <= self.results.keys() | self.failures.keys():
            ended = ended_futures(coming, POLL_S)
            for future, outcome in ended:
                task = by_key[submit.keys.pop(future.key)]
                if self._note(outcome_of(task, outcome)):
                    if isinstance(outcome, Outcome) and outcome.status == "taken":
                        waiting.append(task)
                    else:
                        coming.update(submit([task]))
            waiting = [t for t in waiting if not self._found_meanwhile(t)]
            free = [t for t in waiting if self._is_free(t)]
            if free:
                waiting = [t for t in waiting if t not in free]
                coming.update(submit(free))
            if ended:
                seen = time.monotonic()
                continue
            workers.revive()
            if waiting or workers.count():
                seen = time.monotonic()
            elif time.monotonic() - seen > NO_WORKER_S:
                raise DressiError(f"no worker has been left for {NO_WORKER_S:g} s")

    def _is_free(self, task: Task) -> bool:
        assert self.store is not None
        return self.store.was_set_aside(task.key) or claims.is_free(self.store.claims, task.key)

    def _found_meanwhile(self, task: Task) -> bool:
        """Whether another run has computed a task."""
        assert self.store is not None
        result = self.store.result(task.key)
        if result is not None:
            self.results[task.key] = result
            self._tell(None)
        return result is not None

    def _note(self, outcome: Outcome) -> bool:
        """Take an outcome; whether the task is to be tried again."""
        again = outcome.status == "taken"
        if outcome.status == "stop":
            raise DressiError(outcome.tracebacks[0])
        if outcome.status == "done":
            assert outcome.result is not None
            self.results[outcome.key] = outcome.result
            name = str(outcome.result.info["worker"])
            self._of_worker[name] = self._of_worker.get(name, 0) + 1
        elif outcome.status == "failed":
            count = self._attempts[outcome.key] = self._attempts.get(outcome.key, 0) + 1
            again = count < self.job.tries
        if outcome.status == "aside" or (outcome.status == "failed" and not again):
            self.failures[outcome.key] = outcome.tracebacks
        self._tell(outcome)
        return again

    def _tell(self, outcome: Outcome | None) -> None:
        if self._progress is None:
            return
        self._progress(
            Progress(
                self.total,
                self.found,
                len(self.results),
                len(self.failures),
                time.perf_counter() - self._begin,
                self._n_workers,
                dict(self._of_worker),
                outcome,
                self._dashboard,
            )
        )

    # -- the end

    def sweep(self, run: str | None) -> None:
        """Remove claims that nobody needs, and what those who had them left behind. run: None: its
        workers may still be at work."""
        store = self.store
        if store is None:
            return
        over = claims.sweep(
            store.claims, run, lambda key: store.has(key) or store.was_set_aside(key)
        )
        for key in over:
            if claims.is_free(store.claims, key):
                store.sweep(key)

    def finish(self) -> Run:
        """What came of it."""
        keys = [task.key for task in self.tasks]
        stale, others = self._left_over(set(keys))
        return Run(
            [self.results.get(key) for key in keys],
            dict(self.failures),
            keys,
            stale,
            others,
            len(self.results) - self.found,
            time.perf_counter() - self._begin,
            self.scheduler_bytes,
        )

    def _left_over(self, mine: set[str]) -> tuple[list[str], list[str]]:
        """Keys of results that are not of this run: of the same settings, of others."""
        if self.store is None:
            return [], []
        identities = {task.identity for task in self.tasks}
        stale: list[str] = []
        others: list[str] = []
        for key in sorted(self.store.keys() - mine):
            record = self.store.record(key) or {}
            (stale if record.get("identity") in identities else others).append(key)
        return stale, others
