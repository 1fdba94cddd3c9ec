"""A compiled plan: everything made, the command buffer recorded once, run many times.

In: a Plan and a device. Out: ``Executable``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from dressi.errors import DeviceError
from dressi.packing.plan import Plan
from dressi.vk.api import CData
from dressi.vk.context import Owned
from dressi.vk.descriptors import Layouts, create_descriptors
from dressi.vk.image import Image, read_all, read_buffer
from dressi.vk.memory import Buffer
from dressi.vk.owner import Owner
from dressi.vk.pipeline import Bound, Job, create_modules, create_pipelines, first_draws
from dressi.vk.record import Objects, record
from dressi.vk.renderpass import RenderPass, RenderPasses
from dressi.vk.resources import check_alive, check_sizes, create_resources
from dressi.vk.shader import compile_glsl
from dressi.vk.timed import TimedRun

CHUNK = 32
"""Runs of one submit. Two submits are in flight, so the device never waits, and Ctrl-C (or the
watchdog of a display driver) comes between them."""


class Executable:
    """A plan that is ready to run. Made by ``Device.compile``; used by one thread at a time.

    Close it when it is no longer needed; closing its device does as well.

    Every method raises DeviceError when the executable or its device is closed, or in a forked
    child.
    """

    build_times: dict[str, float]
    """Seconds that compiling took: ``spirv`` (GLSL to SPIR-V), ``pipelines``, ``other``."""

    def __init__(self, device: Owner, plan: Plan) -> None:
        start = time.perf_counter()
        self.plan = plan
        self.what = f"plan '{plan.name}'"
        """Its name in errors."""
        self.build_times = {"spirv": 0.0, "pipelines": 0.0, "other": 0.0}
        self._device = device
        self._ctx = device.context
        self._owned = Owned(self._ctx)
        self.commands: CData = None
        """What is recorded, for a ``Batch``."""
        self.busy_until = 0
        self._closed = False
        self._submits: dict[int, tuple[Any, ...]] = {}
        self._timed: TimedRun | None = None
        self._uniforms: Buffer | None = None
        try:
            self._build()
        except BaseException:
            self._owned.destroy()
            raise
        known = self.build_times["spirv"] + self.build_times["pipelines"]
        self.build_times["other"] = time.perf_counter() - start - known
        self._generation = device.store.generation

    # Building

    def _build(self) -> None:
        ctx, owned, plan = self._ctx, self._owned, self.plan
        substages = [s for stage in plan.stages for s in stage.substages]
        kinds = ("vert", "vertex"), ("frag", "fragment"), ("frag", "outside"), ("comp", "compute")
        texts = [(kind, getattr(s, name)) for s in substages for kind, name in kinds]
        sources = [t for t in texts if t[1]]
        check_sizes(plan, ctx.limits)
        self._device.check_room(plan)
        start = time.perf_counter()
        codes = compile_glsl(sources)
        self.build_times["spirv"] = time.perf_counter() - start
        resources = create_resources(self._device, owned, plan)
        self._images, self._buffers = resources.images, resources.buffers
        self._uniforms = resources.uniforms
        render_passes = RenderPasses(ctx, owned, self._device.depths)
        passes: list[RenderPass | None] = []
        jobs: list[Job] = []
        for stage in plan.stages:
            graphics = stage.kind == "graphics"
            render_pass = render_passes.create(stage, self._images) if graphics else None
            passes.append(render_pass)
            handle = None if render_pass is None else render_pass.handle
            jobs += [Job(s, handle, i) for i, s in enumerate(stage.substages)]
        layouts = Layouts(ctx, owned)
        modules = create_modules(ctx, owned, sources, codes)
        start = time.perf_counter()
        cache = self._device.pipeline_cache
        jobs += first_draws(jobs)
        pipelines = create_pipelines(ctx, owned, layouts, jobs, modules, cache)
        self.build_times["pipelines"] = time.perf_counter() - start
        sets = create_descriptors(ctx, owned, layouts, substages, resources)
        outside = iter(pipelines[len(substages) :])
        bound = iter(
            Bound(p, layouts.get(s.bindings, s.name)[1], d, next(outside) if s.outside else None)
            for p, s, d in zip(pipelines, substages, sets, strict=False)
        )
        by_stage = [[next(bound) for _ in stage.substages] for stage in plan.stages]
        self.commands = ctx.command_buffer(owned, self.what)
        self._objects = Objects(self._images, self._buffers, passes, by_stage)
        record(ctx, self.commands, plan, self._objects)

    # Running

    def check(self, wait: bool = False) -> None:
        """Raise DeviceError when it cannot run, as every method does. wait: until nothing runs."""
        (self._ctx.enter if wait else self._ctx.look)()
        if self._closed:
            raise DeviceError(f"the executable of {self.what} is closed")
        store = self._device.store
        if self._generation != store.generation:
            check_alive(self.plan, self._images, store)
            self._generation = store.generation

    def write_uniforms(self, data: Any) -> None:
        """Replaces the whole uniform block; seen by the next ``run``.

        ``data``: bytes-like, C-contiguous, ``plan.uniform_slots * 16`` bytes.
        """
        self.check(wait=True)
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
        self.check(wait=True)
        if n < 1:
            raise DeviceError(f"run({n}) of plan '{self.plan.name}': n must be at least 1")
        if n == 1:
            self._ctx.submit(self._submit(1), self.what)
        else:
            submits = [self._submit(CHUNK)] * (n // CHUNK)
            if n % CHUNK:
                submits.append(self._submit(n % CHUNK))
            self._ctx.submit_all(submits, self.what)
        self._ctx.check_validation()

    def _submit(self, n: int) -> CData:
        if n not in self._submits:
            self._submits[n] = self._ctx.submit_info([self.commands] * n)
        return self._submits[n][0]

    def images(self, indices: Sequence[int]) -> list[Image]:
        """Return images of ``plan.images``, for a ``Transfer``."""
        return [self._images[i] for i in indices]

    def buffers(self, indices: Sequence[int]) -> list[Buffer]:
        """Return buffers of ``plan.buffers``, for a ``Transfer``."""
        return [self._buffers[i] for i in indices]

    def download(self, image_index: int) -> bytes:
        """Return the pixels of an image of ``plan.images``, tightly packed, row 0 first."""
        self.check(wait=True)
        (pixels,) = read_all(self._ctx, self._device.staging, self.images([image_index]))
        self._ctx.check_validation()
        return pixels

    def download_buffer(self, buffer_index: int) -> bytes:
        """Return the words of a buffer of ``plan.buffers``."""
        self.check(wait=True)
        size = 4 * self.plan.buffers[buffer_index].n_words
        what = f"download of buffer {buffer_index} of {self.what}"
        staging, buffer = self._device.staging, self._buffers[buffer_index]
        words = read_buffer(self._ctx, staging, buffer, size, what)
        self._ctx.check_validation()
        return words

    def run_timed(self) -> list[tuple[str, float]]:
        """Run the plan once, one stage after the other; return the milliseconds of each by name,
        and of the copies as ``updates``. Raises DeviceError where the queue has no timestamps."""
        self.check(wait=True)
        if self._timed is None:
            self._timed = TimedRun(self._ctx, self._owned, self.plan, self._objects)
        return self._timed.run()

    def close(self) -> None:
        """Destroys everything that the plan owns; persistent images stay. Idempotent."""
        if self._closed or self._ctx.closed:
            self._closed = True
            return
        self._ctx.enter()
        self._closed = True
        self._device.store.generation += 1
        self._owned.destroy()
        self._ctx.check_validation()

    def __enter__(self) -> Executable:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
