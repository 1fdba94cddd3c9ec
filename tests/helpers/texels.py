"""Texture sampling texel by texel with Python numbers: what F.texture is tested against."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def wrapped(wrap: str, i: int, n: int) -> int | None:
    """Texel number that i stands for, None beyond a border: walks step by step."""
    if wrap == "border":
        return i if 0 <= i < n else None
    if wrap == "clamp":
        return 0 if i < 0 else n - 1 if i >= n else i
    if wrap == "repeat":
        while i < 0:
            i += n
        while i >= n:
            i -= n
        return i
    while not 0 <= i < n:
        i = -1 - i if i < 0 else 2 * n - 1 - i
    return i


def sampled(
    image: np.ndarray, u: float, v: float, wraps: Sequence[str], border: np.ndarray, linear: bool
) -> np.ndarray:
    """One sample of image (H, W, C)."""
    h, w, _ = image.shape

    def texel(x: int, y: int) -> np.ndarray:
        i, j = wrapped(wraps[0], x, w), wrapped(wraps[1], y, h)
        return border if i is None or j is None else image[j, i]

    if not linear:
        return texel(math.floor(u * w), math.floor(v * h))
    x, y = u * w - 0.5, v * h - 0.5
    i, j = math.floor(x), math.floor(y)
    out = np.zeros(image.shape[-1])
    for dx in (0, 1):
        for dy in (0, 1):
            weight = (1 - abs(x - i - dx)) * (1 - abs(y - j - dy))
            out = out + weight * texel(i + dx, j + dy)
    return out
