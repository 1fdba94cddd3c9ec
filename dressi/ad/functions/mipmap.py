"""Mip chains: a texture at halved resolutions, all in one image.

The atlas: level 0 at the left, levels 1, 2, ... below each other at its right. Level i has
max(1, w >> i) x max(1, h >> i) texels. So a chain is one image on any device, as any other.
A texel of the next level is the mean over the area that it covers: two texels an axis, and of an
odd number three, the outer ones in part. The backward is the transposed map, as reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dressi.ad.functions._common import like_floats, needs_int, needs_variable, sized
from dressi.ad.functions.color import decoded
from dressi.ad.functions.window import crop, place_glsl
from dressi.ad.graph import Function, Size, Variable, short
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import ANY, Op, apply
from dressi.ad.vtype import FLOAT, VEC3, VType
from dressi.errors import GraphError


def level_size(size: Size, i: int) -> Size:
    """Size of level i."""
    return max(1, size[0] >> i), max(1, size[1] >> i)


# -- one level from the one before


def _half_weight(n: int, tap: str, o: str) -> str:
    """GLSL of the weight of texel 2 o + tap of n for texel o of the next level."""
    if n % 2 == 0 or n == 1:
        return "0.5" if n > 1 else "1.0"
    m = n // 2
    return f"(float({tap} == 0 ? {m} - {o} : {tap} == 1 ? {m} : {o} + 1) / {n}.0)"


def _n_taps(n: int) -> int:
    return 1 if n == 1 else 2 + n % 2


def half_matrix(n: int) -> np.ndarray:
    """(max(1, n >> 1), n): overlaps of the texels' intervals, divided by the length of one."""
    m = max(1, n >> 1)
    low = np.arange(m)[:, None] * n / m
    texel = np.arange(n)[None]
    return np.clip(np.minimum(low + n / m, texel + 1) - np.maximum(low, texel), 0, None) * m / n


def _half_glsl(f: Function) -> str:
    (w, h), (pos, layer) = f.inputs[0].size, place_glsl(f)
    weights = f"{_half_weight(w, 'i', '{y}_p.x')} * {_half_weight(h, 'j', '{y}_p.y')}"
    return (
        f"ivec2 {{y}}_p = {pos}; {{y}} = {{T}}(0.0);\n"
        f"  for (int j = 0; j < {_n_taps(h)}; j++) for (int i = 0; i < {_n_taps(w)}; i++)\n"
        f"    {{y}} += ({weights}) * {{fetch0}}(2 * {{y}}_p + ivec2(i, j), {layer});"
    )


HALF: Op = Op(
    "mip_half",
    lambda xs, a: (like_floats(xs, a)[0], level_size(xs[0].size, 1), xs[0].layers),
    reads=(ANY,),
    once=(0,),
    backward=lambda f, gy, i: apply(UNHALF, (gy,), size=f.inputs[0].size),
    reference=lambda f, xs: np.einsum(
        "lhwc,oh,pw->lopc",
        xs[0],
        half_matrix(xs[0].shape[1]),
        half_matrix(xs[0].shape[2]),
    ),
    cases=tuple(
        sized(lambda a: apply(HALF, (a,)), ((t, -2, 2),), size)
        for t, size in (
            (VEC3, (8, 4)),
            (FLOAT, (7, 5)),
            (VEC3, (1, 9)),
            (FLOAT, (6, 3)),
            (FLOAT, (13, 1)),
            (FLOAT, (1, 1)),
        )
    ),
)
register(HALF, Kernel(_half_glsl))


def _unhalf_axis(n: int, name: str, j: str) -> str:
    """GLSL that declares texels ``name``_o[2] of the next level that texel j of n is part of, and
    weights ``name``_w[2]. The second one only of an odd number, to even j."""
    m = max(1, n >> 1)
    if n % 2 == 0 or n == 1:
        return (
            f"int {name}_o[2] = int[2]({j} >> 1, 0); "
            f"float {name}_w[2] = float[2]({'0.5' if n > 1 else '1.0'}, 0.0);"
        )
    return (
        f"int {name}_o[2] = int[2](min({j} >> 1, {m - 1}), max(({j} >> 1) - 1, 0)); "
        f"float {name}_w[2] = float[2](float(({j} & 1) == 1 ? {m} : {m} - ({j} >> 1)) / {n}.0, "
        f"float(({j} & 1) == 1 ? 0 : {j} >> 1) / {n}.0);"
    )


