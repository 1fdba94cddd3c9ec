"""``dressi bench many``: what spreading small fits over workers brings, and what it costs.

Small fits on one worker and on two, and in as many processes without Dask, which is what the cores
allow; reading a finished run again; tasks of no work; kills.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dressi.apps.bench.common import Copies, Settings, Table
from dressi.apps.many import demo_fit, run_many, simulate
from dressi.apps.many.run import Options
from dressi.config import child_environment
from dressi.errors import DressiError
from dressi.many import map_fits
from dressi.many.cluster import environment
from dressi.threads import cores
from dressi.vk import equal_devices

COLUMNS = (
    "what",
    "tasks",
    "workers",
    "seconds",
    "per_second",
    "fit_ms",
    "overhead_ms",
    "builds",
    "load",
)

FITS = {
    "size": 64,
    "views": 2,
    "iterations": 40,
    "subdivisions": 3,
    "picture": False,
}
"""A small fit: 642 vertices."""

SMOKE_FITS = {**FITS, "size": 16, "iterations": 2, "subdivisions": 1}

FEWEST_TIMES, CARDS_TIMES = 1.8, 1.8
"""Throughput of two workers over that of one: on processors, where the cores allow it, and with a
GPU each (twice within 10 %)."""

SHARE = 0.95
"""Of what two processes without Dask do, where that is less: what two runs of a bench differ by."""

MOST_OVERHEAD_MS = 30.0
"""What a task may cost beyond its fit."""

MOST_RESUME_S, FEWEST_PER_S = 2.0, 300.0
"""To read a finished run of 1000 tasks; tasks of no work that are scheduled."""


ONLY = ("fits", "resume", "scheduling", "kills")
"""What ``--only`` may name."""


def is_available() -> bool:
    """Whether Dask is installed."""
    return importlib.util.find_spec("distributed") is not None


def measure(settings: Settings, copies: Copies) -> Table:
    """Return the rows of all, or of the one of ``--only``."""
    smoke = settings.smoke
    rows: list[dict[str, Any]] = []
    asked: list[tuple[str, bool]] = []
    for part in (settings.only,) if settings.only else ONLY:
        if part == "fits":
            own, conditions = _fits(settings)
        elif part == "resume":
            own, conditions = _resume(10 if smoke else 1000)
        elif part == "scheduling":
            own, conditions = _scheduling(50 if smoke else 10_000)
        elif smoke:
            continue  # kills need their time
        else:
            own, conditions = _kills()
        rows += own
        asked += conditions
    return Table(COLUMNS, rows, [] if smoke else asked)


Part = tuple[list[dict[str, Any]], list[tuple[str, bool]]]
"""Rows, and what is asked of them."""


def _fits(settings: Settings) -> Part:
    """Small fits on one worker and on two, and in one and two processes without Dask; on a machine
    with several GPUs, on one GPU and on two, a worker or process each."""
    found = equal_devices(settings.device)
    cards = len(found) > 1 and found[0].type != "cpu"
    devices = [str(info.index) for info in found[: 2 if cards else 1]]
    if settings.smoke:
        return [fits(settings, 4, 1, devices), alone(settings, 2, 1, devices)], []
    # Shaders and profiles of all devices are on disk then: who is measured first does not pay.
    fits(settings, 2 * len(devices), len(devices), devices)
    one, two = (fits(settings, 200, k, devices[:k]) for k in (1, 2))
    free_one, free_two = (alone(settings, 100, k, devices[:k]) for k in (1, 2))
    times = two["per_second"] / one["per_second"]
    allowed = free_two["per_second"] / free_one["per_second"]
    costs = one["overhead_ms"], two["overhead_ms"]
    return [one, two, free_one, free_two], [
        speed_condition(times, allowed, cards),
        (
            f"a task costs at most {MOST_OVERHEAD_MS:g} ms beyond its fit, got {costs[0]:.1f} (one "
            f"worker), {costs[1]:.1f} (two)",
            max(costs) <= MOST_OVERHEAD_MS,
        ),
    ]


def speed_condition(times: float, allowed: float, cards: bool) -> tuple[str, bool]:
    """Return what is asked of two workers, and whether it holds. times: their throughput over that
    of one; allowed: the same of processes without Dask; cards: each has a GPU."""
    got = f"got {times:.2f}; two processes without Dask do {allowed:.2f} times as much as one"
    if cards:
        return f"two GPUs do {CARDS_TIMES:g} times as much as one, {got}", times >= CARDS_TIMES
    asked = min(FEWEST_TIMES, SHARE * allowed)
    text = f"two workers do {FEWEST_TIMES:g} times as much as one where the cores allow it, {got}"
    return text, times >= asked


def _resume(n: int) -> Part:
    row = resume(n)
    text = f"a finished run of {n} is read in at most {MOST_RESUME_S:g} s, got {row['seconds']:.2f}"
    return [row], [(text, row["seconds"] <= MOST_RESUME_S)]


def _scheduling(n: int) -> Part:
    row = scheduling(n)
    speed = row["per_second"]
    text = f"at least {FEWEST_PER_S:g} tasks of no work are scheduled a second, got {speed:.0f}"
    return [row], [(text, speed >= FEWEST_PER_S)]


def _kills() -> Part:
    found = simulate.kill_workers(10)
    return [{"what": f"{found['kills']} kills", "workers": 2, **found, "load": load()}], []


def load() -> float:
    """The load of the machine: figures of a busy one say little."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def _items(settings: Settings, seeds: Iterable[int]) -> list[dict[str, Any]]:
    return [{**(SMOKE_FITS if settings.smoke else FITS), "seed": k + 1} for k in seeds]


