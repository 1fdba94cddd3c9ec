"""Memory traffic of a Plan. In: a Plan, one of its substages or stages. Out: ``Traffic`` in bytes.

What is counted is what the shaders ask for; a cache, or the on-chip memory of a tiled GPU, may
serve part of it. A fetched image counts once however many taps a shader makes, so ``textures_read``
is a lower bound for shaders that visit all of it. Depth attachments and uniforms are not counted.
Paper, 3.3.3: packing is about bytes moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dressi.packing.bindings import FETCHED, bound, buffers_written
from dressi.packing.plan import Plan, StagePlan, SubstagePlan


@dataclass(frozen=True)
class Traffic:
    """Bytes read and written by a part of a Plan."""

    attachments_read: int = 0
    """As input attachments, or by the pixel in a dispatch: every pixel once."""
    textures_read: int = 0
    """As textures (each bound image once: a lower bound), and by copies."""
    buffers: int = 0
    """Read from storage buffers, each bound one once; adding to a buffer reads it, too."""
    written: int = 0
    """Colour outputs, storage images, storage buffers, copies, and fills of buffers."""

    @property
    def read(self) -> int:
        """All that is read."""
        return self.attachments_read + self.textures_read + self.buffers

    @property
    def total(self) -> int:
        """Read and written."""
        return self.read + self.written

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.attachments_read + other.attachments_read,
            self.textures_read + other.textures_read,
            self.buffers + other.buffers,
            self.written + other.written,
        )


def substage_traffic(plan: Plan, substage: SubstagePlan) -> Traffic:
    """Traffic of one subpass or dispatch."""
    words = sum(plan.buffers[i].n_words for i in bound(substage, "buffer"))
    words_written = sum(plan.buffers[i].n_words for i in buffers_written(plan, substage))
    return Traffic(
        _bytes(plan, bound(substage, "input", "pixel")),
        _bytes(plan, bound(substage, *FETCHED)),
        4 * words,
        _bytes(plan, iter(substage.written)) + 4 * words_written,
    )


def stage_traffic(plan: Plan, stage: StagePlan) -> Traffic:
    """Sum over the substages: what one writes and the next reads counts twice, although it may
    never leave the chip."""
    return sum((substage_traffic(plan, s) for s in stage.substages), Traffic())


def update_traffic(plan: Plan) -> Traffic:
    """Copies after the last stage, read and written."""
    n = _bytes(plan, (source for source, _ in plan.updates))
    return Traffic(textures_read=n, written=n)


def plan_traffic(plan: Plan) -> Traffic:
    """A whole run: fills of buffers, stages, copies."""
    fills = Traffic(written=sum(4 * b.n_words for b in plan.buffers if b.fill))
    stages = sum((stage_traffic(plan, s) for s in plan.stages), Traffic())
    return fills + stages + update_traffic(plan)


def _bytes(plan: Plan, images: Iterator[int]) -> int:
    return sum(plan.images[i].n_bytes for i in images)
