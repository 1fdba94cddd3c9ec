"""Where a direction falls on a cube map: faces, texels, and the way across their borders.

In: a direction. Out: the texels that a read takes, their weights, and how those change with the
direction; once as GLSL and once in NumPy. Faces are +X, -X, +Y, -Y, +Z, -Z, seen from the centre
and turned as in Vulkan and glTF (Vulkan specification, "Cube Map Face Selection"). A tap beyond the
border of a face is the texel of the neighbouring face that touches it there. Where three faces meet
there is no fourth texel: its weight goes to the other three in equal parts, so that the corner
itself is their mean and the read is continuous everywhere.
"""

from __future__ import annotations

import numpy as np

ZERO = 1e-12
"""A direction whose components are all smaller counts as zero."""

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


def _axes_glsl(d: str, p: str) -> str:
    """GLSL: the face ``{p}f`` of a direction and its axes ``{p}S {p}T {p}M``; ties go to z,
    then y."""
    return (
        f"int {p}x = abs({d}.z) >= max(abs({d}.x), abs({d}.y)) ? 2 : "
        f"abs({d}.y) >= abs({d}.x) ? 1 : 0;\n"
        f"    float {p}g = {d}[{p}x] < 0.0 ? -1.0 : 1.0;\n"
        f"    int {p}f = 2 * {p}x + int({p}g < 0.0);\n"
        f"    vec3 {p}S = {p}x == 0 ? vec3(0.0, 0.0, -{p}g) : "
        f"{p}x == 1 ? vec3(1.0, 0.0, 0.0) : vec3({p}g, 0.0, 0.0);\n"
        f"    vec3 {p}T = {p}x == 1 ? vec3(0.0, 0.0, {p}g) : vec3(0.0, -1.0, 0.0);\n"
        f"    vec3 {p}M = {p}x == 0 ? vec3({p}g, 0.0, 0.0) : "
        f"{p}x == 1 ? vec3(0.0, {p}g, 0.0) : vec3(0.0, 0.0, {p}g);\n"
    )


