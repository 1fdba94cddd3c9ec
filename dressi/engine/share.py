"""What a ``VJP`` needs of another library whose arrays lie on the same card, to move data without
the host. ``dressi.torch.share`` has the one of PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from dressi.ad.graph import Variable
from dressi.engine.device import Batch
from dressi.packing import DeviceLimits


class Share(Protocol):
    """The other library. Its arrays are views of memory that both see, or its own."""

    timeline: Any
    """``dressi.vk.external.Timeline`` of the submits; None where the host waits."""

    def memory(self, fd: int, n_bytes: int, size: int) -> Any:
        """Import memory: ``dressi.vk.external.Importer``."""
        ...

    def run(self, batch: Batch) -> None:
        """Submit a batch after the work that the library has queued, and let what it queues next
        wait for it. The host does not wait, where there is a timeline."""
        ...

    def settle(self) -> None:
        """Wait until the work that the library has queued is done."""
        ...

    def pixels(self, pieces: Sequence[Any], v: Variable, limits: DeviceLimits) -> Any:
        """The pixels of a plane as a view of its words, (layers, H, W, components)."""
        ...

    def write(self, places: Sequence[Any], v: Variable, value: Any) -> None:
        """Write an array (layers, H, W, *tail) of the library, or zeros for None, to ``pixels`` of
        each plane."""
        ...

    def from_planes(self, planes: Sequence[Any], v: Variable, limits: DeviceLimits) -> Any:
        """``packing.arrays.from_planes`` for its arrays, as views where that is possible, in the
        shape that users see."""
        ...

    def from_buffer(self, words: Any, v: Variable) -> Any:
        """``packing.arrays.from_buffer`` for its arrays, in the shape that users see."""
        ...

    def shares(self, a: Any, words: Any) -> bool:
        """``packing.arrays.shares`` for its arrays."""
        ...

    def present(self, a: Any, v: Variable) -> Any:
        """A copy of what these return."""
        ...
