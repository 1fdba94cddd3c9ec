"""What a replica submits in a step, recorded once.

In: the plans of both halves of a step, images of gradients and of their sum. Out: ``Exchange``:
gradients in memory of the host, an update by what the host wrote there. In the usual case an update
and the gradients of the next step are one submit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dressi.engine.device import Batch, Device
from dressi.engine.stepper import Part


class Exchange:
    """The transfers of one device, and the submits that they are part of.

    device: of the replica. update: the half that reads ``sums``, images that get the whole
    gradients; gradients: the half, and the images where it (or what it was split off from) leaves
    those of the replica, of the same formats and sizes as ``sums``. Raises OutOfMemoryError where
    the host memory does not suffice.
    """

    def __init__(
        self,
        device: Device,
        update: Part,
        sums: Sequence[Any],
        gradients: Part,
        images: Sequence[Any],
    ) -> None:
        self._device = device
        self._update = update
        self._gradients = gradients
        self._upload = device.transfer("upload", sums, "upload of summed gradients")
        try:
            self._readback = device.transfer("readback", images, "download of gradients")
        except BaseException:
            self._upload.close()
            raise
        self._batches: dict[tuple[bool, bool, bool], Batch] = {}
        self._running: Batch | None = None

    def record(self, gradients: Part, images: Sequence[Any]) -> None:
        """The half of the gradients is another one now."""
        self._batches.clear()
        self._gradients = gradients
        self._readback.record(images)

    @property
    def gradients(self) -> tuple[np.ndarray, ...]:
        """What came from the device."""
        return self._readback.words

    @property
    def sums(self) -> tuple[np.ndarray, ...]:
        """What goes to the device; to be written only."""
        return self._upload.words

    def start(self, update: bool = False, gradients: bool = False, download: bool = False) -> None:
        """Submit, of these in this order, what is wanted: the way to the device with the update,
        the gradients, the way back. ``finish`` comes before anything else on this device."""
        key = (update, gradients, download)
        batch = self._batches.get(key)
        if batch is None:
            batch = self._batches[key] = self._device.batch(self._parts(*key))
        batch.start()
        self._running = batch

    def _parts(self, update: bool, gradients: bool, download: bool) -> list[Any]:
        parts: list[Any] = [self._upload] if update else []
        halves = [self._update] * update + [self._gradients] * gradients
        parts += [half.executable for half in halves if not half.is_empty]
        return [*parts, self._readback] if download else parts

    def finish(self) -> None:
        """Wait for what was submitted."""
        assert self._running is not None
        running, self._running = self._running, None
        running.finish()
        self._readback.fetch()

    def close(self) -> None:
        """Free the host memory."""
        self._batches.clear()
        self._upload.close()
        self._readback.close()
