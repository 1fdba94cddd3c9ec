"""Sampling of a texture table: at each pixel another image, read with a sampler of its own.

A pixel says which image it reads, how many levels that has, and how it wraps and filters. The texel
centres, wraps, weights and levels of detail are those of F.texture and of a trilinear
F.texture_mip; so are the backwards: to the texels a scatter-add, to uv that of the taps, to the
level of detail the difference of the two levels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dressi.ad.functions._common import constant, leaf, lift, needs_variable, sized
from dressi.ad.functions.image import expand
from dressi.ad.functions.scatter import lookup
from dressi.ad.functions.texture_table import TextureTable, texel_at_glsl, texture_table
from dressi.ad.functions.texture_taps import Taps, read, scattered, slopes
from dressi.ad.functions.vector import swizzle
from dressi.ad.functions.wraps import near, near_glsl, off_texel_kinks
from dressi.ad.functions.written_out import dot_glsl
from dressi.ad.graph import Function, Size, Variable, short
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import ANY, SAME, Op, Shape, apply
from dressi.ad.shape import broadcast
from dressi.ad.vtype import FLOAT, INT, IVEC3, VEC2, VEC3
from dressi.errors import GraphError
from dressi.kinds import Filter, Wrap, Wraps

WRAP_CODES = {"clamp": 0, "repeat": 1, "mirror": 2}
NEAREST = 16


def sampler_code(wrap: Wraps, filter: Filter) -> int:
    """The number of a sampler in the rows of ``F.texture_from``. wrap: clamp, repeat or mirror
    along u and v. filter: linear or nearest. No gradient. Raises GraphError for others."""
    if len(wrap) != 2 or not all(w in WRAP_CODES for w in wrap) or filter not in _FILTERS:
        raise GraphError(
            f"F.image.sampler_code: wraps are a pair of {tuple(WRAP_CODES)}, filters {_FILTERS}, "
            f"got {short(wrap)}, {filter!r}"
        )
    return WRAP_CODES[wrap[0]] + 4 * WRAP_CODES[wrap[1]] + NEAREST * (filter == "nearest")


_FILTERS = ("linear", "nearest")


def _wrapped_glsl(i: str) -> str:
    """GLSL ivec2: texel i brought into the image of r.yz texels, by the wraps {y}_w. See
    ``wraps.wrap_glsl``; 2 n - 1 - j is beyond the image where a texel repeats."""
    turns = f"ivec2(floor((vec2({i}) + 0.5) / vec2(n)))"
    j = f"clamp({i} - n * {turns}, ivec2(0), n - 1)"
    return (
        f"mix(min({j}, 2 * r.yz - 1 - {j}), clamp({i}, ivec2(0), r.yz - 1), "
        "equal({y}_w, ivec2(0)))"
    )


def _taps_glsl(which: str, uv: str, lod: str, body: Callable[[int, int], str], always: str) -> str:
    """GLSL of all taps. body: (place along u; along v) -> statement, which sees t (texel), o (which
    level, 0 or 1), m (weight of the level), x, y (weights along u and v), p (place in the level, q
    before it was kept near), r (box of the level) and {y}_l. always: condition under which levels
    of weight 0 count too."""
    lines = [
        f"if ({which}.y > 0) {{",
        f"  int {{y}}_c = {which}.z, {{y}}_k = {which}.y - 1;",
        # Level 0 for what is no number.
        f"  float {{y}}_l = {lod} > 0.0 ? min({lod}, float({{y}}_k)) : 0.0;",
        "  int {y}_e = min(int({y}_l), {y}_k);",
        "  ivec2 {y}_w = ivec2({y}_c, {y}_c >> 2) & 3;",
        f"  bool {{y}}_f = ({{y}}_c & {NEAREST}) == 0;",
        "  for (int o = 0; o < 2; o++) {",
        "    float g = {y}_l - float({y}_e), m = o == 0 ? 1.0 - g : g;",
        f"    if (m == 0.0{f' && !({always})' if always else ''}) continue;",
        f"    ivec3 r = {{fetch1}}(ivec2({which}.x + min({{y}}_e + o, {{y}}_k), 0), 0).xyz;",
        f"    precise vec2 q = {uv} * vec2(r.yz) - ({{y}}_f ? 0.5 : 0.0);",
        f"    precise vec2 p = {near_glsl('q')}, b = floor(p);",
        "    vec2 s = {y}_f ? p - b : vec2(0.0);",
        "    ivec2 n = r.yz * (ivec2(1) + ivec2(equal({y}_w, ivec2(2))));",
        "    ivec2 a = ivec2(b), d = a + ({y}_f ? 1 : 0);",
        f"    a = {_wrapped_glsl('a')}; d = {_wrapped_glsl('d')};",
    ]
    for dx, dy in ((0, 0), (1, 0), (0, 1), (1, 1)):
        column, row = ("a", "d")[dx], ("a", "d")[dy]
        x, y = ("1.0 - s.x", "s.x")[dx], ("1.0 - s.y", "s.y")[dy]
        lines.append(
            f"    {{ int t = r.x + {row}.y * r.y + {column}.x; float x = {x}, y = {y}; "
            f"{body(dx, dy)} }}"
        )
    return "\n  ".join([*lines, "  }", "}"])


def _glsl(f: Function) -> str:
    texel = f"{{fetch0}}({texel_at_glsl(f.inputs[0].size[0], 't')}, 0)"
    return "{y} = {T}(0.0);\n  " + _taps_glsl(
        "{x2}", "{x3}", "{x4}", lambda *_: f"{{y}} += (m * x * y) * {texel};", ""
    )


def _taps(f: Function, boxes: np.ndarray, at: Sequence[np.ndarray], width: int) -> Taps:
    """The texels that f reads, the slopes of their weights by u, v and the level of detail. at:
    which, uv, lod, each broadcast (layers, H, W, n). width: of the image of texels."""
    which, uv, lod = at
    table = boxes.reshape(-1, 4).astype(np.int64)
    row, levels, code = (which[..., k].astype(np.int64) for k in range(3))
    last = np.maximum(levels - 1, 0)
    here = np.where(lod[..., 0] > 0, np.minimum(lod[..., 0], last), 0.0)
    below, linear = np.floor(here).astype(np.int64), (code & NEAREST) == 0
    inner = (lod[..., 0] > 0) & (lod[..., 0] < last)
    out: Taps = []
    for o in (0, 1):
        m = (1 - (here - below) if o == 0 else here - below) * (levels > 0)
        box = table[row + np.minimum(below + o, last)]
        size = box[..., 1:3]
        q = uv * size - 0.5 * linear[..., None]
        p = near(q)
        base = np.floor(p).astype(np.int64)
        t = (p - base) * linear[..., None]
        moves = (p == q) & linear[..., None]
        for dx, dy in ((0, 0), (1, 0), (0, 1), (1, 1)):
            corner = base + np.array([dx, dy]) * linear[..., None]
            x, y = (_wrap(code >> s & 3, corner[..., k], size[..., k]) for k, s in ((0, 0), (1, 2)))
            wx = t[..., 0] if dx else 1 - t[..., 0]
            wy = t[..., 1] if dy else 1 - t[..., 1]
            du = m * wy * size[..., 0] * (1 if dx else -1) * moves[..., 0]
            dv = m * wx * size[..., 1] * (1 if dy else -1) * moves[..., 1]
            dl = wx * wy * (1 if o else -1) * inner * (levels > 0)
            texel = box[..., 0] + y * size[..., 0] + x
            slope = np.stack([du, dv, dl], -1)
            out.append((0, texel // width, texel % width, m * wx * wy, slope))
    return out


def _wrap(mode: np.ndarray, i: np.ndarray, n: np.ndarray) -> np.ndarray:
    there = i % (2 * n)
    mirrored = np.minimum(there, 2 * n - 1 - there)
    return np.where(mode == 0, np.clip(i, 0, n - 1), np.where(mode == 1, i % n, mirrored))


def _spread(xs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Inputs broadcast over layers and pixels."""
    shape = np.broadcast_shapes(*(x.shape[:3] for x in xs))
    return [np.broadcast_to(x, (*shape, *x.shape[3:])) for x in xs]


