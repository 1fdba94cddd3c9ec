"""``dressi experiment curves``: distance to the target over iterations and over time, HardSoftRas
against antialiasing (paper, its error curves).

Silhouettes of a complex target from random views; a sphere, the same views in the same order, rates
and Laplacian for all. HardSoftRas with the annealed reach that ``dressi demo`` has by default; AA
mode (delta = r = one pixel, K = 1); the screen-space antialiasing of ``dressi.render.antialias``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dressi.apps.experiments import common
from dressi.apps.experiments.common import Result, option
from dressi.apps.experiments.lit_fit import (
    Fit,
    Method,
    Trace,
    draw_fits,
    random_views,
    run_fit,
    with_targets,
)
from dressi.apps.experiments.shapes import target_mesh
from dressi.render.mesh import icosphere

HELP = "mean distance over iterations and time: HardSoftRas, AA mode, screen-space antialiasing"

START_RADIUS = 0.5

LAPLACIAN = (40.0, 30.0)
"""Silhouettes alone say little about where a vertex belongs: with a weaker one (3 falling to 0.1)
faces fold over by any method, and HardSoftRas ended behind AA mode."""


@dataclass(frozen=True)
class Settings(common.Settings):
    """Options of the experiment."""

    target: str | None = option(None, "OBJ file (default: a horned ball built by code)")
    iterations: int = option(1500, "of each fit", smoke=6, least=2)
    size: int = option(128, "pixels on a side", smoke=32, least=8)
    views: int = option(32, "random views to choose from", smoke=3, least=1)
    subdivisions: int = option(3, "of the sphere: 20 * 4^n faces", smoke=1, least=0)
    r: float = option(0.03, "reach of HardSoftRas at the start, 1 is the side", least=1e-3)
    seed: int = option(0, "of views and their order", least=0)


def run(settings: Settings) -> Result:
    """The three fits, one after another."""
    target = target_mesh(settings.target, 80 if settings.smoke else None)
    start = icosphere(settings.subdivisions, START_RADIUS)
    views = random_views(settings.views, settings.size, settings.seed)
    views = with_targets(views, target, None, False, settings.device)
    # From the far range to the near one, as the demo's fit.
    methods = {
        "hardsoftras": Method("HardSoftRas", (max(settings.r * settings.size, 1.0), 1.0)),
        "aa_mode": Method("AA mode", (1.0, 1.0), 1, 1.0),
        "antialias": Method("antialias", antialias=True),
    }
    fit = Fit(
        settings.iterations,
        laplacian=LAPLACIAN,
        every=max(settings.iterations // 40, 1),
        lit=False,
        seed=settings.seed,
    )
    traces = {
        key: run_fit(start, target, views, m, fit, (settings.iterations,), settings.device)
        for key, m in methods.items()
    }
    figures: dict[str, Any] = {}
    for key, trace in traces.items():
        figures[f"{key}_end"] = trace.distances[-1]
        figures[f"{key}_ms"] = trace.ms
        figures[f"{key}_seconds"] = trace.seconds[-1]
    for key, trace in traces.items():
        # When it is as good as AA mode ever gets.
        best = min(traces["aa_mode"].distances)
        reached = [i for i, d in enumerate(trace.distances) if d <= best]
        figures[f"{key}_iterations_to_aa_mode"] = trace.iterations[reached[0]] if reached else -1
        figures[f"{key}_seconds_to_aa_mode"] = trace.seconds[reached[0]] if reached else -1.0
    figures["curves"] = {
        key: {"iterations": t.iterations, "seconds": t.seconds, "distances": t.distances}
        for key, t in traces.items()
    }
    end = {key: figures[f"{key}_end"] for key in methods}
    conditions = [
        (
            "HardSoftRas ends nearer to the target than AA mode: "
            f"{end['hardsoftras']:.5f} < {end['aa_mode']:.5f}",
            end["hardsoftras"] < end["aa_mode"],
        ),
    ]
    shown = {m.name: traces[k].positions[settings.iterations] for k, m in methods.items()}
    sheet = draw_fits(start, target, shown, views, settings.device)

    def plot(figure: Any) -> None:
        _plot(figure, {methods[k].name: t for k, t in traces.items()})

    return Result(figures, {"shapes": sheet}, {"curves": plot}, conditions)


def _plot(figure: Any, traces: dict[str, Trace]) -> None:
    by_iteration, by_time = figure.subplots(1, 2, sharey=True)
    for name, trace in traces.items():
        by_iteration.semilogy(trace.iterations, trace.distances, label=name)
        by_time.semilogy(trace.seconds, trace.distances, label=name)
    by_iteration.set_xlabel("iteration")
    by_time.set_xlabel("seconds (building left out)")
    by_iteration.set_ylabel("mean distance to the surface")
    for axes in (by_iteration, by_time):
        axes.grid(True, which="both", alpha=0.3)
        axes.legend()
