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
from dressi.ad.kernels import Workgroup, implement
from dressi.ad.registry import ANY, COMP, Op
from dressi.ad.vtype import INT, IVEC2

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
    store: str = "",
) -> tuple[Op, tuple[Variable, ...], dict[str, Any]]:
    """The op, its inputs and attributes. others: what the fragments read, and how (the depth of the
    first phase last for WINNER32). attrs: those of the rasterization. slots: of each pixel, side by
    side; store: what a kept fragment does with those from ``slot * slots``, where not only the
    nearest is looked for."""
    vtype = IVEC2 if phase == KEY64 else INT
    op = implement(
        Op(
            f"raster_kbuffer_{phase}" if slots > 1 else f"raster_{phase}",
            lambda xs, a: (vtype, (a["size"][0] * slots, a["size"][1]), xs[0].layers),
            reads=(*[ANY] * len(corners), *[how for _, how in others]),
            kind=COMP,
            scatter="raw64" if phase == KEY64 else "raw",
            domain=0,
        ),
        Workgroup(_body, preamble=_preamble, groups=_groups, lanes=LANES),
    )
    inputs = (*corners, *[v for v, _ in others])
    own = {"inner": inner, "phase": phase, "store": store or _STORE[phase]}
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
}
"""
_SIDE64 = """// Sign of d x q: the side of a line along d on which q lies.
int side(ivec2 d, ivec2 q) {
  int64_t a = int64_t(d.x) * int64_t(q.y), b = int64_t(d.y) * int64_t(q.x);
  return a > b ? 1 : a < b ? -1 : 0;
}
"""

_HELPERS = """shared int row_sums[2][GROUP];  // rows of all primitives up to one
shared int pair_sums[2][LANES];  // pairs of covered pixels of these rows up to one
shared ivec4 rows[GROUP];  // of both triangles: first row, how many
shared ivec4 firsts[GROUP];  // corners 0 and 1, in 1/256 pixel
shared ivec4 lasts[GROUP];  // corners 2 and 3
shared ivec2 turns[GROUP];  // of the two triangles: 1 and -1 by orientation, 0 is not drawn
shared ivec4 spans[LANES];  // column before the first pair's sum, row, place in group, last column
shared bool any_crossing;

SIDE
// Inside of an edge, or on it where it is a top or a left one.
bool within(ivec2 a, ivec2 b, ivec2 p) {
  ivec2 d = b - a;
  int s = side(d, p - a);
  return s > 0 || (s == 0 && (d.y < 0 || (d.y == 0 && d.x > 0)));
}

ivec2 snapped(vec4 p) {
  precise vec2 at = (p.xy / p.w * 0.5 + 0.5) * vec2(WIDTH, HEIGHT);
  return ivec2(floor(at * 256.0 + 0.5));
}

// Whether something is NaN or infinite, by its bits: comparisons with itself may be folded away.
bool is_bad(vec3 v) {
  uvec3 exponents = floatBitsToUint(v) & 0x7F800000u;
  return any(equal(exponents, uvec3(0x7F800000u)));
}

// 0: not seen, 1: wholly in front of the camera and near the picture, 2: to be clipped.
int place(vec4 a, vec4 b, vec4 c) {
  vec3 x = vec3(a.x, b.x, c.x), y = vec3(a.y, b.y, c.y), z = vec3(a.z, b.z, c.z);
  vec3 w = vec3(a.w, b.w, c.w);
  if (is_bad(x) || is_bad(y) || is_bad(z) || is_bad(w)) return 0;
  if (all(lessThan(z, vec3(0.0))) || all(greaterThan(z, w)) || all(greaterThan(x, w))
      || all(lessThan(x, -w)) || all(greaterThan(y, w)) || all(lessThan(y, -w))) return 0;
  bool whole = all(greaterThan(w, vec3(LEAST_W))) && all(greaterThanEqual(z, vec3(0.0)))
      && all(lessThanEqual(z, w)) && all(lessThanEqual(abs(x), w * GUARD))
      && all(lessThanEqual(abs(y), w * GUARD));
  return whole ? 1 : 2;
}

