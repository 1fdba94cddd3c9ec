"""``dressi experiment heatmap``: peels K against reach r after 500 and 2500 iterations (paper, its
validation heatmaps).

Every pair fits the same sphere to the same random views of a complex target, with the same order of
views, lights, rates and Laplacian; the target's pictures are drawn with the pair's own K and r, as
in the paper. Figure: mean distance of the vertices to the target's surface, over one run or more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dressi.apps.experiments.common import Result, option
from dressi.apps.experiments.lit_fit import (
    LAPLACIAN,
    LR,
    START_RADIUS,
    TARGET_FACES_HELP,
    Fit,
    draw_fits,
)
from dressi.apps.experiments.lit_graphs import Graphs
from dressi.apps.experiments.lit_views import LOOK_HELP, Method, random_views
from dressi.apps.experiments.meshes import target_mesh
from dressi.apps.experiments.parts import WithWorkers, run_parts, settings_of
from dressi.many import Context
from dressi.render.scene import flipped_faces, icosphere

HELP = "peels K against reach r: distance to the target early and at the end"


@dataclass(frozen=True)
class Settings(WithWorkers):
    """Options of the experiment."""

    target: str | None = option(None, "OBJ file (default: a horned ball built by code)")
    target_faces: int = option(5120, TARGET_FACES_HELP, smoke=80, least=20)
    look: str = option("lambert", LOOK_HELP)
    K: tuple[int, ...] = option((1, 3, 5), "peels, columns", smoke=(1, 2), least=1, quick=(1, 3))
    r_px: tuple[float, ...] = option(
        (1.0, 2.0, 4.0, 7.0), "reach in pixels, rows", smoke=(1.0, 3.0), least=0.5, quick=(1.0, 7.0)
    )
    iterations: int = option(2500, "of each fit", smoke=8, least=2)
    early: int = option(500, "the early checkpoint", smoke=2, least=1)
    lr: tuple[float, ...] = option(LR, "rate, at the start and at the end", least=1e-9)
    laplacian: tuple[float, ...] = option(
        LAPLACIAN, "weight of the Laplacian, at the start and at the end", least=1e-9
    )
    size: int = option(96, "pixels on a side", smoke=32, least=8, quick=64)
    views: int = option(256, "random views to choose from", smoke=3, least=1, quick=96)
    subdivisions: int = option(3, "of the sphere: 20 * 4^n faces", smoke=1, least=0)
    seeds: int = option(1, "runs of each pair, each with its own views, lights and order", least=1)
    seed: int = option(0, "of the first run", least=0)


def run(settings: Settings) -> Result:
    """Run all pairs and seeds; each worker has one graph for each K."""
    Fit(settings.iterations, settings.lr, settings.laplacian)  # raises for pairs that are none
    target = target_mesh(settings.target, settings.target_faces)
    start = icosphere(settings.subdivisions, START_RADIUS)
    last, reaches = settings.iterations, settings.r_px
    early = min(settings.early, last)
    seeds = range(settings.seed, settings.seed + settings.seeds)
    parts = [
        {"K": K, "r_px": r, "seed": seed} for K in settings.K for seed in seeds for r in reaches
    ]
    shape = (len(settings.K), len(seeds), len(reaches))
    distances = np.zeros((len(seeds), 2, len(reaches), len(settings.K)))
    rows: list[dict[str, Any]] = []
    shown: dict[str, np.ndarray] = {}
    corners = ((0, 0), (len(reaches) - 1, len(settings.K) - 1))
    for place, part, fitted in zip(
        np.ndindex(shape), parts, run_parts(fit_part, parts, settings), strict=True
    ):
        column, s, row = place
        distances[s, :, row, column] = [fitted["early"], fitted["end"]]
        end = fitted.pop("positions")
        rows.append({**part, **fitted})
        if s == 0 and (row, column) in corners:
            shown[f"K {part['K']}, r {part['r_px']:g} px"] = end
    figures = summary(distances, settings.K, reaches)
    figures["rows"] = rows

    def plot(figure: Any) -> None:
        _plot(figure, distances.mean(0), settings, early)

    sheet = draw_fits(start, target, shown, random_views(5, settings.size), settings.device)
    return Result(figures, {"shapes": sheet}, {"heatmap": plot}, trends(figures, early, last))


def fit_part(part: dict[str, Any], context: Context) -> dict[str, Any]:
    """Return the row of a fit of one pair and seed, and its positions at the end."""
    settings: Settings = settings_of(Settings, part)
    K, r, seed = part["K"], part["r_px"], part["seed"]
    method = Method(f"K {K}", (max(settings.r_px),), K)
    graphs = context.warm.get(
        ("heatmap", K, settings), lambda: Graphs(settings, method, context.device)
    )
    last = settings.iterations
    early = min(settings.early, last)
    views = graphs.painter.paint(random_views(settings.views, settings.size, seed), (r,))
    every = max(last // 10, 1)
    fit = Fit(last, settings.lr, settings.laplacian, every=every, look=settings.look, seed=seed)
    start = graphs.start
    trace = graphs.fitter.run(start.positions, graphs.target, views, fit, (early, last), (r,))
    end = trace.positions[last]
    return {
        "early": trace.at(early),
        "end": trace.at(last),
        "iterations": trace.iterations,
        "distances": trace.distances,
        "flipped_faces": int(flipped_faces(end, start.faces).sum()),
        "ms": trace.ms,
        "positions": end,
    }


def summary(
    distances: np.ndarray, peels: tuple[int, ...], reach: tuple[float, ...]
) -> dict[str, Any]:
    """Return the figures of distances (seeds, 2, r, K), at the early checkpoint and at the end: the
    tables, mean over seeds; the best pair; the mean over K for each r and the r with the least; and
    the narrowest r's mean over K divided by the widest's, with the standard error of that quotient
    over seeds (0 for one seed, which has no spread to tell), also within each K; the pair of least
    K and r divided by that of largest K and r."""
    figures: dict[str, Any] = {"seeds": len(distances)}
    for k, name in enumerate(("early", "end")):
        each = distances[:, k]
        table = each.mean(0)
        row, column = np.unravel_index(int(table.argmin()), table.shape)
        mean = table.mean(1)
        quotients = each[:, 0].mean(-1) / each[:, -1].mean(-1)
        figures[f"{name}_table"] = table.tolist()
        figures[f"{name}_best_K"] = peels[int(column)]
        figures[f"{name}_best_r_px"] = float(reach[int(row)])
        figures[f"{name}_best"] = float(table.min())
        figures[f"{name}_mean_over_K"] = mean.tolist()
        figures[f"{name}_best_mean_r_px"] = float(reach[int(mean.argmin())])
        figures[f"{name}_narrow_over_wide"] = float(quotients.mean())
        figures[f"{name}_narrow_over_wide_error"] = (
            float(quotients.std(ddof=1) / np.sqrt(len(quotients))) if len(quotients) > 1 else 0.0
        )
        figures[f"{name}_near_over_far"] = float(table[0, 0] / table[-1, -1])
        # One column of K may carry the mean.
        figures[f"{name}_narrow_over_wide_by_K"] = (table[0] / table[-1]).tolist()
    return figures


def trends(figures: dict[str, Any], early: int, last: int) -> list[tuple[str, bool]]:
    """Return the paper's two trends as conditions, by more than the standard error over seeds."""
    made = []
    for name, iterations, wanted in (("early", early, "wide"), ("end", last, "narrow")):
        quotient, error = (figures[f"{name}_narrow_over_wide{s}"] for s in ("", "_error"))
        lead = quotient - 1.0 if wanted == "wide" else 1.0 - quotient
        spread = f" ± {error:.3f}" if figures["seeds"] > 1 else ", one seed"
        made.append(
            (
                f"after {iterations} iterations {wanted} r leads, mean over K: narrowest / widest "
                f"= {quotient:.3f}{spread}",
                bool(lead > error),
            )
        )
    return made


def _plot(figure: Any, tables: np.ndarray, settings: Settings, early: int) -> None:
    all_axes = figure.subplots(1, 2)
    for axes, table, when in zip(all_axes, tables, (early, settings.iterations), strict=True):
        image = axes.imshow(table * 1e3, cmap="viridis_r", aspect="auto")
        axes.set_xticks(range(len(settings.K)), [str(k) for k in settings.K])
        axes.set_yticks(range(len(settings.r_px)), [f"{r:g}" for r in settings.r_px])
        axes.set_xlabel("K")
        axes.set_ylabel("r, pixels")
        axes.set_title(f"distance x 1000 after {when}")
        for (row, column), value in np.ndenumerate(table):
            axes.text(column, row, f"{value * 1e3:.2f}", ha="center", va="center", color="w")
        figure.colorbar(image, ax=axes)
