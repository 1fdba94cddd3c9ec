"""Graph to graph, before packing: rasterizations become compute shaders and ordinary Functions.

In: outputs of a simplified graph. Out: outputs of an equal graph without RASTER ops. What decides
depth and discard moves into one op that finds the nearest primitive of every pixel
(``functions.raster_compute``); what else is known of the fragment that won is computed from its
number, per pixel, like anything else, and may share a shader with what follows.
"""

from __future__ import annotations

from collections.abc import Sequence

from dressi.ad.functions._common import constant
from dressi.ad.functions.group_sum import group_sums
from dressi.ad.functions.integer import bit_not
from dressi.ad.functions.raster_compute import (
    DEPTH32,
    KEY64,
    WINNER32,
    Inner,
    raster_keys,
)
from dressi.ad.functions.raster_kbuffer import SLOT_UPDATES, kbuffer_layer
from dressi.ad.functions.reduce import BLOCK_SUM
from dressi.ad.functions.select import compare, where
from dressi.ad.functions.vector import swizzle
from dressi.ad.graph import Function, Variable, topological
from dressi.ad.peeling import peels
from dressi.ad.registry import ANY, FREE, RASTER, SAME, SAMPLER, apply, is_short
from dressi.errors import origin


def rasterize_in_compute(outputs: Sequence[Variable], int64_atomics: bool) -> list[Variable]:
    """Outputs without rasterizations; those of which several layers are asked for find them all at
    once. int64_atomics: whether depth and primitive fit one atomic."""
    functions = topological(outputs)
    if not any(f.op.kind == RASTER for f in functions):
        return list(outputs)
    new: dict[int, Variable] = {}
    layers = peels(outputs)
    ids: dict[int, list[Variable]] = {}  # by uid of the rasterization: primitive, or -1, by layer
    on_pixel: dict[tuple[int, int], dict[int, Variable]] = {}
    # By uid of the rasterization and layer, then of a value per fragment: the same of the winner.
    for f in functions:
        y = f.output
        with origin(f.line):
            if f.op.fragment_exit:
                raster = f.inputs[1].fragment_of
                assert raster is not None
                if raster.uid not in ids:
                    n = layers[raster.uid][1]
                    winners = _winners(raster, f.inputs[1], f.inputs[2], new, int64_atomics, n)
                    ids[raster.uid] = winners
                    for k, winner in enumerate(winners):
                        on_pixel[raster.uid, k] = {raster.output.uid: winner}
                peel = f.attr("peel")
                value = _on_pixel(f.inputs[0], on_pixel[raster.uid, peel], new)
                number = f.attr("background")
                background = constant(int(number) if y.vtype.is_int else number, y.vtype)
                new[y.uid] = where(compare("gte", ids[raster.uid][peel], 0), value, background)
                new[y.uid].name = y.name
            elif y.fragment_of is None:
                xs = [new.get(x.uid, x) for x in f.inputs]
                if any(a is not b for a, b in zip(xs, f.inputs, strict=True)):
                    new[y.uid] = apply(f.op, xs, **dict(f.attrs))
                    new[y.uid].name = y.name
    return [new.get(v.uid, v) for v in outputs]


def sum_in_groups(outputs: Sequence[Variable]) -> list[Variable]:
    """Outputs whose sums over images are added up by groups of invocations, not as pyramids."""
    functions = topological(outputs)
    if not any(f.op is BLOCK_SUM for f in functions):
        return list(outputs)
    new: dict[int, Variable] = {}
    for f in functions:
        y = f.output
        with origin(f.line):
            if f.op is BLOCK_SUM and y.size == (1, 1):
                # From the top of a pyramid to what it adds up; who else reads a level keeps it.
                x, merge = _summed(f)
                new[y.uid] = group_sums(new.get(x.uid, x), merge)
            else:
                xs = [new.get(x.uid, x) for x in f.inputs]
                if all(a is b for a, b in zip(xs, f.inputs, strict=True)):
                    continue
                new[y.uid] = apply(f.op, xs, **dict(f.attrs))
            new[y.uid].name = y.name
    return [new.get(v.uid, v) for v in outputs]


