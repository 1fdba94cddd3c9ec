"""``dressi experiment curves``: distance to the target over iterations and over time, with the
paper's three settings and a screen-space method (paper, 4.3 and its error curves).

Pictures of a complex target from random views; a sphere; for each seed the same views, lights and
order, and the same rates and Laplacian for all methods. HardSoftRas with the paper's pairs: near (r
= 1 pixel, K = 1), middle (2, 3), far (7, 5); ``--K`` and ``--r-px`` add another. The paper compares
with nvdiffrast; here the screen-space antialiasing of ``dressi.render.raster`` stands for it, and a
recorded curve (``--peer``) beside it. Each method's target pictures are drawn by itself, as in the
paper. The claims are asked for each look and schedule of rates that is named.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from dressi.apps.experiments import curve_claims
from dressi.apps.experiments.common import Result, option
from dressi.apps.experiments.curve_claims import Curve, claims, read_peer
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
from dressi.apps.experiments.lit_views import LOOKS, Method, random_views
from dressi.apps.experiments.meshes import target_mesh
from dressi.apps.experiments.parts import WithWorkers, run_parts, settings_of
from dressi.errors import DressiError
from dressi.many import Context
from dressi.render.scene import flipped_faces, icosphere

HELP = "mean distance over iterations and time: the paper's settings and a screen-space method"

PAPER = {
    "near": Method("r 1 px, K 1", (1.0,), 1, 1.0),
    "middle": Method("r 2 px, K 3", (2.0,), 3),
    "far": Method("r 7 px, K 5", (7.0,), 5),
}
"""The far one last: of it the paper does not claim that it ends nearer."""

REFERENCE = "antialias"

FALLING = ((0.002, 0.0005), (10.0, 0.3))
"""Rate and Laplacian, each at the start and at the end."""

SCHEDULES = ("kept", "falling")


@dataclass(frozen=True)
class Settings(WithWorkers):
    """Options of the experiment."""

    target: str | None = option(None, "OBJ file (default: a horned ball built by code)")
    target_faces: int = option(5120, TARGET_FACES_HELP, smoke=80, least=20)
    look: tuple[str, ...] = option(
        ("lambert",), f"what pictures show and the loss compares: {', '.join(LOOKS)}"
    )
    schedule: tuple[str, ...] = option(
        ("kept",), "of rate and Laplacian: kept (--lr, --laplacian), falling (both end lower)"
    )
    iterations: int = option(2500, "of each fit", smoke=6, least=2, quick=600)
    lr: tuple[float, ...] = option(LR, "rate, at the start and at the end", least=1e-9)
    laplacian: tuple[float, ...] = option(
        LAPLACIAN, "weight of the Laplacian, at the start and at the end", least=1e-9
    )
    size: int = option(96, "pixels on a side", smoke=32, least=8, quick=64)
    views: int = option(256, "random views to choose from", smoke=3, least=1, quick=96)
    subdivisions: int = option(3, "of the sphere: 20 * 4^n faces", smoke=1, least=0)
    K: int = option(0, "peels of one more setting (0: only the paper's)", least=0)
    r_px: tuple[float, ...] = option(
        (7.0,), "reach of that setting in pixels; several: one after another", least=0.5
    )
    seeds: int = option(
        3, "runs, each with its own views, lights and order", smoke=1, least=1, quick=1
    )
    seed: int = option(0, "of the first run", least=0)
    peer: str | None = option(None, "JSON of a recorded curve (docs/experiments.md)")


def methods_of(settings: Settings) -> dict[str, Method]:
    """Return what is compared, by name of its figures."""
    more = {}
    if settings.K:
        r = ", ".join(f"{r:g}" for r in settings.r_px)
        more = {"added": Method(f"r {r} px, K {settings.K}", settings.r_px, settings.K)}
    return {**PAPER, **more, REFERENCE: Method("antialias", antialias=True)}


def rates(settings: Settings, schedule: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return rate and Laplacian of a schedule."""
    return FALLING if schedule == "falling" else (settings.lr, settings.laplacian)


@dataclass(frozen=True)
class _Looks:
    """What the graphs take of the settings, of one look."""

    target: str | None
    target_faces: int
    subdivisions: int
    size: int
    look: str


