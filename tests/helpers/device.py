"""Many outputs in one build: compiling is what costs time in tests on a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dressi import DressiAD, Variable


def run_many(
    ad: DressiAD, outputs: Sequence[Variable], feeds: Mapping[Variable, Any]
) -> list[np.ndarray]:
    """Values of the outputs, (layers, H, W, *tail), from one plan."""
    for v, data in feeds.items():
        ad.send_img(v, data)
    return [_full(a, v) for a, v in zip(ad.recv_imgs(outputs), outputs, strict=True)]


def _full(a: np.ndarray, v: Variable) -> np.ndarray:
    return np.asarray(a, np.float64).reshape((v.layers, v.size[1], v.size[0], *v.vtype.tail))


def worst(got: np.ndarray, want: np.ndarray) -> float:
    """Largest error of an entry, relative to it or to 1/100 of the largest (for sums that nearly
    cancel).
    Where everything cancels to less than float32 can tell from 0, the absolute error."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if not np.isfinite(got).all():
        return float("inf")
    scale = np.abs(want) + 1e-2 * np.abs(want).max(initial=0.0)
    off = np.abs(got - want)
    return float((off / np.where(scale > 1e-9, scale, 1.0)).max(initial=0.0))
