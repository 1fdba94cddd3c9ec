"""GLSL of texture sampling without the hardware's sampler: one fetch, or four and their weights."""

from __future__ import annotations

from dressi.ad.functions.wraps import Wraps, at_glsl, inside_glsl, near_glsl
from dressi.ad.functions.written_out import lerp_glsl
from dressi.ad.graph import Variable


def software_sampler(name: str, v: Variable, fetch: str, mode: str, wraps: Wraps) -> str:
    """A function T name(vec2 uv, int l) that samples v with T fetch(ivec2 pos, int layer)."""
    w, h = v.size
    t = v.vtype.glsl

    def texel(x: str, y: str) -> str:
        value = f"{fetch}({at_glsl(wraps, x, y, w, h)}, l)"
        inside = inside_glsl(wraps, x, y, w, h)
        return f"({inside} ? {value} : {t}(0))" if inside else value

    if mode == "nearest":
        body = (
            f"precise vec2 p = uv * vec2({w}, {h}); ivec2 i = ivec2(floor({near_glsl('p')})); "
            f"return {texel('i.x', 'i.y')};"
        )
    else:
        rows = [
            lerp_glsl(texel("(i.x + 0)", f"(i.y + {d})"), texel("(i.x + 1)", f"(i.y + {d})"), "t.x")
            for d in (0, 1)
        ]
        body = (
            f"precise vec2 q = uv * vec2({w}, {h}) - 0.5, p = {near_glsl('q')}; "
            f"ivec2 i = ivec2(floor(p)); vec2 t = fract(p);\n  precise {t} v = "
            f"{lerp_glsl(rows[0], rows[1], 't.y')}; return v;"
        )
    return f"{t} {name}(vec2 uv, int l) {{ {body} }}"
