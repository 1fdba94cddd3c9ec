"""Shading in NumPy float64, written from the sources and not from dressi: plain arrays (..., C)."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def dot(a: Array, b: Array) -> Array:
    return np.sum(np.asarray(a) * np.asarray(b), axis=-1, keepdims=True)


def unit(a: Array) -> Array:
    n = np.linalg.norm(a, axis=-1, keepdims=True)
    return np.divide(a, n, out=np.zeros_like(np.asarray(a, float)), where=n > 0)


def directional(light: dict, p: Array) -> tuple[Array, Array]:
    to_light = np.broadcast_to(-unit(np.asarray(light["direction"], float)), p.shape)
    return to_light, np.asarray(light["color"], float) * light["intensity"] + 0 * p


def point(light: dict, p: Array) -> tuple[Array, Array]:
    """KHR_lights_punctual: candela / d^2, times max(min(1 - (d / range)^4, 1), 0)."""
    away = np.asarray(light["position"], float) - p
    d = np.linalg.norm(away, axis=-1, keepdims=True)
    fade = 1.0 / d**2
    if light.get("range") is not None:
        fade = fade * np.maximum(np.minimum(1 - (d / light["range"]) ** 4, 1), 0)
    return away / d, np.asarray(light["color"], float) * light["intensity"] * fade


def spot(light: dict, p: Array) -> tuple[Array, Array]:
    """KHR_lights_punctual, the form with a scale and an offset."""
    to_light, radiance = point(light, p)
    scale = 1.0 / max(0.001, np.cos(light["inner"]) - np.cos(light["outer"]))
    offset = -np.cos(light["outer"]) * scale
    cd = dot(unit(np.asarray(light["direction"], float)), -to_light)
    return to_light, radiance * np.clip(cd * scale + offset, 0, 1) ** 2


def brdf(
    n: Array, v: Array, to_light: Array, albedo: Array, metallic: Array, roughness: Array, form: str
) -> Array:
    """glTF 2.0, appendix B.3: the sum of diffuse and specular, without n . l."""
    a2 = roughness**4
    h = unit(to_light + v)
    n_h, n_l, n_v = dot(n, h), dot(n, to_light), np.abs(dot(n, v))
    d = np.where(n_h > 0, a2 / (np.pi * (n_h**2 * (a2 - 1) + 1) ** 2), 0)
    g_l, g_v = np.sqrt(a2 + (1 - a2) * n_l**2), np.sqrt(a2 + (1 - a2) * n_v**2)
    if form == "correlated":
        vis = 0.5 / (n_l * g_v + n_v * g_l)
    else:
        vis = (2 * n_l / (n_l + g_l)) * (2 * n_v / (n_v + g_v)) / (4 * n_l * n_v)
    f0 = 0.04 * (1 - metallic) + albedo * metallic
    fresnel = f0 + (1 - f0) * (1 - np.maximum(dot(v, h), 0)) ** 5
    return (1 - fresnel) * albedo * (1 - metallic) / np.pi + fresnel * d * vis


def pbr(
    n: Array,
    v: Array,
    samples: list[tuple[Array, Array]],
    albedo: Array,
    metallic: Array,
    roughness: Array,
    form: str = "correlated",
) -> Array:
    """Sum over lights; samples: (to_light, radiance)."""
    total = np.zeros(np.broadcast_shapes(n.shape, albedo.shape))
    for to_light, radiance in samples:
        n_l = np.maximum(dot(n, to_light), 0)
        with np.errstate(all="ignore"):
            f = brdf(n, v, to_light, albedo, metallic, roughness, form)
        total += np.where(n_l > 0, f * radiance * n_l, 0)
    return total


def blinn_phong(
    n: Array,
    v: Array,
    samples: list[tuple[Array, Array]],
    albedo: Array,
    ambient: Array,
    specular: Array,
    shininess: float,
) -> Array:
    total = albedo * ambient
    for to_light, radiance in samples:
        n_l = dot(n, to_light)
        n_h = np.maximum(dot(n, unit(to_light + v)), 0)
        lobe = np.where(n_l > 0, n_h**shininess, 0)
        total = total + radiance * (albedo * np.maximum(n_l, 0) + specular * lobe)
    return total
