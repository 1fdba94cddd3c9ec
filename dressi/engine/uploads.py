"""Data of leaves on its way to the device, as part of a submit that does more.

In: arrays. Out: recorded copies (``Transfer``) whose host memory stays mapped: an array is written
into it with no other copy and no submit of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dressi.ad.graph import Variable
from dressi.engine.device import Device, Transfer
from dressi.engine.share import Share
from dressi.packing import DeviceLimits
from dressi.packing.arrays import copy_pixels, pixels_of, write_planes

MOST_BYTES = 16 << 20
"""Of what has host memory of its own: a second copy of all images would be too much, and the time
of moving more than this is that of the copy itself."""


class Uploads:
    """Copies to leaves that lie in images already, one per leaf.

    What ``put`` wrote waits for a submit: the caller takes it into one of its own (``take``), or
    gives it one (``flush``), before anything else is done with the device.
    """

    def __init__(self, device: Device, limits: DeviceLimits) -> None:
        self._device, self._limits = device, limits
        self._transfers: dict[int, Transfer] = {}
        self._places: dict[int, np.ndarray | None] = {}  # where pixels are simply written
        self._shapes: dict[int, tuple[int, ...]] = {}  # of the data of float leaves
        self._waiting: dict[int, Transfer] = {}
        self._shared: dict[int, tuple[Transfer, list[Any]]] = {}
        self._share: Share | None = None

    def put(self, v: Variable, array: np.ndarray, images: Callable[[], Sequence[Any]]) -> None:
        """Write the data of a leaf, (layers, H, W, *tail), into host memory. images: gives those
        that it lies in; asked once. Raises OutOfMemoryError where there is no host memory."""
        transfer = self._transfers.get(v.uid)
        if transfer is None:
            what = f"upload of {v.label()}"
            transfer = self._device.transfer("upload", images(), what)
            self._transfers[v.uid] = transfer
            one = v.vtype.n_planes == 1
            self._places[v.uid] = pixels_of(transfer.views(0), v, self._limits) if one else None
            if not v.vtype.is_int:
                self._shapes[v.uid] = (v.layers, v.size[1], v.size[0], *v.vtype.tail)
        place = self._places[v.uid]
        if place is not None:
            copy_pixels(place, array.reshape(place.shape))
        else:
            planes = [transfer.views(k) for k in range(v.vtype.n_planes)]
            write_planes(array, v, self._limits, planes)
        self._waiting[v.uid] = transfer

    def takes(self, v: Variable, shape: tuple[int, ...]) -> bool:
        """Whether ``put`` has host memory for a float leaf already, where pixels are simply
        written, and this is the shape of its data."""
        place = self._places.get(v.uid)
        return place is not None and shape == self._shapes.get(v.uid)

    def shared(
        self, v: Variable, images: Callable[[], Sequence[Any]], share: Share
    ) -> Sequence[Any]:
        """Return the pixels of each plane of a leaf in memory that another library sees, which
        writes them: ``Share.write``. Raises OutOfMemoryError where there is no memory."""
        self._share = share
        if v.uid not in self._shared:
            transfer = self._device.transfer("upload", images(), f"upload of {v.label()}", share)
            planes = range(v.vtype.n_planes)
            places = [share.pixels(transfer.views(k), v, self._limits) for k in planes]
            self._shared[v.uid] = transfer, places
        transfer, places = self._shared[v.uid]
        self._waiting[v.uid] = transfer
        return places

    def take(self) -> dict[int, Transfer]:
        """Return what waits, by the uid of the leaf; the caller submits it."""
        waiting, self._waiting = self._waiting, {}
        return waiting

    def flush(self) -> None:
        """Submit what waits."""
        if self._waiting:
            if self._share is not None:
                self._share.settle()
            batch = self._device.batch(list(self.take().values()))
            batch.start()
            batch.finish()

    def drop(self, uid: int) -> None:
        """Free the host memory of a leaf."""
        self._waiting.pop(uid, None)
        self._places.pop(uid, None)
        self._shapes.pop(uid, None)
        transfer, (shared, _) = self._transfers.pop(uid, None), self._shared.pop(uid, (None, []))
        for one in (transfer, shared):
            if one is not None:
                one.close()
