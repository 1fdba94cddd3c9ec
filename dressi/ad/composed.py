"""Graph to graph: gradients that pixels scatter to a table, and its rows hand on to another, are
scattered to the other at once.

In: outputs of a simplified graph. Out: outputs of an equal graph, to be simplified again. Pixels
read the corners of a face in a table of faces, which read them in a table of vertices. Backwards
that is a scatter to rows of faces and a gather of all faces by each vertex, which reads tens of
values where few pixels have a gradient. Here each pixel looks up the vertex in the place of its
face, and adds to that. Only the order of additions differs. And
what pixels of one pass add to the same rows is one table: cleared once, read once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dressi.ad.functions._common import constant, is_constant
from dressi.ad.functions.arith import ADD_N, add_n, mul
from dressi.ad.functions.scatter import CSR_GATHER, LOOKUP, SCATTER_ADD
from dressi.ad.functions.scatter_all import SCATTER_ALL
from dressi.ad.functions.select import WHERE, compare, where
from dressi.ad.graph import Function, Variable
from dressi.ad.registry import FRAG, SAME, apply
from dressi.ad.rewrite import Replacements, named, reapplied, rewrite


@dataclass(frozen=True)
class Part:
    """One scatter behind a gather. value: what pixels add, by way of a table. rows: INT, of that
    table, -1 for none. n_masks: tables that choose what is added, looked up by each pixel."""

    value: Variable
    rows: Variable
    scatter: Function
    n_masks: int = 0


Predicate = Callable[[Function, Sequence[Part]], bool]
"""(Gather, scatters behind it) -> bool."""

Beside = Callable[[Sequence[Function]], bool]
"""Scatters over the same pixels -> whether one pass makes them."""


def compose_scatters(
    outputs: Sequence[Variable], pays: Predicate, beside: Beside = lambda scatters: False
) -> list[Variable]:
    """Outputs of a graph without gathers of what pixels scatter, as far as they go with it, and
    with one scatter in the place of a sum of those that lie beside each other."""
    composed: dict[int, list[Part]] = {}
    """By uid of what replaces a gather, or a sum of scatters: the scatters that it is."""

    def rule(f: Function, new: Replacements) -> Variable | None:
        if f.op is ADD_N:
            xs = [new(x) for x in f.inputs]
            several = sum(x.uid in composed for x in xs) > 1
            plain = [x for x in xs if x.uid not in composed and _is_plain(x)]
            for same in _alike(plain).values():
                scatters = [x.creator for x in same if x.creator is not None]
                if len(same) > 1 and beside(scatters):
                    composed.update((g.output.uid, [_part(g)]) for g in scatters)
                    several = True
            return _together(xs, composed) if several else None
        if f.op is not CSR_GATHER or f.inputs[1].derived is None:
            return None
        parts = _parts(new(f.inputs[0]), composed)
        if parts is None or not pays(f, parts):
            return None
        index = f.inputs[1].derived.source
        return named(_scattered([_through(index, p) for p in parts], f.output, composed), f.output)

    return rewrite(outputs, rule)


def _is_plain(x: Variable) -> bool:
    """Whether a table is a scatter, of which the order of additions may change."""
    f = x.creator
    return f is not None and f.op is SCATTER_ADD and ("fixed_point", True) not in f.attrs


def _part(f: Function) -> Part:
    return Part(f.inputs[0], f.inputs[1], f)


def _alike(scatters: Sequence[Variable]) -> dict[object, list[Variable]]:
    """Scatters of the same pixels to tables of one size."""
    groups: dict[object, list[Variable]] = {}
    for x in scatters:
        value = x.creator.inputs[0] if x.creator is not None else x
        key = (value.size, value.layers, x.size, x.layers)
        groups.setdefault(key, []).append(x)
    return groups


def _parts(x: Variable, composed: dict[int, list[Part]]) -> list[Part] | None:
    """The scatters that a table is the sum of, masks of rows in between; None: something else."""
    f = x.creator
    if f is None or x.uid in composed:
        return composed.get(x.uid)
    if _is_plain(x):
        return [_part(f)]
    if f.op is ADD_N:
        found = [_parts(y, composed) for y in f.inputs]
        return None if None in found else [p for parts in found for p in parts or ()]
    if f.op is WHERE and f.inputs[0].vtype.n_words == 1:
        for i in (1, 2):
            other, mask = f.inputs[3 - i], f.inputs[0]
            alike = f.inputs[i].size == x.size and f.inputs[i].layers == x.layers
            if alike and is_constant(other, 0.0) and mask.size == x.size:
                parts = _parts(f.inputs[i], composed)
                return None if parts is None else [_masked(p, mask, other, i) for p in parts]
    return None


def _masked(p: Part, mask: Variable, zero: Variable, i: int) -> Part:
    """A scatter of what ``where(mask, ...)`` leaves of a table, 0 on the side that is not i."""
    at = apply(LOOKUP, (mask, p.rows))
    value = where(at, p.value, zero) if i == 1 else where(at, zero, p.value)
    return Part(value, p.rows, p.scatter, p.n_masks + 1)


def _through(index: Variable, p: Part) -> Part:
    """The scatter to what the rows of a table point to."""
    inside = mul(compare("gte", p.rows, 0), compare("lt", p.rows, index.size[0] * index.size[1]))
    rows = where(inside, _looked_up(index, p.rows), constant(-1, index.vtype))
    return Part(p.value, rows, p.scatter, p.n_masks)


def _looked_up(index: Variable, rows: Variable) -> Variable:
    """The entries of an index in some rows: of a component of a table, the component of the rows of
    that table."""
    f = index.creator
    if f is not None and f.op.kind == FRAG and len(f.inputs) == 1 and f.op.read(0) == SAME:
        x = f.inputs[0]
        if (x.size, x.layers) == (index.size, index.layers):
            return reapplied(f, [_looked_up(x, rows)])
    return apply(LOOKUP, (index, rows))


def _scattered(parts: Sequence[Part], like: Variable, composed: dict[int, list[Part]]) -> Variable:
    """The sum of some scatters, one for each number of pixels. like: a table of its shape."""
    groups: dict[object, list[Part]] = {}
    for p in parts:
        groups.setdefault((p.value.size, p.value.layers), []).append(p)
    sums = []
    for group in groups.values():
        inputs = [v for p in group for v in (p.value, p.rows)]
        op = SCATTER_ADD if len(group) == 1 else SCATTER_ALL
        sums.append(apply(op, inputs, size=like.size, layers=like.layers))
        composed[sums[-1].uid] = group
    return add_n(sums)


def _together(xs: Sequence[Variable], composed: dict[int, list[Part]]) -> Variable:
    """The sum of some terms, with those that are scatters in one."""
    tables: dict[object, list[Variable]] = {}
    for x in xs:
        if x.uid in composed:
            tables.setdefault((x.size, x.layers), []).append(x)
    others = [x for x in xs if x.uid not in composed]
    for same in tables.values():
        parts = [p for x in same for p in composed[x.uid]]
        others.append(_scattered(parts, same[0], composed))
    return add_n(others)
