"""``dressi bench roofline``: the bytes that a step must move, over the bandwidth of a copy, as a
fraction of its time; by stage (each timed alone) and in all (a step among 32 of one submit).

Bytes are those that shaders ask for (``dressi.inspect.traffic``): every attachment, storage image
and fetched image once, buffers whole. The bandwidth is that of the faster of the two copies of the
device's profile. A fraction of 1 is a stage that does nothing but move its bytes as fast as a copy;
more can come out of caches.
"""

from __future__ import annotations

from typing import Any

from dressi.ad import Adam
from dressi.apps.bench.antialias import antialias_problem
from dressi.apps.bench.common import Copies, Settings, Table, in_a_row_ms, start
from dressi.apps.bench.silhouettes import STILL
from dressi.apps.bench.steps import bumpy
from dressi.apps.timing import WARM_UP
from dressi.engine import DressiAD
from dressi.inspect.traffic import stage_traffic, update_traffic
from dressi.packing.profile import DeviceProfile
from dressi.testing.problems import hard_silhouettes, silhouette_problem
from dressi.vk import open_device
from dressi.vk.profile import measure as measure_profile

SIZES = (256, 1024, 2048)
MESHES = ("t1_682.npz", "t1_51414.npz")
SEVERAL = 6
"""Views of the last case of a mesh, at the largest size."""
AT_LEAST = 0.5
"""Of the whole step at the largest size."""
ROUNDS = 9
COLUMNS = ("case", "stage", "kind", "functions", "ms", "megabytes", "roofline_ms", "fraction")


def bandwidth(profile: DeviceProfile) -> float:
    """Return the bytes per millisecond of a copy: 2^20 pixels of 16 bytes, read and written."""
    us = min(profile.graphics.copy_us, profile.compute.copy_us)
    return 2 * 16 * 2**20 / (us / 1e3)


def cases(smoke: bool) -> list[tuple[str, str, int, int]]:
    """Return (mesh, method, size, views) of every case."""
    if smoke:
        return [(MESHES[0], "hardsoftras", 32, 1)]
    made = []
    for mesh in MESHES:
        made += [(mesh, "hardsoftras", size, 1) for size in SIZES]
        made += [(mesh, "antialias", SIZES[-1], 1), (mesh, "hardsoftras", SIZES[-1], SEVERAL)]
    return made


def rows_of(case: str, ad: DressiAD, bytes_per_ms: float, smoke: bool) -> list[dict[str, Any]]:
    """Return a row per stage, one for the copies after the last, and one for the whole step."""
    for _ in range(WARM_UP):
        ad.exec_step()
    rows: list[dict[str, Any]] = []
    times = dict(ad.stage_times_ms(ROUNDS))
    plan = ad.plan

    def row(stage: str, kind: str, functions: int, ms: float, n_bytes: int) -> None:
        ideal = n_bytes / bytes_per_ms
        rows.append(
            {
                "case": case,
                "stage": stage,
                "kind": kind,
                "functions": functions,
                "ms": ms,
                "megabytes": n_bytes / 1e6,
                "roofline_ms": ideal,
                "fraction": ideal / ms if ms > 0 else None,
            }
        )

    for stage in plan.stages:
        n = sum(s.n_functions for s in stage.substages)
        name = f"{stage.name}: {stage.substages[-1].name}"
        row(name, stage.kind, n, times[stage.name], stage_traffic(plan, stage).total)
    if plan.updates:
        row("updates", "copy", 0, times["updates"], update_traffic(plan).total)
    total = sum(r["megabytes"] for r in rows)
    row("all", "", plan.n_functions, in_a_row_ms(ad, smoke), round(total * 1e6))
    return rows


def measure(settings: Settings, copies: Copies) -> Table:
    """Return all rows; the copy is measured for the title."""
    with open_device(settings.device) as device:
        bytes_per_ms = bandwidth(measure_profile(device))
    rows: list[dict[str, Any]] = []
    asked: list[tuple[str, bool]] = []
    largest: list[dict[str, Any]] = []
    for mesh, method, size, views in cases(settings.smoke):
        data = bumpy(settings, mesh)
        matrices = data.matrices[:views]
        targets = hard_silhouettes(data.target, matrices, size, settings.device)
        make = silhouette_problem if method == "hardsoftras" else antialias_problem
        problem = make(data.mesh, matrices, targets, adam=Adam(STILL))
        case = f"{mesh.removesuffix('.npz')}, {method}, {size}, {views} view{'s' * (views > 1)}"
        with start(problem, settings) as ad:
            made = rows_of(case, ad, bytes_per_ms, settings.smoke)
        rows += made
        if size == SIZES[-1]:
            largest.append(made[-1])
            asked.append(condition(case, made[-1]["fraction"]))
    if largest:
        rows.append(together(largest))
        asked.append(condition(rows[-1]["case"], rows[-1]["fraction"]))
    return Table(COLUMNS, rows, asked)


def condition(case: str, fraction: float) -> tuple[str, bool]:
    """Return what is asked of a whole step, and whether it is so."""
    what = f"{case}: a fraction of at least {AT_LEAST:g} in all, got {fraction:.2f}"
    return what, fraction >= AT_LEAST


def together(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Run one step of each of some cases, one after the other."""
    sums = {key: sum(s[key] for s in steps) for key in ("ms", "megabytes", "roofline_ms")}
    return {
        **steps[0],
        "case": f"all cases at {SIZES[-1]}",
        "functions": sum(s["functions"] for s in steps),
        **sums,
        "fraction": sums["roofline_ms"] / sums["ms"],
    }
