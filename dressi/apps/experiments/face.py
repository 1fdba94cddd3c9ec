"""``dressi experiment face``: a textured head from four pictures with depth (paper, B.3).

The frames are renderings of a scanned head, or a folder of real ones (``--data``). The head of
ICT-FaceKit is fitted to them: poses, scale, identities, expressions and three maps together; then
its vertices leave the span of the model (``--in-span`` leaves that out). Of the scan a fifth frame
is kept out, its shape is known, and the fit is repeated without depth and without landmarks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dressi.apps.data import human_file
from dressi.apps.experiments import common
from dressi.apps.experiments.common import Result, option
from dressi.apps.experiments.face_capture import (
    Frame,
    Noise,
    Scan,
    read_scan,
    scan_frames,
)
from dressi.apps.experiments.face_files import read_frames
from dressi.apps.experiments.face_fit import Fitted, Level, Rates, Weights, fit
from dressi.apps.experiments.face_model import HeadModel, head_model
from dressi.apps.experiments.face_results import (
    WELL_SEEN,
    Head,
    Shown,
    Viewer,
    align,
    cleaned,
    face_points,
    head_scene,
    landmark_error,
    landmark_pixels,
    start_head,
    unfolded,
)
from dressi.apps.experiments.face_start import Start, start_from_landmarks
from dressi.errors import DressiError
from dressi.render.fit import psnr
from dressi.render.io import contact_sheet, save_scene

HELP = "a textured head from four pictures with depth and landmarks"

MEAN_MM, TIMES, LANDMARK_PX, LESS_DB = 1.5, 4.0, 2.0, 2.0
"""What is asked: mean distance to the scan, how many times nearer than the start, landmarks, and by
how much the frame that was kept out may be worse than the others."""


@dataclass(frozen=True)
class Settings(common.Settings):
    """Options of the experiment."""

    data: str | None = option(None, "folder of real frames (default: renderings of a scanned head)")
    iterations: int = option(
        120,
        "at a quarter of the side; half as many beyond the span, fewer at larger sizes",
        smoke=4,
        least=3,
        quick=80,
    )
    height: int = option(640, "of the renderings, pixels; 4 x 3", smoke=64, least=64, quick=320)
    map_side: int = option(256, "texels of a side, 2 x 1", smoke=32, least=16, quick=128)
    identities: int = option(100, "components of the shape, up to 100", smoke=8, least=1, quick=40)
    landmark_noise_px: float = option(1.5, "standard deviation, of the renderings", least=0.0)
    depth_noise_cm: float = option(0.1, "standard deviation, of the renderings", least=0.0)
    seed: int = option(0, "of the noise", least=0)
    in_span: bool = option(
        False, "stay in the span of the model: no offsets of vertices", smoke=True
    )
    no_ablation: bool = option(False, "leave out the fits without depth and without landmarks")


@dataclass(frozen=True, eq=False)
class Case:
    """What is fitted. scan: the truth, or None. start: of the frames to fit."""

    model: HeadModel
    frames: Sequence[Frame]
    kept: Frame | None
    scan: Scan | None
    start: Start


def make_case(settings: Settings) -> Case:
    """Return model, frames and start."""
    model = head_model(human_file("ict/ict_face_light.npz"), settings.identities)
    scan = None
    if settings.data is not None:
        frames = read_frames(settings.data)
    else:
        scan = read_scan()
        size = (settings.height * 3 // 4, settings.height)
        noise = Noise(settings.landmark_noise_px * settings.height / 640, settings.depth_noise_cm)
        frames = scan_frames(scan, size, noise, settings.seed, settings.device)
    fitted = [f for f in frames if not f.held_out]
    kept = next((f for f in frames if f.held_out), None)
    start = start_from_landmarks(model.mean[model.landmarks].astype(np.float64), fitted)
    return Case(model, fitted, kept, scan, start)


def levels_of(settings: Settings) -> tuple[Level, list[Level]]:
    """Return the coarse level, and those that follow it."""
    n, side, free = settings.iterations, settings.map_side, not settings.in_span
    coarse = Level(4, max(side // 4, 8), n)
    half = Level(2, max(side // 2, 8), max(n // (6 if free else 3), 1), 0.3, free=free)
    fine = Level(1, side, max(n // 12, 1), 0.1, free=free)
    if not free:
        return coarse, [half, fine]
    return coarse, [replace(coarse, iterations=max(n // 2, 1), free=True), half, fine]


def run(settings: Settings) -> Result:
    """Fit the head, measure it, and fit it again without depth and without landmarks."""
    case = make_case(settings)
    begin = time.perf_counter()
    first, others = levels_of(settings)
    coarse = fit_case(case, [first], Weights(), settings)
    fitted = fit_case(case, others, Weights(), settings, coarse)
    positions, folded = unfolded(fitted.positions, coarse.positions, case.model.faces)
    fitted = replace(fitted, positions=positions)
    weights = fitted.values["expression"].ravel().tolist()
    figures: dict[str, Any] = {
        "fit_seconds": time.perf_counter() - begin,
        "scale_start": case.start.scale,
        "scale": float(np.exp(fitted.values["log_scale"]).item()),
        "expressions": dict(zip(case.model.names, weights, strict=True)),
        "losses": fitted.losses,
        "faces_unfolded": folded,
    }
    before = start_head(case.model, case.start.scale, settings.map_side)
    figures |= shape_figures(case, before.positions, case.start.views, "start_")
    figures |= shape_figures(case, coarse.positions, coarse.views, "coarse_")
    figures |= shape_figures(case, fitted.positions, fitted.views, "")
    sheet, measured = draw_all(case, before, fitted, settings)
    figures |= measured
    conditions = conditions_of(figures) if case.scan is not None else []
    if case.scan is not None and not settings.no_ablation:
        for name in ("depth", "landmarks"):
            without = fit_case(case, [first], replace(Weights(), **{name: 0.0}), settings)
            figures |= shape_figures(case, without.positions, without.views, f"without_{name}_")
        conditions += ablation_conditions(figures)
    return Result(figures, {"face": sheet}, {}, conditions, [table_of(figures)], ["head.glb"])


def fit_case(
    case: Case,
    levels: Sequence[Level],
    weights: Weights,
    settings: Settings,
    before: Fitted | None = None,
) -> Fitted:
    """Fit the head of a case, with the command's rates."""
    given = (case.model, case.frames, case.start, levels, weights, Rates())
    return fit(*given, settings.device, before)


