"""``dressi bench many``: what spreading small fits over workers brings, and what it costs.

Small fits on one worker and on two; reading a finished run again; tasks of no work; kills.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dressi.apps.bench.common import Copies, Settings, Table
from dressi.apps.many import demo_fit, simulate
from dressi.many import Run, map_fits

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

FEWEST_TIMES, MOST_OVERHEAD_MS = 1.8, 30.0
"""Throughput of two workers over that of one, and what a task may cost beyond its fit."""

MOST_RESUME_S, FEWEST_PER_S = 2.0, 300.0
"""To read a finished run of 1000 tasks; tasks of no work that are scheduled."""


def is_available() -> bool:
    """Whether Dask is installed."""
    return importlib.util.find_spec("distributed") is not None


def measure(settings: Settings, copies: Copies) -> Table:
    """Return all rows."""
    smoke = settings.smoke
    n_fits, n_resume, n_simulate = (4, 10, 50) if smoke else (200, 1000, 10_000)
    rows = [fits(settings, n_fits, workers) for workers in ((1,) if smoke else (1, 2))]
    rows += [resume(n_resume), scheduling(n_simulate)]
    asked = []
    if not smoke:
        found = simulate.kill_workers(10)
        rows.append({"what": f"{found['kills']} kills", "workers": 2, **found, "load": load()})
        one, two, again, none = rows[:4]
        times = two["per_second"] / one["per_second"]
        asked = [
            (
                f"two workers do {FEWEST_TIMES:g} times as much as one, got {times:.2f}",
                times >= FEWEST_TIMES,
            ),
            (
                f"a task costs at most {MOST_OVERHEAD_MS:g} ms beyond its fit, got "
                f"{one['overhead_ms']:.1f} (one worker), {two['overhead_ms']:.1f} (two)",
                max(one["overhead_ms"], two["overhead_ms"]) <= MOST_OVERHEAD_MS,
            ),
            (
                f"a finished run of {again['tasks']} is read in at most {MOST_RESUME_S:g} s, got "
                f"{again['seconds']:.2f}",
                again["seconds"] <= MOST_RESUME_S,
            ),
            (
                f"at least {FEWEST_PER_S:g} tasks of no work are scheduled a second, got "
                f"{none['per_second']:.0f}",
                none["per_second"] >= FEWEST_PER_S,
            ),
        ]
    return Table(COLUMNS, rows, asked)


def load() -> float:
    """The load of the machine: figures of a busy one say little."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def fits(settings: Settings, n: int, workers: int) -> dict[str, Any]:
    """Return the row of n small fits with random starts."""
    items = [{**(SMOKE_FITS if settings.smoke else FITS), "seed": k + 1} for k in range(n)]
    devices = None if settings.device is None else [settings.device]
    with tempfile.TemporaryDirectory(prefix="dressi-many-") as folder:
        run = map_fits(
            demo_fit.run, items, folder=folder, workers=workers, devices=devices, version="bench"
        )
    return {"what": "small fits", "workers": workers, **throughput(run), "load": load()}


def throughput(run: Run) -> dict[str, Any]:
    """Return how fast tasks went from the first's start to the last's end (workers are there then),
    and the time between a task and the next of the same worker, mean."""
    info = [r.info for r in run.require_all()]
    by_worker: dict[str, list[Any]] = {}
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
    """Return how long it takes to find that all of n tasks are done."""
    items = [{"k": k} for k in range(n)]
    with tempfile.TemporaryDirectory(prefix="dressi-many-") as folder:
        map_fits(simulate.nothing, items, folder=folder, workers=0)
        begin = time.perf_counter()
        run = map_fits(simulate.nothing, items, folder=Path(folder), workers=2)
        seconds = time.perf_counter() - begin
    assert run.computed == 0
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
