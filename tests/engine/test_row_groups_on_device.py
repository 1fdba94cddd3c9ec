"""Sparse matrices with long rows, by groups of invocations, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from dressi import DressiAD, F, Variable
from dressi.ad import build_backward
from dressi.ad.functions import group_rows
from dressi.ad.functions.group_rows import N_LANES, TOGETHER, lanes_of
from dressi.ad.graph import topological
from dressi.ad.lowering import sum_in_groups
from dressi.ad.vtype import FLOAT, VEC2, VEC3, VEC4, VType
from dressi.packing import Options

pytestmark = pytest.mark.gpu

EPSILON = float(np.finfo(np.float32).eps)


def matrix_of(lengths: np.ndarray, n_columns: int, seed: int) -> F.linalg.SparseMatrix:
    """Rows of these lengths. Values about 1, so that one left out or taken twice is seen."""
    rng = np.random.default_rng(seed)
    n = int(lengths.sum())
    columns = rng.integers(0, n_columns, n).astype(np.int32)
    values = rng.uniform(0.5, 1.5, n).astype(np.float32)
    return F.linalg.SparseMatrix(np.append(0, np.cumsum(lengths)), columns, values, n_columns)


def expected(m: F.linalg.SparseMatrix, x: np.ndarray) -> np.ndarray:
    """x: (layers, n, channels)."""
    out = np.zeros((x.shape[0], m.n_rows, x.shape[2]))
    rows = np.repeat(np.arange(m.n_rows), np.diff(m.offsets))
    for layer in range(x.shape[0]):
        np.add.at(out[layer], rows, m.values.astype(np.float64)[:, None] * x[layer, m.columns])
    return out


def product(
    m: F.linalg.SparseMatrix, x: np.ndarray, vtype: VType, layers: int, way: str = "compute"
) -> np.ndarray:
    table = Variable(vtype, (m.n_columns, 1), layers, name="x")
    with DressiAD(options=Options(lowering=way)) as ad:
        y = F.linalg.sparse_matmul(m, table)
        ad.send_img(table, x[:, None])
        found = ad.recv_img(y).reshape(layers, m.n_rows, -1)
        return np.asarray(found)


LENGTHS = {
    "all as long": np.full(70, 16),
    "one row": np.array([1000]),
    "one long, others empty": np.array([0, 0, 5000, 0]),
    "of every length": np.arange(150),
    "up to a batch and one more": np.tile([31 * TOGETHER, 32 * TOGETHER, 32 * TOGETHER + 1], 11),
    "some empty": np.tile([0, 90, 1, 0, 40], 13),
}


@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize(
    ("vtype", "layers"), [(FLOAT, 1), (VEC2, 1), (VEC3, 3), (VEC4, 2)], ids=lambda v: str(v)
)
def test_rows_add_up_what_is_there(name: str, vtype: VType, layers: int) -> None:
    m = matrix_of(LENGTHS[name], 37, 1)
    x = np.random.default_rng(2).uniform(0.5, 1.5, (layers, 37, vtype.n))
    got, want = product(m, x.astype(np.float32), vtype, layers), expected(m, x.astype(np.float32))
    # A lane rounds after each of its entries, and the tree some times more.
    assert (np.abs(got - want) <= 8 * EPSILON * np.abs(want)).all()


def test_groups_lie_below_each_other_where_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_rows, "ACROSS", 3)
    m = matrix_of(np.full(200, 100), 50, 3)
    x = np.random.default_rng(4).uniform(0.5, 1.5, (1, 50, 3)).astype(np.float32)
    want = expected(m, x)
    assert (np.abs(product(m, x, VEC3, 1) - want) <= 8 * EPSILON * want).all()


def names(outputs: list[Variable]) -> list[str]:
    return [f.op.name for f in topological(outputs)]


def test_only_long_rows_are_shared() -> None:
    table = Variable(VEC3, (50, 1), name="x")
    for length, shared in ((15, False), (16, True)):
        y = F.linalg.sparse_matmul(matrix_of(np.full(9, length), 50, 5), table)
        assert ("sparse_matmul_groups" in names(sum_in_groups([y]))) == shared


@pytest.mark.parametrize("mean", [1, 16, 17, 100, 10_000])
def test_lanes_of_a_row_divide_a_group(mean: int) -> None:
    lanes = lanes_of(matrix_of(np.full(3, mean), 4, 6))
    assert 2 <= lanes <= N_LANES and N_LANES % lanes == 0


def test_gradients_are_those_of_the_transpose() -> None:
    m = matrix_of(np.full(60, 30), 40, 7)
    table = Variable(VEC3, (40, 1), requires_grad=True, name="x")
    weights = np.random.default_rng(8).uniform(0.5, 1.5, (1, 60, 3)).astype(np.float32)
    w = F.leaf(weights.reshape(1, 60, 3), VEC3, "w")
    loss = F.sum(F.linalg.sparse_matmul(m, table) * w)
    gradient = build_backward(loss, [table])[table]
    with DressiAD(options=Options(lowering="compute")) as ad:
        ad.send_img(table, np.ones((1, 40, 3), np.float32))
        got = ad.recv_img(gradient).reshape(1, 40, 3)
    want = expected(m.transposed, weights)
    assert (np.abs(got - want) <= 8 * EPSILON * want).all()
