"""Scattering of hair in float64 with NumPy and SciPy, written from the equations."""

from __future__ import annotations

import numpy as np
from scipy.special import i0e

EUMELANIN = np.array([0.506, 0.841, 1.653])
PHEOMELANIN = np.array([0.343, 0.733, 1.924])


def absorption(melanin: float, redness: float) -> np.ndarray:
    """Return (3,): absorption per radius."""
    q = -np.log(max(1.0 - melanin, 1e-4))
    return q * ((1.0 - redness) * EUMELANIN + redness * PHEOMELANIN)


def fresnel(cosine: np.ndarray, eta: float) -> np.ndarray:
    """Return the unpolarized reflectance from Snell's angles."""
    outside = np.arccos(cosine)
    inside = np.arcsin(np.sin(outside) / eta)
    s = (np.cos(outside) - eta * np.cos(inside)) / (np.cos(outside) + eta * np.cos(inside))
    p = (eta * np.cos(outside) - np.cos(inside)) / (eta * np.cos(outside) + np.cos(inside))
    return (s**2 + p**2) / 2


def attenuations(sigma: np.ndarray, eta: float, sin_o: float, h: float) -> np.ndarray:
    """Return (4, 3): A0, A1, A2 and the rest."""
    cos_o = np.sqrt(1.0 - sin_o**2)
    eta_p = np.sqrt(eta**2 - sin_o**2) / cos_o
    cos_gamma_t = np.sqrt(1.0 - (h / eta_p) ** 2)
    cos_theta_t = np.sqrt(1.0 - (sin_o / eta) ** 2)
    t = np.exp(-np.asarray(sigma) * 2.0 * cos_gamma_t / cos_theta_t)
    f = fresnel(cos_o * np.sqrt(1.0 - h**2), eta)
    a1 = (1.0 - f) ** 2 * t
    a2 = a1 * t * f
    return np.stack([np.full(3, f), a1, a2, a2 * t * f / (1.0 - t * f)])


def variances(bm: float) -> list[float]:
    """Return v0 to v3."""
    v = (0.726 * bm + 0.812 * bm**2 + 3.7 * bm**20) ** 2
    return [v, v / 4, 4 * v, 4 * v]


def scale(bn: float) -> float:
    """Return s."""
    return float(np.sqrt(np.pi / 8) * (0.265 * bn + 1.194 * bn**2 + 5.372 * bn**22))


def along(v: float, theta_i: np.ndarray, theta_o: np.ndarray) -> np.ndarray:
    """Return Mp. theta_o: tilted already."""
    cos_o = np.abs(np.cos(theta_o))
    x = np.cos(theta_i) * cos_o / v
    y = np.sin(theta_i) * np.sin(theta_o) / v
    return i0e(x) * np.exp(x - y - 1 / v) / (v * -np.expm1(-2 / v))


def around(s: float, x: np.ndarray) -> np.ndarray:
    """Return Np at an angle x, which is brought into [-pi, pi]."""
    x = np.mod(np.asarray(x) + np.pi, 2 * np.pi) - np.pi

    def below(y: float) -> float:
        return 1.0 / (1.0 + np.exp(-y / s))

    density = np.exp(-np.abs(x) / s) / (s * (1.0 + np.exp(-np.abs(x) / s)) ** 2)
    return density / (below(np.pi) - below(-np.pi))


def fiber_scatter(
    sigma: np.ndarray,
    bm: float,
    bn: float,
    eta: float,
    tilt: float,
    sin_o: float,
    sin_i: np.ndarray,
    phi: np.ndarray,
    h: float,
) -> np.ndarray:
    """Return f cos theta_i, (..., 3). tilt: radians; phi: phi_i - phi_o."""
    theta_o, theta_i = np.arcsin(sin_o), np.arcsin(sin_i)
    a = attenuations(sigma, eta, sin_o, h)
    eta_p = np.sqrt(eta**2 - sin_o**2) / np.cos(theta_o)
    gamma_o, gamma_t = np.arcsin(h), np.arcsin(h / eta_p)
    total = np.zeros((*np.broadcast(sin_i, phi).shape, 3))
    for p, turn in enumerate((-2 * tilt, tilt, 4 * tilt)):
        m = along(variances(bm)[p], theta_i, theta_o + turn)
        n = around(scale(bn), phi - (2 * p * gamma_t - 2 * gamma_o + p * np.pi))
        total += (m * n)[..., None] * a[p]
    m = along(variances(bm)[3], theta_i, np.asarray(theta_o))
    return total + (m / (2 * np.pi) * np.ones_like(phi))[..., None] * a[3]


def mean_scatter(*args: object, n: int = 8) -> np.ndarray:
    """Return the mean of ``fiber_scatter`` over h, by n Gauss-Legendre nodes; args without h."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    terms = (w * fiber_scatter(*args, h) for h, w in zip(nodes, weights, strict=True))  # type: ignore[arg-type]
    return sum(terms) / 2.0  # type: ignore[return-value]
