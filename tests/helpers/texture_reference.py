"""Texture reads in float64 by loops over texels: what tests of ``dressi.torch.nvdiffrast`` compare
with.
"""

from __future__ import annotations

import numpy as np

FACES = (  # of (x, y, z): major axis, its sign, s, t; OpenGL 4.6, table 8.19
    ((0, 1), (2, -1), (1, -1)),
    ((0, -1), (2, 1), (1, -1)),
    ((1, 1), (0, 1), (2, 1)),
    ((1, -1), (0, 1), (2, -1)),
    ((2, 1), (0, 1), (1, -1)),
    ((2, -1), (0, -1), (1, -1)),
)


def chain(tex: np.ndarray, n: int) -> list[np.ndarray]:
    """n levels of (..., H, W, C), each the mean of 2 x 2."""
    out = [tex]
    while len(out) < n:
        t = out[-1]
        if t.shape[-3] > 1:
            t = 0.5 * (t[..., 0::2, :, :] + t[..., 1::2, :, :])
        if t.shape[-2] > 1:
            t = 0.5 * (t[..., 0::2, :] + t[..., 1::2, :])
        out.append(t)
    return out


def _wrapped(i: np.ndarray, n: int, boundary: str) -> tuple[np.ndarray, np.ndarray]:
    """Texel numbers within 0..n - 1, and whether they count."""
    if boundary == "wrap":
        return i % n, np.ones(i.shape)
    return np.clip(i, 0, n - 1), ((boundary == "clamp") | ((i >= 0) & (i < n))) * 1.0


def read(tex: np.ndarray, uv: np.ndarray, boundary: str, nearest: bool = False) -> np.ndarray:
    """(H, W, C) values of one texture (h, w, C) at uv (H, W, 2)."""
    h, w = tex.shape[:2]
    x, y = uv[..., 0] * w, uv[..., 1] * h
    if nearest:
        taps = [(np.floor(x), np.floor(y), np.ones(x.shape))]
    else:
        i, j = np.floor(x - 0.5), np.floor(y - 0.5)
        s, t = x - 0.5 - i, y - 0.5 - j
        taps = [
            (i, j, (1 - s) * (1 - t)),
            (i + 1, j, s * (1 - t)),
            (i, j + 1, (1 - s) * t),
            (i + 1, j + 1, s * t),
        ]
    out = 0.0
    for i, j, weight in taps:
        a, in_x = _wrapped(i.astype(int), w, boundary)
        b, in_y = _wrapped(j.astype(int), h, boundary)
        out = out + tex[b, a] * (weight * in_x * in_y)[..., None]
    return out


def read_cube(cube: np.ndarray, d: np.ndarray, nearest: bool = False) -> np.ndarray:
    """(H, W, C) values of a cube (6, n, n, C) along directions whose taps stay on one face."""
    n = cube.shape[1]
    face, place, _ = on_face(d)
    out = np.zeros((*d.shape[:2], cube.shape[-1]))
    for k in range(6):
        clamped = read(cube[k], place, "clamp", nearest)
        inside = np.all(np.abs(place * n - n / 2) <= (n - 1) / 2, -1) | nearest
        out = np.where((face == k)[..., None], np.where(inside[..., None], clamped, np.nan), out)
    return out


def on_face(d: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Face, (s, t) in [0, 1]^2, and the signed component across it, of directions (..., 3)."""
    axis = np.abs(d).argmax(-1)
    major = np.take_along_axis(d, axis[..., None], -1)[..., 0]
    face = 2 * axis + (major < 0)
    s, t = np.zeros(face.shape), np.zeros(face.shape)
    for k, (_, (a, sign_a), (b, sign_b)) in enumerate(FACES):
        s = np.where(face == k, sign_a * d[..., a], s)
        t = np.where(face == k, sign_b * d[..., b], t)
    place = np.stack([s, t], -1) / np.abs(major)[..., None]
    return face, 0.5 * place + 0.5, major


def footprint_lod(da: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """log2 of the longest axis of the ellipse that the circle of a pixel becomes, by the singular
    values of its Jacobian. da: (H, W, 4). size: (width, height)."""
    jacobian = da.reshape(*da.shape[:2], 2, 2) * np.array(size, float)[:, None]
    longest = np.linalg.svd(jacobian, compute_uv=False)[..., 0]
    return np.log2(np.maximum(longest, 1e-9))


def read_levels(levels: list[np.ndarray], lod: np.ndarray, one, nearest: bool) -> np.ndarray:
    """Levels mixed by a level of detail; one: level -> values."""
    at = np.clip(lod, 0, len(levels) - 1)
    if nearest:
        at = np.floor(at + 0.5)
    out = 0.0
    for k, level in enumerate(levels):
        out = out + one(level) * np.clip(1 - np.abs(at - k), 0, 1)[..., None]
    return out
