"""Rasterization, interpolation and texture reads in float64, by other formulas than the library's:
what tests of ``dressi.torch.nvdiffrast`` compare with. OpenGL clip space, row 0 at the bottom.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

STEP_PX = 1e-4
"""For central differences by the pixel: truncation and rounding are both far below 1e-6."""


def centres(size: tuple[int, int], shift: tuple[float, float] = (0.0, 0.0)) -> np.ndarray:
    """(H, W, 2): places of pixel centres in NDC, moved by pixels. size: (height, width)."""
    h, w = size
    x = 2 * (np.arange(w) + 0.5 + shift[0]) / w - 1
    y = 2 * (np.arange(h) + 0.5 + shift[1]) / h - 1
    return np.stack(np.meshgrid(x, y), -1)


def weights(corners: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Weights of corners (..., 3, 4) in clip space at NDC places (..., 2), by Cramer's rule."""
    x, y, w = corners[..., 0], corners[..., 1], corners[..., 3]
    planes = np.stack([x - at[..., 0, None] * w, y - at[..., 1, None] * w, np.ones_like(x)], -2)
    with np.errstate(all="ignore"):
        whole = np.linalg.det(planes)
        out = []
        for k in range(3):
            column = planes.copy()
            column[..., k] = (0.0, 0.0, 1.0)
            out.append(np.linalg.det(column) / whole)
    return np.nan_to_num(np.stack(out, -1), nan=-1.0, posinf=-1.0, neginf=-1.0)


def visible(
    pos: np.ndarray, tri: np.ndarray, size: tuple[int, int], peel: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """(H, W) number of the triangle that is seen, or -1; and which pixels are sure: those whose
    answer is the same a 20th of a pixel around the centre."""
    at = [(0.0, 0.0), (0.05, 0.0), (-0.05, 0.0), (0.0, 0.05), (0.0, -0.05)]
    found = [_visible(pos, tri, centres(size, shift), peel) for shift in at]
    return found[0], np.all([f == found[0] for f in found], axis=0)


def _visible(pos: np.ndarray, tri: np.ndarray, at: np.ndarray, peel: int) -> np.ndarray:
    depths = []
    for corners in pos[tri]:
        lam = weights(np.broadcast_to(corners, (*at.shape[:2], 3, 4)), at)
        z, w = lam @ corners[:, 2], lam @ corners[:, 3]
        with np.errstate(all="ignore"):
            depth = z / w
        ok = (lam.min(-1) >= 0) & (w > 0) & (np.abs(depth) <= 1)
        depths.append(np.where(ok, depth, np.inf))
    order = np.argsort(np.stack(depths), axis=0, kind="stable")
    nth = np.take_along_axis(np.stack(depths), order, 0)[peel]
    return np.where(np.isfinite(nth), order[peel], -1)


def rasterized(pos: np.ndarray, tri: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(H, W, 4) (u, v, z / w, triangle + 1), and (du/dX, du/dY, dv/dX, dv/dY) by central
    differences, of the triangles that ids name."""
    corners = pos[tri[np.maximum(ids, 0)]]
    lam = weights(corners, centres(ids.shape))
    z, w = (np.sum(lam * corners[..., k], -1) for k in (2, 3))
    seen = (ids >= 0)[..., None]
    rast = np.stack([lam[..., 0], lam[..., 1], z / np.where(seen[..., 0], w, 1), ids + 1], -1)
    steps = []
    for shift in ((STEP_PX, 0.0), (0.0, STEP_PX)):
        back = (-shift[0], -shift[1])
        ahead = weights(corners, centres(ids.shape, shift))
        steps.append((ahead - weights(corners, centres(ids.shape, back))) / (2 * STEP_PX))
    dx, dy = steps
    db = np.stack([dx[..., 0], dy[..., 0], dx[..., 1], dy[..., 1]], -1)
    return rast * seen, db * seen


def interpolated(attr: np.ndarray, rast: np.ndarray, tri: np.ndarray) -> np.ndarray:
    """(H, W, A) attributes, 0 where there is no triangle. attr: (V, A)."""
    ids = np.rint(rast[..., 3]).astype(int) - 1
    a, b, c = np.moveaxis(attr[tri[np.maximum(ids, 0)]], -2, 0)
    u, v = rast[..., 0:1], rast[..., 1:2]
    return (a * u + b * v + c * (1 - u - v)) * (ids >= 0)[..., None]


def interpolated_da(
    attr: np.ndarray, rast: np.ndarray, tri: np.ndarray, db: np.ndarray
) -> np.ndarray:
    """(H, W, 2 A): (dA/dX, dA/dY) in pairs."""
    ids = np.rint(rast[..., 3]).astype(int) - 1
    a, b, c = np.moveaxis(attr[tri[np.maximum(ids, 0)]], -2, 0)
    dx = (a - c) * db[..., 0:1] + (b - c) * db[..., 2:3]
    dy = (a - c) * db[..., 1:2] + (b - c) * db[..., 3:4]
    out = np.stack([dx, dy], -1).reshape(*dx.shape[:-1], -1)
    return out * (ids >= 0)[..., None]


def differences(f: Callable[[np.ndarray], float], x: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """The gradient of a float64 function by central differences."""
    out = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        ahead, back = x.copy(), x.copy()
        ahead[i] += step
        back[i] -= step
        out[i] = (f(ahead) - f(back)) / (2 * step)
    return out
