"""``dressi bench limits``: substages and stages under three limits on input attachments (the
paper's table 2), geometry and texture of six views at 256 x 256.

Counts are of packing alone, so a limit may be wider than the device's; ``ms`` is the time of a step
under limits that the device keeps to. All other limits are the device's own. The cached figures are
those of the part of a step that is left when everything that no step changes has been computed
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dressi.apps.bench import pear
from dressi.apps.bench.common import Copies, Settings, Table, timed_steps
from dressi.apps.bench.steps import bumpy
from dressi.apps.fitting import ShapeSchedule
from dressi.apps.problems import pear_problem
from dressi.engine import DressiAD
from dressi.packing import DeviceLimits, Plan, check_plan, pack
from dressi.packing.limits import UNLIMITED
from dressi.packing.reactive import split_functions
from dressi.testing.problems import Problem, texture_problem

LIMITS = (UNLIMITED, 8, 4)
COLUMNS = (
    "target",
    "limit",
    "substages",
    "stages",
    "substages_cached",
    "stages_cached",
    "max_inputs",
    "ms",
)


def problems(settings: Settings) -> dict[str, Problem]:
    """Return the two targets of the table. What the target images hold is of no matter here."""
    size, atlas_size = (32, 32) if settings.smoke else (256, 1024)
    data = bumpy(settings, "t2_14220.npz")
    n = len(data.matrices)
    black = np.zeros((n, size, size, 3), np.float32)
    return {
        "geometry": pear_problem(pear.load(settings), ShapeSchedule()),
        "texture": texture_problem(data.mesh, data.matrices, black, atlas_size),
    }


def max_inputs(*plans: Plan) -> int:
    """Return the most input attachments that one shader of some plans reads."""
    shaders = [b for plan in plans for stage in plan.stages for b in stage.substages]
    return max(sum(b.kind == "input" for b in shader.bindings) for shader in shaders)


def measure_limit(target: str, problem: Problem, limits: DeviceLimits) -> dict[str, Any]:
    """Return one row. Raises PackingError where a Function needs more than the limits allow."""
    outputs, updates = problem.graph()
    whole = pack(outputs, updates, limits)
    plan = whole.plan
    check_plan(plan, limits)
    split = split_functions(whole, dirty=())
    halves = [plan] if split is None else [split.static.plan, split.step.plan]
    for half in halves:
        check_plan(half, limits)
    return {
        "target": target,
        "limit": limits.input_attachments,
        "substages": plan.n_substages,
        "stages": len(plan.stages),
        "substages_cached": halves[-1].n_substages,
        "stages_cached": len(halves[-1].stages),
        "max_inputs": max_inputs(plan, *halves),
    }


def step_ms(problem: Problem, limit: int, device: int, settings: Settings) -> float | None:
    """Return the median wall ms of a step under a limit on input attachments; None where the device
    has fewer, so that nothing can run. device: its own limit."""
    if limit > device:
        return None
    with DressiAD(settings.device, limits={"input_attachments": limit}) as ad:
        problem.load(ad)
        return float(np.median(timed_steps(ad, settings.smoke)))


def conditions(rows: Sequence[dict[str, Any]]) -> list[tuple[str, bool]]:
    """Return what the rows of one target, from the loosest limit to the tightest, have to show."""
    target, counts = rows[0]["target"], COLUMNS[2:6]
    never_more = all(a[key] <= b[key] for a, b in pairwise(rows) for key in counts)
    falls = never_more and all(a["substages"] < b["substages"] for a, b in pairwise(rows))
    return [
        (f"{target}: fewer substages under a looser limit, and never more stages", falls),
        (f"{target}: never over the limit", all(r["max_inputs"] <= r["limit"] for r in rows)),
    ]


def measure(settings: Settings, copies: Copies) -> Table:
    """Return all rows."""
    rows, asked = [], []
    with DressiAD(settings.device) as ad:
        device = ad.limits
    for target, problem in problems(settings).items():
        made = [
            measure_limit(target, problem, device.restrict(input_attachments=n)) for n in LIMITS
        ]
        own = device.input_attachments
        for row in made:
            row["ms"] = step_ms(problem, row["limit"], own, settings)
        rows += made
        asked += conditions(made)
    return Table(COLUMNS, rows, asked)
