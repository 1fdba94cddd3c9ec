"""Photos of a torus whose silhouettes are known: rays are marched by the distance to it."""

from __future__ import annotations

import functools

import numpy as np

from dressi.render.io import srgb_to_linear

SIZE = (96, 128)
K = np.array([[160.0, 0, 63.5], [0, 160.0, 47.5], [0, 0, 1]])
N_CELLS = 56
BOX = np.array([[-1.1, -0.5, -1.1], [1.1, 0.5, 1.1]])
N = 9

Cameras = tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]


def cameras() -> Cameras:
    """On a circle that tips: from above to the side of what lies in the plane y = 0."""
    rotations = []
    for i in range(N):
        a, tip = 2 * np.pi * i / N, np.radians((20, 45, 70)[i % 3])
        turn = np.array([[np.cos(a), 0, -np.sin(a)], [0, 1, 0], [np.sin(a), 0, np.cos(a)]])
        nod = np.array([[1, 0, 0], [0, np.cos(tip), -np.sin(tip)], [0, np.sin(tip), np.cos(tip)]])
        rotations.append(nod @ turn)
    return [K] * N, rotations, [np.array([0.0, 0.0, 4.0])] * N


def torus(radius: float, tube: float) -> list[np.ndarray]:
    """(H, W) bool, what each camera sees of a torus around the y axis, whose photos were shot."""
    return [s.copy() for s in _torus(radius, tube)]


@functools.cache
def _torus(radius: float, tube: float) -> list[np.ndarray]:
    """Rays are marched by the distance to the torus."""
    y, x = np.mgrid[: SIZE[0], : SIZE[1]]
    ray = np.stack([(x - 63.5) / 160, (y - 47.5) / 160, np.ones(SIZE)], -1).reshape(-1, 3)
    ray /= np.linalg.norm(ray, axis=1, keepdims=True)
    out = []
    for r, t in zip(*cameras()[1:], strict=True):
        origin, along = -t @ r, ray @ r
        depth = np.full(len(ray), 2.5)
        for _ in range(60):
            p = origin + along * depth[:, None]
            away = np.hypot(np.hypot(p[:, 0], p[:, 2]) - radius, p[:, 1]) - tube
            depth += np.maximum(away, 0.0)
        out.append(((away < 1e-3) & (depth < 6.0)).reshape(SIZE))
    return out


def pictures(shapes: list[np.ndarray], background: float = 0.0, shape: float = 0.8) -> np.ndarray:
    """(n, H, W, 3) linear, of sRGB values."""
    values = np.where(np.stack(shapes), shape, background)
    return srgb_to_linear(np.repeat(values[..., None], 3, -1).astype(np.float32))
