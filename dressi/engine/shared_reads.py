"""Results of plans as arrays of another library, which lie where the copy from the images put them.

In: places in plans, a ``Share``. Out: ``SharedReads``: arrays that are the memory itself, as long
as somebody holds them; the next run has other memory then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dressi.ad.graph import Variable
from dressi.engine.device import Device, Transfer
from dressi.engine.moves import sources_of
from dressi.engine.share import Place, Room, Share
from dressi.engine.stepper import Part
from dressi.packing import DeviceLimits
from dressi.packing.layout import Cells, cells_of

LENT = 3
"""Rooms of a plan whose arrays are given out: a step holds the last results while it makes the
next, and gradients are held until the step after. Where more are held, copies are."""


class SharedReads:
    """A copy of results of plans to memory that another library sees. places: (plan, lowered
    Variable) of each. Raises OutOfMemoryError."""

    def __init__(
        self,
        device: Device,
        limits: DeviceLimits,
        places: Sequence[tuple[Part, Variable]],
        share: Share,
    ) -> None:
        self._device, self._limits, self._share = device, limits, share
        self._places = list(places)
        self._sources, self._first = sources_of(places)
        self._rooms: list[Room] = []
        self._nth = 0
        if places:
            self._rooms.append(self._made())

    def turn(self) -> Transfer | None:
        """Return the copy that the next submit ends with, to a room that nobody holds; None where
        there is nothing to copy. Raises OutOfMemoryError."""
        if not self._places:
            return None
        nth = 0
        while nth < len(self._rooms) and self._share.held(self._rooms[nth]):
            nth += 1
        if nth == len(self._rooms):
            self._rooms.append(self._made())
        self._nth, room = nth, self._rooms[nth]
        self._share.take(room)
        return room.transfer

    def values(self) -> list[Any]:
        """Return what the submit copies, (layers, H, W, *tail) each: arrays that nothing else
        writes to as long as they are there."""
        if not self._places:
            return []
        room, share = self._rooms[self._nth], self._share
        lent = share.lend(room)
        for k, a in enumerate(lent):
            if a is None:
                lent[k] = self._computed(room, k)
            elif self._nth >= LENT:
                lent[k] = share.copy(a)
        return lent

    def close(self) -> None:
        """Let the memory go, once nobody holds it. Idempotent."""
        for room in self._rooms:
            room.transfer.close()
            self._share.forget(room)
        self._places, self._rooms, self._sources = [], [], []

    def _made(self) -> Room:
        cells: list[Cells | None] = []
        for part, v in self._places:
            in_buffer = v.uid in part.packed.buffers
            counts = cells_of(v.size, v.layers, v.vtype.n, self._limits)
            cells += [None] if in_buffer else [counts] * v.vtype.n_planes
        room = Room(
            self._device.transfer("readback", self._sources, "download", self._share, cells)
        )
        found = [self._array(room, k) for k in range(len(self._places))]
        room.values = tuple(a for a, _ in found)
        room.places = tuple(p for _, p in found)
        self._share.add(room)
        return room

    def _array(self, room: Room, k: int) -> tuple[Any, Place | None]:
        """A result as an array of the room's memory, and its place; None where it is none."""
        (part, v), nth = self._places[k], self._first[k]
        in_buffer = v.uid in part.packed.buffers
        if v.vtype.is_matrix or not (in_buffer or room.transfer.packed(nth)):
            return None, None
        n = v.layers * math.prod(v.size) * v.vtype.n
        place = None if v.vtype.is_int else Place(room.transfer, nth, n)
        if in_buffer:
            return self._share.from_buffer(room.transfer.views(nth)[0], v), place
        return self._plane(room, nth, v), place

    def _plane(self, room: Room, nth: int, v: Variable) -> Any:
        pieces, packed = room.transfer.views(nth), room.transfer.packed(nth)
        return self._share.pixels(pieces, v, packed, self._limits)

    def _computed(self, room: Room, k: int) -> Any:
        """A new array of a result that is none of the room's memory."""
        (part, v), nth = self._places[k], self._first[k]
        if v.uid in part.packed.buffers:
            return self._share.copy(self._share.from_buffer(room.transfer.views(nth)[0], v))
        if v.vtype.is_matrix:
            numbers = range(nth, nth + v.vtype.n_planes)
            return self._share.stack([self._plane(room, n, v) for n in numbers])
        return self._share.copy(self._plane(room, nth, v))
