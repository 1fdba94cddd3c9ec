"""``dressi fit --each-out``: every photo is kept out once, in pairs from opposite halves of them.

In: the options of a fit. Out: a fit per pair, in folders of its own, and their figures beside those
of the visual hulls that they began with, as a table and ``each_out.json``. Pairs run one after
another, or side by side on workers of ``dressi.many``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from dressi.apps.photo_files import read_photos
from dressi.apps.photos import PhotoOptions, run_fit
from dressi.apps.report import check_outputs, print_table, write_json
from dressi.errors import GraphError
from dressi.many import Context, Progress, map_fits

FIGURES = ("heldout_iou", "heldout_hull_iou", "heldout_psnr_db", "iou", "flipped_faces", "genus")


def pairs_out(n_photos: int) -> list[tuple[int, int]]:
    """Return pairs of photos in which each of n is once, half a list apart; of an odd number the
    last one is paired with one that is in another pair, too. Raises GraphError for fewer than 4."""
    if n_photos < 4:
        raise GraphError(f"--each-out needs 4 photos at least, got {n_photos}")
    half = n_photos // 2
    odd = [(half - 1, n_photos - 1)] if n_photos % 2 else []
    return [(k, k + half) for k in range(half)] + odd


def run_each_out(options: PhotoOptions) -> dict[str, Any]:
    """Run a fit per pair of photos; write their files and return the figures of all. Raises
    LoadError, GraphError, DeviceError."""
    if options.holdout is not None:
        raise GraphError("--each-out keeps every photo out: --holdout has no meaning beside it")
    if options.workers and options.live is not None:
        raise GraphError("--live shows fits of this process: leave out --workers")
    photos = read_photos(options.images, options.cameras)[: options.views]
    pairs = pairs_out(len(photos))
    check_outputs(options.out, options.json)
    one = replace(options, each_out=False, workers=0, json=None)
    folders = [str(Path(options.out) / "out_{}_{}".format(*pair)) for pair in pairs]
    ones = [replace(one, holdout=p, out=f) for p, f in zip(pairs, folders, strict=True)]
    found = on_workers(ones, options) if options.workers else [run_fit(one) for one in ones]
    rows = [
        {"photos": list(pair), **{name: figures[name] for name in FIGURES}}
        for pair, figures in zip(pairs, found, strict=True)
    ]
    result = {"pairs": rows, **summary(rows)}
    write_json(Path(options.out) / "each_out.json", result)
    if options.json:
        write_json(options.json, result)
    table = {
        "{} and {}".format(*row["photos"]): ", ".join(
            f"{name} {row[name]:.4g}" for name in FIGURES if row[name] is not None
        )
        for row in rows
    }
    print_table("dressi fit (each photo out once)", {**table, **summary(rows)})
    return result


def on_workers(ones: Sequence[PhotoOptions], options: PhotoOptions) -> list[dict[str, Any]]:
    """Return the figures of fits, in order, made by ``options.workers`` processes. Raises
    DressiError with the traceback of a fit that failed."""
    with tqdm(total=len(ones), desc="pairs", unit="fit") as bar:

        def show(now: Progress) -> None:
            bar.n = now.done
            bar.refresh()

        devices = None if options.device is None else [options.device]
        run = map_fits(
            fit_pair, map(asdict, ones), workers=options.workers, devices=devices, progress=show
        )
    return [dict(r.figures) for r in run.require_all()]


def fit_pair(item: dict[str, Any], context: Context) -> dict[str, Any]:
    """Return the figures of one fit, which prints to log.txt in its folder. item: its options as
    plain data."""
    lists = {k: tuple(v) for k, v in item.items() if isinstance(v, list)}
    log = Path(item["out"]) / "log.txt"  # all that several at a time would say is not to be read
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        open(log, "w", encoding="utf-8") as said,
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
    ):
        found = run_fit(PhotoOptions(**{**item, **lists, "device": context.device}))
    return {name: found[name] for name in FIGURES}


def summary(rows: list[dict[str, Any]]) -> dict[str, float | None]:
    """Return the mean and the least IoU of photos kept out, and the least of it above that of the
    visual hull; None where no fit began with a hull."""
    ious = [row["heldout_iou"] for row in rows]
    above = [
        row["heldout_iou"] - row["heldout_hull_iou"]
        for row in rows
        if row["heldout_hull_iou"] is not None
    ]
    return {
        "mean_heldout_iou": float(np.mean(ious)),
        "least_heldout_iou": min(ious),
        "least_above_hull": min(above) if above else None,
    }
