"""A sky with a formula, and lighting integrals of it by brute force in float64.

Written from the rendering equation, not from the code under test: light directions are drawn over
the hemisphere, half vectors for GGX by its own density (Karis 2013), with Hammersley points.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dressi import F, Variable

Sky = Callable[[np.ndarray], np.ndarray]

SUNS = (
    ((0.3, 0.8, -0.5), 12.0, (4.0, 3.0, 1.5)),
    ((-0.9, 0.1, 0.2), 5.0, (0.2, 1.5, 2.0)),
    ((0.4, -0.6, 0.7), 30.0, (2.0, 0.1, 2.5)),
)


def sky(d: np.ndarray) -> np.ndarray:
    """Radiance (..., 3): a gradient from the horizon up, and three soft suns."""
    out = 0.5 + 0.3 * d[..., 1:2] * np.array([0.2, 0.5, 1.0])
    for c, sharpness, color in SUNS:
        c = np.array(c) / np.linalg.norm(c)
        out = out + np.exp(sharpness * (d @ c - 1))[..., None] * color
    return np.asarray(out)


def hammersley(n: int) -> tuple[np.ndarray, np.ndarray]:
    i = np.arange(n, dtype=np.uint64)
    bits = sum(((i >> np.uint64(k)) & np.uint64(1)) << np.uint64(31 - k) for k in range(32))
    return (np.arange(n) + 0.5) / n, np.asarray(bits, np.float64) / 2**32 + 0.5 / n


def frame(n: np.ndarray) -> np.ndarray:
    """(..., 3, 3): two tangents and the normal, as rows."""
    up = np.where(np.abs(n[..., 1:2]) < 0.9, (0.0, 1.0, 0.0), (1.0, 0.0, 0.0))
    t = np.cross(up, n)
    t /= np.linalg.norm(t, axis=-1, keepdims=True)
    return np.stack([t, np.cross(n, t), n], -2)


def half_vectors(alpha: float, n: int) -> np.ndarray:
    """(n, 3) in the frame of the normal, with density D(h) (n . h)."""
    u, v = hammersley(n)
    cosine = np.sqrt((1 - u) / (1 + (alpha**2 - 1) * u))
    sine = np.sqrt(1 - cosine**2)
    return np.stack([sine * np.cos(2 * np.pi * v), sine * np.sin(2 * np.pi * v), cosine], -1)


def prefiltered(light: Sky, r: np.ndarray, roughness: float, samples: int = 4096) -> np.ndarray:
    """Karis's sum with n = v = r: sum L(l) (n . l) / sum (n . l)."""
    h = half_vectors(roughness**2, samples)
    local = 2 * h[:, 2:] * h - (0, 0, 1)
    weight = np.maximum(local[:, 2], 0)
    d = np.einsum("sk,...kj->...sj", local, frame(r))
    return np.einsum("...sc,s->...c", light(d), weight) / weight.sum()


def irradiance_over_pi(light: Sky, n: np.ndarray, samples: int = 4096) -> np.ndarray:
    """Mean of L over directions drawn with density (n . l) / pi."""
    u, v = hammersley(samples)
    s = np.sqrt(u)
    local = np.stack([s * np.cos(2 * np.pi * v), s * np.sin(2 * np.pi * v), np.sqrt(1 - u)], -1)
    return light(np.einsum("sk,...kj->...sj", local, frame(n))).mean(-2)


def reflected(
    light: Sky, n: np.ndarray, v: np.ndarray, roughness: float, f0: np.ndarray, samples: int = 4096
) -> np.ndarray:
    """The rendering equation for GGX, correlated Smith and Schlick: integral of f L (n . l)."""
    a2 = roughness**4
    h = np.einsum("sk,...kj->...sj", half_vectors(roughness**2, samples), frame(n))
    nv = (n * v).sum(-1)[..., None]
    vh = (v[..., None, :] * h).sum(-1)
    nh = (n[..., None, :] * h).sum(-1)
    light_dir = 2 * vh[..., None] * h - v[..., None, :]
    nl = (n[..., None, :] * light_dir).sum(-1)
    ok = (nl > 0) & (vh > 0)
    nl = np.where(ok, nl, 1.0)
    smith = nl * np.sqrt(a2 + (1 - a2) * nv**2) + nv * np.sqrt(a2 + (1 - a2) * nl**2)
    weight = np.where(ok, 2 * nl * vh / (nh * smith), 0.0)
    fresnel = f0 + (1 - f0) * ((1 - np.clip(vh, 0, 1)) ** 5)[..., None]
    return np.einsum("...sc,...s->...c", light(light_dir) * fresnel, weight) / samples


def sphere_points(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(normals, directions to the eye, mask) of a unit sphere seen from +Z far away, (size, size).

    Outside of the sphere the normal is (0, 0, 1).
    """
    c = (np.arange(size) + 0.5) / size * 2 - 1
    x, y = np.meshgrid(c * 1.05, -c * 1.05)
    inside = x**2 + y**2 < 0.98
    z = np.sqrt(np.where(inside, 1 - x**2 - y**2, 1.0))
    n = np.stack([np.where(inside, x, 0), np.where(inside, y, 0), z], -1)
    return n, np.broadcast_to([0.0, 0.0, 1.0], n.shape).copy(), inside


class LinearSky:
    """Light that differs from direction to direction, as an environment."""

    def diffuse(self, normal: Variable) -> Variable:
        return normal * 0.2 + 0.5

    def specular(self, reflection: Variable, roughness: Variable) -> Variable:
        return (reflection * 0.3 + 0.5) * (1.0 - 0.5 * roughness)

    def brdf(self, n_dot_v: Variable, roughness: Variable) -> Variable:
        return F.vec2(0.9 - 0.1 * roughness * n_dot_v, 0.05 * (1.0 - n_dot_v))
