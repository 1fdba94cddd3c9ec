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

from dressi.ad.functions._common import constant, is_constant, lift, needs_variable, sized
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
from dressi.ad.functions.texture_taps import GRAD_UV, TEXTURE_SCATTER, layers_of, read, taps
from dressi.ad.functions.wraps import (
    checked_wrap,
    inside_glsl,
    is_inside,
    near,
    near_glsl,
    number_glsl,
    off_texel_kinks,
    wrap_index,
)
from dressi.ad.graph import Function, Variable
from dressi.ad.kernels import DISPATCH, Kernel, register
from dressi.ad.registry import COMP, SAME, SAMPLER, Op, Shape, apply
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


TEXTURE = Op(
    "texture",
    _sample_infer,
    reads=(SAMPLER, SAME),
    linear_in=(0,),
    backward=_sample_backward,
    reference=lambda f, xs: read(
        taps(f, xs[1], (f.output.layers, *xs[1].shape[1:3]), xs[0].shape), xs[0]
    ),
    cases=tuple(
        sized(
            lambda t, uv, wrap=wrap, mode=mode: texture(t, uv, filter=mode, wrap=wrap),
            ((vtype, -1, 1), (VEC2, -1.5, 2.5)),
            (6, 5),
            (9, 7),
            mixed_layers=True,
            off_kinks=off_texel_kinks,
        )
        for wrap in (*WRAPS, ("repeat", "border"), ("clamp", "mirror"))
        for mode, vtype in (("linear", VEC3), ("nearest", FLOAT))
    ),
)
register(TEXTURE, Kernel("{y} = {sample0}({x1}, {layer});"))


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
    layer = np.broadcast_to(layers_of(shape[0], layers), shape)[ok]
    at = (layer, wrap_index(wrap[1], i[..., 1], h)[ok], wrap_index(wrap[0], i[..., 0], w)[ok])
    np.maximum.at(out[..., 0], at, key[ok].astype(np.float64))
    np.add.at(out[..., 1], at, 1)
    return out


INVERSE_UV = Op(
    "inverse_uv",
    lambda xs, a: (IVEC2, a["size"], a["layers"]),
    kind=COMP,
    reference=_inverse_ref,
    scatter="raw",
    domain=1,
    no_cases="the stochastic backward of texture; tested in test_op_table.py",
)
register(INVERSE_UV, Kernel(_inverse_glsl, DISPATCH))


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
    ``exact`` (scatter-add to the texels read) or ``inverse_uv`` (paper, 3.3.2: one pixel a texel,
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