// The orientation of a triangle; 0 for those without area and those that are culled.
int turn_of(ivec2 a, ivec2 b, ivec2 c) {
  int s = side(b - a, c - a);
  return CULLED ? 0 : s;
}

// Rows of this slice with pixel centres between two heights: the first, how many.
ivec2 rows_between(int low, int high, ivec4 view, int slice) {
  low = max((low + 127) >> 8, view.y);
  high = min((high - 128) >> 8, view.y + view.w - 1);
  low += (slice - low % SLICES + SLICES) % SLICES;
  return ivec2(low, high < low ? 0 : (high - low) / SLICES + 1);
}

// Narrows columns to those inside of an edge: found roughly, a little too far out, then looked at
// exactly. What is far from the picture may be far off: it is beyond the same side.
void narrow(ivec2 a, ivec2 b, int y, ivec4 view, inout ivec2 columns) {
  ivec2 d = b - a;
  if (d.y == 0) {
    if (!within(a, b, ivec2(a.x, y))) columns.y = -1;
    return;
  }
  float x = (float(a.x - 128) + float(d.x) * (float(y - a.y) / float(d.y))) / 256.0;
  float least = float(view.x - 1), most = float(view.x + view.z);
  if (d.y < 0) {
    int at = int(clamp(ceil(x - 0.03125), least, most));
    columns.x = max(columns.x, within(a, b, ivec2(at * 256 + 128, y)) ? at : at + 1);
  } else {
    int at = int(clamp(floor(x + 0.03125), least, most));
    columns.y = min(columns.y, within(a, b, ivec2(at * 256 + 128, y)) ? at : at - 1);
  }
}

// First and last column that a triangle covers in a row; the last is less where there is none.
ivec2 covered(ivec2 a, ivec2 b, ivec2 c, int turn, int row, ivec4 view) {
  ivec2 second = turn > 0 ? b : c, third = turn > 0 ? c : b;
  int y = row * 256 + 128;
  ivec2 columns = ivec2(view.x, view.x + view.z - 1);
  narrow(a, second, y, view, columns);
  narrow(second, third, y, view, columns);
  narrow(third, a, y, view, columns);
  return columns;
}

float depth_of_plane(vec4 p, int plane) {
  return plane == 0 ? p.z : plane == 1 ? p.w - p.z : plane == 2 ? p.w * GUARD - p.x
      : plane == 3 ? p.w * GUARD + p.x : plane == 4 ? p.w * GUARD - p.y : p.w * GUARD + p.y;
}

