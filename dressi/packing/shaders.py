"""Whole shaders: one substage -> its shaders and bindings.

In: a Substage, the layouts, where each Variable lies. Out: ``Shader`` (strings and bindings). What
its statements are is known to ``glsl`` (one Function at a time) and ``statements`` (several).
"""

from __future__ import annotations

from dataclasses import replace

from dressi.ad.graph import Function
from dressi.ad.registry import RASTER, SAME
from dressi.ad.workgroups import Workgroup, workgroup
from dressi.packing.glsl import Generator
from dressi.packing.guard import Guard
from dressi.packing.layout import padding_glsl, position_glsl
from dressi.packing.raster import raster_vertex, read_by_vertices
from dressi.packing.shader_text import (
    FULL_SCREEN,
    FULL_SCREEN_TWICE,
    Places,
    Shader,
    ShaderText,
    tile,
)
from dressi.packing.statements import emit_guarded, emit_outside, emit_tail
from dressi.packing.substage import Substage
from dressi.packing.task import Context
from dressi.packing.units import in_buffer


def generate(substage: Substage, places: Places, context: Context) -> Shader:
    """Returns the shaders, bindings and outputs of one substage."""
    g = Generator(substage, places, context)
    shader = _compute(g) if substage.is_dispatch else _fragment(g)
    shader.bindings = sorted(g.bindings.values(), key=lambda b: b.binding)
    return shader


def _fragment(g: Generator) -> Shader:
    if g.substage.guard is not None:
        return _sparse(g, g.substage.guard)
    shader, text = Shader(vertex=FULL_SCREEN), ShaderText("f")
    body = position_glsl(g.domain, "ivec2(gl_FragCoord.xy)")
    head = ""
    raster = g.substage.kind == RASTER
    if raster:
        shader.vertex, head, shader.n_vertices = raster_vertex(g, read_by_vertices(g))
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
    _skip_padding(g, text, body, start)
    _store(g, shader, text, body)
    shader.fragment = text.render(body, head)
    return shader


def _skip_padding(g: Generator, text: ShaderText, body: list[str], start: int) -> None:
    """Let what carries no pixel return: it would read beyond the ends of images, buffers, uniforms
    of layers."""
    beyond = bool(text.fetches) or g.domain.columns > 1
    beyond = beyond or any(b.kind == "buffer" for b in g.bindings.values())
    if padding_glsl(g.domain) and beyond:
        body.insert(start, f"  if ({padding_glsl(g.domain)}) return;")


def _sparse(g: Generator, guard: Guard) -> Shader:
    """Return the fragments of both draws of a sparse pass: outside of the mask, and inside."""
    shaders = []
    for outside in (True, False):
        shader, text = Shader(vertex=FULL_SCREEN_TWICE), ShaderText("f")
        g.names = {}
        body = position_glsl(g.domain, "ivec2(gl_FragCoord.xy)")
        start = len(body)
        if outside:
            emit_outside(g, guard, text, body)
        else:
            for f in g.functions:
                g.emit(f, text, body)
        _skip_padding(g, text, body, start)
        _store(g, shader, text, body)
        shader.fragment = text.render(body, "" if outside else "layout(early_fragment_tests) in;")
        shaders.append(shader)
    return replace(shaders[1], outside=shaders[0].fragment)


def _store(g: Generator, shader: Shader, text: ShaderText, body: list[str]) -> None:
    """Declare and write the colour outputs."""
    for v in g.substage.outputs:
        if in_buffer(v):
            continue
        t = v.vtype
        clear = None
        if v.creator is not None and v.creator.op.fragment_exit:
            clear = (v.creator.attr("background"),) * 4
        for k, image in enumerate(g.places.images[v.uid]):
            location = len(shader.outputs)
            wide = ("ivec" if t.is_int else "vec") + str(t.plane.channels)
            wide = wide if t.plane.channels > 1 else t.plane.glsl
            text.declarations.append(
                f"layout(location = {location}) out {wide} o{location};  // {v.label()}"
            )
            value = g.names[v.uid] + (f"[{k}]" if t.is_matrix else "")
            if t.plane.n == 3:
                value = f"{wide}({value}, 0)"
            body.append(f"  o{location} = {value};")
            shader.outputs.append(image)
            shader.clears.append(clear)


def _compute(g: Generator) -> Shader:
    for f in g.functions:
        kernel = workgroup(f.op)
        if kernel is not None:
            return _workgroup(g, f, kernel)
    shader, text = Shader(), ShaderText("c")
    w, h = g.domain.physical
    body = [f"  if (gl_GlobalInvocationID.x >= {w} || gl_GlobalInvocationID.y >= {h}) return;"]
    body += position_glsl(g.domain, "ivec2(gl_GlobalInvocationID.xy)")
    if padding_glsl(g.domain):
        body.append(f"  if ({padding_glsl(g.domain)}) return;")
    emit_guarded(g, text, body)
    for v in g.substage.outputs:
        if not in_buffer(v):
            here = "ivec2(gl_GlobalInvocationID.xy)"
            body += g.image_stores(v, text, here, g.names[v.uid])
    shader.tile = tile((w, h), g.substage.is_wide)
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
