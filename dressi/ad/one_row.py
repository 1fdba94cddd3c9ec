"""Graph to graph: images of one row are drawn as the first row of two.

In: a graph that may rasterize into images of (W, 1), W > 1. Out: an equal graph where each of them
is drawn at (W, 2), and ``F.resolve`` takes the upper row. An image of height 1 is a table, folded
where it lies (``packing.layout``), and graphics hardware cannot draw into a folded image. A compute
shader can, and then the graph stays as it is.
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
from dressi.ad.registry import RASTER, SAME, apply, is_short
from dressi.errors import origin


def draw_one_row(outputs: Sequence[Variable]) -> list[Variable]:
    """Outputs whose rasterizations fill images of at least two rows, or of one pixel."""
    functions = topological(outputs)
    if not any(f.op.kind == RASTER and f.output.is_table for f in functions):
        return list(outputs)
    new: dict[int, Variable] = {}
    drawn: dict[int, _TwoRows] = {}
    for f in functions:
        y = f.output
        raster = f.inputs[1].fragment_of if f.op.fragment_exit else y.fragment_of
        with origin(f.line):
            if raster is not None and raster.output.is_table:
                if not f.op.fragment_exit:
                    continue  # made where it is resolved
                if raster.uid not in drawn:
                    drawn[raster.uid] = _TwoRows(raster, new)
                made = drawn[raster.uid].resolved(f)
            else:
                xs = [new.get(x.uid, x) for x in f.inputs]
                if all(a is b for a, b in zip(xs, f.inputs, strict=True)):
                    continue
                made = apply(f.op, xs, **dict(f.attrs))
            new[y.uid] = made
            made.name = made.name or y.name
    return [new.get(v.uid, v) for v in outputs]


class _TwoRows:
    """One rasterization of (W, 1), drawn at (W, 2), and what its fragments compute there."""

    def __init__(self, raster: Function, new: dict[int, Variable]) -> None:
        self.new = new
        self.thin: Size = raster.output.size
        self.size: Size = (self.thin[0], 2)
        self.copies: dict[int, Variable] = {}

    def resolved(self, f: Function) -> Variable:
        """What the F.resolve gives: the upper row of the same at (W, 2)."""
        xs = [self._copy(x) for x in f.inputs]
        return crop(apply(f.op, xs, **dict(f.attrs)), 0, 0, *self.thin)

    def _copy(self, v: Variable) -> Variable:
        """A value of a fragment, or one that it reads at its own pixel, at (W, 2)."""
        if v.uid not in self.copies:
            self.copies[v.uid] = self._made(v)
        return self.copies[v.uid]

    def _made(self, v: Variable) -> Variable:
        f = v.creator
        if v.fragment_of is None and v.size != self.thin:
            return self.new.get(v.uid, v)
        if f is None or (v.fragment_of is None and not is_short(v)):
            column = to_int(swizzle(pixel_coord(self.size), "x"))
            return apply(LOOKUP, (self.new.get(v.uid, v), column))
        attrs = dict(f.attrs)
        if attrs.get("size") == self.thin and v.size == self.thin:
            attrs["size"] = self.size
        if f.op.kind == RASTER:
            # The rows below the first are no part of the image: nothing is drawn there.
            attrs["scissor"] = attrs["scissor"] or ((0, 0, *self.thin),)
            return apply(f.op, [_upper_half(self.new.get(x.uid, x)) for x in f.inputs], **attrs)
        xs = [
            self._copy(x) if f.op.read(i) == SAME else self.new.get(x.uid, x)
            for i, x in enumerate(f.inputs)
        ]
        return apply(f.op, xs, **at_size(f, xs, attrs, self.size))


def _upper_half(corner: Variable) -> Variable:
    """Clip positions that fill the upper half of the image with what filled all of it."""
    y, w = swizzle(corner, "y"), swizzle(corner, "w")
    return vec4(swizzle(corner, "x"), (y - w) * 0.5, swizzle(corner, "z"), w)