def fit_part(part: dict[str, Any], context: Context) -> dict[str, Any]:
    """Return the trace of a fit of one look, schedule, method and seed, as plain data."""
    settings: Settings = settings_of(Settings, part)
    look, seed, last = part["look"], part["seed"], settings.iterations
    method = methods_of(settings)[part["method"]]
    s = settings
    looks = _Looks(s.target, s.target_faces, s.subdivisions, s.size, look)
    graphs = context.warm.get(
        ("curves", part["method"], looks), lambda: Graphs(looks, method, context.device)
    )
    every = max(last // 20, 1)
    lr, laplacian = rates(settings, part["schedule"])
    fit = Fit(last, lr, laplacian, every=every, look=look, seed=seed)
    mine = graphs.painter.paint(random_views(settings.views, settings.size, seed))
    trace = graphs.fitter.run(graphs.start.positions, graphs.target, mine, fit, (last,))
    return {**asdict(trace), "positions": trace.positions[last]}


def check(settings: Settings) -> None:
    """Raises DressiError for an unknown look or schedule, LoadError for a peer that is none."""
    for what, given, known in (
        ("look", settings.look, LOOKS),
        ("schedule", settings.schedule, SCHEDULES),
    ):
        for one in given:
            if one not in known:
                raise DressiError(f"--{what} {one}: must be of {', '.join(known)}")
    if settings.peer is not None:
        read_peer(settings.peer, of_cell(settings, settings.look[0], settings.schedule[0]))


def of_cell(settings: Settings, look: str, schedule: str) -> dict[str, Any]:
    """Return the settings of one look and schedule, by name."""
    lr, laplacian = rates(settings, schedule)
    return asdict(replace(settings, look=(), lr=lr, laplacian=laplacian)) | {"look": look}


def run(settings: Settings) -> Result:
    """Run the fits of each method and seed; each worker has one graph per look and method."""
    check(settings)
    target = target_mesh(settings.target, settings.target_faces)
    start = icosphere(settings.subdivisions, START_RADIUS)
    methods, last, device = methods_of(settings), settings.iterations, settings.device
    seeds = range(settings.seed, settings.seed + settings.seeds)
    cells = [(look, schedule) for look in settings.look for schedule in settings.schedule]
    parts: list[dict[str, Any]] = [
        {"look": look, "schedule": schedule, "method": key, "seed": seed}
        for look, schedule in cells
        for key in methods
        for seed in seeds
    ]
    traces: dict[tuple[str, str], dict[str, list[Trace]]] = {}
    for part, fitted in zip(parts, run_parts(fit_part, parts, settings), strict=True):
        trace = Trace(**{**fitted, "positions": {last: fitted["positions"]}})
        cell = traces.setdefault((part["look"], part["schedule"]), {})
        cell.setdefault(part["method"], []).append(trace)
    figures: dict[str, Any] = {}
    conditions: list[tuple[str, bool]] = []
    table: list[list[str]] = [curve_claims.HEADING]
    for (look, schedule), found in traces.items():
        curves = {key: curve_of(some) for key, some in found.items()}
        names = {key: methods[key].name for key in curves}
        stands_for = [(REFERENCE, "the screen-space method here")]
        if settings.peer is not None and (look, schedule) == cells[0]:
            name, curves["peer"] = read_peer(settings.peer, of_cell(settings, look, schedule))
            names["peer"] = name
            stands_for.append(("peer", name))
        table += curve_claims.rows(curves, names, REFERENCE, [look, schedule])
        where = f"{look}, {schedule}: "
        for key, name in stands_for:
            paper = {k: m.name for k, m in PAPER.items()}
            conditions += [(where + c, ok) for c, ok in claims(curves, paper, key, name)]
        figures[f"{look} {schedule}"] = summary(found, start.faces)
    shown = {m.name: traces[cells[0]][k][0].positions[last] for k, m in methods.items()}
    sheet = draw_fits(start, target, shown, random_views(5, settings.size), device)

    def plot(figure: Any) -> None:
        _plot(figure, {methods[k].name: t for k, t in traces[cells[0]].items()})

    return Result(figures, {"shapes": sheet}, {"curves": plot}, conditions, [table])


def curve_of(traces: list[Trace]) -> Curve:
    """Return the distances of the runs of one method."""
    return Curve(np.array(traces[0].iterations), np.array([t.distances for t in traces]))


def summary(traces: dict[str, list[Trace]], faces: np.ndarray) -> dict[str, Any]:
    """Return the figures of the runs of each method, one per seed: the distances over iterations
    and seconds, the median time of a step, faces folded over at the end."""
    return {
        key: {
            "iterations": found[0].iterations,
            "seconds": [t.seconds for t in found],
            "distances": [t.distances for t in found],
            "end": [t.distances[-1] for t in found],
            "ms": float(np.median([t.ms for t in found])),
            "flipped_faces": [
                int(flipped_faces(t.positions[max(t.positions)], faces).sum()) for t in found
            ],
        }
        for key, found in traces.items()
    }


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
