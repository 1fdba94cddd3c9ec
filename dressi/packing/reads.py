"""How a shader reads its inputs: descriptors, and functions that fetch a value at any pixel.

In: a Substage, where each Variable lies. Out: bindings, and GLSL expressions; ``glsl`` writes the
statements that use them.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from dressi.ad.graph import Function, Variable
from dressi.ad.template import Value
from dressi.ad.vtype import VType
from dressi.packing.exact import INT64, exact_sum
from dressi.packing.layout import MOST_PUSHED, Layout, Pushed, layout
from dressi.packing.plan import Binding, SamplerPlan
from dressi.packing.sample import near_glsl, software_sampler
from dressi.packing.shader_text import Places, ShaderText
from dressi.packing.substage import Substage
from dressi.packing.task import Context
from dressi.packing.units import in_buffer, is_exact
from dressi.packing.use import fetched_as

_AXES = "xyzw"


def is_offset(v: Variable) -> bool:
    """Return whether the place of a texel of v may be the place that was asked for plus a number.

    NVIDIA's fragment compiler (seen: driver 580.159.04) takes a number of 1 to 7 out of such a
    place, for the fetch to add, and what is left of ``ivec2(7, 0) - ivec2(gl_FragCoord.xy)`` is
    negative: outside of the image, so the fetch gives 0. A ``max`` around the place keeps it whole.
    A table needs none: its places are parts of the bits of a number.
    """
    return v.layers > 1 or not v.is_table


class Reads:
    """The inputs of one shader while it is written, and its bindings."""

    def __init__(self, substage: Substage, places: Places, context: Context) -> None:
        self.substage = substage
        self.places = places
        self.context = context
        self.limits = context.limits
        self.domain: Layout = layout(*substage.domain, context.limits)
        self.bindings: dict[tuple[str, int, SamplerPlan | None], Binding] = {}
        self.functions = [f for u in substage.units for f in u.functions]
        self.inside = {f.output.uid for f in self.functions}
        self.read_key = {uid: k for k, uid in enumerate(sorted(substage.reads))}
        self.names: dict[int, str] = {}
        self.hoisted: Collection[int] = ()
        """uids of what is declared in front of the statements that are being written."""
        self.pushed = Pushed(MOST_PUSHED if context.push_lengths else 0)
        self.n_inputs = 0
        self.written = {v.uid for v in substage.outputs if in_buffer(v)}
        self.fetched_as = fetched_as(substage, context)

    # -- descriptors

    def bind(
        self, kind: str, index: int, letter: str, sampler: SamplerPlan | None = None
    ) -> Binding:
        key = (kind, index, sampler)
        old = self.bindings.get(key)
        if old is None:
            input_index = self.n_inputs if kind == "input" else 0
            self.n_inputs += kind == "input"
            old = Binding(len(self.bindings), kind, index, letter, sampler, input_index)
        elif letter not in old.shaders:
            old = Binding(old.binding, kind, index, old.shaders + letter, sampler, old.input_index)
        self.bindings[key] = old
        return old

    def uniform_block(self, text: ShaderText) -> None:
        if text.is_new("Uniforms"):
            b = self.bind("uniform", 0, text.letter)
            text.declarations.append(
                f"layout(std140, set = 0, binding = {b.binding}) uniform Uniforms "
                f"{{ uvec4 u[{self.places.n_slots}]; }};"
            )

    def buffer(self, v: Variable, text: ShaderText, element: str) -> str:
        """Return the name of the array of a buffer, declared with the given element type."""
        number = self.bind("buffer", self.places.buffers[v.uid], text.letter).binding
        name = f"b{number}"
        if text.is_new(name):
            head = self.buffer_head(v, number)
            block = f"Buffer{number} {{ {element} {name}[]; }};"
            text.declarations.append(f"{head} {block}  // {v.label()}")
        return name

    def buffer_head(self, v: Variable, number: int) -> str:
        """Return what the declaration of a buffer begins with."""
        access = "" if v.uid in self.written else "readonly "
        return f"layout(std430, set = 0, binding = {number}) {access}buffer"

    def exact_buffer(self, v: Variable, text: ShaderText) -> tuple[str, int, bool]:
        """A buffer of sums in fixed point: its name, its components, whether it is also declared as
        64-bit words, ``name_pairs`` (a shader uses each word through one of the two only)."""
        name = self.buffer(v, text, "uint")
        wide = self.limits.int64_atomics
        if wide and text.is_new(f"{name}_pairs"):
            text.extensions.update(INT64)
            number = self.bind("buffer", self.places.buffers[v.uid], text.letter).binding
            block = f"Pairs{number} {{ uint64_t {name}_pairs[]; }};"
            text.declarations.append(f"{self.buffer_head(v, number)} {block}")
        return name, v.size[0] * v.size[1] * v.layers * v.vtype.n_words, wide

    # -- reading

    def uniform_value(self, v: Variable, text: ShaderText, layer: str) -> str:
        self.uniform_block(text)
        t, slot = v.vtype, self.places.slots[v.uid]
        index = f"{slot}" if v.layers == 1 else f"{slot} + {layer} * {t.n_planes}"

        def plane(k: int) -> str:
            at = f"u[{index} + {k}]" if t.n_planes > 1 else f"u[{index}]"
            comps = "" if t.plane.n == 4 else "." + _AXES[: t.plane.n]
            return f"{'ivec4' if t.is_int else 'uintBitsToFloat'}({at}){comps}"

        if t.is_matrix:
            return f"{t.glsl}({', '.join(plane(k) for k in range(t.n))})"
        return plane(0)

    def fetch(self, v: Variable, text: ShaderText) -> str:
        """Return the name of a function T f(ivec2 pos, int layer) that reads v anywhere."""
        if v.uid in text.fetches:
            return text.fetches[v.uid]
        name = text.fetches[v.uid] = f"fetch{len(text.fetches)}"
        head = f"{v.vtype.glsl} {name}(ivec2 p, int l) {{"
        if v.uid in self.substage.computed:
            text.functions.append(self.computed(v, name, text))
        elif v.uid in self.context.uniforms:
            text.functions.append(f"{head} return {self.uniform_value(v, text, 'l')}; }}")
        elif in_buffer(v):
            text.functions.append(f"{head} {self._buffer_read(v, text)} }}")
        elif v.uid in self.substage.mixed:
            drawn = head.replace(name, f"{name}_drawn")
            text.functions.append(f"{drawn} return {self._image_read(v, text)}; }}")
            text.functions.append(self.mixed(v, name, text))
        else:
            text.functions.append(f"{head} return {self._image_read(v, text)}; }}  // {v.label()}")
        return name

    def _image_read(self, v: Variable, text: ShaderText) -> str:
        at = self.address(v)
        if text.letter == "f" and is_offset(v):
            at = f"max({at}, 0)"
        images = self.places.images[v.uid]
        value = ", ".join(self.texel(i, v.vtype.plane, text, at) for i in images)
        return f"{v.vtype.glsl}({value})" if v.vtype.is_matrix else value

    def mixed(self, v: Variable, name: str, text: ShaderText) -> str:
        """Return a function that fetches v where a mask is not 0, and computes it elsewhere;
        ``Generator`` does."""
        raise NotImplementedError

    def computed(self, v: Variable, name: str, text: ShaderText) -> str:
        """Return a function that computes v at any pixel; ``Generator`` does."""
        raise NotImplementedError

    def _buffer_read(self, v: Variable, text: ShaderText) -> str:
        t = v.vtype
        w, h = v.size
        index = "p.x" if h == 1 else f"p.y * {w} + p.x"
        if v.layers > 1:
            index = f"l * {self.n_rows(v)} + {index}"
        if is_exact(v, self.context.accumulation):
            name, n_components, wide = self.exact_buffer(v, text)
            if text.is_new(f"sum_{name}"):
                text.functions.append(exact_sum(f"sum_{name}", name, t, n_components, wide))
            return f"return sum_{name}({index});"
        if v.uid not in self.written and t.glsl in ("vec2", "vec4"):
            return f"return {self.buffer(v, text, t.glsl)}[{index}];"  # one load, not several
        name, n = self.buffer(v, text, "int" if t.is_int else "float"), t.n_words
        words = ", ".join(f"{name}[i + {k}]" for k in range(n))
        return f"int i = ({index}) * {n}; return {t.glsl}({words});"

    def address(self, v: Variable) -> str:
        """Return the GLSL of the physical position of logical (p, l)."""
        lay = layout(v.size, v.layers, self.limits)
        if v.size == (1, 1) and v.layers == 1:
            return "ivec2(0)"
        x, y = "p.x", "p.y"
        if lay.shift >= 0:
            x, y = f"(p.x & {self.pushed.mask(lay)})", f"(p.x >> {self.pushed.shift(lay)})"
        elif v.size == (1, 1):
            x, y = "0", "0"
        if v.layers > 1:
            if lay.columns == 1:
                y = f"{y} + l * {self.pushed.height(lay)}"
            else:
                x = f"{x} + l % {lay.columns} * {lay.cell[0]}"
                y = f"{y} + l / {lay.columns} * {lay.cell[1]}"
        return f"ivec2({x}, {y})"

    def width(self, v: Variable) -> Value:
        """Return what a marker of the width of v stands for."""
        return partial(self.n_rows, v) if v.is_table else v.size[0]

    def n_rows(self, v: Variable) -> str:
        """Return GLSL of the pixels of a layer of v."""
        return self.pushed.count(v.size[0]) if v.is_table else str(v.size[0] * v.size[1])

    def texel(self, image: int, t: VType, text: ShaderText, at: str, how: str = "") -> str:
        """Return a fetch of one plane at a physical position. how: another kind of binding."""
        b = self.bind(how or self.fetched_as, image, text.letter)
        name, loads = f"x{b.binding}", b.kind == "load"
        if not loads:
            text.extensions.add("GL_EXT_samplerless_texture_functions")
        if text.is_new(name):
            kind = ("i" if t.is_int else "") + ("image2D" if loads else "texture2D")
            form, access = (f"{t.format.lower()}, ", "readonly ") if loads else ("", "")
            text.declarations.append(
                f"layout({form}set = 0, binding = {b.binding}) uniform {access}{kind} {name};"
            )
        comps = "" if t.n == 4 else "." + _AXES[: t.n]
        return f"imageLoad({name}, {at}){comps}" if loads else f"texelFetch({name}, {at}, 0){comps}"

    def sampler(self, f: Function, i: int, text: ShaderText) -> str:
        """Name of a function T s(vec2 uv, int layer): the hardware sampler, else four fetches."""
        v, mode, wraps = f.inputs[i], f.attr("filter"), f.attr("wrap")
        hardware = f.attr("hardware") and self.hardware(v)
        wrap = "_".join(dict.fromkeys(wraps))
        name = f"sample{self.read_key[v.uid]}_{mode}_{wrap}{'_hw' if hardware else ''}"
        if not text.is_new(name):
            return name
        t = v.vtype
        if hardware:
            b = self.bind(
                "sampler", self.places.images[v.uid][0], text.letter, SamplerPlan(mode, *wraps)
            )
            text.declarations.append(
                f"layout(set = 0, binding = {b.binding}) uniform sampler2D s{b.binding};"
                f"  // {v.label()}"
            )
            comps = "" if t.n == 4 else "." + _AXES[: t.n]
            value = f"textureLod(s{b.binding}, {near_glsl('uv')}, 0.0){comps}"
            text.functions.append(f"{t.glsl} {name}(vec2 uv, int l) {{ return {value}; }}")
            return name
        text.functions.append(software_sampler(name, v, self.fetch(v, text), mode, wraps))
        return name

    def hardware(self, v: Variable) -> bool:
        """Return whether the hardware sampler can read v: one layer, where wrapping stops."""
        return v.layers == 1 and self.limits.linear_float32 and not v.is_table and not in_buffer(v)

    def attachment(self, v: Variable, text: ShaderText) -> str:
        t, parts = v.vtype, []
        for image in self.places.images[v.uid]:
            b = self.bind("input", image, text.letter)
            name = f"a{b.binding}"
            kind = "isubpassInput" if t.is_int else "subpassInput"
            text.declarations.append(
                f"layout(input_attachment_index = {b.input_index}, set = 0, binding = {b.binding}) "
                f"uniform {kind} {name};"
            )
            comps = "" if t.plane.n == 4 else "." + _AXES[: t.plane.n]
            parts.append(f"subpassLoad({name}){comps}")
        return f"{t.glsl}({', '.join(parts)})" if t.is_matrix else parts[0]

    def own_pixel(self, v: Variable, text: ShaderText) -> str:
        """Return v at the pixel that the dispatch computes; it reads no other of the image."""
        at = "ivec2(gl_GlobalInvocationID.xy)"
        planes = self.places.images[v.uid]
        parts = [self.texel(i, v.vtype.plane, text, at, "pixel") for i in planes]
        return f"{v.vtype.glsl}({', '.join(parts)})" if v.vtype.is_matrix else parts[0]
