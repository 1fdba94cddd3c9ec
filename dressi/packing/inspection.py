"""Print and check a Program after each pass.

In: a Program, of which some fields are filled. Out: lines of the log; PackingError at the first
broken rule.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from dressi.ad.graph import Variable
from dressi.errors import PackingError
from dressi.packing.growing import why_not_stage
from dressi.packing.obstacles import Obstacle
from dressi.packing.program import Program
from dressi.packing.show import plan_text
from dressi.packing.substage import Substage
from dressi.packing.units import domain_text
from dressi.packing.use import why_not
from dressi.packing.verify import check_plan


def log_pass(p: Program, name: str, after: str) -> None:
    """Write a Program to the log. name, after: of the pass that it comes from."""
    message = "%s: after the pass %s: %s\n%s"
    logging.getLogger("dressi").debug(message, p.name, name, after, _text(p))


def check_program(p: Program) -> None:
    """Raise PackingError where a Program, as far as it has come, breaks a rule."""
    if p.plan is not None and p.plan.stages:
        check_plan(p.plan, p.task.limits)
    elif p.stages:
        _check_stages(p)
    elif p.substages:
        _check_substages(p)
    elif p.units:
        _check_units(p)
    else:
        _check_choices(p)


def _text(p: Program) -> str:
    """Return the field of a Program that the latest pass changed."""
    if p.plan is not None:
        return plan_text(p.plan)
    if p.stages:
        return _stages_text(p)
    if p.substages:
        return "\n".join(map(_substage_text, p.substages))
    return _units_text(p) if p.units else _choices_text(p)


def _choices_text(p: Program) -> str:
    """Uniforms by name, and the number of inline Variables."""
    return f"uniforms: {_labels(p.task.uniforms)}\ninline: {len(p.task.inline)} Variables"


def _units_text(p: Program) -> str:
    """One line per unit: its Functions, what it reads and writes."""
    return "\n".join(
        f"{u.index} {', '.join(f.op.name for f in u.functions)} over {domain_text(u.domain)} <- "
        f"{', '.join(f'{read} {v.label()}' for v, read in u.reads)} -> {_labels(u.outputs)}"
        for u in p.units
    )


def _stages_text(p: Program) -> str:
    """One line per stage, one per substage in it."""
    lines: list[str] = []
    for k, stage in enumerate(p.stages):
        lines.append(f"stage {k} {'compute' if stage.is_dispatch else 'graphics'}")
        lines += [f"  {_substage_text(s)}" for s in stage.substages]
    return "\n".join(lines)


def _substage_text(s: Substage) -> str:
    reads = (f"{s.access(v, accesses)} {v.label()}" for v, accesses in s.reads.values())
    where = f"{s.name} ({s.n_functions} functions) over {domain_text(s.domain)}"
    kind = "dispatch" if s.is_dispatch else s.kind
    return f"{kind} {where} <- {', '.join(reads)} -> {_labels(s.outputs)}"


def _labels(variables: Iterable[Variable]) -> str:
    return ", ".join(v.label() for v in variables)


def _check_choices(p: Program) -> None:
    """The uniform block has room for all uniforms, and what is inline is computed."""
    n = sum(v.vtype.n_planes * v.layers for v in p.task.uniforms)
    allowed = p.task.limits.uniform_slots
    _need(n <= allowed, f"{n} uniform slots, {p.task.limits.name} allows {allowed}")
    known = {v.uid for v in p.task.uniforms}
    _need(known.isdisjoint(p.task.inline), "a uniform is inline")


def _check_units(p: Program) -> None:
    """Every unit stands at its index, behind all that it reads; each Function is in one unit."""
    functions: set[int] = set()
    written = set(p.cut)
    for k, u in enumerate(p.units):
        _need(u.index == k, f"{u.name} stands at {k}, says {u.index}")
        _need(functions.isdisjoint(f.uid for f in u.functions), f"{u.name} stands in two units")
        functions |= {f.uid for f in u.functions}
        _check_reads(u.inputs, written, u.name)
        written |= {v.uid for v in u.outputs}
    _check_wanted(p, written)


def _check_substages(p: Program) -> None:
    """Every substage stands behind all that it reads and is one shader of the device; what is
    wanted is written."""
    written = set(p.cut)
    for s in p.substages:
        _check_reads(s.inputs, written, repr(s))
        _check_obstacle(why_not(s, p.task.limits), s)
        written |= {v.uid for v in s.outputs}
    _check_wanted(p, written)


def _check_stages(p: Program) -> None:
    """Every substage stands in one stage, behind all that it needs, and every stage keeps the rules
    of a render pass."""
    positions = [k for stage in p.stages for k in stage.positions]
    _need(sorted(positions) == list(range(len(p.substages))), "stages lost or repeat a substage")
    before: set[int] = set()
    for stage in p.stages:
        for i, (k, s) in enumerate(zip(stage.positions, stage.substages, strict=True)):
            _need(before.issuperset(p.index.producers[k]), f"{s} runs before what it needs")
            before.add(k)
            following = stage.substages[i + 1 :]
            _check_obstacle(why_not_stage(s, following, p.task.limits), s)


def _check_reads(inputs: Iterable[Variable], written: set[int], where: str) -> None:
    for v in inputs:
        _need(v.creator is None or v.uid in written, f"{where} reads {v.label()} too early")


def _check_wanted(p: Program, written: set[int]) -> None:
    for v in p.wanted:
        here = v.creator is None or v.uid in written or v.uid in p.task.inline
        _need(here, f"{v.label()} is lost")


def _check_obstacle(obstacle: Obstacle | None, s: Substage) -> None:
    _need(obstacle is None, f"{s}: {obstacle}")


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise PackingError("broken program: " + message)
