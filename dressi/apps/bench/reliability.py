"""``dressi bench reliability``: promises as figures with thresholds, on this device. What each
figure is: ``dressi.apps.reliability``, one file per figure."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from dressi.apps.bench.common import Copies, Settings, Table
from dressi.apps.reliability import (
    cost,
    coverage,
    devices,
    edge_gradients,
    edges,
    failures,
    fits,
    gradients,
    leaks,
    malformed,
    ops,
    surroundings,
    survival,
    switches,
    validation,
)
from dressi.apps.reliability.row import COLUMNS, Row
from dressi.errors import DressiError

FIGURES: Mapping[str, Callable[[str | None, bool], Iterable[Row]]] = {
    "R1": ops.measure,
    "R2": edges.measure,
    "R3": gradients.measure,
    "R4": fits.own_picture,
    "R5": validation.measure,
    "R6": coverage.measure,
    "R7": devices.measure,
    "R8": switches.measure,
    "R9": fits.same_bits,
    "R10": malformed.measure,
    "R11": survival.conformance,
    "R12": leaks.measure,
    "R13": failures.measure,
    "R14": survival.atomic,
    "R15": surroundings.measure,
    "R16": edge_gradients.measure,
    "cost": cost.measure,
}
"""(device, whether the run is a small one) -> rows."""
FILED = "R7"
"""The figure that ``--results`` goes to."""
WORDED = "R16"
"""The figure that takes words after its name: ``R16:antialias:torus``."""


def chosen(only: str | None) -> list[str]:
    """Return the names out of a list like ``R1,R9,R16:torus``; all when it is None. Raises
    DressiError for others."""
    names = list(FIGURES) if only is None else [n.strip() for n in only.split(",")]
    unknown = [n for n in names if n not in FIGURES and not n.startswith(f"{WORDED}:")]
    if unknown:
        known = ", ".join(FIGURES)
        raise DressiError(f"bench: --only {only}: no figure {', '.join(unknown)}; known: {known}")
    return names


EVERY_S = 5.0
"""Seconds between two signs of life of a figure that is being measured."""


def measure(settings: Settings, copies: Copies) -> Table:
    """Return the table; the copy is measured for its title. Each row is also told on standard error
    as soon as it is known; a run that is stopped tells which figures were done."""
    rows: list[Row] = []
    names = chosen(settings.only)
    figures = dict(FIGURES)
    if settings.results is not None:
        figures[FILED] = partial(devices.measure, file=settings.results)
    for name in names:
        if name not in figures:
            words = name.split(":")[1:]
            edge_gradients.chosen(words)
            figures[name] = partial(edge_gradients.measure, words=words)
    done: list[str] = []
    try:
        for name in names:
            with _signs_of_life(name):
                for row in figures[name](settings.device, settings.smoke):
                    rows.append(row)
                    _tell(_line(row))
            done.append(name)
    except KeyboardInterrupt:
        left = [n for n in names if n not in done]
        _tell(
            f"stopped while {left[0]} was measured; done: {', '.join(done) or 'none'} "
            f"({len(rows)} rows, {sum(r['holds'] is False for r in rows)} do not hold); "
            f"not done: {', '.join(left)}"
        )
        raise
    asked = [(row["figure"], row["holds"]) for row in rows if row["holds"] is not None]
    return Table(COLUMNS, rows, asked)


def _line(row: Row) -> str:
    if row["holds"] is None:
        return str(row["figure"])
    verdict = "holds" if row["holds"] else "DOES NOT HOLD"
    return f"{row['figure']}: {row['value']} (threshold {row['threshold']}), {verdict}"


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def _signs_of_life(name: str) -> Iterator[None]:
    """A line when a figure begins, one every few seconds, one with its seconds at the end."""
    begin, over = time.perf_counter(), threading.Event()

    def beat() -> None:
        while not over.wait(EVERY_S):
            _tell(f"{name}: {time.perf_counter() - begin:.0f} s")

    _tell(f"{name}: begins")
    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
        _tell(f"{name}: took {time.perf_counter() - begin:.1f} s")
    finally:
        over.set()
        thread.join()
