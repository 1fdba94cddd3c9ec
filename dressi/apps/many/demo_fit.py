"""The demo as one of many: a sphere becomes a mesh, shape first, then texture, on graphs that the
worker keeps.

Everything that changes between fits of one shape (target, views, reach, rates) is sent, so that a
worker builds plans and pipelines once for all of them.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from dressi.apps.demo import EXTENT, centred, load_target
from dressi.apps.fitting import (
    FitResult,
    ShapeFitter,
    ShapeSchedule,
    TextureSchedule,
    fit_texture,
)
from dressi.apps.many.demo_settings import Settings, check
from dressi.engine import DressiAD
from dressi.errors import GraphError
from dressi.many import Context
from dressi.packing import Options
from dressi.render.fit import iou, mean_distance_to_surface, psnr
from dressi.render.io import contact_sheet
from dressi.render.io.images import write_png
from dressi.render.scene import Mesh, flipped_faces, icosphere
from dressi.testing.views import Renders, spread_views

SUPERSAMPLE = 4
"""Samples on a side of a pixel of the target's pictures, as in ``dressi demo``."""

JITTER = 0.05
"""Of the start's vertices, as a part of its radius, by the seed."""


def run(given: dict[str, Any], context: Context) -> dict[str, Any]:
    """Return the figures of a fit and its positions; a contact sheet goes to the folder."""
    settings = check(given)
    matrices = np.stack([c.matrix for c in spread_views(settings.views)])
    target, texture = context.warm.get(
        ("demo target", settings.target), lambda: _target(settings.target)
    )
    start = start_mesh(settings)
    begin = time.perf_counter()
    coverage, colour = _draw(settings, context, target, matrices, texture, SUPERSAMPLE)
    shape = _fit_shape(settings, context, start, matrices, coverage)
    fitted = replace(start, positions=shape.data)
    figures = _shape_figures(settings, context, fitted, target, matrices, coverage, colour)
    if settings.texture_iterations:
        figures |= _paint(settings, context, fitted, matrices, coverage, colour)
    own = {"losses": shape.losses, "iteration_ms": shape.median_ms}
    total = {"fit_seconds": time.perf_counter() - begin}
    return {**figures, **own, **total, "positions": shape.data}


def start_mesh(settings: Settings) -> Mesh:
    """Return the sphere that a fit starts from."""
    mesh = icosphere(settings.subdivisions, 0.28 * EXTENT)
    if settings.seed == 0:
        return mesh
    rng = np.random.default_rng(settings.seed)
    moved = mesh.positions * (1.0 + JITTER * rng.uniform(-1, 1, (len(mesh.positions), 1)))
    return replace(mesh, positions=moved.astype(np.float32))


def _target(path: str | None) -> tuple[Mesh, np.ndarray]:
    mesh, texture = load_target(path)
    return centred(mesh)[0], texture


def _shape_of(mesh: Mesh) -> tuple[object, ...]:
    """What a graph of a mesh depends on, besides its positions."""
    uvs = None if mesh.uvs is None else len(mesh.uvs)
    return len(mesh.positions), len(mesh.faces), uvs


def _draw(
    settings: Settings,
    context: Context,
    mesh: Mesh,
    matrices: np.ndarray,
    texture: np.ndarray | None,
    samples: int,
) -> tuple[np.ndarray, np.ndarray]:
    texels = None if texture is None else (texture.shape[1], texture.shape[0])
    size = (settings.size, settings.size)
    renders = context.warm.get(
        ("demo pictures", _shape_of(mesh), size, texels, samples),
        lambda: Renders(mesh, size, texels, samples, context.device),
    )
    return renders.draw(mesh, matrices, texture)


def _fit_shape(
    settings: Settings,
    context: Context,
    start: Mesh,
    matrices: np.ndarray,
    coverage: np.ndarray,
) -> FitResult:
    schedule = ShapeSchedule(
        settings.iterations,
        r=(max(settings.r_start, settings.r_px / settings.size), settings.r_px / settings.size),
        lr=(settings.lr, 0.3 * settings.lr),
        K=settings.K,
    )
    size = (settings.size, settings.size)
    # The mask of edges is built for the largest reach, which is therefore part of the shape.
    key = ("demo shape", settings.subdivisions, settings.views, size, settings.K, max(schedule.r))
    warm = context.warm.get(
        (*key, settings.deterministic),
        lambda: WarmShape(settings, start, size, max(schedule.r), context.device),
    )
    return warm.fitter.fit(start, matrices, coverage, schedule, "shape")


class WarmShape:
    """An engine with the graph of a shape fit."""

    def __init__(
        self,
        settings: Settings,
        start: Mesh,
        size: tuple[int, int],
        reach: float,
        device: str | None,
    ) -> None:
        self._ad = DressiAD(device, Options(deterministic=settings.deterministic))
        try:
            self.fitter = ShapeFitter(self._ad, start, settings.views, size, settings.K, reach)
        except BaseException:
            self._ad.close()
            raise

    def __enter__(self) -> WarmShape:
        return self

    def __exit__(self, *_: object) -> None:
        self._ad.close()


def _shape_figures(
    settings: Settings,
    context: Context,
    fitted: Mesh,
    target: Mesh,
    matrices: np.ndarray,
    wanted: np.ndarray,
    colour: np.ndarray,
) -> dict[str, Any]:
    got, shaded = _draw(settings, context, fitted, matrices, None, SUPERSAMPLE)
    diagonal = float(np.linalg.norm(np.ptp(target.positions, axis=0)))
    if settings.picture:
        sheet = contact_sheet({"target": list(colour), "fit": list(shaded)})
        write_png(context.folder / "sheet.png", sheet)
    return {
        "iou": float(np.mean([iou(a, b) for a, b in zip(got, wanted, strict=True)])),
        "mean_distance_rel": mean_distance_to_surface(
            fitted.positions, target.positions, target.faces
        )
        / diagonal,
        "flipped_faces": int(flipped_faces(fitted.positions, fitted.faces).sum()),
    }


def _paint(
    settings: Settings,
    context: Context,
    fitted: Mesh,
    matrices: np.ndarray,
    coverage: np.ndarray,
    colour: np.ndarray,
) -> dict[str, Any]:
    """Return figures of the texture. Its graph is built for each fit."""
    if fitted.uvs is None:
        raise GraphError("demo: the start has no UVs to paint on")
    schedule = TextureSchedule(settings.texture_iterations)
    with DressiAD(context.device, Options(deterministic=settings.deterministic)) as ad:
        painted = fit_texture(
            ad, fitted, matrices, colour, schedule, "texture", silhouettes=coverage
        )
    got = _draw(settings, context, fitted, matrices, painted.data, SUPERSAMPLE)[1]
    n, height, width, channels = got.shape
    tall = (n * height, width)
    inside = (coverage[..., 0] > 0.5).reshape(tall)
    figure = psnr(got.reshape(*tall, channels), colour.reshape(*tall, channels), inside)
    return {"psnr_db": figure, "texture": painted.data}
