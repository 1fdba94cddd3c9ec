"""Where a direction falls on a cube map: faces, texels, and the way across their borders.

In: a direction. Out: the four texels that a read takes, their weights, and how those change with
the direction; once as GLSL and once in NumPy. Faces are +X, -X, +Y, -Y, +Z, -Z, seen from the
centre and turned as in Vulkan and glTF (Vulkan specification, "Cube Map Face Selection"). What is
read has a border of one texel around each face (``padding``): the texels of the neighbouring faces
that touch it there. Where three faces meet there is no fourth texel: the border holds the mean of
the three, so that the read is continuous everywhere.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dressi.ad.functions.sparse import SparseMatrix, linear_map
from dressi.ad.functions.texture_taps import Taps
from dressi.ad.graph import Variable

ZERO = 1e-12
"""A direction whose components are all smaller counts as zero."""
HUGE = 1e38
"""One whose components add up to more, or to no number, counts as zero too: it has no direction."""

FACES = np.array(
    # s, t and the axis, by face: direction = s * S + t * T + M, s to the right, t down.
    [
        [(0, 0, -1), (0, -1, 0), (1, 0, 0)],
        [(0, 0, 1), (0, -1, 0), (-1, 0, 0)],
        [(1, 0, 0), (0, 0, 1), (0, 1, 0)],
        [(1, 0, 0), (0, 0, -1), (0, -1, 0)],
        [(1, 0, 0), (0, -1, 0), (0, 0, 1)],
        [(-1, 0, 0), (0, -1, 0), (0, 0, -1)],
    ],
    np.float64,
)


def padded(cube: Variable) -> Variable:
    """A stack of cubes @ (n, n) with the border that reads need: @ (n + 2, n + 2)."""
    n = cube.size[0]
    return linear_map(padding(n, cube.layers // 6), cube, (n + 2, n + 2), cube.layers)


@lru_cache(maxsize=32)
def padding(n: int, cubes: int = 1) -> SparseMatrix:
    """The matrix of ``padded``: one entry a row, three at the corners."""
    c = (2 * np.arange(-1, n + 1) + 1) / n - 1
    s, t = np.meshgrid(c, c)
    over_s, over_t = np.abs(s) > 1, np.abs(t) > 1
    taken = []
    for side, up in ((True, True), (True, False), (False, True)):
        # Into the face; over its left or right border only; over its upper or lower one only.
        x, y = np.clip(s, c[1], c[-2]), np.clip(t, c[1], c[-2])
        z = np.ones_like(s)
        if not (side and up):
            over = over_s if side else over_t
            z = np.where(over, c[-2], 1.0)
            x = np.where(over_s & side, np.sign(s), x)
            y = np.where(over_t & up, np.sign(t), y)
        d = np.einsum("hwi,fij->fhwj", np.stack([x, y, z], -1), FACES)
        face, st, _ = project(d)
        i = _texel(st, n)
        taken.append((face * n + i[..., 1]) * n + i[..., 0])
    inside, sideways, upwards = (a.reshape(-1) for a in taken)
    corner = np.broadcast_to(over_s & over_t, (6, n + 2, n + 2)).reshape(-1)
    first = np.where(np.broadcast_to(over_s, (6, n + 2, n + 2)).reshape(-1), sideways, upwards)
    count = np.where(corner, 3, 1)
    offsets = np.concatenate([[0], np.cumsum(count)])
    columns = np.zeros(offsets[-1], np.int64)
    columns[offsets[:-1]] = first
    columns[offsets[:-1][corner] + 1] = inside[corner]
    columns[offsets[:-1][corner] + 2] = upwards[corner]
    values = np.repeat(1 / count, count)
    texels, entries = 6 * n * n, len(columns)
    return SparseMatrix(
        np.concatenate([[0], *(offsets[1:] + entries * k for k in range(cubes))]),
        np.concatenate([columns + texels * k for k in range(cubes)]),
        np.tile(values, cubes),
        texels * cubes,
    )


def place_glsl(size: tuple[int, int], linear: bool) -> str:
    """GLSL that declares where {x1} falls: texel ``i``, layer ``l`` and the parts of the slope.

    size: (n + 2, n + 2). For linear: weights ``wx``, ``wy`` of two columns and rows from i on.
    """
    n = size[0] - 2
    head = (
        "vec3 d = {x1}, a = abs(d);\n"
        f"    bool dead = !(max(a.x, max(a.y, a.z)) >= {ZERO} && a.x + a.y + a.z < {HUGE});\n"
        "    if (dead) d = a = vec3(0.0, 0.0, 1.0);\n"
        "    bool z = a.z >= max(a.x, a.y), y = !z && a.y >= a.x;\n"
        "    float m = z ? a.z : y ? a.y : a.x, major = z ? d.z : y ? d.y : d.x;\n"
        "    float g = major < 0.0 ? -1.0 : 1.0;\n"
        "    int l = (z ? 4 : y ? 2 : 0) + int(major < 0.0);\n"
        "    vec2 st = (z ? vec2(g * d.x, -d.y) : y ? vec2(d.x, g * d.z) : vec2(-g * d.z, -d.y))"
        " / m;\n"
    )
    if not linear:
        return (
            f"{head}    ivec2 i = clamp(ivec2(floor((st * 0.5 + 0.5) * {n}.0)), 0, {n - 1}) + 1;\n"
        )
    return (
        f"{head}    vec2 p = st * {n / 2!r} + {n / 2 + 0.5!r}, o = clamp(floor(p), 0.0, {n}.0);\n"
        # Again as integers: what an infinite direction makes is no number.
        f"    ivec2 i = clamp(ivec2(o), 0, {n});\n"
        "    vec2 t = p - o, wx = vec2(1.0 - t.x, t.x), wy = vec2(1.0 - t.y, t.y);\n"
    )


def slope_glsl(size: tuple[int, int]) -> str:
    """GLSL expression of the gradient by the direction, from ``s``, that by column and row."""
    n = size[0] - 2
    return (
        f"s *= (dead ? 0.0 : {n / 2!r}) / m;\n"
        "    float sm = -g * (s.x * st.x + s.y * st.y);\n"
        "    {y} = z ? vec3(g * s.x, -s.y, sm) : y ? vec3(s.x, sm, g * s.y) : "
        "vec3(sm, -s.y, -g * s.x);"
    )


def project(d: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(face, (s, t) in [-1, 1]^2, largest component) of directions (..., 3) that are not 0."""
    a = np.abs(d)
    x, y, z = np.moveaxis(a, -1, 0)
    axis = np.where(z >= np.maximum(x, y), 2, np.where(y >= x, 1, 0))
    negative = np.take_along_axis(d, axis[..., None], -1)[..., 0] < 0
    face = 2 * axis + negative
    m = a.max(-1)
    st = np.einsum("...ij,...j->...i", FACES[face][..., :2, :], d) / m[..., None]
    return face, st, m


