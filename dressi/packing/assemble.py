"""Stages of a Plan: their shaders, draws and workgroups.

In: stages in order of execution, places. Out: ``StagePlan``, one per stage.
"""

from __future__ import annotations

from collections.abc import Sequence

from dressi.ad.registry import RASTER
from dressi.ad.workgroups import workgroup
from dressi.packing.layout import Layout, layout
from dressi.packing.plan import DrawPlan, StagePlan, SubstagePlan
from dressi.packing.shader_text import Places, Shader
from dressi.packing.shaders import generate
from dressi.packing.stage import Stage
from dressi.packing.substage import Substage
from dressi.packing.task import Context


def plan_stages(stages: Sequence[Stage], places: Places, context: Context) -> tuple[StagePlan, ...]:
    """The stages with their shaders as GLSL."""
    return tuple(_plan_stage(stage, k, places, context) for k, stage in enumerate(stages))


def _plan_stage(stage: Stage, index: int, places: Places, context: Context) -> StagePlan:
    width, height = layout(*stage.substages[0].domain, context.limits).physical
    kind = "compute" if stage.is_dispatch else "graphics"
    members = tuple(_plan_substage(s, places, context) for s in stage.substages)
    return StagePlan(f"stage {index}", kind, width, height, members)


def _plan_substage(s: Substage, places: Places, context: Context) -> SubstagePlan:
    shader = generate(s, places, context)
    lay = layout(*s.domain, context.limits)
    return _dispatch(s, shader, lay) if s.is_dispatch else _subpass(s, shader, lay)


def _dispatch(s: Substage, shader: Shader, lay: Layout) -> SubstagePlan:
    own, (width, height), (w, h) = s.units[0].functions[0], lay.physical, shader.tile
    kernel = workgroup(own.op)
    return SubstagePlan(
        s.name,
        tuple(shader.bindings),
        compute=shader.compute,
        groups=kernel.groups(own) if kernel else (-(-width // w), -(-height // h), 1),
        pushed=shader.pushed,
        n_functions=s.n_functions,
        functions=_function_names(s),
    )


def _subpass(s: Substage, shader: Shader, lay: Layout) -> SubstagePlan:
    cull = "none"
    draws: tuple[DrawPlan, ...] = (DrawPlan(0, 0, *lay.physical),)
    if s.guard is not None and s.guard.tiles is not None:
        draws = (DrawPlan(0, 0, *lay.physical, shader.n_vertices, int(s.guard.covers)),)
        draws = (DrawPlan(0, 0, *lay.physical), *draws) if s.guard.covers else draws
    elif s.guard is not None:
        draws = (DrawPlan(0, 0, *lay.physical), DrawPlan(0, 0, *lay.physical, first_instance=1))
    if s.kind == RASTER:
        raster = next(f for u in s.units for f in u.functions if f.op.kind == RASTER)
        cull, scissors = raster.attr("cull"), raster.attr("scissor") or (None,)
        draws = tuple(
            _draw(lay, layer, shader.n_vertices, scissors[layer % len(scissors)])
            for layer in range(lay.layers)
        )
    return SubstagePlan(
        s.name,
        tuple(shader.bindings),
        tuple(shader.outputs),
        tuple(shader.clears),
        shader.vertex,
        shader.fragment,
        draws=draws,
        depth=s.has_depth,
        cull=cull,
        outside=shader.outside,
        mask="" if s.guard is None else s.guard.condition.label(),
        pushed=shader.pushed,
        n_functions=s.n_functions,
        functions=_function_names(s),
    )


def _draw(
    lay: Layout, layer: int, n_vertices: int, scissor: tuple[int, int, int, int] | None
) -> DrawPlan:
    """The draw of one layer. scissor: in pixels of the layer."""
    x, y = lay.origin(layer)
    if scissor is not None:
        scissor = (x + scissor[0], y + scissor[1], scissor[2], scissor[3])
    return DrawPlan(x, y, *lay.cell, n_vertices, layer, scissor)


def _function_names(s: Substage) -> tuple[str, ...]:
    folded = [u for chain in s.computed.values() for u in chain]
    return tuple(f"{f.op.name}  {f.line}" for u in (*folded, *s.units) for f in u.functions)
