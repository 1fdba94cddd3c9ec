"""Where Variables lie: slots of the uniform block, images, buffers.

In: substages in order of execution. Out: ``Places``; a Plan with images, buffers and copies, but
without stages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from dressi.ad.graph import Variable
from dressi.errors import GraphError
from dressi.packing.exact import BIAS, n_words
from dressi.packing.layout import layout
from dressi.packing.limits import DeviceLimits
from dressi.packing.plan import BufferPlan, ImagePlan, Plan
from dressi.packing.shader_text import Places
from dressi.packing.substage import Substage
from dressi.packing.task import Context, image_key
from dressi.packing.units import in_buffer, is_exact


def choose_uniforms(
    leaves: Iterable[Variable], resident: Collection[int], limits: DeviceLimits
) -> list[Variable]:
    """1x1 leaves that no step writes, as many as the uniform block holds (the rest become images).
    resident: uids of leaves that steps write or that live in images."""
    chosen, used = [], 0
    for v in leaves:
        n = v.vtype.n_planes * v.layers
        stays = v.uid not in resident and not v.requires_grad and v.update is None
        if v.size == (1, 1) and stays and used + n <= limits.uniform_slots:
            chosen.append(v)
            used += n
    return chosen


def outside_values(
    substages: Sequence[Substage], updates: Iterable[tuple[Variable, Variable]]
) -> dict[int, Variable]:
    """By uid what substages read and do not write, and what is copied without having been written:
    it lies in persistent images."""
    written = {v.uid for s in substages for v in s.outputs}
    outside = {v.uid: v for s in substages for v in s.inputs if v.uid not in written}
    for leaf, new in updates:
        outside.setdefault(leaf.uid, leaf)
        if new.uid not in written:
            outside.setdefault(new.uid, new)
    return outside


def place(
    name: str,
    substages: Sequence[Substage],
    outside: Mapping[int, Variable],
    uniforms: Sequence[Variable],
    keyed: Collection[int],
    updates: Iterable[tuple[Variable, Variable]],
    context: Context,
) -> tuple[Places, Plan]:
    """Places of all values, and a Plan with their images, buffers and copies. keyed: uids of what
    the substages write into persistent images. Raises GraphError for an image or buffer that is too
    large for the device."""
    placed = _Placed(context)
    for v in uniforms:
        placed.add_uniform(v)
    for v in outside.values():
        if in_buffer(v):
            placed.add_buffer(v, persistent=True, fill=False)
        elif v.uid not in context.uniforms:
            placed.add_images(v, persistent=True)
    for s in substages:
        for v in s.outputs:
            add = placed.add_buffer if in_buffer(v) else placed.add_images
            add(v, v.uid in keyed)
    places = placed.places
    copies = [
        pair
        for leaf, new in updates
        for pair in zip(places.images[new.uid], places.images[leaf.uid], strict=True)
    ]
    images, buffers = tuple(placed.images), tuple(placed.buffers)
    return places, Plan(name, images, buffers, (), tuple(copies), places.n_slots)


class _Placed:
    """Places that are filled one Variable after the other."""

    def __init__(self, context: Context) -> None:
        self.context, self.limits = context, context.limits
        self.places = Places()
        self.images: list[ImagePlan] = []
        self.buffers: list[BufferPlan] = []

    def add_uniform(self, v: Variable) -> None:
        self.places.slots[v.uid] = self.places.n_slots
        self.places.n_slots += v.vtype.n_planes * v.layers

    def add_images(self, v: Variable, persistent: bool = False) -> None:
        try:
            width, height = layout(v.size, v.layers, self.limits).physical
        except GraphError as error:
            raise GraphError(f"{v.label()} made at {v.line}: {error.reason}") from None
        first = len(self.images)
        for plane in range(v.vtype.n_planes):
            suffix = f"[{plane}]" if v.vtype.is_matrix else ""
            self.images.append(
                ImagePlan(
                    first + plane,
                    (v.name or f"%{v.uid}") + suffix,
                    v.vtype.format,
                    width,
                    height,
                    image_key(v, plane) if persistent else None,
                )
            )
        self.places.images[v.uid] = tuple(range(first, len(self.images)))

    def add_buffer(self, v: Variable, persistent: bool = False, fill: bool = True) -> None:
        n = v.size[0] * v.size[1] * v.layers * v.vtype.n_words
        empty = 0
        if is_exact(v, self.context.accumulation):
            n, empty = n_words(n), BIAS
        if n > self.limits.storage_words:
            raise GraphError(
                f"{v.label()} made at {v.line}: a buffer of {n} words, {self.limits.name} allows "
                f"{self.limits.storage_words}"
            )
        index, key = len(self.buffers), image_key(v) if persistent else None
        self.buffers.append(BufferPlan(index, v.name or f"%{v.uid}", n, key, fill, empty))
        self.places.buffers[v.uid] = index