def taps_glsl(direction: str, size: tuple[int, int], linear: bool) -> str:
    """GLSL statements that declare ``at`` (x, y, layer), ``wt``, ``dw`` by tap, and ``gs``, ``gt``.

    size: (n, n) of a face. dw: derivative of each weight by the two coordinates of a face; gs, gt:
    gradients of those by the direction.
    """
    n = size[0]
    head = (
        f"vec3 d = {direction};\n"
        "    float m = max(abs(d.x), max(abs(d.y), abs(d.z))), live = 1.0;\n"
        f"    if (!(m >= {ZERO})) {{ d = vec3(0.0, 0.0, 1.0); m = 1.0; live = 0.0; }}\n"
        f"    {_axes_glsl('d', 'a')}"
        "    vec2 st = vec2(dot(d, aS), dot(d, aT)) / m;\n"
    )
    if not linear:
        return (
            f"{head}    ivec3 at[1]; float wt[1];\n"
            f"    at[0] = ivec3(clamp(ivec2(floor((st * 0.5 + 0.5) * {n}.0)), 0, {n - 1}), af);\n"
            "    wt[0] = 1.0;\n"
        )
    return (
        f"{head}"
        "    ivec3 at[4]; float wt[4]; vec2 dw[4];\n"
        f"    vec2 p = (st * 0.5 + 0.5) * {n}.0 - 0.5, o = clamp(floor(p), -1.0, {n - 1}.0), "
        "t = p - o;\n"
        # The tap outside of the face on each axis: 0 the lower one, 1 the upper one, -1 none.
        f"    ivec2 e = ivec2(o.x < 0.0 ? 0 : o.x >= {n - 1}.0 ? 1 : -1, "
        f"o.y < 0.0 ? 0 : o.y >= {n - 1}.0 ? 1 : -1);\n"
        "    bool corner = e.x >= 0 && e.y >= 0;\n"
        "    vec2 c = mix(1.0 - t, t, vec2(e)), ce = vec2(e * 2 - 1) * c.yx / 3.0;\n"
        "    for (int k = 0; k < 4; k++) {\n"
        "      ivec2 b = ivec2(k & 1, k >> 1), i = ivec2(o) + b;\n"
        "      vec2 w = mix(1.0 - t, t, vec2(b));\n"
        "      wt[k] = w.x * w.y; dw[k] = vec2(b * 2 - 1) * w.yx;\n"
        "      bvec2 out2 = equal(b, e);\n"
        "      at[k] = ivec3(i, af);\n"
        "      if (corner) {\n"
        "        if (all(out2)) { at[k] = ivec3(clamp(i, 0, " + str(n - 1) + "), af); "
        "wt[k] = 0.0; dw[k] = vec2(0.0); continue; }\n"
        "        wt[k] += c.x * c.y / 3.0; dw[k] += ce;\n"
        "      }\n"
        "      if (any(out2)) {\n"
        f"        vec2 q = vec2(2 * i + 1) / {n}.0 - 1.0;\n"
        "        vec2 s2 = vec2(b * 2 - 1);\n"
        f"        vec3 l = out2.x ? vec3(s2.x, q.y, {1 - 1 / n!r}) : "
        f"vec3(q.x, s2.y, {1 - 1 / n!r});\n"
        "        vec3 h = l.x * aS + l.y * aT + l.z * aM;\n"
        f"        {_axes_glsl('h', 'b')}"
        "        vec2 r = vec2(dot(h, bS), dot(h, bT));\n"
        f"        at[k] = ivec3(clamp(ivec2(floor((r * 0.5 + 0.5) * {n}.0)), 0, {n - 1}), bf);\n"
        "      }\n"
        "    }\n"
        f"    vec3 gs = live * {n / 2!r} / m * (aS - st.x * aM), "
        f"gt = live * {n / 2!r} / m * (aT - st.y * aM);\n"
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


def taps(
    d: np.ndarray, size: tuple[int, int], linear: bool
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """(layer, y, x, weight, gradient of the weight by the direction (..., 3)) of each tap."""
    n = size[0]
    live = np.asarray(np.abs(d).max(-1) >= ZERO)
    d = np.where(live[..., None], d, (0.0, 0.0, 1.0))
    face, st, m = project(d)
    if not linear:
        i = _texel(st, n)
        return [(face, i[..., 1], i[..., 0], np.ones(face.shape), np.zeros_like(d))]
    axes = FACES[face]
    slope = (axes[..., :2, :] - st[..., None] * axes[..., 2:, :]) * (n / 2)
    slope = slope * (live / m)[..., None, None]
    p = (st + 1) / 2 * n - 0.5
    o = np.clip(np.floor(p), -1, n - 1)
    t = p - o
    outside = np.where(o < 0, 0, np.where(o >= n - 1, 1, -1))
    corner = np.asarray((outside >= 0).all(-1))
    c = np.where(outside == 1, t, 1 - t)
    shared = np.where(corner, c[..., 0] * c[..., 1] / 3, 0.0)
    shared_slope = np.where(corner[..., None], (outside * 2 - 1) * c[..., ::-1] / 3, 0.0)
    out = []
    for b in ((0, 0), (1, 0), (0, 1), (1, 1)):
        w = np.where(np.array(b) == 1, t, 1 - t)
        weight = w[..., 0] * w[..., 1] + shared
        dw = (2 * np.array(b) - 1) * w[..., ::-1] + shared_slope
        i = (o + b).astype(np.int64)
        beyond = outside == b
        missing = beyond.all(-1)
        weight, dw = np.where(missing, 0.0, weight), np.where(missing[..., None], 0.0, dw)
        q = (2 * i + 1) / n - 1
        local = np.concatenate([q, np.ones_like(q[..., :1])], -1)
        side = np.where(beyond, 2.0 * np.array(b) - 1, 0.0)
        local[..., :2] = np.where(beyond, side, q)
        local[..., 2] = np.where(beyond.any(-1), 1 - 1 / n, 1.0)
        over, r, _ = project(np.einsum("...ij,...i->...j", axes, local))
        crossed = beyond.any(-1) & ~missing
        i = np.where(crossed[..., None], _texel(r, n), np.clip(i, 0, n - 1))
        layer = np.where(crossed, over, face)
        gradient = np.einsum("...k,...kj->...j", dw, slope)
        out.append((layer, i[..., 1], i[..., 0], weight, gradient))
    return out


def _texel(st: np.ndarray, n: int) -> np.ndarray:
    return np.clip(np.floor((st + 1) / 2 * n), 0, n - 1).astype(np.int64)