def _infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    texels, _, which, uv, lod = xs
    if which.vtype is not IVEC3 or uv.vtype is not VEC2 or lod.vtype is not FLOAT:
        got = ", ".join(x.vtype.name for x in xs[2:])
        raise GraphError(f"which must be IVEC3, uv VEC2 and lod FLOAT, got {got}")
    return texels.vtype, *broadcast((which, uv, lod))


def _ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    (w, h), layers = f.output.size, f.output.layers
    at = [np.broadcast_to(x, (layers, h, w, x.shape[-1])) for x in xs[2:]]
    return read(_taps(f, xs[1], at, xs[0].shape[2]), xs[0])


def _backward(f: Function, gy: Variable, i: int) -> Variable | None:
    texels, boxes, which, uv, lod = f.inputs
    if i in (1, 2):
        return None
    if i == 0:
        at = [expand(x, gy.size, gy.layers) for x in (which, uv, lod)]
        return apply(SCATTER, (gy, boxes, *at), size=texels.size, layers=1)
    g = apply(GRAD, (texels, boxes, which, uv, lod, gy))
    return swizzle(g, "xy" if i == 3 else "z")


def _case(texels: Variable, uv: Variable, lod: Variable, k: Variable) -> Variable:
    """A read of three images with all samplers, and of none."""
    table = texture_table(texels, ((6, 5), (4, 4), (3, 7)))
    wraps: tuple[Wrap, ...] = ("clamp", "repeat", "mirror")
    rows = [
        (table.first[n % 3], table.levels[n % 3], sampler_code((wraps[n % 3], w), "linear"))
        for n, w in enumerate(wraps)
    ] + [(0, 0, 0), (table.first[1], 1, sampler_code(("repeat", "clamp"), "nearest"))]
    which = lookup(leaf(np.array(rows, np.int32), IVEC3, "which"), k)
    return texture_from(table, which, uv, lod)


