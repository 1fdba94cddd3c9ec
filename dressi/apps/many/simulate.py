"""What scheduling costs, and what kills do: ``dressi many --simulate`` and ``--kills``.

Tasks of no work on many threads; tasks of a little sleep whose workers are killed at random
moments.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from dressi.apps.report import print_table, write_json
from dressi.errors import DressiError
from dressi.many import Progress, Store, map_fits
from dressi.many.cluster import threads_only
from dressi.many.run import Runner
from dressi.many.tasks import fingerprint, make_tasks
from dressi.many.work import Job

WORKERS, THREADS = 8, 8
"""64 threads in all, in this process: what Dask's scheduler sees is 64 places for a task."""

KILL_TASKS, TASK_S = 100, 0.1
SECOND_TRY_S = 120.0
"""Seconds that a run with kills may take beyond its own: workers come back within seconds."""


def nothing(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the setting: a task of no work."""
    return {"k": settings["k"]}


def sleep_a_little(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a number by the setting, after some sleep."""
    time.sleep(settings["seconds"])
    rng = np.random.default_rng(settings["k"])
    return {"value": float(rng.normal()), "values": rng.normal(size=1000)}


def simulate(n: int) -> dict[str, Any]:
    """Return how fast n tasks of no work are scheduled, and the memory of the scheduler's process.
    Raises DressiError where a result is missing."""
    import psutil

    if n < 1:
        raise DressiError(f"--simulate: must be at least 1 task, got {n}")
    of = fingerprint(nothing)
    before = psutil.Process().memory_info().rss
    tasks = make_tasks([{"k": k} for k in range(n)], of)
    runner = Runner(Job(nothing, of, None, "simulated", 1), tasks, False, None)
    with ExitStack() as stack:
        workers = stack.enter_context(threads_only(WORKERS, THREADS))
        begin = time.perf_counter()
        runner.run_on(workers)
        seconds = time.perf_counter() - begin
    run = runner.finish()
    if [r.figures["k"] for r in run.require_all()] != list(range(n)):
        raise DressiError("--simulate: results are not those of their tasks")
    return {
        "tasks": n,
        "threads": WORKERS * THREADS,
        "seconds": seconds,
        "tasks_per_second": n / seconds,
        "scheduler_mb": run.scheduler_bytes / 2**20,
        "scheduler_mb_more": (run.scheduler_bytes - before) / 2**20,
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0,
    }


def kill_workers(
    kills: int, tasks: int = KILL_TASKS, seconds: float = TASK_S, seed: int = 0
) -> dict[str, Any]:
    """Kill a worker at random moments of a run of two; return what was found afterwards. Raises
    DressiError where a result is missing, broken, twice there or another one than without kills."""
    if os.name != "posix":
        raise DressiError("--kills needs SIGKILL, which this system does not have")
    items = [{"k": k, "seconds": seconds} for k in range(tasks)]
    with tempfile.TemporaryDirectory(prefix="dressi-kills-") as folder:
        killer = _Killer(kills, tasks, np.random.default_rng(seed))
        with killer:
            run = map_fits(sleep_a_little, items, folder=folder, workers=2, progress=killer.note)
        store = Store(folder)
        results = run.require_all()
        want = [sleep_a_little({**item, "seconds": 0.0}) for item in items]
        broken = [
            r.key
            for r, w in zip(results, want, strict=True)
            if r.figures["value"] != w["value"] or (r.arrays["values"] != w["values"]).any()
        ]
        files = sorted(p.name for p in store.results.iterdir() if not p.name.startswith("."))
        if broken or len(files) != tasks or any(store.claims.glob("*.*")):
            raise DressiError(f"--kills: broken {broken}, {len(files)} results of {tasks} tasks")
        retried = sum(int(r.info["attempt"]) > 1 for r in results)
    return {
        "tasks": tasks,
        "kills": killer.killed,
        "results": len(files),
        "retried": retried,
        "seconds": run.seconds,
    }


class _Killer:
    """A thread that kills one of this process's workers, each time that a randomly chosen number of
    tasks is done, and a random moment later."""

    def __init__(self, kills: int, tasks: int, rng: np.random.Generator) -> None:
        self._at = sorted(
            int(n) for n in rng.choice(max(tasks - 2, 1), min(kills, tasks - 2), False)
        )
        self._later = rng.uniform(0.0, TASK_S, kills)
        self._rng, self._done = rng, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.killed = 0

    def note(self, progress: Progress) -> None:
        self._done = progress.done

    def __enter__(self) -> _Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        for at, later in zip(self._at, self._later, strict=False):
            while not (self._done >= max(at, 1) and worker_processes()):
                if self._over.wait(0.01):
                    return
            time.sleep(later)
            there = worker_processes()
            if there:
                os.kill(there[int(self._rng.integers(len(there)))], signal.SIGKILL)
                self.killed += 1


def worker_processes() -> list[int]:
    """Return the process numbers of this process's workers."""
    import psutil

    found = []
    for child in psutil.Process().children():
        try:
            if any("spawn_main" in word for word in child.cmdline()):
                found.append(child.pid)
        except psutil.Error:
            continue
    return found


def run_simulation(n: int, json_file: str | None) -> None:
    """Print what ``simulate`` finds."""
    _show("dressi many --simulate", simulate(n), json_file)


def run_kills(n: int, json_file: str | None) -> None:
    """Print what ``kill_workers`` finds."""
    _show("dressi many --kills", kill_workers(n), json_file)


def _show(title: str, figures: dict[str, Any], json_file: str | None) -> None:
    print_table(title, figures)
    if json_file is not None:
        write_json(Path(json_file), figures)
