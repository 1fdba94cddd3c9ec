"""Sampling of mip chains: a level of detail per pixel, trilinear or of the nearest level.

A level of detail l reads the levels floor(l) and floor(l) + 1, mixed by the fraction of l. The
backward to the chain adds to the texels that were read; to uv it is that of the taps, to the level
of detail the difference of the two levels. Texel centres, wraps and borders are those of F.texture,
in each level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from dressi.ad.functions._common import lift, needs_variable, sized
from dressi.ad.functions.image import expand
from dressi.ad.functions.mipmap import MipMap, mipmap, places
from dressi.ad.functions.texture import beyond_border
from dressi.ad.functions.texture_taps import (
    Taps,
    each_tap_glsl,
    layers_of,
    read,
    scattered,
    slopes,
    taps_of,
)
from dressi.ad.functions.vector import swizzle
from dressi.ad.functions.wraps import at_glsl, checked_wrap, inside_glsl, near_glsl, off_texel_kinks
from dressi.ad.functions.written_out import dot_glsl
from dressi.ad.graph import Function, Size, Variable, short
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import ANY, SAME, Op, Shape, apply
from dressi.ad.shape import broadcast
from dressi.ad.vtype import FLOAT, VEC2, VEC3
from dressi.errors import GraphError
from dressi.kinds import Filter, MipFilter, Wrap, Wraps

MIP_FILTERS: dict[MipFilter, tuple[Filter, Filter]] = {
    "trilinear": ("linear", "linear"),
    "linear-mipmap-nearest": ("linear", "nearest"),
    "nearest-mipmap-linear": ("nearest", "linear"),
    "nearest-mipmap-nearest": ("nearest", "nearest"),
}
"""How texels and how levels are filtered."""


def _level_glsl(f: Function, lod: str) -> str:
    """GLSL that declares the places of levels {y}_r, the clamped level of detail {y}_l, and the
    level {y}_k at or below it."""
    boxes, (_, levels) = places(f.attr("sizes")), MIP_FILTERS[f.attr("filter")]
    last = len(boxes) - 1
    table = ", ".join(f"ivec4({x}, {y}, {w}, {h})" for x, y, w, h in boxes)
    return (
        f"const ivec4 {{y}}_r[{last + 1}] = ivec4[{last + 1}]({table});\n"
        # Level 0 for what is no number.
        f"  float {{y}}_l = ({lod} > 0.0 ? min({lod}, {last}.0) : 0.0)"
        f"{' + 0.5' if levels == 'nearest' else ''};\n"
        f"  int {{y}}_k = clamp(int({{y}}_l), 0, {last});"
    )


def _taps_glsl(
    f: Function, uv: str, lod: str, body: Callable[[int, int, int], str], always: str = ""
) -> str:
    """GLSL of all taps, written out: a loop costs CPU drivers several times as much.

    body: (which level, 0 or 1; place along u; along v) -> statement, which sees i (texel of the
    atlas), p (place in the level; q before it was kept near), m (weight of the level), x and y
    (weights along u and v) and r (place of the level in the atlas). always: condition under which
    levels of weight 0 count too.
    """
    wraps, last = f.attr("wrap"), len(f.attr("sizes")) - 1
    texels, levels = MIP_FILTERS[f.attr("filter")]
    low, high = (at_glsl(wraps, f"{i}.x", f"{i}.y", "r.z", "r.w") for i in ("a", "b"))
    linear = texels == "linear"
    lines = [_level_glsl(f, lod)]
    for e in range(2 if levels == "linear" and last else 1):
        weight = ("1.0 - ({y}_l - float({y}_k))", "{y}_l - float({y}_k)")[e]
        lines += [
            "{",
            f"  float m = {weight if levels == 'linear' and last else '1.0'};",
            "  if (m != 0.0" + (f" || {always}" if always else "") + ") {",
            f"  ivec4 r = {{y}}_r[{f'min({{y}}_k + 1, {last})' if e else '{y}_k'}];",
            f"  vec2 q = {uv} * vec2(r.zw){' - 0.5' if linear else ''}, p = {near_glsl('q')};",
            "  vec2 o = floor(p), t = p - o;",
            f"  ivec2 a = ivec2(o), b = a + 1, low = {low}, high = {high if linear else 'low'};",
        ]
        for dx, dy in ((0, 0), (1, 0), (0, 1), (1, 1)) if linear else ((0, 0),):
            at = f"ivec2({('low', 'high')[dx]}.x, {('low', 'high')[dy]}.y)"
            x, y = (("1.0 - t.x", "t.x")[dx], ("1.0 - t.y", "t.y")[dy]) if linear else ("1.0",) * 2
            corner = ("a.x", "b.x")[dx], ("a.y", "b.y")[dy]
            inside = inside_glsl(wraps, *corner, "r.z", "r.w")
            lines.append(
                f"  {f'if ({inside}) ' if inside else ''}{{ ivec2 i = r.xy + {at}; "
                f"float x = {x}, y = {y}; {body(e, dx, dy)} }}"
            )
        lines.append("  }}")
    return "\n  ".join(lines)


def _levels(
    f: Function, lod: np.ndarray
) -> Iterator[tuple[int, int, Size, np.ndarray, np.ndarray]]:
    """Yield (left, top, size, weight, d weight / d lod) of each level."""
    boxes = places(f.attr("sizes"))
    last = len(boxes) - 1
    at = np.where(lod > 0, np.minimum(lod, last), 0)
    for i, (x, y, w, h) in enumerate(boxes):
        if MIP_FILTERS[f.attr("filter")][1] == "nearest":
            weight, slope = (np.floor(at + 0.5) == i) * 1.0, np.zeros_like(at)
        else:
            weight = np.clip(1 - np.abs(at - i), 0, None)
            below = np.floor(at)
            slope = ((below + 1 == i) * 1.0 - (below == i)) * ((lod > 0) & (lod < last))
        yield x, y, (w, h), weight, slope


def _taps(f: Function, uv: np.ndarray, lod: np.ndarray, shape: Sequence[int], layers: int) -> Taps:
    """Return the texels of all levels that f reads; slopes by u, v and the level of detail. shape:
    (layers, H, W) of the places. layers: of the chain."""
    uv, lod = np.broadcast_to(uv, (*shape[:3], 2)), np.broadcast_to(lod[..., 0], shape[:3])
    out: Taps = []
    for left, top, size, m, dm in _levels(f, lod):
        found = taps_of(MIP_FILTERS[f.attr("filter")][0], f.attr("wrap"), uv, size)
        for x, y, weight, du, dv in found:
            slope = np.stack([m * du, m * dv, dm * weight], -1)
            out.append((layers_of(shape[0], layers), top + y, left + x, m * weight, slope))
    return out


def _infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    atlas, uv, lod = xs
    if uv.vtype is not VEC2 or lod.vtype is not FLOAT:
        raise GraphError(f"uv must be VEC2 and lod FLOAT, got {uv.vtype.name}, {lod.vtype.name}")
    size, layers = broadcast((uv, lod))
    if atlas.layers != 1 and layers not in (1, atlas.layers):
        raise GraphError(f"a texture of {atlas.layers} layers, uv and lod of {layers}")
    return atlas.vtype, size, max(atlas.layers, layers)


def _ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    (w, h), layers = f.output.size, f.output.layers
    return read(_taps(f, xs[1], xs[2], (layers, h, w), xs[0].shape[0]), xs[0])


def _backward(f: Function, gy: Variable, i: int) -> Variable:
    atlas, uv, lod = f.inputs
    attrs = {name: f.attr(name) for name in ("filter", "wrap", "sizes")}
    if i == 0:
        uv, lod = (expand(x, gy.size, gy.layers) for x in (uv, lod))
        shape = {"size": atlas.size, "layers": atlas.layers}
        return apply(MIP_SCATTER, (gy, uv, lod), **attrs, **shape)
    g = apply(MIP_GRAD, (atlas, uv, lod, gy), **attrs)
    return swizzle(g, "xy" if i == 1 else "z")


def _off_kinks(uv: np.ndarray, size: Size) -> np.ndarray:
    """uv away from the kinks of all levels: away from those of one may be towards another's."""
    for _ in range(8):
        for i in range(max(size).bit_length()):
            uv = off_texel_kinks(uv, (max(1, size[0] >> i), max(1, size[1] >> i)))
    return uv


