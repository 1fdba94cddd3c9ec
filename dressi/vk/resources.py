"""The images, buffers and uniform block of a plan: new ones, and those of the device's store.

In: a plan, a device. Out: ``Resources``; DeviceError where the device cannot have them, or where
they are gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dressi.errors import DeviceError
from dressi.packing.limits import DeviceLimits
from dressi.packing.plan import Plan
from dressi.vk.context import Owned
from dressi.vk.image import Image, create_images
from dressi.vk.memory import Buffer, create_buffer, create_host_buffer
from dressi.vk.owner import Owner
from dressi.vk.store import ImageStore, fits


@dataclass(frozen=True)
class Resources:
    """What bindings point at."""

    plan: Plan
    images: Sequence[Image]
    buffers: Sequence[Buffer]
    uniforms: Buffer | None


def create_resources(device: Owner, owned: Owned, plan: Plan) -> Resources:
    """Return what the bindings of a plan point at; persistent images and buffers are made where
    they are missing. Raises DeviceError for one that is there in another size or format."""
    ctx, store, memory = device.context, device.store, device.memory
    _check_persistent(plan, store)
    store.ensure([i for i in plan.images if i.key is not None])
    own = [i for i in plan.images if i.key is None]
    new = iter(create_images(ctx, memory, owned, own))
    images = [next(new) if i.key is None else store.get(i.key) for i in plan.images]
    buffers = [
        create_buffer(ctx, memory, owned, 4 * max(b.n_words, 1), f"buffer '{b.name}'")
        if b.key is None
        else store.buffer(b.key, 4 * max(b.n_words, 1), b.name)
        for b in plan.buffers
    ]
    uniforms = None
    if plan.uniform_slots:
        size, what = 16 * plan.uniform_slots, f"uniforms of plan '{plan.name}'"
        uniforms = create_host_buffer(ctx, memory, owned, size, "uniform", what)
        ctx.api.ffi.memmove(uniforms.pointer, bytes(size), size)
    return Resources(plan, images, buffers, uniforms)


def check_sizes(plan: Plan, limits: DeviceLimits) -> None:
    """Raise DeviceError for buffers and uniforms that no shader of the device can see whole."""
    needs = [(f"buffer '{b.name}'", b.n_words, "storage_words") for b in plan.buffers]
    needs.append((f"uniform block of plan '{plan.name}'", plan.uniform_slots, "uniform_slots"))
    for what, needed, limit in needs:
        if needed > getattr(limits, limit):
            raise DeviceError(
                f"{what} has {needed} {limit.split('_')[1]}; {limits.name} allows "
                f"{getattr(limits, limit)} ({limit})"
            )


def _check_persistent(plan: Plan, store: ImageStore) -> None:
    """Raise DeviceError where a persistent image of the plan is there in another size or format."""
    for image in plan.images:
        key = image.key
        if key is not None and store.has(key) and not fits(have := store.get(key), image):
            raise DeviceError(
                f"persistent image {key} is {have.format} {have.width}x{have.height}; "
                f"plan '{plan.name}' wants {image.format} {image.width}x{image.height} "
                f"('{image.name}')\n  hint: upload or ensure it in the new size first"
            )


def check_alive(plan: Plan, images: Sequence[Image], store: ImageStore) -> None:
    """Raise DeviceError where what the plan was compiled for is gone. images: those of the plan."""
    gone = [
        f"{planned.key} ('{planned.name}')"
        for planned, image in zip(plan.images, images, strict=True)
        if not image.alive
    ]
    gone += [
        f"{b.key} ('{b.name}')"
        for b in plan.buffers
        if b.key is not None and not store.has_buffer(b.key)
    ]
    if gone:
        raise DeviceError(
            f"plan '{plan.name}' was compiled for persistent images that were dropped or "
            f"replaced since: {', '.join(gone)}\n  hint: compile the plan again"
        )
