"""Where a direction falls on an equirectangular map: columns of longitude, rows of latitude.

In: a direction. Out: texels, weights and slopes, as in ``cubemap``. Row 0 is +Y, up; the centre of
the image looks down -Z, its right half holds +X. The map that is read (``padded``) goes on around
the seam by one column, and has one more row above and below, the mean of the row beside it: they
lie exactly on the poles, half a texel from the centres of the next row. So the read has one value
at a pole, from whichever side one comes, and bounded slopes around it, although the longitude has
none there.
"""

from __future__ import annotations

import math

import numpy as np

from dressi.ad.functions.cubemap import HUGE, ZERO, is_live
from dressi.ad.functions.image import pixel_coord
from dressi.ad.functions.reduce import mean
from dressi.ad.functions.select import where
from dressi.ad.functions.texture_taps import Taps
from dressi.ad.functions.vector import swizzle
from dressi.ad.functions.window import crop, pad
from dressi.ad.graph import Variable


def padded(env: Variable) -> Variable:
    """The map with the columns beyond the seam and a row for each pole: @ (w, h) -> @ (w + 2, h +
    2)."""
    w, h = env.size
    top, bottom = (mean(crop(env, 0, j, w, 1)) for j in (0, h - 1))
    row = swizzle(pixel_coord((w + 2, h + 2)), "y")
    around = pad(env, 1, 1, 1, 1, "repeat")
    return where(row < 1.0, top, where(row > h + 1.0, bottom, around))


def place_glsl(size: tuple[int, int], linear: bool) -> str:
    """GLSL as of ``cubemap.place_glsl``. size: (w + 2, h + 2)."""
    w, h = size[0] - 2, size[1] - 2
    head = (
        "vec3 d = {x1};\n"
        "    float m = max(abs(d.x), max(abs(d.y), abs(d.z)));\n"
        f"    bool dead = !(m >= {ZERO} && abs(d.x) + abs(d.y) + abs(d.z) < {HUGE});\n"
        "    if (dead) { d = vec3(0.0, 0.0, 1.0); m = 1.0; }\n"
        "    d /= m;\n"
        f"    float rho = sqrt(d.x * d.x + d.z * d.z); bool pole = rho < {ZERO}, down = d.y < 0.0; "
        "vec2 xz = d.xz;\n"
        "    if (pole) { rho = 1.0; xz = vec2(0.0, -1.0); }\n"
        # From the nearer pole, so that it is exact there.
        f"    float far = (pole ? 0.0 : atan(rho, abs(d.y))) * {h / math.pi!r};\n"
        f"    float col = atan(xz.x, -xz.y) * {w * 0.5 / math.pi!r} + {w / 2!r};\n"
        "    int l = 0;\n"
    )
    if not linear:
        return (
            f"{head}    float row = down ? {h}.0 - far : far;\n"
            f"    ivec2 i = ivec2(clamp(int(floor(col)), 0, {w}) % {w}, "
            f"clamp(int(floor(row)), 0, {h - 1})) + 1;\n"
        )
    return (
        f"{head}"
        f"    bool cap = far < 0.5; float v = (down ? {h}.0 - far : far) + 0.5;\n"
        f"    float q = col + 0.5, o = clamp(floor(q), 0.0, {w}.0), t = q - o;\n"
        f"    ivec2 i = ivec2(clamp(int(o), 0, {w}), "  # again: an infinite direction makes NaN
        f"cap ? (down ? {h} : 0) : clamp(int(floor(v)), 1, {h - 1}));\n"
        "    float up = cap ? 2.0 * far : v - float(i.y);\n"
        "    vec2 wx = vec2(1.0 - t, t), wy = vec2(1.0 - up, up);\n"
        "    if (cap && down) wy = wy.yx;\n"
    )


def slope_glsl(size: tuple[int, int]) -> str:
    """GLSL as of ``cubemap.slope_glsl``."""
    w, h = size[0] - 2, size[1] - 2
    return (
        f"s *= (dead || pole ? 0.0 : 1.0 / m) * "
        f"vec2({w * 0.5 / math.pi!r}, cap ? {2 * h / math.pi!r} : {h / math.pi!r});\n"
        "    s.x /= rho; s.y /= (d.x * d.x + d.y * d.y + d.z * d.z);\n"
        "    vec2 e = d.xz / rho;\n"
        "    {y} = vec3(s.y * d.y * e.x - s.x * e.y, -s.y * rho, s.y * d.y * e.y + s.x * e.x);"
    )


def taps(d: np.ndarray, size: tuple[int, int], linear: bool) -> Taps:
    """(layer, y, x, weight, gradient of the weight by the direction) of each tap; see
    ``cubemap.taps``."""
    w, h = size[0] - 2, size[1] - 2
    m, live = np.abs(d).max(-1), is_live(d)
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
        return [(layer, 1 + row, 1 + i, np.ones(col.shape), np.zeros_like(d))]
    cap = far < 0.5
    j = np.where(cap, np.where(y < 0, h, 0), np.clip(np.floor(v + 0.5), 1, h - 1)).astype(np.int64)
    up = np.where(cap, np.where(y < 0, 1 - 2 * far, 2 * far), v + 0.5 - j)
    turn = np.where(cap, 2.0, 1.0)
    o = np.clip(np.floor(col + 0.5), 0, w)
    t = col + 0.5 - o
    horizontal = np.stack([-z / rho, np.zeros_like(z), x / rho], -1) / rho[..., None]
    vertical = np.stack([y * x / rho, -rho, y * z / rho], -1) / (d**2).sum(-1)[..., None]
    gs = horizontal * (w / (2 * math.pi) * act)[..., None]
    gt = vertical * (h / math.pi * turn * act)[..., None]
    out = []
    for bx, by in ((0, 0), (1, 0), (0, 1), (1, 1)):
        wx, wy = (t if bx else 1 - t), (up if by else 1 - up)
        slope = gs * ((2 * bx - 1) * wy)[..., None] + gt * ((2 * by - 1) * wx)[..., None]
        out.append((layer, j + by, o.astype(np.int64) + bx, wx * wy, slope))
    return out
