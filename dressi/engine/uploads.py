"""Data of leaves on its way to the device, as part of a submit that does more.

In: arrays. Out: recorded copies (``Transfer``) whose host memory stays mapped: an array is written
into it with no other copy and no submit of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dressi.ad.graph import Variable
from dressi.engine.device import Device, Transfer
from dressi.engine.share import Place, Share
from dressi.packing import DeviceLimits
from dressi.packing.arrays import copy_pixels, pixels_of, write_planes
from dressi.packing.layout import cells_of

MOST_BYTES = 16 << 20
"""Of what has host memory of its own: a second copy of all images would be too much, and the time
of moving more than this is that of the copy itself."""


@dataclass
class _Port:
    """Host memory of a leaf."""

    transfer: Transfer
    pixels: np.ndarray | None
    """Where its pixels are simply written."""
    shape: tuple[int, ...]
    """(layers, H, W, *tail)."""


class Uploads:
    """Copies to leaves that lie in images already, one per leaf.

    What ``put`` wrote waits for a submit: the caller takes it into one of its own (``take``), or
    gives it one (``flush``), before anything else is done with the device.
    """

    def __init__(self, device: Device, limits: DeviceLimits) -> None:
        self._device, self._limits = device, limits
        self._ports: dict[int, _Port] = {}
        self.waiting: dict[int, Transfer] = {}
        """What ``take`` gives."""
        self._shared: dict[int, tuple[Transfer, list[Any], Place | None]] = {}
        self._borrowed: dict[int, dict[Place, Transfer]] = {}
        self._numbers: dict[int, int] = {}
        self._share: Share | None = None

    def put(self, v: Variable, array: np.ndarray, images: Callable[[], Sequence[Any]]) -> None:
        """Write the data of a leaf, (layers, H, W, *tail), into host memory. images: gives those
        that it lies in; asked once. Raises OutOfMemoryError where there is no host memory."""
        port = self._ports.get(v.uid)
        if port is None:
            what = f"upload of {v.label()}"
            transfer = self._device.transfer("upload", images(), what)
            one = v.vtype.n_planes == 1
            pixels = pixels_of(transfer.views(0), v, self._limits) if one else None
            shape = (v.layers, v.size[1], v.size[0], *v.vtype.tail)
            port = self._ports[v.uid] = _Port(transfer, pixels, shape)
        if port.pixels is not None:
            copy_pixels(port.pixels, array.reshape(port.pixels.shape))
        else:
            planes = [port.transfer.views(k) for k in range(v.vtype.n_planes)]
            write_planes(array, v, self._limits, planes)
        self.waiting[v.uid] = port.transfer

    def takes(self, v: Variable, value: Any) -> bool:
        """Whether these are finite float32 of the full shape for a float leaf that ``put`` has host
        memory for already, where pixels are simply written."""
        port = self._ports.get(v.uid)
        return (
            port is not None
            and port.pixels is not None
            and isinstance(value, np.ndarray)
            and value.dtype == np.float32
            and value.shape == port.shape
            and not v.vtype.is_int
            and bool(np.logical_and.reduce(np.isfinite(value), axis=None))
        )

    def shared(
        self,
        v: Variable,
        value: Any,
        images: Callable[[], Sequence[Any]],
        share: Share,
        again: bool,
    ) -> None:
        """Take an array of another library for a leaf, or zeros for None: from where it lies, where
        copies of the card can read that, else it writes it to memory that both see. again: whether
        the array may come again, for this leaf or another. Raises OutOfMemoryError where there is
        no memory."""
        self._share = share
        n = self._numbers.get(v.uid)
        if n is None:
            n = self._numbers[v.uid] = v.layers * v.size[0] * v.size[1] * v.vtype.n
        place = None if value is None or v.vtype.is_matrix else share.place_of(value, n)
        own = self._shared.get(v.uid)
        if place is not None and (own is None or place is not own[2]):
            self.waiting[v.uid] = self._borrowing(v, place, images)
            return
        if own is None:
            own = self._shared[v.uid] = self._opened(v, images, share, n)
        transfer, pixels, own_place = own
        if place is None:
            share.write(pixels, v, value)
            if own_place is not None:
                share.wrote(value if again else None, own_place)
        self.waiting[v.uid] = transfer

    def _opened(
        self, v: Variable, images: Callable[[], Sequence[Any]], share: Share, n: int
    ) -> tuple[Transfer, list[Any], Place | None]:
        """Memory that both see for a leaf: its copy, the pixels of each plane, its place."""
        planes = range(v.vtype.n_planes)
        cells = [cells_of(v.size, v.layers, v.vtype.n, self._limits)] * len(planes)
        what = f"upload of {v.label()}"
        transfer = self._device.transfer("upload", images(), what, share, cells)
        pixels = [
            share.pixels(transfer.views(k), v, transfer.packed(k), self._limits) for k in planes
        ]
        lies = transfer.packed(0) and not v.vtype.is_matrix
        return transfer, pixels, Place(transfer, 0, n) if lies else None

    def _borrowing(
        self, v: Variable, place: Place, images: Callable[[], Sequence[Any]]
    ) -> Transfer:
        """The copy to a leaf from a place."""
        known = self._borrowed.setdefault(v.uid, {})
        if place not in known:
            self.release()
            cells, what = (
                cells_of(v.size, v.layers, v.vtype.n, self._limits),
                f"copy to {v.label()}",
            )
            source = place.transfer, place.nth
            known[place] = self._device.transfer("upload", images(), what, None, [cells], source)
        return known[place]

    def release(self) -> None:
        """Close copies from memory that its owner has closed, which it waits for."""
        waiting = {id(t) for t in self.waiting.values()}
        for known in self._borrowed.values():
            for place, transfer in list(known.items()):
                if place.transfer.closed and id(transfer) not in waiting:
                    known.pop(place).close()

    def take(self) -> dict[int, Transfer]:
        """Return what waits, by the uid of the leaf; the caller submits it."""
        waiting, self.waiting = self.waiting, {}
        return waiting

    def flush(self) -> None:
        """Submit what waits."""
        if self.waiting:
            if self._share is not None:
                self._share.settle()
            batch = self._device.batch(list(self.take().values()))
            batch.start()
            batch.finish()

    def forget(self) -> None:
        """Hold nothing any more: the device is closed."""
        for uid in (*self._ports, *self._shared, *self._borrowed):
            self.drop(uid)

    def drop(self, uid: int) -> None:
        """Free the host memory of a leaf."""
        self.waiting.pop(uid, None)
        self._numbers.pop(uid, None)
        ends = list(self._borrowed.pop(uid, {}).values())
        ends += [port.transfer for port in [self._ports.pop(uid, None)] if port is not None]
        ends += [shared[0] for shared in [self._shared.pop(uid, None)] if shared is not None]
        for one in ends:
            one.close()
