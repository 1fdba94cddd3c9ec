"""GLSL of the sum over one row of a CSR matrix, whose loads overlap.

In: how to find the row and its entries. Out: a snippet. Entries are added one after the other, in
order; but an entry takes two loads that depend on each other, and one invocation that waits for
each in turn takes a microsecond for some ten entries. The vertex at the pole of a sphere has
hundreds. So in dispatches the first entries are loaded together, without a loop or a branch
(what lies past the end of a row is the row's last entry again, and is not added), so that the loads
of several sums in a shader overlap, too. Only rows that are longer go on: in blocks of BLOCK
entries, and where the lanes of a subgroup can add up over each other, all of them take part in a
row of more than LONG entries. Code for rows longer than the longest is left out where that is
known. Not in fragment shaders: a CPU driver, whose loads do not wait, takes twice the time for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dressi.ad.graph import Function
from dressi.ad.kernels import DISPATCH, REST, SUBGROUP, Kernel
from dressi.ad.template import Value, expand_glsl

FIRST = 8
"""Entries that are loaded together, before any branch, where the longest row is known."""

FEW = 4
"""The same where it is not: rows of gathers are those of one corner of faces, two or three long."""

BLOCK = 8
"""Entries that are loaded together after the first ones."""

EACH = 4
"""Entries that a lane loads together of a row that a subgroup adds up."""

LONG = 16
"""Entries of a row from which on a subgroup adds it up together. The order of the sum is another
then, but always the same on a device."""

Summand = Callable[[str, str, str], str]
"""GLSL of the summand of an entry, of the names of: what {fetch2} holds of it, its position in the
tables of entries, and the layer of its row."""

_TOGETHER = """    bool {y}_long = {y}_e - {y}_k > {left};
    if (subgroupBallot({y}_long) != uvec4(0)) {
      uvec4 lanes = subgroupBallot(true);
      int me = int(subgroupBallotExclusiveBitCount(lanes));
      int n = int(subgroupBallotBitCount(lanes));
      for (;;) {
        int leader = subgroupMin({y}_long ? me : n);
        if (leader >= n) break;
        bool mine = leader == me;
        int from = subgroupMax(mine ? {y}_k : 0), to = subgroupMax(mine ? {y}_e : 0);
        int of_layer = subgroupMax(mine ? {layer} : 0);
        {T} part = {T}(0);
        for (int k = from + me; k < to; k += {each} * n) {
{many}
        }
        part = subgroupAdd(part);
        if (mine) { {y}_s += part; {y}_k = {y}_e; {y}_long = false; }
      }
    }"""


def _block(
    value: Summand, entry: str, places: list[str], tests: list[str], of: tuple[str, str, str]
) -> list[str]:
    """Statements that load the entries at some places, then add those that pass their tests.

    of: the layer of the row, the total that is added to, and the indent of the statements. There
    are choices between two values, not branches, into which a compiler might move the loads.
    """
    layer, total, indent = of
    values = [value(f"j{i}", f"k{i}", layer) for i in range(len(places))]
    at = ", ".join(f"k{i} = {place}" for i, place in enumerate(places))
    entries = ", ".join(f"j{i} = {{fetch2}}(ivec2(k{i}, 0), 0)" for i in range(len(places)))
    loads = ", ".join(f"a{i} = {v}" for i, v in enumerate(values))
    sums = " ".join(
        f"a{i} += {total}; {total} = {t} ? a{i} : {total};" for i, t in enumerate(tests)
    )
    return [f"{indent}{s}" for s in (f"int {at};", f"{entry} {entries};", f"{{T}} {loads};", sums)]


def _next(n: int, value: Summand, entry: str) -> list[str]:
    """Statements that add the next n entries of a row, or those that are left of it."""
    places = [f"min({{y}}_k + {i}, {{y}}_last)" for i in range(n)]
    tests = [f"{{y}}_k + {i} < {{y}}_e" for i in range(n)]
    return _block(value, entry, places, tests, ("{layer}", "{y}_s", "    "))


def _one_by_one(value: Summand, entry: str) -> list[str]:
    return [
        "  for (; {y}_k < {y}_e; {y}_k++) {",
        f"    {entry} j = {{fetch2}}(ivec2({{y}}_k, 0), 0);",
        f"    {{y}}_s += {value('j', '{y}_k', '{layer}')};",
        "  }",
    ]


def _overlapping(value: Summand, entry: str, subgroups: bool, longest: int | None) -> list[str]:
    first = FEW if longest is None else max(min(FIRST, longest), 1)
    # Also of an empty row there is an entry to load: another row's, or the table's first one.
    lines = ["  int {y}_last = max({y}_e - 1, 0);", "  {", *_next(first, value, entry)]
    lines += ["  }", f"  {REST}"]
    if longest is not None and longest <= first:
        return lines
    lines.append(f"  {{y}}_k += {first};")
    block = BLOCK if longest is None else min(BLOCK, longest - first)
    loop = [
        f"  for (; {{y}}_k < {{y}}_e; {{y}}_k += {block}) {{",
        *_next(block, value, entry),
        "  }",
    ]
    if not subgroups or (longest is not None and longest <= LONG):
        return lines + loop
    places = [f"min(k + {i} * n, to - 1)" for i in range(EACH)]
    tests = [f"k + {i} * n < to" for i in range(EACH)]
    # All lanes work on the row of one of them, in its layer.
    many = _block(value, entry, places, tests, ("of_layer", "part", " " * 10))
    parts: dict[str, Value] = {"left": LONG - first, "each": EACH, "many": "\n".join(many)}
    together = expand_glsl("row_sum_kernels", _TOGETHER, **parts)
    return [
        *lines,
        "  if (subgroupBallot({y}_k < {y}_e) != uvec4(0)) {",
        together,
        *("  " + line for line in loop),
        "  }",
    ]


@dataclass(frozen=True)
class RowSum:
    """What one pixel sums. row: GLSL of the row's number, whose offsets lie in the table {fetch1}.
    value: returns GLSL of the summand of an entry. entry: type of what the table {fetch2} holds per
    entry; it holds at least one. longest: entries of the longest row, where they never change."""

    row: str
    value: Summand
    entry: str = "int"
    longest: int | None = None


def _glsl(s: RowSum, overlap: bool, subgroups: bool) -> str:
    """Snippet that sums the entries of one row into {y}. overlap: whether they are loaded in
    blocks; the sum has the same bits. subgroups: whether lanes add up long rows together."""
    lines = [
        "{T} {y}_s = {T}(0);",
        f"  int {{y}}_k = {{fetch1}}(ivec2({s.row}, 0), 0), "
        f"{{y}}_e = {{fetch1}}(ivec2({s.row} + 1, 0), 0);",
    ]
    if overlap:
        lines += _overlapping(s.value, s.entry, subgroups, s.longest)
    else:
        lines += _one_by_one(s.value, s.entry)
    return "\n".join([*lines, "  {y} = {y}_s;"])


def row_sum_kernels(summed: Callable[[Function], RowSum]) -> tuple[Kernel, Kernel, Kernel]:
    """Return the kernels of an op whose pixels sum a row each. Matrices have no subgroup sums."""
    return (
        Kernel(lambda f: _glsl(summed(f), False, False)),
        Kernel(lambda f: _glsl(summed(f), True, False), DISPATCH),
        Kernel(lambda f: _glsl(summed(f), True, not f.output.vtype.is_matrix), SUBGROUP),
    )
