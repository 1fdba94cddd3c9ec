"""Diffusion of skin written apart, in float64 with loops: the published equations, no graph."""

from __future__ import annotations

import numpy as np

PROFILE = [(0.1, 0.0484), (0.118, 0.187), (0.113, 0.567), (0.358, 1.99), (0.078, 7.41)]


def gaussian(variance: float, r: float, falloff: np.ndarray) -> np.ndarray:
    x = r / (0.001 + falloff)
    return np.asarray(np.exp(-x * x / (2.0 * variance)) / (2.0 * np.pi * variance))


def kernel(strength: object, falloff: object, taps: int) -> tuple[np.ndarray, np.ndarray]:
    """(offsets, weights (taps, 3)) in ascending order."""
    s, f = np.asarray(strength, float), np.asarray(falloff, float)
    reach = 3.0 if taps > 20 else 2.0
    o = np.linspace(-reach, reach, taps)
    offsets = np.sign(o) * o**2 / reach**2 * reach
    t = np.zeros((taps, 3))
    for i, x in enumerate(offsets):
        left = abs(x - offsets[i - 1]) if i > 0 else 0.0
        right = abs(x - offsets[i + 1]) if i < taps - 1 else 0.0
        t[i] = (left + right) / 2.0 * sum(w * gaussian(v, x, f) for w, v in PROFILE)
    t /= t.sum(axis=0)
    out = s * t
    out[taps // 2] = 1.0 - s + s * t[taps // 2]
    return offsets, out


def bilinear(image: np.ndarray, x: float, y: float) -> np.ndarray:
    """image (H, W, ...) at a place in pixels, 0 beyond it."""
    h, w = image.shape[:2]
    out = np.zeros(image.shape[2:])
    i, j = int(np.floor(x - 0.5)), int(np.floor(y - 0.5))
    fx, fy = x - 0.5 - i, y - 0.5 - j
    for dx, dy, part in ((0, 0, (1 - fx) * (1 - fy)), (1, 0, fx * (1 - fy)),
                         (0, 1, (1 - fx) * fy), (1, 1, fx * fy)):  # fmt: skip
        if 0 <= i + dx < w and 0 <= j + dy < h:
            out = out + part * image[j + dy, i + dx]
    return out


def smoothstep(low: float, high: float, x: float) -> float:
    t = min(max((x - low) / (high - low), 0.0), 1.0)
    return t * t * (3.0 - 2.0 * t)


def diffused(
    light: np.ndarray,
    depth: np.ndarray,
    mask: np.ndarray,
    lens: tuple[float, float],
    width: float,
    offsets: np.ndarray,
    weights: np.ndarray,
) -> np.ndarray:
    """(H, W, 3) spread in x, then in y. lens: 1 / tan of half the field of view in x and y."""
    h, w = mask.shape
    out = light * mask[..., None]
    for axis in (0, 1):
        source, out = out, np.zeros_like(light)
        for y in range(h):
            for x in range(w):
                if mask[y, x] == 0.0:
                    continue
                total, norm = np.zeros(3), np.zeros(3)
                # In halves of the picture, so by half of its size in pixels.
                step = width * lens[axis] / depth[y, x] / 3.0 * (w, h)[axis] / 2.0
                for o, weight in zip(offsets, weights, strict=True):
                    px, py = x + 0.5, y + 0.5
                    if axis == 0:
                        px += o * step
                    else:
                        py += o * step
                    cover = float(bilinear(mask, px, py))
                    if cover == 0.0:
                        continue
                    there = float(bilinear(depth * mask, px, py)) / cover
                    keep = 1.0 - smoothstep(1.0, 2.0, abs(there - depth[y, x]) / width)
                    total += weight * keep * bilinear(source, px, py)
                    norm += weight * keep * cover
                out[y, x] = total / norm
    return out