def _unhalf_glsl(f: Function) -> str:
    (w, h), (pos, layer) = f.output.size, place_glsl(f)
    nx, ny = (2 if n % 2 and n > 1 else 1 for n in (w, h))
    return (
        f"ivec2 {{y}}_p = {pos}; {{y}} = {{T}}(0.0);\n"
        f"  {_unhalf_axis(w, '{y}_x', '{y}_p.x')}\n"
        f"  {_unhalf_axis(h, '{y}_y', '{y}_p.y')}\n"
        f"  for (int j = 0; j < {ny}; j++) for (int i = 0; i < {nx}; i++)\n"
        "    {y} += ({y}_x_w[i] * {y}_y_w[j]) * "
        f"{{fetch0}}(ivec2({{y}}_x_o[i], {{y}}_y_o[j]), {layer});"
    )


UNHALF: Op = Op(
    "mip_half_transposed",
    lambda xs, a: (xs[0].vtype, a["size"], xs[0].layers),
    reads=(ANY,),
    backward=lambda f, gy, i: apply(HALF, (gy,)),
    reference=lambda f, xs: np.einsum(
        "lopc,oh,pw->lhwc",
        xs[0],
        half_matrix(f.attr("size")[1]),
        half_matrix(f.attr("size")[0]),
    ),
    cases=tuple(
        sized(
            lambda a, size=size: apply(UNHALF, (a,), size=size),
            ((t, -2, 2),),
            level_size(size, 1),
            any_type=False,
        )
        for t, size in ((VEC3, (8, 5)), (FLOAT, (7, 1)), (FLOAT, (1, 1)))
    ),
)
register(UNHALF, Kernel(_unhalf_glsl))


# -- the atlas


def places(sizes: Sequence[Size]) -> list[tuple[int, int, int, int]]:
    """(left, top, width, height) of every level in the atlas."""
    out, top = [], 0
    for i, (w, h) in enumerate(sizes):
        out.append((sizes[0][0] if i else 0, top if i else 0, w, h))
        top += h if i else 0
    return out


def _pack_glsl(f: Function) -> str:
    pos, layer = place_glsl(f)
    lines = [f"ivec2 {{y}}_p = {pos}; {{y}} = {{T}}(0.0);"]
    for i, (v, (x, y)) in enumerate(zip(f.inputs, f.attr("at"), strict=True)):
        w, h = v.size
        lines.append(
            f"{'else ' if i else ''}if ({{y}}_p.x >= {x} && {{y}}_p.x < {x + w} && "
            f"{{y}}_p.y >= {y} && {{y}}_p.y < {y + h}) "
            f"{{y}} = {{fetch{i}}}({{y}}_p - ivec2({x}, {y}), {layer});"
        )
    return "\n  ".join(lines)


def _pack_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    w, h = f.output.size
    out = np.zeros((f.output.layers, h, w, xs[0].shape[-1]))
    for (x, y), a in zip(f.attr("at"), xs, strict=True):
        out[:, y : y + a.shape[1], x : x + a.shape[2]] = a
    return out


def _pack_backward(f: Function, gy: Variable, i: int) -> Variable:
    (x, y), (w, h) = f.attr("at")[i], f.inputs[i].size
    return crop(gy, x, y, w, h)


PACK = Op(
    "mip_levels",
    lambda xs, a: (xs[0].vtype, a["size"], max(x.layers for x in xs)),
    reads=(ANY,),
    backward=_pack_backward,
    reference=_pack_ref,
    cases=(
        sized(
            lambda a, b, c: mip_levels([a, b, c]).atlas,
            ((VEC3, -2, 2),) * 3,
            (7, 5),
            (3, 2),
            (1, 1),
        ),
        sized(lambda a, b: mip_levels([a, b]).atlas, ((FLOAT, -2, 2),) * 2, (9, 1), (4, 1)),
    ),
)
register(PACK, Kernel(_pack_glsl))


