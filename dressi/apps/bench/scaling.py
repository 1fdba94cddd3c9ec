"""``dressi bench scaling``: the time of a step against one quantity at a time: views, resolution,
faces, peels. Silhouettes of an ellipsoid to a sphere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dressi.apps.bench.common import Copies, Settings, Table, start, timed_steps
from dressi.errors import DressiError
from dressi.render.io import write_plot
from dressi.testing.problems import (
    hard_silhouettes,
    silhouette_problem,
    sphere,
    squashed,
    view_matrices,
)

COLUMNS = ("axis", "views", "resolution", "faces", "K", "ms", "ratio_to_copy", "stages")
QUANTITIES = ("views", "resolution", "faces", "K")

AXES: dict[str, tuple[tuple[int, int, int, int], Sequence[int]]] = {
    "views": ((1, 128, 1280, 1), (1, 2, 4, 8, 16, 32)),
    "resolution": ((1, 128, 1280, 1), (128, 256, 512, 1024, 2048)),
    "faces": ((1, 256, 1280, 1), (1_280, 5_120, 20_480, 81_920, 327_680, 500_000)),
    "K": ((1, 256, 1280, 1), (1, 2, 3, 4, 5)),
}
"""Axis -> (views, resolution, faces, K) of what stays, and the values of what changes."""

SMOKE: dict[str, tuple[tuple[int, int, int, int], Sequence[int]]] = {
    "views": ((1, 16, 80, 1), (1, 2)),
    "resolution": ((1, 16, 80, 1), (16, 32)),
    "faces": ((1, 16, 80, 1), (80, 108)),
    "K": ((1, 16, 80, 1), (1, 2)),
}


def measure_point(
    axis: str, point: dict[str, int], settings: Settings, copies: Copies
) -> dict[str, Any]:
    """Return one row; ``faces`` is then how many there are."""
    mesh, matrices = sphere(point["faces"]), view_matrices(point["views"])
    targets = hard_silhouettes(squashed(mesh), matrices, point["resolution"], settings.device)
    problem = silhouette_problem(mesh, matrices, targets, point["K"])
    before = copies.measure()
    with start(problem, settings) as ad:
        times = timed_steps(ad, settings.smoke)
        n_stages = len(ad.plan.stages)
    copy_ms = (before + copies.measure()) / 2
    ms = float(np.median(times))
    return {
        "axis": axis,
        **point,
        "faces": len(mesh.faces),
        "ms": ms,
        "stages": n_stages,
        "ratio_to_copy": ms / copy_ms,
        "copy_ms": copy_ms,
    }


def measure(settings: Settings, copies: Copies) -> Table:
    """Return the rows of all axes, or of the one of ``--only``; a plot of each in ``--out``."""
    table = SMOKE if settings.smoke else AXES
    rows = []
    for axis in (settings.only,) if settings.only else table:
        fixed, values = table[axis]
        for value in values:
            point = dict(zip(QUANTITIES, fixed, strict=True)) | {axis: value}
            rows.append(measure_point(axis, point, settings, copies))
        if settings.out is not None:
            try:
                plot(Path(settings.out) / f"scaling_{axis}.png", axis, rows)
            except DressiError as error:  # the figures are there; matplotlib is an extra
                print(f"no plot: {error}", file=sys.stderr)
    return Table(COLUMNS, rows)


def plot(path: Path, axis: str, rows: Sequence[dict[str, Any]]) -> None:
    """A PNG (640 x 480), both axes logarithmic: ms of the rows of one axis, and a dashed line of
    proportional growth from the last. Raises DressiError where matplotlib is missing."""
    mine = [row for row in rows if row["axis"] == axis]
    x = np.array([row[axis] for row in mine], np.float64)
    if axis == "resolution":
        x = x * x
    y = np.array([row["ms"] for row in mine])
    fixed = ", ".join(f"{q} {mine[0][q]}" for q in QUANTITIES if q != axis)

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.loglog(x, y, marker="o", label="a step")
        axes.loglog(x, y[-1] * x / x[-1], linestyle="--", color="0.6", label="in proportion")
        axes.set_xlabel("pixels of the view" if axis == "resolution" else axis)
        axes.set_ylabel("ms")
        axes.set_title(f"{fixed}; copy {mine[0]['copy_ms']:.2f} ms")
        axes.grid(True, which="both", alpha=0.3)
        axes.legend()

    write_plot(path, draw, "a plot of scaling", (6.4, 4.8))
