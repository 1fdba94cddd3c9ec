"""The pear of ``dressi bench steps``: time and quality of a whole fit, and its build with empty and
with filled caches.

In: pear_fit.npz. Out: one row. ``distance``: mean over the fitted vertices of the distance to the
closest of the 200 000 samples of the true surface, world units. ``iou``: mean over the views of the
overlap of two masks, the pixels whose centre the fitted mesh covers and those that the target
covers by more than half.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from dressi.apps.bench.common import (
    Copies,
    Settings,
    figures,
    first_step_s,
    in_new_process,
    start,
)
from dressi.apps.fitting import ShapeSchedule
from dressi.apps.problems import PearFit, load_pear_fit, pear_problem, pear_stand_in
from dressi.apps.timing import WARM_UP, step_ms
from dressi.render.fit import iou
from dressi.testing.problems import hard_silhouettes

WANTED = {150: (0.012, 0.99), 500: (0.0045, 0.995)}
"""Iterations -> the largest distance and the smallest IoU after them."""

SMOKE_WANTED = {WARM_UP + 6: (0.2, 0.5)}
"""The same for a smoke run, only to see that the sphere moves the right way."""

COLD_S, WARM_S = 3.0, 0.7
"""Seconds that a build may take, with no cache on disk and with a filled one."""


def load(settings: Settings) -> PearFit:
    """Return the fit of the data folder; a smoke run has a small one instead."""
    if settings.smoke:
        return pear_stand_in(device=settings.device)
    return load_pear_fit(settings.file("pear_fit.npz"))


def quality(fit: PearFit, positions: np.ndarray, device: str | None) -> dict[str, float]:
    """Return ``distance`` and ``iou`` of fitted positions (N, 3)."""
    distance, _ = cKDTree(fit.samples).query(positions)
    mesh = replace(fit.start, positions=positions)
    size = fit.silhouettes.shape[1]
    masks = hard_silhouettes(mesh, fit.matrices, size, device)
    overlaps = [iou(a, b) for a, b in zip(masks, fit.silhouettes, strict=True)]
    return {"distance": float(np.mean(distance)), "iou": float(np.mean(overlaps))}


def run_fit(fit: PearFit, iterations: int, settings: Settings, copies: Copies) -> dict[str, Any]:
    """Return the row of a whole fit, each step timed, and its ``distance`` and ``iou``. Every step
    counts except the first WARM_UP: r shrinks over the fit, so the median is that of the fit as it
    is."""
    problem = pear_problem(fit, ShapeSchedule(iterations=iterations))
    before = copies.measure()
    with start(problem, settings) as ad:
        build_s = first_step_s(ad)
        times = [step_ms(ad) for _ in range(iterations - 1)][WARM_UP:]
        positions = ad.recv_img(problem.parameter)
        row = figures(ad, times, (before + copies.measure()) / 2)
    return {**row, "build_s": build_s, **quality(fit, positions, settings.device)}


def build_seconds(settings: Settings) -> tuple[float, float]:
    """Return the seconds of the first step of the pear, from the graph to its end, in a new process
    each: with no cache on disk, ours and Mesa's, then with those that the first one left."""
    words = json.dumps({"smoke": settings.smoke, "device": settings.device, "data": settings.data})
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = (float(in_new_process(__name__, words, folder)) for _ in range(2))
    return cold, warm


def child(words: str) -> None:
    """What ``build_seconds`` runs in a new process."""
    settings = Settings(**json.loads(words))
    with start(pear_problem(load(settings), ShapeSchedule()), settings) as ad:
        print(first_step_s(ad))


def measure(settings: Settings, copies: Copies) -> tuple[dict[str, Any], list[tuple[str, bool]]]:
    """Return the row ``pear_fit`` (figures of the shorter fit, quality of both) and its
    conditions."""
    fit = load(settings)
    wanted = SMOKE_WANTED if settings.smoke else WANTED
    row: dict[str, Any] = {}
    conditions = []
    for iterations, (distance, overlap) in wanted.items():
        made = run_fit(fit, iterations, settings, copies)
        row = row or {"case": "pear_fit", **made}
        row[f"distance_{iterations}"] = made["distance"]
        row[f"iou_{iterations}"] = made["iou"]
        for name, holds, got in (
            (f"distance at most {distance:g}", made["distance"] <= distance, made["distance"]),
            (f"IoU at least {overlap:g}", made["iou"] >= overlap, made["iou"]),
        ):
            conditions.append((f"pear, {iterations} iterations: {name}, got {got:.4f}", holds))
    del row["distance"], row["iou"]
    cold, warm = build_seconds(settings)
    row |= {"cold_build_s": cold, "warm_build_s": warm}
    for name, got, most in (("no cache", cold, COLD_S), ("filled caches", warm, WARM_S)):
        what = f"pear, build with {name}: at most {most:g} s, got {got:.2f}"
        conditions.append((what, got <= most))
    return row, conditions
