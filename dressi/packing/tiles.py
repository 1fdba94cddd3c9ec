"""Sparse passes in tiles: where the mask is packed bits, rectangles around them are drawn, without
a depth attachment. What is outside of the mask the readers of the image compute; where they cannot,
or the image is kept, a first draw covers all pixels without what is guarded.

In: substages, of which ``sparse`` has marked some. Out: the same, guards with ``tiles`` where the
vertices can read the mask, and the readers with ``mixed``. For CPU drivers, where a pass costs
several times as much per pixel as a loop over the pixels of a block, which a sum is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dressi.ad.functions.bits import UNPACK_BITS
from dressi.ad.graph import Variable
from dressi.ad.registry import FRAG
from dressi.packing.defuse import DefUse
from dressi.packing.guard import Mixed
from dressi.packing.layout import layout
from dressi.packing.substage import Substage
from dressi.packing.task import Context
from dressi.packing.units import ATTACHMENT, TEXTURE, in_buffer
from dressi.packing.use import rebuilt_within

MAX_OUTSIDE = 8
"""Functions that a reader may compute per pixel outside of the mask."""


def draw_tiles(substages: Sequence[Substage], context: Context) -> list[Substage]:
    """Return the substages, sparse passes in tiles where that is possible."""
    after = list(substages)
    index = DefUse(substages)
    for k, s in enumerate(substages):
        words = _packed_mask(s, context)
        new = None if words is None else _readers(s, after, index, context)
        if s.guard is not None and words is not None and (new is not None or _may_cover(s)):
            guard = replace(s.guard, tiles=words, covers=new is None)
            after[k] = replace(after[k], guard=guard)
            for position, reader in (new or {}).items():
                after[position] = reader
    return after


def _may_cover(s: Substage) -> bool:
    """Return whether the first draw may write what the second writes again: not where an update may
    be written in place, into a leaf that the second reads."""
    return not any(v.creator is None and ATTACHMENT in how for v, how in s.reads.values())


def _packed_mask(s: Substage, context: Context) -> Variable | None:
    """The packed mask behind the guard of a sparse pass, if its vertices can read it."""
    if s.guard is None or s.computed or s.mixed:
        return None
    f, lay = s.guard.condition.creator, layout(*s.domain, context.limits)
    if f is None or f.op is not UNPACK_BITS or lay.shift >= 0 or lay.columns > 1:
        return None
    words, c = f.inputs[0], f.output
    if (c.size, c.layers) != s.domain or words.uid not in s.reads:
        return None
    return words if s.access(*s.reads[words.uid]) == TEXTURE else None


def _readers(
    s: Substage, after: Sequence[Substage], index: DefUse, context: Context
) -> dict[int, Substage] | None:
    """By position the readers of the images of a sparse pass as they are where it draws nothing but
    tiles; None where one cannot compute what is outside."""
    assert s.guard is not None
    rest = {f.output.uid for guarded, run in s.guard.runs if not guarded for f in run}
    units = tuple(u for u in s.units if any(f.output.uid in rest for f in u.functions))
    known = frozenset(v.uid for u in s.units for v in u.outputs)
    mixed = Mixed(s.guard, units, known)
    new: dict[int, Substage] = {}
    images = [v for v in s.outputs if not in_buffer(v)]
    for v in images:
        readers = index.readers.get(v.uid, [])
        if v.uid in context.final or not readers or len(rest) > MAX_OUTSIDE:
            return None
        for k in readers:
            reader = new.get(k, after[k])
            if not _reads_once(reader, v):
                return None
            made = rebuilt_within(reader, context, mixed={**reader.mixed, v.uid: mixed})
            if made is None:
                return None
            new[k] = made
    return new


def _reads_once(reader: Substage, v: Variable) -> bool:
    """Whether a fragment shader fetches each pixel of v about once."""
    uses = [
        i in f.op.once
        for u in reader.units
        for f in u.functions
        for i, x in enumerate(f.inputs)
        if x.uid == v.uid
    ]
    return (
        reader.kind == FRAG
        and not reader.is_dispatch
        and reader.guard is None
        and not reader.computed
        and bool(uses)
        and all(uses)
    )
