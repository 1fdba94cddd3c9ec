"""``dressi bench silhouettes``: the paper's table 4. Three meshes at four sizes, one view
and six: forward, backward, Laplacian and Adam on the vertices, by HardSoftRas with K = 1 and by
screen-space antialiasing; beside them what others need on an H200.

``ms`` is a step among 32 of one submit, as a fit takes them, ``single_ms`` one that is waited for.
Peers: milliseconds per frame, forward and backward with the loss but without an optimizer, of these
meshes and cameras, measured on an NVIDIA H200. Conditions are stated on that card only.

``--only million``: one more mesh, a sphere of a million triangles, at 1024 x 1024 in one view by
both methods; on request, for a CPU takes minutes. No peer was measured with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from dressi.ad import Adam
from dressi.apps.bench.antialias import antialias_problem
from dressi.apps.bench.common import (
    Copies,
    Settings,
    Table,
    figures,
    in_a_row_ms,
    start,
    timed_steps,
)
from dressi.apps.bench.steps import bumpy
from dressi.engine import DressiAD
from dressi.render.scene import Mesh
from dressi.testing.problems import (
    cube_sphere,
    hard_silhouettes,
    silhouette_problem,
    squashed,
    view_matrices,
)

SIZES = (256, 512, 1024, 2048)
MESHES = ("t1_682.npz", "t1_14208.npz", "t1_51414.npz")
METHODS = ("hardsoftras", "antialias")
VIEWS = (1, 6)
COLUMNS = (
    "case",
    "ms",
    "single_ms",
    "ms_per_view",
    "gpu_ms",
    "ratio_to_copy",
    "eager_ms",
    "batch_ms",
    "graph_ms",
    "times_eager",
    "stages",
)

# nvdiffrast 0.4.0 by mesh and size: eager with one view; six views in one batch, a view; one view
# patched so that it runs as a CUDA graph.
EAGER = (
    (1.28, 1.15, 1.30, 1.51),
    (1.54, 1.36, 1.23, 1.46),
    (1.46, 1.39, 1.35, 1.33),
)
BATCH = (
    (0.294, 0.241, 0.273, 0.651),
    (0.262, 0.221, 0.306, 0.566),
    (0.266, 0.279, 0.265, 0.581),
)
GRAPH = (
    (0.105, 0.122, 0.187, 0.424),
    (0.150, 0.148, 0.191, 0.417),
    (0.243, 0.225, 0.263, 0.476),
)
PEER_CARD = "H200"
STILL = 1e-8
"""Learning rate: a cell takes ten thousand steps, after which the mesh must still be that of the
peers. With the default of 1e-4 it would have crumpled."""
AT_LEAST, AT_LEAST_LARGE = 4.0, 2.5
"""Times faster than eager up to 1024 x 1024, and above."""


@dataclass(frozen=True)
class Cell:
    """One figure of the table. mesh, size: positions in MESHES and SIZES."""

    mesh: int
    size: int
    views: int
    method: str

    @property
    def name(self) -> str:
        faces = MESHES[self.mesh].removeprefix("t1_").removesuffix(".npz")
        views = "1 view" if self.views == 1 else f"{self.views} views"
        return f"{self.method}, {faces} triangles, {SIZES[self.size]}, {views}"


def cells(settings: Settings) -> Iterator[Cell]:
    """Yield the cells in the order of the table; a smoke run has two. Those of the method or of the
    number of views that ``--only`` names."""
    if settings.smoke:
        yield from (Cell(0, 0, views, method) for views, method in zip(VIEWS, METHODS, strict=True))
        return
    for method in METHODS:
        for views in VIEWS:
            if settings.only not in (None, method, str(views)):
                continue
            for mesh in range(len(MESHES)):
                for size in range(len(SIZES)):
                    yield Cell(mesh, size, views, method)


MILLION = "million"
MANY_FACES, PICTURE = 1_000_000, 1024
"""Triangles and size of the cells of MILLION."""
SLOW_MS = 50.0
"""Steps above this are not timed in rows of 32: what a submit costs does not count, and 512 of them
would take minutes."""
ONLY = (*METHODS, *map(str, VIEWS), MILLION)
"""What ``--only`` may name."""


@cache
def _targets(cell: Cell, settings: Settings) -> np.ndarray:
    """Return the pictures of a cell, whatever its method."""
    data = bumpy(settings, MESHES[cell.mesh])
    size = 32 if settings.smoke else SIZES[cell.size]
    return hard_silhouettes(data.target, data.matrices[: cell.views], size, settings.device)


def measure_cell(cell: Cell, settings: Settings, copies: Copies) -> dict[str, Any]:
    """Return one row."""
    data = bumpy(settings, MESHES[cell.mesh])
    matrices = data.matrices[: cell.views]
    targets = _targets(replace(cell, method=""), settings)
    row = _timed_row(cell.method, data.mesh, matrices, targets, settings, copies)
    one = cell.views == 1
    row |= {
        "case": cell.name,
        "ms_per_view": row["ms"] / cell.views,
        "eager_ms": EAGER[cell.mesh][cell.size] if one else None,
        "batch_ms": None if one else BATCH[cell.mesh][cell.size],
        "graph_ms": GRAPH[cell.mesh][cell.size] if one else None,
    }
    if one:
        row["times_eager"] = row["eager_ms"] / row["ms"]
    return row


def _timed_row(
    method: str,
    mesh: Mesh,
    matrices: np.ndarray,
    targets: np.ndarray,
    settings: Settings,
    copies: Copies,
) -> dict[str, Any]:
    """Return the figures of steps of a method."""
    make = silhouette_problem if method == "hardsoftras" else antialias_problem
    problem = make(mesh, matrices, targets, adam=Adam(STILL))
    copy_ms = copies.recent()
    with start(problem, settings) as ad:
        ms = single_ms = float(np.median(timed_steps(ad, settings.smoke)))
        if single_ms < SLOW_MS:
            ms = in_a_row_ms(ad, settings.smoke)
        return figures(ad, [ms], copy_ms) | {"single_ms": single_ms}


def measure_million(settings: Settings, copies: Copies) -> list[dict[str, Any]]:
    """Return the rows of a sphere of MANY_FACES triangles by both methods; a smoke run has a small
    one."""
    n, size = (300, 32) if settings.smoke else (MANY_FACES, PICTURE)
    mesh, matrices, rows = cube_sphere(n), view_matrices(1), []
    targets = hard_silhouettes(squashed(mesh), matrices, size, settings.device)
    for method in METHODS:
        row = _timed_row(method, mesh, matrices, targets, settings, copies)
        case = f"{method}, {len(mesh.faces)} triangles, {size}, 1 view"
        rows.append(row | {"case": case, "ms_per_view": row["ms"]})
    return rows


def on_peer_card(settings: Settings) -> bool:
    """Return whether this is the card that the peers were measured on."""
    with DressiAD(settings.device) as ad:
        return PEER_CARD in ad.device_info.name


def conditions(cell: Cell, row: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return what is asked of a cell on the card of the peers."""
    if cell.views > 1:
        got = row["ms_per_view"]
        what = f"{cell.name}: a view faster than the batch's {row['batch_ms']:.3f} ms"
        return [(f"{what}, got {got:.3f}", got < row["batch_ms"])]
    least = AT_LEAST if SIZES[cell.size] <= 1024 else AT_LEAST_LARGE
    what = f"{cell.name}: at least {least:g} x faster than eager"
    return [(f"{what}, got {row['times_eager']:.2f}", row["times_eager"] >= least)]


def measure(settings: Settings, copies: Copies) -> Table:
    """Return all rows, or those of ``--only``."""
    if settings.only == MILLION:
        return Table(COLUMNS, measure_million(settings, copies))
    rows, asked, card = [], [], on_peer_card(settings)
    for cell in cells(settings):
        row = measure_cell(cell, settings, copies)
        rows.append(row)
        if card and not settings.smoke:
            asked += conditions(cell, row)
    return Table(COLUMNS, rows, asked)