TEXTURE_MIP = Op(
    "texture_mip",
    _infer,
    reads=(ANY, SAME, SAME),
    linear_in=(0,),
    backward=_backward,
    reference=_ref,
    cases=tuple(
        sized(
            lambda t, uv, lod, wrap=wrap, mode=mode: texture_mip(
                mipmap(t), uv, lod, filter=mode, wrap=wrap
            ),
            ((vtype, -1, 1), (VEC2, -1.5, 2.5), (FLOAT, -0.7, 3.6)),
            size,
            (9, 7),
            (9, 7),
            off_kinks=_off_kinks,
        )
        for mode, wrap, vtype, size in (
            ("trilinear", "repeat", VEC3, (6, 5)),
            ("trilinear", "border", FLOAT, (8, 8)),
            ("trilinear", ("clamp", "mirror"), VEC3, (5, 9)),
            ("linear-mipmap-nearest", "mirror", VEC3, (6, 5)),
            ("nearest-mipmap-linear", ("border", "repeat"), FLOAT, (6, 5)),
            ("nearest-mipmap-nearest", "clamp", FLOAT, (1, 5)),
        )
    ),
)
register(
    TEXTURE_MIP,
    Kernel(
        lambda f: (
            "{y} = {T}(0.0);\n  "
            + _taps_glsl(f, "{x1}", "{x2}", lambda *_: "{y} += (m * x * y) * {fetch0}(i, {layer});")
        )
    ),
)