def _summed(f: Function) -> tuple[Variable, bool]:
    """What a pyramid of block sums adds up, and whether it merges layers."""
    x, merge = f.inputs[0], f.attr("merge_layers")
    if x.creator is None or x.creator.op is not BLOCK_SUM:
        return x, merge
    lower, lower_merges = _summed(x.creator)
    return lower, merge or lower_merges


def _winners(
    raster: Function,
    depth: Variable,
    keep: Variable,
    new: dict[int, Variable],
    int64_atomics: bool,
    n: int,
) -> list[Variable]:
    """INT @ pixels, n times: the kept primitive of every layer, the nearest first, or -1."""
    copies: dict[int, Variable] = {}
    functions: list[Function] = []
    outside: dict[int, tuple[Variable, str]] = {}
    _copy(raster.output, copies, functions, outside, new)
    inner = Inner(
        (),
        _copy(depth, copies, functions, outside, new),
        _copy(keep, copies, functions, outside, new),
    )
    inner = Inner(tuple(functions), inner.depth, inner.keep)
    corners = [new.get(x.uid, x) for x in raster.inputs]
    known = {x.uid for x in corners}
    others = [(v, how) for v, how in outside.values() if v.uid not in known]
    attrs = dict(raster.attrs)

    def keys(phase: str, more: Sequence[tuple[Variable, str]] = ()) -> Variable:
        update = SLOT_UPDATES[phase] if n > 1 else ""
        op, inputs, all_attrs = raster_keys(
            corners, [*others, *more], inner, phase, attrs, n, update
        )
        return apply(op, inputs, **all_attrs)

    found = keys(KEY64) if int64_atomics else keys(WINNER32, [(keys(DEPTH32), ANY)])
    if n > 1:
        return [kbuffer_layer(found, k, n) for k in range(n)]
    # Of 64 bits the low word is the primitive. Inverted, all of them.
    return [bit_not(swizzle(found, "x") if int64_atomics else found)]


def _copy(
    v: Variable,
    copies: dict[int, Variable],
    functions: list[Function],
    outside: dict[int, tuple[Variable, str]],
    new: dict[int, Variable],
) -> Variable:
    """v as a fragment computes it: a copy of the Functions per fragment, of constants and
    coordinates, and of short arithmetic on uniforms; anything else is read from outside, and so is
    what a copy reads at other pixels, however short it is: a fragment computes its own pixel."""
    if v.uid in copies:
        return copies[v.uid]
    f = v.creator
    if f is None or not (v.fragment_of is not None or f.op.kind == FREE or is_short(v)):
        copies[v.uid] = _from_outside(v, ANY, outside, new)
        return copies[v.uid]
    if f.op.kind == RASTER:
        xs = [new.get(x.uid, x) for x in f.inputs]
    else:
        xs = [
            _copy(x, copies, functions, outside, new)
            if f.op.read(i) == SAME
            else _from_outside(x, f.op.read(i), outside, new)
            for i, x in enumerate(f.inputs)
        ]
    made = apply(f.op, xs, **dict(f.attrs))
    assert made.creator is not None
    functions.append(made.creator)
    copies[v.uid] = made
    return made


def _from_outside(
    v: Variable, read: str, outside: dict[int, tuple[Variable, str]], new: dict[int, Variable]
) -> Variable:
    """v, noted among what the fragments read; one that a sampler reads is bound for it."""
    made = new.get(v.uid, v)
    if read == SAMPLER or made.uid not in outside:
        outside[made.uid] = (made, read)
    return made


def _on_pixel(v: Variable, done: dict[int, Variable], new: dict[int, Variable]) -> Variable:
    """A value per fragment as a value per pixel, of the fragment that won."""
    if v.uid in done:
        return done[v.uid]
    if v.fragment_of is None:
        return new.get(v.uid, v)
    f = v.creator
    assert f is not None
    done[v.uid] = apply(f.op, [_on_pixel(x, done, new) for x in f.inputs], **dict(f.attrs))
    return done[v.uid]
