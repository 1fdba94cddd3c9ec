"""The Plan as text. In: a Plan. Out: a string for reports, dumps and golden tests."""

from __future__ import annotations

from dressi.packing.plan import Plan, SubstagePlan
from dressi.previews import text_html


def plan_text(plan: Plan) -> str:
    """Totals, one line a stage, one a substage with its inputs and outputs, then copies."""
    lines = [
        f"plan {plan.name}: {plan.n_functions} functions, {plan.n_substages} substages, "
        f"{len(plan.stages)} stages, {len(plan.images)} images, {len(plan.buffers)} buffers, "
        f"{plan.n_bytes / 1e6:.1f} MB"
    ]
    for stage in plan.stages:
        lines.append(f"{stage.name} {stage.kind} {stage.width}x{stage.height}")
        for s in stage.substages:
            lines.append(
                f"  {s.name} ({s.n_functions} functions){_drawn(s)}{_inputs(plan, s)} -> "
                f"{_outputs(plan, s)}"
            )
    for source, target in plan.updates:
        lines.append(f"copy {plan.images[source].name} -> {plan.images[target].name}")
    return "\n".join(lines)


def _drawn(s: SubstagePlan) -> str:
    """What is not drawn, and the numbers that are pushed."""
    sparse = f" sparse by {s.mask}" if s.mask else ""
    sparse += "" if s.depth or not s.mask else " in tiles"
    culled = f" cull {s.cull}" if s.cull != "none" else ""
    rectangles = [d.scissor for d in s.draws if d.scissor is not None]
    scissors = f" scissor {', '.join(map(str, rectangles))}" if rectangles else ""
    pushed = f" pushed {', '.join(map(str, s.pushed))}" if s.pushed else ""
    return sparse + culled + scissors + pushed


def _inputs(plan: Plan, s: SubstagePlan) -> str:
    parts = []
    for b in s.bindings:
        if b.kind == "uniform":
            parts.append("uniforms")
        elif b.kind == "storage":
            continue  # an output
        elif b.kind == "buffer":
            parts.append(f"buffer {plan.buffers[b.index].name}")
        else:
            parts.append(f"{b.kind} {plan.images[b.index].name}")
    return " <- " + ", ".join(parts) if parts else ""


def _outputs(plan: Plan, s: SubstagePlan) -> str:
    images = [plan.images[i] for i in s.written]
    # Kept: an image that outlives the plan, of a leaf (updated in place) or a cached value.
    kept = {i.index for i in images if i.key is not None}
    words = (f"{i.name} {i.format}{' kept' if i.index in kept else ''}" for i in images)
    return ", ".join(words) or "buffers"


def shaders_text(plan: Plan) -> str:
    """All shaders of a Plan, each under a heading."""
    parts = []
    for stage in plan.stages:
        for k, s in enumerate(stage.substages):
            for what, text in (
                ("vertex", s.vertex),
                ("fragment outside", s.outside),
                ("fragment", s.fragment),
                ("compute", s.compute),
            ):
                if text:
                    parts.append(f"// ===== {stage.name}, substage {k}, {what}: {s.name}\n{text}")
    return "\n".join(parts)


def _html(plan: Plan) -> str:
    return text_html(plan_text(plan))


Plan._repr_html_ = _html  # type: ignore[attr-defined]  # what notebooks ask a Plan for
