"""``dressi fit --each-out``: every photo is kept out once, in pairs from opposite halves of them.

In: the options of a fit. Out: a fit per pair, in folders of its own, and their figures beside those
of the visual hulls that they began with, as a table and ``each_out.json``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dressi.apps.photo_files import read_photos
from dressi.apps.photos import PhotoOptions, run_fit
from dressi.apps.report import check_outputs, print_table, write_json
from dressi.errors import GraphError

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
    photos = read_photos(options.images, options.cameras)[: options.views]
    pairs = pairs_out(len(photos))
    check_outputs(options.out, options.json)
    rows = []
    for pair in pairs:
        folder = Path(options.out) / "out_{}_{}".format(*pair)
        one = replace(options, holdout=pair, each_out=False, out=str(folder), json=None)
        found = run_fit(one)
        rows.append({"photos": list(pair), **{name: found[name] for name in FIGURES}})
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
