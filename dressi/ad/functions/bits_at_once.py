"""Border and dilation of a packed mask in one pass: every word reads all that reaches it.

In: words, and radii in pixels. Out: the words that ``border_bits``, ``dilate_bits_row`` and
``dilate_bits_column`` make one after the other, bit for bit. Not an op of ``F``: for CPU drivers,
where a pass costs more to begin than a few thousand words that are read again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dressi.ad.functions._common import constant, sized
from dressi.ad.functions.bits import (
    from_words,
    last_word,
    same_words,
    spread_row_glsl,
    to_words,
)
from dressi.ad.functions.bits_group import WORD
from dressi.ad.functions.image import differs, spread
from dressi.ad.graph import Function
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import ANY, SAME, Op, apply
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
