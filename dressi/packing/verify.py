"""Checks of a Plan against limits and against itself. In: Plan, limits. Out: nothing, or
PackingError."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from dressi.errors import PackingError
from dressi.packing.bindings import FETCHED
from dressi.packing.layout import MOST_PUSHED
from dressi.packing.limits import DeviceLimits
from dressi.packing.obstacles import (
    BUFFERS,
    IMAGES,
    INPUTS,
    SAMPLED,
    SAMPLERS,
    Obstacle,
    attachment_obstacle,
    limit_obstacle,
    no_use,
)
from dressi.packing.plan import BYTES_PER_PIXEL, CULL_MODES, Plan, StagePlan, SubstagePlan

_PUSHED = re.compile(r"(?<!int )\bpushed\[(\d+)\]")
"""Numbers that a shader reads, not how many it declares."""

_USES = {
    "input": (INPUTS,),
    "pixel": (SAMPLED,),
    "texture": (SAMPLED,),
    "load": (SAMPLED,),
    "sampler": (SAMPLED, SAMPLERS),
    "buffer": (BUFFERS,),
    "storage": (IMAGES,),
}
"""Kind of a binding -> the positions in a ``Use`` that count it."""


def check_plan(plan: Plan, limits: DeviceLimits) -> None:
    """Raise PackingError at the first broken rule: references, sizes, order of writes and reads,
    limits."""
    for k, image in enumerate(plan.images):
        _need(image.index == k, f"image {image.name} stands at {k}, says {image.index}")
        _need(image.format in BYTES_PER_PIXEL, f"image {image.name}: unknown format {image.format}")
        _need(
            0 < image.width <= limits.image_dim and 0 < image.height <= limits.image_dim,
            f"image {image.name} is {image.width}x{image.height}, {limits.name} allows "
            f"{limits.image_dim}",
        )
    run = _Run(plan, limits)
    for position, stage in enumerate(plan.stages):
        run.check_stage(position, stage)
    for source, target in plan.updates:
        a, b = plan.images[source], plan.images[target]
        _need(source in run.written, f"update of {b.name} from {a.name}, which nothing writes")
        _need(
            (a.format, a.width, a.height) == (b.format, b.width, b.height),
            f"update of {b.name} from {a.name}: format or size differ",
        )


@dataclass
class _Run:
    """What has been written when the stages before have run."""

    plan: Plan
    limits: DeviceLimits
    written: dict[int, int] = field(default_factory=dict)
    """Image -> position of the first stage that writes it; -1: it outlives the plan."""
    renewed: set[int] = field(default_factory=set)
    """Images that some stage has written."""

    def __post_init__(self) -> None:
        self.written = {i.index: -1 for i in self.plan.images if i.key is not None}

    def check_stage(self, position: int, stage: StagePlan) -> None:
        """Check a stage, and count what it writes as written."""
        _need(bool(stage.substages), f"{stage.name} is empty")
        _need(
            stage.kind == "graphics" or len(stage.substages) == 1,
            f"{stage.name}: a dispatch stands alone",
        )
        here: set[int] = set()
        for s in stage.substages:
            where = f"{stage.name}, {s.name}"
            self.check_reads(s, position, stage, where)
            _need_none(_obstacle(s, stage, self.limits), where)
            _need(len(s.clears) == len(s.outputs), f"{where}: clears and outputs differ in number")
            _check_draws(s, stage, where)
            _check_pushed(s, where)
            for index in s.outputs:
                self.check_size(index, stage, f"{where}: output")
            for index in (*s.outputs, *(b.index for b in s.bindings if b.kind == "storage")):
                image = self.plan.images[index]
                again = index in here or (image.key is not None and index in self.renewed)
                _need(not again, f"{where}: {image.name} is written twice")
                self.written.setdefault(index, position)
                here.add(index)
                self.renewed.add(index)
        self.check_attachments(stage)

    def check_reads(self, s: SubstagePlan, position: int, stage: StagePlan, where: str) -> None:
        """What a shader reads was written before: what it fetches, by an earlier stage."""
        for b in s.bindings:
            if b.kind == "input":
                name = self.plan.images[b.index].name
                _need(b.index in self.written, f"{where}: {name} is read before it is written")
                self.check_size(b.index, stage, f"{where}: attachment")
            elif b.kind == "pixel" or b.kind in FETCHED:
                name = self.plan.images[b.index].name
                _need(
                    self.written.get(b.index, position) < position,
                    f"{where}: {name} is fetched before an earlier stage wrote it",
                )

    def check_size(self, index: int, stage: StagePlan, what: str) -> None:
        """An attachment has the size of the framebuffer."""
        image = self.plan.images[index]
        _need(
            (image.width, image.height) == (stage.width, stage.height),
            f"{what} {image.name} has another size than the framebuffer",
        )

    def check_attachments(self, stage: StagePlan) -> None:
        """In one render pass an image is attached or fetched, not both."""
        bindings = [b for s in stage.substages for b in s.bindings]
        attached = {b.index for b in bindings if b.kind == "input"}
        attached |= {i for s in stage.substages for i in s.outputs}
        both = attached & {b.index for b in bindings if b.kind in FETCHED}
        names = [self.plan.images[i].name for i in both]
        _need(not both, f"{stage.name}: {names} both attached and fetched")
        n = len(attached) + sum(s.depth for s in stage.substages)
        _need_none(attachment_obstacle(n, self.limits), stage.name)


def _obstacle(s: SubstagePlan, stage: StagePlan, limits: DeviceLimits) -> Obstacle | None:
    """The limit that a shader breaks, if any."""
    use = no_use()
    use[IMAGES] = len(s.outputs)
    for b in s.bindings:
        for k in _USES.get(b.kind, ()):
            use[k] += 1
    n = sum(b.kind in ("load", "storage") for b in s.bindings)
    if n > limits.storage_images:
        return Obstacle("storage_images", n, limits.storage_images, limits.name)
    dispatch = stage.kind == "compute"
    return limit_obstacle(use, limits, s.depth, dispatch, stores=dispatch)


def _check_pushed(s: SubstagePlan, where: str) -> None:
    """Each number that a shader reads is pushed."""
    n = len(s.pushed)
    _need(n <= MOST_PUSHED, f"{where}: {n} numbers pushed, at most {MOST_PUSHED}")
    for text in (s.vertex, s.outside, s.fragment, s.compute):
        for k in _PUSHED.findall(text):
            _need(int(k) < n, f"{where}: reads pushed[{k}], {n} numbers are pushed")


def _check_draws(s: SubstagePlan, stage: StagePlan, where: str) -> None:
    _need(s.cull in CULL_MODES, f"{where}: cull mode {s.cull!r}, known are {CULL_MODES}")
    for draw in s.draws:
        view = (draw.x, draw.y, draw.width, draw.height)
        _need(
            _within(view, (0, 0, stage.width, stage.height)),
            f"{where}: viewport {view} leaves the framebuffer {stage.width}x{stage.height}",
        )
        _need(
            draw.scissor is None or _within(draw.scissor, view),
            f"{where}: scissor {draw.scissor} leaves the viewport {view}",
        )


def _within(inner: tuple[int, int, int, int], outer: tuple[int, int, int, int]) -> bool:
    """Whether a rectangle (x, y, width, height), perhaps an empty one, lies in another."""
    return min(inner[2:]) >= 0 and all(
        outer[k] <= inner[k] and inner[k] + inner[k + 2] <= outer[k] + outer[k + 2] for k in (0, 1)
    )


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise PackingError("broken plan: " + message)


def _need_none(obstacle: Obstacle | None, where: str) -> None:
    _need(obstacle is None, f"{where} {obstacle}")
