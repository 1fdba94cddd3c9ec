"""Checks of a Plan against limits and against itself. In: Plan, limits. Out: nothing, or
PackingError."""

from __future__ import annotations

from dressi.errors import PackingError
from dressi.packing.limits import DeviceLimits
from dressi.packing.plan import BYTES_PER_PIXEL, CULL_MODES, Plan, StagePlan, SubstagePlan


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
    # Image -> position of the first stage that writes it; -1: it outlives the plan.
    written = {i.index: -1 for i in plan.images if i.key is not None}
    renewed: set[int] = set()
    filled = {b.index for b in plan.buffers if not b.fill}
    for position, stage in enumerate(plan.stages):
        _need(bool(stage.substages), f"{stage.name} is empty")
        _need(
            stage.kind == "graphics" or len(stage.substages) == 1,
            f"{stage.name}: a dispatch stands alone",
        )
        attached: set[int] = set()
        here: set[int] = set()
        for s in stage.substages:
            where = f"{stage.name}, {s.name}"
            kinds: dict[str, int] = {}
            for b in s.bindings:
                kinds[b.kind] = kinds.get(b.kind, 0) + 1
                if b.kind == "input":
                    attached.add(b.index)
                    image = plan.images[b.index]
                    _need(b.index in written, f"{where}: {image.name} is read before it is written")
                    _need(
                        (image.width, image.height) == (stage.width, stage.height),
                        f"{where}: attachment {image.name} has another size than the framebuffer",
                    )
                elif b.kind in ("pixel", "texture", "sampler"):
                    image = plan.images[b.index]
                    _need(
                        written.get(b.index, position) < position,
                        f"{where}: {image.name} is fetched before an earlier stage wrote it",
                    )
            limit = {
                "input": limits.input_attachments,
                "texture": limits.sampled_images,
                "sampler": limits.samplers,
                "buffer": limits.storage_buffers,
                "storage": limits.storage_images,
            }
            # One kind of descriptor for both.
            kinds["texture"] = kinds.get("texture", 0) + kinds.pop("pixel", 0)
            for kind, n in kinds.items():
                _need(
                    n <= limit.get(kind, n),
                    f"{where}: {n} {kind} bindings, {limits.name} allows {limit.get(kind)}",
                )
            _need(
                len(s.outputs) <= limits.color_outputs,
                f"{where}: {len(s.outputs)} colour outputs, {limits.name} allows "
                f"{limits.color_outputs}",
            )
            _need(len(s.clears) == len(s.outputs), f"{where}: clears and outputs differ in number")
            _check_draws(s, stage, where)
            for index in s.outputs:
                image = plan.images[index]
                again = index in here or (image.key is not None and index in renewed)
                _need(not again, f"{where}: {image.name} is written twice")
                _need(
                    (image.width, image.height) == (stage.width, stage.height),
                    f"{where}: output {image.name} has another size than the framebuffer",
                )
                written.setdefault(index, position)
                here.add(index)
                renewed.add(index)
                attached.add(index)
            filled |= {b.index for b in s.bindings if b.kind == "buffer"}
            for b in s.bindings:
                if b.kind == "storage":
                    image = plan.images[b.index]
                    again = b.index in here or (image.key is not None and b.index in renewed)
                    _need(not again, f"{where}: {image.name} is written twice")
                    written.setdefault(b.index, position)
                    here.add(b.index)
                    renewed.add(b.index)
        fetched = {
            b.index for s in stage.substages for b in s.bindings if b.kind in ("texture", "sampler")
        }
        both = attached & fetched
        _need(
            not both,
            f"{stage.name}: {[plan.images[i].name for i in both]} both attached and fetched",
        )
        _need(
            len(attached) + sum(s.depth for s in stage.substages) <= limits.stage_attachments,
            f"{stage.name}: {len(attached)} attachments, {limits.stage_attachments} allowed",
        )
    for source, target in plan.updates:
        a, b2 = plan.images[source], plan.images[target]
        _need(source in written, f"update of {b2.name} from {a.name}, which nothing writes")
        _need(
            (a.format, a.width, a.height) == (b2.format, b2.width, b2.height),
            f"update of {b2.name} from {a.name}: format or size differ",
        )


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
