"""A sparse matrix times a table, by groups of invocations: several share a row.

In: a table, and the tables of a matrix whose rows are long. Out: a table. The lanes of a row load
neighbouring entries, eight each before the first is added, then add up over each other in a tree.
One invocation a row, as ``sparse`` has it, leaves most of a GPU idle and waits for memory: a matrix
of 8000 rows of 100 entries took 150 us, which are a few microseconds of reading. The order of the
additions is always the same, but not that of ``sparse``, so the last bits may differ. Not an op of
``F``: ``ad.lowering`` puts it in the place of ``sparse_matmul`` where dispatches are used.
"""

from __future__ import annotations

from dressi.ad.functions.sparse import SPMV, SparseMatrix
from dressi.ad.graph import Function, Variable
from dressi.ad.kernels import implement
from dressi.ad.registry import ANY, COMP, Op, apply
from dressi.ad.workgroups import Workgroup

N_LANES = 64
"""Invocations of a group, which takes one row or several."""
MOST_LANES = 32
"""Invocations of a row at most; of shorter rows as many as have eight entries each."""
TOGETHER = 8
"""Entries that an invocation loads together."""
LONG = 16
"""Entries of a row in the mean from which on invocations share rows."""
ACROSS = 1 << 15
"""Groups side by side at most: devices need not take more than 65535."""


def lanes_of(matrix: SparseMatrix) -> int:
    """Return how many invocations take a row, a power of two."""
    lanes, mean = 2, len(matrix.columns) / matrix.n_rows
    while lanes < MOST_LANES and lanes * TOGETHER < mean:
        lanes *= 2
    return lanes


def _groups(f: Function) -> tuple[int, int, int]:
    n = -(-f.output.size[0] * lanes_of(f.attr("matrix")) // N_LANES)
    return min(n, ACROSS), -(-n // ACROSS), f.output.layers


def _glsl(f: Function) -> str:
    lanes = lanes_of(f.attr("matrix"))
    each = range(TOGETHER)
    at = ", ".join(f"k{i} = min(k + {i * lanes}, to - 1)" for i in each)
    entries = ", ".join(f"j{i} = {{fetch2}}(ivec2(k{i}, 0), 0)" for i in each)
    values = ", ".join(
        f"a{i} = intBitsToFloat(j{i}.y) * {{fetch0}}(ivec2(j{i}.x, 0), layer)" for i in each
    )
    lines = [
        f"int me = int(gl_LocalInvocationIndex), lane = me % {lanes};",
        f"int row = int(gl_WorkGroupID.y * {ACROSS}u + gl_WorkGroupID.x) * {N_LANES // lanes} "
        f"+ me / {lanes};",
        "int layer = int(gl_WorkGroupID.z), from = 0, to = 0;",
        "if (row < {wy}) {",
        "  from = {fetch1}(ivec2(row, 0), 0);",
        "  to = {fetch1}(ivec2(row + 1, 0), 0);",
        "}",
        "{T} s = {T}(0);",
        f"for (int k = from + lane; k < to; k += {lanes * TOGETHER}) {{",
        f"  int {at};",
        f"  ivec2 {entries};",
        f"  {{T}} {values};",
        *(f"  if (k + {i * lanes} < to) s += a{i};" for i in each),
        "}",
        "parts[me] = s;",
        f"for (int n = {lanes // 2}; n > 0; n /= 2) {{",
        "  barrier();",
        "  if (lane < n) {",
        "    s += parts[me + n];",
        "    parts[me] = s;",
        "  }",
        "}",
        "if (lane == 0 && row < {wy}) {store}(ivec2(row, 0), layer, s);",
    ]
    return "\n  ".join(lines)


GROUP_ROWS = Op(
    "sparse_matmul_groups",
    SPMV.infer,
    reads=(ANY, ANY, ANY),
    kind=COMP,
)
implement(
    GROUP_ROWS,
    Workgroup(
        _glsl,
        preamble=lambda f: f"shared {f.output.vtype.glsl} parts[{N_LANES}];",
        groups=_groups,
        lanes=N_LANES,
    ),
)


def rows_in_groups(f: Function, x: Variable) -> Variable | None:
    """The product of a Function of ``sparse_matmul`` with x; None where its rows are short."""
    matrix: SparseMatrix = f.attr("matrix")
    if len(matrix.columns) < LONG * matrix.n_rows:
        return None
    return apply(GROUP_ROWS, (x, *f.inputs[1:]), matrix=matrix)
