"""F.linalg.linear_map: order of pixels, its transpose, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.ad import F, Variable, build_backward, evaluate
from dressi.ad.vtype import FLOAT, INT, VEC2, VEC3
from dressi.errors import GraphError


def dense(matrix: np.ndarray) -> F.linalg.SparseMatrix:
    rows, columns = matrix.shape
    return F.linalg.SparseMatrix(
        np.arange(rows + 1) * columns, np.tile(np.arange(columns), rows), matrix.ravel(), columns
    )


@pytest.mark.parametrize("shape", [((4, 3), 2), ((1, 1), 6), ((24, 1), 1), ((8, 1), 3)])
def test_it_is_the_matrix_product_of_flattened_stacks(shape: tuple[tuple[int, int], int]) -> None:
    size, layers = shape
    n = size[0] * size[1] * layers
    rng = np.random.default_rng(0)
    m = rng.normal(size=(10, n))
    x = Variable(VEC3, size, layers, requires_grad=True)
    u = Variable(VEC3, (5, 1), 2)
    y = F.linalg.linear_map(dense(m), x, (5, 1), 2)
    a, b = rng.normal(size=(layers, size[1], size[0], 3)), rng.normal(size=(2, 1, 5, 3))
    got, g = evaluate([y, build_backward(y * u)[x]], {x: a, u: b})
    assert np.allclose(got.reshape(10, 3), m @ a.reshape(n, 3), atol=1e-5)
    assert np.allclose(g.reshape(n, 3), m.T @ b.reshape(10, 3), atol=1e-5)


def test_a_table_to_a_table_is_sparse_matmul() -> None:
    y = F.linalg.linear_map(dense(np.eye(4)), Variable(VEC2, (4, 1)), (4, 1))
    assert y.creator is not None and y.creator.op.name == "sparse_matmul"


def test_a_matrix_without_entries_gives_0() -> None:
    nothing = F.linalg.SparseMatrix(np.zeros(5, int), np.zeros(0, int), np.zeros(0), 6)
    x = Variable(FLOAT, (3, 2))
    (got,) = evaluate([F.linalg.linear_map(nothing, x, (2, 2))], {x: np.ones((2, 3, 1))})
    assert got.shape == (1, 2, 2, 1) and (got == 0).all()


def test_what_does_not_fit_is_named() -> None:
    m = dense(np.ones((4, 6)))
    x = Variable(VEC3, (3, 2))
    long = F.linalg.SparseMatrix(np.array([0, 1]), np.array([0]), np.ones(1), 5000)
    bad = [
        (lambda: F.linalg.linear_map(np.eye(6), x, (2, 2)), "F.linalg.SparseMatrix"),
        (lambda: F.linalg.linear_map(m, 3.0, (2, 2)), "needs a Variable"),
        (lambda: F.linalg.linear_map(m, Variable(VEC3, (3, 3)), (2, 2)), "6 columns"),
        (lambda: F.linalg.linear_map(m, Variable(INT, (3, 2)), (2, 2)), "INT"),
        (lambda: F.linalg.linear_map(m, x, (3, 2)), "4 rows"),
        (lambda: F.linalg.linear_map(m, x, (2, 0)), "at least 1"),
        (lambda: F.linalg.linear_map(long, Variable(FLOAT, (5000, 1)), (1, 1)), "4096"),
    ]
    for call, text in bad:
        with pytest.raises(GraphError) as info:
            call()  # type: ignore[no-untyped-call]
        assert text in str(info.value) and "test_sparse.py:" in str(info.value)
