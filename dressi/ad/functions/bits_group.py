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

from collections.abc import Callable, Sequence
from typing import Any

from dressi.ad.graph import Function, Variable
from dressi.ad.kernels import implement
from dressi.ad.registry import ANY, COMP, SAME, Op, Shape
from dressi.ad.template import expand_glsl, expand_kernel
from dressi.ad.workgroups import Workgroup

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
    """The numbers of the kernel, by marker; ``kernels/dilate_bits.glsl`` says what they mean."""
    most, edge = f.attr("max_radius"), int(f.attr("width") is not None)
    halo = -(-most // WORD)
    columns = WIDE + 2 * (halo + edge)
    assert 0 < most <= MOST_RADIUS and columns <= ACROSS
    around = 2 * (most + edge)
    fitting = (n for n in (64, 32) if (n + around) * (columns + WIDE) <= SHARED_WORDS)
    tall = next(fitting)
    return {
        "most_rows": tall + around,
        "most": most,
        "halo": halo,
        "edge": edge,
        "columns": columns,
        "tall": tall,
        "wide": WIDE,
        "across": ACROSS,
        "lanes": LANES,
    }


def _infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    return xs[0].vtype, xs[0].size, xs[0].layers


def _groups(f: Function) -> tuple[int, int, int]:
    w, h = f.output.size
    return -(-w // WIDE), -(-h // _shape(f)["tall"]), f.output.layers


_BORDER = """\
// Pixels of the word c at i that differ from one of their four neighbours; words above the first
// row and below the last are copies of theirs.
uint border(int i, uint c, bool first, bool last) {
  uint l = words[i - 1], r = words[i + 1], up = words[i - {columns}], down = words[i + {columns}];
  uint left = c << 1 | (first ? c & 1u : l >> 31);
  uint right = last ? (c >> 1 & ~{end}) | (c & {end}) : c >> 1 | r << 31;
  uint found = (c ^ left) | (c ^ right) | (c ^ up) | (c ^ down);
  return last ? found & {valid} : found;
}"""

_FARTHER = {
    1: ("", "-32", "32"),
    2: (
        "uint l2 = words[i - 2], r2 = words[i + 2];",
        "l2 != 0u ? findMSB(l2) - 63 : -64",
        "r2 != 0u ? findLSB(r2) + 32 : 64",
    ),
}
"""By the words of the halo: what is read of the words that are two words away, and where they begin
to reach."""


def _border(f: Function) -> str:
    """The function border(), where the border of the mask is dilated."""
    width = f.attr("width")
    if width is None:
        return ""
    last = (width - 1) % WORD  # the last bit of a row that is a pixel
    end, valid = f"{1 << last}u", f"{(1 << last + 1) - 1}u"
    return expand_glsl(f.op.name, _BORDER, columns=_shape(f)["columns"], end=end, valid=valid)


def _load(f: Function) -> str:
    """The loads of all words, as far as the radius asks for them, and the border of these."""
    shape = _shape(f)
    columns, edge = shape["columns"], shape["edge"]
    rows = range(0, shape["most_rows"], STEP)  # of the first invocations, by load

    def each(line: Callable[[int], str]) -> list[str]:
        """A line for every load. line: of the load whose first invocations are at that row."""
        out = []
        for k in range(0, len(rows), TOGETHER):
            some = "\n    ".join(line(r) for r in rows[k : k + TOGETHER])
            out.append(f"if (n_rows > {rows[k]}) {{\n    {some}\n  }}" if k else some)
        return out

    def load(r: int) -> str:
        # What lies outside of the mask is loaded from its side.
        return f"a{r} = uint({{fetch0}}(clamp(at + ivec2(0, {r}), ivec2(0), last), layer));"

    def keep(r: int) -> str:
        test = f"across < {columns} && down + {r} < n_rows"
        return f"if ({test}) words[here + {r} * {columns}] = a{r};"

    def inside(r: int) -> str:
        return (
            f"(in_row && uint(at.y + {r}) <= uint(last.y) "
            f"&& uint(down + {r} - {edge}) < uint(n_rows - 2 * {edge}))"
        )

    def border(r: int) -> str:
        # Of a word that is not used: the border of one that has neighbours.
        i = f"{inside(r)} ? here + {r} * {columns} : {columns} + 1"
        found = f"border({i}, a{r}, at.x == 0, at.x == last.x)"
        return f"a{r} = {found} & ({inside(r)} ? ~0u : 0u);"

    # Nothing here is behind a branch of its own, so that no load waits for another.
    lines = [f"uint {', '.join(f'a{r} = 0u' for r in rows)};", *each(load)]
    if edge:
        lines += [*each(keep), "barrier();", *each(border), "barrier();"]
    else:
        lines += each(lambda r: f"a{r} = {inside(r)} ? a{r} : 0u;")
    return "\n  ".join([*lines, *each(keep)])


def _kernel(f: Function) -> tuple[str, str]:
    """What stands in front of main(), and main()."""
    shape = _shape(f)
    farther, far_left, far_right = _FARTHER[shape["halo"]]
    return expand_kernel(
        f.op.name,
        "dilate_bits",
        border=_border(f),
        farther=farther,
        far_left=far_left,
        far_right=far_right,
        load=_load(f),
        **shape,
    )


GROUP_DILATE_BITS = Op(
    "group_dilate_bits",
    _infer,
    reads=(ANY, SAME),
    kind=COMP,
)
"""Input 1: the radius, INT @ 1x1, up to the attribute ``max_radius``. ``width``: pixels of a row
where the border of the mask is dilated, None where the mask itself is."""
implement(
    GROUP_DILATE_BITS,
    Workgroup(
        lambda f: _kernel(f)[1], preamble=lambda f: _kernel(f)[0], groups=_groups, lanes=LANES
    ),
)
