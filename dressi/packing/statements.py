"""The statements of a dispatch: what may run together, and what need not run at all.

In: the generator of a shader, its Functions in order. Out: lines of GLSL. Scatters to the same row
share a block, where the lanes of a subgroup add up their values first (``accumulate.reduced``);
loads of several gathers stand next to each other, in front of whatever branches (``REST``);
Functions that are often not needed stand behind a branch (``guard``).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import TYPE_CHECKING

from dressi.ad.graph import Function, Variable
from dressi.ad.kernels import DISPATCH, FRAGMENT, REST, SUBGROUP, WORKGROUP, kernels
from dressi.ad.registry import ANY, RASTER
from dressi.ad.template import Value
from dressi.ad.workgroups import workgroup
from dressi.packing.accumulate import ATOMIC, adder, reduced, reducer
from dressi.packing.exact import INT64, exact_adder
from dressi.packing.guard import Guard, find_guard
from dressi.packing.shader_text import ShaderText
from dressi.packing.units import is_exact

if TYPE_CHECKING:
    from dressi.packing.glsl import Generator


_SUBGROUPS = {
    f"GL_KHR_shader_subgroup_{name}" for name in ("basic", "ballot", "arithmetic", "shuffle")
}


def _adds_together(g: Generator, f: Function) -> bool:
    """Return whether the lanes of a subgroup may add up what a scatter adds."""
    mode = g.context.accumulation
    able = g.substage.lowered and g.limits.subgroup_arithmetic
    return able and mode == ATOMIC and not is_exact(f.output, mode)


def snippet(g: Generator, f: Function, text: ShaderText) -> str:
    """Return the GLSL of one Function, with its markers."""
    together = g.substage.lowered and g.limits.subgroup_arithmetic
    if f.op.scatter == "add":
        together = _adds_together(g, f)
    variants = kernels(f.op)
    if SUBGROUP in variants and together:
        code = variants[SUBGROUP].text(f)
        text.extensions |= _SUBGROUPS if "subgroup" in code or f.op.scatter else set()
        return code
    targets = (WORKGROUP, DISPATCH, FRAGMENT) if g.substage.is_dispatch else (FRAGMENT,)
    return next(variants[target] for target in targets if target in variants).text(f)


def needed(f: Function, code: str, markers: Collection[str]) -> list[str]:
    """Those of the markers that the GLSL of a Function must have: of its output, unless it stores
    that itself; and of its inputs, unless another shader or a function of fragments reads them, or
    the GLSL reads none (a constant, as the gradient of a nearest read to its place)."""
    stores = f.op.scatter is not None or workgroup(f.op) is not None
    elsewhere = f.op.kind == RASTER or f.op.fragment_exit or dict(f.attrs).get("inner")
    inputs = [m for m in markers if m.startswith(("x", "fetch", "sample"))]
    read = inputs if not elsewhere and any(f"{{{m}}}" in code for m in inputs) else []
    return read if stores else ["y", *read]


def _emit_all(
    g: Generator, functions: Sequence[Function], text: ShaderText, body: list[str]
) -> None:
    """Append the statements of some Functions, in order; but first what is in front of a ``REST``,
    then those rests. Scatters to the same row come last, where subgroups add for them together."""
    together: dict[Hashable, list[Function]] = {}
    first: list[str] = []
    rests: list[str] = []
    others: list[str] = []
    for f in functions:
        if f.op.row is not None and _adds_together(g, f):
            key = (f.inputs[f.op.row].uid, f.output.size, f.output.layers)
            together.setdefault(key, []).append(f)
            continue
        lines: list[str] = []
        g.emit(f, text, lines)
        if all(f.op.read(i) == ANY for i in range(len(f.inputs))) and REST in lines[-1]:
            head, rest = lines[-1].split(REST)
            first.append(head.rstrip())
            rests.append(f"  {REST} {f.op.name}{rest}")
        else:
            others += lines
    body += first + rests + others
    for group in together.values():
        _rows_together(g, group, text, body)


def _rows_together(g: Generator, group: list[Function], text: ShaderText, body: list[str]) -> None:
    """Append a block that does the scatters of several Functions to the same row."""
    text.extensions |= _SUBGROUPS
    adds = []
    for f in group:
        y = f.output
        body.append(f"  // {f.op.name}  {f.line}")
        add = adder_function(g, y, text)
        array = g.buffer(y, text, "float")
        text.functions.append(reducer(f"reduce_{array}", array, y.vtype))
        value = g.operand(f.inputs[0], text, body)
        adds.append((f"reduce_{array}", add, value, y.vtype))
    y, row = group[0].output, group[0].op.row
    assert row is not None
    n = g.n_rows(y)
    base = f"layer * {n}" if y.layers > 1 else "0"
    body.append(reduced(g.operand(group[0].inputs[row], text, body), n, base, adds))


def emit_guarded(g: Generator, text: ShaderText, body: list[str]) -> None:
    """Append the statements of all Functions; those that are often not needed behind a
    branch."""
    guard = find_guard(g.functions, {v.uid for v in g.substage.outputs})
    if guard is None:
        _emit_all(g, g.functions, text, body)
        return
    for x in guard.before:
        if x.uid in g.substage.reads:
            g.operand(x, text, body)
    for guarded, run in guard.runs:
        if not guarded:
            _emit_all(g, run, text, body)
            continue
        condition = g.operand(guard.condition, text, body)
        outer, inner = dict(g.names), list[str]()
        g.hoisted = guard.outside.keys()
        _emit_all(g, run, text, inner)
        g.hoisted = ()
        for uid in [uid for uid in g.names if uid not in outer]:
            # What is declared in the block is not known behind it, but its name is taken.
            if uid in guard.outside:
                t = guard.outside[uid].vtype.glsl
                body.append(f"  precise {t} {g.names[uid]} = {t}(0);")
                outer[uid] = g.names[uid]
            else:
                outer[-1 - len(outer)] = ""
        g.names = outer
        zero = f"{guard.condition.vtype.glsl}(0)"
        body.append(f"  if ({condition} != {zero}) {{")
        body += ["  " + line.replace("\n", "\n  ") for line in inner]
        body.append("  }")


def emit_outside(
    g: Generator, guard: Guard, text: ShaderText, body: list[str], tested: bool = False
) -> None:
    """Append the statements of the fragments where the condition of a guard is 0, which discard the
    others, where that is not tested elsewhere. What is guarded is 0 in them: nothing takes it
    there."""
    for guarded, run in guard.runs:
        if not guarded:
            for f in run:
                if f.output.uid not in g.names:
                    g.emit(f, text, body)
            continue
        if not tested:
            condition = g.operand(guard.condition, text, body)
            body.append(f"  if ({condition} != {guard.condition.vtype.glsl}(0)) discard;")
            tested = True
        for f in run:
            if f.output.uid in guard.outside:
                name = g.names[f.output.uid] = f"v{len(g.names)}"
                t = f.output.vtype.glsl
                body.append(f"  {t} {name} = {t}(0);  // {f.op.name}")


def mixed_function(g: Generator, v: Variable, name: str, text: ShaderText) -> str:
    """Return a function T name(ivec2 pos, int layer) of a value that its writer draws where a mask
    is not 0: it computes what a dense pass would have written elsewhere."""
    guard = g.substage.mixed[v.uid].guard
    outer, g.names = g.names, {}
    body: list[str] = []
    emit_outside(g, guard, text, body, tested=True)
    condition = g.operand(guard.condition, text, body)
    outside, g.names = g.names[v.uid], outer
    is_drawn = f"{condition} != {guard.condition.vtype.glsl}(0)"
    head = f"{v.vtype.glsl} {name}(ivec2 pos, int layer) {{  // {v.label()}"
    value = f"{is_drawn} ? {name}_drawn(pos, layer) : {outside}"
    return "\n".join([head, *body, f"  return {value};", "}"])


def emit_tail(g: Generator, own: Function, text: ShaderText, body: list[str]) -> None:
    """What follows a dispatch of one group that makes one pixel (``packing.epilogue``): the first
    invocation does it. Stores come last, also that of what is carried: a store may be an update in
    place of a pixel that is read here."""
    rest = [f for f in g.functions if f is not own]
    if not rest:
        return
    g.names = {own.output.uid: "carried"}
    lines = ["ivec2 pos = ivec2(0); int layer = 0;"]
    for f in rest:
        g.emit(f, text, lines)
    for v in g.substage.outputs:
        lines += g.image_stores(v, text, "pos", g.names[v.uid])
    body += ["  if (gl_LocalInvocationIndex == 0u) {", *lines, "  }"]


def special_values(g: Generator, f: Function, text: ShaderText) -> dict[str, Value]:
    """Return what the markers stand for that only scatters and kernels of workgroups have."""
    values: dict[str, Value] = {}
    kernel = workgroup(f.op)
    if f.op.scatter == "add":
        values["add"] = adder_function(g, f.output, text)
    if f.op.scatter == "raw":
        wide = kernel is not None and kernel.word_bits == 64
        text.extensions.update(INT64 if wide else ())
        values["buffer"] = g.buffer(f.output, text, "uint64_t" if wide else "uint")
    if kernel is not None:
        values["inner"] = lambda: fragment_function(g, f, text)
        values["store"] = lambda: store_function(g, f.output, text)
    return values


def fragment_function(g: Generator, f: Function, text: ShaderText) -> str:
    """Return the name of a function of a fragment: its depth, and whether it is kept."""
    if not text.is_new("fragment"):
        return "fragment"
    fragment = f.attr("inner")
    outer, g.names = g.names, {}
    body: list[str] = []
    for each in fragment.functions:
        g.emit(each, text, body)
    depth, keep = (g.operand(v, text, body) for v in (fragment.depth, fragment.keep))
    g.names = outer
    arguments = "int primitive_id, ivec2 pos, int layer, out float depth, out float keep"
    body.append(f"  depth = {depth}; keep = {keep};")
    text.functions.append("\n".join([f"void fragment({arguments}) {{", *body, "}"]))
    return "fragment"


def store_function(g: Generator, v: Variable, text: ShaderText) -> str:
    """Return the name of a function void f(ivec2 pos, int layer, T value) that stores v."""
    if len(g.functions) > 1:  # what follows takes it from here, and stores it too
        text.functions.append(f"{v.vtype.glsl} carried;")
        lines = ["  carried = value;"]
    else:
        lines = g.image_stores(v, text, g.address(v), "value")
    stores = "\n".join(lines)
    text.functions.append(f"void store(ivec2 p, int l, {v.vtype.glsl} value) {{\n{stores}\n}}")
    return "store"


def adder_function(g: Generator, y: Variable, text: ShaderText) -> str:
    """Return the name of a function void f(int index, T value) that adds what is not exactly 0."""
    mode = g.context.accumulation
    if is_exact(y, mode):
        array, n_components, wide = g.exact_buffer(y, text)
        name = f"add_{array}"
        text.functions += exact_adder(name, array, y.vtype, n_components, wide)
        return name
    array = g.buffer(y, text, "float" if mode == ATOMIC else "uint")
    if mode == ATOMIC:
        text.extensions.add("GL_EXT_shader_atomic_float")
    name = f"add_{array}"
    text.functions += adder(name, array, y.vtype, mode)
    return name
