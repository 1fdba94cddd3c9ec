"""Rematerialization: cheap same-pixel values are computed again where they are read instead of
being carried through images; then outputs that nobody reads, and what only they need, are dropped.

In: connected substages. Out: connected substages that move fewer bytes. At resolution, traffic
through fp32 attachments is what a step costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dressi.ad.graph import Variable
from dressi.ad.registry import COMP, FRAG, SAME
from dressi.packing.substage import Context, Substage, over_limits
from dressi.packing.units import ATTACHMENT, TEXTURE, Unit, access

MAX_CHAIN = 6
"""Functions that may be run again for one value: arithmetic that costs less than one texel of
RGBA32F through memory."""


def rematerialize(
    substages: Sequence[Substage], context: Context, drop: bool = True
) -> list[Substage]:
    """Substages in order of execution. drop: whether outputs without readers go away."""
    unit_of = {v.uid: u for s in substages for u in s.units for v in u.outputs}
    after = [_recompute(s, unit_of, context) for s in substages]
    if drop:
        after = _drop_dead(after, context)
    after = _dissolve(after, context)
    return connect(after)


def _recompute(s: Substage, unit_of: dict[int, Unit], context: Context) -> Substage:
    """The substage with attachments replaced by what they are computed from, where it reads all of
    that anyway."""
    if s.kind != FRAG:
        return s  # a rasterization shades pixels more than once
    original = list(s.units)
    front: dict[int, Unit] = {}  # by index, which is a topological order
    have: set[int] = set()
    for uid in list(s.reads):
        v, ways = s.reads[uid]
        if ways != {ATTACHMENT} or uid in s.as_textures or uid not in unit_of:
            continue
        chain: dict[int, Unit] = {}
        if _chain(v, s, have, unit_of, context, chain) and len(chain) <= MAX_CHAIN:
            front.update(chain)
            have |= {v.uid for u in chain.values() for v in u.outputs}
            units = [front[k] for k in sorted(front)] + original
            s = rebuilt(s, units, s.outputs, context)
    return s


def _chain(
    v: Variable,
    s: Substage,
    have: set[int],
    unit_of: dict[int, Unit],
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
    for x, _ in unit.reads:
        known = x.uid in s.reads or x.uid in have or x.uid in context.uniforms
        if x.uid == v.uid or (not known and not _chain(x, s, have, unit_of, context, chain)):
            return False
    return True


def _dissolve(substages: Sequence[Substage], context: Context) -> list[Substage]:
    """Without substages of few same-pixel Functions that every reader can run itself: a pass saved,
    and often traffic (three components of a table are three images, the table is one). It also
    keeps what all layers of a stack share out of a pass of its own."""
    after = list(substages)
    readers = readers_of(after)
    for i, s in enumerate(substages):
        if not _can_dissolve(s, context):
            continue
        users = sorted({k for v in s.outputs for k in readers.get(v.uid, ())} - {i})
        new = [_with_units(after[k], s, context) for k in users]
        fitting = [n for n in new if n is not None]
        if len(fitting) < len(users):
            continue
        for k, n in zip(users, fitting, strict=True):
            after[k] = n
            for uid in n.reads:
                readers.setdefault(uid, set()).add(k)
        after[i] = replace(s, units=[])
    return [s for s in after if s.units]


def readers_of(substages: Sequence[Substage]) -> dict[int, set[int]]:
    """Variable uid -> positions of the substages that read it."""
    readers: dict[int, set[int]] = {}
    for k, s in enumerate(substages):
        for uid in s.reads:
            readers.setdefault(uid, set()).add(k)
    return readers


def _can_dissolve(s: Substage, context: Context) -> bool:
    return (
        s.kind == FRAG
        and s.n_functions <= MAX_CHAIN
        and not any(v.uid in context.final for v in s.outputs)
        and all(f.op.kind == FRAG and not f.op.scatter for u in s.units for f in u.functions)
        and all(read == SAME for u in s.units for _, read in u.reads)
        # What other passes make may still move between them; leaves are there from the start.
        and all(v.creator is None for v, _ in s.reads.values())
        and s.domain[0] != (1, 1)
    )


def _with_units(user: Substage, s: Substage, context: Context) -> Substage | None:
    """The user with the units of s that it needs in front; None when it reads them at other pixels,
    shades pixels more than once, or breaks a limit."""
    made = {v.uid for v in s.outputs}
    reads = [(v, read) for u in user.units for v, read in u.reads if v.uid in made]
    if user.kind != FRAG or user.domain[0] != s.domain[0] or any(r != SAME for _, r in reads):
        return None
    needed = {v.uid for v, _ in reads}
    front: list[Unit] = []
    for unit in reversed(s.units):
        if any(v.uid in needed for v in unit.outputs):
            front.insert(0, unit)
            needed |= {v.uid for v, _ in unit.reads}
    inside = {id(u) for u in user.units}
    units = [*(u for u in front if id(u) not in inside), *user.units]
    units.sort(key=lambda u: u.index)  # a topological order, whatever came in before
    new = rebuilt(user, units, user.outputs, context)
    return None if over_limits(new, context) else new


def rebuilt(
    s: Substage, units: Sequence[Unit], outputs: Sequence[Variable], context: Context
) -> Substage:
    """The substage with other units; what it reads follows from them."""
    new = replace(s, units=list(units), outputs=list(outputs), reads={}, users=[], producers=[])
    inside = {v.uid for u in units for v in u.outputs} | set(s.computed)

    def add(unit: Unit, known: set[int], attach: bool) -> None:
        for v, read in unit.reads:
            if v.uid in known:
                continue
            way = access(v, read, s.domain, context.uniforms)
            if way == ATTACHMENT and not attach:
                way = TEXTURE
            new.reads.setdefault(v.uid, (v, set()))[1].add(way)

    # Of a dispatch in groups only what is appended to it reads the pixel it is at (``tail``).
    for unit in reversed(units):
        add(unit, inside, s.lowered or s.kind != COMP)
    for chain in s.computed.values():
        known = {v.uid for u in chain for v in u.outputs} | set(s.computed)
        for unit in chain:
            add(unit, known, False)
    return new


def _drop_dead(substages: Sequence[Substage], context: Context) -> list[Substage]:
    """Without outputs that no other substage reads, and units that only they needed."""
    read = set(context.final)
    done: list[Substage] = []
    for s in reversed(substages):
        outputs = [v for v in s.outputs if v.uid in read]
        needed = {v.uid for v in outputs}
        units: list[Unit] = []
        for unit in reversed(s.units):
            if any(v.uid in needed for v in unit.outputs):
                units.append(unit)
                needed |= {v.uid for v, _ in unit.reads}
        units.reverse()
        if not units:
            continue
        if len(units) < len(s.units) or len(outputs) < len(s.outputs):
            s = rebuilt(s, units, outputs, context)
        read |= set(s.reads)
        done.append(s)
    done.reverse()
    return done


def connect(substages: Sequence[Substage]) -> list[Substage]:
    """Producers and users among the substages, each once, whatever they were before."""
    fresh = [replace(s, users=[], producers=[]) for s in substages]
    made_by = {v.uid: s for s in fresh for v in s.outputs}
    for s in fresh:
        seen: set[int] = set()
        for v, _ in s.reads.values():
            producer = made_by.get(v.uid)
            if producer is not None and producer is not s and id(producer) not in seen:
                seen.add(id(producer))
                s.producers.append(producer)
                producer.users.append(s)
    return fresh
