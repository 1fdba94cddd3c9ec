"""``dressi experiment curves``: distance to the target over iterations and over time, HardSoftRas
against antialiasing (paper, 4.3 and its error curves).

Pictures of a complex target from random views; a sphere; for each seed the same views, lights and
order, and the same rates and Laplacian for all methods. HardSoftRas with the pair that ends best in
``heatmap`` (r = 7 pixels, K = 3), which is how the paper chose its own (r = 2, K = 3); AA mode
(delta = r = one pixel, K = 1); the screen-space antialiasing of ``dressi.render.raster``. Each
method's target pictures are drawn by itself, as in the paper.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dressi.apps.experiments.common import Result, option
from dressi.apps.experiments.lit_fit import (
    LAPLACIAN,
    LR,
    START_RADIUS,
    TARGET_FACES_HELP,
    Fit,
    Trace,
    draw_fits,
)
from dressi.apps.experiments.lit_graphs import Graphs
from dressi.apps.experiments.lit_views import LOOK_HELP, Method, random_views
from dressi.apps.experiments.meshes import target_mesh
from dressi.apps.experiments.parts import WithWorkers, run_parts, settings_of
from dressi.many import Context
from dressi.render.scene import flipped_faces, icosphere

HELP = "mean distance over iterations and time: HardSoftRas, AA mode, screen-space antialiasing"


@dataclass(frozen=True)
class Settings(WithWorkers):
    """Options of the experiment."""

    target: str | None = option(None, "OBJ file (default: a horned ball built by code)")
    target_faces: int = option(5120, TARGET_FACES_HELP, smoke=80, least=20)
    look: str = option("lambert", LOOK_HELP)
    iterations: int = option(2500, "of each fit", smoke=6, least=2, quick=1500)
    lr: tuple[float, ...] = option(LR, "rate, at the start and at the end", least=1e-9)
    laplacian: tuple[float, ...] = option(
        LAPLACIAN, "weight of the Laplacian, at the start and at the end", least=1e-9
    )
    size: int = option(96, "pixels on a side", smoke=32, least=8, quick=64)
    views: int = option(256, "random views to choose from", smoke=3, least=1, quick=96)
    subdivisions: int = option(3, "of the sphere: 20 * 4^n faces", smoke=1, least=0)
    K: int = option(3, "peels of HardSoftRas", smoke=2, least=1)
    r_px: tuple[float, ...] = option(
        (7.0,), "reach of HardSoftRas in pixels; several: one after another", least=0.5
    )
    seeds: int = option(
        3, "runs, each with its own views, lights and order", smoke=1, least=1, quick=1
    )
    seed: int = option(0, "of the first run", least=0)


def methods_of(settings: Settings) -> dict[str, Method]:
    """Return what is compared, by name of its figures."""
    return {
        "hardsoftras": Method("HardSoftRas", settings.r_px, settings.K),
        "aa_mode": Method("AA mode", (1.0,), 1, 1.0),
        "antialias": Method("antialias", antialias=True),
    }


def fit_part(part: dict[str, Any], context: Context) -> dict[str, Any]:
    """Return the trace of a fit of one method and seed, as plain data."""
    settings: Settings = settings_of(Settings, part)
    method, seed, last = methods_of(settings)[part["method"]], part["seed"], settings.iterations
    graphs = context.warm.get(
        ("curves", part["method"], settings), lambda: Graphs(settings, method, context.device)
    )
    every = max(last // 20, 1)
    fit = Fit(last, settings.lr, settings.laplacian, every=every, look=settings.look, seed=seed)
    mine = graphs.painter.paint(random_views(settings.views, settings.size, seed))
    trace = graphs.fitter.run(graphs.start.positions, graphs.target, mine, fit, (last,))
    return {**asdict(trace), "positions": trace.positions[last]}


def run(settings: Settings) -> Result:
    """Run the fits of each method and seed; each worker has one graph for each method."""
    target = target_mesh(settings.target, settings.target_faces)
    start = icosphere(settings.subdivisions, START_RADIUS)
    methods, last, device = methods_of(settings), settings.iterations, settings.device
    seeds = range(settings.seed, settings.seed + settings.seeds)
    parts: list[dict[str, Any]] = [
        {"method": key, "seed": seed} for key in methods for seed in seeds
    ]
    traces: dict[str, list[Trace]] = {key: [] for key in methods}
    for part, fitted in zip(parts, run_parts(fit_part, parts, settings), strict=True):
        trace = Trace(**{**fitted, "positions": {last: fitted["positions"]}})
        traces[part["method"]].append(trace)
    figures = summary(traces)
    for key, found in traces.items():
        folded = [int(flipped_faces(t.positions[last], start.faces).sum()) for t in found]
        figures[f"{key}_flipped_faces"] = folded
    lead, error = figures["lead_mean"], figures["lead_error"]
    conditions = [
        (
            "HardSoftRas ends nearer to the target than AA mode, by more than the standard error "
            f"over seeds: {figures['hardsoftras_end_mean']:.5f} < {figures['aa_mode_end_mean']:.5f}"
            f", by {lead:.5f} ± {error:.5f}, {figures['seeds_won']} of {settings.seeds} seeds",
            lead > error,
        ),
    ]
    shown = {m.name: traces[k][0].positions[last] for k, m in methods.items()}
    sheet = draw_fits(start, target, shown, random_views(5, settings.size), device)

    def plot(figure: Any) -> None:
        _plot(figure, {methods[k].name: t for k, t in traces.items()})

    return Result(figures, {"shapes": sheet}, {"curves": plot}, conditions)


def summary(traces: dict[str, list[Trace]]) -> dict[str, Any]:
    """Return the figures of the runs of each method, one per seed: mean and standard deviation of
    the distance at the end, medians of time, in how many seeds HardSoftRas ends nearer than AA
    mode, and by how much: mean over the seeds and its standard error (0 for one seed)."""
    figures: dict[str, Any] = {}
    for key, found in traces.items():
        ends = [t.distances[-1] for t in found]
        figures[f"{key}_end_mean"] = float(np.mean(ends))
        figures[f"{key}_end_std"] = float(np.std(ends))
        figures[f"{key}_ms"] = float(np.median([t.ms for t in found]))
        figures[f"{key}_seconds"] = float(np.median([t.seconds[-1] for t in found]))
    pairs = zip(traces["hardsoftras"], traces["aa_mode"], strict=True)
    leads = np.array([b.distances[-1] - a.distances[-1] for a, b in pairs])
    figures["seeds_won"] = int((leads > 0).sum())
    figures["lead_mean"] = float(leads.mean())
    figures["lead_error"] = (
        float(leads.std(ddof=1) / np.sqrt(len(leads))) if len(leads) > 1 else 0.0
    )
    figures["curves"] = {
        key: {
            "iterations": found[0].iterations,
            "seconds": [t.seconds for t in found],
            "distances": [t.distances for t in found],
            "distances_mean": np.mean([t.distances for t in found], axis=0).tolist(),
            "distances_std": np.std([t.distances for t in found], axis=0).tolist(),
        }
        for key, found in traces.items()
    }
    return figures


def _plot(figure: Any, traces: dict[str, list[Trace]]) -> None:
    by_iteration, by_time = figure.subplots(1, 2, sharey=True)
    for name, found in traces.items():
        all_distances = np.array([t.distances for t in found])
        mean, std = all_distances.mean(0), all_distances.std(0)
        seconds = np.median([t.seconds for t in found], axis=0)
        for axes, x in ((by_iteration, found[0].iterations), (by_time, seconds)):
            axes.semilogy(x, mean, label=name)
            axes.fill_between(x, mean - std, mean + std, alpha=0.2)
    by_iteration.set_xlabel("iteration")
    by_time.set_xlabel("seconds (building left out)")
    by_iteration.set_ylabel("mean distance to the surface, mean and std over seeds")
    for axes in (by_iteration, by_time):
        axes.grid(True, which="both", alpha=0.3)
        axes.legend()
