"""Packed masks on CPU drivers: fewer passes over words, and words in the place of pixels.

In: outputs of a simplified graph. Out: those of an equal one. Border and dilation of a mask are one
pass, in which every word reads all that reaches it (``band_bits``, not an op of ``F``): a pass
costs more to begin than a few thousand words that are read again. Choices by a packed mask read
their other side of the mask that was packed of it, where there is one: 32 pixels lie in a word.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dressi.ad.functions._common import constant, constant_values, sized
from dressi.ad.functions.bits import (
    BORDER_BITS,
    COLUMN_BITS,
    PACK_BITS,
    ROW_BITS,
    UNPACK_BITS,
    from_words,
    last_word,
    same_words,
    spread_row_glsl,
    to_words,
    unpack_bits,
)
from dressi.ad.functions.bits_group import WORD
from dressi.ad.functions.image import differs, spread
from dressi.ad.functions.select import WHERE
from dressi.ad.graph import Function, Variable, topological
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import ANY, SAME, Op, apply
from dressi.ad.rewrite import Replacements, named, rewrite
from dressi.ad.vtype import INT


def _glsl(f: Function) -> str:
    """Three words of a row, and of those above and below it, run along the column; their borders
    are added up, then spread along the row. A radius of at most 31 reaches no bit of the words on
    either side whose own neighbour lies outside of the three."""
    end, valid = last_word(f.attr("width"))

    def row(name: str, at: str) -> str:
        word = f"uint({{fetch0}}(ivec2({{pos}}.x%s, {at}), {{layer}}))"
        left, right = word % " - 1", word % " + 1"
        beside = f"{{y}}_a ? {left} : 0u, {word % ''}, {{y}}_b ? {right} : 0u"
        return f"uvec3 {{y}}_{name} = uvec3({beside});\n"

    return (
        "bool {y}_a = {pos}.x > 0, {y}_b = {pos}.x < {w0} - 1;\n"
        "  uvec3 {y}_e = uvec3(0u), {y}_w = uvec3({y}_a ? ~0u : 0u, ~0u, {y}_b ? ~0u : 0u);\n"
        f"  if (!{{y}}_b) {{ {{y}}_e.y = {end}u; {{y}}_w.y = {valid}u; }}\n"
        f"  if ({{pos}}.x == {{w0}} - 2) {{ {{y}}_e.z = {end}u; {{y}}_w.z = {valid}u; }}\n"
        "  int {y}_f = max({pos}.y - {x2}, 0), {y}_t = min({pos}.y + {x2}, {h0} - 1);\n"
        f"  uvec3 {{y}}_m = uvec3(0u);\n  {row('p', 'max({y}_f - 1, 0)')}  {row('c', '{y}_f')}"
        "  for (int {y}_j = {y}_f; {y}_j <= {y}_t; ++{y}_j) {\n"
        f"    {row('n', 'min({y}_j + 1, {h0} - 1)')}"
        "    uint {y}_g = {y}_a ? {y}_c.x >> 31 : {y}_c.y & 1u;\n"
        "    uvec3 {y}_l = {y}_c << 1 | uvec3({y}_c.x & 1u, {y}_g, {y}_c.y >> 31);\n"
        "    uvec3 {y}_r = {y}_c >> 1 | uvec3({y}_c.yz << 31, 0u);\n"
        "    {y}_r = ({y}_r & ~{y}_e) | ({y}_c & {y}_e);\n"
        "    {y}_m |= (({y}_c ^ {y}_l) | ({y}_c ^ {y}_r) | ({y}_c ^ {y}_p) | ({y}_c ^ {y}_n))"
        " & {y}_w;\n"
        "    {y}_p = {y}_c; {y}_c = {y}_n;\n  }\n"
        "  uint {y}_u = {y}_m.y, {y}_v = {y}_m.y;\n"
        f"  {spread_row_glsl('{y}_u', '{y}_v', '{y}_m.x', '{y}_m.z')}\n"
        "  {y} = int({y}_u | {y}_v);"
    )


def _reference(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    along, across = (int(x.reshape(-1)[0]) for x in xs[1:])
    border = to_words(differs(from_words(xs[0], f.attr("width"))))
    near = spread(from_words(border, xs[0].shape[2] * WORD), 2, range(1, along + 1))
    return to_words(spread(near, 1, range(1, across + 1)))


BAND_BITS: Op = Op(
    "band_bits",
    same_words,
    reads=(ANY, SAME, SAME),
    reference=_reference,
    cases=tuple(
        sized(
            lambda a, w=w, n=n: apply(
                BAND_BITS, (a, constant(n, INT), constant(n // 2, INT)), width=w
            ),
            ((INT, -(2**31), 2**31 - 1),),
            (-(-w // WORD), 9),
        )
        for w in (96, 70, 65, 32, 20)
        for n in (0, 1, 6, 31)
    ),
)
register(BAND_BITS, Kernel(_glsl))


def band_at_once(outputs: Sequence[Variable], most: int) -> list[Variable]:
    """Outputs of a graph in which the border of a packed mask is found and dilated in one pass:
    along rows, and in masks of up to so many words along the nearest rows of a column as well."""
    if not any(f.op is BORDER_BITS for f in topological(outputs)):
        return list(outputs)

    def rule(f: Function, new: Replacements) -> Variable | None:
        y, across = f.output, constant(0, INT)
        if f.op is COLUMN_BITS and f.attr("step") == 1:
            if y.size[0] * y.size[1] * y.layers > most:
                return None
            row, across = f.inputs[0].creator, new(f.inputs[1])
        else:
            row = f
        if row is None or row.op is not ROW_BITS:
            return None
        border = row.inputs[0].creator
        if border is None or border.op is not BORDER_BITS:
            return None
        inputs = (new(border.inputs[0]), new(row.inputs[1]), across)
        return named(apply(BAND_BITS, inputs, width=border.attr("width")), y)

    return rewrite(outputs, rule)


COMPARISONS = {"lte": "<=", "gte": ">="}
"""Ops that compare as ``pack_bits`` does, by name."""


def choose_by_words(outputs: Sequence[Variable]) -> list[Variable]:
    """Outputs of a graph in which a choice by a packed mask unpacks its other side as well, where
    that is a comparison of which a packed mask is made anyway."""
    found = (f for f in topological(outputs) if f.op is PACK_BITS)
    packs = {key: f.output for f in found if (key := _compared(f)) is not None}

    def rule(f: Function, new: Replacements) -> Variable | None:
        if f.op is not WHERE or not _is_unpacked(f.inputs[0]) or f.inputs[2].creator is None:
            return None
        condition, chosen, other = f.inputs
        key = _compared(f.inputs[2].creator)
        words = None if key is None else packs.get(key)
        if words is None or other.size != f.output.size or other.layers != f.output.layers:
            return None
        unpacked = unpack_bits(new(words), other.size)
        return named(apply(WHERE, (new(condition), new(chosen), unpacked)), f.output)

    return rewrite(outputs, rule) if packs else list(outputs)


def _is_unpacked(x: Variable) -> bool:
    return x.creator is not None and x.creator.op is UNPACK_BITS


def _compared(f: Function) -> tuple[int, tuple[float, ...], str] | None:
    """What a comparison with a constant compares, and how; None for another Function."""
    how = f.attr("compare") if f.op is PACK_BITS else COMPARISONS.get(f.op.name)
    if how is None or not (values := constant_values(f.inputs[1])):
        return None
    return f.inputs[0].uid, values, how
