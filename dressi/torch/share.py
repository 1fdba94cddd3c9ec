"""Tensors on CUDA and images of Vulkan on the same card, with no copy through the host.

In: an engine, the device of tensors. Out: ``TorchShare``, through which a ``VJP`` moves data:
buffers of the card that both libraries see, and one timeline semaphore by which each waits for the
other on the card, or the host for both. Where memory cannot be shared, the reason is logged once,
and tensors go through the host.
"""

from __future__ import annotations

import logging
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch

from dressi import config
from dressi.ad.graph import Variable
from dressi.engine import DressiAD
from dressi.engine.runtime import Runtime
from dressi.engine.share import Place, Room
from dressi.errors import DressiError
from dressi.packing import DeviceLimits
from dressi.packing.layout import layout
from dressi.torch.cuda import Cuda
from dressi.vk import Device
from dressi.vk.external import Timeline, has_timelines, obstacle

log = logging.getLogger("dressi")

COMPARED_BYTES = 1 << 20
"""Of a float input up to which it is compared with what was sent last: reading it twice takes a
tenth of a millisecond, about as long as sending it. Up to this a tensor may be held, too, to see
whether it comes again."""

KEPT_WRITTEN = 32
"""Tensors of which it is known where they were written to: a step calls a few functions with a few
each."""

_known: weakref.WeakKeyDictionary[Runtime, dict[torch.device, TorchShare | str]]
_known = weakref.WeakKeyDictionary()


def share_of(ad: DressiAD, device: torch.device) -> TorchShare | None:
    """Return what moves tensors on a device to and from an engine; None where they go through the
    host, which the log says once, with the reason. For the CPU always None."""
    if device.type == "cpu":
        return None
    known = _known.setdefault(ad.runtime, {})
    if device not in known:
        known[device] = found = _opened(ad, device)
        if isinstance(found, str):
            text = "dressi.torch: tensors on %s are copied through the host: %s"
            log.warning(text, device, found)
        else:
            log.info("dressi.torch: tensors on %s share memory with %s", device, found.name)
    found = known[device]
    return None if isinstance(found, str) else found


def _opened(ad: DressiAD, device: torch.device) -> TorchShare | str:
    """A new share, or why there is none."""
    own = ad.runtime.device
    if config.sharing() == "0":
        return "DRESSI_SHARE is 0"
    if device.type != "cuda" or torch.version.cuda is None:
        return "they are not CUDA's"
    if not isinstance(own, Device):
        return "the engine's device is not Vulkan's"
    theirs = str(getattr(torch.cuda.get_device_properties(device), "uuid", "")).lower()
    if theirs.removeprefix("gpu-") != own.info.uuid:
        return f"Dressi runs on {own.info.name} (UUID {own.info.uuid}), they lie on UUID {theirs}"
    why = obstacle(own.context)
    if why:
        return why
    try:
        semaphore = config.sharing() != "wait" and has_timelines(own.context)
        return TorchShare(own, device, Cuda(device.index), semaphore)
    except DressiError as error:
        return str(error)


class _Words:
    """Memory of the card, for torch.as_tensor, which keeps this as long as a tensor is there."""

    def __init__(self, address: int, n: int, owner: object) -> None:
        self._owner = owner
        self.__cuda_array_interface__ = {
            "shape": (n,),
            "typestr": "<f4",
            "data": (address, False),
            "strides": None,
            "version": 2,
        }


def words_at(address: int, n: int, device: torch.device, owner: object) -> torch.Tensor:
    """A float32 tensor (n,) of memory of the card. owner: is kept as long as it, or a view of it,
    is there."""
    return torch.as_tensor(_Words(address, n, owner), device=device)


class _Imported:
    """Imported memory. It goes with the last tensor of it, which may be a user's: what is imported
    stays where Vulkan has freed it."""

    def __init__(self, cuda: Cuda, handle: int, address: int) -> None:
        release = cuda.release_memory
        weakref.finalize(self, release, handle, address).atexit = False


class _Mapped:
    """Imported memory as a tensor."""

    def __init__(self, words: torch.Tensor) -> None:
        self.words = words

    def close(self) -> None:
        """Let it go."""
        self.words = torch.empty(0)


