"""A device without Vulkan: plans are evaluated in NumPy, calls are noted, errors come when asked.

In: plans with the ``Packed`` that they are part of, pixels. Out: pixels. It fulfils
``dressi.engine.device.Device``, and takes nothing that a Vulkan device would refuse: closed
executables, images that were dropped, uniforms of another size, calls amid a submit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dressi.errors import DeviceError, OutOfMemoryError
from dressi.packing import DeviceLimits, Packed, Plan
from dressi.packing.limits import LLVMPIPE
from dressi.packing.profile import DeviceProfile
from dressi.testing.null_values import Place, Values
from dressi.vk import DeviceInfo

Call = tuple[Any, ...]
"""Name of the call, what it was about, and for runs how many."""


@dataclass(eq=False)
class NullImage:
    """Pixels, and whether they are still there."""

    format: str
    width: int
    height: int
    data: bytes
    alive: bool = True


class NullDevice:
    """A device whose plans NumPy evaluates in float64, storing float32.

    limits: what packing must keep to. profile: speeds for ``lowering="auto"``; None: passes.
    memory_limit: bytes that images and buffers may take together.
    """

    def __init__(
        self,
        limits: DeviceLimits = LLVMPIPE,
        profile: DeviceProfile | None = None,
        memory_limit: int | None = None,
    ) -> None:
        self.limits = limits
        self.info = DeviceInfo(0, "null device", "NumPy", "other", "0.0.0")
        self.memory_limit = memory_limit
        self.waited_s = 0.0
        self.calls: list[Call] = []
        """Everything that was done, in order: ``("compile", "step")``, ``("run", "step", 3)``."""
        self.closed = False
        self.busy = False
        self._profile = profile
        self._images: dict[int, NullImage] = {}
        self._buffers: dict[int, NullImage] = {}
        self._executables: set[NullExecutable] = set()
        self._transfers: set[NullTransfer] = set()
        self._errors: dict[str, BaseException] = {}

    def fail_next(self, call: str, error: BaseException) -> None:
        """Raise an error in the next call of this name, before it does anything."""
        self._errors[call] = error

    def names(self, call: str) -> list[Any]:
        """What the calls of a name were about, in order."""
        return [c[1] for c in self.calls if c[0] == call]

    def note(self, *call: Any) -> None:
        """Note a call. Raises DeviceError where the device is closed or a submit is under way, and
        what ``fail_next`` said."""
        if self.closed:
            raise DeviceError(f"the null device is closed: {call}")
        if self.busy:
            raise DeviceError(f"a submit is under way: {call}")
        if call[0] in self._errors:
            raise self._errors.pop(call[0])
        self.calls.append(call)

    def profile(self) -> DeviceProfile | None:
        return self._profile

    # -- persistent images

    def upload_all(self, images: Sequence[tuple[int, str, int, int, Any]]) -> None:
        self.note("upload", tuple(image[0] for image in images))
        for key, fmt, width, height, data in images:
            old = self._images.get(key)
            if old is None or (old.format, old.width, old.height) != (fmt, width, height):
                self._drop(key)
                self._check_room(len(data), f"persistent image {key}")
                self._images[key] = NullImage(fmt, width, height, b"")
            self._images[key].data = bytes(data)

    def download_all(self, keys: Sequence[int]) -> list[bytes]:
        self.note("download", tuple(keys))
        return [self.image(key).data for key in keys]

    def image(self, key: int) -> NullImage:
        if key not in self._images:
            raise DeviceError(f"no persistent image has key {key} on the null device")
        return self._images[key]

    def drop(self, key: int) -> None:
        self.note("drop", key)
        self._drop(key)

    def _drop(self, key: int) -> None:
        for store in (self._images, self._buffers):
            if key in store:
                store.pop(key).alive = False

    # -- plans

    def check_room(self, plan: Plan) -> None:
        new = sum(i.n_bytes for i in plan.images if i.key is None or i.key not in self._images)
        buffers = [b for b in plan.buffers if b.key is None or b.key not in self._buffers]
        self._check_room(new + sum(4 * b.n_words for b in buffers), f"plan '{plan.name}'")

    def _check_room(self, needed: int, what: str) -> None:
        used = self.used_bytes()
        if self.memory_limit is not None and needed > self.memory_limit - used:
            left = self.memory_limit - used
            text = f"{what} does not fit into memory_limit: needs {needed} bytes, {left} are left"
            raise OutOfMemoryError(text, needed, left)

    def compile(self, plan: Plan, source: object | None = None) -> NullExecutable:
        self.note("compile", plan.name)
        self.check_room(plan)
        assert isinstance(source, Packed), "a plan alone does not say what to compute"
        executable = NullExecutable(self, source)
        self._executables.add(executable)
        return executable

    def places(self, plan: Plan) -> dict[Place, NullImage]:
        """The images and buffers of a plan: its own ones new, the persistent ones made where they
        are missing."""
        found: dict[Place, NullImage] = {}
        for i in plan.images:
            new = NullImage(i.format, i.width, i.height, bytes(i.n_bytes))
            if i.key is not None:
                new = self._images.setdefault(i.key, new)
                if (new.format, new.width, new.height) != (i.format, i.width, i.height):
                    raise DeviceError(f"persistent image {i.key} is not that of plan '{plan.name}'")
            found["image", i.index] = new
        for b in plan.buffers:
            new = NullImage("words", b.n_words, 1, bytes(4 * b.n_words))
            found["buffer", b.index] = (
                new if b.key is None else self._buffers.setdefault(b.key, new)
            )
        return found

    def forget(self, part: NullExecutable | NullTransfer) -> None:
        """A part that was closed."""
        self._executables.discard(part)
        self._transfers.discard(part)

    # -- what several devices exchange

    def transfer(
        self,
        use: str,
        images: Sequence[NullImage],
        what: str,
        importer: Any = None,
        cells: Sequence[Any] = (),
        source: Any = None,
    ) -> NullTransfer:
        self.note("transfer", use)
        made = NullTransfer(self, use, images, what)
        self._transfers.add(made)
        return made

    def batch(
        self, parts: Sequence[NullExecutable | NullTransfer], timeline: Any = None
    ) -> NullBatch:
        return NullBatch(self, parts)

    def enter(self) -> None:
        """Do nothing: no batch is left running."""

    look = enter

    # -- memory and life

    def stored_bytes(self) -> tuple[int, int, int]:
        images, buffers = self._images.values(), self._buffers.values()
        return sum(len(i.data) for i in images), sum(len(b.data) for b in buffers), 0

    def used_bytes(self) -> int:
        own = sum(sum(e.plan.own_bytes) for e in self._executables)
        return sum(self.stored_bytes()) + own

    def taken_bytes(self) -> int:
        return self.used_bytes()

    def live_handles(self) -> dict[str, int]:
        return {
            "images": len(self._images),
            "buffers": len(self._buffers),
            "executables": len(self._executables),
            "transfers": len(self._transfers),
        }

    def close(self) -> None:
        self.closed = True
        for store in (self._images, self._buffers, self._executables, self._transfers):
            store.clear()


class NullExecutable:
    """A plan on a null device."""

    def __init__(self, device: NullDevice, packed: Packed) -> None:
        self.plan = packed.plan
        self.build_times = {"spirv": 0.0, "pipelines": 0.0, "other": 0.0}
        self.closed = False
        self._device = device
        self._places = device.places(packed.plan)
        self._values = Values(packed)
        self._uniforms = bytes(16 * packed.plan.uniform_slots)

    def check(self) -> None:
        """Raises DeviceError where a Vulkan device would refuse to run it."""
        if self.closed:
            raise DeviceError(f"the executable of plan '{self.plan.name}' is closed")
        if not all(image.alive for image in self._places.values()):
            raise DeviceError(f"plan '{self.plan.name}' was compiled for images that are gone")

    def write_uniforms(self, data: Any) -> None:
        self.check()
        self._device.note("uniforms", self.plan.name)
        if len(data) != len(self._uniforms):
            raise DeviceError(
                f"{len(data)} bytes for the uniforms of plan '{self.plan.name}', which take "
                f"{len(self._uniforms)}"
            )
        self._uniforms = bytes(data)

    def run(self, n: int = 1) -> None:
        self.check()
        self._device.note("run", self.plan.name, n)
        for _ in range(n):
            self.execute()

    def execute(self) -> None:
        """One run: stages, then copies."""
        for place, data in self._values.run(lambda p: self._places[p].data, self._uniforms):
            self._places[place].data = data
        copies = [(self._places["image", a].data, b) for a, b in self.plan.updates]
        for data, target in copies:
            self._places["image", target].data = data

    def images(self, indices: Sequence[int]) -> list[NullImage]:
        return [self._places["image", i] for i in indices]

    def buffers(self, indices: Sequence[int]) -> list[NullImage]:
        return [self._places["buffer", i] for i in indices]

    def download(self, image_index: int) -> bytes:
        self.check()
        self._device.note("read", self.plan.name)
        return self._places["image", image_index].data

    def download_buffer(self, buffer_index: int) -> bytes:
        self.check()
        self._device.note("read", self.plan.name)
        return self._places["buffer", buffer_index].data

    def run_timed(self) -> list[tuple[str, float]]:
        self.run()
        return [(name, 1.0) for name in (*(s.name for s in self.plan.stages), "updates")]

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._device.forget(self)


@dataclass(eq=False)
class NullTransfer:
    """A repeated copy between images and an array."""

    device: NullDevice
    use: str
    images: Sequence[NullImage]
    what: str
    words: tuple[np.ndarray, ...] = ()
    closed: bool = False
    _arrived: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        self.words = (np.zeros(sum(len(i.data) for i in self.images) // 4, np.float32),)

    def views(self, nth: int) -> list[np.ndarray]:
        """Words of one of the images."""
        ends = np.cumsum([0, *(len(i.data) // 4 for i in self.images)])
        return [self.words[0][ends[nth] : ends[nth + 1]]]

    def record(self, images: Sequence[NullImage]) -> None:
        self.images = images

    def check(self) -> None:
        """Raises DeviceError where a Vulkan device would refuse it."""
        if self.closed or not all(i.alive for i in self.images):
            raise DeviceError(f"{self.what}: closed, or images are gone")

    def execute(self) -> None:
        """One copy. What is read back arrives with ``fetch``."""
        if self.use == "readback":
            self._arrived = b"".join(i.data for i in self.images)
            return
        data, at = self.words[0].tobytes(), 0
        for image in self.images:
            size = len(image.data)
            image.data, at = data[at : at + size], at + size

    def fetch(self) -> None:
        if self._arrived:
            self.words[0][:] = np.frombuffer(self._arrived, np.float32)

    def close(self) -> None:
        if not self.closed:
            self.closed, self.words = True, ()
            self.device.forget(self)


@dataclass(eq=False)
class NullBatch:
    """A submit, whose work is done when it is waited for."""

    device: NullDevice
    parts: Sequence[NullExecutable | NullTransfer]

    def start(self) -> None:
        for part in self.parts:
            part.check()
        names = (p.what if isinstance(p, NullTransfer) else p.plan.name for p in self.parts)
        self.device.note("start", tuple(names))
        self.device.busy = True

    def finish(self) -> None:
        self.device.busy = False
        self.device.note("finish", "")
        for part in self.parts:
            part.execute()
