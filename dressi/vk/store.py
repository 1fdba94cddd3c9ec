"""What outlives a plan: the persistent images and buffers, by key, and the shared depth images.

In: ImagePlans with keys; sizes. Out: ``Image`` objects and views.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dressi.errors import DeviceError
from dressi.packing.plan import ImagePlan
from dressi.vk.api import CData
from dressi.vk.context import Context, Owned
from dressi.vk.image import Image, create_image_and_view, create_images, to_layout
from dressi.vk.memory import Buffer, Memory, create_buffer
from dressi.vk.query import format_features


class ImageStore:
    """The persistent images and buffers of a device, by key.

    ``generation`` grows whenever one goes away, and whenever something that was recorded is closed,
    so that executables and batches see in O(1) that all of their own are still there.
    """

    def __init__(self, ctx: Context, memory: Memory) -> None:
        self._ctx = ctx
        self._memory = memory
        self._images: dict[int, tuple[Owned, Image]] = {}
        self._buffers: dict[int, tuple[Owned, Buffer]] = {}
        self.generation = 0

    def get(self, key: int) -> Image:
        """The image of a key; raises DeviceError when there is none."""
        if key not in self._images:
            raise DeviceError(f"no persistent image has key {key} on {self._ctx.info.name}")
        return self._images[key][1]

    def has(self, key: int) -> bool:
        """Whether the key has an image."""
        return key in self._images

    def ensure(self, plans: Iterable[ImagePlan]) -> None:
        """Makes the missing images, zero-filled; one of another format or size is replaced."""
        for plan in plans:
            assert plan.key is not None
            if plan.key in self._images:
                have = self._images[plan.key][1]
                if fits(have, plan):
                    continue
                self.drop(plan.key)
            owned = Owned(self._ctx)
            try:
                (image,) = create_images(self._ctx, self._memory, owned, [plan])
            except BaseException:
                owned.destroy()
                raise
            self._images[plan.key] = (owned, image)

    def buffer(self, key: int, n_bytes: int, name: str) -> Buffer:
        """The persistent buffer of a key, made where it is missing or has another size."""
        have = self._buffers.get(key)
        if have is not None and have[1].size == n_bytes:
            return have[1]
        self.drop(key)
        owned = Owned(self._ctx)
        try:
            made = create_buffer(self._ctx, self._memory, owned, n_bytes, f"buffer '{name}'")
        except BaseException:
            owned.destroy()
            raise
        self._buffers[key] = (owned, made)
        return made

    def has_buffer(self, key: int) -> bool:
        """Whether the key has a buffer."""
        return key in self._buffers

    def drop(self, key: int) -> None:
        """Destroys the image and the buffer of a key, if there are any."""
        for kept in (self._images, self._buffers):
            if key in kept:
                self.generation += 1
                kept.pop(key)[0].destroy()

    def n_bytes(self) -> tuple[int, int]:
        """Bytes of the pixels of all images, and of all buffers."""
        images = sum(i.row_bytes * i.height for _, i in self._images.values())
        return images, sum(b.size for _, b in self._buffers.values())


def fits(image: Image, plan: ImagePlan) -> bool:
    """Whether an existing image has the format and size of a plan's."""
    return (image.format, image.width, image.height) == (plan.format, plan.width, plan.height)


class DepthPool:
    """Depth images, shared by all stages and executables of a device (each clears before use)."""

    def __init__(self, ctx: Context, memory: Memory) -> None:
        self._ctx = ctx
        self._memory = memory
        self._entries: dict[tuple[int, int, int], list[Any]] = {}

    def acquire(self, owned: Owned, width: int, height: int, nth: int) -> CData:
        """The view of the ``nth`` depth image of a size; freed with the last owner that has it."""
        key = (width, height, nth)
        if key not in self._entries:
            mine = Owned(self._ctx)
            try:
                view = self._create(mine, width, height, f"depth image {width}x{height} #{nth}")
            except BaseException:
                mine.destroy()
                raise
            self._entries[key] = [0, mine, view]
        entry = self._entries[key]
        entry[0] += 1
        owned.defer(lambda: self._release(key))
        return entry[2]

    def missing_bytes(self, wanted: Iterable[tuple[int, int, int]]) -> int:
        """Bytes of the depth images that would have to be made for stages of (width, height, number
        of depth attachments)."""
        keys = {(w, h, nth) for w, h, n in wanted for nth in range(n)}
        return sum(4 * w * h for w, h, nth in keys if (w, h, nth) not in self._entries)

    def n_bytes(self) -> int:
        """Bytes of all depth images."""
        return sum(4 * width * height for width, height, _ in self._entries)

    def _create(self, owned: Owned, width: int, height: int, what: str) -> CData:
        ctx, c = self._ctx, self._ctx.api.c
        usage, aspect = (
            c.VK_IMAGE_USAGE_DEPTH_STENCIL_ATTACHMENT_BIT,
            c.VK_IMAGE_ASPECT_DEPTH_BIT,
        )
        offered = format_features(ctx.api, ctx.physical, "VK_FORMAT_D32_SFLOAT")
        if not offered & c.VK_FORMAT_FEATURE_DEPTH_STENCIL_ATTACHMENT_BIT:
            raise DeviceError(f"{ctx.info.name} has no 32-bit depth images (VK_FORMAT_D32_SFLOAT)")
        handle, view = create_image_and_view(
            ctx, self._memory, owned, c.VK_FORMAT_D32_SFLOAT, width, height, usage, aspect, what
        )
        layout = c.VK_IMAGE_LAYOUT_DEPTH_STENCIL_ATTACHMENT_OPTIMAL
        ctx.run_once(lambda commands: to_layout(ctx, commands, [handle], layout, aspect), what)
        return view

    def _release(self, key: tuple[int, int, int]) -> None:
        entry = self._entries[key]
        entry[0] -= 1
        if entry[0] == 0:
            self._entries.pop(key)[1].destroy()
