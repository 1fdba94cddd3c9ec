"""Border and dilation of a packed mask in one dispatch: 512 invocations make 8 words of 64 rows.

In: words, and a radius in pixels. Out: the words that ``border_bits`` and ``dilate_bits`` make, one
after the other, bit for bit. Not an op of ``F``: ``dilate_bits`` becomes this where dispatches are
preferred. Masks are small, so what they cost there is the number of dispatches.

A group loads its words and those around them as far as the radius reaches, all loads under way at
once. Along a row only the nearest bit of the words on either side matters, and within a word bits
are spread by doubling. Along a column runs are tripled, from one part of the shared memory to the
other. Rows and steps follow the radius of the run, not the largest one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dressi.ad.graph import Function, Variable
from dressi.ad.kernels import Workgroup, implement
from dressi.ad.registry import ANY, COMP, SAME, Op, Shape

WORD = 32
WIDE = 8
"""Words beside each other that a group makes."""
ACROSS = 16
"""Invocations along a row while words are loaded: those of ``WIDE`` words and of their halo."""
LANES = 512
STEP = LANES // ACROSS
"""Rows that are loaded at once."""
TOGETHER = 2
"""Loads of an invocation that one look at the radius decides about."""
MOST_RADIUS = 2 * WORD
"""Pixels that one dispatch reaches."""
SHARED_WORDS = 4096
"""Of shared memory, on every device (maxComputeSharedMemorySize is at least 16384 bytes)."""


def _shape(f: Function) -> dict[str, int]:
    """What the names in the GLSL stand for. HALO: words on either side that the radius reaches.
    EDGE: words and rows more that the border looks at. COLUMNS: words loaded in a row. TALL: rows
    that a group makes. MOST_ROWS: rows loaded for the largest radius."""
    most, edge = f.attr("max_radius"), int(f.attr("width") is not None)
    halo = -(-most // WORD)
    columns = WIDE + 2 * (halo + edge)
    assert 0 < most <= MOST_RADIUS and columns <= ACROSS
    around = 2 * (most + edge)
    fitting = (n for n in (64, 32) if (n + around) * (columns + WIDE) <= SHARED_WORDS)
    tall = next(fitting)
    return {
        "MOST_ROWS": tall + around,
        "MOST": most,
        "HALO": halo,
        "EDGE": edge,
        "COLUMNS": columns,
        "TALL": tall,
        "WIDE": WIDE,
        "ACROSS": ACROSS,
        "LANES": LANES,
    }


def _named(text: str, f: Function) -> str:
    for name, value in _shape(f).items():
        text = text.replace(name, str(value))
    return text


def _infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    return xs[0].vtype, xs[0].size, xs[0].layers


def _groups(f: Function) -> tuple[int, int, int]:
    w, h = f.output.size
    return -(-w // WIDE), -(-h // _shape(f)["TALL"]), f.output.layers


_BORDER = """
// Pixels of the word c at i that differ from one of their four neighbours; words above the first
// row and below the last are copies of theirs.
uint border(int i, uint c, bool first, bool last) {
  uint l = words[i - 1], r = words[i + 1], up = words[i - COLUMNS], down = words[i + COLUMNS];
  uint left = c << 1 | (first ? c & 1u : l >> 31);
  uint right = last ? (c >> 1 & ~END) | (c & END) : c >> 1 | r << 31;
  uint found = (c ^ left) | (c ^ right) | (c ^ up) | (c ^ down);
  return last ? found & VALID : found;
}"""

_ALONG_ROW = """
// The word at i, with the bits within n of a set one.
uint along_row(int i, int n) {
  uint c = words[i], l = words[i - 1], r = words[i + 1];
  FARTHER
  int inner = min(n, 31);
  for (int d = 0; d < inner;) {
    int s = min(d + 1, inner - d);
    c |= c << s | c >> s;
    d += s;
  }
  // How many bits of the word the nearest ones beside it reach.
  int low = n + (l != 0u ? findMSB(l) - 31 : FAR_LEFT);
  int high = n - (r != 0u ? findLSB(r) : FAR_RIGHT);
  c |= low >= 32 ? ~0u : (1u << max(low, 0)) - 1u;
  return c | (high >= 32 ? ~0u : ~(~0u >> max(high, 0)));
}"""
_FARTHER = {
    1: ("", "-32", "32"),
    2: (
        "uint l2 = words[i - 2], r2 = words[i + 2];",
        "l2 != 0u ? findMSB(l2) - 63 : -64",
        "r2 != 0u ? findLSB(r2) + 32 : 64",
    ),
}
"""By HALO: what is read of the words farther away, and where they begin to reach."""


def _preamble(f: Function) -> str:
    text = "shared uint words[MOST_ROWS * (COLUMNS + WIDE)];"
    width = f.attr("width")
    if width is not None:
        last = (width - 1) % WORD  # the last bit of a row that is a pixel
        border = _BORDER.replace("END", f"{1 << last}u")
        text += border.replace("VALID", f"{(1 << last + 1) - 1}u")
    more, left, right = _FARTHER[_shape(f)["HALO"]]
    row = _ALONG_ROW.replace("  FARTHER\n", f"  {more}\n" if more else "")
    text += row.replace("FAR_LEFT", left).replace("FAR_RIGHT", right)
    return _named(text, f)


_BEGIN = """int me = int(gl_LocalInvocationIndex), across = me % ACROSS, down = me / ACROSS;
  int n = clamp({x1}, 0, MOST), n_rows = TALL + 2 * (n + EDGE);
  ivec2 at = pos * ivec2(WIDE, TALL) - ivec2(HALO + EDGE, n + EDGE) + ivec2(across, down);
  ivec2 last = ivec2({w0}, {h0}) - 1;
  bool in_row = at.x >= 0 && at.x <= last.x && across >= EDGE && across < COLUMNS - EDGE;
  int here = down * COLUMNS + across;"""

_END = """barrier();
  for (int i = me; i < (TALL + 2 * n) * WIDE; i += LANES) {
    int i_word = (i / WIDE + EDGE) * COLUMNS + i % WIDE + HALO + EDGE;
    words[MOST_ROWS * COLUMNS + i] = along_row(i_word, n);
  }
  barrier();
  // Every word is the union of a run of rows that begins with it.
  int from = MOST_ROWS * COLUMNS, to = 0, run = 1, whole = 2 * n + 1;
  while (3 * run < whole) {
    for (int i = me; i < (TALL + whole - 3 * run) * WIDE; i += LANES) {
      int k = from + i;
      words[to + i] = words[k] | words[k + run * WIDE] | words[k + 2 * run * WIDE];
    }
    barrier();
    run *= 3;
    int other = from;
    from = to;
    to = other;
  }
  int two = min(run, whole - run) * WIDE, three = (whole - run) * WIDE;
  for (int i = me; i < TALL * WIDE; i += LANES) {
    ivec2 p = pos * ivec2(WIDE, TALL) + ivec2(i % WIDE, i / WIDE);
    int k = from + i;
    if (p.x <= last.x && p.y <= last.y) {
      {store}(p, layer, int(words[k] | words[k + two] | words[k + three]));
    }
  }"""


def _glsl(f: Function) -> str:
    shape = _shape(f)
    rows = range(0, shape["MOST_ROWS"], STEP)  # of the first invocations, by load

    def each(line: str) -> list[str]:
        """A line for every load, as far as the radius asks for it; ROW: the rows before."""
        out = []
        for k in range(0, len(rows), TOGETHER):
            some = "\n    ".join(line.replace("ROW", str(r)) for r in rows[k : k + TOGETHER])
            out.append(f"if (n_rows > {rows[k]}) {{\n    {some}\n  }}" if k else some)
        return out

    # Nothing here is behind a branch of its own, so that no load waits for another. What lies
    # outside of the mask is loaded from its side.
    load = "uint({fetch0}(clamp(at + ivec2(0, ROW), ivec2(0), last), layer))"
    keep = "if (across < COLUMNS && down + ROW < n_rows) words[here + ROW * COLUMNS] = aROW;"
    inside = (
        "(in_row && uint(at.y + ROW) <= uint(last.y) "
        "&& uint(down + ROW - EDGE) < uint(n_rows - 2 * EDGE))"
    )
    lines = [_BEGIN, f"uint {', '.join(f'a{r} = 0u' for r in rows)};", *each(f"aROW = {load};")]
    if shape["EDGE"]:
        lines += [*each(keep), "barrier();"]
        # Of a word that is not used: the border of one that has neighbours.
        i = f"{inside} ? here + ROW * COLUMNS : COLUMNS + 1"
        found = f"border({i}, aROW, at.x == 0, at.x == last.x)"
        lines += [*each(f"aROW = {found} & ({inside} ? ~0u : 0u);"), "barrier();"]
    else:
        lines += each(f"aROW = {inside} ? aROW : 0u;")
    return _named("\n  ".join([*lines, *each(keep), _END]), f)


GROUP_DILATE_BITS = implement(
    Op(
        "group_dilate_bits",
        _infer,
        reads=(ANY, SAME),
        kind=COMP,
    ),
    Workgroup(_glsl, preamble=_preamble, groups=_groups, lanes=LANES),
)
"""Input 1: the radius, INT @ 1x1, up to the attribute ``max_radius``. ``width``: pixels of a row
where the border of the mask is dilated, None where the mask itself is."""
