"""R7: one device makes what another one makes. Forty scenes: pictures away from edges, coverage,
gradients.

In: devices of this machine, or one device and a file that another machine wrote. Out: rows for
``dressi bench reliability --only R7``. Where there is one device and no file, its passes are
compared with its dispatches.
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from dressi.apps.reliability.device_scenes import Drawing, draw_all, scene_names
from dressi.apps.reliability.row import Row, below, not_measured
from dressi.atomic import atomic_write
from dressi.engine import DressiAD
from dressi.errors import DeviceError, DressiError, LoadError
from dressi.kinds import Lowering
from dressi.packing import Options
from dressi.vk.device import list_devices
from dressi.vk.query import DeviceInfo

IMAGE, COVERAGE, GRADIENT = 1e-4, 1e-3, 1e-3
"""Allowed: the largest difference of a pixel away from edges, the share of pixels of a scene that
are covered on one device only, the relative L2 difference of a gradient."""
LEAST_AWAY = 0.25
"""Share of the pixels that must be away from edges: else too little was compared."""
SAME = 1e-5
"""Relative difference of sums of inputs, from other machines, that are the same scene."""
VERSION = 1
"""Of the file."""


@dataclass(frozen=True)
class Results:
    """label: device, driver and version of Vulkan. drawings: by name of the scene."""

    label: str
    drawings: Mapping[str, Drawing]

    @property
    def away(self) -> dict[str, np.ndarray]:
        """Return pixels that are not at an edge."""
        return {name: drawing.away for name, drawing in self.drawings.items()}


def label_of(info: DeviceInfo) -> str:
    """Return the name, driver and Vulkan version of a device as one line."""
    return f"{info.name}, {info.driver}, Vulkan {info.api_version}"


def results_of(
    device: str | None, small: bool, other: Results | None = None, lowering: Lowering = "auto"
) -> Results:
    """Return what a device draws of all scenes. other: whose pixels at edges are left out; None:
    its own. lowering: of ``Options``."""
    with DressiAD(device, Options(lowering=lowering)) as ad:
        how = {"graphics": ", passes", "compute": ", dispatches"}.get(lowering, "")
        away = None if other is None else other.away
        return Results(label_of(ad.device_info) + how, dict(draw_all(ad, small, away)))


# -- comparing


def compare(a: Results, b: Results) -> Iterator[Row]:
    """Yield the worst scene of each figure. Raises DressiError when the scenes are not the same."""
    image = coverage = gradient = 0.0
    n_pixels = n_away = n_gradients = 0
    for name, one in a.drawings.items():
        two = b.drawings[name]
        if not abs(one.inputs - two.inputs) <= SAME * abs(one.inputs):
            raise DressiError(f"bench: R7: scene '{name}' is another one on {b.label}")
        at = one.away
        n_pixels, n_away = n_pixels + at.size, n_away + int(at.sum())
        image = worse(image, np.abs(one.image - two.image)[at])
        coverage = worse(coverage, np.mean(one.mask != two.mask))
        for leaf, x in one.gradients.items():
            gradient = worse(gradient, relative(x, two.gradients[leaf]))
            n_gradients += 1
    if n_away < LEAST_AWAY * n_pixels:
        image = gradient = float("inf")
    pair = f"{a.label} against {b.label}"
    yield below(f"R7 away from edges, {pair}", image, IMAGE, n_away)
    yield below(f"R7 coverage, {pair}", coverage, COVERAGE, len(a.drawings))
    yield below(f"R7 gradients, {pair}", gradient, GRADIENT, n_gradients)


def worse(so_far: float, found: np.ndarray | np.floating | float) -> float:
    """Return the larger of the worst so far and of what was found; NaN counts as infinite."""
    largest = float(np.max(found, initial=0.0)) if np.size(found) else 0.0
    return max(so_far, largest if np.isfinite(largest) else float("inf"))


def relative(x: np.ndarray, y: np.ndarray) -> float:
    """Return the L2 difference over the larger norm; infinite where all numbers of both are 0."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    size = max(np.linalg.norm(x), np.linalg.norm(y))
    return float(np.linalg.norm(x - y) / size) if size > 0 else float("inf")


