"""The public device: persistent images in and out, plans to executables.

In: a selector. Out: ``Device``.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dressi import config
from dressi.errors import DeviceError
from dressi.packing.layout import Cells
from dressi.packing.limits import DeviceLimits
from dressi.packing.plan import BYTES_PER_PIXEL, ImagePlan, Plan
from dressi.packing.profile import DeviceProfile
from dressi.vk import cache
from dressi.vk.api import Arena, CData
from dressi.vk.context import Context, Owned
from dressi.vk.executor import Executable
from dressi.vk.external import Importer, Timeline
from dressi.vk.image import Image, read_all, write_all
from dressi.vk.instance import Instance, choose, fitting
from dressi.vk.memory import Buffer, Memory, Staging
from dressi.vk.owner import ImageCopies
from dressi.vk.profile import profile_of
from dressi.vk.query import DeviceInfo
from dressi.vk.shader_copy import ShaderCopies
from dressi.vk.store import DepthPool, ImageStore
from dressi.vk.transfer import Batch, Recorded, Transfer

_PIPELINE_CACHE_LIMIT = 64 << 20
"""Bytes; a pipeline cache that outgrew this is not written any more."""


def list_devices() -> list[DeviceInfo]:
    """All Vulkan devices, in the loader's order; empty when there is no driver.

    Raises DeviceError, with what to install, when there is no loader.
    """
    instance = Instance(validate=False)
    try:
        return [info for _, info in instance.devices()]
    finally:
        instance.close()


def equal_devices(selector: str | int | None = None) -> list[DeviceInfo]:
    """The device that a selector means, and all others that it may mean and that are of the same
    type (no CPU driver beside GPUs), by index. None: ``DRESSI_DEVICE``, else every device.

    Raises DeviceError as ``open_device`` does.
    """
    instance = Instance(validate=False)
    try:
        if selector is None:
            selector = config.device_selector()
        found = [info for _, info in fitting(instance.devices(), selector)]
    finally:
        instance.close()
    return sorted((i for i in found if i.type == found[0].type), key=lambda i: i.index)


def open_device(
    selector: str | int | None = None,
    validate: bool | None = None,
    memory_limit: int | None = None,
) -> Device:
    """Opens a device.

    ``selector``: index, part of a name in any case, ``name#k`` (the k-th of those, from 0) or UUID,
    as ``dressi devices`` lists them; None: ``DRESSI_DEVICE``, else the best (discrete, integrated,
    virtual GPU, then CPU). ``validate``: validation layers on; None:
    ``DRESSI_VALIDATE``. ``memory_limit``: bytes that may be taken from the driver; None: all there
    are. Raises DeviceError that lists the devices there are, or says what to
    install.
    """
    if selector is None:
        selector = config.device_selector()
    if validate is None:
        validate = config.validation()
    instance = Instance(validate)
    try:
        physical, info = choose(instance.devices(), selector)
        return Device(Context(instance, physical, info), memory_limit)
    except BaseException:
        instance.close()
        raise


class Device:
    """An open device. Made by ``open_device``; used by one thread at a time; a context manager.

    Every method raises DeviceError when the device is closed or in a forked child, and
    DeviceLostError after the driver lost it.
    """

    def __init__(self, context: Context, memory_limit: int | None = None) -> None:
        self.context = context
        self._profile: list[DeviceProfile | None] = []  # what was found, once it was asked for
        try:
            self.memory = Memory(context, memory_limit)
            self.staging = Staging(context, self.memory)
            self.store = ImageStore(context, self.memory)
            self.depths = DepthPool(context, self.memory)
            self.shader_copies: ImageCopies = ShaderCopies(context)
            self.pipeline_cache, self._cache_file, self._cache_size = _load_cache(context)
        except BaseException:
            context.close()
            raise
        # A device that is forgotten is closed when collected, or at exit, before cffi goes away.
        self._finalizer = weakref.finalize(self, context.close)

    @property
    def info(self) -> DeviceInfo:
        """Name, driver and type."""
        return self.context.info

    @property
    def limits(self) -> DeviceLimits:
        """What the driver allows, for the packer."""
        return self.context.limits

    @property
    def waited_s(self) -> float:
        """Seconds that calls have waited for the device so far."""
        return self.context.waited_s

    def profile(self) -> DeviceProfile | None:
        """How fast the device is, both ways: ``dressi.vk.profile.profile_of``, asked once."""
        if not self._profile:
            self._profile.append(profile_of(self))
        return self._profile[0]

    def upload(self, key: int, fmt: str, width: int, height: int, data: Any) -> None:
        """Writes the persistent image of a key, making it where it is missing.

        ``fmt``: a key of BYTES_PER_PIXEL; ``width``, ``height``: pixels; ``data``: bytes-like,
        C-contiguous, tightly packed, row 0 first. An image of another format or size is replaced;
        executables that were compiled for the old one then refuse to run.
        """
        self.upload_all([(key, fmt, width, height, data)])

    def upload_all(self, images: Sequence[tuple[int, str, int, int, Any]]) -> None:
        """The same for several images (key, fmt, width, height, data); small ones in one submit."""
        self.context.enter()
        plans = [_image_plan(*image[:4]) for image in images]
        for plan, (key, fmt, width, height, data) in zip(plans, images, strict=True):
            size = memoryview(data).nbytes
            if size != plan.n_bytes:
                raise DeviceError(
                    f"{size} bytes for persistent image {key}, which is {fmt} {width}x{height} = "
                    f"{plan.n_bytes} bytes"
                )
        self.store.ensure(plans)
        targets = [self.store.get(image[0]) for image in images]
        write_all(self.context, self.staging, targets, [image[4] for image in images])
        self.context.check_validation()

    def ensure(self, key: int, fmt: str, width: int, height: int) -> None:
        """Makes the persistent image of a key, zero-filled, where it is missing or differs."""
        self.context.enter()
        self.store.ensure([_image_plan(key, fmt, width, height)])
        self.context.check_validation()

    def download(self, key: int) -> bytes:
        """Pixels of a persistent image, tightly packed, row 0 first; DeviceError when it is
        missing."""
        return self.download_all([key])[0]

    def download_all(self, keys: Sequence[int]) -> list[bytes]:
        """The same of several images; small ones in one submit."""
        self.context.enter()
        images = [self.store.get(key) for key in keys]
        pixels = read_all(self.context, self.staging, images)
        self.context.check_validation()
        return pixels

    def image(self, key: int) -> Image:
        """A persistent image, for a ``Transfer``; DeviceError when it is missing."""
        return self.store.get(key)

    def has(self, key: int) -> bool:
        """Whether a persistent image of this key exists."""
        self.context.enter()
        return self.store.has(key)

    def drop(self, key: int) -> None:
        """Destroys a persistent image or buffer; does nothing when there is none."""
        self.context.enter()
        self.store.drop(key)

    def check_room(self, plan: Plan) -> None:
        """Raises OutOfMemoryError, before anything is made, when a plan with all that it reads does
        not fit into the memory limit."""
        new = sum(plan.own_bytes)
        for image in plan.images:
            if image.key is not None and not self.store.has(image.key):
                new += image.n_bytes
        for buffer in plan.buffers:
            if buffer.key is not None and not self.store.has_buffer(buffer.key):
                new += 4 * max(buffer.n_words, 1)
        new += self.depths.missing_bytes(
            [(s.width, s.height, sum(b.depth for b in s.substages)) for s in plan.stages]
        )
        what = f"plan '{plan.name}'"
        if plan.images:
            most = max(plan.images, key=lambda i: i.n_bytes)
            what += f" (its largest image: '{most.name}' {most.format} {most.width}x{most.height})"
        self.memory.check_room(new, what)

    def compile(self, plan: Plan, source: object | None = None) -> Executable:
        """Makes everything a plan needs and records its command buffer.

        ``source``: what the plan is part of; of no use here. Raises ShaderError,
        OutOfMemoryError, DeviceError.
        """
        self.context.enter()
        try:
            executable = Executable(self, plan)
        except DeviceError as error:
            # What the layers have to say explains the error, and must not surface in a later call.
            if self.context.instance.messages:
                self.context.instance.messages.append(f"after which: {error}")
                self.context.check_validation()
            raise
        self._save_cache()
        try:
            self.context.check_validation()
        except BaseException:
            executable.close()
            raise
        return executable

    def transfer(
        self,
        use: str,
        images: Sequence[Image | Buffer],
        what: str,
        importer: Importer | None = None,
        cells: Sequence[Cells | None] = (),
        source: tuple[Transfer, int] | None = None,
    ) -> Transfer:
        """A ``Transfer`` of images and buffers of this device; ``use``: ``"upload"`` or
        ``"readback"``. importer: another library that sees its memory. cells: of its images.
        source: whose memory an upload reads, and which part."""
        return Transfer(self, use, images, what, importer, cells, source)

    def batch(self, parts: Sequence[Recorded], timeline: Timeline | None = None) -> Batch:
        """A ``Batch`` of executables and transfers of this device, in order. timeline: orders it
        among the work of another library."""
        return Batch(self, parts, timeline)

    def enter(self) -> None:
        """Waits for a submit that was left running; raises DeviceError, DeviceLostError as every
        method does."""
        self.context.enter()

    def look(self) -> None:
        """Raises the same, and waits for nothing."""
        self.context.look()

    def check_validation(self) -> None:
        """Raises ValidationError listing what the validation layers said since the last call."""
        self.context.check_validation()

    def live_handles(self) -> dict[str, int]:
        """Number of Vulkan objects that exist now, by type; all zero after ``close``."""
        return {**self.context.counts, "VkInstance": self.context.instance.live()}

    def stored_bytes(self) -> tuple[int, int, int]:
        """Bytes of the persistent images, the persistent buffers, and the depth images."""
        return (*self.store.n_bytes(), self.depths.n_bytes())

    def held_bytes(self) -> int:
        """Bytes of memory that this device has taken from the driver."""
        return self.memory.held()

    def used_bytes(self) -> int:
        """Bytes of that which hold something."""
        return self.memory.held() - self.memory.unused()

    def taken_bytes(self) -> int:
        """Bytes that count against the memory limit: all but staging buffers."""
        return self.memory.taken()

    @property
    def memory_limit(self) -> int | None:
        """Bytes that may be taken from the driver; None: all there are."""
        return self.memory.budget

    def close(self) -> None:
        """Closes all executables and destroys everything. Idempotent; does nothing in a forked
        child."""
        self._finalizer()
        self.context.check_validation()

    def __reduce__(self) -> str:
        raise DeviceError("a Device cannot be copied or pickled\n  hint: open it once more")

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _save_cache(self) -> None:
        """Writes the pipeline cache to disk when it grew."""
        ctx = self.context
        size = ctx.api.ffi.new("size_t *")
        get, null = ctx.api.lib.vkGetPipelineCacheData, ctx.api.null
        result = get(ctx.device, self.pipeline_cache, size, null)
        ctx.check(result, "vkGetPipelineCacheData", "the pipeline cache")
        if size[0] == self._cache_size or size[0] > _PIPELINE_CACHE_LIMIT:
            return
        data = ctx.api.ffi.new("char[]", size[0])
        result = get(ctx.device, self.pipeline_cache, size, data)
        ctx.check(result, "vkGetPipelineCacheData", "the pipeline cache")
        cache.write(self._cache_file, bytes(ctx.api.ffi.buffer(data, size[0])))
        self._cache_size = size[0]


def _image_plan(key: int, fmt: str, width: int, height: int) -> ImagePlan:
    if fmt not in BYTES_PER_PIXEL:
        raise DeviceError(f"format {fmt!r}; known: {', '.join(BYTES_PER_PIXEL)}")
    return ImagePlan(-1, f"persistent {key}", fmt, width, height, key)


def _load_cache(ctx: Context) -> tuple[CData, Path, int]:
    """The VkPipelineCache, filled from disk where that file is of this very device and driver."""
    p = ctx.properties
    uuid = bytes(p.pipelineCacheUUID)
    name = f"{p.vendorID:08x}-{p.deviceID:08x}-{p.driverVersion:08x}-{uuid.hex()}.bin"
    file = config.cache_dir() / "pipelines" / name
    data = cache.read(file) or b""
    # VkPipelineCacheHeaderVersionOne: size, version, vendor, device, uuid.
    header = b"".join(n.to_bytes(4, "little") for n in (32, 1, p.vendorID, p.deviceID)) + uuid
    if data[:32] != header:
        data = b""
    arena = Arena(ctx.api)
    info = arena.struct(
        "VkPipelineCacheCreateInfo",
        initialDataSize=len(data),
        pInitialData=arena.text(data) if data else ctx.api.null,
    )
    handle = Owned(ctx).create("PipelineCache", info, "pipeline cache")
    return handle, file, len(data)
