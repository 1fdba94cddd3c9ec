"""Where a direction falls on an equirectangular map: columns of longitude, rows of latitude.

In: a direction. Out: texels, weights and slopes, as in ``cubemap``. Row 0 is +Y, up; the centre of
the image looks down -Z, its right half holds +X. The map that is read has one more row above and
below (``with_poles``), the mean of the row beside it: they lie exactly on the poles, half a texel
from the centres of the next row. So the read has one value at a pole, from whichever side one
comes, and bounded slopes around it, although the longitude has none there.
"""

from __future__ import annotations

import math

import numpy as np

from dressi.ad.functions.cubemap import ZERO
from dressi.ad.functions.image import pixel_coord
from dressi.ad.functions.reduce import mean
from dressi.ad.functions.select import where
from dressi.ad.functions.vector import swizzle
from dressi.ad.functions.window import crop, pad
from dressi.ad.graph import Variable


def with_poles(env: Variable) -> Variable:
    """The map with a row for each pole: @ (w, h) -> @ (w, h + 2)."""
    w, h = env.size
    top, bottom = (mean(crop(env, 0, j, w, 1)) for j in (0, h - 1))
    row = swizzle(pixel_coord((w, h + 2)), "y")
    return where(row < 1.0, top, where(row > h + 1.0, bottom, pad(env, 0, 1, 0, 1)))


def taps_glsl(direction: str, size: tuple[int, int], linear: bool) -> str:
    """GLSL statements as in ``cubemap.taps_glsl``. size: (w, h + 2) of the map with its poles."""
    w, h = size[0], size[1] - 2
    head = (
        f"vec3 d = {direction};\n"
        "    float m = max(abs(d.x), max(abs(d.y), abs(d.z))), live = 1.0;\n"
        f"    if (!(m >= {ZERO})) {{ d = vec3(0.0, 0.0, 1.0); m = 1.0; live = 0.0; }}\n"
        "    d /= m;\n"
        f"    float rho = length(d.xz); bool pole = rho < {ZERO}; vec2 xz = d.xz;\n"
        "    if (pole) { rho = 1.0; xz = vec2(0.0, -1.0); }\n"
        # From the nearer pole, so that it is exact there.
        "    float near = pole ? 0.0 : atan(rho, abs(d.y));\n"
        f"    float col = (atan(xz.x, -xz.y) * {0.5 / math.pi!r} + 0.5) * {w}.0, "
        f"far = near * {h / math.pi!r};\n"
    )
    if not linear:
        return (
            f"{head}    ivec3 at[1]; float wt[1];\n"
            f"    int row = min(int(floor(far)), {h - 1});\n"
            f"    at[0] = ivec3(clamp(int(floor(col)), 0, {w}) % {w}, "
            f"1 + (d.y < 0.0 ? min(int(floor({h}.0 - far)), {h - 1}) : row), 0);\n"
            "    wt[0] = 1.0;\n"
        )
    return (
        f"{head}"
        "    ivec3 at[4]; float wt[4]; vec2 dw[4];\n"
        f"    bool cap = far < 0.5; float v = d.y < 0.0 ? {h}.0 - far : far;\n"
        "    float rows = cap ? 2.0 * far : v + 0.5;\n"
        # rows: distance from the pole's row where there is one, else the row itself.
        f"    int j = cap ? (d.y < 0.0 ? {h} : 0) : clamp(int(floor(rows)), 1, {h - 1});\n"
        "    float up = cap ? rows : rows - float(j), turn = cap ? 2.0 : 1.0;\n"
        "    vec2 wy = vec2(1.0 - up, up);\n"
        "    if (cap && d.y < 0.0) wy = wy.yx;\n"
        f"    float p = col - 0.5, o = clamp(floor(p), -1.0, {w}.0), t = p - o;\n"
        "    vec2 wx = vec2(1.0 - t, t);\n"
        "    for (int k = 0; k < 4; k++) {\n"
        "      ivec2 b = ivec2(k & 1, k >> 1);\n"
        f"      at[k] = ivec3((int(o) + b.x + {w}) % {w}, j + b.y, 0);\n"
        "      wt[k] = wx[b.x] * wy[b.y];\n"
        "      dw[k] = vec2(float(b.x * 2 - 1) * wy[b.y], wx[b.x] * float(b.y * 2 - 1));\n"
        "    }\n"
        "    float act = pole ? 0.0 : live / m, r2 = dot(d, d);\n"
        f"    vec3 gs = {w * 0.5 / math.pi!r} * act / rho * vec3(-d.z / rho, 0.0, d.x / rho);\n"
        f"    vec3 gt = {h / math.pi!r} * turn * act / r2 * "
        "vec3(d.y * d.x / rho, -rho, d.y * d.z / rho);\n"
    )


def taps(
    d: np.ndarray, size: tuple[int, int], linear: bool
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """(layer, y, x, weight, gradient of the weight by the direction) of each tap; see
    ``cubemap.taps``."""
    w, h = size[0], size[1] - 2
    m = np.abs(d).max(-1)
    live = m >= ZERO
    d = np.where(live[..., None], d, (0.0, 0.0, 1.0)) / np.where(live, m, 1.0)[..., None]
    x, y, z = np.moveaxis(d, -1, 0)
    rho = np.hypot(x, z)
    pole = rho < ZERO
    act = np.where(live & ~pole, 1 / np.where(live, m, 1.0), 0.0)
    near = np.where(pole, 0.0, np.arctan2(rho, np.abs(y)))
    rho = np.where(pole, 1.0, rho)
    longitude = np.where(pole, 0.0, np.arctan2(x, -z))
    col = (longitude / (2 * math.pi) + 0.5) * w
    far = near / math.pi * h
    v = np.where(y < 0, h - far, far)
    layer = np.zeros(col.shape, np.int64)
    if not linear:
        row = np.clip(np.floor(v), 0, h - 1).astype(np.int64)
        i = np.floor(col).astype(np.int64) % w
        return [(layer, 1 + row, i, np.ones(col.shape), np.zeros_like(d))]
    cap = far < 0.5
    j = np.where(cap, np.where(y < 0, h, 0), np.clip(np.floor(v + 0.5), 1, h - 1)).astype(np.int64)
    up = np.where(cap, np.where(y < 0, 1 - 2 * far, 2 * far), v + 0.5 - j)
    turn = np.where(cap, 2.0, 1.0)
    o = np.floor(col - 0.5)
    t = col - 0.5 - o
    horizontal = np.stack([-z / rho, np.zeros_like(z), x / rho], -1) / rho[..., None]
    vertical = np.stack([y * x / rho, -rho, y * z / rho], -1) / (d**2).sum(-1)[..., None]
    gs = horizontal * (w / (2 * math.pi) * act)[..., None]
    gt = vertical * (h / math.pi * turn * act)[..., None]
    out = []
    for bx, by in ((0, 0), (1, 0), (0, 1), (1, 1)):
        wx, wy = (t if bx else 1 - t), (up if by else 1 - up)
        slope = gs * ((2 * bx - 1) * wy)[..., None] + gt * ((2 * by - 1) * wx)[..., None]
        out.append((layer, j + by, (o.astype(np.int64) + bx) % w, wx * wy, slope))
    return out
