"""Whole shaders: one substage -> its shaders and bindings.

In: a Substage, the layouts, where each Variable lies. Out: ``Shader`` (strings and bindings). What
its statements are is known to ``glsl`` (one Function at a time) and ``statements`` (several).
"""

from __future__ import annotations

from dressi.ad.graph import Function
from dressi.ad.kernels import Workgroup, workgroup
from dressi.ad.registry import RASTER, SAME
from dressi.packing.glsl import Generator
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
    return shader


def _position(g: Generator, pixel: str) -> list[str]:
    """Statements that define pos (logical pixel) and layer from a physical pixel."""
    lay, lines = g.domain, [f"  ivec2 pos = {pixel}; int layer = 0;"]
    w, h = lay.cell
    if lay.layers > 1:
        if lay.columns == 1:
            lines.append(f"  layer = pos.y / {h}; pos.y -= layer * {h};")
        else:
            lines.append(f"  layer = pos.y / {h} * {lay.columns} + pos.x / {w};")
            lines.append(f"  pos = ivec2(pos.x % {w}, pos.y % {h});")
    if lay.shift >= 0:
        lines.append(f"  pos = ivec2((pos.y << {lay.shift}) + pos.x, 0);")
    return lines


def _padding(g: Generator) -> str:
    """Condition that a physical pixel carries no logical one, or nothing."""
    lay = g.domain
    tests = []
    if lay.shift >= 0 and lay.cell[0] * lay.cell[1] != lay.size[0]:
        tests.append(f"pos.x >= {lay.size[0]}")
    if lay.columns > 1:
        tests.append(f"layer >= {lay.layers}")
    return " || ".join(tests)


def _fragment(g: Generator) -> Shader:
    shader, text = Shader(vertex=FULL_SCREEN), ShaderText("f")
    body = _position(g, "ivec2(gl_FragCoord.xy)")
    head = ""
    raster = g.substage.kind == RASTER
    if raster:
        head = "layout(location = 0) flat in int primitive_id;"
        shader.vertex, shader.n_vertices = _raster_vertex(g)
    start = len(body)
    exit_function: Function | None = None
    for f in g.functions:
        g.emit(f, text, body)
        if f.op.fragment_exit:
            exit_function = f
    if exit_function is not None:
        depth, keep = (g.operand(x, text, body) for x in exit_function.inputs[1:])
        # What is not nearer than the cleared depth is not drawn; no more is NaN, of which the
        # depth test makes what it likes.
        body.append(f"  if ({keep} == 0.0 || !({depth} < 1.0)) discard;")
        body.append(f"  gl_FragDepth = {depth};")
    # What carries no pixel would read beyond the ends of images, buffers, uniforms of layers.
    beyond = bool(text.fetches) or g.domain.columns > 1
    beyond = beyond or any(b.kind == "buffer" for b in g.bindings.values())
    if _padding(g) and beyond:
        body.insert(start, f"  if ({_padding(g)}) return;")
    _store(g, shader, text, body)
    shader.fragment = text.render(body, head)
    return shader


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


def _raster_vertex(g: Generator) -> tuple[str, int]:
    """Vertex shader that fetches the corners of primitives from tables, and the number of
    vertices."""
    raster = next(f for f in g.functions if f.op.kind == RASTER)
    text = ShaderText("v")
    n_corners = len(raster.inputs)
    per = 3 if n_corners == 3 else 6
    body = [
        f"  primitive_id = gl_VertexIndex / {per}; int layer = gl_InstanceIndex;",
        f"  int k = gl_VertexIndex % {per};",
        "  int corner = k < 3 ? k : (k == 3 ? 0 : k - 2);  // 0 1 2, then 0 2 3",
        "  ivec2 p = ivec2(primitive_id, 0);",
    ]
    for k, x in enumerate(raster.inputs):
        body.append(f"  if (corner == {k}) gl_Position = {g.fetch(x, text)}(p, layer);")
    source = text.render(body, "layout(location = 0) flat out int primitive_id;")
    return source, per * raster.inputs[0].size[0]


def _compute(g: Generator) -> Shader:
    for f in g.functions:
        kernel = workgroup(f.op)
        if kernel is not None:
            return _workgroup(g, f, kernel)
    shader, text = Shader(), ShaderText("c")
    w, h = g.domain.physical
    body = [f"  if (gl_GlobalInvocationID.x >= {w} || gl_GlobalInvocationID.y >= {h}) return;"]
    body += _position(g, "ivec2(gl_GlobalInvocationID.xy)")
    if _padding(g):
        body.append(f"  if ({_padding(g)}) return;")
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
    """The shader of a kernel that is the whole of main(), and of what follows it."""
    text, body = ShaderText("c"), list[str]()
    if any(own.op.read(i) == SAME for i in range(len(own.inputs))):
        body.append("  ivec2 pos = ivec2(gl_WorkGroupID.xy);")
        body.append("  int layer = int(gl_WorkGroupID.z);")
    g.emit(own, text, body)
    emit_tail(g, own, text, body)
    return Shader(compute=text.render(body, f"layout(local_size_x = {kernel.lanes}) in;"))