def shape_figures(
    case: Case, positions: np.ndarray, views: np.ndarray, name: str
) -> dict[str, float]:
    """Return distances to the scan and errors of landmarks, their names begin with ``name``.

    ``distance_mm``: mean distance of the scan's face after rigid alignment; ``unaligned_mm``: the
    same in the first camera, as the fit has placed the head. ``landmark_px``: to the landmarks
    given, ``landmark_true_px``: to those without noise.
    """
    places = np.asarray(positions, np.float64)[case.model.landmarks]
    given = np.stack([f.landmarks for f in case.frames])
    weights = case.start.weights
    out = {f"{name}landmark_px": landmark_error(places, case.frames, views, given, weights)}
    if case.scan is None:
        return out
    marks = case.scan.landmarks
    clean = np.stack([landmark_pixels(marks, f, f.known_view) for f in case.frames])
    error = landmark_error(places, case.frames, views, clean, weights)
    points = face_points(case.scan, case.frames)
    begin = np.linalg.inv(np.asarray(views[0], np.float64)) @ case.frames[0].known_view
    found = align(points, begin, positions, case.model.faces)
    as_placed = align(points, begin, positions, case.model.faces, rounds=0)
    return out | {
        f"{name}landmark_true_px": error,
        f"{name}distance_mm": found.mean_mm,
        f"{name}unaligned_mm": as_placed.mean_mm,
    }


def kept_view(case: Case, kept: Frame, fitted: Fitted) -> np.ndarray:
    """Return the view of the frame that was kept out: the true one where it is known, else by its
    landmarks."""
    if case.scan is not None:
        points = face_points(case.scan, case.frames)
        begin = np.linalg.inv(fitted.views[0].astype(np.float64)) @ case.frames[0].known_view
        motion = align(points, begin, fitted.positions, case.model.faces).motion
        return np.asarray(kept.known_view @ np.linalg.inv(motion))
    places = fitted.positions[case.model.landmarks].astype(np.float64)
    return np.asarray(start_from_landmarks(places, [kept], 1.0).views[0])