def is_live(d: np.ndarray) -> np.ndarray:
    """Whether directions (..., 3) point anywhere."""
    a = np.abs(d)
    return np.asarray((a.max(-1) >= ZERO) & (a.sum(-1) < HUGE))


def taps(d: np.ndarray, size: tuple[int, int], linear: bool) -> Taps:
    """(layer, y, x, weight, gradient of the weight by the direction (..., 3)) of each tap of
    directions (..., 3), in a padded map of that size."""
    n = size[0] - 2
    live = is_live(d)
    d = np.where(live[..., None], d, (0.0, 0.0, 1.0))
    face, st, m = project(d)
    if not linear:
        i = _texel(st, n) + 1
        return [(face, i[..., 1], i[..., 0], np.ones(face.shape), np.zeros_like(d))]
    axes = FACES[face]
    slope = (axes[..., :2, :] - st[..., None] * axes[..., 2:, :]) * (n / 2)
    slope = slope * (live / m)[..., None, None]
    p = (st + 1) / 2 * n + 0.5
    o = np.clip(np.floor(p), 0, n)
    t = p - o
    out = []
    for b in ((0, 0), (1, 0), (0, 1), (1, 1)):
        w = np.where(np.array(b) == 1, t, 1 - t)
        i = (o + b).astype(np.int64)
        gradient = np.einsum("...k,...kj->...j", (2 * np.array(b) - 1) * w[..., ::-1], slope)
        out.append((face, i[..., 1], i[..., 0], w[..., 0] * w[..., 1], gradient))
    return out


def _texel(st: np.ndarray, n: int) -> np.ndarray:
    return np.clip(np.floor((st + 1) / 2 * n), 0, n - 1).astype(np.int64)
