"""The texels that a read of a texture takes, and the rows of its transposes: to the texels, and to
the place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dressi.ad.functions.wraps import at_glsl, inside_glsl, is_inside, near, near_glsl, wrap_index
from dressi.ad.functions.written_out import dot_glsl, lerp_glsl
from dressi.ad.graph import Function
from dressi.ad.kernels import SUBGROUP, Kernel, register
from dressi.ad.registry import ANY, SAME, Op
from dressi.ad.shape import broadcast
from dressi.ad.vtype import VEC2
from dressi.kinds import Wraps

Taps = list[tuple[Any, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]
"""(layer, y, x, weight, slopes (..., k) of the weight) of each texel that is read."""


def read(taps: Taps, image: np.ndarray) -> np.ndarray:
    """Return the weighted sum of the texels of an image (layers, H, W, C)."""
    return np.asarray(sum(w[..., None] * image[layer, y, x] for layer, y, x, w, _ in taps))


def scattered(taps: Taps, gy: np.ndarray, f: Function) -> np.ndarray:
    """Return the transpose of ``read``: gy added to the texels of f's output."""
    (w, h), layers = f.attr("size"), f.attr("layers")
    out = np.zeros((layers, h, w, gy.shape[-1]))
    for layer, y, x, weight, _ in taps:
        np.add.at(out, (np.broadcast_to(layer, y.shape), y, x), weight[..., None] * gy)
    return out


def slopes(taps: Taps, image: np.ndarray, gy: np.ndarray) -> np.ndarray:
    """Return the gradient by the place that is read."""
    parts = ((image[layer, y, x] * gy).sum(-1)[..., None] * slope for layer, y, x, _, slope in taps)
    return np.asarray(sum(parts))


def taps(f: Function, uv: np.ndarray, shape: Sequence[int], image: Sequence[int]) -> Taps:
    """Return the texels that f reads at places uv. shape: (layers, H, W) of the places, image: of
    the texture."""
    uv = np.broadcast_to(uv, (*shape[:3], 2))
    found = taps_of(f.attr("filter"), f.attr("wrap"), uv, (image[2], image[1]))
    layer = layers_of(shape[0], image[0])
    return [(layer, y, x, weight, np.stack([du, dv], -1)) for x, y, weight, du, dv in found]


def taps_of(
    filter: str, wraps: Wraps, uv: np.ndarray, size: tuple[int, int]
) -> list[tuple[np.ndarray, ...]]:
    """Return (x, y, weight, d weight / du, d weight / dv) of each texel that uv reads, each as
    uv[..., 0]. Texels beyond a border have weight 0."""
    w, h = size
    nearest = filter == "nearest"
    far = uv * (w, h) - (0.0 if nearest else 0.5)
    p = near(far)
    moves = p == far
    i = np.floor(p).astype(np.int64)
    fx, fy = np.moveaxis(p - i, -1, 0)
    out: list[tuple[np.ndarray, ...]] = []
    for dx, dy in ((0, 0),) if nearest else ((0, 0), (1, 0), (0, 1), (1, 1)):
        x, y = i[..., 0] + dx, i[..., 1] + dy
        wx, wy = (fx if dx else 1 - fx), (fy if dy else 1 - fy)
        du, dv = (w if dx else -w) * wy, (h if dy else -h) * wx
        weights = (wx * wy, du * moves[..., 0], dv * moves[..., 1])
        if nearest:
            weights = (np.ones_like(fx), np.zeros_like(fx), np.zeros_like(fx))
        inside = is_inside(wraps, x, y, w, h)
        at = (wrap_index(wraps[0], x, w), wrap_index(wraps[1], y, h))
        out.append((*at, *(weight * inside for weight in weights)))
    return out


def layers_of(n: int, tex_layers: int) -> np.ndarray:
    layer = np.arange(n)[:, None, None]
    return np.zeros_like(layer) if tex_layers == 1 else layer


def each_tap_glsl(filter: str, wraps: Wraps, uv: str, w: int | str, h: int | str, do: str) -> str:
    """GLSL of a loop over the texels that uv reads. do: a statement that sees ``i``, the texel in
    the texture, and ``s``, its weight. Beyond a border nothing is done."""
    linear = filter == "linear"
    inside = inside_glsl(wraps, "a.x", "a.y", w, h)
    return (
        f"precise vec2 q = {uv} * vec2({w}, {h}){' - 0.5' if linear else ''};\n"
        f"    precise vec2 p = {near_glsl('q')};\n"
        "    vec2 o = floor(p), t = p - o;\n"
        f"    for (int k = 0; k < {4 if linear else 1}; k++) {{\n"
        "      ivec2 d = ivec2(k & 1, k >> 1), a = ivec2(o) + d, "
        f"i = {at_glsl(wraps, 'a.x', 'a.y', w, h)};\n"
        f"      vec2 n = {'abs(vec2(1 - d) - t)' if linear else 'vec2(1.0)'};\n"
        f"      precise float s = n.x * n.y; {f'if ({inside}) ' if inside else ''}{do}\n"
        "    }\n"
    )


def _taps_glsl(f: Function) -> str:
    """Statements that add the gradient of a pixel to each texel that it reads."""
    (w, h), layers = f.attr("size"), f.attr("layers")
    base = f"{{layer}} * {w * h} + " if layers > 1 else ""
    add = f"{{add}}({base}i.y * {w} + i.x, s * {{x0}});"
    return each_tap_glsl(f.attr("filter"), f.attr("wrap"), "{x1}", w, h, add)


def _scatter_glsl(f: Function) -> str:
    return f"if ({{x0}} != {{T}}(0)) {{\n    {_taps_glsl(f)}  }}"