def _packed(chain: Sequence[Variable]) -> Variable:
    """The atlas. A shader fetches from all of its inputs at every pixel on devices that run both
    sides of a branch, so the small levels are put together first, in a smaller image."""
    boxes = places([x.size for x in chain])
    parts, at = [chain[-1]], [boxes[-1][:2]]
    for i in reversed(range(len(chain) - 1)):
        parts, at = [chain[i], *parts], [boxes[i][:2], *at]
        if i in (0, 1, 2):
            x, y = at[0]
            w, h = (max(b[k] + b[k + 2] for b in boxes[i:]) - (x, y)[k] for k in (0, 1))
            corners = tuple((b[0] - x, b[1] - y) for b in at)
            parts, at = [apply(PACK, parts, at=corners, size=(w, h))], [(x, y)]
    return parts[0]


@dataclass(frozen=True, eq=False)
class MipMap:
    """A mip chain for F.texture_mip, made by F.image.mipmap or F.image.mip_levels.

    atlas: FLOAT or VECn, all levels in one image: level 0 at the left, the others below each other
    at its right, 0 elsewhere. sizes: (width, height) of each level. Gradients flow through the
    atlas to what the levels were made from.
    """

    atlas: Variable
    sizes: tuple[Size, ...]

    @property
    def n_levels(self) -> int:
        """Number of levels, at least 1."""
        return len(self.sizes)

    @property
    def vtype(self) -> VType:
        """Type of a texel."""
        return self.atlas.vtype

    def level(self, i: int) -> Variable:
        """The image of level i. Gradient to the chain. Raises GraphError for another i."""
        if not 0 <= needs_int("MipMap.level", "i", i) < self.n_levels:
            raise GraphError(f"level: 0 to {self.n_levels - 1}, got {i}")
        return crop(self.atlas, *places(self.sizes)[i])

    def __repr__(self) -> str:
        w, h = self.sizes[0]
        return f"MipMap({self.vtype.name}@{w}x{h}, {self.n_levels} levels)"


def mipmap(tex: Variable, levels: int | None = None, srgb: bool = False) -> MipMap:
    """The mip chain of a texture: each level the mean of the one before over its texels' areas.

    tex: FLOAT or VECn @ any size, any layers, linear. levels: how many, level 0 counted; default
    down to 1x1. srgb: tex holds sRGB values (an alpha aside), which are decoded first. Gradient to
    tex: exact, of all levels. Raises GraphError for other types and a number of levels that there
    are not.
    """
    needs_variable("mipmap", tex)
    most = max(tex.size).bit_length()
    n = most if levels is None else needs_int("mipmap", "levels", levels)
    if not 1 <= n <= most:
        w, h = tex.size
        raise GraphError(f"F.mipmap: levels must be 1 to {most} for {w}x{h}, got {n}")
    chain = [decoded(tex) if srgb else tex]
    while len(chain) < n:
        chain.append(apply(HALF, (chain[-1],)))
    return mip_levels(chain)


def mip_levels(levels: Sequence[Variable]) -> MipMap:
    """A mip chain of given levels, e.g. leaves of their own.

    levels: FLOAT or VECn of one type, level i @ max(1, w >> i) x max(1, h >> i), level 0 first; all
    with the same layers or one. Gradient to each level. Raises GraphError for levels that do not
    fit.
    """
    if not isinstance(levels, (list, tuple)) or not levels:
        raise GraphError(f"F.mip_levels: needs a sequence of Variables, got {short(levels)}")
    chain = [needs_variable("mip_levels", x) for x in levels]
    first, layers = chain[0], max(x.layers for x in chain)
    for i, x in enumerate(chain):
        w, h = level_size(first.size, i)
        needed = ""
        if x.vtype is not first.vtype or x.vtype.is_int or x.vtype.is_matrix:
            needed = "FLOAT or VECn, and all of one type"
        elif x.size != (w, h):
            needed = f"{w}x{h}"
        elif x.layers not in (1, layers):
            needed = f"of 1 or {layers} layers"
        elif i and level_size(first.size, i - 1) == (1, 1):
            needed = "left out, for the one before is 1x1"
        if needed:
            raise GraphError(f"F.mip_levels: level {i} must be {needed}, got {x.label()}")
    return MipMap(_packed(chain), tuple(x.size for x in chain))
