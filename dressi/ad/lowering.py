"""Graph to graph, before packing: rasterizations become compute shaders and ordinary Functions.

In: outputs of a simplified graph. Out: outputs of an equal graph without RASTER ops. The Functions
that decide depth and discard move into one op that finds the nearest primitive of every pixel
(``functions.raster_compute``); everything else per fragment is computed per pixel from the number
of that primitive, as an ordinary Function that may share a shader with what follows. Sums and
packed masks take the form that needs fewer dispatches, or fewer passes of a CPU driver.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dressi.ad.functions._common import constant, constant_values
from dressi.ad.functions.bits import (
    BORDER_BITS,
    COLUMN_BITS,
    PACK_BITS,
    ROW_BITS,
    UNPACK_BITS,
    unpack_bits,
)
from dressi.ad.functions.bits_at_once import BAND_BITS
from dressi.ad.functions.group_rows import rows_in_groups
from dressi.ad.functions.group_sum import group_sums
from dressi.ad.functions.integer import bit_not
from dressi.ad.functions.raster_compute import DEPTH32, KEY64, WINNER32, Inner, raster_keys
from dressi.ad.functions.raster_kbuffer import SLOT_UPDATES, kbuffer_layer
from dressi.ad.functions.reduce import BLOCK_SUM
from dressi.ad.functions.select import WHERE, compare, where
from dressi.ad.functions.sparse import SPMV
from dressi.ad.functions.vector import swizzle
from dressi.ad.graph import Function, Variable, topological
from dressi.ad.peeling import peels, rasterization_of
from dressi.ad.registry import ANY, FRAG, FREE, RASTER, SAME, SAMPLER, apply
from dressi.ad.rewrite import Copies, Replacements, named, rewrite
from dressi.ad.vtype import INT


def rasterize_in_compute(outputs: Sequence[Variable], int64_atomics: bool) -> list[Variable]:
    """Outputs of a graph without rasterizations; where several layers of one are read, they are
    found together. int64_atomics: whether depth and primitive fit one atomic operation."""
    if not any(f.op.kind == RASTER for f in topological(outputs)):
        return list(outputs)
    n_layers = peels(outputs)
    winners: dict[int, list[Variable]] = {}
    """By uid of a rasterization: of each layer the primitive per pixel, or -1."""
    per_pixel: dict[int, list[Copies]] = {}
    """By uid of a rasterization: of each layer what fragments compute, for the winners."""

    def rule(f: Function, new: Replacements) -> Variable | None:
        y = f.output
        if not f.op.fragment_exit:
            return None if y.fragment_of is None else y
        raster, peel = rasterization_of(f), f.attr("peel")
        if raster.uid not in winners:
            n = n_layers[raster.uid][1]
            by_layer = _winners(raster, f.inputs[1], f.inputs[2], new, int64_atomics, n)
            winners[raster.uid] = by_layer
            per_pixel[raster.uid] = [_at_pixels(raster, winner, new) for winner in by_layer]
        value = per_pixel[raster.uid][peel](f.inputs[0])
        number = f.attr("background")
        background = constant(int(number) if y.vtype.is_int else number, y.vtype)
        is_covered = compare("gte", winners[raster.uid][peel], 0)
        return named(where(is_covered, value, background), y)

    return rewrite(outputs, rule)


def sum_in_groups(outputs: Sequence[Variable]) -> list[Variable]:
    """Outputs of a graph in which workgroups reduce images to their sums, in place of pyramids, and
    share the long rows of sparse matrices."""
    if not any(f.op in (BLOCK_SUM, SPMV) for f in topological(outputs)):
        return list(outputs)

    def rule(f: Function, new: Replacements) -> Variable | None:
        if f.op is SPMV:
            made = rows_in_groups(f, new(f.inputs[0]))
            return None if made is None else named(made, f.output)
        if f.op is not BLOCK_SUM or f.output.size != (1, 1):
            return None
        # The top of a pyramid; a level that something else reads stays.
        x, merge = _summed(f)
        return named(group_sums(new(x), merge), f.output)

    return rewrite(outputs, rule)


def sum_at_once(outputs: Sequence[Variable], most: int) -> list[Variable]:
    """Outputs of a graph in which one pixel sums up to so many, in place of the last levels of a
    pyramid."""
    if not any(f.op is BLOCK_SUM for f in topological(outputs)):
        return list(outputs)

    def rule(f: Function, new: Replacements) -> Variable | None:
        if f.op is not BLOCK_SUM or f.output.size != (1, 1):
            return None
        x, merge = f.inputs[0], f.attr("merge_layers")
        while (level := x.creator) is not None and level.op is BLOCK_SUM:
            below = level.inputs[0]
            if math.prod(below.size) * below.layers > most:
                break
            x, merge = below, merge or level.attr("merge_layers")
        if x is f.inputs[0]:
            return None
        return named(apply(BLOCK_SUM, (new(x),), merge_layers=merge, whole=True), f.output)

    return rewrite(outputs, rule)


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


def _summed(f: Function) -> tuple[Variable, bool]:
    """The image that a pyramid of block sums adds up, and whether it merges layers."""
    x, merge = f.inputs[0], f.attr("merge_layers")
    if x.creator is None or x.creator.op is not BLOCK_SUM:
        return x, merge
    lower, lower_merges = _summed(x.creator)
    return lower, merge or lower_merges


def _winners(
    raster: Function,
    depth: Variable,
    keep: Variable,
    new: Replacements,
    int64_atomics: bool,
    n: int,
) -> list[Variable]:
    """INT @ pixels, n times: the kept primitive of every layer, the nearest first, or -1."""
    program = _FragmentProgram(new)
    program(raster.output)
    depth, keep = program(depth), program(keep)
    inner = Inner(tuple(program.functions), depth, keep)
    corners = [new(x) for x in raster.inputs]
    bound = {x.uid for x in corners}
    others = [(v, read) for v, read in program.outside.values() if v.uid not in bound]
    attrs = dict(raster.attrs)

    def keys(phase: str, more: Sequence[tuple[Variable, str]] = ()) -> Variable:
        update = SLOT_UPDATES[phase] if n > 1 else ""
        op, inputs, all_attrs = raster_keys(
            corners, [*others, *more], inner, phase, attrs, n, update
        )
        return apply(op, inputs, **all_attrs)

    key = keys(KEY64) if int64_atomics else keys(WINNER32, [(keys(DEPTH32), ANY)])
    if n > 1:
        return [kbuffer_layer(key, k, n) for k in range(n)]
    # A key holds the inverted primitive: of 64 bits in the low word.
    return [bit_not(swizzle(key, "x") if int64_atomics else key)]


class _FragmentProgram(Copies):
    """Copies of what a fragment computes: Functions per fragment, constants, coordinates and short
    arithmetic on uniforms. Anything else is read from outside, and so is, however short it is, what
    a copy reads at other pixels, because a fragment computes its own pixel only."""

    def __init__(self, new: Replacements) -> None:
        super().__init__(lambda v, _: self._copy(v))
        self.new = new
        self.functions: list[Function] = []
        """The copied Functions, inputs first."""
        self.outside: dict[int, tuple[Variable, str]] = {}
        """By uid: a Variable that the program reads, and how."""

    def _copy(self, v: Variable) -> Variable:
        f = v.creator
        if f is None or not (v.fragment_of is not None or f.op.kind == FREE or is_short(v)):
            return self._read(v, ANY)
        if f.op.kind == RASTER:
            xs = [self.new(x) for x in f.inputs]
        else:
            reads = [f.op.read(i) for i in range(len(f.inputs))]
            xs = [
                self(x) if read == SAME else self._read(x, read)
                for x, read in zip(f.inputs, reads, strict=True)
            ]
        copy = apply(f.op, xs, **dict(f.attrs))
        assert copy.creator is not None
        self.functions.append(copy.creator)
        return copy

    def _read(self, v: Variable, read: str) -> Variable:
        """A Variable from outside, noted in ``outside``; a sampler's binding serves other reads."""
        x = self.new(v)
        if read == SAMPLER or x.uid not in self.outside:
            self.outside[x.uid] = (x, read)
        return x


def _at_pixels(raster: Function, winner: Variable, new: Replacements) -> Copies:
    """Copies per pixel of what fragments compute, for those that won."""
    copies = Copies(lambda v, copy: new(v) if v.fragment_of is None else None)
    copies[raster.output.uid] = winner
    return copies


MOST_REPEATED = 24
"""Functions that every fragment computes again for a value of uniforms, instead of reading it."""


def is_short(v: Variable) -> bool:
    """Return whether v is made of uniforms, constants and coordinates by a few Functions."""
    functions = topological([v])
    return len(functions) <= MOST_REPEATED and all(
        f.op.kind in (FRAG, FREE)
        and f.op.scatter is None
        and all(f.op.read(i) == SAME for i in range(len(f.inputs)))
        and all(x.creator is not None or x.size == (1, 1) for x in f.inputs)
        for f in functions
    )
