"""``dressi bench kbuffer``: K layers of HardSoftRas by depth peeling and by a k-buffer.

A step is a whole iteration on the vertices of a sphere by its silhouette in one view, with the
uniform Laplacian. Three engines take turns on the same problem: passes, dispatches that rasterize
once for each layer, and dispatches that find all layers in one traversal.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from dressi.apps.bench.common import Copies, Settings, Table, start
from dressi.apps.timing import alternating_ms
from dressi.engine import DressiAD
from dressi.packing import Options
from dressi.testing.problems import (
    hard_silhouettes,
    silhouette_problem,
    sphere,
    squashed,
    view_matrices,
)

COLUMNS = (
    "case",
    "passes_ms",
    "peeled_ms",
    "kbuffer_ms",
    "times_faster",
    "peeled_raster_ms",
    "kbuffer_raster_ms",
    "slot_share",
    "ratio_to_copy",
)
METHODS = {
    "passes": Options(lowering="graphics"),
    "peeled": Options(lowering="compute", peeling="depth"),
    "kbuffer": Options(lowering="compute", peeling="kbuffer"),
}
ROUNDS, SMALL_ROUNDS = 15, 2


@dataclass(frozen=True)
class Case:
    """One mesh at one size, with 1 to most_layers layers."""

    n_faces: int
    size: int
    most_layers: int = 5


CASES = (Case(1280, 256), Case(1280, 1024), Case(5120, 512), Case(20480, 1024))
SMOKE = (Case(80, 24, 2),)


def raster_ms(ad: DressiAD, rounds: int) -> float:
    """Return the time of the dispatches of a step that rasterize, by timestamps."""
    times = ad.stage_times_ms(rounds)
    stages = ad.plan.stages  # copies come behind them
    return sum(
        ms
        for stage, (_, ms) in zip(stages, times, strict=False)
        if any(f.startswith("raster_") for s in stage.substages for f in s.functions)
    )


def measure_case(case: Case, settings: Settings, copies: Copies) -> list[dict[str, Any]]:
    """Return one row for each number of layers."""
    mesh, matrices = sphere(case.n_faces), view_matrices(1)
    targets = hard_silhouettes(squashed(mesh), matrices, case.size, settings.device)
    rounds = SMALL_ROUNDS if settings.smoke else ROUNDS
    rows: list[dict[str, Any]] = []
    for K in range(1, case.most_layers + 1):
        before = copies.measure()
        with ExitStack() as stack:
            engines = {}
            for name, options in METHODS.items():
                problem = silhouette_problem(mesh, matrices, targets, K)
                engines[name] = stack.enter_context(start(problem, settings, options))
            times = dict(zip(METHODS, alternating_ms(list(engines.values()), rounds), strict=True))
            raster = {name: raster_ms(engines[name], rounds) for name in ("peeled", "kbuffer")}
        copy_ms = (before + copies.measure()) / 2
        ms = {name: float(np.median(t)) for name, t in times.items()}
        one = raster["peeled"] / K  # a traversal (with K = 1 fewer faces have soft rims)
        rows.append(
            {
                "case": f"{len(mesh.faces)} faces, {case.size} x {case.size}, K = {K}",
                "K": K,
                **{f"{name}_ms": value for name, value in ms.items()},
                "times_faster": float(np.median(times["peeled"] / times["kbuffer"])),
                **{f"{name}_raster_ms": value for name, value in raster.items()},
                "slot_share": (raster["kbuffer"] / one - 1) / (K - 1) if K > 1 else None,
                "ratio_to_copy": ms["kbuffer"] / copy_ms,
                "copy_ms": copy_ms,
            }
        )
    return rows


def measure(settings: Settings, copies: Copies) -> Table:
    """Return all rows."""
    cases = SMOKE if settings.smoke else CASES
    return Table(COLUMNS, [row for case in cases for row in measure_case(case, settings, copies)])
