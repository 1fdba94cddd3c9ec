"""Masks of one bit a pixel: 32 pixels of a row in one INT.

A neighbourhood operation on a mask reads several texels a pixel; on packed masks it reads as many a
word, so a dilation by any radius costs less than one pass over the image. Bit k of word i is pixel
32 i + k. No gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dressi.ad.functions._common import constant, lift, needs_int, sized
from dressi.ad.functions.arith import clamp, to_float, to_int
from dressi.ad.functions.bits_group import GROUP_DILATE_BITS, MOST_RADIUS, WORD
from dressi.ad.functions.image import differs, spread
from dressi.ad.graph import Function, Size, Variable, checked_shape
from dressi.ad.kernels import DISPATCH, SUBGROUP, Kernel, register
from dressi.ad.registry import ANY, MACRO, SAME, Op, Shape, apply
from dressi.ad.vtype import FLOAT, INT
from dressi.errors import GraphError

MOST = WORD - 1
"""Pixels that one pass along a row reaches: further ones lie two words away."""


def to_words(mask: np.ndarray) -> np.ndarray:
    """(layers, H, W) booleans -> (layers, H, words, 1) signed words."""
    layers, height, width = mask.shape
    n = -(-width // WORD)
    padded = np.zeros((layers, height, n * WORD), np.int64)
    padded[..., :width] = mask
    words = (padded.reshape(layers, height, n, WORD) << np.arange(WORD)).sum(-1)
    return np.where(words >= 1 << 31, words - (1 << 32), words)[..., None]


def from_words(words: np.ndarray, width: int) -> np.ndarray:
    """The inverse of ``to_words``."""
    bits = (words.astype(np.int64) >> np.arange(WORD)) & 1
    return bits.reshape(*words.shape[:2], -1)[..., :width].astype(bool)


def _pack_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    x, threshold = xs
    if x.vtype is not FLOAT or threshold.vtype is not FLOAT:
        raise GraphError(f"needs FLOAT, got {x.vtype.name} and {threshold.vtype.name}")
    if threshold.size != (1, 1) or threshold.layers != 1:
        raise GraphError(f"the threshold must be one number, got {threshold.label()}")
    return INT, (-(-x.size[0] // WORD), x.size[1]), x.layers


def _pack_glsl(f: Function) -> str:
    return (
        "{y} = 0;\n"
        "  for (int {y}_k = 0; {y}_k < 32; ++{y}_k) {\n"
        "    ivec2 {y}_p = ivec2({pos}.x * 32 + {y}_k, {pos}.y);\n"
        f"    if ({{y}}_p.x < {{w0}} && {{fetch0}}({{y}}_p, {{layer}}) {f.attr('compare')} "
        "{x1}) {y} |= 1 << {y}_k;\n  }"
    )


def _pack_together_glsl(f: Function) -> str:
    """The lanes of a subgroup make the word of one of them after the other, so that they read
    pixels beside each other. Only where all lanes are there, and no more than a word has bits."""
    return (
        "int {y}_n = int(gl_SubgroupSize), {y}_me = int(gl_SubgroupInvocationID);\n"
        "  if ({y}_n <= 32 && int(subgroupBallotBitCount(subgroupBallot(true))) == {y}_n) {\n"
        "    for (int k = 0; k < {y}_n; ++k) {\n"
        "      ivec3 of = subgroupShuffle(ivec3({pos}, {layer}), uint(k));\n"
        "      int word = 0;\n"
        "      for (int b = 0; b < 32; b += {y}_n) {\n"
        "        ivec2 p = ivec2(of.x * 32 + b + {y}_me, of.y);\n"
        f"        bool on = p.x < {{w0}} && {{fetch0}}(p, of.z) {f.attr('compare')} {{x1}};\n"
        "        word |= int(subgroupBallot(on).x << uint(b));\n"
        "      }\n"
        "      if (k == {y}_me) {y} = word;\n"
        "    }\n"
        "  } else {\n  " + _pack_glsl(f) + "\n  }"
    )


PACK_BITS = Op(
    "pack_bits",
    _pack_infer,
    reads=(ANY, SAME),
    reference=lambda f, xs: to_words(
        (np.less_equal if f.attr("compare") == "<=" else np.greater_equal)(xs[0], xs[1])[..., 0]
    ),
    cases=tuple(
        sized(
            lambda a, below=below: pack_bits(a, 0.4, below),
            ((FLOAT, 0, 1),),
            (70, 3),
            gradient=False,
        )
        for below in (False, True)
    ),
)
register(PACK_BITS, Kernel(_pack_glsl), Kernel(_pack_together_glsl, SUBGROUP))


def _unpack_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    width, height = attrs["size"]
    _need_words(xs[0], width)
    if xs[0].size[1] != height:
        raise GraphError(f"{xs[0].label()} has no {height} rows")
    return FLOAT, (width, height), xs[0].layers


def _need_words(x: Variable, width: int) -> None:
    if x.vtype is not INT or x.size[0] != -(-width // WORD):
        raise GraphError(f"{x.label()} is not a packed mask of {width} pixels a row")


UNPACK_BITS = Op(
    "unpack_bits",
    _unpack_infer,
    reads=(ANY,),
    reference=lambda f, xs: from_words(xs[0], f.attr("size")[0])[..., None].astype(np.float64),
    cases=(sized(lambda a: unpack_bits(a, (70, 5)), ((INT, -(2**31), 2**31 - 1),), (3, 5)),),
)
register(
    UNPACK_BITS,
    Kernel(
        "{y} = float((uint({fetch0}(ivec2({pos}.x >> 5, {pos}.y), {layer})) "
        ">> uint({pos}.x & 31)) & 1u);"
    ),
)


def same_words(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    """Return the shape of words that a mask of ``width`` pixels a row has, where that is given."""
    if xs[0].vtype is not INT:
        raise GraphError(f"needs INT, got {xs[0].vtype.name}")
    if "width" in attrs:
        _need_words(xs[0], attrs["width"])
    return INT, xs[0].size, xs[0].layers


def last_word(width: int) -> tuple[int, int]:
    """Return of the last word of a row the last bit that is a pixel, and all bits that are."""
    last = (width - 1) % WORD
    return 1 << last, (1 << last + 1) - 1


def _border_glsl(f: Function) -> str:
    end, valid = last_word(f.attr("width"))
    at = "uint({fetch0}({pos} + ivec2(%s), {layer}))"
    return (
        f"uint {{y}}_c = {at % '0, 0'}, {{y}}_w = 0xFFFFFFFFu;\n"
        f"  uint {{y}}_l = {{y}}_c << 1 | ({{pos}}.x > 0 ? {at % '-1, 0'} >> 31 : {{y}}_c & 1u);\n"
        "  uint {y}_r = {y}_c >> 1;\n"
        f"  if ({{pos}}.x < {{w0}} - 1) {{y}}_r |= {at % '1, 0'} << 31;\n"
        f"  else {{ {{y}}_r = ({{y}}_r & ~{end}u) | ({{y}}_c & {end}u); {{y}}_w = {valid}u; }}\n"
        f"  uint {{y}}_u = {{pos}}.y > 0 ? {at % '0, -1'} : {{y}}_c;\n"
        f"  uint {{y}}_d = {{pos}}.y < {{h0}} - 1 ? {at % '0, 1'} : {{y}}_c;\n"
        "  {y} = int((({y}_c ^ {y}_l) | ({y}_c ^ {y}_r) | ({y}_c ^ {y}_u) | ({y}_c ^ {y}_d)) "
        "& {y}_w);"
    )


BORDER_BITS = Op(
    "border_bits",
    same_words,
    reads=(ANY,),
    reference=lambda f, xs: to_words(differs(from_words(xs[0], f.attr("width")))),
    cases=tuple(
        sized(
            lambda a, w=w: border_bits(pack_bits(unpack_bits(a, (w, 5)), 0.5), w),
            ((INT, -(2**31), 2**31 - 1),),
            (3, 5),
        )
        for w in (96, 70, 65)
    ),
)
register(BORDER_BITS, Kernel(_border_glsl))


def spread_row_glsl(left: str, right: str, before: str, after: str) -> str:
    """Return GLSL that spreads a word along its row by x1 <= 31 pixels: bits are doubled up to
    x1, with what crosses from the words beside.

    left, right: names of two copies of the word; their union is the result. before, after: of the
    words beside. All are changed."""
    return (
        "for (int {y}_d = 0; {y}_d < {x1};) {\n"
        "    int {y}_s = min({y}_d + 1, min({x1}, 31) - {y}_d);\n"
        "    if ({y}_s <= 0) break;\n"
        f"    {left} |= {left} << {{y}}_s | {before} >> (32 - {{y}}_s);\n"
        f"    {right} |= {right} >> {{y}}_s | {after} << (32 - {{y}}_s);\n"
        f"    {before} |= {before} << {{y}}_s; {after} |= {after} >> {{y}}_s;\n"
        "    {y}_d += {y}_s;\n  }"
    )


_ROW_GLSL = (
    "uint {y}_c = uint({fetch0}({pos}, {layer})), {y}_v = {y}_c, {y}_l = 0u, {y}_r = 0u;\n"
    "  if ({pos}.x > 0) {y}_l = uint({fetch0}({pos} - ivec2(1, 0), {layer}));\n"
    "  if ({pos}.x < {w0} - 1) {y}_r = uint({fetch0}({pos} + ivec2(1, 0), {layer}));\n"
    f"  {spread_row_glsl('{y}_c', '{y}_v', '{y}_l', '{y}_r')}\n"
    "  {y} = int({y}_c | {y}_v);"
)

TAPS = 4
"""Rows that one pass along columns reads on either side."""


def _column_glsl(f: Function) -> str:
    """Taps ``step`` rows apart, the farthest n rows away: what an earlier pass has spread over
    ``step`` rows becomes one run. A tap beyond the first or last row reads that: of its run, a part
    may lie inside."""
    return (
        "{y} = {fetch0}({pos}, {layer});\n"
        f"  for (int {{y}}_k = 1; {{y}}_k <= {TAPS}; ++{{y}}_k) {{\n"
        f"    int {{y}}_d = min({{y}}_k * {f.attr('step')}, {{x1}});\n"
        "    {y} |= {fetch0}(ivec2({pos}.x, max({pos}.y - {y}_d, 0)), {layer})\n"
        "        | {fetch0}(ivec2({pos}.x, min({pos}.y + {y}_d, {h0} - 1)), {layer});\n  }"
    )


def _reach_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    n = int(xs[1].reshape(-1)[0])
    m = from_words(xs[0], xs[0].shape[2] * WORD)
    if f.op is ROW_BITS:
        return to_words(spread(m, 2, range(1, min(n, MOST) + 1)))
    return to_words(spread(m, 1, [min(k * f.attr("step"), n) for k in range(1, TAPS + 1)]))


ROW_BITS: Op = Op(
    "dilate_bits_row",
    same_words,
    reads=(ANY, SAME),
    reference=_reach_ref,
    cases=tuple(
        sized(lambda a, n=n: apply(ROW_BITS, (a, constant(n, INT))), ((INT, 0, 3000),), (4, 3))
        for n in (0, 1, 2, 5, 16, 31)
    ),
)
register(ROW_BITS, Kernel(_ROW_GLSL))

COLUMN_BITS: Op = Op(
    "dilate_bits_column",
    same_words,
    reads=(ANY, SAME),
    reference=_reach_ref,
    cases=tuple(
        sized(
            lambda a, n=n: apply(COLUMN_BITS, (a, constant(n, INT)), step=2),
            ((INT, 0, 3000),),
            (4, 17),
        )
        for n in (0, 3, 8)
    ),
)
register(COLUMN_BITS, Kernel(_column_glsl))


def _dilate_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    if xs[1].vtype is not FLOAT or xs[1].size != (1, 1):
        raise GraphError(f"the radius must be a FLOAT of size 1x1, got {xs[1].label()}")
    return same_words(xs, attrs)


def _rest(f: Function, radius: Variable, reach: int, width: int) -> Variable:
    """INT @ 1x1: of the radius, rounded, what goes beyond reach, up to width."""
    radius = clamp(radius + 0.5, 0.0, f.attr("max_radius") + 0.5)
    return to_int(clamp(radius - float(reach), 0.0, float(width)))


def _dilate_expand(f: Function, xs: Sequence[Variable]) -> Variable:
    """Along rows 31 pixels a pass; along columns 4, then 36, then 324: each pass repeats the run of
    2 reach + 1 that the ones before have made."""
    words, radius = xs
    most = f.attr("max_radius")
    for reach in range(0, most, MOST):
        words = apply(ROW_BITS, (words, _rest(f, radius, reach, MOST)))
    reach = 0
    while reach < most:
        step = 2 * reach + 1
        words = apply(COLUMN_BITS, (words, _rest(f, radius, reach, TAPS * step)), step=step)
        reach += TAPS * step
    return words


def _dilate_in_groups(f: Function, xs: Sequence[Variable]) -> Variable:
    """A dispatch for every 64 pixels; the first finds the border too, where that is dilated."""
    words, radius = xs
    most = f.attr("max_radius")
    for reach in range(0, most, MOST_RADIUS):
        width = None
        if reach == 0 and words.creator is not None and words.creator.op is BORDER_BITS:
            width = words.creator.attr("width")
            words = words.creator.inputs[0]
        part = min(MOST_RADIUS, most - reach)
        n = _rest(f, radius, reach, part)
        words = apply(GROUP_DILATE_BITS, (words, n), width=width, max_radius=part)
    return words


def _dilate_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    most = f.attr("max_radius")
    n = int(np.floor(np.clip(xs[1].reshape(-1)[0] + 0.5, 0, most + 0.5)))
    m = from_words(xs[0], xs[0].shape[2] * WORD)
    return to_words(spread(spread(m, 2, range(1, n + 1)), 1, range(1, n + 1)))


DILATE_BITS = Op(
    "dilate_bits",
    _dilate_infer,
    kind=MACRO,
    expand=_dilate_expand,
    reference=_dilate_ref,
    cases=tuple(
        sized(lambda a, r=r: dilate_bits(a, r, 40), ((INT, 0, 40),), (5, 53))
        for r in (0.0, 1.0, 2.4, 5.0, 31.0, 33.5, 99.0)
    ),
)
register(DILATE_BITS, Kernel(target=DISPATCH, expand=_dilate_in_groups))


def pack_bits(x: Variable, threshold: Any = 0.5, below: bool = False) -> Variable:
    """INT @ (ceil(W / 32), H): a bit for each pixel of a FLOAT image, set where x >= threshold.

    threshold: FLOAT @ 1x1. below: set where x <= threshold instead. No gradient. Raises GraphError
    for other types.
    """
    compare = "<=" if below else ">="
    return apply(PACK_BITS, lift("pack_bits", x, threshold), compare=compare)


def unpack_bits(words: Variable, size: Size) -> Variable:
    """FLOAT @ size: 1 where the bit of a packed mask is set, else 0. No gradient. Raises GraphError
    when the words are not of that size."""
    (width, height), _ = checked_shape("F.unpack_bits", size)
    return apply(UNPACK_BITS, (words,), size=(width, height))


def border_bits(words: Variable, width: int) -> Variable:
    """Packed ``F.image.border``: the pixels that differ from one of their four neighbours in the
    same layer. width: pixels of a row. No gradient."""
    return apply(BORDER_BITS, (words,), width=needs_int("border_bits", "width", width))


def dilate_bits(words: Variable, radius: Any, max_radius: int) -> Variable:
    """Packed ``F.image.dilate``: set where a pixel of the square of (2 R + 1)^2 is, R =
    floor(radius + 0.5).

    radius: FLOAT @ 1x1, pixels, a run-time value up to max_radius. Stops at the border of each
    layer; bits behind the last pixel of a row may be set as well. No gradient. Raises GraphError
    for a max_radius below 0.
    """
    (radius,) = lift("dilate_bits", radius)
    if needs_int("dilate_bits", "max_radius", max_radius) < 0:
        raise GraphError(f"F.dilate_bits: max_radius must not be negative, got {max_radius}")
    return apply(DILATE_BITS, (words, to_float(radius)), max_radius=int(max_radius))
