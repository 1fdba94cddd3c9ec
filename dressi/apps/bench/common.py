"""What the tables share: settings, the yardstick, the way a step is timed, a printed table."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable

import dressi
from dressi.apps.report import copy1024_ms
from dressi.apps.timing import WARM_UP, step_ms
from dressi.config import child_environment
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.testing.problems import Problem

FEWEST = 15
"""Steps that are timed at least."""

SECONDS = 2.0
"""Quick steps are timed for this long: a median over half a second follows the machine's mood."""

MOST = 2000
"""Steps that are timed at most: more of steps of 0.2 ms tell nothing new."""

FRESH = 10.0
"""Seconds for which a copy speaks for the machine's mood."""

IN_A_ROW, BURSTS = 32, 15
"""Steps of one submit, as a fit takes them, and how many submits are timed."""

COPIES = 40
"""Copies behind each figure of the yardstick: a quarter of a second on a CPU."""

LONG_NAME = 90
"""Characters of the first column of a table that stay on one line."""

FILES = ("pear_fit.npz", "t1_682.npz", "t2_14220.npz")
"""What the tables read from the data folder."""


@dataclass(frozen=True)
class Settings:
    """Options of the command; see ``dressi bench --help``."""

    smoke: bool = False
    device: str | None = None
    data: str | None = None
    out: str | None = None
    only: str | None = None
    results: str | None = None
    peer: str | None = None

    def with_out(self, out: str | None) -> Settings:
        return replace(self, out=out)

    @property
    def data_dir(self) -> Path:
        """Return ``--data``, else shared/data/bench beside the checkout that the package runs
        from."""
        if self.data is not None:
            return Path(self.data)
        return Path(dressi.__file__).resolve().parents[2] / "shared" / "data" / "bench"

    def check_data(self) -> None:
        """Raises DressiError naming the first missing file; a smoke run reads none."""
        for name in FILES if not self.smoke else ():
            self.file(name)

    def file(self, name: str) -> Path:
        """Return the path of a file of the data folder. Raises DressiError naming it when it is
        missing."""
        path = self.data_dir / name
        if not path.is_file():
            raise DressiError(
                f"bench needs {path}: no such file\n"
                "  hint: --data DIR names the folder that holds it; --smoke needs no data"
            )
        return path


@dataclass
class Copies:
    """The yardstick, measured again and again: the machine may be busy with other things."""

    settings: Settings
    times_ms: list[float] = field(default_factory=list)

    measured_at: float = -math.inf

    def measure(self) -> float:
        """Return the median ms of a 1024 x 1024 RGBA32F fragment copy, now."""
        self.times_ms.append(
            copy1024_ms(self.settings.device, 3 if self.settings.smoke else COPIES)
        )
        self.measured_at = time.perf_counter()
        return self.times_ms[-1]

    def recent(self) -> float:
        """Return a time of the copy that is at most FRESH old: for tables whose cells take a second
        each."""
        if time.perf_counter() - self.measured_at > FRESH:
            self.measure()
        return self.times_ms[-1]

    @property
    def median(self) -> float:
        """Return the median over all measurements of the run."""
        return float(np.median(self.times_ms)) if self.times_ms else self.measure()


@dataclass(frozen=True)
class Table:
    """Rows of figures. columns: keys of the rows that are printed, in order. conditions: what is
    asked of the figures, and whether it holds."""

    columns: Sequence[str]
    rows: Sequence[Mapping[str, Any]]
    conditions: Sequence[tuple[str, bool]] = ()

    def json(self) -> dict[str, Any]:
        """Return ``rows`` and ``conditions``, as JSON has them."""
        return {
            "rows": [dict(row) for row in self.rows],
            "conditions": [{"condition": c, "holds": holds} for c, holds in self.conditions],
        }


