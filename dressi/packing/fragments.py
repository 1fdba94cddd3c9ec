"""What the fragment shaders of all kinds have in common, and those of sparse passes.

In: the generator of a substage. Out: statements that leave out padding and write the colour
outputs; both fragment shaders of a sparse pass.
"""

from __future__ import annotations

from dataclasses import replace

from dressi.ad.functions.bits import WORD
from dressi.ad.graph import Variable
from dressi.packing.glsl import Generator
from dressi.packing.guard import Guard
from dressi.packing.layout import padding_glsl, position_glsl
from dressi.packing.shader_text import COVER, FULL_SCREEN_TWICE, Shader, ShaderText
from dressi.packing.statements import emit_outside
from dressi.packing.units import in_buffer

TILE_ROWS = 16
"""Rows of a tile, which is as wide as a word of a packed mask. On lavapipe, where both triangles of
a rectangle run the blocks on their border, 8 rows took 1.08 times as long, 4 rows 1.17."""


def skip_padding(g: Generator, text: ShaderText, body: list[str], start: int) -> None:
    """Let what carries no pixel return: it would read beyond the ends of images, buffers, uniforms
    of layers."""
    beyond = bool(text.fetches) or g.domain.columns > 1
    beyond = beyond or any(b.kind == "buffer" for b in g.bindings.values())
    padding = padding_glsl(g.domain, g.pushed) if beyond else ""
    if padding:
        body.insert(start, f"  if ({padding}) return;")


def store_outputs(g: Generator, shader: Shader, text: ShaderText, body: list[str]) -> None:
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


def sparse_shader(g: Generator, guard: Guard) -> Shader:
    """Return the fragments of both draws of a sparse pass: outside of the mask, and inside. The
    second covers what the first has drawn in tiles, or is behind it."""
    shaders, head = [], "layout(early_fragment_tests) in;"
    vertex, n_vertices = FULL_SCREEN_TWICE, 3
    if guard.tiles is not None:
        (vertex, n_vertices), head = tile_vertex(g, guard.tiles), ""
    for outside in (True, False):
        shader, text = Shader(vertex=vertex, n_vertices=n_vertices), ShaderText("f")
        g.names = {}
        body = position_glsl(g.domain, "ivec2(gl_FragCoord.xy)", g.pushed)
        start = len(body)
        if outside:
            if guard.covers:
                g.names[guard.condition.uid] = f"{guard.condition.vtype.glsl}(0)"
            emit_outside(g, guard, text, body, tested=guard.covers)
        else:
            for f in g.functions:
                g.emit(f, text, body)
        skip_padding(g, text, body, start)
        store_outputs(g, shader, text, body)
        shader.fragment = text.render(body, "" if outside else head)
        shaders.append(shader)
    return replace(shaders[1], outside=shaders[0].fragment)


def tile_vertex(g: Generator, words: Variable) -> tuple[str, int]:
    """Return a vertex shader that draws a rectangle for every tile of a packed mask in which a bit
    is set, and nothing for the others, and the number of vertices; where a guard covers, instance 0
    all pixels."""
    text = ShaderText("v")
    (width, height), layers = g.substage.domain
    across, down = words.size[0], -(-height // TILE_ROWS)
    fetch = g.fetch(words, text)
    body = [
        "  int k = gl_VertexIndex % 6, i = gl_VertexIndex / 6;",
        f"  ivec3 tile = ivec3(i % {across}, i / {across} % {down}, i / {across * down});",
        f"  int y = tile.y * {TILE_ROWS}, end = min(y + {TILE_ROWS}, {height}), bits = 0;",
        "  int top = end, bottom = y;",
        "  for (; y < end; ++y) {",
        f"    int word = {fetch}(ivec2(tile.x, y), tile.z);",
        "    bits |= word;",
        "    top = word != 0 ? min(top, y) : top;",
        "    bottom = word != 0 ? y + 1 : bottom;",
        "  }",
        f"  ivec2 x = tile.x * {WORD} + ivec2(findLSB(bits), findMSB(uint(bits)) + 1);",
        "  ivec2 corner = ivec2(k == 1 || k == 2 || k == 4, k == 2 || k == 4 || k == 5);",
        f"  vec2 place = vec2(corner.x == 0 ? x.x : min(x.y, {width}),",
        f"                    tile.z * {height} + (corner.y == 0 ? top : bottom));",
        "  // What has no area is not drawn.",
        f"  vec2 clip = place * 2.0 / vec2({width}, {height * layers}) - 1.0;",
        "  gl_Position = vec4(bits == 0 ? vec2(0) : clip, 0.0, 1.0);",
    ]
    if g.substage.guard is not None and g.substage.guard.covers:
        body[:0] = [f"  {COVER}", "  if (gl_InstanceIndex == 0) return;"]
    return text.render(body), 6 * across * down * layers
