"""``dressi bench reliability``: promises as figures with thresholds, on this device. What each
figure is: ``dressi.apps.reliability``, one file a figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dressi.apps.bench.common import Copies, Settings, Table
from dressi.apps.reliability import (
    cost,
    coverage,
    edges,
    fits,
    gradients,
    leaks,
    malformed,
    ops,
    survival,
    switches,
)
from dressi.apps.reliability.row import COLUMNS, Row
from dressi.errors import DressiError

FIGURES: Mapping[str, Callable[[str | None, bool], list[Row]]] = {
    "R1": ops.measure,
    "R2": edges.measure,
    "R3": gradients.measure,
    "R4": fits.own_picture,
    "R6": coverage.measure,
    "R8": switches.measure,
    "R9": fits.same_bits,
    "R10": malformed.measure,
    "R11": survival.conformance,
    "R12": leaks.measure,
    "R14": survival.atomic,
    "cost": cost.measure,
}
"""(device, whether the run is a small one) -> rows."""


def chosen(only: str | None) -> list[str]:
    """Names out of a list like ``R1,R9``; all when it is None. Raises DressiError for others."""
    names = list(FIGURES) if only is None else [n.strip() for n in only.split(",")]
    unknown = [n for n in names if n not in FIGURES]
    if unknown:
        known = ", ".join(FIGURES)
        raise DressiError(f"bench: --only {only}: no figure {', '.join(unknown)}; known: {known}")
    return names


def measure(settings: Settings, copies: Copies) -> Table:
    """The table; the copy is measured for its title."""
    rows = []
    for name in chosen(settings.only):
        rows += FIGURES[name](settings.device, settings.smoke)
    return Table(COLUMNS, rows, [(row["figure"], row["holds"]) for row in rows])