# -- files


def write(path: str | Path, results: Results) -> None:
    """Results as a NumPy file. Raises DressiError naming it when it cannot be written."""
    scenes = [[name, d.inputs, list(d.gradients)] for name, d in results.drawings.items()]
    about = {"version": VERSION, "label": results.label, "scenes": scenes}
    arrays: dict[str, Any] = {"about": np.array(json.dumps(about))}
    for k, d in enumerate(results.drawings.values()):
        arrays |= {f"{k}.image": d.image, f"{k}.mask": d.mask, f"{k}.away": d.away}
        arrays |= {f"{k}.gradient.{j}": g for j, g in enumerate(d.gradients.values())}
    data = io.BytesIO()
    np.savez_compressed(data, **arrays)
    try:
        atomic_write(path, data.getvalue())
    except OSError as error:
        raise DressiError(f"--results {path}: cannot be written: {error}") from None


def read(path: str | Path, small: bool) -> Results:
    """Return the results from a file. Raises LoadError for one that is none, or of other scenes."""
    try:
        # NumPy leaves a file open that is none of its own.
        with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            names = [name for name, *_ in about["scenes"]]
            if about["version"] != VERSION or names != scene_names(small):
                raise LoadError(
                    f"{path}: holds other scenes than this run draws\n"
                    "  hint: write it anew with this version of Dressi, with or without --smoke "
                    "as in this run",
                    str(path),
                )
            drawings = {}
            for k, (name, inputs, leaves) in enumerate(about["scenes"]):
                image, mask, away = (file[f"{k}.{part}"] for part in ("image", "mask", "away"))
                gradients = {leaf: file[f"{k}.gradient.{j}"] for j, leaf in enumerate(leaves)}
                drawings[name] = Drawing(image, mask, away, float(inputs), gradients)
            return Results(str(about["label"]), drawings)
    except _BROKEN as error:
        if isinstance(error, LoadError):
            raise
        raise LoadError(f"{path}: no results of R7: {error}", str(path)) from None


_BROKEN = (
    *(OSError, KeyError, TypeError, ValueError, AttributeError, EOFError, IndexError),
    *(zipfile.BadZipFile, zlib.error),
)
"""What NumPy raises for files of another kind and for those that were cut or damaged."""


# -- measuring


def measure(device: str | None, small: bool, file: str | None = None) -> Iterator[Row]:
    """Yield rows of this device and the file, of every pair of devices, or of passes and
    dispatches.

    device: None: every pair; else the pairs with this one. file: is written when it does not exist,
    else compared with.
    """
    if file is not None:
        yield from _with_file(device, small, file)
        return
    infos = list_devices()
    if len(infos) > 1:
        yield from _pairs(device, small, infos)
        return
    passes = results_of(device, small, lowering="graphics")
    yield from compare(passes, results_of(device, small, passes, "compute"))


def _with_file(device: str | None, small: bool, file: str) -> Iterator[Row]:
    if not Path(file).exists():
        made = results_of(device, small)
        write(file, made)
        yield not_measured(f"R7 {made.label}: written to {file}; compare with it on another device")
        return
    other = read(file, small)
    mine = results_of(device, small, other)
    print(f"R7: {file} was written by {other.label}\nR7: this is {mine.label}", file=sys.stderr)
    yield from compare(other, mine)


def _pairs(device: str | None, small: bool, infos: list[DeviceInfo]) -> Iterator[Row]:
    made: dict[int, Results] = {}
    chosen = None
    if device is not None:
        with DressiAD(device) as ad:
            chosen = ad.device_info.index
    for info in sorted(infos, key=lambda i: i.index != chosen):
        try:
            DressiAD(str(info.index)).close()
        except DeviceError as error:  # not one that Dressi can use
            yield not_measured(f"R7 {label_of(info)} not measured: {str(error).splitlines()[0]}")
            continue
        first = next(iter(made.values()), None)
        made[info.index] = results_of(str(info.index), small, first)
    for a, b in combinations(made, 2):
        if chosen in (None, a, b):
            yield from compare(made[a], made[b])
