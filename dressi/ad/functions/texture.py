"""Texture sampling, with or without the hardware sampler, and its two backwards.

Differs: the paper always takes the hardware sampler. GPUs weigh its four texels with 8 bits, so the
picture would not be the function whose gradient is computed; four fetches in the shader are the
default, the sampler is asked for (``hardware=True``).
Texel (i, j) covers uv in [i/w, (i+1)/w] x [j/h, (j+1)/h]; uv (0, 0) is the top left corner (glTF).
``exact`` backward: every pixel adds its gradient to the texels that it read (four for linear), by
float atomics. ``inverse_uv`` backward (paper, Algorithm 1): a compute pass writes, for every texel,
which pixel landed there, and texels gather. Differs: the paper keeps the last writer, which is
biased (a texel hit by many pixels gets the gradient of one) and order-dependent. Here a texel keeps
one of its pixels drawn uniformly (the largest of a keyed permutation of pixel numbers) and the
count, and landing places are jittered by up to a texel, so that the expectation over steps is the
exact gradient. Differs: the jitter is a Weyl sequence (R2: Roberts 2018), not Sobol's. A projection
that is jittered by F.sobol of the same counter decides at which texel a pixel looks; a jitter that
goes along with it would give some texels of a fine texture up to four times their share, always.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dressi.ad.functions._common import constant, is_constant, lift, needs_variable
from dressi.ad.functions.color import decoded
from dressi.ad.functions.image import expand
from dressi.ad.functions.inverse_maps import (
    INVERSE_GATHER,
    A,
    B,
    Ref,
    in_stream,
    mix_bits,
    permute_glsl,
    stream_of,
)
from dressi.ad.functions.wraps import (
    at_glsl,
    checked_wrap,
    inside_glsl,
    is_inside,
    near,
    near_glsl,
    number_glsl,
    off_texel_kinks,
    wrap_index,
)
from dressi.ad.functions.written_out import dot_glsl, lerp_glsl
from dressi.ad.graph import Function, Variable
from dressi.ad.kernels import DISPATCH, SUBGROUP, Kernel, register
from dressi.ad.registry import ANY, COMP, SAME, SAMPLER, Case, Op, Shape, apply, broadcast
from dressi.ad.vtype import FLOAT, INT, IVEC2, VEC2, VEC3
from dressi.errors import GraphError
from dressi.kinds import BACKWARDS, FILTERS, WRAPS, Filter, TextureBackward, Wrap, Wraps


def _sample_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    tex, uv = xs
    if tex.vtype.is_int or tex.vtype.is_matrix:
        raise GraphError(f"the texture must be FLOAT or VECn, got {tex.vtype.name}")
    if uv.vtype is not VEC2:
        raise GraphError(f"uv must be VEC2, got {uv.vtype.name}")
    if tex.layers != 1 and uv.layers not in (1, tex.layers):
        raise GraphError(f"a texture of {tex.layers} layers, uv of {uv.layers}")
    return tex.vtype, uv.size, max(tex.layers, uv.layers)


def taps(f: Function, uv: np.ndarray, size: tuple[int, int]) -> list[tuple[np.ndarray, ...]]:
    """(x, y, weight, d weight / du, d weight / dv) of each texel that uv reads, each as uv[...,
    0]."""
    return taps_of(f.attr("filter"), f.attr("wrap"), uv, size)


def taps_of(
    filter: str, wraps: Wraps, uv: np.ndarray, size: tuple[int, int]
) -> list[tuple[np.ndarray, ...]]:
    """As ``taps``; texels beyond a border have weight 0."""
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


def _layers_of(n: int, tex_layers: int) -> np.ndarray:
    layer = np.arange(n)[:, None, None]
    return np.zeros_like(layer) if tex_layers == 1 else layer


def _sample_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    tex, uv = xs
    uv = np.broadcast_to(uv, (max(tex.shape[0], uv.shape[0]), *uv.shape[1:]))
    layer = _layers_of(uv.shape[0], tex.shape[0])
    size = (tex.shape[2], tex.shape[1])
    out = 0.0
    for x, y, weight, _, _ in taps(f, uv, size):
        out = out + weight[..., None] * tex[layer, y, x]
    return np.asarray(out)


def _sample_backward(f: Function, gy: Variable, i: int) -> Variable:
    tex, uv = f.inputs
    attrs = {"filter": f.attr("filter"), "wrap": f.attr("wrap")}
    if i == 1:
        return apply(GRAD_UV, (tex, uv, gy), **attrs)
    uv = expand(uv, gy.size, gy.layers)
    shape = {"size": tex.size, "layers": tex.layers}
    if f.attr("backward") == "exact":
        return apply(TEXTURE_SCATTER, (gy, uv), **attrs, **shape)
    stream = stream_of(f)
    step = in_stream(_step_of(f), stream)
    inverse = apply(INVERSE_UV, (uv, gy, step), stream=stream, **attrs, **shape)
    return apply(INVERSE_GATHER, (gy, inverse, step), **shape)


def _step_of(f: Function) -> Variable:
    step = f.attr("step")
    return constant(0, INT) if step is None else step.value


TEXTURE = register(
    Op(
        "texture",
        _sample_infer,
        reads=(SAMPLER, SAME),
        linear_in=(0,),
        backward=_sample_backward,
        reference=_sample_ref,
        cases=tuple(
            Case(
                lambda t, uv, wrap=wrap, mode=mode: texture(t, uv, filter=mode, wrap=wrap),
                ((vtype, -1, 1), (VEC2, -1.5, 2.5)),
                elementwise=False,
                sizes=((6, 5), (9, 7)),
                mixed_layers=True,
                off_kinks=off_texel_kinks,
            )
            for wrap in (*WRAPS, ("repeat", "border"), ("clamp", "mirror"))
            for mode, vtype in (("linear", VEC3), ("nearest", FLOAT))
        ),
    ),
    Kernel("{y} = {sample0}({x1}, {layer});"),
)


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


def _scatter_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    gy, uv = xs
    (w, h), layers = f.attr("size"), f.attr("layers")
    out = np.zeros((layers, h, w, gy.shape[-1]))
    uv = np.broadcast_to(uv, (*gy.shape[:3], 2))
    layer = np.broadcast_to(_layers_of(gy.shape[0], layers), gy.shape[:3])
    for x, y, weight, _, _ in taps(f, uv, (w, h)):
        np.add.at(out, (layer, y, x), weight[..., None] * gy)
    return out


TEXTURE_SCATTER = register(
    Op(
        "texture_scatter",
        lambda xs, a: (xs[0].vtype, a["size"], a["layers"]),
        linear_in=(0,),
        zero_if=(0,),
        reference=_scatter_ref,
        scatter="add",
        domain=0,
        no_cases="the backward of texture; tested through its gradient",
    ),
    Kernel(_scatter_glsl),
    Kernel(_scatter_together_glsl, SUBGROUP),
)


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


def _grad_uv_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    tex, uv, gy = xs
    layer = _layers_of(gy.shape[0], tex.shape[0])
    uv = np.broadcast_to(uv, (*gy.shape[:3], 2))
    out = np.zeros((*gy.shape[:3], 2))
    for x, y, _, du, dv in taps(f, uv, (tex.shape[2], tex.shape[1])):
        value = np.sum(tex[layer, y, x] * gy, axis=-1)
        out[..., 0] += du * value
        out[..., 1] += dv * value
    return out


GRAD_UV = register(
    Op(
        "texture_grad_uv",
        lambda xs, a: (VEC2, *broadcast(xs[1:])),
        reads=(ANY, SAME, SAME),
        linear_in=(0, 2),
        reference=_grad_uv_ref,
        no_cases="the backward of texture; tested through its gradient",
    ),
    Kernel(_grad_uv_glsl),
)


_R2 = (3242174889, 2447445413)
"""1 / p and 1 / p^2 times 2^32, p^3 = p + 1: steps of the two-dimensional Weyl sequence."""


def _jitter_key(f: Function) -> int:
    """Where the jitter of each pixel starts; streams start apart, for steps alone only shift it."""
    return int(0x5BD1E995 ^ mix_bits(np.array(f.attr("stream")), A, B))


def _inverse_glsl(f: Function) -> str:
    (w, h), wrap = f.attr("size"), f.attr("wrap")
    dw, dh = f.inputs[0].size
    base = f"{{layer}} * {w * h} + " if f.attr("layers") > 1 else ""
    jitter = "vec2(0.0)" if f.attr("filter") == "nearest" else "j - 0.5"
    inside = inside_glsl(wrap, "i.x", "i.y", w, h)
    guard = f"if ({inside}) " if inside else ""
    return (
        "if ({x1} != {T1}(0)) {\n"
        f"    uint n = uint(({{layer}} * {dh} + {{pos}}.y) * {dw} + {{pos}}.x);\n"
        f"    uint x = n ^ {_jitter_key(f)}u; {permute_glsl(A, B)}\n"
        f"    uvec2 r = uvec2({_R2[0]}u, {_R2[1]}u) * uint({{x2}}) + uvec2(x << 16, x);\n"
        "    vec2 j = vec2(r >> 8) / 16777216.0;\n"
        f"    vec2 p = {{x0}} * vec2({w}, {h}) + {jitter}; "
        f"ivec2 i = ivec2(floor({near_glsl('p')}));\n"
        f"    int t = 2 * ({base}{number_glsl(wrap, 'i.x', 'i.y', w, h)});\n"
        f"    x = n ^ (uint({{x2}}) * 0x9e3779b1u); {permute_glsl(A, B)}\n"
        f"    {guard}{{ atomicMax({{buffer}}[t], x); atomicAdd({{buffer}}[t + 1], 1u); }}\n"
        "  }"
    )


def _inverse_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    uv, gy, step = xs
    (w, h), layers, wrap = f.attr("size"), f.attr("layers"), f.attr("wrap")
    shape = gy.shape[:3]
    n = np.arange(np.prod(shape), dtype=np.uint64).reshape(shape)
    x = mix_bits(n ^ np.uint64(_jitter_key(f)), A, B)
    start = np.stack([x << np.uint64(16), x], -1)
    r = [(a * int(step.reshape(-1)[0])) & 0xFFFFFFFF for a in _R2]
    bits = (start + np.array(r, np.uint64)) & np.uint64(0xFFFFFFFF)
    j = (bits >> np.uint64(8)).astype(np.float64) / 2**24
    if f.attr("filter") == "nearest":
        j = np.full_like(j, 0.5)
    p = np.broadcast_to(uv, (*shape, 2)) * (w, h) + j - 0.5
    i = np.floor(near(p)).astype(np.int64)
    seed = np.uint64((int(step.reshape(-1)[0]) * 0x9E3779B1) & 0xFFFFFFFF)
    key = mix_bits(n ^ seed, A, B)
    out = np.zeros((layers, h, w, 2))
    ok = (gy != 0).any(axis=-1) & is_inside(wrap, i[..., 0], i[..., 1], w, h)
    layer = np.broadcast_to(_layers_of(shape[0], layers), shape)[ok]
    at = (layer, wrap_index(wrap[1], i[..., 1], h)[ok], wrap_index(wrap[0], i[..., 0], w)[ok])
    np.maximum.at(out[..., 0], at, key[ok].astype(np.float64))
    np.add.at(out[..., 1], at, 1)
    return out


INVERSE_UV = register(
    Op(
        "inverse_uv",
        lambda xs, a: (IVEC2, a["size"], a["layers"]),
        kind=COMP,
        reference=_inverse_ref,
        scatter="raw",
        domain=1,
        no_cases="the stochastic backward of texture; tested in test_op_table.py",
    ),
    Kernel(_inverse_glsl, DISPATCH),
)


def texture(
    tex: Variable,
    uv: Variable,
    filter: Filter = "linear",
    wrap: Wrap | Wraps = "repeat",
    backward: TextureBackward = "exact",
    step: Variable | None = None,
    hardware: bool = False,
    border: Any = 0.0,
    srgb: bool = False,
) -> Variable:
    """Sample a texture.

    tex: FLOAT or VECn @ any size; its layers go with uv's (one serves all). uv: VEC2 @ any size,
    [0, 1]^2 over the texture, (0, 0) at the top left. filter: linear or nearest. wrap: repeat,
    clamp, mirror or border, or a pair of them for u and v. border: the value of texels beyond a
    border, numbers or FLOAT or tex's type @ 1x1, linear. srgb: tex holds sRGB values (an alpha
    aside), which are decoded before they are filtered. backward: how the gradient reaches tex,
    ``exact`` (scatter-add to the texels read) or ``inverse_uv`` (paper, 3.2.2: one pixel a texel,
    unbiased over steps; give ``step``, an INT @ 1x1 that counts steps; ops that share one draw
    independently, and the same again when the graph is built again). hardware: sample with the
    device's sampler where it can (one layer, linear filtering of 32-bit floats): faster on GPUs,
    with weights of 8 bits on most. Gradient to tex (its stored values), to border, and to uv from
    the four taps (0 for nearest). A uv
    farther than 2^22 texels from the texture, an infinite one too, reads what is there, and one
    that is no number what is 2^22 texels before it: always texels of the texture or its border,
    with finite gradients to them and 0 to uv. Raises GraphError for unknown modes.
    """
    for what, value, known in (("filter", filter, FILTERS), ("backward", backward, BACKWARDS)):
        if value not in known:
            raise GraphError(f"F.texture: {what} must be one of {known}, got {value!r}")
    wraps = checked_wrap("texture", wrap)
    if step is not None:
        needs_variable("texture", step)
    if step is not None and (step.vtype is not INT or step.size != (1, 1)):
        raise GraphError(f"F.texture: step must be INT @ 1x1, got {step.label()}")
    if srgb:
        tex = decoded(needs_variable("texture", tex))
    tex, beyond = beyond_border("texture", tex, wraps, border)
    y = apply(
        TEXTURE,
        (tex, uv),
        filter=filter,
        wrap=wraps,
        backward=backward,
        step=None if step is None else Ref(step),
        hardware=bool(hardware),
    )
    return y if beyond is None else y + beyond


def beyond_border(
    name: str, tex: Variable, wraps: Wraps, border: Any
) -> tuple[Variable, Variable | None]:
    """What to sample with zeros beyond the border, and what to add to that; None for nothing."""
    (value,) = lift(name, border)
    if "border" not in wraps or is_constant(value, 0.0):
        return tex, None
    needs_variable(name, tex)
    if value.size != (1, 1) or value.vtype.is_int or value.vtype not in (FLOAT, tex.vtype):
        raise GraphError(
            f"F.{name}: the border must be FLOAT or {tex.vtype.name} @ 1x1, got {value.label()}"
        )
    return tex - value, value
