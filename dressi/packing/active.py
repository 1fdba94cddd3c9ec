"""The substage that grows, as numbers: how much of each limit it uses, changed by the units that
join and leave.

In: units. Out: whether one may join (the rules of ``substage.why_not``, at the cost of the unit
alone: a substage is not looked through for each candidate).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dressi.ad.graph import Variable
from dressi.ad.registry import COMP, RASTER, SAME
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

if TYPE_CHECKING:
    from dressi.packing.substage import Context


def one_way(ways: Collection[str], attachable: bool) -> str:
    """The one way by which a shader gets at what its units read in several."""
    if ways == {ATTACHMENT} and attachable:
        return ATTACHMENT
    for way in (UNIFORM, BUFFER, HW_SAMPLER):
        if way in ways:
            return way
    return VERTEX_TEXTURE if ways == {VERTEX_TEXTURE} else TEXTURE


# Masks: the ways in which an input is read, and more about it.
_BITS = {ATTACHMENT: 1, TEXTURE: 2, HW_SAMPLER: 4, BUFFER: 8, UNIFORM: 16, VERTEX_TEXTURE: 32}
_ALL_WAYS = 63
_ELSEWHERE = 64  # some op reads it at other pixels
_FETCHED = 128  # one of Substage.as_textures
_LEAF = 256

_WAYS = tuple(
    one_way({way for way, bit in _BITS.items() if mask & bit}, not mask & _FETCHED)
    for mask in range(2 * _LEAF)
)
"""How the shader gets at an input, by its mask."""

# Positions in the numbers of a substage.
_INPUTS, _SAMPLED, _SAMPLERS, _BUFFERS, _COLORS, _WRITTEN, _LEAVES = range(7)


class Item:
    """What the packer asks of a unit, found once."""

    def __init__(self, unit: Unit, context: Context) -> None:
        self.unit = unit
        self.index = unit.index
        self.alone = unit.kind in (COMP, RASTER)
        self.uniform = unit.is_uniform
        self.outputs = [
            (v, v.uid, v.vtype.n_planes, in_buffer(v), v.uid in context.final) for v in unit.outputs
        ]
        self.paints = not all(buffer for *_, buffer, _ in self.outputs)
        self.final = any(final for *_, final in self.outputs)
        self.level = 0
        """Passes that must come before, because something is read at other pixels."""
        made = {v.uid for v in unit.outputs}
        self.ends = any(v.uid in made and read != SAME for u in unit.users for v, read in u.reads)
        """Whether some unit reads it at other pixels, so that its pass must come after this one."""
        self.reads = _masks(unit, unit.domain, context)


def _masks(unit: Unit, domain: Domain, context: Context) -> list[tuple[int, int, int]]:
    """(uid, mask, planes) of each input of a unit in a substage over ``domain``."""
    found: dict[int, tuple[int, int]] = {}
    for v, read in unit.reads:
        mask = _BITS[access(v, read, domain, context.uniforms)]
        if read != SAME:
            mask |= _ELSEWHERE
        if v.creator is None:
            mask |= _LEAF
        old = found.get(v.uid)
        found[v.uid] = (mask | old[0], old[1]) if old else (mask, v.vtype.n_planes)
    return [(uid, mask, planes) for uid, (mask, planes) in found.items()]


@dataclass
class Change:
    """What a unit that joins changes."""

    item: Item
    masks: list[tuple[int, int | None, int | None]]
    """(uid, mask before, mask after); None: not read."""
    outputs: list[Variable]
    """Outputs of the unit that the substage writes."""
    numbers: list[int]
    """Those of the substage with the unit; once it has joined, those without it."""
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
        self.dispatch = lowered or kind == COMP
        limits = context.limits
        self.most_colors = limits.storage_images if lowered else limits.color_outputs
        self.domain = domain
        self.as_textures = as_textures
        self.context = context
        self.joined: list[Change] = []
        self.members: set[int] = set()
        self.edges: dict[int, int] = {}
        """Index of a unit -> number of its users in the substage."""
        self.masks: dict[int, int] = {}
        """Uid of an input -> its mask."""
        self.numbers = [0] * 7
        self.levels = [0]
        """Highest level of the units, after each that joined."""

    @property
    def has_room(self) -> bool:
        """Whether it may write one more image."""
        return self.numbers[_COLORS] < self.most_colors

    def change(self, item: Item, patient: bool) -> Change | None:
        """What the unit would change; None when it cannot join: because of an obstacle that stays,
        or of a limit (with patience, of one that no later unit can mend: outputs only grow, and
        leaves stay inputs)."""
        if item.ends and item.level < self.levels[-1]:
            return None  # it would make three passes of two
        inside = self.edges.get(item.index, 0)
        own = item.unit.domain == self.domain
        if self.members and not self._mixes(item, inside, own):
            return None
        limits = self.context.limits
        n = self.numbers.copy()
        masks: list[tuple[int, int | None, int | None]] = []
        outputs: list[Variable] = []
        for v, uid, planes, buffer, final in item.outputs:
            held = self.masks.get(uid)
            if held is not None:
                elsewhere = held & _ALL_WAYS != 1 and (not item.uniform or held & _ELSEWHERE)
                if buffer or elsewhere:
                    return None
                _count(n, held, planes, -1)
                masks.append((uid, held, None))
            if buffer:
                n[_BUFFERS] += 1
                n[_WRITTEN] += 1
                outputs.append(v)
            elif final or (inside < len(item.unit.users) and self._read_outside(v, item)):
                n[_COLORS] += planes
                outputs.append(v)
        if n[_COLORS] > self.most_colors:
            return None
        if (
            n[_WRITTEN]
            and not self.dispatch
            and (n[_COLORS] + n[_WRITTEN] > limits.combined_outputs or not limits.fragment_stores)
        ):
            return None
        for uid, mask, planes in (
            item.reads if own else _masks(item.unit, self.domain, self.context)
        ):
            before = self.masks.get(uid)
            after = mask if before is None else before | mask
            if uid in self.as_textures or self.dispatch:
                after |= _FETCHED
            if after == before:
                continue
            if before is not None:
                _count(n, before, planes, -1)
            _count(n, after, planes, 1)
            masks.append((uid, before, after))
        if n[_LEAVES] > limits.input_attachments:
            return None
        fits = (
            n[_INPUTS] <= limits.input_attachments
            and n[_SAMPLED] <= limits.sampled_images
            and n[_SAMPLERS] <= limits.samplers
            and n[_BUFFERS] <= limits.storage_buffers
            and n[_INPUTS] + n[_COLORS] + (self.kind == RASTER) <= limits.stage_attachments
            # and one uniform block
            and n[_INPUTS] + n[_SAMPLED] + n[_BUFFERS] + n[_COLORS] + 1 <= limits.resources
        )
        return Change(item, masks, outputs, n, fits) if fits or patient else None

    def _mixes(self, item: Item, inside: int, own: bool) -> bool:
        """Whether kinds and domains allow a unit. inside: its users in the substage."""
        if item.alone or self.kind == COMP or (self.kind == RASTER and not item.uniform):
            return False
        return own or (
            item.uniform
            and item.unit.domain[1] in (1, self.domain[1])
            and inside == len(item.unit.users)
            and not item.final
        )

    def _read_outside(self, v: Variable, item: Item) -> bool:
        """Whether another substage reads v, given that one reads some output of the unit."""
        if len(item.outputs) == 1:
            return True
        return any(
            user.index not in self.members and any(x is v for x, _ in user.reads)
            for user in item.unit.users
        )

    def add(self, change: Change) -> None:
        """Take a unit."""
        for uid, _, after in change.masks:
            if after is None:
                del self.masks[uid]
            else:
                self.masks[uid] = after
        self.numbers, change.numbers = change.numbers, self.numbers
        self.members.add(change.item.index)
        self.joined.append(change)
        self.levels.append(max(self.levels[-1], change.item.level))
        for producer in change.item.unit.producers:
            self.edges[producer.index] = self.edges.get(producer.index, 0) + 1

    def undo(self) -> Item:
        """Give the last unit back."""
        change = self.joined.pop()
        self.levels.pop()
        for uid, before, _ in change.masks:
            if before is None:
                del self.masks[uid]
            else:
                self.masks[uid] = before
        self.numbers = change.numbers
        self.members.discard(change.item.index)
        for producer in change.item.unit.producers:
            self.edges[producer.index] -= 1
        return change.item


def _count(n: list[int], mask: int, planes: int, sign: int) -> None:
    """Add an input to the numbers of a substage, or take it away."""
    way = _WAYS[mask]
    if way == ATTACHMENT:
        n[_INPUTS] += sign * planes
        if mask & _LEAF:
            n[_LEAVES] += sign * planes
    elif way == BUFFER:
        n[_BUFFERS] += sign
    elif way != UNIFORM:
        n[_SAMPLED] += sign * planes
        if way == HW_SAMPLER:
            n[_SAMPLERS] += sign * planes