def in_new_process(module: str, words: str, caches: str | Path) -> str:
    """Return what ``child(words)`` of a module prints last in a new process whose caches, ours and
    Mesa's, are in the folder ``caches``. Raises DressiError with what it said where it failed."""
    code = f"import sys; from {module} import child; child(sys.argv[1])"
    folder = str(caches)
    run = subprocess.run(
        [sys.executable, "-c", code, words],
        env=child_environment(DRESSI_CACHE=folder, MESA_SHADER_CACHE_DIR=folder),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )
    if run.returncode != 0:
        raise DressiError(f"bench: {module} in a new process failed:\n{run.stderr}")
    return run.stdout.splitlines()[-1]


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        if value == 0:
            return "0"
        return f"{value:.2e}" if abs(value) < 1e-3 else f"{value:.4g}"
    return str(value)


def print_table(title: str, copy_ms: float, table: Table) -> None:
    """On standard output, the time of the copy in the title."""
    grid = RichTable()
    longest = max((len(_cell(row.get(table.columns[0]))) for row in table.rows), default=0)
    for k, name in enumerate(table.columns):
        # A long name is wrapped, or nothing would be left of its figures.
        whole = k == 0 and longest <= LONG_NAME
        grid.add_column(name, justify="right" if k else "left", no_wrap=whole, overflow="fold")
    for row in table.rows:
        grid.add_row(*(_cell(row.get(name)) for name in table.columns))
    console = Console(width=160, highlight=False)
    console.print(f"{title}: copy 1024 x 1024 RGBA32F {copy_ms:.3f} ms", soft_wrap=True)
    console.print(grid)
    for condition, holds in table.conditions:
        console.print(f"  {'holds' if holds else 'DOES NOT HOLD'}: {condition}", soft_wrap=True)


def timed_steps(ad: DressiAD, smoke: bool) -> list[float]:
    """Return the wall ms of steps, FEWEST to MOST of them, once the cache has settled."""
    for _ in range(WARM_UP):
        ad.exec_step()
    times: list[float] = []
    end = time.perf_counter() + (0.0 if smoke else SECONDS)
    while len(times) < (3 if smoke else FEWEST) or (
        time.perf_counter() < end and len(times) < MOST
    ):
        times.append(step_ms(ad))
    return times


def in_a_row_ms(ad: DressiAD, smoke: bool) -> float:
    """Return the median wall ms of a step among IN_A_ROW of one submit, after ``timed_steps``."""
    n = 2 if smoke else IN_A_ROW
    times = []
    for _ in range(2 if smoke else 1 + BURSTS):
        begin = time.perf_counter()
        ad.exec_steps(n)
        times.append((time.perf_counter() - begin) * 1e3 / n)
    return float(np.median(times[1:]))


def first_step_s(ad: DressiAD) -> float:
    """Return the seconds from the graph to the end of the first step: everything is built here."""
    begin = time.perf_counter()
    ad.exec_step()
    return time.perf_counter() - begin


def figures(ad: DressiAD, times_ms: Sequence[float], copy_ms: float) -> dict[str, Any]:
    """Return what every row of steps says about an engine that has just run the timed steps."""
    plan, ms = ad.plan, float(np.median(times_ms))
    host, memory = ad.host_ms(), ad.memory()  # before a timed plan is compiled beside the step
    gpu = sum(t for _, t in ad.stage_times_ms(5))
    return {
        "ms": ms,
        "gpu_ms": gpu,
        "host_ms": host,
        "bytes": memory.used,
        "held_bytes": memory.held,
        "functions": plan.n_functions,
        "substages": plan.n_substages,
        "stages": len(plan.stages),
        "rebuild_s": sum(r.seconds for r in ad.rebuilds),
        "ratio_to_copy": ms / copy_ms,
        "copy_ms": copy_ms,
    }


def start(problem: Problem, settings: Settings, options: dressi.Options | None = None) -> DressiAD:
    """Return an engine that is ready for the first step of a problem; the caller closes it."""
    ad = DressiAD(settings.device, options)
    try:
        problem.load(ad)
    except BaseException:
        ad.close()
        raise
    return ad
