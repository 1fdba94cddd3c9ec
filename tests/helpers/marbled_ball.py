"""Photos of a ball of marble, made by intersecting rays: no renderer has a part in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dressi.render.camera import look_at, perspective
from dressi.render.fit import GreyPhotos, grey_photos
from dressi.render.scene import Mesh, icosphere

Floats = npt.NDArray[np.float64]

SIZE = 160
WAVES = np.random.default_rng(4)
WAVE = WAVES.normal(size=(24, 3)) * 9.0
PHASE = WAVES.uniform(0.0, 2.0 * np.pi, 24)
LAMP = np.array([0.36, 0.48, 0.8])


def marbled(places: Floats) -> Floats:
    """Brightness of a solid texture, waves a tenth of a unit and more long, in [0.1, 0.9]."""
    return np.asarray(0.5 + 0.4 * np.tanh(np.sin(places @ WAVE.T + PHASE).sum(-1) / 4.0))


def cameras(n: int = 12) -> Floats:
    """n views around the y axis, from two heights."""
    found = []
    for k in range(n):
        turn, height = 2.0 * np.pi * k / n, 0.3 if k % 2 else -0.2
        eye = 4.0 * np.array([np.sin(turn), height, np.cos(turn)]) / np.hypot(1.0, height)
        view = look_at(eye, (0.0, 0.0, 0.0), (0.0, 1.0, 0.0))
        found.append(perspective(34.0, 1.0, 1.0, 8.0) @ view)
    return np.stack(found)


def ball_photos(
    matrices: Floats,
    contrast: float = 1.0,
    gain: npt.ArrayLike = 1.0,
    noise: float = 0.0,
    gloss: float = 0.0,
) -> tuple[Floats, Floats]:
    """Photos (n, H, W, 3) of the unit ball, and its masks, by intersecting rays. gloss: of a lamp
    in the direction LAMP, which the ball mirrors in a lobe 10 degrees wide."""
    at = (np.arange(SIZE) + 0.5) / SIZE * 2.0 - 1.0
    x, y = np.meshgrid(at, at)
    colour, cover = [], []
    for matrix in matrices:
        inverse = np.linalg.inv(matrix)
        ends = [
            np.stack([x, y, np.full_like(x, z), np.ones_like(x)], -1) @ inverse.T for z in (0, 1)
        ]
        near, far = (e[..., :3] / e[..., 3:] for e in ends)
        way = far - near
        way /= np.linalg.norm(way, axis=-1, keepdims=True)
        half = (near * way).sum(-1)
        square = half**2 - (near**2).sum(-1) + 1.0
        hit = square > 0.0
        place = near + (-half - np.sqrt(np.maximum(square, 0.0)))[..., None] * way
        value = 0.5 + contrast * (marbled(place) - 0.5)
        middle = LAMP - way
        middle /= np.linalg.norm(middle, axis=-1, keepdims=True)
        value += gloss * np.maximum((place * middle).sum(-1), 0.0) ** 60
        colour.append(np.where(hit, value, 0.0))
        cover.append(hit)
    images = np.stack(colour) * np.reshape(np.asarray(gain, float), (-1, 1, 1))
    images = images + np.random.default_rng(0).normal(0.0, max(noise, 1e-9), images.shape)
    masks = np.stack(cover)[..., None].astype(float)
    return np.repeat(images[..., None], 3, -1) * masks, masks


def photos(contrast: float = 1.0, noise: float = 0.004, n: int = 12) -> GreyPhotos:
    matrices = cameras(n)
    colour, masks = ball_photos(matrices, contrast, noise=noise)
    return grey_photos(colour, masks, matrices, spacing_px=1.5)


def with_bump(height: float) -> Mesh:
    """The ball with a bump of that height in front, 0.5 wide."""
    ball = icosphere(4)
    away = np.linalg.norm(ball.positions - [0.0, 0.0, 1.0], axis=1)
    bump = height * np.clip(1.5 - away / 0.5, 0.0, 1.0)
    return replace(ball, positions=(ball.positions * (1.0 + bump[:, None])).astype(np.float32))