def _scatter_glsl(f: Function) -> str:
    """As loops: adding is long where a device has no float atomics, or in fixed point, and is what
    takes the time; written out eight times it takes a CPU driver a minute to compile."""
    (w, h), layers = f.attr("size"), f.attr("layers")
    base = f"{{layer}} * {w * h} + " if layers > 1 else ""
    texels, levels = MIP_FILTERS[f.attr("filter")]
    mixed, last = levels == "linear", len(f.attr("sizes")) - 1
    add = f"{{add}}({base}(r.y + i.y) * {w} + r.x + i.x, (m * s) * {{x0}});"
    return (
        "if ({x0} != {T}(0)) {\n"
        f"    {_level_glsl(f, '{x2}')}\n"
        f"    for (int e = 0; e < {2 if mixed else 1}; e++) {{\n"
        f"      float g = {'{y}_l - float({y}_k)' if mixed else '0.0'}, m = e == 0 ? 1.0 - g : g;\n"
        "      if (m == 0.0) continue;\n"
        f"      ivec4 r = {{y}}_r[min({{y}}_k + e, {last})];\n"
        f"    {each_tap_glsl(texels, f.attr('wrap'), '{x1}', 'r.z', 'r.w', add)}"
        "    }\n"
        "  }"
    )


MIP_SCATTER = Op(
    "texture_mip_scatter",
    lambda xs, a: (xs[0].vtype, a["size"], a["layers"]),
    linear_in=(0,),
    reference=lambda f, xs: scattered(
        _taps(f, xs[1], xs[2], xs[0].shape, f.attr("layers")), xs[0], f
    ),
    scatter="add",
    domain=0,
    no_cases="the backward of texture_mip; tested through its gradient",
)
register(MIP_SCATTER, Kernel(_scatter_glsl))


def _grad_glsl(f: Function) -> str:
    texels, levels = MIP_FILTERS[f.attr("filter")]
    last = len(f.attr("sizes")) - 1
    between = f"({{x2}} > 0.0 && {{x2}} < {last}.0)" if levels == "linear" and last else ""

    product = dot_glsl("{x3}", "v", f.inputs[0].vtype.n)

    def body(e: int, dx: int, dy: int) -> str:
        parts = ["0.0", "0.0", "0.0"]
        if texels == "linear":
            parts[0] = f"p.x == q.x ? {'' if dx else '-'}m * float(r.z) * y : 0.0"
            parts[1] = f"p.y == q.y ? {'' if dy else '-'}m * float(r.w) * x : 0.0"
        if between:
            parts[2] = f"({between} ? {'' if e else '-'}x * y : 0.0)"
        slope = f"{product} * vec3({', '.join(parts)})"
        return f"{{ {{T0}} v = {{fetch0}}(i, {{layer}}); {{y}} += {slope}; }}"

    return "{y} = vec3(0.0);\n  " + _taps_glsl(f, "{x1}", "{x2}", body, between)


MIP_GRAD = Op(
    "texture_mip_grad",
    lambda xs, a: (VEC3, *broadcast(xs[1:])),
    reads=(ANY, SAME, SAME, SAME),
    linear_in=(0, 3),
    reference=lambda f, xs: slopes(
        _taps(f, xs[1], xs[2], xs[3].shape, xs[0].shape[0]), xs[0], xs[3]
    ),
    no_cases="the backward of texture_mip; tested through its gradient",
)
register(MIP_GRAD, Kernel(_grad_glsl))


def texture_mip(
    mip: MipMap,
    uv: Variable,
    lod: Any,
    filter: MipFilter = "trilinear",
    wrap: Wrap | Wraps = "repeat",
    border: Any = 0.0,
    bias: Any = 0.0,
) -> Variable:
    """Sample a mip chain at a level of detail per pixel.

    mip: F.image.mipmap or F.image.mip_levels; its layers go with uv's (one serves all). uv: VEC2 @
    any size, as for F.texture. lod: FLOAT @ uv's size or 1x1, or a number: 0 is full resolution, 1
    half of it; clamped to the chain. See F.uv_lod. filter: trilinear (linear in texels and levels),
    linear-mipmap-nearest, nearest-mipmap-linear or nearest-mipmap-nearest. wrap, border: as for
    F.texture, at every level. bias: added to lod, FLOAT or a number. Gradient to the chain: exact,
    by scatter-add to the texels read; to border; to uv, from the taps (0 for nearest texels); to
    lod and bias: the difference of the two levels, 0 where lod is clamped or levels are nearest. A
    uv that is far away or no number: as for F.texture; a lod that is no number counts as 0. Raises
    GraphError for unknown modes. Source: Williams 1983, "Pyramidal parametrics".
    """
    if not isinstance(mip, MipMap):
        raise GraphError(
            f"F.texture_mip: needs a MipMap (F.image.mipmap makes one), got {short(mip)}"
        )
    if filter not in MIP_FILTERS:
        raise GraphError(
            f"F.texture_mip: filter must be one of {tuple(MIP_FILTERS)}, got {filter!r}"
        )
    needs_variable("texture_mip", uv)
    wraps = checked_wrap("texture_mip", wrap)
    atlas, beyond = beyond_border("texture_mip", mip.atlas, wraps, border)
    (lod,) = lift("texture_mip", lod)
    if isinstance(bias, Variable) or bias != 0.0:
        lod = lod + bias
    y = apply(TEXTURE_MIP, (atlas, uv, lod), filter=filter, wrap=wraps, sizes=mip.sizes)
    return y if beyond is None else y + beyond
