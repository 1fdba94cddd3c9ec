"""What the substages of a Plan read and write. In: a Plan. Out: positions in its lists."""

from __future__ import annotations

from collections.abc import Iterator

from dressi.packing.plan import Binding, Plan, SubstagePlan

FETCHED = ("texture", "load", "sampler")
"""Kinds of bindings through which a shader reads any pixel of an image."""


def bound(substage: SubstagePlan, *kinds: str) -> Iterator[int]:
    """Yield images (or buffers) bound as one of the kinds, each once, in order of bindings."""
    yield from dict.fromkeys(b.index for b in substage.bindings if b.kind in kinds)


def buffers_written(plan: Plan, substage: SubstagePlan) -> set[int]:
    """Return the buffers that a substage may write: those that the plan fills and that the shaders
    of the substage do not declare ``readonly``."""
    return {
        b.index
        for b in substage.bindings
        if b.kind == "buffer" and plan.buffers[b.index].fill and not _readonly(substage, b)
    }


def _readonly(substage: SubstagePlan, b: Binding) -> bool:
    declaration = f"binding = {b.binding}) readonly buffer"
    texts = (substage.vertex, substage.outside, substage.fragment, substage.compute)
    return any(declaration in text for text in texts)
