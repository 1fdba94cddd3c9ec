"""``dressi experiment real``: a shape and its texture from photos, silhouettes and colours jointly,
in trials that start differently (paper, 5.4: real data, 10 trials).

Photos with calibrated cameras before a dark background, 200 pixels wide as in the paper; a white
sphere; r = 2 pixels, K = 1, unlit. Each trial keeps two other photos out and starts from a sphere
stretched and turned by its seed. Figures: overlap of silhouettes and PSNR in the photos kept out.
Smoke runs make their own photos: of a small pear.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dressi.apps.demo import EXTENT, centred
from dressi.apps.experiments import common
from dressi.apps.experiments.common import Result, option
from dressi.apps.fitting import ShapeSchedule, TextureSchedule, fit_texture
from dressi.apps.photos import prepare, shrink
from dressi.apps.views import render, spread_views
from dressi.engine import DressiAD
from dressi.errors import DressiError, GraphError
from dressi.render.io.middlebury import load_photos
from dressi.render.mesh import Mesh, flipped_faces, icosphere
from dressi.render.metrics import iou, psnr
from dressi.render.pear import make_pear
from dressi.render.sheet import contact_sheet

HELP = "shape and texture from photos, 10 trials: overlap and PSNR in photos kept out"

KEPT_OUT = 2


@dataclass(frozen=True)
class Settings(common.Settings):
    """Options of the experiment."""

    images: str | None = option(None, "folder of the photos (a smoke run makes its own)")
    cameras: str | None = option(None, "Middlebury *_par.txt")
    trials: int = option(10, "fits, each with its own seed", smoke=2, least=1)
    iterations: int = option(150, "of each fit", smoke=4, least=2)
    size: int = option(200, "longer side of the photos in the fit, pixels", smoke=32, least=16)
    subdivisions: int = option(4, "of the sphere: 20 * 4^n faces", smoke=1, least=0)
    r_px: float = option(2.0, "reach in pixels", least=0.5)
    seed: int = option(0, "of the first trial", least=0)


@dataclass(frozen=True)
class Photos:
    """masks (n, H, W, 1), images (n, H, W, 3) linear times masks, matrices (n, 4, 4), half: the box
    of the object, half its sides, EXTENT the longest."""

    masks: np.ndarray
    images: np.ndarray
    matrices: np.ndarray
    half: np.ndarray


def run(settings: Settings) -> Result:
    """The trials, one after another. Raises DressiError where there are no photos to read."""
    photos = _photos(settings)
    n = len(photos.images)
    if n < KEPT_OUT + 2:
        raise GraphError(f"real needs at least {KEPT_OUT + 2} photos, got {n}")
    trials: list[dict[str, Any]] = []
    rows: dict[str, list[np.ndarray]] = {}
    for k in range(settings.trials):
        rng = np.random.default_rng(settings.seed + k)
        kept = sorted(int(i) for i in rng.choice(n, KEPT_OUT, replace=False))
        trial, pictures = _trial(settings, photos, kept, rng)
        trials.append({"seed": settings.seed + k, "kept_out": kept, **trial})
        if k < SHOWN:
            rows[f"trial {k + 1}"] = pictures
    figures: dict[str, Any] = {"photos": n}
    for key in ("iou", "psnr_db", "train_iou", "seconds", "flipped_faces"):
        values = [t[key] for t in trials]
        figures[f"{key}_mean"], figures[f"{key}_std"] = (
            float(np.mean(values)),
            float(np.std(values)),
        )
    figures["iou_min"] = float(min(t["iou"] for t in trials))
    figures["rows"] = trials
    conditions = [
        (
            "no trial collapses: the worst overlap is within 0.05 of the mean "
            f"({figures['iou_min']:.3f}, {figures['iou_mean']:.3f})",
            figures["iou_min"] > figures["iou_mean"] - 0.05,
        ),
        ("standard deviation of the overlap below 0.02", figures["iou_std"] < 0.02),
    ]
    sheet = contact_sheet(rows, columns=("photo kept out", "fit", "shape") * KEPT_OUT)

    def plot(figure: Any) -> None:
        for axes, key in zip(figure.subplots(1, 2), ("iou", "psnr_db"), strict=True):
            axes.boxplot([t[key] for t in trials])
            axes.set_title(f"{key}, photos kept out, {len(trials)} trials")
            axes.grid(True, alpha=0.3)

    return Result(figures, {"heldout": sheet}, {"trials": plot}, conditions)


SHOWN = 4
"""Trials on the sheet."""


def _photos(settings: Settings) -> Photos:
    if settings.images is None or settings.cameras is None:
        if settings.smoke and settings.images is None and settings.cameras is None:
            return _own_photos(settings)
        raise DressiError(
            "experiment real needs --images DIR and --cameras FILE\n"
            "  hint: the dinoSparseRing set of the Middlebury multi-view data, for example"
        )
    if not Path(settings.images).is_dir():
        raise DressiError(f"--images {settings.images}: no such folder")
    photos = load_photos(settings.images, settings.cameras)
    masks, images, box, matrices = prepare(photos, settings.cameras)
    side = box[1] - box[0]
    return Photos(
        np.stack([shrink(m, settings.size) for m in masks]),
        np.stack([shrink(i, settings.size) for i in images]),
        matrices,
        side / side.max() * (EXTENT / 2),
    )


def _own_photos(settings: Settings) -> Photos:
    pear, texture = make_pear()
    mesh = centred(pear)[0]
    matrices = np.stack([c.matrix for c in spread_views(5)])
    size = (settings.size, settings.size)
    masks, images = render(mesh, matrices, size, texture, 2, settings.device)
    return Photos(masks, images, matrices, np.ptp(mesh.positions, axis=0) / 2)


def start_mesh(half: np.ndarray, subdivisions: int, rng: np.random.Generator) -> Mesh:
    """A sphere turned by chance, stretched to the box within 15 % an axis, moved within 5 %."""
    turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    turn *= np.sign(np.linalg.det(turn))  # no mirror: faces stay outside
    mesh = icosphere(subdivisions)
    scale = half * rng.uniform(0.85, 1.15, 3)
    move = half * rng.uniform(-0.05, 0.05, 3)
    positions = mesh.positions @ turn.T * scale + move
    return replace(mesh, positions=positions.astype(np.float32))


def _trial(
    settings: Settings, photos: Photos, kept: list[int], rng: np.random.Generator
) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Figures of one fit, and pictures of the photos kept out."""
    train = [i for i in range(len(photos.images)) if i not in kept]
    mesh = start_mesh(photos.half, settings.subdivisions, rng)
    schedule = TextureSchedule(
        settings.iterations,
        lr=(0.03, 0.01),
        size=(128, 128),
        start=1.0,
        shape_lr=(0.01, 0.002),
        shape=ShapeSchedule(laplacian=(20.0, 20.0), normal=(0.01, 0.01)),
        r_px=settings.r_px,
    )
    begin = time.perf_counter()
    with DressiAD(settings.device) as ad:
        fit = fit_texture(
            ad,
            mesh,
            photos.matrices[train],
            photos.images[train],
            schedule,
            "photos",
            silhouettes=photos.masks[train],
        )
    seconds = time.perf_counter() - begin
    assert fit.positions is not None
    mesh = replace(mesh, positions=fit.positions)
    size = (photos.images.shape[2], photos.images.shape[1])
    cover, colour = render(mesh, photos.matrices, size, fit.data, 2, settings.device)
    shaded = render(mesh, photos.matrices[kept], size, None, 2, settings.device)[1]
    ious = [iou(c, m) for c, m in zip(cover, photos.masks, strict=True)]
    inside = np.minimum(cover, photos.masks)[..., 0]
    figures = {
        "iou": float(np.mean([ious[i] for i in kept])),
        "psnr_db": float(np.mean([psnr(colour[i], photos.images[i], inside[i]) for i in kept])),
        "train_iou": float(np.mean([ious[i] for i in train])),
        "flipped_faces": int(flipped_faces(mesh.positions, mesh.faces).sum()),
        "ms": fit.median_ms,
        "seconds": seconds,
    }
    pictures = []
    for j, i in enumerate(kept):
        pictures += [photos.images[i], colour[i], shaded[j]]
    return figures, pictures
