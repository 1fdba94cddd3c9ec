"""Whole shaders: one substage -> its shaders and bindings.

In: a Substage, the layouts, where each Variable lies. Out: ``Shader`` (strings and bindings). What
its statements are is known to ``glsl`` (one Function at a time) and ``statements`` (several).
"""

from __future__ import annotations

from dressi.ad.graph import Function
from dressi.ad.registry import RASTER, SAME
from dressi.ad.workgroups import Workgroup, workgroup
from dressi.packing.fragments import skip_padding, sparse_shader, store_outputs, tile_vertex
from dressi.packing.glsl import Generator
from dressi.packing.layout import beyond_glsl, padding_glsl, position_glsl
from dressi.packing.raster import raster_vertex, read_by_vertices
from dressi.packing.shader_text import FULL_SCREEN, Places, Shader, ShaderText, tile
from dressi.packing.statements import emit_guarded, emit_tail
from dressi.packing.substage import Substage
from dressi.packing.task import Context
from dressi.packing.units import in_buffer


def generate(substage: Substage, places: Places, context: Context) -> Shader:
    """Returns the shaders, bindings and outputs of one substage."""
    g = Generator(substage, places, context)
    shader = _compute(g) if substage.is_dispatch else _fragment(g)
    shader.bindings = sorted(g.bindings.values(), key=lambda b: b.binding)
    shader.pushed = tuple(g.pushed.values())
    return shader


def _fragment(g: Generator) -> Shader:
    guard = g.substage.guard
    if guard is not None and (guard.tiles is None or guard.covers):
        return sparse_shader(g, guard)
    shader, text = Shader(vertex=FULL_SCREEN), ShaderText("f")
    body = position_glsl(g.domain, "ivec2(gl_FragCoord.xy)", g.pushed)
    head = ""
    raster = g.substage.kind == RASTER
    if raster:
        shader.vertex, head, shader.n_vertices = raster_vertex(g, read_by_vertices(g))
    elif guard is not None and guard.tiles is not None:
        shader.vertex, shader.n_vertices = tile_vertex(g, guard.tiles)
    start = len(body)
    exit_function: Function | None = None
    for f in g.functions:
        if f.output.uid not in g.names:
            g.emit(f, text, body)
        if f.op.fragment_exit:
            exit_function = f
    if exit_function is not None:
        depth, keep = (g.operand(x, text, body) for x in exit_function.inputs[1:])
        # What is not nearer than the cleared depth is not drawn; no more is NaN, of which the
        # depth test makes what it likes.
        body.append(f"  if ({keep} == 0.0 || !({depth} < 1.0)) discard;")
        body.append(f"  gl_FragDepth = {depth};")
    skip_padding(g, text, body, start)
    store_outputs(g, shader, text, body)
    shader.fragment = text.render(body, head)
    return shader


def _compute(g: Generator) -> Shader:
    for f in g.functions:
        kernel = workgroup(f.op)
        if kernel is not None:
            return _workgroup(g, f, kernel)
    shader, text = Shader(), ShaderText("c")
    body = [f"  if ({beyond_glsl(g.domain, g.pushed)}) return;"]
    body += position_glsl(g.domain, "ivec2(gl_GlobalInvocationID.xy)", g.pushed)
    if padding := padding_glsl(g.domain, g.pushed):
        body.append(f"  if ({padding}) return;")
    emit_guarded(g, text, body)
    for v in g.substage.outputs:
        if not in_buffer(v):
            here = "ivec2(gl_GlobalInvocationID.xy)"
            body += g.image_stores(v, text, here, g.names[v.uid])
    shader.tile = tile(g.domain.physical, g.substage.is_wide)
    head = "layout(local_size_x = {}, local_size_y = {}) in;".format(*shader.tile)
    shader.compute = text.render(body, head)
    return shader


def _workgroup(g: Generator, own: Function, kernel: Workgroup) -> Shader:
    """Return the shader of a kernel that is the whole of main(), and of what follows it."""
    text, body = ShaderText("c"), list[str]()
    if any(own.op.read(i) == SAME for i in range(len(own.inputs))):
        body.append("  ivec2 pos = ivec2(gl_WorkGroupID.xy);")
        body.append("  int layer = int(gl_WorkGroupID.z);")
    g.emit(own, text, body)
    emit_tail(g, own, text, body)
    return Shader(compute=text.render(body, f"layout(local_size_x = {kernel.lanes}) in;"))