def _scatter_together_glsl(f: Function) -> str:
    """Where all texels of a subgroup are no more than its lanes, each texel is given to one lane,
    which goes through the pixels of all lanes and adds up what they have for it. Neighbouring
    pixels share texels, unless the texture is much finer than the picture."""
    if f.attr("filter") == "nearest":
        return _scatter_glsl(f)
    (w, h), layers, wraps = f.attr("size"), f.attr("layers"), f.attr("wrap")
    base = f"{{layer}} * {w * h} + " if layers > 1 else ""
    one_layer = " && subgroupMin({layer}) == subgroupMax({layer})" if layers > 1 else ""
    inside = inside_glsl(wraps, "a.x", "a.y", w, h)
    return (
        "if ({x0} != {T}(0)) {\n"
        f"    precise vec2 q = {{x1}} * vec2({w}, {h}) - 0.5, p = {near_glsl('q')};\n"
        "    vec2 o = floor(p), t = p - o;\n"
        "    ivec2 low = subgroupMin(ivec2(o)), n = subgroupMax(ivec2(o)) - low + 2;\n"
        "    uvec4 lanes = subgroupBallot(true);\n"
        "    int many = int(subgroupBallotBitCount(lanes));\n"
        f"    if (max(n.x, n.y) <= 32 && n.x * n.y <= many{one_layer}) {{\n"
        "      int me = int(subgroupBallotExclusiveBitCount(lanes));\n"
        "      ivec2 at = ivec2(me % n.x, me / n.x), a = low + at, from = ivec2(o) - low;\n"
        f"      ivec2 i = {at_glsl(wraps, 'a.x', 'a.y', w, h)};\n"
        "      precise {T} s = {T}(0);\n"
        "      uint last = subgroupBallotFindMSB(lanes);\n"
        "      for (uint k = subgroupBallotFindLSB(lanes); k <= last; k++) {\n"
        "        if (!subgroupBallotBitExtract(lanes, k)) continue;\n"
        "        int c = subgroupShuffle(from.x + (from.y << 8), k);\n"
        "        vec2 u = subgroupShuffle(t, k);\n"
        "        {T} g = subgroupShuffle({x0}, k);\n"
        "        ivec2 d = at - ivec2(c & 255, c >> 8);\n"
        "        vec2 r = abs(vec2(1 - d) - u);\n"
        "        if ((d.x | d.y) >> 1 == 0) s += (r.x * r.y) * g;\n"
        "      }\n"
        f"      if (me < n.x * n.y{f' && {inside}' if inside else ''}) "
        f"{{add}}({base}i.y * {w} + i.x, s);\n"
        f"    }} else {{\n    {_taps_glsl(f)}    }}\n"
        "  }"
    )


TEXTURE_SCATTER = Op(
    "texture_scatter",
    lambda xs, a: (xs[0].vtype, a["size"], a["layers"]),
    linear_in=(0,),
    zero_if=(0,),
    reference=lambda f, xs: scattered(
        taps(f, xs[1], xs[0].shape, (f.attr("layers"), *f.attr("size")[::-1])), xs[0], f
    ),
    scatter="add",
    domain=0,
    no_cases="the backward of texture; tested through its gradient",
)
register(TEXTURE_SCATTER, Kernel(_scatter_glsl), Kernel(_scatter_together_glsl, SUBGROUP))


def _grad_uv_glsl(f: Function) -> str:
    if f.attr("filter") == "nearest":
        return "{y} = vec2(0.0);"
    w, h = f.inputs[0].size
    wrap = f.attr("wrap")

    def tap(dx: int, dy: int) -> str:
        x, y = f"({{y}}_i.x + {dx})", f"({{y}}_i.y + {dy})"
        texel = f"{{fetch0}}({at_glsl(wrap, x, y, w, h)}, {{layer}})"
        inside = inside_glsl(wrap, x, y, w, h)
        return f"({inside} ? {texel} : {{T0}}(0))" if inside else texel

    def slope(a: str, b: str, c: str, d: str, across: str) -> str:
        """The product of gy with the difference of texels a - b here and c - d a texel on."""
        n = f.inputs[0].vtype.n
        here, there = (dot_glsl("{x2}", f"({{y}}_{p} - {{y}}_{q})", n) for p, q in ((a, b), (c, d)))
        return lerp_glsl(here, there, f"{{y}}_f.{across}")

    return (
        f"vec2 {{y}}_q = {{x1}} * vec2({w}, {h}) - 0.5, {{y}}_p = {near_glsl('{y}_q')}, "
        "{y}_f = fract({y}_p);\n  ivec2 {y}_i = ivec2(floor({y}_p));\n"
        f"  {{T0}} {{y}}_a = {tap(0, 0)}, {{y}}_b = {tap(1, 0)}, {{y}}_c = {tap(0, 1)}, "
        f"{{y}}_d = {tap(1, 1)};\n"
        # A place that is kept from going farther does not move.
        "  {y} = vec2(equal({y}_p, {y}_q)) * vec2("
        f"{w}.0 * {slope('b', 'a', 'd', 'c', 'y')}, {h}.0 * {slope('c', 'a', 'd', 'b', 'x')});"
    )


GRAD_UV = Op(
    "texture_grad_uv",
    lambda xs, a: (VEC2, *broadcast(xs[1:])),
    reads=(ANY, SAME, SAME),
    linear_in=(0, 2),
    reference=lambda f, xs: slopes(taps(f, xs[1], xs[2].shape, xs[0].shape), xs[0], xs[2]),
    no_cases="the backward of texture; tested through its gradient",
)
register(GRAD_UV, Kernel(_grad_uv_glsl))
