"""The vertex shader of a rasterization, and what it reads for the fragments.

In: the generator of a substage. Out: GLSL that fetches the corners of primitives from tables. What
is read by the number of the primitive alone is the same in all fragments of a primitive: where
these are many, the vertices read it, and hand it on.
"""

from __future__ import annotations

from collections.abc import Sequence

from dressi.ad.graph import Function
from dressi.ad.kernels import FRAGMENT, kernels
from dressi.ad.registry import ANY, FRAG, RASTER, SAME
from dressi.packing.glsl import Generator
from dressi.packing.shader_text import ShaderText

LARGE_PRIMITIVE = 10
"""Pixels of the image per primitive from which on vertices read for fragments. Measured on llvmpipe
with three tables: from 18 pixels on a rasterization took 0.5 to 0.85 of the time, at 5 pixels 1.15
to 1.3 times as long (a vertex that hands on more costs more than a few fetches)."""

LARGE_WITH_LOADS = 50
"""The same where fragments load from storage images, which costs them less. On llvmpipe, where
vertices are the work of one thread, a step took 1.02 (K = 1) and 1.1 times as long (antialias) at
18 pixels, and 0.96 at 74."""

MOST_VALUES = 8
"""Vectors that vertices hand on; Vulkan guarantees 16."""


def rasterization(g: Generator) -> Function:
    """Return the Function that rasterizes."""
    return next(f for f in g.functions if f.op.kind == RASTER)


def read_by_vertices(g: Generator) -> list[Function]:
    """Return the Functions of fragments that the vertices run: reads of tables by the number of the
    primitive, where primitives are large."""
    raster = rasterization(g)
    n_primitives = raster.inputs[0].size[0] * raster.inputs[0].layers
    large = LARGE_WITH_LOADS if g.fetched_as == "load" else LARGE_PRIMITIVE
    if not g.context.per_primitive or g.substage.n_pixels < large * n_primitives:
        return []
    return [f for f in g.functions if _is_per_primitive(f, raster)][:MOST_VALUES]


def _is_per_primitive(f: Function, raster: Function) -> bool:
    same = [x for i, x in enumerate(f.inputs) if f.op.read(i) == SAME]
    fetched = [x for i, x in enumerate(f.inputs) if f.op.read(i) == ANY]
    return (
        f.op.kind == FRAG
        and bool(fetched)
        and len(same) + len(fetched) == len(f.inputs)
        and all(x is raster.output for x in same)
        and not f.output.vtype.is_matrix
        and "{pos}" not in kernels(f.op)[FRAGMENT].text(f)
    )


def raster_vertex(g: Generator, handed_on: Sequence[Function]) -> tuple[str, str, int]:
    """Return a vertex shader that fetches the corners of primitives from tables, the declarations
    of what it hands on to the fragments, whose names it sets, and the number of vertices."""
    raster = rasterization(g)
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
    heads = ["layout(location = 0) flat {} int primitive_id;"]
    names: dict[int, str] = {}
    for f in handed_on:
        g.names = {raster.output.uid: "primitive_id"}
        lines: list[str] = []
        g.emit(f, text, lines)
        name = names[f.output.uid] = f"flat{len(names)}"
        body += ["  {", *lines, f"  {name} = {g.names[f.output.uid]};", "  }"]
        kind = f.output.vtype.glsl
        heads.append(f"layout(location = {len(names)}) flat {{}} {kind} {name};")
    g.names = dict(names)
    source = text.render(body, "\n".join(h.format("out") for h in heads))
    return source, "\n".join(h.format("in") for h in heads), per * raster.inputs[0].size[0]