class TorchShare:
    """``dressi.engine.share.Share`` for tensors on one card. semaphore: whether both libraries wait
    for each other there; else the host waits for both."""

    def __init__(
        self, own: Device, device: torch.device, cuda: Cuda, semaphore: bool = True
    ) -> None:
        self.name = own.info.name
        self.device, self._cuda = device, cuda
        self._last: int | None = None  # the stream of the submit before
        self._pending = True
        """Whether the stream has work that the next submit comes after."""
        self._lent: list[Room] = []  # those that are not known to be done with
        self._rooms: dict[int, Place] = {}  # by address: what was lent, or will be
        self._written: OrderedDict[int, tuple[Seen, Place]] = OrderedDict()
        """By address: a tensor of torch's, and where its numbers were written to."""
        self.timeline: Timeline | None = None
        if not semaphore:
            return
        self.timeline = Timeline(own)
        try:
            self._semaphore = cuda.import_timeline(self.timeline.fd())
        except DressiError:
            self.timeline.close()
            raise
        self.timeline.at_close(lambda: cuda.release_timeline(self._semaphore))

    def memory(self, fd: int, n_bytes: int, size: int) -> _Mapped:
        """Import memory as a float32 tensor of its first n_bytes."""
        handle, address = self._cuda.import_memory(fd, n_bytes, size)
        self._pending = True  # who asks fills it
        owner = _Imported(self._cuda, handle, address)
        return _Mapped(words_at(address, n_bytes // 4, self.device, owner))

    def run(self, batch: Any) -> None:
        """Submit after what the current stream has, where some of that touches what both see, and
        before what it gets next."""
        # By its number alone: a Stream takes a hundredth of a millisecond.
        stream = torch._C._cuda_getCurrentRawStream(self.device.index)
        if self._last is not None and stream != self._last:
            last = torch.cuda.ExternalStream(self._last, self.device)
            torch.cuda.current_stream(self.device).wait_stream(last)  # it may still read results
            self._pending = True
        self._last = stream
        if self.timeline is None:
            self.settle()
            batch.start()
            batch.finish()
        else:
            before, after = self.timeline.advance(self._pending)
            signalled = before if self._pending else None
            self._cuda.between(self._semaphore, signalled, after, stream, batch.start)
        if self._pending:
            self._pending = False
            for room in self._lent:
                room.is_done = not self.held(room)
            self._lent = [room for room in self._lent if not room.is_done]

    def settle(self) -> None:
        """Wait for the current stream."""
        torch.cuda.current_stream(self.device).synchronize()

    def pixels(
        self, pieces: Sequence[torch.Tensor], v: Variable, packed: bool, limits: DeviceLimits
    ) -> torch.Tensor:
        """The pixels of a plane as a view of its words, (layers, H, W, components)."""
        t, (width, height) = v.vtype.plane, v.size
        words = pieces[0].view(torch.int32) if t.is_int else pieces[0]
        if packed:
            return words.view(v.layers, height, width, t.n)
        cells = words.view(layout(v.size, v.layers, limits).layers, -1, t.channels)
        return cells[:, : width * height, : t.n].view(-1, height, width, t.n)

    def write(
        self, places: Sequence[torch.Tensor], v: Variable, value: torch.Tensor | None
    ) -> None:
        """Write a tensor of as many numbers as (layers, H, W, *tail), or zeros, to ``pixels`` of
        each plane."""
        self._pending = True
        for k, place in enumerate(places):
            if value is None:
                place.zero_()
                continue
            plane = value[..., k] if v.vtype.is_matrix else value
            same = plane.shape == place.shape[place.ndim - plane.ndim :]
            place.copy_(plane if same else plane.reshape(place.shape))

    # -- where numbers lie already

    def place_of(self, value: torch.Tensor, n: int) -> Place | None:
        """Where the n numbers of a tensor lie that a copy of the card can read: a result, or what
        was written for another leaf. A result that may have been written to is waited for."""
        address = value.data_ptr()
        place = self._rooms.get(address)
        if place is None:
            seen, place = self._written.get(address, (None, None))
            if place is None or seen is None or place.n != n or not seen.holds(value):
                return None
            return None if place.transfer.closed else place
        if not _fills(value, place) or place.n != n:
            return None
        self._pending = self._pending or not _untouched(value)
        return place

    def wrote(self, value: torch.Tensor | None, place: Place) -> None:
        """Note where a tensor was written to, so that other leaves need not have it written."""
        known, address = self._written, None
        if known.get(place.holds, (None, None))[1] is place:
            del known[place.holds]
        if value is not None and counts_writes(value) and _lasts(value):
            address = value.data_ptr()
            known[address] = Seen(value), place
            if len(known) > KEPT_WRITTEN:
                known.popitem(last=False)
        place.holds = address

    def seen(self, t: torch.Tensor) -> Seen | _SeenResult | None:
        """What tells whether a tensor holds what it held; None where nothing does."""
        if not counts_writes(t):
            return None
        place = self._rooms.get(t.data_ptr())
        if place is None:
            return Seen(t) if _lasts(t) else None
        return _SeenResult(t.data_ptr(), place) if _fills(t, place) and _untouched(t) else None

    # -- results

    def add(self, room: Room) -> None:
        """Note a new room, whose values and places are known."""
        for a, place in zip(room.values, room.places, strict=True):
            if place is not None:
                self._rooms[a.data_ptr()] = place
        self._rooms = {a: p for a, p in self._rooms.items() if not p.transfer.closed}
        for address, (_, place) in list(self._written.items()):
            if place.transfer.closed:
                del self._written[address]  # and with it, what keeps the tensor
        storage = room.transfer.words[0].untyped_storage()
        count = storage._cdata
        room.hold = count, torch._C._storage_Use_Count(count), storage

    def forget(self, room: Room) -> None:
        """Hold nothing of a room whose Transfer is closed."""
        room.values, room.hold = (), None
        self._lent = [r for r in self._lent if r is not room]

    def held(self, room: Room) -> bool:
        """Whether a tensor that was lent, or a view of it, is still there."""
        count, alone, _ = room.hold
        return bool(torch._C._storage_Use_Count(count) > alone)

    def take(self, room: Room) -> None:
        """Let the next submit write to a room that nobody holds."""
        self._pending = self._pending or not room.is_done

    def lend(self, room: Room) -> list[Any]:
        """Return new tensors of the values of a room that got other numbers; None for those that
        it has none of. Each counts what is written to it from 0 on."""
        room.is_done = False
        self._lent.append(room)
        for place in room.places:
            if place is not None:
                place.n_writes += 1
        return [None if a is None else a.data for a in room.values]

    def stack(self, planes: Sequence[torch.Tensor]) -> torch.Tensor:
        """A new tensor of the columns of matrices."""
        return torch.stack(list(planes), -1)

    def copy(self, a: torch.Tensor) -> torch.Tensor:
        """A new tensor, contiguous."""
        return a.clone(memory_format=torch.contiguous_format)

    def from_buffer(self, words: torch.Tensor, v: Variable) -> torch.Tensor:
        """(layers, H, W, *tail) from the sums of a scatter's buffer: a view."""
        shape = (v.layers, v.size[1], v.size[0], *v.vtype.tail)
        a = words[: torch.Size(shape).numel()].view(shape)
        return a.transpose(-1, -2) if v.vtype.is_matrix else a


def fits(variables: Sequence[Variable], limits: DeviceLimits) -> bool:
    """Whether all of them lie in one column and one buffer, as ``TorchShare`` needs."""
    for v in variables:
        lay = layout(v.size, v.layers, limits)
        if lay.columns > 1:
            return False
    return True


def counts_writes(t: torch.Tensor) -> bool:
    """Whether ``Seen`` can tell: NumPy may write to memory of the host, and nothing counts that."""
    return t.device.type != "cpu"


class Seen:
    """Tells whether a tensor holds what it held, by what torch counts: without looking at numbers,
    and so without waiting for the card. What is written through ``.data`` is not seen."""

    def __init__(self, t: torch.Tensor) -> None:
        self._tensor = own = t.detach()  # keeps the memory, so that no other tensor is there
        self._version = -1 if t.is_inference() else t._version  # that of inference has none
        self._kind = own.data_ptr(), own.shape, own.stride(), own.dtype, own.device

    def holds(self, t: torch.Tensor) -> bool:
        """Whether it is that tensor, or a view of all of it, unchanged."""
        return (
            self._version >= 0
            and not t.is_inference()
            and t._version == self._version
            and (t.data_ptr(), t.shape, t.stride(), t.dtype, t.device) == self._kind
        )


class _SeenResult:
    """The same of a result: by the count of what Dressi wrote there. It keeps no memory."""

    def __init__(self, address: int, place: Place) -> None:
        self._address, self._place, self._n_writes = address, place, place.n_writes

    def holds(self, t: torch.Tensor) -> bool:
        """Whether it is that result, unchanged."""
        return (
            t.data_ptr() == self._address
            and self._place.n_writes == self._n_writes
            and _fills(t, self._place)
            and _untouched(t)
        )


def _fills(t: torch.Tensor, place: Place) -> bool:
    """Whether a tensor that begins where a place does is what lies there."""
    whole = t.dtype is torch.float32 and t.is_contiguous() and t.numel() == place.n
    return whole and not place.transfer.closed


def _untouched(t: torch.Tensor) -> bool:
    """Whether a result has not been written to since it was made."""
    return counts_writes(t) and not t.is_inference() and t._version == 0


def _lasts(t: torch.Tensor) -> bool:
    """Whether a tensor may be held until the next call: its owner keeps it, or it is small."""
    return t.is_leaf or t.nbytes <= COMPARED_BYTES
