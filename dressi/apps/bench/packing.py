"""``dressi bench packing``: what the compiler itself costs, in Python: simplify, pack and check
graphs of growing size. No shader is compiled and nothing runs."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from dressi.ad.graph import topological
from dressi.ad.simplify import simplify
from dressi.apps.bench.common import Copies, Settings, Table
from dressi.engine import DressiAD
from dressi.packing import DeviceLimits, check_plan, pack
from dressi.testing.scale_graphs import KINDS, scale_graph

SIZES = (1_000, 2_000, 5_000, 10_000, 20_000)
SMOKE_SIZES = (100, 200)
REPEATS = 2
"""The shorter of two counts: a collection of the garbage collector is no cost of the packer."""

ASKED, ASKED_S = 10_000, 5.0
"""The smallest graph of at least so many Functions packs in at most so many seconds."""

GROWTH = 1.5
"""How far seconds / (n log n) of the largest graph may be above the median over the sizes."""

COLUMNS = (
    "kind",
    "functions",
    "seconds",
    "ratio_to_copy",
    "substages",
    "stages",
    "seconds_per_nlogn",
)


def measure_graph(kind: str, n: int, limits: DeviceLimits, copy_ms: float) -> dict[str, Any]:
    """Return one row; ``functions`` counts those of the graph before it is simplified."""
    outputs = scale_graph(kind, n)
    n_functions = len(topological(outputs))
    seconds = math.inf
    for _ in range(REPEATS):
        begin = time.perf_counter()
        plan = pack(simplify(outputs), [], limits).plan
        check_plan(plan, limits)
        seconds = min(seconds, time.perf_counter() - begin)
    return {
        "kind": kind,
        "functions": n_functions,
        "seconds": seconds,
        "substages": plan.n_substages,
        "stages": len(plan.stages),
        "seconds_per_nlogn": seconds / (n_functions * math.log2(n_functions)),
        "ratio_to_copy": seconds * 1e3 / copy_ms,
    }


def conditions(rows: Sequence[dict[str, Any]]) -> list[tuple[str, bool]]:
    """Return what the rows of one kind, from small to large, have to show."""
    kind, out = rows[0]["kind"], []
    large = next((row for row in rows if row["functions"] >= ASKED), None)
    if large is not None:
        what = f"{kind}: {large['functions']} Functions pack in at most {ASKED_S:g} s"
        out.append((f"{what}, got {large['seconds']:.2f}", large["seconds"] <= ASKED_S))
    shares = [row["seconds_per_nlogn"] for row in rows]
    growth = shares[-1] / float(np.median(shares))
    what = f"{kind}: grows no worse than n log n (largest at most {GROWTH:g} x the median)"
    out.append((f"{what}, got {growth:.2f}", growth <= GROWTH))
    return out


def measure(settings: Settings, copies: Copies) -> Table:
    """Return all rows."""
    rows, asked = [], []
    with DressiAD(settings.device) as ad:
        limits = ad.limits
    for kind in KINDS:
        copy_ms = copies.measure()
        sizes = SMOKE_SIZES if settings.smoke else SIZES
        made = [measure_graph(kind, n, limits, copy_ms) for n in sizes]
        rows += made
        asked += conditions(made)
    return Table(COLUMNS, rows, asked)
