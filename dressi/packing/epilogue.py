"""Epilogues: operations on the one pixel that a workgroup has just summed run in its dispatch.

In: substages in order of execution. Out: the same, some merged. A loss ends in a sum, which one
workgroup finishes, and a few operations on that number. A dispatch of their own would take longer
to begin than to run, and nothing could run beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from dressi.ad.registry import COMP, FRAG
from dressi.ad.workgroups import workgroup
from dressi.packing.defuse import DefUse
from dressi.packing.substage import Substage
from dressi.packing.task import Context
from dressi.packing.use import rebuilt_within

PIXEL = ((1, 1), 1)


def append_epilogues(substages: Sequence[Substage], context: Context) -> list[Substage]:
    """Substages in which the first reader of a sum is its epilogue, where that is possible."""
    index = DefUse(substages)
    depths = _depths(index)
    after: list[Substage | None] = list(substages)
    merged_into: dict[int, int] = {}
    # Of several sums that end in the same operations, the one that is ready last goes on. It also
    # comes before the sums that it reads, whose first reader may be another one once it has moved.
    for i in sorted(range(len(substages)), key=lambda i: -depths[i]):
        s = substages[i]
        if after[i] is not s or not _sums_one_pixel(s):
            continue
        readers = {_position(k, merged_into) for k in index.readers.get(s.outputs[0].uid, ())}
        if not readers:
            continue
        # The first reader: what else reads the sum runs after it, so nothing that the reader needs
        # can need the sum.
        first = min(readers)
        reader = after[first]
        assert reader is not None
        if not _can_be_epilogue(reader):
            continue
        merged = _merged(s, reader, len(readers) > 1, context)
        if merged is not None:
            after[first], after[i] = merged, None
            merged_into[i] = first
    return [s for s in after if s is not None]


def _position(k: int, merged_into: dict[int, int]) -> int:
    """Where a substage lies after it was merged into others."""
    while k in merged_into:
        k = merged_into[k]
    return k


def _depths(index: DefUse) -> list[int]:
    """How many substages come before each, one after the other. In order of execution."""
    depths: list[int] = []
    for producers in index.producers:
        depths.append(1 + max((depths[p] for p in producers), default=-1))
    return depths


def _sums_one_pixel(s: Substage) -> bool:
    """Whether it is a dispatch of one workgroup, whose first invocation stores one pixel."""
    if s.kind != COMP or len(s.units) != 1 or len(s.outputs) != 1:
        return False
    f, y = s.units[0].functions[0], s.outputs[0]
    kernel = workgroup(f.op)
    one_group = kernel is not None and kernel.stores_first and kernel.groups(f) == (1, 1, 1)
    return one_group and (y.size, y.layers) == PIXEL


def _can_be_epilogue(s: Substage) -> bool:
    """Whether it computes one pixel from others of one pixel."""
    return (
        s.lowered
        and s.kind == FRAG
        and s.domain == PIXEL
        and not s.computed
        and s.reads_own_pixel_only
        and all(f.op.kind != COMP and not f.op.scatter for u in s.units for f in u.functions)
    )


def _merged(s: Substage, reader: Substage, shared: bool, context: Context) -> Substage | None:
    """Both in one; None where that breaks a limit. shared: whether others read the sum, too."""
    total = s.outputs[0]
    kept = [total] if shared or total.uid in context.final else []
    units, outputs = (*s.units, *reader.units), (*kept, *reader.outputs)
    return rebuilt_within(s, context, lowered=True, units=units, outputs=outputs)
