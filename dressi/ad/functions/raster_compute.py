"""Rasterization in a compute shader: the same fragments, found by 128 invocations a group.

In: corner tables, and the Functions that turn a fragment into a depth and a decision to keep it.
Out: for every pixel the key (depth, primitive) of the nearest kept fragment, in a buffer. Not an
op of ``F``: ``ad.lowering`` puts it in the place of a rasterization where that is faster.

A group takes 64 primitives, far from each other in the table: neighbours are of one size, and
would keep one group busy long after the others. They are set up: corners snapped to 1/256 pixel, as
hardware does, so that edges are integers and the top-left rule is exact. Then the rows of all 64
are dealt out to the invocations, and the columns that each row covers are found from the edges;
then the covered pixels of these rows are dealt out in pairs, so no invocation waits for a larger
face, and what it computes of the face serves two pixels. Where there are few primitives, several
groups share them, every one its own rows. (Tried on an H200, and slower: what the fragments of a
primitive share, or what they look up, in shared memory; groups of one subgroup without shared
memory; a look at the key before the atomic operation; four pixels at once.) What crosses a plane
of the view volume is clipped, and what is left is taken in the same way. Nearest means the smallest
depth, and the smaller number at a tie: the largest of the inverted keys, so that 0 is an empty
pixel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dressi.ad.graph import Function, Variable
from dressi.ad.kernels import implement
from dressi.ad.registry import ANY, COMP, Op
from dressi.ad.template import Value, expand_glsl, expand_kernel
from dressi.ad.vtype import INT, IVEC2
from dressi.ad.workgroups import Workgroup

GROUP = 64
"""Primitives of a group."""
LANES = 128
"""Invocations of a group: more than primitives, so that shared memory does not limit how many a
processor holds."""
PAIR = 2
"""Neighbours in a row that an invocation takes together; the last may lie beyond the row."""
WANTED_GROUPS = 4096
"""Groups that keep a large device busy; rows are dealt out until there are as many."""
MOST_SLICES = 256
ROWS_EACH = 2
"""Rows of a primitive that make a slice worth its own set-up of the primitive."""
GUARD_PX = 16384
"""Pixels from the middle of the picture up to which corners are snapped without clipping: far
enough that hardly a face is clipped, near enough that 1/256 pixels fit 23 bits."""


@dataclass(frozen=True, eq=False)
class Inner:
    """What is computed for a fragment. functions: in order, the rasterization first. depth, keep:
    their results (or Variables from outside)."""

    functions: tuple[Function, ...]
    depth: Variable
    keep: Variable


LEAST_W = 1.2e-38
"""Of a corner that is drawn: a device may take what is smaller for 0, and divide by it."""

KEY64, DEPTH32, WINNER32 = "key64", "depth32", "winner32"
"""What is looked for: both in one pass with 64-bit atomics; else the depth, then among those of
that depth the primitive."""


def slices(n_primitives: int, layers: int, height: int) -> int:
    """Groups that share the rows of the same primitives: as many as keep a device busy, all of them
    where each has a few rows (where half of the primitives fill the picture)."""
    groups = -(-n_primitives // GROUP) * layers
    rows = height / math.sqrt(max(n_primitives / 2, 1))
    few = max(math.ceil(rows / ROWS_EACH), -(-WANTED_GROUPS // (2 * groups)))
    return max(1, min(-(-WANTED_GROUPS // groups), MOST_SLICES, height, few))


def raster_keys(
    corners: Sequence[Variable],
    others: Sequence[tuple[Variable, str]],
    inner: Inner,
    phase: str,
    attrs: dict[str, Any],
    slots: int = 1,
    slot_update: str = "",
) -> tuple[Op, tuple[Variable, ...], dict[str, Any]]:
    """The op, its inputs and attributes. others: what the fragments read, and how (the depth of the
    first phase last for WINNER32). attrs: those of the rasterization. slots: per pixel, side
    by side; slot_update: the template of what a kept fragment does with those from
    ``slot * slots``, where not only the nearest is looked for: {n} slots, {depths} of the first
    phase."""
    vtype = IVEC2 if phase == KEY64 else INT
    op = implement(
        Op(
            f"raster_kbuffer_{phase}" if slots > 1 else f"raster_{phase}",
            lambda xs, a: (vtype, (a["size"][0] * slots, a["size"][1]), xs[0].layers),
            reads=(*[ANY] * len(corners), *[how for _, how in others]),
            kind=COMP,
            scatter="raw",
            domain=0,
        ),
        Workgroup(
            lambda f: _kernel(f)[1],
            preamble=lambda f: _kernel(f)[0],
            groups=_groups,
            lanes=LANES,
            word_bits=64 if phase == KEY64 else 32,
        ),
    )
    inputs = (*corners, *[v for v, _ in others])
    values: dict[str, Value] = {"n": slots} if slots > 1 else {}
    if phase == WINNER32:
        values["depths"] = f"{{fetch{len(inputs) - 1}}}"
    slot_update = expand_glsl(op.name, slot_update or _SLOT_UPDATE[phase], **values)
    own = {"inner": inner, "phase": phase, "slot_update": slot_update}
    return op, inputs, {**attrs, **own, "n_corners": len(corners)}


def _slices(f: Function) -> int:
    corner = f.inputs[0]
    return slices(corner.size[0], corner.layers, f.attr("size")[1])


def _groups(f: Function) -> tuple[int, int, int]:
    corner = f.inputs[0]
    return -(-corner.size[0] // GROUP), _slices(f), corner.layers


_SIDE = """// Sign of d x q: the side of a line along d on which q lies.
int side(ivec2 d, ivec2 q) {
  if (max(max(abs(d.x), abs(d.y)), max(abs(q.x), abs(q.y))) < 32768 / 2) {
    return sign(d.x * q.y - d.y * q.x);
  }
  int h, l, g, k;
  imulExtended(d.x, q.y, h, l);
  imulExtended(d.y, q.x, g, k);
  return h != g ? (h > g ? 1 : -1) : l == k ? 0 : uint(l) > uint(k) ? 1 : -1;
}"""
_SIDE64 = """// Sign of d x q: the side of a line along d on which q lies.
int side(ivec2 d, ivec2 q) {
  int64_t a = int64_t(d.x) * int64_t(q.y), b = int64_t(d.y) * int64_t(q.x);
  return a > b ? 1 : a < b ? -1 : 0;
}"""

_SUM = """barrier();
    for (int step = 1, from = 0; step < {count}; step *= 2, from = 1 - from) {
      if (me < {count}) {
        int before = me >= step ? {sums}[from][me - step] : 0;
        {sums}[1 - from][me] = {sums}[from][me] + before;
      }
      barrier();
    }"""

# The depth attachment is cleared to 1 and compared with LESS; what is written there is clamped.
_UPDATE = """for (int k = 0; k < {pair}; k++) {
          float depth = depths[k];
          if (kept[k] == 0.0 || !(depth < 1.0)) continue;
          ivec2 pixel = ivec2(first.x + k, first.y);
          uint bits = depth > 0.0 ? floatBitsToUint(depth) : 0u;
          int slot = (layer * {height} + pixel.y) * {width} + pixel.x;
          {slot_update}
        }"""

_SLOT_UPDATE = {
    KEY64: "atomicMax({buffer}[slot], ~((uint64_t(bits) << 32) | uint64_t(uint(primitive))));",
    DEPTH32: "atomicMax({buffer}[slot], ~bits);",
    WINNER32: "if (uint({depths}(pixel, layer)) == ~bits) "
    "atomicMax({buffer}[slot], ~uint(primitive));",
}


def _view(f: Function) -> str:
    """GLSL of the scissor of the layer: x, y, width, height."""
    scissors = f.attr("scissor")
    if len(scissors) > 1:
        listed = ", ".join(f"ivec4{tuple(s)}" for s in scissors)
        return f"ivec4[]({listed})[layer]"
    return f"ivec4{tuple(scissors[0]) if scissors else (0, 0, *f.attr('size'))}"


def _prefix_sum(op: str, sums: str, count: int) -> tuple[str, int]:
    """GLSL of the prefix sums of so many numbers, and the half of the array in which they end."""
    return expand_glsl(op, _SUM, sums=sums, count=count), (count.bit_length() - 1) % 2


def _kernel(f: Function) -> tuple[str, str]:
    """What stands in front of main(), and main()."""
    op, (w, h), n = f.op.name, f.attr("size"), f.attr("n_corners")
    corners = [f"{{fetch{k}}}(ivec2(mine, 0), layer)" for k in range(n)]
    corners.append(corners[0])  # where there is no fourth
    sum_rows, last_rows = _prefix_sum(op, "row_sums", GROUP)
    sum_pairs, last_pairs = _prefix_sum(op, "pair_sums", LANES)
    update = {"pair": PAIR, "width": w, "height": h, "slot_update": f.attr("slot_update")}
    return expand_kernel(
        op,
        "raster",
        group=GROUP,
        lanes=LANES,
        pair=PAIR,
        width=f"{w}.0",
        height=f"{h}.0",
        view=_view(f),
        slices=_slices(f),
        n_primitives="{w0}",
        quads="true" if n == 4 else "false",
        turns=1 + 7 * (n - 2),
        guard=repr(2.0 * GUARD_PX / max(w, h)),
        least_w=repr(LEAST_W),
        # y runs down: what is counter-clockwise in the picture has a negative area.
        culled={"none": "false", "back": "s > 0", "front": "s < 0"}[f.attr("cull")],
        side=_SIDE64 if f.attr("phase") == KEY64 else _SIDE,
        sum_rows=sum_rows,
        last_rows=last_rows,
        sum_pairs=sum_pairs,
        last_pairs=last_pairs,
        update=expand_glsl(op, _UPDATE, **update),
        **{f"corner{k}": corner for k, corner in enumerate(corners[:4])},
    )
