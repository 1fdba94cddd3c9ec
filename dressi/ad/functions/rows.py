"""GLSL of the sum over one row of a CSR matrix, whose loads overlap.

In: how to find the row and its entries. Out: a snippet. Entries are added one after the other, in
order; but an entry takes two loads that depend on each other, and one invocation that waits for
each in turn takes a microsecond for some ten entries. The vertex at the pole of a sphere has
hundreds. So in dispatches indices, then values, are loaded in blocks before they are added. Not in
fragment shaders: a CPU driver, whose loads do not wait, takes twice the time for it.
"""

from __future__ import annotations

BLOCKS = (16, 4)
"""Entries that are loaded together, by loops one after the other; what is left goes one by one."""


def row_sum_glsl(row: str, value: str, entry: str = "int", overlap: bool = False) -> str:
    """Snippet that sums the entries of one row into {y}.

    row: GLSL of the row's number, whose offsets lie in the table {fetch1}. entry: type of what the
    table {fetch2} holds of each entry. value: GLSL of its summand; ``#`` stands for what {fetch2}
    holds, ``@`` for the position in the tables of entries. overlap: whether entries are loaded in
    blocks; the sum has the same bits.
    """
    lines = [
        "{T} {y}_s = {T}(0);",
        f"  int {{y}}_k = {{fetch1}}(ivec2({row}, 0), 0), "
        f"{{y}}_e = {{fetch1}}(ivec2({row} + 1, 0), 0);",
    ]
    for n in BLOCKS if overlap else ():
        numbers = range(n)
        entries = ", ".join(f"j{i} = {{fetch2}}(ivec2({{y}}_k + {i}, 0), 0)" for i in numbers)
        values = ", ".join(
            f"a{i} = " + value.replace("#", f"j{i}").replace("@", f"{{y}}_k + {i}") for i in numbers
        )
        sums = " ".join(f"{{y}}_s += a{i};" for i in numbers)
        lines += [
            f"  for (; {{y}}_k + {n} <= {{y}}_e; {{y}}_k += {n}) {{",
            f"    {entry} {entries};",
            f"    {{T}} {values};",
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
