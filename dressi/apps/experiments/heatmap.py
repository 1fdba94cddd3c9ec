"""``dressi experiment heatmap``: peels K against reach r after 500 and 2500 iterations (paper, its
validation heatmaps).

Every pair fits the same sphere to the same random views of a complex target, with the same order of
views, lights, rates and Laplacian; the target's pictures are drawn with the pair's own K and r, as
in the paper. Figure: mean distance of the vertices to the target's surface.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dressi.apps.experiments import common
from dressi.apps.experiments.common import Result, option
from dressi.apps.experiments.lit_fit import (
    Fit,
    Method,
    draw_fits,
    random_views,
    run_fit,
    with_targets,
)
from dressi.apps.experiments.shapes import target_mesh
from dressi.render.mesh import icosphere

HELP = "peels K against reach r: distance to the target early and at the end"


@dataclass(frozen=True)
class Settings(common.Settings):
    """Options of the experiment."""

    target: str | None = option(None, "OBJ file (default: a horned ball built by code)")
    K: tuple[int, ...] = option((1, 3), "peels, columns", smoke=(1, 2), least=1)
    r_px: tuple[float, ...] = option(
        (1.0, 2.0, 4.0, 8.0), "reach in pixels, rows", smoke=(1.0, 3.0), least=0.5
    )
    iterations: int = option(2500, "of each fit", smoke=8, least=2)
    early: int = option(500, "the early checkpoint", smoke=2, least=1)
    size: int = option(96, "pixels on a side", smoke=32, least=8)
    views: int = option(64, "random views to choose from", smoke=3, least=1)
    subdivisions: int = option(3, "of the sphere: 20 * 4^n faces", smoke=1, least=0)
    seed: int = option(0, "of views, lights and their order", least=0)


def run(settings: Settings) -> Result:
    """All pairs, one after another."""
    target = target_mesh(settings.target, 80 if settings.smoke else TARGET_FACES)
    start = icosphere(settings.subdivisions, START_RADIUS)
    views = random_views(settings.views, settings.size, settings.seed)
    early = min(settings.early, settings.iterations)
    fit = Fit(settings.iterations, every=max(settings.iterations // 10, 1), seed=settings.seed)
    marks = (early, settings.iterations)
    distances = np.zeros((2, len(settings.r_px), len(settings.K)))
    rows: list[dict[str, Any]] = []
    shown: dict[str, np.ndarray] = {}
    for row, r in enumerate(settings.r_px):
        for column, K in enumerate(settings.K):
            method = Method(f"K {K}, r {r:g} px", (r,), K)
            mine = with_targets(views, target, method, True, settings.device)
            trace = run_fit(start, target, mine, method, fit, marks, settings.device)
            distances[:, row, column] = [trace.at(i) for i in marks]
            rows.append(
                {
                    "K": K,
                    "r_px": r,
                    "early": trace.at(early),
                    "end": trace.at(settings.iterations),
                    "ms": trace.ms,
                }
            )
            if (row, column) in ((0, 0), (len(settings.r_px) - 1, len(settings.K) - 1)):
                shown[method.name] = trace.positions[settings.iterations]
    figures = summary(distances, settings.K, settings.r_px)
    figures["rows"] = rows
    wide, narrow = settings.r_px[-1], settings.r_px[0]
    conditions = [
        (
            f"after {early} iterations the wide half of r leads (mean over K): r = "
            f"{figures['early_best_mean_r_px']:g} px, of {narrow:g} to {wide:g}",
            figures["early_best_mean_r_px"] >= np.median(settings.r_px),
        ),
        (
            f"after {settings.iterations} the narrow half leads: r = "
            f"{figures['end_best_mean_r_px']:g} px",
            figures["end_best_mean_r_px"] <= np.median(settings.r_px),
        ),
        (
            "the widest r gains on the narrowest early and loses at the end: "
            f"{figures['early_narrow_over_wide']:.3f}, then {figures['end_narrow_over_wide']:.3f} "
            "(quotient of mean distances)",
            figures["early_narrow_over_wide"] > 1.0 > figures["end_narrow_over_wide"],
        ),
    ]

    def plot(figure: Any) -> None:
        _plot(figure, distances, settings, early)

    sheet = draw_fits(start, target, shown, views, settings.device)
    return Result(figures, {"shapes": sheet}, {"heatmap": plot}, conditions)


TARGET_FACES = 5120
"""Faces of the target at most: its pictures are drawn with soft edges as well, for every pair."""

START_RADIUS = 0.5


def summary(
    distances: np.ndarray, peels: tuple[int, ...], reach: tuple[float, ...]
) -> dict[str, Any]:
    """Figures of distances (2, r, K): the best pair early and at the end, the mean over K for each
    r, the r with the least mean, and the narrowest r's mean divided by the widest's."""
    figures: dict[str, Any] = {}
    for name, table in zip(("early", "end"), distances, strict=True):
        row, column = np.unravel_index(int(table.argmin()), table.shape)
        mean = table.mean(1)
        figures[f"{name}_best_K"] = peels[int(column)]
        figures[f"{name}_best_r_px"] = float(reach[int(row)])
        figures[f"{name}_best"] = float(table.min())
        figures[f"{name}_mean_over_K"] = [float(x) for x in mean]
        figures[f"{name}_best_mean_r_px"] = float(reach[int(mean.argmin())])
        figures[f"{name}_narrow_over_wide"] = float(mean[0] / mean[-1])
    return figures


def _plot(figure: Any, distances: np.ndarray, settings: Settings, early: int) -> None:
    all_axes = figure.subplots(1, 2)
    for axes, table, when in zip(all_axes, distances, (early, settings.iterations), strict=True):
        image = axes.imshow(table * 1e3, cmap="viridis_r", aspect="auto")
        axes.set_xticks(range(len(settings.K)), [str(k) for k in settings.K])
        axes.set_yticks(range(len(settings.r_px)), [f"{r:g}" for r in settings.r_px])
        axes.set_xlabel("K")
        axes.set_ylabel("r, pixels")
        axes.set_title(f"distance x 1000 after {when}")
        for (row, column), value in np.ndenumerate(table):
            axes.text(column, row, f"{value * 1e3:.2f}", ha="center", va="center", color="w")
        figure.colorbar(image, ax=axes)
