"""A compiled plan: everything made, the command buffer recorded once, run many times.

In: a Plan and a device. Out: ``Executable``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from dressi.errors import DeviceError
from dressi.packing.plan import Plan
from dressi.vk.api import Arena, CData
from dressi.vk.context import Owned
from dressi.vk.descriptors import Layouts, Resources, create_descriptors
from dressi.vk.image import Image, create_images, host_barrier, read_all
from dressi.vk.image import barrier as full_barrier
from dressi.vk.memory import Buffer, create_buffer, create_host_buffer
from dressi.vk.owner import Owner
from dressi.vk.pipeline import Bound, Job, create_modules, create_pipelines
from dressi.vk.record import Objects, n_timestamps, record
from dressi.vk.renderpass import RenderPass, RenderPasses
from dressi.vk.shader import compile_glsl
from dressi.vk.store import fits

CHUNK = 32
"""Runs of one submit. Two submits are in flight, so the device never waits, and Ctrl-C (or the
watchdog of a display driver) comes between them."""


def own_bytes(plan: Plan) -> tuple[int, int]:
    """Bytes of the images and of the buffers that go away with an executable of the plan."""
    return (
        sum(i.n_bytes for i in plan.images if i.key is None),
        sum(4 * max(b.n_words, 1) for b in plan.buffers if b.key is None),
    )


class Executable:
    """A plan that is ready to run. Made by ``Device.compile``; used by one thread at a time.

    Close it when it is no longer needed: what it made lives until then, or until its device is
    closed.

    Every method raises DeviceError when the executable or its device is closed, or in a forked
    child.
    """

    build_times: dict[str, float]
    """Seconds that compiling took: ``spirv`` (GLSL to SPIR-V), ``pipelines``, ``other``."""

    def __init__(self, device: Owner, plan: Plan, timestamps: bool = False) -> None:
        start = time.perf_counter()
        self.plan = plan
        self._what = f"plan '{plan.name}'"
        self.build_times = {"spirv": 0.0, "pipelines": 0.0, "other": 0.0}
        self._device = device
        self._ctx = device.context
        self._owned = Owned(self._ctx)
        self._closed = False
        self._submits: dict[int, tuple[Any, ...]] = {}
        self._queries: CData = None
        self._uniforms: Buffer | None = None
        try:
            self._build(timestamps)
        except BaseException:
            self._owned.destroy()
            raise
        known = self.build_times["spirv"] + self.build_times["pipelines"]
        self.build_times["other"] = time.perf_counter() - start - known
        self._generation = device.store.generation

    # Building

    def _build(self, timestamps: bool) -> None:
        ctx, owned, plan = self._ctx, self._owned, self.plan
        substages = [s for stage in plan.stages for s in stage.substages]
        sources = []
        for substage in substages:
            texts = (
                ("vert", substage.vertex),
                ("frag", substage.fragment),
                ("comp", substage.compute),
            )
            sources += [t for t in texts if t[1]]
        self._check_sizes()
        self._device.check_room(plan)
        start = time.perf_counter()
        codes = compile_glsl(sources)
        self.build_times["spirv"] = time.perf_counter() - start
        self._images = self._make_images()
        memory = self._device.memory
        self._buffers = [
            create_buffer(ctx, memory, owned, 4 * max(b.n_words, 1), f"buffer '{b.name}'")
            if b.key is None
            else self._device.store.buffer(b.key, 4 * max(b.n_words, 1), b.name)
            for b in plan.buffers
        ]
        if plan.uniform_slots:
            size, what = 16 * plan.uniform_slots, f"uniforms of plan '{plan.name}'"
            self._uniforms = create_host_buffer(ctx, memory, owned, size, "uniform", what)
            ctx.api.ffi.memmove(self._uniforms.pointer, bytes(size), size)
        render_passes = RenderPasses(ctx, owned, self._device.depths)
        passes: list[RenderPass | None] = []
        jobs: list[Job] = []
        for stage in plan.stages:
            made = None
            if stage.kind == "graphics":
                made = render_passes.create(stage, self._images)
            passes.append(made)
            handle = None if made is None else made.handle
            jobs += [Job(s, handle, i) for i, s in enumerate(stage.substages)]
        layouts = Layouts(ctx, owned)
        modules = create_modules(ctx, owned, sources, codes)
        start = time.perf_counter()
        cache = self._device.pipeline_cache
        pipelines = create_pipelines(ctx, owned, layouts, jobs, modules, cache)
        self.build_times["pipelines"] = time.perf_counter() - start
        resources = Resources(plan, self._images, self._buffers, self._uniforms)
        sets = create_descriptors(ctx, owned, layouts, substages, resources)
        bound = iter(
            Bound(pipeline, layouts.get(s.bindings, s.name)[1], descriptors)
            for pipeline, s, descriptors in zip(pipelines, substages, sets, strict=True)
        )
        by_stage = [[next(bound) for _ in stage.substages] for stage in plan.stages]
        if timestamps:
            self._queries = self._make_queries()
        self._commands = ctx.command_buffer(owned, f"plan '{plan.name}'")
        objects = Objects(self._images, self._buffers, passes, by_stage, self._queries)
        record(ctx, self._commands, plan, objects)

    def _check_sizes(self) -> None:
        """Raises DeviceError for buffers and uniforms that no shader of the device can see
        whole."""
        limits, plan = self._ctx.limits, self.plan
        needs = [(f"buffer '{b.name}'", b.n_words, "storage_words") for b in plan.buffers]
        needs.append((f"uniform block of plan '{plan.name}'", plan.uniform_slots, "uniform_slots"))
        for what, needed, limit in needs:
            if needed > getattr(limits, limit):
                raise DeviceError(
                    f"{what} has {needed} {limit.split('_')[1]}; {limits.name} allows "
                    f"{getattr(limits, limit)} ({limit})"
                )

    def _make_images(self) -> list[Image]:
        """The plan's own images, new, and the persistent ones, made where missing."""
        store, plan = self._device.store, self.plan
        keyed = [i for i in plan.images if i.key is not None]
        for image in keyed:
            assert image.key is not None
            if store.has(image.key) and not fits(have := store.get(image.key), image):
                raise DeviceError(
                    f"persistent image {image.key} is {have.format} {have.width}x{have.height}; "
                    f"plan '{plan.name}' wants {image.format} {image.width}x{image.height} "
                    f"('{image.name}')\n  hint: upload or ensure it in the new size first"
                )
        store.ensure(keyed)
        own = [i for i in plan.images if i.key is None]
        made = iter(create_images(self._ctx, self._device.memory, self._owned, own))
        return [next(made) if i.key is None else store.get(i.key) for i in plan.images]

    def _make_queries(self) -> CData:
        ctx = self._ctx
        if not ctx.timestamp_bits:
            raise DeviceError(f"{ctx.info.name} has no timestamps on its queue")
        info = Arena(ctx.api).struct(
            "VkQueryPoolCreateInfo",
            queryType=ctx.api.c.VK_QUERY_TYPE_TIMESTAMP,
            queryCount=n_timestamps(self.plan),
        )
        return self._owned.create("QueryPool", info, f"timestamps of plan '{self.plan.name}'")

    # Running

    def _enter(self) -> None:
        self._ctx.enter()
        if self._closed:
            raise DeviceError(f"the executable of plan '{self.plan.name}' is closed")
        if self._generation != self._device.store.generation:
            self._check_images()
            self._generation = self._device.store.generation

    def _check_images(self) -> None:
        gone = [
            f"{plan.key} ('{plan.name}')"
            for plan, image in zip(self.plan.images, self._images, strict=True)
            if not image.alive
        ]
        gone += [
            f"{b.key} ('{b.name}')"
            for b in self.plan.buffers
            if b.key is not None and not self._device.store.has_buffer(b.key)
        ]
        if gone:
            raise DeviceError(
                f"plan '{self.plan.name}' was compiled for persistent images that were dropped or "
                f"replaced since: {', '.join(gone)}\n  hint: compile the plan again"
            )

    def write_uniforms(self, data: Any) -> None:
        """Replaces the whole uniform block; seen by the next ``run``.

        ``data``: bytes-like, C-contiguous, ``plan.uniform_slots * 16`` bytes.
        """
        self._enter()
        flat = memoryview(data).cast("B")
        size = 16 * self.plan.uniform_slots
        if flat.nbytes != size:
            raise DeviceError(
                f"{flat.nbytes} bytes for the uniforms of plan '{self.plan.name}', which has "
                f"{self.plan.uniform_slots} slots = {size} bytes"
            )
        if self._uniforms is not None:
            self._ctx.api.ffi.memmove(self._uniforms.pointer, flat, size)

    def run(self, n: int = 1) -> None:
        """Runs the plan ``n`` times, in order, with no host work in between, and waits until it is
        done. Ctrl-C stops after some of the runs (whole ones)."""
        self._enter()
        if n < 1:
            raise DeviceError(f"run({n}) of plan '{self.plan.name}': n must be at least 1")
        if n == 1:
            self._ctx.submit(self._submit(1), self._what)
        else:
            submits = [self._submit(CHUNK)] * (n // CHUNK)
            if n % CHUNK:
                submits.append(self._submit(n % CHUNK))
            self._ctx.submit_all(submits, self._what)
        self._ctx.check_validation()

    @property
    def commands(self) -> CData:
        """What was recorded, for a ``Batch``."""
        return self._commands

    @property
    def what(self) -> str:
        """Its name in errors."""
        return self._what

    def images(self, indices: Sequence[int]) -> list[Image]:
        """Images of ``plan.images``, for a ``Transfer``."""
        return [self._images[i] for i in indices]

    def check(self) -> None:
        """Raises DeviceError when it cannot run, as every method does."""
        self._enter()

    def _submit(self, n: int) -> CData:
        submit = self._submits.get(n)
        if submit is None:
            submit = self._submits[n] = self._ctx.submit_info([self._commands] * n)
        return submit[0]

    def download(self, image_index: int) -> bytes:
        """Pixels of an image of ``plan.images``, tightly packed, row 0 first."""
        return self.download_all([image_index])[0]

    def download_all(self, image_indices: Sequence[int]) -> list[bytes]:
        """The same of several images; small ones in one submit."""
        self._enter()
        images = [self._images[i] for i in image_indices]
        pixels = read_all(self._ctx, self._device.staging, images)
        self._ctx.check_validation()
        return pixels

    def download_buffer(self, buffer_index: int) -> bytes:
        """The words of a buffer of ``plan.buffers``."""
        self._enter()
        ctx, staging = self._ctx, self._device.staging
        source = self._buffers[buffer_index]
        size, parts = 4 * self.plan.buffers[buffer_index].n_words, []
        for start in range(0, size, staging.CHUNK):
            length = min(staging.CHUNK, size - start)
            target = staging.get("readback", length)
            region = Arena(ctx.api).struct("VkBufferCopy", srcOffset=start, size=length)

            def copy(commands: CData, to: CData = target.handle, region: CData = region) -> None:
                full_barrier(ctx, commands)
                ctx.api.lib.vkCmdCopyBuffer(commands, source.handle, to, 1, region)
                host_barrier(ctx, commands)

            ctx.run_once(copy, f"download of buffer {buffer_index} of plan '{self.plan.name}'")
            staging.invalidate(target)
            parts.append(bytes(ctx.api.ffi.buffer(target.pointer, length)))
        ctx.check_validation()
        return b"".join(parts)

    def stage_times_ms(self) -> list[tuple[str, float]]:
        """Milliseconds of each stage in the last run, by name, and of the copies as ``updates``.

        Raises DeviceError when the plan was not compiled with ``timestamps=True``.
        """
        self._enter()
        if self._queries is None:
            raise DeviceError(f"plan '{self.plan.name}' was compiled without timestamps=True")
        ctx, c = self._ctx, self._ctx.api.c
        n = n_timestamps(self.plan)
        ticks = ctx.api.ffi.new("uint64_t[]", n)
        # No waiting: run() waited already, and before the first run there is nothing to wait for.
        result = ctx.api.lib.vkGetQueryPoolResults(
            ctx.device, self._queries, 0, n, 8 * n, ticks, 8, c.VK_QUERY_RESULT_64_BIT
        )
        if result == c.VK_NOT_READY:
            raise DeviceError(f"plan '{self.plan.name}' has not run yet: there are no times")
        ctx.check(result, "vkGetQueryPoolResults", f"plan '{self.plan.name}'")
        mask = (1 << ctx.timestamp_bits) - 1
        period_ms = ctx.properties.limits.timestampPeriod * 1e-6
        names = [s.name for s in self.plan.stages] + ["updates"]
        return [
            (name, ((ticks[i + 1] - ticks[i]) & mask) * period_ms) for i, name in enumerate(names)
        ]

    def own_bytes(self) -> tuple[int, int]:
        """Bytes of the images and of the buffers that belong to this executable alone."""
        return own_bytes(self.plan)

    def close(self) -> None:
        """Destroys everything that the plan owns; persistent images stay. Idempotent."""
        if self._closed or self._ctx.closed:
            self._closed = True
            return
        self._ctx.enter()
        self._closed = True
        self._owned.destroy()
        self._ctx.check_validation()

    def __enter__(self) -> Executable:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
