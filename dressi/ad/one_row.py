"""Graph to graph: images of one row are drawn as the first row of two.

In: a graph that may rasterize into images of (W, 1), W > 1. Out: an equal graph where each of them
is drawn at (W, 2), and ``F.resolve`` is followed by a crop to the upper row. An image of height 1
is a table, which is folded to a near-square image in memory (``packing.layout``), and graphics
hardware cannot draw into a folded image. A compute shader can, and then the graph stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from dressi.ad.functions.arith import to_int
from dressi.ad.functions.custom import at_size
from dressi.ad.functions.image import pixel_coord
from dressi.ad.functions.scatter import LOOKUP
from dressi.ad.functions.vector import swizzle, vec4
from dressi.ad.functions.window import crop
from dressi.ad.graph import Function, Size, Variable, topological
from dressi.ad.lowering import is_short
from dressi.ad.registry import RASTER, SAME, apply
from dressi.ad.rewrite import Copies, Replacements, named, reapplied, rewrite


def draw_one_row(outputs: Sequence[Variable]) -> list[Variable]:
    """Outputs of a graph whose rasterizations fill images of at least two rows, or of one pixel."""
    if not any(f.op.kind == RASTER and f.output.is_table for f in topological(outputs)):
        return list(outputs)
    copies: dict[int, Copies] = {}

    def rule(f: Function, new: Replacements) -> Variable | None:
        raster = f.inputs[1].fragment_of if f.op.fragment_exit else f.output.fragment_of
        if raster is None or not raster.output.is_table:
            return None
        if not f.op.fragment_exit:
            return f.output  # copied by the F.resolve that reads it
        thin = raster.output.size
        if raster.uid not in copies:
            copies[raster.uid] = _at_two_rows(thin, new)
        tall = reapplied(f, [copies[raster.uid](x) for x in f.inputs])
        return named(crop(tall, 0, 0, *thin), f.output)

    return rewrite(outputs, rule)


def _at_two_rows(thin: Size, new: Replacements) -> Copies:
    """Copies, at (W, 2), of what fragments of an image of (W, 1) compute and of what they read at
    their own pixel."""
    tall = (thin[0], 2)

    def rule(v: Variable, copy: Copies) -> Variable | None:
        f = v.creator
        if v.fragment_of is None and v.size != thin:
            return new(v)
        if f is None or (v.fragment_of is None and not is_short(v)):
            column = to_int(swizzle(pixel_coord(tall), "x"))
            return apply(LOOKUP, (new(v), column))
        attrs = dict(f.attrs)
        if attrs.get("size") == thin and v.size == thin:
            attrs["size"] = tall
        if f.op.kind == RASTER:
            # The rows below the first are no part of the image: nothing is drawn there.
            attrs["scissor"] = attrs["scissor"] or ((0, 0, *thin),)
            return apply(f.op, [_upper_half(new(x)) for x in f.inputs], **attrs)
        xs = [copy(x) if f.op.read(i) == SAME else new(x) for i, x in enumerate(f.inputs)]
        return apply(f.op, xs, **at_size(f, xs, attrs, tall))

    return Copies(rule)


def _upper_half(corner: Variable) -> Variable:
    """Clip positions that map to the upper half of the image what filled all of it."""
    y, w = swizzle(corner, "y"), swizzle(corner, "w")
    return vec4(swizzle(corner, "x"), (y - w) * 0.5, swizzle(corner, "z"), w)
