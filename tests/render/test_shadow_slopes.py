"""Slopes of a shadow on the ground against the closed form: a square's shadow is a polygon, and
what it hides of a smooth weight is an integral in float64."""

from __future__ import annotations

import numpy as np
import pytest

from dressi import DressiAD, F, Variable
from dressi.ad.vtype import FLOAT, IVEC3, VEC3
from dressi.render.shading import (
    build_shadow_map,
    directional_matrix,
    shadow_visibility,
    spot_matrix,
)

pytestmark = pytest.mark.gpu

HALF, N = 2.3, 129
FLOOR = np.array([(-2.5, 0, -2.5), (2.5, 0, -2.5), (2.5, 0, 2.5), (-2.5, 0, 2.5)])
FACES = np.array([(0, 2, 1), (0, 3, 2), (4, 6, 5), (4, 7, 6)])
NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)


def weight(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    return np.asarray(1 + 0.6 * np.sin(1.3 * x + 0.4) * np.cos(0.9 * z - 0.3) + 0.5 * x - 0.3 * z)


def hidden(corners: np.ndarray, light: np.ndarray, spot: bool) -> float:
    """Minus the integral of the weight over the shadow of a convex quad on y = 0."""
    if spot:
        t = light[1] / (light[1] - corners[:, 1])
        on_floor = light + (corners - light) * t[:, None]
    else:
        on_floor = corners - light * (corners[:, 1] / light[1])[:, None]
    a, b, c, d = on_floor[:, [0, 2]]
    u, w = (NODES + 1) / 2, WEIGHTS / 2
    total = 0.0
    for p, q, s in ((a, b, c), (a, c, d)):
        e, f = q - p, s - q
        at = p + u[:, None, None] * e + u[:, None, None] * u[None, :, None] * f
        area2 = abs(e[0] * f[1] - e[1] * f[0])
        total += area2 * (w[:, None] * w * u[:, None] * weight(at[..., 0], at[..., 1])).sum()
    return -total


def differences(corners: np.ndarray, light: np.ndarray, spot: bool) -> tuple[np.ndarray, ...]:
    """Slopes to the light and to the corners, central, in float64."""
    h, out = 1e-4, []
    for k, x in enumerate((light, corners)):
        slope = np.zeros(x.size)
        for i in range(x.size):
            ends = []
            for s in (h, -h):
                moved = x.copy()
                moved.flat[i] += s
                ends.append(hidden(*((corners, moved) if k == 0 else (moved, light)), spot))
            slope[i] = (ends[0] - ends[1]) / (2 * h)
        out.append(slope.reshape(x.shape))
    return tuple(out)


def random_scene(seed: int, spot: bool) -> tuple[np.ndarray, np.ndarray]:
    """A tilted rectangle above the ground, and the light's position or direction."""
    rng = np.random.default_rng(seed)
    a, h = rng.uniform(0, np.pi), rng.uniform(0.3, 0.6, 2)
    c = np.array([rng.uniform(-0.3, 0.3), rng.uniform(0.7, 1.2), rng.uniform(-0.3, 0.3)])
    u = h[0] * np.array([np.cos(a), rng.uniform(-0.2, 0.2), np.sin(a)])
    v = h[1] * np.array([-np.sin(a), rng.uniform(-0.2, 0.2), np.cos(a)])
    corners = np.stack([c - u - v, c + u - v, c + u + v, c - u + v])
    if spot:
        light = np.array([rng.uniform(-0.6, 0.6), rng.uniform(2.6, 3.4), rng.uniform(-0.6, 0.6)])
    else:
        light = np.array([rng.uniform(-0.3, 0.3), -1.0, rng.uniform(-0.3, 0.3)])
    return np.float32(corners).astype(float), np.float32(light).astype(float)


def slopes(
    ad: DressiAD, spot: bool, r: float, seeds: int
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Light and corners: of the product, and of the closed form. The floor is in the map too."""
    g = (np.arange(N) + 0.5) / N * 2 * HALF - HALF
    x, z = (a.ravel() for a in np.meshgrid(g, g))
    points = np.stack([x, 0 * x, z], -1)
    pos = Variable(VEC3, (8, 1), requires_grad=True, name="pos")
    light = Variable(VEC3, requires_grad=True, name="light")
    faces, at = Variable(IVEC3, (4, 1)), Variable(VEC3, (N * N, 1))
    weights = Variable(FLOAT, (N * N, 1))
    if spot:
        matrix, away = spot_matrix(light, (0.0, -1.0, 0.0), 0.85, 0.5, 6.0), light - at
    else:
        matrix, away = directional_matrix(light, (0.0, 0.4, 0.0), 3.0), -light
    shadow = build_shadow_map(pos, faces, matrix, (256, 256), r)
    visible = shadow_visibility(shadow, at, F.constant((0.0, 1.0, 0.0)), F.normalize(away))
    loss = F.sum(visible * weights)
    ad.send_img(faces, FACES)
    ad.send_img(at, points)
    ad.send_img(weights, weight(x, z)[:, None] * (2 * HALF / N) ** 2)
    out = []
    for seed in range(seeds):
        corners, where = random_scene(seed, spot)
        ad.send_img(pos, np.concatenate([corners, FLOOR]))
        ad.send_img(light, where)
        if seed == 0:
            ad.set_loss_var(loss)
        got = ad.recv_grad(light).reshape(3), ad.recv_grad(pos).reshape(8, 3)[:4]
        out.append((*got, *differences(corners, where, spot)))
    return out


@pytest.mark.parametrize("spot", [True, False], ids=["spot", "sun"])
def test_a_soft_map_gives_the_slope_of_the_shadow(ad: DressiAD, spot: bool) -> None:
    """Within 10 % in the median of ten scenes; the sign is right in each."""
    off, turned = [], []
    for light, corners, true_light, true_corners in slopes(ad, spot, 0.03, 10):
        off.append(
            [
                np.linalg.norm(a - b) / np.linalg.norm(b)
                for a, b in ((light, true_light), (corners, true_corners))
            ]
        )
        turned.append(light @ true_light / np.linalg.norm(light) / np.linalg.norm(true_light))
    assert (np.median(off, 0) < (0.1, 0.06)).all(), np.round(off, 3)
    assert np.max(off) < 0.3, np.round(off, 3)
    assert min(turned) > 0.95


def test_a_hard_map_has_no_slope_to_the_light(ad: DressiAD) -> None:
    """Its outline has none, so the way of the receiver over the map would be half of a slope."""
    for light, corners, true_light, _ in slopes(ad, True, 0.0, 2):
        assert np.abs(light).max() < 1e-3 * np.abs(true_light).max()
        assert np.abs(corners).max() < 1e-3
