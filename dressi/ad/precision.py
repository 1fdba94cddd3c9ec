"""Warnings about numbers that float32 cannot hold well, or that are likely not meant, where the
user passes them.

In: arrays as users give them. Out: a DressiWarning, or nothing.
"""

from __future__ import annotations

import numpy as np

from dressi.ad.graph import Variable
from dressi.ad.vtype import FLOAT, VEC3, VEC4
from dressi.errors import warn

FAR_EXTENTS = 1000.0
"""Distance from the origin, in extents, from which on products with a matrix in float32 are off by
1e-4 of the extent: a tenth of a pixel in a picture of 1000."""

MIN_FAR = 100.0
"""Tables whose numbers are smaller are taken for colours, normals or offsets, not positions."""

MAX_LOSS = 1e-4
"""Fraction of the extent that rounding to float32 may cost without a warning."""


def say_far(v: Variable, array: np.ndarray) -> None:
    """Warn where a VEC3 table @ (N, 1) holds points so far from the origin that float32 loses what
    a picture of them shows. Takes one pass over the array."""
    if v.vtype is not VEC3 or v.size[1] != 1 or v.size[0] < 3:
        return
    points = np.asarray(array).reshape(-1, 3)
    low, high = points.min(axis=0), points.max(axis=0)
    extent, far = float((high - low).max()), float(max(high.max(), -low.min()))
    if far >= MIN_FAR and far > FAR_EXTENTS * extent > 0.0:
        warn(
            f"{v.label()}: points {far:.4g} from the origin and {extent:.4g} apart: in float32 "
            f"matrices move them by up to {far * 2.0**-23:.2g}\n"
            "  hint: dressi.render.camera.recentred"
        )


LEAST_BYTE, LEAST_LEVELS = 32, 16
"""Whole numbers up to this, or of fewer values, are no 8-bit photo: lamps of a made environment,
labels. 255 is."""

SAMPLE = 997
"""Numbers that are looked at before a whole image is: a prime, so that they lie all over it."""


def say_bytes(v: Variable, array: np.ndarray) -> None:
    """Warn where a float Variable gets the integers of an 8 or 16-bit image. 0 and 1 are a mask.
    Looks at the numbers of such arrays only."""
    if array.dtype not in (np.uint8, np.uint16) or not (array.size and array.max() > 1):
        return
    _say_bytes(v, str(array.dtype), int(array.max()), np.iinfo(array.dtype).max)


def _say_bytes(v: Variable, kind: str, high: int, top: int) -> None:
    warn(
        f"{v.label()}: {kind} is taken as it is, so up to {high}; colours are linear, in [0, 1]\n"
        f"  hint: dressi.render.io.srgb_to_linear(image / {top}.0), or read_image of the file; "
        f"masks image / {top}.0"
    )


def say_levels(v: Variable, array: np.ndarray) -> None:
    """Warn where a VEC3 or VEC4 image holds the levels of an 8-bit photo, as floats or integers:
    whole numbers in [0, 255], of many values; and a FLOAT image those of a mask, up to 255. Looks
    at a few numbers first."""
    if v.vtype not in (FLOAT, VEC3, VEC4) or 1 in v.size or not holds_levels(array):
        return
    if array.max() == 255 or v.vtype is not FLOAT:
        _say_bytes(v, "a picture of whole numbers", int(array.max()), 255)


def holds_levels(array: np.ndarray) -> bool:
    """Whether numbers are the levels of an 8-bit picture: whole, in [0, 255], of many values."""
    few = array.reshape(-1)[:: max(array.size // SAMPLE, 1)]
    if (few != np.rint(few)).any():
        return False
    low, high = array.min(), array.max()
    if low < 0 or not LEAST_BYTE <= high <= 255 or (array != np.rint(array)).any():
        return False
    n_levels = len(np.unique(array))
    if n_levels == array.size == high - low + 1:
        return False  # numbers that count
    return bool(high == 255 or n_levels >= LEAST_LEVELS)


def say_rounded(what: str, given: np.ndarray) -> None:
    """Warn where float32 loses more than 1e-4 of the extent of positions (N, 3) in float64."""
    if given.dtype != np.float64 or given.ndim != 2 or given.size == 0:
        return
    with np.errstate(over="ignore", invalid="ignore"):
        loss = float(np.abs(given - given.astype(np.float32)).max())
        extent = float(np.ptp(given, axis=0).max())
    if np.isfinite([loss, extent]).all() and loss > MAX_LOSS * extent > 0.0:
        far = float(np.abs(given).max())
        warn(
            f"{what}: float32 moves positions {far:.4g} from the origin by up to {loss:.2g}; they "
            f"are {extent:.4g} apart\n  hint: dressi.render.camera.recentred, or the place in the "
            "matrix of a node"
        )
