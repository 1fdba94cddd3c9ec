"""Rematerialization: cheap same-pixel values are computed again where they are read instead of
being carried through images; outputs that nobody reads, and what only they need, are dropped.

In: substages in order of execution. Out: substages that move fewer bytes. At resolution, traffic
through fp32 attachments is what a step costs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from dressi.ad.graph import Variable
from dressi.ad.registry import FRAG, SAME
from dressi.packing.defuse import DefUse, needed
from dressi.packing.substage import Substage, rebuilt
from dressi.packing.task import Context
from dressi.packing.units import ATTACHMENT, Unit
from dressi.packing.use import rebuilt_within

MAX_CHAIN = 6
"""Functions that may be run again for one value: arithmetic that costs less than one texel of
RGBA32F through memory."""


def recompute(substages: Sequence[Substage], context: Context) -> list[Substage]:
    """Substages that compute a value again where they read all that it takes anyway."""
    unit_of = {v.uid: u for s in substages for u in s.units for v in u.outputs}
    return [_recompute(s, unit_of, context) for s in substages]


def _recompute(s: Substage, unit_of: Mapping[int, Unit], context: Context) -> Substage:
    """The substage with attachments replaced by what they are computed from."""
    if s.kind != FRAG:
        return s  # a rasterization shades pixels more than once
    original = s.units
    front: dict[int, Unit] = {}  # by index, which is a topological order
    known: set[int] = set()
    for uid in list(s.reads):
        v, accesses = s.reads[uid]
        if accesses != {ATTACHMENT} or uid in s.as_textures or uid not in unit_of:
            continue
        chain: dict[int, Unit] = {}
        if _chain(v, s, known, unit_of, context, chain) and len(chain) <= MAX_CHAIN:
            front.update(chain)
            known |= {v.uid for u in chain.values() for v in u.outputs}
            s = rebuilt(s, context, units=(*(front[k] for k in sorted(front)), *original))
    return s


def _chain(
    v: Variable,
    s: Substage,
    known: Collection[int],
    unit_of: Mapping[int, Unit],
    context: Context,
    chain: dict[int, Unit],
) -> bool:
    """Collect the units that compute v from what s reads; False when something is missing."""
    unit = unit_of.get(v.uid)
    if unit is None or len(unit.functions) != 1 or len(chain) > MAX_CHAIN:
        return False
    f = unit.functions[0]
    if f.op.kind != FRAG or f.op.scatter or unit.domain != s.domain:
        return False
    if any(f.op.read(i) != SAME for i in range(len(f.inputs))):
        return False
    chain[unit.index] = unit
    for x in unit.inputs:
        at_hand = x.uid in s.reads or x.uid in known or x.uid in context.uniforms
        if x.uid == v.uid or (not at_hand and not _chain(x, s, known, unit_of, context, chain)):
            return False
    return True


def drop_dead(
    substages: Sequence[Substage],
    context: Context,
    may_change: Callable[[Substage], bool] = lambda s: True,
) -> list[Substage]:
    """Substages without outputs that no other one reads, and without units that only they needed.
    may_change: whether a substage may lose some, or all."""
    read = set(context.final)
    kept: list[Substage] = []
    for s in reversed(substages):
        if may_change(s):
            outputs = tuple(v for v in s.outputs if v.uid in read)
            units = needed(s.units, outputs)
            if not units:
                continue
            if len(units) < len(s.units) or len(outputs) < len(s.outputs):
                s = rebuilt(s, context, units=units, outputs=outputs)
        read |= s.reads.keys()
        kept.append(s)
    kept.reverse()
    return kept


def dissolve(substages: Sequence[Substage], context: Context) -> list[Substage]:
    """Substages without those of few same-pixel Functions that every reader can run itself: a pass
    saved, and often traffic (three components of a table are three images, the table is one). It
    also keeps what all layers of a stack share out of a pass of its own."""
    after: list[Substage | None] = list(substages)
    index = DefUse(substages)  # stays true: what is dissolved reads leaves only
    for i, s in enumerate(substages):
        if not _can_dissolve(s, context):
            continue
        merged: dict[int, Substage] = {}
        for k in index.users[i]:
            user = after[k]
            new = _with_units(user, s, context) if user is not None else None
            if new is None:
                break
            merged[k] = new
        else:
            after[i] = None
            for k, new in merged.items():
                after[k] = new
    return [s for s in after if s is not None]


def _can_dissolve(s: Substage, context: Context) -> bool:
    return (
        s.kind == FRAG
        and s.n_functions <= MAX_CHAIN
        and not any(v.uid in context.final for v in s.outputs)
        and all(f.op.kind == FRAG and not f.op.scatter for u in s.units for f in u.functions)
        and s.reads_own_pixel_only
        # What other passes make may still move between them; leaves are there from the start.
        and all(v.creator is None for v in s.inputs)
        and s.domain[0] != (1, 1)
    )


def _with_units(user: Substage, s: Substage, context: Context) -> Substage | None:
    """The user with the units of s that it needs in front; None when it reads them at other pixels,
    shades pixels more than once, or breaks a limit."""
    written = {v.uid for v in s.outputs}
    reads = [(v, read) for u in user.units for v, read in u.reads if v.uid in written]
    if user.kind != FRAG or user.domain[0] != s.domain[0] or any(r != SAME for _, r in reads):
        return None
    front = needed(s.units, [v for v, _ in reads])
    inside = {u.index for u in user.units}
    units = [*(u for u in front if u.index not in inside), *user.units]
    units.sort(key=lambda u: u.index)  # a topological order, whatever came in before
    return rebuilt_within(user, context, units=tuple(units))
