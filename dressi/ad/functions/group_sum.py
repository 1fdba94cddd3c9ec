"""Two levels of a pyramid of sums in one dispatch: 64 invocations add 4096 pixels.

In: an image. Out: the sums of its blocks of 64 x 64 pixels (of 4096 rows of a table), added in the
order of the two block sums that they stand for, so the bits are theirs. Not an op of ``F``:
``ad.lowering`` puts it in their place where dispatches are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dressi.ad.functions.blocks import block_glsl
from dressi.ad.graph import Function, Variable
from dressi.ad.registry import ANY, COMP, Op, Shape

SIDE = 64
"""Pixels on a side of a block: 8 x 8 invocations, each of which adds 8 x 8 pixels."""


def _infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    x = xs[0]
    w, h = x.size
    size = (-(-w // SIDE**2), 1) if h == 1 else (-(-w // SIDE), -(-h // SIDE))
    return x.vtype, size, 1 if attrs["merge_inner"] or attrs["merge_outer"] else x.layers


def _groups(f: Function) -> tuple[int, int, int]:
    return (*f.output.size, f.output.layers)


def _glsl(f: Function) -> str:
    w, h = f.inputs[0].size
    inner, outer = f.attr("merge_inner"), f.attr("merge_outer")
    layers = "{l0}" if outer else "1"
    if h == 1:
        n_blocks = -(-w // 64)
        start = ["int b = at.x * 64 + me;", *block_glsl("s", "b", "l", (w, h))]
        last = f"min(64, {n_blocks} - at.x * 64)"
        add = [f"for (int k = 0; k < {last}; k++) total += parts[k];"]
    else:
        bw, bh = -(-w // 8), -(-h // 8)
        start = [
            "ivec2 b = at * 8 + ivec2(me % 8, me / 8);",
            *block_glsl("s", "b", "l", (w, h)),
        ]
        add = [
            f"for (int j = 0; j < min(8, {bh} - at.y * 8); j++)",
            f"for (int i = 0; i < min(8, {bw} - at.x * 8); i++)",
            "  total += parts[j * 8 + i];",
        ]
    lines = [
        "int me = int(gl_LocalInvocationIndex), layer = int(gl_WorkGroupID.z);",
        "ivec2 at = ivec2(gl_WorkGroupID.xy);",
        "precise {T} total = {T}(0);",
        f"for (int n = 0; n < {layers}; n++) {{",
        "precise {T} s = {T}(0);",
        "for (int l = 0; l < {l0}; l++) {" if inner else f"{{ int l = {'n' if outer else 'layer'};",
        *start,
        "}",
        "parts[me] = s;",
        "barrier();",
        "if (me == 0) {",
        *add,
        "}",
        "barrier();",
        "}",
        "if (me == 0) {store}(at, layer, total);",
    ]
    return "\n  ".join(lines)


GROUP_SUM = Op(
    "group_sum",
    _infer,
    _glsl,
    reads=(ANY,),
    kind=COMP,
    preamble=lambda f: f"shared {f.output.vtype.glsl} parts[64];",
    groups=_groups,
)
