"""Rederivation: same-pixel values that several passes carry are computed anew from what is stored
for other reasons, and passes that then fit in one shader become one.

In: substages in order of execution. Out: substages that are predicted to take less time. What is
read at other pixels, or wanted, is stored anyway: the corners of a face, say. A chain of passes
that pass on a dozen values of a face costs more than the arithmetic that makes them of its corners;
in a pass that a mask makes sparse, arithmetic costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from dressi.ad.graph import Variable
from dressi.ad.registry import FRAG, SAME
from dressi.packing.defuse import DefUse
from dressi.packing.guard import Guard, weight
from dressi.packing.predict import SUBPASS_SHARE
from dressi.packing.profile import DeviceProfile
from dressi.packing.rematerialize import drop_dead
from dressi.packing.sparse import sparse_guard
from dressi.packing.stage import pack_stages
from dressi.packing.substage import Substage, rebuilt
from dressi.packing.task import Context
from dressi.packing.units import ATTACHMENT, Unit, in_buffer
from dressi.packing.use import spilled, why_not

MOST_FUNCTIONS = 120
"""Functions that a substage takes in at once: what a rasterizer makes of a face, and more."""

ACTIVE = 1 / 16
"""Of the pixels of a sparse pass, those where its mask is not 0."""

NARROW = 0.5
"""Of the time to move a pixel of RGBA32F, that of one of R32F: a fetch takes its time, however
narrow."""


def rederive(substages: Sequence[Substage], context: Context) -> list[Substage]:
    """Substages of which each computes anew what is cheaper so than carried to it."""
    profile = context.profile
    if profile is None or sum(_is_pass(s) for s in substages) < 2:
        return list(substages)
    costs, pairs = _Costs(context, profile), _Pairs(context)
    best = pairs.merge(substages)
    least = costs.of(best)
    if costs.of(substages) <= least:
        best, least = list(substages), costs.of(substages)
    made = _Made(best, context)
    for last in range(len(substages)):  # readers from the last to the first; their number may fall
        k = len(best) - 1 - last
        if k < 1:
            break
        for values in _carried(best, k, made, costs):
            tried = _taken_in(best, k, values, made)
            if tried is None:
                continue
            tried = pairs.merge(drop_dead(tried, context, _may_change))
            us = costs.of(tried)
            if us < least:
                best, least, made = tried, us, _Made(tried, context)
                break
    tried = pairs.merge(best, apart=True)
    return tried if costs.of(tried) < least else best


def _is_pass(s: Substage) -> bool:
    """Whether a substage is a pass over pixels that are not rasterized."""
    return s.kind == FRAG and not s.is_dispatch


def _may_change(s: Substage) -> bool:
    """Whether a substage is such a pass, and folds no other one in."""
    return _is_pass(s) and not s.computed


class _Made:
    """Of substages in order of execution what is stored, and where passes make what."""

    def __init__(self, substages: Sequence[Substage], context: Context) -> None:
        self.context = context
        self.stored = _stored(substages, context)
        self._written: dict[int, int] = {}
        self._units: dict[int, list[tuple[int, Unit]]] = {}
        for k, s in enumerate(substages):
            if not _is_pass(s):
                continue
            for v in s.outputs:
                self._written.setdefault(v.uid, k)
            for u in s.units:
                for v in u.outputs:
                    self._units.setdefault(v.uid, []).append((k, u))

    def is_written(self, v: Variable, k: int) -> bool:
        """Return whether a pass before position k writes a value."""
        return self._written.get(v.uid, k) < k

    def unit(self, v: Variable, k: int) -> Unit | None:
        """Return the unit that makes a value in the last pass before position k that does."""
        return next((u for at, u in reversed(self._units.get(v.uid, ())) if at < k), None)


def _carried(
    substages: Sequence[Substage], k: int, made: _Made, costs: _Costs
) -> Iterable[list[Variable]]:
    """Lists of values that a substage might compute anew: those that only a mask asks for, all."""
    s = substages[k]
    if not _may_change(s):
        return
    values = [
        v
        for v, how in s.reads.values()
        if how == {ATTACHMENT} and made.is_written(v, k) and v.uid not in made.stored
    ]
    if not values:
        return
    guard = costs.guard(s)
    if guard is not None:
        outside = {x.uid for of, run in guard.runs if not of for f in run for x in f.inputs}
        inner = [v for v in values if v.uid not in outside]
        if inner and len(inner) < len(values):
            yield inner
    yield values


def _stored(substages: Sequence[Substage], context: Context) -> dict[int, Variable]:
    """By uid the values that have to be written: they are wanted, lie in a buffer, or are read at
    other pixels or by fragments of triangles."""
    written = {v.uid: v for s in substages for v in s.outputs}
    stored = {uid: v for uid, v in written.items() if uid in context.final or in_buffer(v)}
    for s in substages:
        for uid, (v, how) in s.reads.items():
            if uid in written and (how != {ATTACHMENT} or not _is_pass(s)):
                stored[uid] = v
    return stored


def _taken_in(
    substages: Sequence[Substage], k: int, values: Sequence[Variable], made: _Made
) -> list[Substage] | None:
    """The substages with one that computes some values of what is stored; None where that does not
    work."""
    s, stored, context = substages[k], made.stored, made.context
    have = {u.index for u in s.units}
    taken: dict[int, Unit] = {}
    waiting = list(values)
    while waiting:
        v = waiting.pop()
        unit = made.unit(v, k)
        if unit is None or unit.index in taken or unit.index in have:
            continue
        if not _same_pixel(unit, s):
            if v in values:
                return None
            continue  # it is read, and has to be stored for that
        taken[unit.index] = unit
        waiting += [x for x in unit.inputs if x.uid not in stored]
    if not taken or sum(len(u.functions) for u in taken.values()) > MOST_FUNCTIONS:
        return None
    units = sorted([*taken.values(), *s.units], key=lambda u: u.index)
    new = _within(rebuilt(s, context, units=tuple(units)), context)
    if new is None:
        return None
    out = [*substages[:k], new, *substages[k + 1 :]]
    return _written(out, k)


def _same_pixel(unit: Unit, s: Substage) -> bool:
    at_pixel = not unit.has_scatter and all(read == SAME for _, read in unit.reads)
    return unit.kind == FRAG and unit.domain == s.domain and at_pixel


def _within(s: Substage, context: Context) -> Substage | None:
    """The substage within the limits of the device, as few inputs fetched as textures as they
    allow; None where they do not."""
    attached = rebuilt(s, context, as_textures=frozenset())
    for new in (attached, spilled(attached, context) if context.spill else s):
        if why_not(new, context.limits) is None:
            return new
    return None


def _written(substages: list[Substage], k: int) -> list[Substage] | None:
    """The substages; None where one does not write what it computes and substage k reads."""
    read = {v.uid for v in substages[k].inputs}
    made = ({v.uid for u in s.units for v in u.outputs} for s in substages[:k])
    kept = ({v.uid for v in s.outputs} for s in substages[:k])
    lost = any(read & a - b for a, b in zip(made, kept, strict=True))
    return None if lost else substages


@dataclass
class _Pairs:
    """Passes that become one. Each two are tried once, however often they stand in a list."""

    context: Context
    known: dict[tuple[object, ...], Substage | None] = field(default_factory=dict)
    """By both and the uids of what the one that both make would write."""

    def merge(self, substages: Sequence[Substage], apart: bool = False) -> list[Substage]:
        """Substages of which no two passes over the same pixels would fit in one shader, of which
        one reads the other; apart: or not."""
        now: list[Substage] | None = list(substages)
        merged = list(substages)
        while now is not None:
            merged, index = now, DefUse(now)
            pairs = [(i, k) for k in range(len(merged)) for i in index.producers[k]]
            if apart:
                pairs += combinations(range(len(merged)), 2)
            # As most are not over the same pixels, that is looked at first.
            over = [s.domain if _may_change(s) else None for s in merged]
            alike = ((i, k) for i, k in pairs if over[i] is not None and over[i] == over[k])
            joined = (self._joined(merged, i, k, index) for i, k in alike)
            now = next((each for each in joined if each is not None), None)
        return merged

    def _joined(self, now: list[Substage], i: int, k: int, index: DefUse) -> list[Substage] | None:
        """The substages with two of them, over the same pixels, as one; None where that breaks an
        order or a limit."""
        first, then = now[i], now[k]
        if first.domain[0] == (1, 1):
            return None
        late = not any(i < j < k for j in index.users[i])
        early = not any(i < j < k for j in index.producers[k])
        if not (late or early):
            return None
        new = self._one(first, then, self._kept(first, then, {i, k}, index))
        if new is None:
            return None
        if late:
            return [*now[:i], *now[i + 1 : k], new, *now[k + 1 :]]
        return [*now[:i], new, *now[i + 1 : k], *now[k + 1 :]]

    def _kept(
        self, first: Substage, then: Substage, both: set[int], index: DefUse
    ) -> tuple[Variable, ...]:
        """What two substages write that is wanted, in a buffer, or read by another one."""
        outputs = {v.uid: v for v in (*first.outputs, *then.outputs)}
        return tuple(
            v
            for uid, v in outputs.items()
            if uid in self.context.final
            or in_buffer(v)
            or not both.issuperset(index.readers.get(uid, ()))
        )

    def _one(
        self, first: Substage, then: Substage, outputs: tuple[Variable, ...]
    ) -> Substage | None:
        """The one substage that both make; None where it breaks a limit."""
        key = (first, then, *(v.uid for v in outputs))
        if key not in self.known:
            inside = {u.index: u for u in (*first.units, *then.units)}
            units = tuple(inside[n] for n in sorted(inside))
            both = first.as_textures | then.as_textures
            made = rebuilt(then, self.context, units=units, outputs=outputs, as_textures=both)
            self.known[key] = _within(made, self.context)
        return self.known[key]


@dataclass
class _Costs:
    """Predicted microseconds of passes, but for rasterizations, which stay as they are."""

    context: Context
    profile: DeviceProfile
    guards: dict[tuple[object, ...], Guard | None] = field(default_factory=dict)
    known: dict[Substage, float] = field(default_factory=dict)

    def guard(self, s: Substage) -> Guard | None:
        """The guard by which a substage would be sparse."""
        key = (*(u.index for u in s.units), -1, *(v.uid for v in s.outputs))
        if key not in self.guards:
            self.guards[key] = sparse_guard(s, self.context)
        return self.guards[key]

    def of(self, substages: Sequence[Substage]) -> float:
        """Of all of them, with what passes cost to begin."""
        stages = pack_stages(substages, DefUse(substages), self.context.limits, True)
        begun = sum(1 + SUBPASS_SHARE * (len(stage.substages) - 1) for stage in stages)
        passes = [s for s in substages if _is_pass(s)]
        for s in passes:
            if s not in self.known:
                self.known[s] = self._pixels_us(s)
        pixels_us = sum(self.known[s] for s in passes)
        return begun * self.profile.graphics.fixed_us + pixels_us

    def _pixels_us(self, s: Substage) -> float:
        guard, costs = self.guard(s), self.profile.graphics
        guarded = [] if guard is None else [f for of, run in guard.runs if of for f in run]
        hidden = {f.output.uid for f in guarded}
        functions = [f for u in s.units for f in u.functions]
        shown = [f for f in functions if f.output.uid not in hidden]
        seen = {x.uid for f in shown for x in f.inputs}
        work = sum(map(weight, shown)) + ACTIVE * sum(map(weight, functions))
        moved = sum(map(_width, s.outputs))
        for uid, (v, how) in s.reads.items():
            share = 1.0 if uid in seen or guard is None else ACTIVE
            moved += share * _width(v) if how == {ATTACHMENT} else 0.0
        us = work * costs.function_us + moved * costs.copy_us / 2
        return us * s.n_pixels / 2**20


def _width(v: Variable) -> float:
    """The share of the time of RGBA32F that moving a value takes."""
    if in_buffer(v):
        return 0.0
    return v.vtype.n_planes * (NARROW + (1 - NARROW) * v.vtype.plane.n / 4)
