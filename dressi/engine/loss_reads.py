"""The loss, where the host reads it after each step: its copy to the host rides on the step's
submit, where a read by itself takes a submit of its own, recorded anew.

In: single runs of a step, and reads of its loss. Out: the same values in half the submits.
"""

from __future__ import annotations

import numpy as np

from dressi.ad.graph import Variable
from dressi.engine.device import Batch, Device
from dressi.engine.leafstore import LeafStore
from dressi.engine.moves import Reads, n_bytes, submit
from dressi.engine.stepper import Part
from dressi.errors import OutOfMemoryError
from dressi.packing import DeviceLimits

READ_IN_A_ROW = 3
"""Steps whose loss was read before the copy rides along."""
UNREAD_IN_A_ROW = 8
"""Steps whose loss nobody read, after which it no longer does."""
MOST_BYTES = 1 << 16
"""Of a loss that rides along: a larger one costs a step more than a submit does."""


class LossReads:
    """Runs of a step's half, with a copy of the loss behind each while somebody reads them."""

    def __init__(self, device: Device, limits: DeviceLimits, loss: Variable) -> None:
        """loss: lowered."""
        self._device, self._limits, self._loss = device, limits, loss
        self._part: Part | None = None
        self._reads: Reads | None = None
        self._batch: Batch | None = None
        self._read = False  # since the last step
        self._fresh = False  # whether the host has the loss of the last step
        self._wanted = 0  # goes up with steps whose loss is read, down with the others

    def run(self, part: Part, store: LeafStore, n: int) -> None:
        """Run a half n times and wait."""
        self._count(n)
        self._fresh = False
        batch = self._ready(part) if n == 1 and self._wanted >= READ_IN_A_ROW else None
        if batch is None:
            part.run(store, n)
            return
        part.refresh(store)
        submit(batch)
        self._fresh = True

    def value(self, part: Part) -> np.ndarray:
        """Return the loss that a half left, (layers, H, W, *tail), valid until the next run."""
        self._read = True
        if self._fresh and part is self._part and self._reads is not None:
            return self._reads.values()[0]
        return part.read(self._loss, self._limits)

    def close(self) -> None:
        """Free the host memory. Idempotent."""
        if self._reads is not None:
            self._reads.close()
        self._part = self._reads = self._batch = None
        self._fresh = False

    def _count(self, n: int) -> None:
        if self._read and n == 1:
            self._wanted = min(self._wanted + 1, READ_IN_A_ROW + UNREAD_IN_A_ROW)
        else:
            self._wanted = max(self._wanted - 1, 0)
        self._read = False

    def _ready(self, part: Part) -> Batch | None:
        """Return a submit of the half and the copy; None where the loss is not to ride along."""
        if part is self._part:
            return self._batch
        self.close()
        self._part = part  # asked once per half: where there is no room, too
        if part.is_empty or not part.holds(self._loss) or n_bytes(part, self._loss) > MOST_BYTES:
            return None
        try:
            self._reads = Reads(self._device, self._limits, [(part, self._loss)])
        except OutOfMemoryError:
            return None
        assert self._reads.transfer is not None
        self._batch = self._device.batch([part.executable, self._reads.transfer])
        return self._batch
