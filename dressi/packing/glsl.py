"""GLSL generation: one Function -> its statements, and what they read and write.

In: a Substage, the layouts, where each Variable lies. Out: lines of GLSL, and bindings; ``shaders``
makes whole shaders of them. The text is meant to be read: every snippet carries the op and the
user's line it came from. Paper, 3.3.3: function objects expanded into GLSL with loading and saving
of images.
"""

from __future__ import annotations

from dressi.ad.graph import Function, Variable
from dressi.ad.registry import FREE, SAME, SAMPLER
from dressi.ad.template import Value, fill_glsl
from dressi.ad.workgroups import workgroup
from dressi.packing.reads import Reads
from dressi.packing.shader_text import ShaderText
from dressi.packing.statements import mixed_function, needed, snippet, special_values
from dressi.packing.units import ATTACHMENT, UNIFORM


class Generator(Reads):
    """Writes the statements of one shader, one Function after the other."""

    mixed = mixed_function

    def emit(self, f: Function, text: ShaderText, body: list[str]) -> None:
        """Append the statements of one Function."""
        y = f.output
        self.names[y.uid] = name = f"v{len(self.names)}"
        values = self.values(f, name, text, body)
        own = workgroup(f.op)
        if own is not None:
            text.functions.append(fill_glsl(f.op.name, own.preamble(f), {}))
        code = snippet(self, f, text)
        code = fill_glsl(f.op.name, code, values, needed(f, code, values))
        origin = "" if f.op.kind == FREE else f"  // {f.op.name}  {f.line}"
        if f.op.scatter:
            body.append(f"  {code}{origin}")
        else:
            # Without fused multiply-adds: where a graph is cut into shaders would change the bits,
            # and an edge that two faces share would leave holes.
            declared = "" if y.uid in self.hoisted else f"  precise {y.vtype.glsl} {name};"
            body.append(f"{declared}{origin}\n  {code}")

    def values(self, f: Function, name: str, text: ShaderText, body: list[str]) -> dict[str, Value]:
        """Return what the markers of the GLSL of a Function stand for. name: of its output."""
        y = f.output
        values: dict[str, Value] = {
            "y": name,
            "T": y.vtype.glsl,
            "pos": "pos",
            "layer": "layer",
            "primitive": "primitive_id",
            "wy": self.width(y),
            "hy": y.size[1],
            "ly": y.layers,
        }
        for i, x in enumerate(f.inputs):
            read = f.op.read(i)
            if read == SAME:
                values[f"x{i}"] = self.operand(x, text, body)
            elif read == SAMPLER:
                values[f"sample{i}"] = self.sampler(f, i, text)
            else:
                values[f"fetch{i}"] = self.fetch(x, text)
            values |= {f"T{i}": x.vtype.glsl, f"l{i}": x.layers}
            values |= {f"w{i}": self.width(x), f"h{i}": x.size[1]}
        return values | special_values(self, f, text)

    def operand(self, x: Variable, text: ShaderText, body: list[str]) -> str:
        """Return the expression for x at the pixel being computed."""
        if x.uid in self.names:
            return self.names[x.uid]
        if x.creator is not None and x.uid in self.context.inline:
            self.emit(x.creator, text, body)
            return self.names[x.uid]
        v, accesses = self.substage.reads[x.uid]
        access = self.substage.access(v, accesses)
        name = f"i{len(self.names)}"
        self.names[x.uid] = name
        if access == ATTACHMENT:
            value = self.attachment(v, text)
        elif self.substage.lowered and accesses == {ATTACHMENT}:
            value = self.own_pixel(v, text)
        elif access == UNIFORM:
            value = self.uniform_value(v, text, "layer")
        else:
            value = f"{self.fetch(v, text)}(pos, layer)"
        declared = "" if v.uid in self.hoisted else f"{v.vtype.glsl} "
        body.append(f"  {declared}{name} = {value};  // {v.label()}")
        return name

    def computed(self, v: Variable, name: str, text: ShaderText) -> str:
        """Return a function that computes v at any pixel from what its own substage would read."""
        outer, self.names = self.names, {}
        body: list[str] = []
        for unit in self.substage.computed[v.uid]:
            for f in unit.functions:
                self.emit(f, text, body)
        result, self.names = self.names[v.uid], outer
        head = f"{v.vtype.glsl} {name}(ivec2 pos, int layer) {{  // {v.label()}"
        return "\n".join([head, *body, f"  return {result};", "}"])

    def image_stores(self, v: Variable, text: ShaderText, at: str, name: str) -> list[str]:
        """Return statements that store a value in the images of v, at a physical position."""
        t, lines = v.vtype, []
        for k, image in enumerate(self.places.images[v.uid]):
            b = self.bind("storage", image, "c")
            kind = "iimage2D" if t.is_int else "image2D"
            text.declarations.append(
                f"layout({t.plane.format.lower()}, set = 0, binding = {b.binding}) "
                f"uniform writeonly {kind} w{b.binding};"
            )
            value = name + (f"[{k}]" if t.is_matrix else "")
            pad = ", 0" * (4 - t.plane.n)
            four = "ivec4" if t.is_int else "vec4"
            lines.append(f"  imageStore(w{b.binding}, {at}, {four}({value}{pad}));")
        return lines
