"""GLSL of the sum over one row of a CSR matrix, whose loads overlap.

In: how to find the row and its entries. Out: a snippet. Entries are added one after the other, in
order; but an entry takes two loads that depend on each other, and one invocation that waits for
each in turn takes a microsecond for some ten entries. The vertex at the pole of a sphere has
hundreds. So in dispatches indices, then values, are loaded in blocks before they are added; and
where the lanes of a subgroup can add up over each other, all of them take part in a row of more
than LONG entries. Not in fragment shaders: a CPU driver, whose loads do not wait, takes twice the
time for it.
"""

from __future__ import annotations

BLOCKS = (16, 4)
"""Entries that are loaded together, by loops one after the other; what is left goes one by one."""

LONG = 32
"""Entries of a row from which on a subgroup adds it up together. The order of the sum is another
then, but always the same on a device."""

_TOGETHER = """  bool {y}_long = {y}_e - {y}_k > LONG;
  uvec4 {y}_all = subgroupBallot(true);
  int {y}_me = int(subgroupBallotExclusiveBitCount({y}_all));
  int {y}_n = int(subgroupBallotBitCount({y}_all));
  for (;;) {
    int leader = subgroupMin({y}_long ? {y}_me : {y}_n);
    if (leader >= {y}_n) break;
    bool mine = leader == {y}_me;
    int from = subgroupMax(mine ? {y}_k : 0), to = subgroupMax(mine ? {y}_e : 0);
    int of_layer = subgroupMax(mine ? {layer} : 0);
    {T} part = {T}(0);
    for (int k = from + {y}_me; k < to; k += 4 * {y}_n) {
FOUR
    }
    part = subgroupAdd(part);
    if (mine) { {y}_s = part; {y}_k = {y}_e; {y}_long = false; }
  }"""


def _four(value: str, entry: str) -> str:
    """Statements that load four entries of a lane, and add those that are in the row."""
    values = [value.replace("#", f"j{i}").replace("@", f"k{i}") for i in range(4)]
    at = ", ".join(f"k{i} = min(k + {i} * {{y}}_n, to - 1)" for i in range(4))
    entries = ", ".join(f"j{i} = {{fetch2}}(ivec2(k{i}, 0), 0)" for i in range(4))
    loads = ", ".join(f"a{i} = {v}" for i, v in enumerate(values))
    sums = " ".join(f"if (k + {i} * {{y}}_n < to) part += a{i};" for i in range(1, 4))
    return (
        f"      int {at};\n      {entry} {entries};\n      {{T}} {loads};\n      part += a0; {sums}"
    )


def row_sum_glsl(
    row: str, value: str, entry: str = "int", overlap: bool = False, subgroups: bool = False
) -> str:
    """Snippet that sums the entries of one row into {y}.

    row: GLSL of the row's number, whose offsets lie in the table {fetch1}. entry: type of what the
    table {fetch2} holds of each entry. value: GLSL of its summand; ``#`` stands for what {fetch2}
    holds, ``@`` for the position in the tables of entries. overlap: whether entries are loaded in
    blocks; the sum has the same bits. subgroups: whether lanes add up long rows together (not for
    matrices).
    """
    lines = [
        "{T} {y}_s = {T}(0);",
        f"  int {{y}}_k = {{fetch1}}(ivec2({row}, 0), 0), "
        f"{{y}}_e = {{fetch1}}(ivec2({row} + 1, 0), 0);",
    ]
    if subgroups:
        text = _TOGETHER.replace("LONG", str(LONG))
        lines.append(text.replace("FOUR", _four(value.replace("{layer}", "of_layer"), entry)))
    for n in BLOCKS if overlap else ():
        numbers = range(n)
        entries = ", ".join(f"j{i} = {{fetch2}}(ivec2({{y}}_k + {i}, 0), 0)" for i in numbers)
        values = [value.replace("#", f"j{i}").replace("@", f"{{y}}_k + {i}") for i in numbers]
        loads = ", ".join(f"a{i} = {v}" for i, v in enumerate(values))
        sums = " ".join(f"{{y}}_s += a{i};" for i in numbers)
        lines += [
            f"  for (; {{y}}_k + {n} <= {{y}}_e; {{y}}_k += {n}) {{",
            f"    {entry} {entries};",
            f"    {{T}} {loads};",
            f"    {sums}",
            "  }",
        ]
    one = value.replace("#", "j").replace("@", "{y}_k")
    lines += [
        "  for (; {y}_k < {y}_e; {y}_k++) {",
        f"    {entry} j = {{fetch2}}(ivec2({{y}}_k, 0), 0);",
        f"    {{y}}_s += {one};",
        "  }",
        "  {y} = {y}_s;",
    ]
    return "\n".join(lines)
