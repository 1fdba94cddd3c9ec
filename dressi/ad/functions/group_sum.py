"""A level of a sum by groups of invocations: 64 of them add up 1024 pixels or more.

In: an image or a table. Out: a table of the sums of its parts, one per group. Neighbouring
invocations load neighbouring pixels, so that a load of a group is a few whole lines of memory, and
sixteen loads are on their way before the first is added: without either a GPU waits for memory most
of the time. The order of the additions is fixed: every invocation its own pixels in turn, then a
tree over the invocations; what the additions lose is added at the end. It is not the order of the
pyramid of blocks, so the last bits may differ. Not an op of ``F``: ``ad.lowering`` puts it in the
place of that pyramid where dispatches are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dressi.ad.functions.reduce import compensated
from dressi.ad.graph import Function, Size, Variable
from dressi.ad.kernels import implement
from dressi.ad.registry import ANY, COMP, Op, Shape, apply
from dressi.ad.workgroups import Workgroup

LANES = (8, 8)
"""Invocations of a group, side by side and below each other, where it takes a tile of an image: a
row of eight floats is a sector of memory (32 bytes), whether images lie there by rows or by
tiles."""
N_LANES = LANES[0] * LANES[1]
TOGETHER = 16
"""Pixels that an invocation loads together; of matrices a quarter, for they take registers."""
ALONE = 4096
"""Pixels that one group adds up by itself: four loads in turn take less than a second dispatch."""
MOST_GROUPS = 1024
"""Groups that are aimed at: one group adds up their sums, each invocation with one batch."""


@dataclass(frozen=True)
class _Batch:
    """What an invocation loads at once, as GLSL, in a loop over b."""

    count: int
    """Batches of an invocation."""
    start: str
    """Statement before the loads."""
    loads: list[tuple[str, str, str]]
    """Pixel, layer, and whether there is such a pixel (empty: always) of each load."""


def _side(n: int) -> int:
    """An invocation adds up side x side of n pixels."""
    side = 4
    while n > MOST_GROUPS * N_LANES * side * side:
        side *= 2
    return side


def _tiles(w: int, rows: int) -> Size | None:
    """Tiles side by side and below each other; None: groups take pixels in order, row by row."""
    side = _side(w * rows)
    tw, th = LANES[0] * side, LANES[1] * side
    fit = w * rows > ALONE and w >= tw and rows >= th
    return (-(-w // tw), -(-rows // th)) if fit else None


def _n_groups(w: int, rows: int) -> int:
    tiles, n = _tiles(w, rows), w * rows
    if tiles is not None:
        return tiles[0] * tiles[1]
    return 1 if n <= ALONE else -(-n // (N_LANES * _side(n) ** 2))


def _in_order(w: int, h: int, rows: int, most: int) -> _Batch:
    """Of a group that takes pixels in order."""
    n = w * rows
    each = -(-n // N_LANES) if n <= ALONE else _side(n) ** 2
    count = -(-each // most)
    size = -(-each // count)
    span = N_LANES * count * size
    loads = []
    for k in range(size):
        i, test = f"i + {N_LANES * k}u", ""
        if n % span:
            i, test = f"min({i}, {n - 1}u)", f"{i} < {n}u"
        at = f"ivec2({i}, 0)" if rows == 1 else f"ivec2(({i}) % {w}u, ({i}) / {w}u % {h}u)"
        loads.append((at, "layer" if rows == h else f"int(({i}) / {w * h}u)", test))
    return _Batch(count, f"uint i = at * {span}u + b * {N_LANES * size}u + me;", loads)


def _in_a_tile(w: int, h: int, rows: int, most: int, columns: int) -> _Batch:
    """Of a group that takes a tile, of which there are so many side by side."""
    side = _side(w * rows)
    size = min(most, side * side)
    (lw, lh), (tw, th) = LANES, (LANES[0] * side, LANES[1] * side)
    start = (
        f"uint x = at % {columns}u * {tw}u + b * {size}u % {side}u * {lw}u + me % {lw}u, "
        f"y = at / {columns}u * {th}u + b * {size}u / {side}u * {lh}u + me / {lw}u;"
    )
    loads = []
    for k in range(size):
        x, y, tests = f"x + {k % side * lw}u", f"y + {k // side * lh}u", []
        if w % tw:
            tests.append(f"{x} < {w}u")
            x = f"min({x}, {w - 1}u)"
        if rows % th:
            tests.append(f"{y} < {rows}u")
            y = f"min({y}, {rows - 1}u)"
        at, layer = f"ivec2({x}, {y})", "layer"
        if rows != h:
            at, layer = f"ivec2({x}, ({y}) % {h}u)", f"int(({y}) / {h}u)"
        loads.append((at, layer, " && ".join(tests)))
    return _Batch(side * side // size, start, loads)


def _rows(x: Variable, merge: bool) -> int:
    """Merged layers lie below each other."""
    return x.size[1] * x.layers if merge else x.size[1]


def _infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    x, merge = xs[0], attrs["merge_layers"]
    return x.vtype, (_n_groups(x.size[0], _rows(x, merge)), 1), 1 if merge else x.layers


def _glsl(f: Function) -> str:
    x = f.inputs[0]
    (w, h), rows = x.size, _rows(x, f.attr("merge_layers"))
    most = TOGETHER // 4 if x.vtype.is_matrix else TOGETHER
    tiles = _tiles(w, rows)
    if tiles is None:
        batch = _in_order(w, h, rows, most)
    else:
        batch = _in_a_tile(w, h, rows, most, tiles[0])
    values = ",\n    ".join(
        f"a{k} = {{fetch0}}({at}, {layer})" for k, (at, layer, _) in enumerate(batch.loads)
    )
    begin, add, end = compensated(x.vtype, "s", "lost")
    adds = [
        f"  {f'if ({test}) ' if test else ''}{add(f'a{k}')}"
        for k, (_, _, test) in enumerate(batch.loads)
    ]
    keep = ["parts[me] = s;", "rests[me] = lost;"] if end else ["parts[me] = s;"]
    lines = [
        "uint me = gl_LocalInvocationIndex, at = gl_WorkGroupID.x;",
        "int layer = int(gl_WorkGroupID.z);",
        begin,
        f"for (uint b = 0u; b < {batch.count}u; b++) {{",
        f"  {batch.start}",
        f"  {{T}} {values};",
        *adds,
        "}",
        *keep,
        f"for (uint n = {N_LANES // 2}u; n > 0u; n /= 2u) {{",
        "  barrier();",
        "  if (me < n) {",
        f"    {add('parts[me + n]')}",
        *(["    lost += rests[me + n];"] if end else []),
        *(f"    {line}" for line in keep),
        "  }",
        "}",
        end,
        "if (me == 0u) {store}(ivec2(at, 0), layer, s);",
    ]
    return "\n  ".join(lines)


def _shared(f: Function) -> str:
    t = f.output.vtype
    names = ("parts", "rests") if compensated(t, "s", "lost")[2] else ("parts",)
    return "\n".join(f"shared {t.glsl} {name}[{N_LANES}];" for name in names)


GROUP_SUM = Op(
    "group_sum",
    _infer,
    reads=(ANY,),
    once=(0,),
    kind=COMP,
)
implement(
    GROUP_SUM,
    Workgroup(
        _glsl,
        preamble=_shared,
        groups=lambda f: (f.output.size[0], 1, f.output.layers),
        lanes=N_LANES,
        stores_first=True,
    ),
)


def group_sums(x: Variable, merge_layers: bool) -> Variable:
    """The sum over all pixels (and layers), @ 1x1, as dispatches: one, or two for large images."""
    merge = merge_layers and x.layers > 1
    x = apply(GROUP_SUM, (x,), merge_layers=merge)
    return x if x.size == (1, 1) else group_sums(x, False)
