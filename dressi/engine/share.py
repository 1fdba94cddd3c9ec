"""What a ``VJP`` needs of another library whose arrays lie on the same card, to move data without
the host. ``dressi.torch.share`` has the one of PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dressi.ad.graph import Variable
from dressi.engine.device import Batch, Transfer
from dressi.packing import DeviceLimits


@dataclass(eq=False)
class Place:
    """What counts of one image of a Transfer, in memory that both libraries see."""

    transfer: Transfer
    nth: int
    n: int
    """Numbers."""
    n_writes: int = 0
    """Times that it got other numbers."""
    holds: Any = None
    """Key of the array that was written there, of the other library's."""


@dataclass(eq=False)
class Room:
    """Memory of results, which arrays of the other library may hold."""

    transfer: Transfer
    values: tuple[Any, ...] = ()
    """An array of each result: of this memory, or None."""
    places: tuple[Place | None, ...] = ()
    hold: Any = None
    """What ``Share.held`` needs."""
    is_done: bool = False
    """Whether the next submit comes after all that the other library has done with it."""


class Share(Protocol):
    """The other library. Its arrays are views of memory that both see, or its own."""

    timeline: Any
    """``dressi.vk.external.Timeline`` of the submits; None where the host waits."""

    def memory(self, fd: int, n_bytes: int, size: int) -> Any:
        """Import memory: ``dressi.vk.external.Importer``."""
        ...

    def run(self, batch: Batch) -> None:
        """Submit a batch after the work that the library has queued, where some of it touches what
        both see, and let what it queues next wait for it. The host does not wait, where there is a
        timeline."""
        ...

    def settle(self) -> None:
        """Wait until the work that the library has queued is done."""
        ...

    def pixels(self, pieces: Sequence[Any], v: Variable, packed: bool, limits: DeviceLimits) -> Any:
        """The pixels of a plane as a view of its words, (layers, H, W, components)."""
        ...

    def write(self, places: Sequence[Any], v: Variable, value: Any) -> None:
        """Write an array of as many numbers as (layers, H, W, *tail), or zeros for None, to
        ``pixels`` of each plane."""
        ...

    def from_buffer(self, words: Any, v: Variable) -> Any:
        """(layers, H, W, *tail) from the sums of a scatter's buffer: a view."""
        ...

    def place_of(self, value: Any, n: int) -> Place | None:
        """Where n numbers lie already that are those of an array, for a copy from there. What its
        library has queued to change them is waited for by the next submit."""
        ...

    def wrote(self, value: Any, place: Place) -> None:
        """Say that an array was written to a place."""
        ...

    def lend(self, room: Room) -> list[Any]:
        """Return new arrays of the values of a room that got other numbers."""
        ...

    def add(self, room: Room) -> None:
        """Note a new room, whose values and places are known."""
        ...

    def forget(self, room: Room) -> None:
        """Hold nothing of a room whose Transfer is closed."""
        ...

    def held(self, room: Room) -> bool:
        """Whether an array that was lent is still there."""
        ...

    def take(self, room: Room) -> None:
        """Let the next submit write to a room that nobody holds."""
        ...

    def stack(self, planes: Sequence[Any]) -> Any:
        """A new array of the columns of matrices."""
        ...

    def copy(self, a: Any) -> Any:
        """A new array, contiguous."""
        ...