def draw_all(
    case: Case, before: Head, fitted: Fitted, settings: Settings
) -> tuple[np.ndarray, dict[str, Any]]:
    """Clean the maps, write the head, and return the contact sheet and PSNR."""
    assert settings.out is not None
    maps = {k: fitted.values[k].reshape(before.maps[k].shape) for k in before.maps}
    frames, views = list(case.frames), list(fitted.views)
    starts: list[np.ndarray | None] = list(case.start.views)
    if case.kept is not None:
        frames.append(case.kept)
        views.append(kept_view(case, case.kept, fitted))
        starts.append(None)
    rows: dict[str, list[np.ndarray]] = {}
    figures: dict[str, Any] = {}
    size = case.frames[0].size
    with Viewer(case.model, size, settings.map_side, settings.device) as viewer:
        raw = Head(fitted.positions, maps)
        counts = viewer.counts(raw, case.frames, fitted.views)
        head = Head(fitted.positions, cleaned(maps, counts))
        figures["texels_filled"] = float((counts[counts > 0] < WELL_SEEN).mean())
        values = []
        for frame, view, start in zip(frames, views, starts, strict=True):
            shown = viewer.draw(head, frame, view)
            inside = shown.mask & frame.mask
            if not inside.any():
                raise DressiError(f"face: the head is not seen in frame '{frame.name}'")
            values.append(psnr(shown.color, frame.color, inside))
            first = None if start is None else viewer.draw(before, frame, start).color
            rows[frame.name] = sheet_row(frame, first, shown)
    figures["psnr_db"] = values[: len(case.frames)]
    if case.kept is not None:
        figures["psnr_kept_out_db"] = values[-1]
    save_scene(Path(settings.out) / "head.glb", head_scene(case.model, head))
    names = ("input", "start", "result", "shape", "albedo", "normal", "roughness")
    return contact_sheet(rows, columns=names), figures


def sheet_row(frame: Frame, start: np.ndarray | None, shown: Shown) -> list[np.ndarray]:
    """Return the pictures of a frame, cut to where the head is and made smaller."""
    columns = [
        frame.color,
        np.zeros_like(frame.color) if start is None else start,
        np.where(shown.mask[..., None], shown.color, 0.2 * frame.color),
        shown.shape,
        shown.albedo,
        shown.normal,
        np.repeat(shown.roughness[..., None], 3, axis=2),
    ]
    return [image[::2, ::2] for image in columns]


def conditions_of(figures: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return what is asked of the fit."""
    mm, start = figures["distance_mm"], figures["start_distance_mm"]
    px, kept = figures["landmark_true_px"], figures["psnr_kept_out_db"]
    mean = float(np.mean(figures["psnr_db"]))
    return [
        (f"mean distance to the scan's face at most {MEAN_MM:g} mm: {mm:.2f} mm", mm <= MEAN_MM),
        (f"at least {TIMES:g} times nearer than the start: {start:.2f} / {mm:.2f} mm",
         start >= TIMES * mm),
        (f"landmarks within {LANDMARK_PX:g} px of the true ones: {px:.2f} px", px <= LANDMARK_PX),
        (f"the frame kept out within {LESS_DB:g} dB of the others: {kept:.1f} and {mean:.1f} dB",
         kept >= mean - LESS_DB),
    ]  # fmt: skip


def ablation_conditions(figures: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return what depth and landmarks are good for, at the coarse level."""
    mm, px = "distance_mm", "landmark_true_px"
    both, depth = figures[f"coarse_{mm}"], figures[f"without_depth_{mm}"]
    marks, none = figures[f"coarse_{px}"], figures[f"without_landmarks_{px}"]
    return [
        (f"without depth farther from the scan: {depth:.2f} mm, with both {both:.2f} mm",
         depth > both),
        (f"without landmarks these are farther off: {none:.2f} px, with both {marks:.2f} px",
         none > marks),
    ]  # fmt: skip


def table_of(figures: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the table of the fits."""
    keys = ("distance_mm", "unaligned_mm", "landmark_true_px", "landmark_px")
    names = {
        "start_": "start",
        "": "result",
        "coarse_": "coarse",
        "without_depth_": "coarse, without depth",
        "without_landmarks_": "coarse, without landmarks",
    }
    rows: list[tuple[str, ...]] = [
        ("", "distance mm", "unaligned mm", "landmarks px", "noisy ones px")
    ]
    for name, label in names.items():
        if f"{name}landmark_px" in figures:
            cells = (f"{figures[name + k]:.2f}" if name + k in figures else "" for k in keys)
            rows.append((label, *cells))
    return rows
