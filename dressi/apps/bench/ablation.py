"""``dressi bench ablation``: the paper's table 3. Vertices or a texture of the mesh of 682
triangles in one view at 256 x 256, with parts of the packer switched off.

The variants take turns, in another order every round, so that what else the machine does hits all
of them alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from dressi.ad import Variable
from dressi.ad.graph import leaves
from dressi.ad.optim import Optimizer
from dressi.apps.bench.common import Copies, Settings, Table, start
from dressi.apps.bench.steps import colours_problem, one_view_problem
from dressi.apps.timing import WARM_UP, step_ms
from dressi.packing import Options
from dressi.testing.problems import Problem

VARIANTS = {
    "full": Options(),
    "no_stage_pack": Options(pack_stages=False),
    "no_reactive_cache": Options(cache=False),
    "no_stage_pack_no_cache": Options(pack_stages=False, cache=False),
    "baseline": Options.baseline(),
}
COLUMNS = ("target", "name", "ms", "ratio_to_copy", "times_full", "substages", "stages", "rel_diff")

ROUNDS = 48
SLOW_TURNS = 4
"""The baseline takes a turn in every so many rounds: it takes longer than all others together."""
TURN = 2
"""Timed steps of a turn; as many before them are not timed: the processor's caches hold another
variant's images."""

WITHIN = 1.05
"""How far from the fastest "the fastest" may be: medians of equal work differ by this much."""

BASELINE_AT_LEAST = 15.0
REL_DIFF_BELOW = 1e-6


def problems(settings: Settings) -> dict[str, Problem]:
    """Return the two targets of the table."""
    size = 32 if settings.smoke else 256
    return {
        "vertex": one_view_problem(settings, size),
        "texture": colours_problem(settings, "t1_682.npz", 1, size, size),
    }


def keeping_moments(optimizer: Optimizer, kept: list[Variable]) -> Optimizer:
    """Return an optimizer that also notes the leaves of Adam's first moments: after the first step
    they hold the gradient that this step itself used."""

    def call(xs: Sequence[Variable], gxs: Sequence[Variable]) -> Sequence[Variable]:
        new = optimizer(xs, gxs)
        names = {f"{x.name or 'x'}.m" for x in xs}
        kept[:] = [v for v in leaves(new) if v.update is not None and v.name in names]
        return new

    return call


def measure_target(
    target: str, problem: Problem, settings: Settings, copies: Copies
) -> list[dict[str, Any]]:
    """Return the five rows of one target."""
    copy_ms = copies.measure()
    with ExitStack() as stack:
        engines, gradients = {}, {}
        for name, options in VARIANTS.items():
            kept: list[Variable] = []
            one = replace(problem, optimizer=keeping_moments(problem.optimizer, kept))
            ad = engines[name] = stack.enter_context(start(one, settings, options))
            ad.exec_step()
            gradients[name] = ad.recv_img(kept[0]).astype(np.float64)
            for _ in range(WARM_UP):
                ad.exec_step()
        times: dict[str, list[float]] = {name: [] for name in VARIANTS}
        order, shuffle = list(VARIANTS), np.random.default_rng(0).shuffle
        for k in range(1 if settings.smoke else ROUNDS):
            shuffle(order)  # or one variant would always come after the slowest
            for name in order:
                if name == "baseline" and k % SLOW_TURNS:
                    continue
                timed = [step_ms(engines[name]) for _ in range(2 * TURN)][TURN:]
                times[name].append(min(timed))  # what else the machine does only adds
        copy_ms = (copy_ms + copies.measure()) / 2
        full, full_ms = gradients["full"], float(np.median(times["full"]))
        rows = []
        for name, ad in engines.items():
            ms, plan = float(np.median(times[name])), ad.plan
            difference = np.linalg.norm(gradients[name] - full) / np.linalg.norm(full)
            rows.append(
                {
                    "target": target,
                    "name": name,
                    "ms": ms,
                    "ratio_to_copy": ms / copy_ms,
                    "times_full": ms / full_ms,
                    "substages": plan.n_substages,
                    "stages": len(plan.stages),
                    "rel_diff": float(difference),
                    "copy_ms": copy_ms,
                }
            )
    return rows


def conditions(rows: Sequence[dict[str, Any]]) -> list[tuple[str, bool]]:
    """Return what the five rows of one target have to show."""
    target = rows[0]["target"]
    ms = {row["name"]: row["ms"] for row in rows}
    times, differs = ms["baseline"] / ms["full"], max(row["rel_diff"] for row in rows)
    return [
        (
            f"{target}: full is the fastest, within {WITHIN - 1:.0%}",
            ms["full"] <= WITHIN * min(ms.values()),
        ),
        (f"{target}: baseline is the slowest", ms["baseline"] >= max(ms.values())),
        (
            f"{target}: baseline at least {BASELINE_AT_LEAST:g} x slower than full, "
            f"got {times:.1f}",
            times >= BASELINE_AT_LEAST,
        ),
        (
            f"{target}: rel_diff below {REL_DIFF_BELOW:g} in every row, the most is {differs:.1e}",
            differs < REL_DIFF_BELOW,
        ),
    ]


def measure(settings: Settings, copies: Copies) -> Table:
    """Return all rows."""
    rows, asked = [], []
    for target, problem in problems(settings).items():
        made = measure_target(target, problem, settings, copies)
        rows += made
        asked += conditions(made)
    return Table(COLUMNS, rows, asked)