// Clips a polygon to the view volume (to the guard band at the sides). An edge is cut from its
// inner to its outer end, so that two faces that share it cut it at the same point.
int clipped(inout vec4 points[10], int n) {
  vec4 old[10];
  for (int plane = 0; plane < 6; plane++) {
    int m = 0;
    for (int i = 0; i < n; i++) old[i] = points[i];
    for (int i = 0; i < n; i++) {
      vec4 p = old[i], q = old[i + 1 < n ? i + 1 : 0];
      precise float e = depth_of_plane(p, plane), f = depth_of_plane(q, plane);
      if (e >= 0.0 && m < 10) points[m++] = p;
      if ((e >= 0.0) != (f >= 0.0) && m < 10) {
        precise vec4 cut = e >= 0.0 ? p + (q - p) * (e / (e - f)) : q + (p - q) * (f / (f - e));
        points[m++] = cut;
      }
    }
    n = m;
  }
  return n;
}
"""


def _preamble(f: Function) -> str:
    w, h = f.attr("size")
    guard = 2.0 * GUARD_PX / max(w, h)
    # y runs down: what is counter-clockwise in the picture has a negative area.
    culled = {"none": "false", "back": "s > 0", "front": "s < 0"}[f.attr("cull")]
    text = _HELPERS.replace("SIDE\n", _SIDE64 if f.attr("phase") == KEY64 else _SIDE, 1)
    for name, value in (
        ("GROUP", str(GROUP)),
        ("LANES", str(LANES)),
        ("WIDTH", f"{w}.0"),
        ("HEIGHT", f"{h}.0"),
        ("GUARD", repr(guard)),
        ("LEAST_W", repr(LEAST_W)),
        ("CULLED", culled),
        ("SLICES", str(_slices(f))),
    ):
        text = text.replace(name, value)
    return text


_MAIN = """int me = int(gl_LocalInvocationIndex), slice = int(gl_WorkGroupID.y);
  int layer = int(gl_WorkGroupID.z);
  int mine = me * int(gl_NumWorkGroups.x) + int(gl_WorkGroupID.x);
  ivec4 view = VIEW;
  if (me == 0) any_crossing = false;
  barrier();
  int found = 0;
  if (me < GROUP && mine < N_PRIMITIVES) {
    vec4 p0 = CORNER0, p1 = CORNER1, p2 = CORNER2, p3 = CORNER3;
    found = place(p0, p1, p2);
    if (QUADS && place(p0, p2, p3) != found) found = 2;
    if (found == 2) any_crossing = true;
  }
  barrier();
  // Turn 0 takes what is whole; later turns one triangle of what was left of each that was clipped.
  int n_turns = any_crossing ? TURNS : 1;
  for (int turn = 0; turn < n_turns; turn++) {
    bool has = found == 1 && turn == 0;
    vec4 q0, q1, q2, q3;
    if (found == min(turn + 1, 2)) {  // read again: kept, they would take 16 registers
      q0 = CORNER0; q1 = CORNER1; q2 = CORNER2; q3 = CORNER3;
    }
    if (found == 2 && turn > 0) {
      vec4 points[10];
      bool second = turn > 7;
      points[0] = q0; points[1] = second ? q2 : q1; points[2] = second ? q3 : q2;
      int n = clipped(points, 3), k = (turn - 1) % 7 + 1;
      if (k + 1 < n) {
        q0 = points[0]; q1 = points[k]; q2 = points[k + 1]; q3 = q0;
        has = min(min(q0.w, q1.w), q2.w) > LEAST_W;
      }
    }
    ivec4 mine_rows = ivec4(0);
    if (has) {
      ivec2 a = snapped(q0), b = snapped(q1), c = snapped(q2), d = QUADS ? snapped(q3) : a;
      ivec2 way = ivec2(turn_of(a, b, c), QUADS && turn == 0 ? turn_of(a, c, d) : 0);
      int low = min(a.y, c.y), high = max(a.y, c.y);
      if (way.x != 0) mine_rows.xy = rows_between(min(low, b.y), max(high, b.y), view, slice);
      if (way.y != 0) mine_rows.zw = rows_between(min(low, d.y), max(high, d.y), view, slice);
      firsts[me] = ivec4(a, b);
      lasts[me] = ivec4(c, d);
      turns[me] = way;
    }
    if (me < GROUP) {
      rows[me] = mine_rows;
      row_sums[0][me] = mine_rows.y + mine_rows.w;
    }
    SUM(row_sums, GROUP)
    int n_rows = row_sums[LAST(GROUP)][GROUP - 1];
    for (int base = 0; base < n_rows; base += LANES) {
      int n_pairs = 0;
      ivec4 span = ivec4(0);
      if (base + me < n_rows) {
        int at = 0;
        for (int step = GROUP / 2; step > 0; step /= 2) {
          at += row_sums[LAST(GROUP)][at + step - 1] <= base + me ? step : 0;
        }
        int k = base + me - (at > 0 ? row_sums[LAST(GROUP)][at - 1] : 0);
        ivec4 first = firsts[at], last = lasts[at], its = rows[at];
        bool second = k >= its.y;
        int row = second ? its.z + (k - its.y) * SLICES : its.x + k * SLICES;
        ivec2 found = covered(first.xy, second ? last.xy : first.zw, second ? last.zw : last.xy,
            second ? turns[at].y : turns[at].x, row, view);
        n_pairs = max(found.y - found.x + PAIR, 0) / PAIR;
        span = ivec4(found.x + n_pairs * PAIR, row, at, found.y);
      }
      pair_sums[0][me] = n_pairs;
      SUM(pair_sums, LANES)
      // Of the pair i of all these rows the column is then i * PAIR + a number of its row.
      spans[me] = span - ivec4(pair_sums[LAST(LANES)][me] * PAIR, 0, 0, 0);
      barrier();
      int total = pair_sums[LAST(LANES)][LANES - 1];
      for (int i = me; i < total; i += LANES) {
        int at = 0;
        for (int step = LANES / 2; step > 0; step /= 2) {
          at += pair_sums[LAST(LANES)][at + step - 1] <= i ? step : 0;
        }
        ivec4 its = spans[at];
        int primitive = its.z * int(gl_NumWorkGroups.x) + int(gl_WorkGroupID.x);
        ivec2 first = ivec2(its.x + i * PAIR, its.y);
        float depths[PAIR], kept[PAIR];
        {inner}(primitive, first, layer, depths[0], kept[0]);
        {inner}(primitive, ivec2(min(first.x + 1, its.w), first.y), layer, depths[1], kept[1]);
        if (first.x + 1 > its.w) kept[1] = 0.0;
        KEEP
      }
      barrier();
    }
    barrier();
  }"""

_SUM = """barrier();
    for (int step = 1, from = 0; step < COUNT; step *= 2, from = 1 - from) {
      if (me < COUNT) {
        int before = me >= step ? NAME[from][me - step] : 0;
        NAME[1 - from][me] = NAME[from][me] + before;
      }
      barrier();
    }"""

# The depth attachment is cleared to 1 and compared with LESS; what is written there is clamped.
_KEEP = """for (int k = 0; k < PAIR; k++) {
          float depth = depths[k];
          if (kept[k] == 0.0 || !(depth < 1.0)) continue;
          ivec2 pixel = ivec2(first.x + k, first.y);
          uint bits = depth > 0.0 ? floatBitsToUint(depth) : 0u;
          int slot = (layer * HEIGHT + pixel.y) * WIDTH + pixel.x;
          STORE
        }"""

_STORE = {
    KEY64: "atomicMax({buffer}[slot], ~((uint64_t(bits) << 32) | uint64_t(uint(primitive))));",
    DEPTH32: "atomicMax({buffer}[slot], ~bits);",
    WINNER32: "if (uint(FETCH(pixel, layer)) == ~bits) "
    "atomicMax({buffer}[slot], ~uint(primitive));",
}


def _body(f: Function) -> str:
    (w, h), n = f.attr("size"), f.attr("n_corners")
    scissors = f.attr("scissor")
    view = f"ivec4(0, 0, {w}, {h})"
    if len(scissors) == 1:
        view = f"ivec4{tuple(scissors[0])}"
    elif scissors:
        listed = ", ".join(f"ivec4{tuple(s)}" for s in scissors)
        view = f"ivec4[]({listed})[layer]"
    at = "(ivec2(mine, 0), layer)"
    corners = [f"{{fetch{k}}}{at}" for k in range(n)]
    corners.append(corners[0])  # where there is no fourth
    text = _MAIN.replace("KEEP", _KEEP.replace("STORE", f.attr("store")))
    for name, count in (("row_sums", "GROUP"), ("pair_sums", "LANES")):
        sums = _SUM.replace("NAME", name).replace("COUNT", count)
        text = text.replace(f"SUM({name}, {count})", sums)
    # After an odd number of steps the sums lie in the second half.
    for count, length in (("GROUP", GROUP), ("LANES", LANES)):
        text = text.replace(f"LAST({count})", str((length.bit_length() - 1) % 2))
    for name, number in (("GROUP", GROUP), ("LANES", LANES), ("PAIR", PAIR)):
        text = text.replace(name, str(number))
    for name, value in (
        ("VIEW", view),
        ("N_PRIMITIVES", str(f.inputs[0].size[0])),
        ("QUADS", "true" if n == 4 else "false"),
        ("LEAST_W", repr(LEAST_W)),
        ("TURNS", str(1 + 7 * (n - 2))),
        ("CORNER0", corners[0]),
        ("CORNER1", corners[1]),
        ("CORNER2", corners[2]),
        ("CORNER3", corners[3]),
        ("FETCH", f"{{fetch{len(f.inputs) - 1}}}"),
        ("SLICES", str(_slices(f))),
        ("HEIGHT", str(h)),
        ("WIDTH", str(w)),
    ):
        text = text.replace(name, value)
    return text