def _off_kinks(uv: np.ndarray, texels: Size) -> np.ndarray:
    """Away from the kinks of all levels of all images of the case."""
    for _ in range(8):
        for size in ((6, 5), (4, 4), (3, 7), (3, 2), (2, 2), (1, 3), (1, 1)):
            uv = off_texel_kinks(uv, size)
    return uv


TEXTURE_FROM = Op(
    "texture_from",
    _infer,
    reads=(ANY, ANY, SAME, SAME, SAME),
    linear_in=(0,),
    backward=_backward,
    reference=_ref,
    cases=tuple(
        sized(
            _case,
            ((vtype, -1, 1), (VEC2, -1.5, 2.5), (FLOAT, -0.7, 3.6), (INT, 0, 4)),
            (16, 5),
            (9, 7),
            (9, 7),
            (9, 7),
            one_layer=True,
            off_kinks=_off_kinks,
        )
        for vtype in (VEC3, FLOAT)
    ),
)
register(TEXTURE_FROM, Kernel(_glsl))


def _scatter_glsl(f: Function) -> str:
    add = "{add}(t, (m * x * y) * {x0});"
    taps = _taps_glsl("{x2}", "{x3}", "{x4}", lambda *_: f"if (x * y != 0.0) {add}", "")
    return f"if ({{x0}} != {{T}}(0)) {{\n  {taps}\n  }}"


def _scatter_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    gy, *at = _spread((xs[0], *xs[2:]))
    return scattered(_taps(f, xs[1], at, f.attr("size")[0]), gy, f)


SCATTER = Op(
    "texture_from_scatter",
    lambda xs, a: (xs[0].vtype, a["size"], a["layers"]),
    reads=(SAME, ANY, SAME, SAME, SAME),
    linear_in=(0,),
    zero_if=(0,),
    reference=_scatter_ref,
    scatter="add",
    domain=0,
    no_cases="the backward of texture_from; tested through its gradient",
)
register(SCATTER, Kernel(_scatter_glsl))


def _grad_glsl(f: Function) -> str:
    texel = f"{{fetch0}}({texel_at_glsl(f.inputs[0].size[0], 't')}, 0)"
    product = dot_glsl("{x5}", "v", f.inputs[0].vtype.n)
    between = "{x4} > 0.0 && {x4} < float({y}_k)"

    def body(dx: int, dy: int) -> str:
        along = (
            f"{{y}}_f && p.x == q.x ? {'' if dx else '-'}m * float(r.y) * y : 0.0",
            f"{{y}}_f && p.y == q.y ? {'' if dy else '-'}m * float(r.z) * x : 0.0",
            f"{between} ? (o == 0 ? -x * y : x * y) : 0.0",
        )
        return f"{{ {{T0}} v = {texel}; {{y}} += {product} * vec3({', '.join(along)}); }}"

    return "{y} = vec3(0.0);\n  " + _taps_glsl("{x2}", "{x3}", "{x4}", body, between)


def _grad_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    *at, gy = _spread(xs[2:])
    return slopes(_taps(f, xs[1], at, xs[0].shape[2]), xs[0], gy)


GRAD = Op(
    "texture_from_grad",
    lambda xs, a: (VEC3, *broadcast(xs[2:])),
    reads=(ANY, ANY, SAME, SAME, SAME, SAME),
    linear_in=(0, 5),
    reference=_grad_ref,
    no_cases="the backward of texture_from; tested through its gradient",
)
register(GRAD, Kernel(_grad_glsl))


def texture_from(table: TextureTable, which: Variable, uv: Variable, lod: Any = 0.0) -> Variable:
    """Sample at each pixel another image of a texture table, with a sampler of its own.

    table: F.image.texture_table. which: IVEC3 @ any size: row of the first level that is read in
    ``table.boxes`` (``table.first`` of the image), number of levels, and F.image.sampler_code; with
    0 levels nothing is read and the value is 0. uv: VEC2, as for F.texture. lod: FLOAT or a number:
    0 is full resolution, 1 half of it; clamped to the levels; read trilinearly. Gradient to the
    table's texels: exact, by scatter-add; to uv, from the taps (0 for nearest); to lod: the
    difference of the two levels, 0 where it is clamped. A uv that is far away or no number: as for
    F.texture; a lod that is no number counts as 0. Raises GraphError for other types.
    """
    if not isinstance(table, TextureTable):
        raise GraphError(
            f"F.texture_from: needs a TextureTable (F.image.texture_table), got {short(table)}"
        )
    which, uv = needs_variable("texture_from", which), needs_variable("texture_from", uv)
    (level,) = lift("texture_from", lod)
    level = constant(level) if not isinstance(level, Variable) else level
    return apply(TEXTURE_FROM, (table.texels, table.boxes, which, uv, level))
