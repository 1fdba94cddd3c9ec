"""Tensors on CUDA and images of Vulkan on the same card, with no copy through the host.

In: an engine, the device of tensors. Out: ``TorchShare``, through which a ``VJP`` moves data:
buffers of the card that both libraries see, and one timeline semaphore by which each waits for the
other on the card, or the host for both. Where memory cannot be shared, the reason is logged once,
and tensors go through the host.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from dressi import config
from dressi.ad.graph import Variable
from dressi.engine import DressiAD
from dressi.engine.runtime import Runtime
from dressi.errors import DressiError
from dressi.packing import DeviceLimits
from dressi.packing.layout import layout
from dressi.torch.cuda import Cuda
from dressi.vk import Device
from dressi.vk.external import Timeline, has_timelines, obstacle

log = logging.getLogger("dressi")

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
    """Memory of the card, for torch.as_tensor."""

    def __init__(self, address: int, n: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (n,),
            "typestr": "<f4",
            "data": (address, False),
            "strides": None,
            "version": 2,
        }


def words_at(address: int, n: int, device: torch.device) -> torch.Tensor:
    """A float32 tensor (n,) of memory of the card."""
    return torch.as_tensor(_Words(address, n), device=device)


class _Mapped:
    """Imported memory as a tensor."""

    def __init__(self, cuda: Cuda, handle: int, address: int, words: torch.Tensor) -> None:
        self.words = words
        self._cuda, self._handle, self._address = cuda, handle, address

    def close(self) -> None:
        """Let it go; views of it are not to be touched any more."""
        self.words = torch.empty(0)
        self._cuda.release_memory(self._handle, self._address)


class TorchShare:
    """``dressi.engine.share.Share`` for tensors on one card. semaphore: whether both libraries wait
    for each other there; else the host waits for both."""

    def __init__(
        self, own: Device, device: torch.device, cuda: Cuda, semaphore: bool = True
    ) -> None:
        self.name = own.info.name
        self.device, self._cuda = device, cuda
        self._last: int | None = None  # the stream of the submit before
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
        words = words_at(address, n_bytes // 4, self.device)
        return _Mapped(self._cuda, handle, address, words)

    def run(self, batch: Any) -> None:
        """Submit between what the current stream has and what it gets next."""
        # By its number alone: a Stream takes a hundredth of a millisecond.
        stream = torch._C._cuda_getCurrentRawStream(self.device.index)
        if self._last is not None and stream != self._last:
            last = torch.cuda.ExternalStream(self._last, self.device)
            torch.cuda.current_stream(self.device).wait_stream(last)  # it may still read results
        self._last = stream
        if self.timeline is None:
            self.settle()
            batch.start()
            batch.finish()
            return
        before, after = self.timeline.advance()
        self._cuda.between(self._semaphore, before, after, stream, batch.start)

    def settle(self) -> None:
        """Wait for the current stream."""
        torch.cuda.current_stream(self.device).synchronize()

    def pixels(
        self, pieces: Sequence[torch.Tensor], v: Variable, limits: DeviceLimits
    ) -> torch.Tensor:
        """The pixels of a plane as a view of its words, (layers, H, W, components)."""
        t, (width, height) = v.vtype.plane, v.size
        words = pieces[0].view(torch.int32) if t.is_int else pieces[0]
        cells = words.view(layout(v.size, v.layers, limits).layers, -1, t.channels)
        return cells[:, : width * height, : t.n].view(-1, height, width, t.n)

    def write(
        self, places: Sequence[torch.Tensor], v: Variable, value: torch.Tensor | None
    ) -> None:
        """Write a tensor (layers, H, W, *tail), also without what is 1 in front, or zeros, to
        ``pixels`` of each plane."""
        for k, place in enumerate(places):
            if value is None:
                place.zero_()
                continue
            plane = value[..., k] if v.vtype.is_matrix else value
            same = plane.shape == place.shape[place.ndim - plane.ndim :]
            place.copy_(plane if same else plane.reshape(place.shape))

    def from_planes(
        self, planes: Sequence[torch.Tensor], v: Variable, limits: DeviceLimits
    ) -> torch.Tensor:
        """(layers, H, W, *tail) as users see it: a view, but of a matrix."""
        parts = [self.pixels([p], v, limits) for p in planes]
        return _seen(torch.stack(parts, -1) if v.vtype.is_matrix else parts[0], v)

    def from_buffer(self, words: torch.Tensor, v: Variable) -> torch.Tensor:
        """The same from the sums of a scatter's buffer: a view."""
        shape = (v.layers, v.size[1], v.size[0], *v.vtype.tail)
        a = words[: torch.Size(shape).numel()].view(shape)
        return _seen(a.transpose(-1, -2) if v.vtype.is_matrix else a, v)

    def shares(self, a: torch.Tensor, words: torch.Tensor) -> bool:
        """Whether a tensor is a view of these words."""
        return a.untyped_storage().data_ptr() == words.untyped_storage().data_ptr()

    def present(self, a: torch.Tensor, v: Variable) -> torch.Tensor:
        """A copy of what these return."""
        return a.clone(memory_format=torch.contiguous_format)


def _seen(a: torch.Tensor, v: Variable) -> torch.Tensor:
    """(layers, H, W, *tail) in the shape that users see."""
    seen = a[:, 0] if v.is_table else a
    return seen if v.layers > 1 else seen[0]


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
        self._tensor = t.detach()  # keeps the memory, so that no other tensor is there
        self._version = -1 if t.is_inference() else t._version  # that of inference has none

    def holds(self, t: torch.Tensor) -> bool:
        """Whether it is that tensor, or a view of all of it, unchanged."""
        own = self._tensor
        return (
            self._version >= 0
            and t.data_ptr() == own.data_ptr()
            and t.shape == own.shape
            and not t.is_inference()
            and t._version == self._version
            and t.stride() == own.stride()
            and t.dtype == own.dtype
            and t.device == own.device
        )
