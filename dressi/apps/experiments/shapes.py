"""``dressi experiment shapes``: objects of many kinds, reconstructed with one set of defaults.

Each object is drawn, reconstructed and measured as ``dressi demo --target`` does it, with the same
settings for all. The result of an object is kept in the folder and taken from there by the next
run with the same settings, so that a run that was stopped goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dressi.apps.experiments import common
from dressi.apps.experiments.common import Result, option
from dressi.apps.experiments.gallery import objects
from dressi.apps.made_by import command_line
from dressi.apps.page import write_report
from dressi.apps.reconstruct.command import (
    ITERATIONS,
    TEXTURE_ITERATIONS,
    VIEWS,
    Outcome,
    TargetOptions,
    reconstruct_target,
    rows_of,
    sentences,
)
from dressi.apps.reconstruct.pipeline import WITHOUT
from dressi.apps.report import write_json
from dressi.errors import DressiError
from dressi.render.io import contact_sheet
from dressi.render.io.images import read_image, write_png

HELP = "a gallery of objects reconstructed with one set of defaults: distance, normals, topology"


@dataclass(frozen=True)
class Settings(common.Settings):
    """Options of the experiment."""

    size: int = option(256, "pixels on a side of a view", smoke=32, least=16)
    views: int = option(VIEWS, "views that are fitted", smoke=6, least=1)
    iterations: int = option(ITERATIONS, "steps of the shape", smoke=6, least=1)
    texture_iterations: int = option(
        TEXTURE_ITERATIONS, "steps of shape and texture together", smoke=2, least=0
    )
    objects: tuple[str, ...] = option(
        ("all",), "names of objects, or all", smoke=("torus", "notched_box")
    )
    without: tuple[str, ...] = option(("nothing",), f"what to leave out: {', '.join(WITHOUT)}")
    quick: bool = option(
        False, "pictures of half the size and half the steps, in a third of the time"
    )


LIMITS = {
    # figure: (median at most or at least, the worst, whether less is better), of the defaults
    "chamfer_percent": (0.4, 1.0, True),
    "f_score": (0.85, 0.6, False),
    "normal_deg": (12.0, 20.0, True),
    "flipped_faces": (0, 0, True),
    "intersecting_faces": (0, 0, True),
    "heldout_psnr_db": (27.0, 22.0, False),
}
"""What is asked for of 24 views of 256 x 256 pixels."""

COLUMNS = {
    "chamfer_percent": "Chamfer %",
    "f_score": "F-score",
    "normal_deg": "normals deg",
    "flipped_faces": "flipped",
    "intersecting_faces": "crossing",
    "target_genus": "genus of target",
    "genus": "genus",
    "heldout_iou": "IoU",
    "heldout_psnr_db": "PSNR dB",
    "heldout_ssim": "SSIM",
    "faces": "faces",
    "fit_processor_s": "processor s",
}
"""Of the table; IoU, PSNR and SSIM are those of views that were not fitted."""


def run(settings: Settings) -> Result:
    """Reconstruct each object; return its figures, pictures and a table."""
    assert settings.out is not None
    known = objects()
    names = list(known) if settings.objects == ("all",) else list(settings.objects)
    for name in names:
        if name not in known:
            raise DressiError(f"shapes: there is no object '{name}'; known: {', '.join(known)}")
    options = options_of(settings)
    folder = Path(settings.out) / "objects"
    all_figures: dict[str, dict[str, Any]] = {}
    for name in names:
        kept = kept_figures(folder, name, options)
        if kept is None:
            outcome = reconstruct_target(known[name](), options)
            kept = keep(folder, name, options, outcome)
        all_figures[name] = kept
    rows = {name: _row(folder, name) for name in names}
    sheet = _stacked([rows[name] for name in names])
    figures = {"objects": all_figures, **summary(all_figures)}
    table = [["object", *COLUMNS.values()]]
    for name, one in all_figures.items():
        table.append([name, *(f"{one[c]:.4g}" for c in COLUMNS)])
    write_report(
        settings.out,
        "dressi experiment shapes",
        command_line(),
        figures={"objects": {"": table[0][1:], **{row[0]: row[1:] for row in table[1:]}}},
        pictures=rows,
        notes=[f"{name}: {s}" for name, one in all_figures.items() for s in one["said"]],
    )
    # Conditions are about the defaults, where nothing is left out.
    stated = conditions(all_figures) if not options.without else []
    return Result(
        figures,
        {"shapes": sheet},
        conditions=stated,
        tables=[table],
        files=["objects", "report.html"],
    )


def options_of(settings: Settings) -> TargetOptions:
    """Return the options of each reconstruction. Raises DressiError for what cannot be left out."""
    without = frozenset(settings.without) - {"nothing"}
    if without - set(WITHOUT):
        raise DressiError(
            f"--without {' '.join(sorted(without))}: known are {', '.join(WITHOUT)}, nothing"
        )
    part = 2 if settings.quick else 1
    return TargetOptions(
        settings.views,
        max(settings.size // part, 16),
        max(settings.iterations // part, 1),
        settings.texture_iterations // part,
        device=settings.device,
        without=without,
    )


def _asked(options: TargetOptions) -> dict[str, Any]:
    """Return what the figures of an object depend on, as JSON holds it."""
    return {**asdict(options), "without": sorted(options.without)}


def kept_figures(folder: Path, name: str, options: TargetOptions) -> dict[str, Any] | None:
    """Return the figures that an earlier run with the same options kept, or None."""
    try:
        data = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        same = data["options"] == _asked(options) and (folder / f"{name}.png").is_file()
        return dict(data["figures"]) if same else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(folder: Path, name: str, options: TargetOptions, outcome: Outcome) -> dict[str, Any]:
    """Write picture and figures of an object, the latter last; return the figures."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = rows_of(outcome.held, 4)
    write_png(folder / f"{name}.png", contact_sheet(rows))
    figures = {**outcome.figures, "said": list(sentences(outcome))}
    write_json(folder / f"{name}.json", {"options": _asked(options), "figures": figures})
    return figures


