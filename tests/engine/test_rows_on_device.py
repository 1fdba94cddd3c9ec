"""Sums over rows of every length, in the bits of a sum of float32 one after the other: what is
loaded past the end of a row is never added."""

from __future__ import annotations

import numpy as np
import pytest

from dressi import SGD, DressiAD, F, Variable
from dressi.ad.functions import group_rows
from dressi.ad.functions.rows import LONG
from dressi.ad.vtype import FLOAT, INT, MAT2, VEC2, VEC3, VEC4, VType
from dressi.packing import Options

pytestmark = pytest.mark.gpu

LENGTHS = (0, 1, 4, 5, 8, 9, 16, 17, 32, 33, 200)
ORDERS = {
    "the longest last": np.array(LENGTHS),
    "the longest first": np.array(LENGTHS[::-1]),
    "mixed": np.random.default_rng(0).permutation(np.repeat(LENGTHS, 13)),
    "none above 8": np.random.default_rng(1).permutation(np.repeat(LENGTHS[:5], 13)),
    "none above 17": np.random.default_rng(2).permutation(np.repeat(LENGTHS[:8], 13)),
}
N = 50


def summed(lengths: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Sums of (items, ...) float32 over rows, in order; rows above LONG in float64."""
    out = np.zeros((len(lengths), *values.shape[1:]), np.float32)
    ends = np.cumsum(lengths)
    for i, (n, end) in enumerate(zip(lengths, ends, strict=True)):
        row = values[end - n : end]
        for v in row if n <= LONG else ():
            out[i] += v
        if n > LONG:
            out[i] = row.astype(np.float64).sum(0)
    return out


def same(lengths: np.ndarray, got: np.ndarray, want: np.ndarray) -> None:
    short = np.flatnonzero(lengths <= LONG)
    assert np.array_equal(got[short], want[short])
    assert np.allclose(got, want, atol=1e-4, rtol=1e-5)


def products(
    order: str, layers: int
) -> tuple[F.linalg.SparseMatrix, np.ndarray, np.ndarray, np.ndarray]:
    """A matrix, a stack of tables, the lengths of its rows, and the product."""
    rng = np.random.default_rng(3)
    lengths = ORDERS[order]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    columns = rng.integers(0, N, offsets[-1])
    columns[-1:] = N - 1  # the end of the table of values, too
    values = rng.normal(size=offsets[-1]).astype(np.float32)
    data = rng.normal(size=(layers, 1, N, 3)).astype(np.float32)
    want = np.stack([summed(lengths, values[:, None] * d[0, columns]) for d in data])
    return F.linalg.SparseMatrix(offsets, columns, values, N), data, lengths, want


@pytest.mark.parametrize("lowering", ["compute", "graphics"])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("order", ORDERS)
def test_products(order: str, layers: int, lowering: str) -> None:
    matrix, data, lengths, want = products(order, layers)
    x = F.leaf(data, VEC3)
    n = len(lengths)
    image = F.leaf(data.reshape(layers, 5, N // 5, 3), VEC3)
    mapped = None if layers > 1 else F.linalg.linear_map(matrix, image, (1, n))
    with DressiAD(options=Options(lowering=lowering)) as ad:
        got = ad.recv_img(F.linalg.sparse_matmul(matrix, x)).reshape(layers, n, 3)
        # Where rows are long in the mean, groups of invocations share the short ones, too.
        shared = lowering == "compute" and lengths.mean() >= group_rows.LONG
        for layer in range(layers):
            same(lengths[:0] if shared else lengths, got[layer], want[layer])
        if mapped is not None:
            same(lengths, ad.recv_img(mapped).reshape(n, 3), want[0])


@pytest.mark.parametrize("limits", [None, {"subgroup_arithmetic": False}], ids=["all", "alone"])
@pytest.mark.parametrize("lowering", ["compute", "graphics"])
@pytest.mark.parametrize("vtype", [FLOAT, VEC2, VEC4, MAT2], ids=lambda t: t.name)
def test_gradients_of_lookups(
    vtype: VType, lowering: str, limits: dict[str, int | bool] | None
) -> None:
    """Also after another index is sent, whose rows are longer."""
    rng = np.random.default_rng(4)
    mixed = ORDERS["mixed"]
    n, count = len(mixed), int(mixed.sum())
    table = Variable(vtype, (n, 1), requires_grad=True)
    index = Variable(INT, (count, 1))
    w = rng.normal(size=(count, *vtype.tail)).astype(np.float32)
    loss = F.lookup(table, index) * F.leaf(w, vtype) if not vtype.is_matrix else None
    if loss is None:  # the gradient of trace(A^T B) to A is B
        x = F.lookup(table, index)
        a, b = (F.leaf(c, VEC2) for c in (w[..., 0], w[..., 1]))
        e = [F.leaf(np.array(c, np.float32), VEC2) for c in ((1, 0), (0, 1))]
        loss = F.dot(x @ e[0], a) + F.dot(x @ e[1], b)
    short = np.full(n, count // n)
    short[0] += count - short.sum()
    with DressiAD(options=Options(lowering=lowering), limits=limits) as ad:
        ad.send_img(table, np.zeros((n, *vtype.tail)))
        ad.set_loss_var(loss)
        for lengths in (np.minimum(mixed, 8), mixed, short):
            used = int(lengths.sum())
            rows = np.full(count, -1, np.int32)
            rows[:used] = np.repeat(np.arange(n), lengths)
            ad.send_img(index, rows[:, None])
            want = summed(lengths, w[:used])
            same(lengths, ad.recv_grad(table).reshape(want.shape), want)


@pytest.mark.parametrize("lowering", ["compute", "graphics"])
def test_what_is_not_in_a_row_does_not_leak(lowering: str) -> None:
    """Rows of NaN and infinities next to empty and short ones."""
    lengths = np.array([0, 3, 0, 1, 9, 0, 2, 0])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    over = np.array([0.0, 1.0, -1.0, -0.0, *np.arange(9), 0.0, 1.0], np.float32)
    under = np.array([0.0, 0.0, 0.0, *np.ones(10), 0.0, 0.0], np.float32)
    matrix = F.linalg.SparseMatrix(offsets, np.arange(15), np.ones(15), 15)
    table = Variable(FLOAT, (8, 1), requires_grad=True)
    index = Variable(INT, (15, 1))
    with DressiAD(options=Options(lowering=lowering)) as ad:
        x = F.leaf(over, FLOAT) / F.leaf(under, FLOAT)
        assert np.array_equal(np.isfinite(ad.recv_img(x)).reshape(-1), under > 0)
        ad.send_img(index, np.repeat(np.arange(8), lengths)[:, None])
        ad.send_img(table, np.zeros((8, 1)))
        ad.set_loss_var(F.lookup(table, index) * x)
        for got in (ad.recv_img(F.linalg.sparse_matmul(matrix, x)), ad.recv_grad(table)):
            a = got.reshape(-1)
            assert np.isnan(a[[1, 6]]).all()
            assert np.array_equal(a[[0, 2, 3, 4, 5, 7]], [0, 0, 0, 36, 0, 0])
            assert not np.signbit(a[[0, 2, 5, 7]]).any()


@pytest.mark.parametrize("lowering", ["compute", "graphics"])
def test_a_matrix_without_entries_makes_zeros(lowering: str) -> None:
    matrix = F.linalg.SparseMatrix(np.zeros(6, int), np.zeros(0, int), np.zeros(0), 4)
    x = F.leaf(np.full((4, 1), 7.0, np.float32), FLOAT)
    with DressiAD(options=Options(lowering=lowering)) as ad:
        assert np.array_equal(
            ad.recv_img(F.linalg.sparse_matmul(matrix, x)).reshape(-1), np.zeros(5)
        )


def test_a_step_gathers_what_was_scattered_as_vectors() -> None:
    """Gradients that lookups with dynamic indices scatter into buffers, gathered from there as
    whole vectors; beside NumPy, exact numbers."""
    rng = np.random.default_rng(5)
    faces = np.stack([rng.permutation(20) for _ in range(2)]).ravel().astype(np.int32)
    seen = rng.integers(-1, 40, (2, 9, 7, 1)).astype(np.int32)
    for vtype in (VEC2, VEC4):
        w = rng.integers(-8, 9, (2, 9, 7, vtype.n)).astype(np.float32) / 4
        table, index = Variable(vtype, (20, 1), 2, requires_grad=True), Variable(INT, (40, 1))
        ids = Variable(INT, (7, 9), 2)
        corner = F.lookup(table, index)
        loss = F.lookup(corner, F.dynamic(ids)) * F.leaf(w, vtype)
        want = np.zeros((2, 20, vtype.n))
        for where in np.argwhere(seen[..., 0] >= 0):
            layer, y, x = where
            want[layer, faces[seen[layer, y, x, 0]]] -= w[layer, y, x]
        for lowering in ("compute", "graphics"):
            with DressiAD(options=Options(lowering=lowering)) as ad:
                ad.send_img(table, np.zeros((2, 1, 20, vtype.n)))
                ad.send_img(index, faces[:, None])
                ad.send_img(ids, seen)
                ad.set_loss_var(loss)
                ad.set_optimizer(SGD(1.0))
                ad.exec_step()
                assert f"{vtype.glsl} b" in ad.glsl_text()
                assert np.array_equal(ad.recv_img(table).reshape(want.shape), want)
