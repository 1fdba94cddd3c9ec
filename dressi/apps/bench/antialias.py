"""``dressi bench antialias``: what screen-space antialiasing costs beside HardSoftRas with K = 1,
and how near its coverage is to that of many samples per pixel.

A step is a whole iteration on the vertices of a mesh by its silhouette in one view, with the
uniform Laplacian; both methods take the same mesh, camera and target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dressi.apps.bench.common import Copies, Settings, Table, start
from dressi.apps.timing import alternating_ms
from dressi.render.scene import Mesh
from dressi.testing.problems import (
    antialias_problem,
    hard_silhouettes,
    silhouette_problem,
    sphere,
    squashed,
    view_matrices,
)

COLUMNS = (
    "case",
    "ms",
    "ratio_to_copy",
    "hardsoftras_ms",
    "times_hardsoftras",
    "edge_pixels",
    "error",
    "error_hard",
    "times_smaller",
)

MOST_SAMPLES = 16
"""Samples of a pixel along each axis, where the finer picture stays within FINEST pixels."""
FINEST, TILE = 4096, 2048
"""Pixels on a side of the finer picture, and of the parts in which it is drawn."""
ROUNDS, SMALL_ROUNDS = 30, 2
AT_LEAST = 10.0
"""How many times smaller the error at edges should be than that of hard edges."""


@dataclass(frozen=True)
class Case:
    """One mesh at one size."""

    n_faces: int
    size: int

    @property
    def name(self) -> str:
        return f"{self.n_faces} faces, {self.size} x {self.size}"


CASES = (
    Case(12, 256),
    Case(320, 64),
    Case(320, 256),
    Case(1280, 128),
    Case(1280, 256),
    Case(1280, 512),
    Case(5120, 256),
)
SMOKE = (Case(80, 32),)


@dataclass(frozen=True)
class Coverage:
    """Pixels that a silhouette runs through, and mean absolute errors of their coverage."""

    edge_pixels: int
    error: float
    error_hard: float


def coverage(soft: np.ndarray, hard: np.ndarray, fine: np.ndarray) -> Coverage:
    """Return errors of coverage against many samples. soft, hard: (S, S). fine: (n S, n S), 0 or
    1."""
    size = len(soft)
    n = len(fine) // size
    want = fine.reshape(size, n, size, n).mean((1, 3))
    edge = (want > 0) & (want < 1)
    error, error_hard = (float(np.abs(image - want)[edge].mean()) for image in (soft, hard))
    return Coverage(int(edge.sum()), error, error_hard)


def fine_picture(mesh: Mesh, matrix: np.ndarray, size: int, device: str | None) -> np.ndarray:
    """Return (size, size): the hard silhouette, drawn in tiles."""
    n = -(-size // TILE)
    rows = []
    for j in range(n):
        row = []
        for i in range(n):
            part = np.diag([n, n, 1.0, 1.0])
            part[:2, 3] = n - 1 - 2 * i, n - 1 - 2 * j
            row.append(hard_silhouettes(mesh, (part @ matrix)[None], size // n, device)[0, ..., 0])
        rows.append(np.concatenate(row, 1))
    return np.concatenate(rows, 0)


def measure_case(case: Case, settings: Settings, copies: Copies) -> dict[str, Any]:
    """Return one row."""
    mesh, matrices = sphere(case.n_faces), view_matrices(1)
    targets = hard_silhouettes(squashed(mesh), matrices, case.size, settings.device)
    n = min(MOST_SAMPLES, FINEST // case.size)
    fine = fine_picture(mesh, matrices[0], case.size * n, settings.device)
    before = copies.measure()
    problem = antialias_problem(mesh, matrices, targets)
    other = silhouette_problem(mesh, matrices, targets)
    with start(problem, settings) as ad, start(other, settings) as beside:
        shown = [ad.recv_img(v)[..., 0] for v in (problem.picture, problem.hard)]
        rounds = SMALL_ROUNDS if settings.smoke else ROUNDS
        times, other_times = alternating_ms([ad, beside], rounds)
    ms, other_ms = float(np.median(times)), float(np.median(other_times))
    copy_ms = (before + copies.measure()) / 2
    errors = coverage(shown[0], shown[1], fine)
    return {
        "case": case.name,
        "ms": ms,
        "ratio_to_copy": ms / copy_ms,
        "hardsoftras_ms": other_ms,
        "times_hardsoftras": float(np.median(times / other_times)),
        "edge_pixels": errors.edge_pixels,
        "error": errors.error,
        "error_hard": errors.error_hard,
        "times_smaller": errors.error_hard / errors.error,
        "samples": n * n,
        "copy_ms": copy_ms,
    }


def conditions(rows: Sequence[dict[str, Any]]) -> list[tuple[str, bool]]:
    """Return what the rows have to show."""
    out = []
    for row in rows:
        what = f"{row['case']}: error at edges at least {AT_LEAST:g} x smaller than of hard edges"
        out.append((f"{what}, got {row['times_smaller']:.1f}", row["times_smaller"] >= AT_LEAST))
    return out


def measure(settings: Settings, copies: Copies) -> Table:
    """Return all rows."""
    cases = SMOKE if settings.smoke else CASES
    rows = [measure_case(case, settings, copies) for case in cases]
    return Table(COLUMNS, rows, conditions(rows))
