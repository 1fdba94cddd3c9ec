"""``dressi experiment large_steps``: a sphere to silhouettes, with and without Large Steps.

Beyond the paper, which has no such experiment.

The same start, pictures, r and number of iterations: Adam on the vertices with a Laplacian in the
loss, for several weights; and AdamUniform on the parameters of
``dressi.render.fit.large_steps`` with nothing but the silhouettes in the loss. What counts is how
close the surface comes and how many faces are folded over: a light Laplacian lets faces fold, a
heavy one keeps the shape from the target.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from tqdm import tqdm

from dressi.ad import Adam, AdamUniform, Variable
from dressi.ad.optim import Optimizer
from dressi.ad.vtype import FLOAT, IVEC3, MAT4, VEC3
from dressi.apps import live
from dressi.apps.demo import EXTENT
from dressi.apps.experiments import common
from dressi.apps.experiments.common import Result, option
from dressi.apps.experiments.meshes import bunny_file, target_mesh
from dressi.apps.experiments.parts import kept_parts
from dressi.engine import DressiAD
from dressi.render.fit import (
    LargeSteps,
    iou,
    laplacian_loss,
    laplacian_matrix,
    large_steps,
    mean_distance_to_surface,
    silhouette_loss,
)
from dressi.render.io import contact_sheet
from dressi.render.raster import build_hardsoftras
from dressi.render.scene import Mesh, flipped_faces, icosphere
from dressi.testing.views import render, spread_views

HELP = "a sphere to silhouettes by Adam and a Laplacian, and by Large Steps: distance, folded faces"


@dataclass(frozen=True)
class Settings(common.Settings):
    """Options of the experiment."""

    size: int = option(96, "pixels on a side", smoke=32, least=8, quick=64)
    views: int = option(6, "views around the target", smoke=3, least=1)
    level: int = option(4, "subdivisions of the sphere", smoke=2, least=1, quick=3)
    iterations: int = option(150, "steps", smoke=4, least=1)
    r: float = option(0.05, "reach at the start, 1 is the side of the picture", least=0.0)
    lr: float = option(0.01, "learning rate of Adam at the start, world units", least=0.0)
    weights: tuple[float, ...] = option(
        (1.0, 10.0, 100.0), "weights of the Laplacian", smoke=(0.0, 10.0), least=0.0
    )
    smoothness: tuple[float, ...] = option(
        (10.0,), "lambda of Large Steps", smoke=(19.0,), least=0.0
    )
    large_lr: float = option(0.2, "learning rate of AdamUniform at the start", least=0.0)
    target: str | None = option(None, "OBJ file (default: the bunny of the data folder, if any)")


@dataclass(frozen=True)
class Fit:
    """positions: (N, 3). losses: of the silhouettes. ms: median of a step."""

    positions: np.ndarray
    losses: list[float]
    ms: float


Parametrize = Callable[[Variable], Variable]


def fit(
    ad: DressiAD,
    start: Mesh,
    matrices: np.ndarray,
    outlines: np.ndarray,
    s: Settings,
    parameter: Variable,
    first: np.ndarray,
    vertices: Parametrize,
    optimizer: Callable[[Variable], Optimizer],
    lr0: float,
    regularizer: Callable[[Variable], Variable] | None,
    label: str,
) -> Fit:
    """Move ``parameter`` until the silhouettes match. vertices: from the parameter to VEC3 @ (N,
    1). regularizer: added to the loss."""
    n = len(matrices)
    faces = Variable(IVEC3, (len(start.faces), 1), name="faces")
    matrix = Variable(MAT4, layers=n, name="matrix")
    target = Variable(FLOAT, (s.size, s.size), n, name="outlines")
    r, lr = Variable(FLOAT, name="r"), Variable(FLOAT, name="lr")
    pos = vertices(parameter)
    hs = build_hardsoftras(pos, faces, matrix, (s.size, s.size), r, max_delta=max(s.r, 1 / s.size))
    match = silhouette_loss(hs.silhouette, target)
    ad.set_loss_var(match if regularizer is None else match + regularizer(pos))
    ad.set_optimizer(optimizer(lr))
    ad.send_img(parameter, first)
    ad.send_img(faces, start.faces)
    ad.send_img(matrix, matrices if n > 1 else matrices[0])
    ad.send_img(target, outlines if n > 1 else outlines[0])
    losses, times = [], []
    live.begin(label, start, matrices, outlines)
    for i in tqdm(range(s.iterations), desc=label, unit="it", leave=False):
        t = i / max(s.iterations - 1, 1)
        ad.send_img(r, s.r * (1.0 / s.size / s.r) ** min(t / 0.8, 1.0))
        ad.send_img(lr, lr0 * 0.2**t)
        begin = time.perf_counter()
        ad.exec_step()
        times.append(time.perf_counter() - begin)
        if i % 10 == 0:
            losses.append(float(ad.recv_img(match).reshape(-1)[0]))
        live.step(ad, losses[-1] if i % 10 == 0 else None, pos)
    return Fit(ad.recv_img(pos), losses, 1e3 * float(np.median(times)))


def _by_vertices(
    ad: DressiAD, start: Mesh, matrices: np.ndarray, outlines: np.ndarray, s: Settings, w: float
) -> Fit:
    x = Variable(VEC3, (len(start.positions), 1), requires_grad=True, name="vtx_pos")
    matrix = laplacian_matrix(start.faces, len(start.positions))
    return fit(
        ad, start, matrices, outlines, s, x, start.positions, lambda x: x,
        lambda lr: Adam(lr, beta2=0.95), s.lr,
        (lambda pos: laplacian_loss(pos, matrix) * w) if w else None, f"Laplacian x {w:g}",
    )  # fmt: skip


def _by_large_steps(
    ad: DressiAD,
    start: Mesh,
    matrices: np.ndarray,
    outlines: np.ndarray,
    s: Settings,
    steps: LargeSteps,
    label: str,
) -> Fit:
    u = Variable(VEC3, (steps.n_places, 1), requires_grad=True, name="u")
    return fit(
        ad, start, matrices, outlines, s, u, steps.parameters(start.positions), steps.vertices,
        lambda lr: AdamUniform(lr, beta2=0.95), s.large_lr, None, label,
    )  # fmt: skip


def run(settings: Settings) -> Result:
    """Return distance, overlap and folded faces of every method; pictures; losses."""
    path = settings.target or (None if settings.smoke else bunny_file())
    target = target_mesh(path, 320 if settings.smoke else None)
    start = replace(icosphere(settings.level, 0.28 * EXTENT), uvs=None, uv_faces=None)
    matrices = np.stack([camera.matrix for camera in spread_views(settings.views)])
    size = (settings.size, settings.size)
    outlines, shaded = render(target, matrices, size, None, 2, settings.device)
    diagonal = float(np.linalg.norm(np.ptp(target.positions, axis=0)))
    fits: dict[str, Fit] = {}
    figures: dict[str, Any] = {"mesh": target.name, "vertices": len(start.positions)}
    methods: dict[str, Callable[[DressiAD], Fit]] = {}
    for weight in settings.weights:
        methods[f"laplacian_{weight:g}"] = partial(
            _by_vertices, start=start, matrices=matrices, outlines=outlines, s=settings, w=weight
        )
    for smoothness in settings.smoothness:
        begin = time.perf_counter()
        made = large_steps(start, smoothness)
        key = f"large_steps_{smoothness:g}"
        figures[f"{key}_setup_s"] = time.perf_counter() - begin
        figures[f"{key}_numbers_a_vertex"] = len(made.factors[0].values) / made.n_places
        methods[key] = partial(
            _by_large_steps,
            start=start, matrices=matrices, outlines=outlines, s=settings, steps=made, label=key,
        )  # fmt: skip
    rows = {"target": list(shaded[:6])}

    def alone(method: Callable[[DressiAD], Fit]) -> dict[str, Any]:
        with DressiAD(settings.device) as ad:
            return vars(method(ad))

    work = {key: partial(alone, method) for key, method in methods.items()}
    for key, found in kept_parts(settings, work, "fits").items():
        fits[key] = Fit(**found)
        mesh = replace(start, positions=fits[key].positions)
        coverage, picture = render(mesh, matrices, size, None, 2, settings.device)
        both = zip(coverage, outlines, strict=True)
        figures |= {
            f"{key}_iou": float(np.mean([iou(a, b) for a, b in both])),
            f"{key}_distance_percent": 100.0
            / diagonal
            * mean_distance_to_surface(target.positions, mesh.positions, mesh.faces),
            f"{key}_folded_faces": int(flipped_faces(mesh.positions, mesh.faces).sum()),
            f"{key}_loss": fits[key].losses[-1],
            f"{key}_ms": fits[key].ms,
        }
        rows[key.replace("_", " ", 1).replace("_", "\n")] = list(picture[:6])

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for key, one in fits.items():
            axes.semilogy(10 * np.arange(len(one.losses)), one.losses, label=key.replace("_", " "))
        axes.set_xlabel("iteration")
        axes.set_ylabel("silhouette loss")
        axes.legend()

    return Result(
        figures, {"large_steps": contact_sheet(rows)}, {"curves": draw}, _conditions(figures)
    )


def _conditions(figures: dict[str, Any]) -> list[tuple[str, bool]]:
    """Compare with those Laplacians that fold no more faces, and those that come as close."""

    def of(kind: str, what: str) -> dict[str, float]:
        end = f"_{what}"
        return {
            k[: -len(end)]: v for k, v in figures.items() if k.startswith(kind) and k.endswith(end)
        }

    folded, away = of("laplacian", "folded_faces"), of("laplacian", "distance_percent")
    ours = of("large_steps", "folded_faces")
    best = min(ours, key=lambda k: (ours[k], of("large_steps", "distance_percent")[k]))
    mine, near = ours[best], of("large_steps", "distance_percent")[best]
    tidy = [away[k] for k in away if folded[k] <= mine]
    close = [folded[k] for k in away if away[k] <= near]
    return [
        (
            "every Laplacian that folds as few faces stays farther from the target",
            all(d > near for d in tidy),
        ),
        ("every Laplacian that comes as close folds more faces", all(f > mine for f in close)),
    ]
