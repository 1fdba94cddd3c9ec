"""Copies between images or buffers and memory of the host that are recorded once, and submits of
several recorded things.

In: images and buffers of one device, executables. Out: ``Transfer``, whose host memory NumPy sees
as it is, and ``Batch``, one submit that the host need not wait for at once. The ways of
``dressi.vk.image`` take any images, but record anew and copy bytes in each call: a twentieth of a
millisecond and more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Protocol

import numpy as np

from dressi.errors import DeviceError
from dressi.packing.layout import Cells
from dressi.vk.api import Arena, CData
from dressi.vk.context import Owned
from dressi.vk.external import Importer, Timeline, create_shared_buffer, open_shared
from dressi.vk.image import OFFSET, Image, barrier, copy_region, host_barrier
from dressi.vk.memory import Buffer, create_host_buffer, invalidate
from dressi.vk.owner import Owner

MOST_BYTES = 256 << 20
"""Of one host buffer; what is larger lies in several (drivers allow 1 GB at least)."""

MOST_SHARED_BYTES = 1 << 31
"""Of one buffer that another library sees: all images lie in one."""

UPLOAD, READBACK = "upload", "readback"


@dataclass(frozen=True)
class Piece:
    """Rows of an image, and their place: which host buffer, and bytes from its beginning."""

    image: int
    y: int
    rows: int
    buffer: int
    offset: int


def pieces(
    images: Sequence[tuple[int, int]], most: int = MOST_BYTES
) -> tuple[list[Piece], list[int]]:
    """Where images lie in host buffers of at most ``most`` bytes, one behind the other, and the
    bytes of each buffer. images: (bytes of a row, rows). Depends on nothing else, so memory of two
    devices can be added word by word."""
    found: list[Piece] = []
    sizes = [0]
    for k, (row_bytes, height) in enumerate(images):
        y = 0
        while y < height:
            start = -(-sizes[-1] // OFFSET) * OFFSET
            rows = min(height - y, (most - start) // row_bytes)
            if rows <= 0:
                sizes.append(0)
                start, rows = 0, min(height - y, max(most // row_bytes, 1))
            found.append(Piece(k, y, rows, len(sizes) - 1, start))
            sizes[-1] = start + rows * row_bytes
            y += rows
    return found, sizes


class Recorded(Protocol):
    """What a Batch submits."""

    busy_until: int
    """What the timeline of the batch that runs it comes to then."""

    @property
    def commands(self) -> CData:
        """A recorded command buffer that begins with a barrier after everything before it."""
        ...

    @property
    def what(self) -> str:
        """Its name in errors."""
        ...

    def check(self) -> None:
        """Raises DeviceError when it is closed, or what it was recorded for is gone."""
        ...


class Transfer:
    """A copy of the same images to or from the same memory of the host, again and again; or of
    memory of the card that another library sees.

    device: where the images are. use: ``"upload"`` (to the images) or ``"readback"`` (from them).
    images: which; also buffers, each whole. importer: the other library, if any. cells: then of
    each image what counts of it; a shader copies that alone, where it can (``packed``). source: a
    Transfer with an importer and the number of one of its images, whose memory is that of this
    one. The memory counts as staging memory: ``memory_limit`` leaves it out. Raises
    OutOfMemoryError where there is not enough of it, DeviceError for no images and another use.
    """

    words: tuple[Any, ...]
    """The host memory as float32 arrays, each (n,): all pixels one behind the other, as ``pieces``
    says; with an importer arrays of its own. Those of an upload are to be written only: reading
    them may be a hundred times slower. Not to be touched while a submit is under way, nor after
    ``close``."""

    def __init__(
        self,
        device: Owner,
        use: str,
        images: Sequence[Image | Buffer],
        what: str,
        importer: Importer | None = None,
        cells: Sequence[Cells | None] = (),
        source: tuple[Transfer, int] | None = None,
    ) -> None:
        if use not in (UPLOAD, READBACK):
            raise DeviceError(f"a transfer is for {UPLOAD!r} or {READBACK!r}, not for {use!r}")
        if not images:
            raise DeviceError(f"{what}: a transfer of no images")
        self._device = device
        self._ctx = device.context
        self._ctx.enter()
        self._use = use
        self.what = what
        self._closed, self.busy_until = False, 0
        self._images: tuple[Image | Buffer, ...] = ()
        self._shapes = [_shape(i) for i in images]
        self._cells = [c if self._packs(i, c) else None for i, c in zip_longest(images, cells)]
        self._owned, self._borrowed, self._n_users = Owned(self._ctx), source, 0
        try:
            if source is None:
                self._make_memory(images, importer)
            else:
                self._borrow(*source)
            self._commands = self._ctx.command_buffer(self._owned, what)
            self.record(images)
        except BaseException:
            self._owned.destroy()
            raise

    def _packs(self, image: Image | Buffer, cells: Cells | None) -> bool:
        """Whether a shader copies what counts of an image."""
        if cells is None or isinstance(image, Buffer):
            return False
        return self._device.shader_copies.takes(image, cells)

    def _make_memory(self, images: Sequence[Image | Buffer], importer: Importer | None) -> None:
        most = MOST_BYTES if importer is None else MOST_SHARED_BYTES
        rows = [_rows(i, c) for i, c in zip(images, self._cells, strict=True)]
        self._pieces, sizes = pieces(rows, most)
        self._row_bytes = [n for n, _ in rows]
        ctx, memory, owned, what = self._ctx, self._device.memory, self._owned, self.what
        if importer is None:
            self._buffers = [
                create_host_buffer(ctx, memory, owned, size, self._use, what) for size in sizes
            ]
            self.words = tuple(_words(ctx.api.ffi, b) for b in self._buffers)
        else:
            self._buffers = [create_shared_buffer(ctx, memory, owned, size, what) for size in sizes]
            opened = [open_shared(ctx, owned, importer, b, what) for b in self._buffers]
            self.words = tuple(m.words for m in opened)
        for words in self.words:
            words[:] = 0.0  # also what lies between images: it is added like the rest

    def _borrow(self, source: Transfer, nth: int) -> None:
        """Take the memory of one of another one's images, which then outlives it."""
        (piece,) = [p for p in source._pieces if p.image == nth]
        self._pieces, self._buffers = [replace(piece, image=0, buffer=0)], []
        self._buffers.append(source._buffers[piece.buffer])
        self.words = ()
        source._n_users += 1
        self._owned.defer(source._give_back)

    def _give_back(self) -> None:
        self._n_users -= 1
        if self.closed and not self._n_users and not self._ctx.closed:
            self._owned.destroy()

    def packed(self, nth: int) -> bool:
        """Whether the memory of one of the images has what counts of it, and nothing else."""
        return self._cells[nth] is not None

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    def views(self, nth: int) -> list[Any]:
        """Return the words of one of the images, as views of ``words``: one array but where it lies
        in several pieces, row 0 first."""
        n = self._row_bytes[nth]
        return [
            self.words[p.buffer][p.offset // 4 : (p.offset + p.rows * n) // 4]
            for p in self._pieces
            if p.image == nth
        ]

    def record(self, images: Sequence[Image | Buffer]) -> None:
        """Copy other images of the same formats and sizes from now on. Raises DeviceError for
        others. Not while a submit is under way."""
        shapes = [_shape(i) for i in images]
        if shapes != self._shapes:
            raise DeviceError(f"{self.what} is made for {self._shapes}, not for {shapes}")
        ctx, lib, commands = self._ctx, self._ctx.api.lib, self._commands
        ctx.enter()
        self._images = ()  # what was recorded is gone, also when the new is not finished
        self._device.store.generation += 1
        begin = Arena(ctx.api).struct("VkCommandBufferBeginInfo")
        ctx.check(lib.vkBeginCommandBuffer(commands, begin), "vkBeginCommandBuffer", self.what)
        barrier(ctx, commands)
        general, arena = ctx.api.c.VK_IMAGE_LAYOUT_GENERAL, Arena(ctx.api)
        for p in self._pieces:
            image, buffer = images[p.image], self._buffers[p.buffer].handle
            if isinstance(image, Buffer):
                ends = (image.handle, buffer), (0, p.offset)
                if self._use == UPLOAD:
                    ends = (buffer, image.handle), (p.offset, 0)
                (source, target), (start, to) = ends
                part = arena.struct("VkBufferCopy", srcOffset=start, dstOffset=to, size=image.size)
                lib.vkCmdCopyBuffer(commands, source, target, 1, part)
                continue
            cells = self._cells[p.image]
            if cells is not None:
                self._device.shader_copies.record(
                    commands, self._owned, image, cells, self._buffers[p.buffer], p.offset,
                    self._use == UPLOAD,
                )  # fmt: skip
                continue
            region = copy_region(ctx, arena, image, p.y, p.rows, p.offset)
            if self._use == UPLOAD:
                lib.vkCmdCopyBufferToImage(commands, buffer, image.handle, general, 1, region)
            else:
                lib.vkCmdCopyImageToBuffer(commands, image.handle, general, buffer, 1, region)
        if self._use == READBACK:
            host_barrier(ctx, commands)
        ctx.check(lib.vkEndCommandBuffer(commands), "vkEndCommandBuffer", self.what)
        self._images = tuple(images)

    @property
    def commands(self) -> CData:
        """What was recorded, for a ``Batch``."""
        return self._commands

    def check(self) -> None:
        """Raises DeviceError when this is closed, or when an image is gone."""
        if self._closed or self._ctx.closed:
            raise DeviceError(f"{self.what} is closed")
        for image in self._images:
            if isinstance(image, Image) and not image.alive:
                self._raise_gone()
        if not self._images:
            self._raise_gone()

    def _raise_gone(self) -> None:
        gone = [i.name for i in self._images if isinstance(i, Image) and not i.alive]
        raise DeviceError(f"{self.what} was recorded for images that are gone: {gone}")

    def fetch(self) -> None:
        """Makes what the device has written visible in ``words``; to be called after the submit is
        finished."""
        for buffer in self._buffers:
            invalidate(self._ctx, buffer, self.what)

    def close(self) -> None:
        """Frees the memory, or lets those do so that borrow it. Idempotent."""
        if not self._closed:
            self._closed = True
            self._device.store.generation += 1
            self.words = ()
            if not self._ctx.closed and not self._n_users:
                self._owned.destroy()


class Batch:
    """Recorded things that one submit runs, in order: executables and transfers of one device.

    Each begins with a barrier, so it sees what the ones before it wrote. timeline: orders them
    among the work of another library.
    """

    def __init__(
        self, device: Owner, parts: Sequence[Recorded], timeline: Timeline | None = None
    ) -> None:
        if not parts:
            raise DeviceError("a batch of nothing")
        self._ctx, self._store = device.context, device.store
        self._checked_at = -1  # generation of the store
        self._parts, self._timeline = tuple(parts), timeline
        self._what = ", ".join(p.what for p in parts)
        commands = [p.commands for p in parts]
        more: dict[str, Any] = {} if timeline is None else timeline.waiting
        self._info = self._ctx.submit_info(commands, **more)
        self._unordered = (
            self._info
            if timeline is None
            else self._ctx.submit_info(commands, **timeline.signalling)
        )

    def start(self) -> None:
        """Submits, without waiting: ``finish`` does, or what is done with the device next; with a
        timeline, while earlier batches of it may run that have no part in common with this one.
        Raises DeviceError as the parts do, and when the device is closed."""
        timeline = self._timeline
        self._ctx.look()
        generation = self._store.generation
        if self._checked_at != generation:
            for part in self._parts:
                part.check()
            self._checked_at = generation
        if timeline is None:
            self._ctx.start(self._info[0], self._what)
            return
        busy = max([part.busy_until for part in self._parts])
        if busy > timeline.reached:
            timeline.wait(busy)
        for part in self._parts:
            part.busy_until = timeline.last
        info = self._info if timeline.waits else self._unordered
        self._ctx.start(info[0], self._what, timeline.wait)

    def finish(self) -> None:
        """Waits until the device is done. Raises DeviceLostError, ValidationError."""
        self._ctx.finish(self._what)
        self._ctx.check_validation()

    def run(self) -> None:
        """Both."""
        self.start()
        self.finish()


def _shape(image: Image | Buffer) -> tuple[str, int, int]:
    if isinstance(image, Buffer):
        return "words", image.size // 4, 1
    return image.format, image.width, image.height


def _rows(image: Image | Buffer, cells: Cells | None) -> tuple[int, int]:
    """Bytes of a row, number of rows."""
    if isinstance(image, Buffer):
        return image.size, 1
    return (image.row_bytes, image.height) if cells is None else (cells.n_bytes, 1)


def _words(ffi: Any, buffer: Buffer) -> np.ndarray:
    return np.frombuffer(ffi.buffer(buffer.pointer, buffer.size), np.float32)
