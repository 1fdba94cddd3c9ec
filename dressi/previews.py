"""Small pictures for notebooks: PNG of arrays, meshes painted by the CPU, HTML around them.

In: NumPy arrays. Out: bytes, text. Needs NumPy and the standard library only.
"""

from __future__ import annotations

import base64
import html
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

SIDE = 200
"""Pixels of the longer side of a preview."""
LIGHT = np.array([0.45, 0.6, 0.66])
"""Direction towards the light of meshes, unit length: over the left shoulder of who looks."""


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Return a PNG of (H, W, 3 or 4) bytes."""
    height, width, channels = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    head = struct.pack(">IIBBBBB", width, height, 8, {3: 2, 4: 6}[channels], 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    out = b"\x89PNG\r\n\x1a\n"
    for name, data in chunks:
        out += struct.pack(">I", len(data)) + name + data
        out += struct.pack(">I", zlib.crc32(name + data))
    return out


def to_screen(image: npt.ArrayLike, linear: bool = True) -> npt.NDArray[np.uint8]:
    """Return (H, W, 3) bytes for a screen.

    image: (H, W) or (H, W, C). One component: grey. Two: red and green. Three: a colour; four: over
    a chessboard by its alpha. linear: colours are encoded as sRGB. Numbers outside [0, 1]
    are clipped; NaN and infinity are magenta.
    """
    a = np.asarray(image, np.float64)
    a = a[..., None] if a.ndim == 2 else a
    bad = np.any(~np.isfinite(a), axis=-1, keepdims=True)
    a = np.clip(np.where(np.isfinite(a), a, 0.0), 0.0, 1.0)
    if a.shape[2] == 1:
        rgb = np.repeat(a, 3, axis=2)
    elif a.shape[2] == 2:
        rgb = np.concatenate([a, np.zeros_like(a[..., :1])], axis=2)
    else:
        rgb = a[..., :3]
        if linear:
            rgb = np.where(rgb <= 0.0031308, 12.92 * rgb, 1.055 * rgb ** (1 / 2.4) - 0.055)
    if a.shape[2] == 4:
        y, x = np.indices(a.shape[:2]) // 8
        board = np.where((x + y) % 2, 0.75, 0.9)[..., None]
        rgb = rgb * a[..., 3:] + board * (1.0 - a[..., 3:])
    rgb = np.where(bad, (1.0, 0.0, 1.0), rgb)
    return np.asarray(np.round(rgb * 255.0), np.uint8)


def resized(pixels: npt.NDArray[np.uint8], side: int = SIDE) -> npt.NDArray[np.uint8]:
    """Return the nearest pixels of an image, its longer side at most ``side``; small ones are
    enlarged by a whole number."""
    height, width = pixels.shape[:2]
    longer = max(height, width)
    if longer <= side:
        k = max(side // longer, 1)
        return pixels.repeat(k, axis=0).repeat(k, axis=1)
    rows, columns = (
        np.arange(max(round(n * side / longer), 1)) * n // max(round(n * side / longer), 1)
        for n in (height, width)
    )
    return pixels[rows][:, columns]


def mesh_picture(
    positions: npt.ArrayLike,
    faces: npt.ArrayLike,
    colors: npt.ArrayLike | None = None,
    side: int = SIDE,
) -> npt.NDArray[np.float64]:
    """Return (side, side, 4) linear colours and coverage of a mesh in a parallel projection, a bit
    from above and from the side, by points on its faces.

    positions: (V, 3), +Y up. faces: (F, 3). colors: (V, 3 or 4) linear; None: light grey.
    """
    p, f = np.asarray(positions, np.float64), np.asarray(faces, np.int64)
    turned = (p - (p.min(axis=0) + p.max(axis=0)) / 2) @ _turn().T
    scale = 0.46 * side / max(float(np.linalg.norm(turned, axis=1).max()), 1e-30)
    at = turned * [scale, -scale, 1.0] + [side / 2, side / 2, 0.0]
    corners = at[f]
    u, v = (turned[f][:, k] - turned[f][:, 0] for k in (1, 2))
    normal = np.cross(u, v)
    normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-30)
    normal *= np.where(normal[:, 2:] < 0.0, -1.0, 1.0)  # both sides of a face are seen
    shade = 0.3 + 0.7 * np.maximum(normal @ LIGHT, 0.0)
    longest = np.abs(corners - corners[:, [1, 2, 0]])[..., :2].max(axis=(1, 2))
    steps = np.clip(np.ceil(longest * 1.5).astype(int), 1, side)
    paint = np.full((len(p), 3), 0.6) if colors is None else np.asarray(colors, float)[:, :3]
    out, depth = np.zeros((side, side, 4)), np.full(side * side, -np.inf)
    for n in np.unique(steps):
        chosen = steps == n
        i, j = (k.ravel() for k in np.meshgrid(np.arange(n + 1), np.arange(n + 1)))
        weights = np.stack([i, j, n - i - j], axis=1)[i + j <= n] / n
        spots = np.einsum("sk,fkc->fsc", weights, corners[chosen]).reshape(-1, 3)
        tints = np.einsum("sk,fkc->fsc", weights, paint[f[chosen]] * shade[chosen, None, None])
        _splat(spots, tints.reshape(-1, 3), out.reshape(-1, 4), depth, side)
    return out


def _splat(
    spots: npt.NDArray, tints: npt.NDArray, out: npt.NDArray, depth: npt.NDArray, side: int
) -> None:
    """Draw points into the pixels that they lie in where nothing is nearer (larger z)."""
    x, y = (np.clip(spots[:, k].astype(int), 0, side - 1) for k in (0, 1))
    pixel, z = y * side + x, spots[:, 2]
    order = np.lexsort((z, pixel))
    last = np.append(pixel[order][1:] != pixel[order][:-1], True)
    best = order[last]
    nearer = best[z[best] > depth[pixel[best]]]
    depth[pixel[nearer]] = z[nearer]
    out[pixel[nearer], :3], out[pixel[nearer], 3] = tints[nearer], 1.0


def _turn() -> npt.NDArray[np.float64]:
    """Rotation of the world to the view of previews: 35 degrees about +Y, then 20 about +X."""
    a, b = np.radians(35.0), np.radians(20.0)
    about_y = np.array([[np.cos(a), 0, -np.sin(a)], [0, 1, 0], [np.sin(a), 0, np.cos(a)]])
    about_x = np.array([[1, 0, 0], [0, np.cos(b), -np.sin(b)], [0, np.sin(b), np.cos(b)]])
    return np.asarray(about_x @ about_y)


def image_html(pixels: npt.NDArray[np.uint8], title: str = "") -> str:
    """Return an <img> that holds (H, W, 3) bytes."""
    data = base64.b64encode(png(pixels)).decode("ascii")
    return (
        f'<img alt="{html.escape(title)}" title="{html.escape(title)}" '
        f'style="image-rendering:pixelated" src="data:image/png;base64,{data}">'
    )


def table_html(title: str, rows: Mapping[str, Any], beside: str = "") -> str:
    """Return a table of two columns under a title, with HTML beside it."""
    cells = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(str(value))}</td></tr>"
        for name, value in rows.items()
    )
    table = f"<b>{html.escape(title)}</b><table>{cells}</table>"
    flex = "display:flex;gap:1em;align-items:flex-start"
    return f'<div style="{flex}"><div>{table}</div>{beside}</div>'


def text_html(text: str) -> str:
    """Return text of a fixed width."""
    return f"<pre>{html.escape(text)}</pre>"