def _row(folder: Path, name: str) -> np.ndarray:
    return read_image(folder / f"{name}.png")[..., :3]


def _stacked(pictures: list[np.ndarray]) -> np.ndarray:
    """Return pictures one below the other, on black."""
    wide = max(p.shape[1] for p in pictures)
    return np.concatenate([np.pad(p, ((0, 4), (0, wide - p.shape[1]), (0, 0))) for p in pictures])


def summary(figures: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return the median and the worst of each figure that is asked for, and sums of costs."""
    out: dict[str, float] = {}
    for name, (_, _, less) in LIMITS.items():
        values = [float(one[name]) for one in figures.values()]
        out[f"{name}_median"] = float(np.median(values))
        out[f"{name}_worst"] = max(values) if less else min(values)
    out["fit_processor_s_most"] = max(float(one["fit_processor_s"]) for one in figures.values())
    return out


def conditions(figures: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, bool]]:
    """Return what is asked for of the medians, of the worst object, and of the topology."""
    found, out = summary(figures), []
    for name, (middle, worst, less) in LIMITS.items():
        for what, limit in (("median", middle), ("worst", worst)):
            value = found[f"{name}_{what}"]
            holds = value <= limit if less else value >= limit
            sign = "<=" if less else ">="
            out.append((f"{name}, {what}: {value:.4g} {sign} {limit:g}", holds))
    pierced = {k: one for k, one in figures.items() if one["target_genus"] > 0}
    right = [k for k, one in pierced.items() if one["genus"] == one["target_genus"]]
    said = f"the genus is right where there are holes ({len(right)} of {len(pierced)})"
    return [*out, (said, len(right) == len(pierced))]