def fits(settings: Settings, n: int, workers: int, devices: Sequence[str]) -> dict[str, Any]:
    """Return the row of n small fits with random starts."""
    with tempfile.TemporaryDirectory(prefix="dressi-many-") as folder:
        run = map_fits(
            demo_fit.run,
            _items(settings, range(n)),
            folder=folder,
            workers=workers,
            devices=devices,
            version="bench",
        )
    what = f"small fits, {len(devices)} devices" if len(devices) > 1 else "small fits"
    info = [r.info for r in run.require_all()]
    return {"what": what, "workers": workers, **throughput(info), "load": load()}


def alone(settings: Settings, n: int, processes: int, devices: Sequence[str]) -> dict[str, Any]:
    """Return the row of n small fits shared among processes that know nothing of each other, with
    the variables of workers. Raises DressiError where one fails."""
    threads = max(1, cores() // processes)
    code = f"import sys; from {__name__} import child; child(sys.argv[1])"
    begun = []
    for k in range(processes):
        items = _items(settings, range(k, n, processes))
        own = environment(devices[k % len(devices)], threads)
        begun.append(
            subprocess.Popen(
                [sys.executable, "-c", code, json.dumps(items)],
                env={**child_environment(), **own, "TQDM_DISABLE": "1"},
                stdout=subprocess.PIPE,
                encoding="utf-8",
            )
        )
    info: list[dict[str, Any]] = []
    for k, process in enumerate(begun):
        said = process.communicate()[0]
        if process.returncode != 0:
            raise DressiError(
                f"bench many: a process of small fits ended with {process.returncode}"
            )
        info += [{**one, "worker": k} for one in json.loads(said.splitlines()[-1])]
    return {"what": "without Dask", "workers": processes, **throughput(info), "load": load()}


def child(words: str) -> None:
    """Compute the items of ``words``; print how that went."""
    with tempfile.TemporaryDirectory(prefix="dressi-many-") as folder:
        run = map_fits(demo_fit.run, json.loads(words), folder=folder, workers=0, version="bench")
    print(json.dumps([r.info for r in run.require_all()]))


def throughput(info: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how fast tasks went from the first's start to the last's end (workers are there then),
    and the time between a task and the next of the same worker, mean. info: of the results."""
    by_worker: dict[object, list[Any]] = {}
    for one in info:
        by_worker.setdefault(one["worker"], []).append(one)
    spans = {w: _span(own) for w, own in by_worker.items()}
    between = sum(spans.values()) - sum(i["seconds"] for i in info)
    span = _span(info)
    return {
        "tasks": len(info),
        "seconds": span,
        "per_second": len(info) / span,
        "fit_ms": 1e3 * statistics.median(i["seconds"] for i in info),
        "overhead_ms": 1e3 * between / max(len(info) - len(by_worker), 1),
        "builds": sum(i["builds"] for i in info),
    }


def _span(info: Sequence[Any]) -> float:
    """Seconds from the start of the first to the end of the last."""
    return float(max(i["finished"] for i in info) - min(i["finished"] - i["seconds"] for i in info))


def resume(n: int) -> dict[str, Any]:
    """Return how long the command takes that finds all of n tasks done, from its start to its end:
    imports, results, table and report."""
    with tempfile.TemporaryDirectory(prefix="dressi-many-") as folder:
        spec = Path(folder) / "spec.toml"
        spec.write_text(
            f'fit = "{simulate.nothing.__module__}:nothing"\nproduct.k = {{from = 1, to = {n}}}\n',
            encoding="utf-8",
        )
        run_many(spec, Options(out=folder, workers=0, quiet=True))
        command = [sys.executable, "-m", "dressi", "many", str(spec), "--out", folder]
        begin = time.perf_counter()
        done = subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout
        seconds = time.perf_counter() - begin
    if f"{n} of {n} tasks done, 0 of them now" not in done:
        raise DressiError(f"bench many: the finished run was not found again: {done}")
    return {"what": "finished run", "tasks": n, "workers": 0, "seconds": seconds, "load": load()}


def scheduling(n: int) -> dict[str, Any]:
    """Return how fast tasks of no work are scheduled on 64 threads."""
    found = simulate.simulate(n)
    return {
        "what": f"no work; scheduler {found['scheduler_mb']:.0f} MB",
        "tasks": n,
        "workers": found["threads"],
        "seconds": found["seconds"],
        "per_second": found["tasks_per_second"],
        "load": found["load"],
    }
