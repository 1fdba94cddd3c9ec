"""The text of sums over the rows of sparse matrices: what is loaded together, no device."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.ad import F, Variable, build_backward, simplify
from dressi.ad.simplify import own_image
from dressi.ad.vtype import FLOAT, IVEC3, VEC2
from dressi.packing import Options, pack
from dressi.packing.limits import LLVMPIPE


def shaders(*outputs: Variable, lowering: str = "compute") -> list[str]:
    made = [own_image(v) for v in simplify(list(outputs))]
    plan = pack(made, [], LLVMPIPE, Options(lowering=lowering)).plan
    return [s.compute or s.fragment for stage in plan.stages for s in stage.substages]


def matrix_with_a_row_of(longest: int) -> F.linalg.SparseMatrix:
    n = longest + 1
    return F.linalg.SparseMatrix(np.array([0, longest, n]), np.arange(n) % 2, np.ones(n), 2)


@pytest.mark.parametrize(
    ("longest", "blocks", "together"),
    [(0, "", False), (2, "", False), (8, "", False), (9, "+= 1)", False), (12, "+= 4)", False)]
    + [(16, "+= 8)", False), (17, "+= 8)", True), (200, "+= 8)", True)],
)
def test_rows_are_read_at_once_in_dispatches_as_far_as_they_are_long(
    longest: int, blocks: str, together: bool
) -> None:
    y = F.linalg.sparse_matmul(matrix_with_a_row_of(longest), Variable(FLOAT, (2, 1)))
    (text,) = shaders(y)
    main = text[text.index("void main") :]
    assert (blocks in main) if blocks else ("for (" not in main and "while" not in main)
    assert ("subgroupAdd" in text) == ("#extension GL_KHR_shader_subgroup" in text) == together
    first = main[: main.index("for (")] if blocks else main
    assert first.count("fetch2(") == min(max(longest, 1), 8)
    (fragment,) = shaders(y, lowering="graphics")
    assert "_k++)" in fragment and "min(" not in fragment


def test_no_branch_stands_between_the_first_loads_of_sums_over_rows() -> None:
    """Of a product, and of the gathers of a gradient, in one shader with an op between them."""
    table, faces = Variable(VEC2, (40, 1), requires_grad=True), Variable(IVEC3, (70, 1))
    w = Variable(VEC2, (70, 1))
    loss = F.lookup(table, faces.x) * w + F.lookup(table, faces.y) * F.sin(w)
    (g,) = build_backward(loss).values()
    offsets = np.concatenate([np.arange(40), [80]])  # the last row is long
    y = F.linalg.sparse_matmul(
        F.linalg.SparseMatrix(offsets, np.zeros(80), np.ones(80), 2), Variable(VEC2, (2, 1))
    )
    text = next(t for t in shaders(F.sin(y) + g) if "sparse_matmul" in t)
    main = text[text.index("void main") :]
    head = main[: main.index("// The rest:")]
    assert [head.count(op) for op in ("sparse_matmul", "csr_gather")] == [1, 2]
    assert "for (" not in head and "subgroup" not in head and "sin(" not in head
    assert main.count("// The rest:") == 3 and main.count("subgroupAdd") == 3
