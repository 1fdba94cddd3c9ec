"""What an engine needs of a device.

``dressi.vk.Device`` runs plans on Vulkan; that of ``dressi.testing.null_device`` evaluates them in
NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from dressi.packing import DeviceLimits, Plan
from dressi.packing.profile import DeviceProfile
from dressi.vk import DeviceInfo, open_device


class Executable(Protocol):
    """A compiled plan."""

    build_times: dict[str, float]
    """Seconds of each part of compiling."""

    def write_uniforms(self, data: Any) -> None:
        """Replace the uniform block; the next run sees it."""
        ...

    def run(self, n: int = 1) -> None:
        """Run the plan n times and wait for the last one."""
        ...

    def images(self, indices: Sequence[int]) -> Sequence[Any]:
        """Images of ``plan.images``, for a ``Transfer``."""
        ...

    def buffers(self, indices: Sequence[int]) -> Sequence[Any]:
        """Buffers of ``plan.buffers``, for a ``Transfer``."""
        ...

    def download(self, image_index: int) -> bytes:
        """Pixels of an image of ``plan.images``, tightly packed."""
        ...

    def download_buffer(self, buffer_index: int) -> bytes:
        """Words of a buffer of ``plan.buffers``."""
        ...

    def run_timed(self) -> list[tuple[str, float]]:
        """Run the plan once; (stage, ms), copies last."""
        ...

    def close(self) -> None:
        """Free what belongs to this plan alone. May be called twice."""
        ...


class Transfer(Protocol):
    """A repeated copy between images and memory of the host."""

    words: tuple[Any, ...]
    """That memory, float32: arrays of NumPy, or of who imported it."""

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        ...

    def views(self, nth: int) -> list[Any]:
        """Words of one of the images, as views of ``words``: one array, or several pieces."""
        ...

    def packed(self, nth: int) -> bool:
        """Whether these are what counts of it, and nothing else."""
        ...

    def record(self, images: Sequence[Any]) -> None:
        """Copy other images of the same formats and sizes from now on."""
        ...

    def fetch(self) -> None:
        """Make what a finished readback wrote visible in ``words``."""
        ...

    def close(self) -> None:
        """Free the memory."""
        ...


class Batch(Protocol):
    """Executables and transfers that are submitted together."""

    def start(self) -> None:
        """Submit; ``finish`` or ``enter`` is called before anything that it uses is touched."""
        ...

    def finish(self) -> None:
        """Wait for the submit."""
        ...


@runtime_checkable
class Device(Protocol):
    """Persistent images by key, plans to executables. Used by one thread at a time."""

    @property
    def waited_s(self) -> float:
        """Seconds that calls have waited for the device so far."""
        ...

    @property
    def info(self) -> DeviceInfo:
        """Name, driver and type."""
        ...

    @property
    def limits(self) -> DeviceLimits:
        """What the packer must keep to."""
        ...

    def profile(self) -> DeviceProfile | None:
        """Speeds of the device, for ``lowering="auto"``; None where they are not known."""
        ...

    def upload_all(self, images: Sequence[tuple[int, str, int, int, Any]]) -> None:
        """Write persistent images (key, format, width, height, data), making those that are
        missing."""
        ...

    def download_all(self, keys: Sequence[int]) -> list[bytes]:
        """Pixels of persistent images."""
        ...

    def image(self, key: int) -> Any:
        """A persistent image, for a ``Transfer``."""
        ...

    def drop(self, key: int) -> None:
        """Free a persistent image or buffer, if there is one."""
        ...

    def check_room(self, plan: Plan) -> None:
        """Raise OutOfMemoryError where the plan cannot fit, before anything is made."""
        ...

    def compile(self, plan: Plan, source: object | None = None) -> Executable:
        """Make everything that a plan needs. source: the ``Packed`` that the plan is part of, for a
        device that evaluates graphs."""
        ...

    def transfer(
        self,
        use: str,
        images: Sequence[Any],
        what: str,
        importer: Any = None,
        cells: Sequence[Any] = (),
        source: Any = None,
    ) -> Transfer:
        """A Transfer of images; use: ``"upload"`` or ``"readback"``. importer: another library that
        sees its memory, which then is the device's. cells: then what counts of each image. source:
        a Transfer with an importer and the number of one of its images, whose memory is read."""
        ...

    def batch(self, parts: Sequence[Any], timeline: Any = None) -> Batch:
        """A Batch of executables and transfers of this device, in order. timeline: orders it among
        the work of another library."""
        ...

    def enter(self) -> None:
        """Wait for a Batch that was started and left running."""
        ...

    def look(self) -> None:
        """Raise DeviceError as ``enter`` does; wait for nothing."""
        ...

    def stored_bytes(self) -> tuple[int, int, int]:
        """Bytes of the persistent images, the persistent buffers, and the depth images."""
        ...

    def used_bytes(self) -> int:
        """Bytes in use, of what was taken from the driver."""
        ...

    def taken_bytes(self) -> int:
        """Bytes that count against the memory limit, holes included."""
        ...

    @property
    def memory_limit(self) -> int | None:
        """Bytes that may be taken; None: all there are."""
        ...

    def live_handles(self) -> dict[str, int]:
        """Number of objects that exist now, by type; all zero after ``close``."""
        ...

    def close(self) -> None:
        """Free everything. May be called twice."""
        ...


def opened(
    device: str | int | Device | None, validate: bool | None, memory_limit: int | None
) -> Device:
    """The Vulkan device that a selector names; an open device as it is."""
    if isinstance(device, Device):
        return device
    return open_device(device, validate, memory_limit)
