"""Two levels of a pyramid of sums in one dispatch: 64 invocations add 4096 pixels.

In: an image. Out: the sums of its blocks of 64 x 64 pixels (of 4096 rows of a table). Not an op of
``F``: ``ad.lowering`` puts it in the place of two block sums where dispatches are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dressi.ad.graph import Function, Variable
from dressi.ad.registry import ANY, COMP, Op, Shape

SIDE = 64
"""Pixels on a side of a block: 8 x 8 invocations, each of which adds every eighth pixel."""


def _infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    x = xs[0]
    w, h = x.size
    size = (-(-w // SIDE**2), 1) if h == 1 else (-(-w // SIDE), -(-h // SIDE))
    return x.vtype, size, 1 if attrs["merge_layers"] else x.layers


def _groups(f: Function) -> tuple[int, int, int]:
    return (*f.output.size, f.output.layers)


def _glsl(f: Function) -> str:
    w, h = f.inputs[0].size
    merge = f.attr("merge_layers")
    lines = [
        "int me = int(gl_LocalInvocationIndex), layer = int(gl_WorkGroupID.z);",
        "ivec2 at = ivec2(gl_WorkGroupID.xy);",
        "precise {T} s = {T}(0);",
    ]
    if merge:
        lines.append("for (int l = 0; l < {l0}; l++)")
    else:
        lines.append("int l = layer;")
    if h == 1:
        n = SIDE**2
        lines += [
            f"for (int i = at.x * {n} + me; i < min((at.x + 1) * {n}, {w}); i += 64)",
            "  s += {fetch0}(ivec2(i, 0), l);",
        ]
    else:
        lines += [
            f"for (int j = at.y * {SIDE} + me / 8; j < min((at.y + 1) * {SIDE}, {h}); j += 8)",
            f"for (int i = at.x * {SIDE} + me % 8; i < min((at.x + 1) * {SIDE}, {w}); i += 8)",
            "  s += {fetch0}(ivec2(i, j), l);",
        ]
    lines += [
        "parts[me] = s;",
        "barrier();",
        "for (int n = 32; n > 0; n /= 2) {",
        "  if (me < n) parts[me] += parts[me + n];",
        "  barrier();",
        "}",
        "if (me == 0) {store}(at, layer, parts[0]);",
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
