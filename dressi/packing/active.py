"""The substage that grows, as numbers: how much of each limit it uses, changed by the units that
join and leave.

In: units. Out: whether one may join (the limits of ``obstacles``, at the cost of the unit alone: a
substage is not looked through for each candidate); the substage in the end.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

from dressi.ad.graph import Variable
from dressi.ad.registry import COMP, RASTER, SAME
from dressi.errors import PackingError
from dressi.packing.defuse import DefUse
from dressi.packing.obstacles import (
    BUFFERS,
    IMAGES,
    INPUTS,
    LOOPS,
    MOST_CARRIED,
    SAMPLED,
    SCATTERED,
    Obstacle,
    input_obstacle,
    no_use,
    output_obstacle,
)
from dressi.packing.options import LOOK_AHEAD
from dressi.packing.substage import Substage, make_substage, one_access
from dressi.packing.task import Context
from dressi.packing.units import (
    ATTACHMENT,
    BUFFER,
    HW_SAMPLER,
    TEXTURE,
    UNIFORM,
    VERTEX_TEXTURE,
    Domain,
    Unit,
    access,
    in_buffer,
)
from dressi.packing.use import count_input, spilled

# Masks: the accesses to an input, and more about it.
_BITS = {ATTACHMENT: 1, TEXTURE: 2, HW_SAMPLER: 4, BUFFER: 8, UNIFORM: 16, VERTEX_TEXTURE: 32}
_ALL_ACCESSES = 63
_ELSEWHERE = 64  # some op reads it at other pixels
_FETCHED = 128  # one of Substage.as_textures, or read by a dispatch
_LEAF = 256

_ACCESSES = tuple(
    one_access({how for how, bit in _BITS.items() if mask & bit}, not mask & _FETCHED)
    for mask in range(2 * _LEAF)
)
"""How the shader accesses an input, by its mask."""

_DISPATCH, _RASTER, _FRAGMENT = Obstacle("dispatch"), Obstacle("raster"), Obstacle("fragment")


class Candidate:
    """A unit that may join a substage, with what the packer asks of it again and again."""

    def __init__(self, unit: Unit, index: DefUse, context: Context) -> None:
        self.unit = unit
        self.index = unit.index
        self.is_uniform = unit.is_uniform
        self.producers: Sequence[int] = index.producers[unit.index]
        self.n_users = len(index.users[unit.index])
        self.readers = {v.uid: index.readers.get(v.uid, ()) for v in unit.outputs}
        self.outputs = [
            (v, v.uid, v.vtype.n_planes, in_buffer(v), v.uid in context.final) for v in unit.outputs
        ]
        (width, height), layers = unit.domain
        self.n_pixels = width * height * layers
        # On a shelf all write all of their outputs: without room for images, a substage looks at
        # those only that scatter.
        self.shelf: Hashable = (unit.domain, not all(buffer for *_, buffer, _ in self.outputs))
        self.is_final = any(final for *_, final in self.outputs)
        self.level = 0
        """Passes that must come before, because something is read at other pixels."""
        self.is_fetched = False
        """Whether some unit reads it at other pixels, so that its pass must come after this one."""
        self.reads = _masks(unit, unit.domain, context)


def candidates(units: Sequence[Unit], context: Context) -> list[Candidate]:
    """Return one Candidate per unit."""
    key = ("candidates", *units)
    if key not in context.memo:
        context.memo[key] = _candidates(units, context)
    return list(context.memo[key])


def _candidates(units: Sequence[Unit], context: Context) -> list[Candidate]:
    index = DefUse(units)
    all_of = [Candidate(u, index, context) for u in units]
    for each in all_of:
        for v, read in each.unit.reads:
            producer = all_of[index.writer[v.uid]] if v.uid in index.writer else None
            if producer is None:
                continue
            producer.is_fetched |= read != SAME
            apart = read != SAME or producer.unit.domain != each.unit.domain
            each.level = max(each.level, producer.level + apart)
    return all_of


def _masks(unit: Unit, domain: Domain, context: Context) -> list[tuple[int, int, int]]:
    """Return (uid, mask, planes) of each input of a unit in a substage over ``domain``."""
    masks: dict[int, tuple[int, int]] = {}
    for v, read in unit.reads:
        mask = _BITS[access(v, read, domain, context.uniforms)]
        if read != SAME:
            mask |= _ELSEWHERE
        if v.creator is None:
            mask |= _LEAF
        old = masks.get(v.uid)
        masks[v.uid] = (mask | old[0], old[1]) if old else (mask, v.vtype.n_planes)
    return [(uid, mask, planes) for uid, (mask, planes) in masks.items()]


@dataclass
class Change:
    """What a unit that joins changes."""

    candidate: Candidate
    masks: list[tuple[int, int | None, int | None]]
    """(uid, mask before, mask after); None: not read."""
    outputs: list[Variable]
    """Outputs of the unit that the substage writes."""
    use: list[int]
    """That of the substage with the unit; once it has joined, the one without it."""
    fits: bool


class Active:
    """A substage that takes one unit after the other, and gives back the last."""

    def __init__(
        self,
        kind: str,
        domain: Domain,
        as_textures: Collection[int],
        context: Context,
        lowered: bool = False,
    ) -> None:
        self.kind = kind
        self.lowered = lowered
        self.is_dispatch = lowered or kind == COMP
        limits = context.limits
        self.most_images = limits.storage_images if lowered else limits.color_outputs
        self.domain = domain
        self.domains = {domain, ((1, 1), 1), ((1, 1), domain[1])}
        self.as_textures = as_textures
        self.context = context
        self.joined: list[Change] = []
        self.members: set[int] = set()
        self.edges: dict[int, int] = {}
        """Index of a unit -> number of its users in the substage."""
        self.masks: dict[int, int] = {}
        """Uid of an input -> its mask."""
        self.use = no_use()
        self.levels = [0]
        """Highest level of the units, after each that joined."""

    @property
    def shelves(self) -> list[tuple[Domain, bool]]:
        """Where units wait that may join: those that write images as long as there is room."""
        writers = (True, False) if self.use[IMAGES] < self.most_images else (False,)
        return [] if self.kind == COMP else [(self.domain, writes) for writes in writers]

    def why_not(self, candidate: Candidate) -> Obstacle | None:
        """Return what keeps a unit out; None when it fits."""
        change = self.change(candidate, patience=0)
        return None if isinstance(change, Change) else change

    def join(self, candidate: Candidate, patience: int) -> bool | None:
        """Take a unit; return whether all limits are kept, or None where it stays out."""
        if candidate.unit.domain not in self.domains:
            return None  # as ``_rule`` would say, at less cost
        change = self.change(candidate, patience)
        if not isinstance(change, Change):
            return None
        self.add(change)
        return change.fits

    def change(
        self, candidate: Candidate, patience: int, ignored: Collection[str] = ()
    ) -> Change | Obstacle:
        """What the unit would change, or why it cannot join. patience: how many units may
        while a limit is broken that those which follow can mend. ignored: limits not to look at."""
        inside = self.edges.get(candidate.index, 0)
        own = candidate.unit.domain == self.domain
        if self.members:
            obstacle = self._rule(candidate, inside, own)
            if obstacle is not None:
                return obstacle
        limits = self.context.limits
        use = self.use.copy()
        use[LOOPS] += candidate.unit.loops
        masks: list[tuple[int, int | None, int | None]] = []
        outputs: list[Variable] = []
        for v, uid, planes, buffer, final in candidate.outputs:
            held = self.masks.get(uid)
            if held is not None:
                if buffer:
                    return Obstacle("scattered", v)
                if held & _ALL_ACCESSES != 1 and (not candidate.is_uniform or held & _ELSEWHERE):
                    return Obstacle("elsewhere", v)
                count_input(use, _ACCESSES[held], planes, bool(held & _LEAF), -1)
                masks.append((uid, held, None))
            if buffer:
                use[BUFFERS] += 1
                use[SCATTERED] += 1
                outputs.append(v)
            elif final or (inside < candidate.n_users and self._read_outside(uid, candidate)):
                use[IMAGES] += planes
                outputs.append(v)
        obstacle = output_obstacle(use, limits, self.is_dispatch, self.lowered, ignored)
        if obstacle is not None:
            return obstacle
        for uid, mask, planes in (
            candidate.reads if own else _masks(candidate.unit, self.domain, self.context)
        ):
            before = self.masks.get(uid)
            after = mask if before is None else before | mask
            if uid in self.as_textures or self.is_dispatch:
                after |= _FETCHED
            if after == before:
                continue
            leaf = bool(after & _LEAF)
            if before is not None:
                count_input(use, _ACCESSES[before], planes, leaf, -1)
            count_input(use, _ACCESSES[after], planes, leaf)
            masks.append((uid, before, after))
        obstacle = input_obstacle(use, limits, self.kind == RASTER, ignored, self.context.spill)
        carried = use[INPUTS] + use[SAMPLED]
        hopeless = patience == 0 or carried * LOOK_AHEAD > MOST_CARRIED * patience
        if obstacle is not None and (obstacle.lasting or hopeless):
            return obstacle
        return Change(candidate, masks, outputs, use, obstacle is None)

    def _rule(self, candidate: Candidate, inside: int, own: bool) -> Obstacle | None:
        """Return what keeps a unit out by its kind, domain or level. inside: its users here."""
        unit = candidate.unit
        late = candidate.is_fetched and candidate.level < self.levels[-1]
        if late and self.context.by_level:
            return Obstacle("late", candidate.level, self.levels[-1])  # three passes of two
        if unit.kind == COMP or self.kind == COMP:
            return _DISPATCH
        if unit.kind == RASTER:
            return _RASTER
        if self.kind == RASTER and not candidate.is_uniform:
            return _FRAGMENT
        repeated = (
            candidate.is_uniform
            and unit.domain[1] in (1, self.domain[1])
            and inside == candidate.n_users
            and not candidate.is_final
        )
        return None if own or repeated else Obstacle("domain", unit.domain, self.domain)

    def _read_outside(self, uid: int, candidate: Candidate) -> bool:
        """Return whether another substage reads an output, given that one reads some output of the
        unit."""
        if len(candidate.outputs) == 1:
            return True
        return any(k not in self.members for k in candidate.readers[uid])

    def add(self, change: Change) -> None:
        """Take a unit."""
        for uid, _, after in change.masks:
            if after is None:
                del self.masks[uid]
            else:
                self.masks[uid] = after
        self.use, change.use = change.use, self.use
        candidate = change.candidate
        self.members.add(candidate.index)
        self.joined.append(change)
        self.levels.append(max(self.levels[-1], candidate.level))
        for producer in candidate.producers:
            self.edges[producer] = self.edges.get(producer, 0) + 1

    def leave(self) -> int:
        """Give the last unit back; return its index."""
        change = self.joined.pop()
        self.levels.pop()
        for uid, before, _ in change.masks:
            if before is None:
                del self.masks[uid]
            else:
                self.masks[uid] = before
        self.use = change.use
        candidate = change.candidate
        self.members.discard(candidate.index)
        for producer in candidate.producers:
            self.edges[producer] -= 1
        return candidate.index

    def substage(self) -> Substage:
        """Return the substage of the units that joined."""
        joined = self.joined[::-1]
        made = make_substage(
            self.kind,
            self.domain,
            [change.candidate.unit for change in joined],
            [v for change in joined for v in change.outputs],
            self.context,
            self.as_textures,
            self.lowered,
        )
        return spilled(made, self.context) if self.context.spill else made


def begin(candidate: Candidate, context: Context) -> Active:
    """A new substage with one unit. Raises PackingError when even that does not fit the device.

    Where there are too few input attachments for one Function, the rest is fetched as textures; a
    scatter becomes a dispatch where fragment shaders have no stores.
    """
    unit = candidate.unit
    lowered = context.dispatches(unit)
    as_textures = set[int]() if lowered else _overflow(unit, context)
    broken: list[Obstacle] = []
    for kind in (unit.kind, COMP):
        active = Active(kind, unit.domain, as_textures, context, lowered)
        change = active.change(candidate, patience=0)
        if isinstance(change, Change):
            active.add(change)
            return active
        broken = []
        while isinstance(change, Obstacle):
            broken.append(change)
            change = active.change(candidate, False, [o.limit for o in broken])
        if [o.limit for o in broken] != ["fragment stores"]:
            break
    labels = ", ".join(v.label() for v, _ in unit.reads[:4])
    more = f", ... ({len(unit.reads) - 4} more)" if len(unit.reads) > 4 else ""
    raise PackingError(
        f"{unit.name} fits no substage\n  "
        + "\n  ".join(map(str, broken))
        + f"\n  inputs: {labels}{more}"
        + "\n  hint: split the operation, or use a device with higher limits"
    )


def _overflow(unit: Unit, context: Context) -> set[int]:
    """Return the uids of the same-pixel inputs for which no input attachment is left."""
    limits = context.limits
    written = sum(v.vtype.n_planes for v in unit.outputs if not in_buffer(v))
    most = min(limits.input_attachments, limits.stage_attachments - written - (unit.kind == RASTER))
    over, used = set[int](), 0
    for v, read in unit.reads:
        if access(v, read, unit.domain, context.uniforms) == ATTACHMENT:
            used += v.vtype.n_planes
            if used > most:
                over.add(v.uid)
    return over
