"""Gathers and scatters in dispatches: the same numbers as in subpasses and as NumPy's, whatever the
lengths of rows, and with and without sums over subgroups."""

from __future__ import annotations

import numpy as np
import pytest

from dressi import DressiAD, F, Variable
from dressi.ad.functions.rows import LONG
from dressi.ad.vtype import FLOAT, INT, MAT2, VEC2, VEC3, VEC4, VType
from dressi.packing import Options
from dressi.testing.problems import antialias_problem, silhouette_problem, sphere, view_matrices

pytestmark = pytest.mark.gpu

COMPUTE, GRAPHICS = Options(lowering="compute"), Options(lowering="graphics")
SUBGROUPS: dict[str, int | bool] = {"subgroup_arithmetic": True}
ALONE: dict[str, int | bool] = {"subgroup_arithmetic": False}


def has_subgroups() -> bool:
    with DressiAD() as ad:
        return ad.limits.subgroup_arithmetic and ad.limits.float_atomics


def lengths_matrix() -> tuple[F.linalg.SparseMatrix, np.ndarray]:
    """Rows of 0 to 70 entries: every rest of the blocks, and several of the largest one."""
    rng = np.random.default_rng(0)
    lengths = rng.permutation(71)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    columns = rng.integers(0, 40, offsets[-1])
    values = rng.normal(size=offsets[-1]).astype(np.float32)
    dense = np.zeros((71, 40))
    np.add.at(dense, (np.repeat(np.arange(71), lengths), columns), values.astype(np.float64))
    return F.linalg.SparseMatrix(offsets, columns, values, 40), dense


def test_rows_of_every_length_have_the_same_sums_all_ways() -> None:
    """linear_map, and the gather of a lookup's gradient: the same bits in dispatches as in
    subpasses, but where a subgroup adds up a row of more than LONG entries; sparse_matmul: nearly,
    for groups share rows that are as long in the mean."""
    matrix, dense = lengths_matrix()
    rng = np.random.default_rng(1)
    data = rng.normal(size=(40, 3)).astype(np.float32)
    x = F.leaf(data, VEC3)
    image = F.leaf(data.reshape(5, 8, 3), VEC3)
    table = Variable(VEC3, (71, 1), requires_grad=True)
    index = np.repeat(np.arange(71), np.diff(matrix.offsets)).astype(np.int32)
    rows = Variable(INT, (len(index), 1))
    w = rng.normal(size=(len(index), 3)).astype(np.float32)
    loss = F.lookup(table, rows) * F.leaf(w, VEC3)
    found = []
    for options, limits in ((COMPUTE, ALONE), (GRAPHICS, None), (COMPUTE, None)):
        with DressiAD(options=options, limits=limits) as ad:
            ad.send_img(rows, index[:, None])
            ad.send_img(table, np.zeros((71, 3)))
            ad.set_loss_var(loss)
            mapped = F.linalg.linear_map(matrix, image, (71, 1))
            got = [
                ad.recv_img(v).reshape(71, 3) for v in (F.linalg.sparse_matmul(matrix, x), mapped)
            ]
            found.append([*got, ad.recv_grad(table)])
    wanted = np.zeros((71, 3))
    np.add.at(wanted, index, w.astype(np.float64))
    short = np.diff(matrix.offsets) <= LONG
    for k, want in enumerate((dense @ data, dense @ data, wanted)):
        alone, passes, together = (ways[k] for ways in found)
        if k > 0:
            assert np.array_equal(alone, passes)
            assert np.array_equal(alone[short], together[short])
        for got in (alone, passes, together):
            assert np.allclose(got, want, atol=1e-5)


def test_long_rows_of_stacked_tables_keep_to_their_layers() -> None:
    """A subgroup has lanes of several layers; one row of 40 entries a layer."""
    matrix = F.linalg.SparseMatrix(np.array([0, 40, 41]), np.arange(41) % 37, np.ones(41), 37)
    data = np.random.default_rng(2).normal(size=(5, 37, 1)).astype(np.float32)
    with DressiAD(options=COMPUTE) as ad:
        got = ad.recv_img(F.linalg.sparse_matmul(matrix, F.leaf(data[:, None], FLOAT))).reshape(
            5, 2
        )
    want = np.stack([data[:, :, 0].sum(1) + data[:, :3, 0].sum(1), data[:, 3, 0]], 1)
    assert np.allclose(got, want, atol=1e-5)


@pytest.mark.parametrize(
    ("vtype", "layers", "table_layers", "n"),
    [(FLOAT, 1, 1, 1), (VEC3, 1, 1, 3), (VEC4, 3, 3, 5), (VEC2, 2, 1, 700), (MAT2, 1, 1, 4)],
    ids=["one row", "few rows", "layers", "many rows", "matrices"],
)
def test_subgroups_add_the_same(vtype: VType, layers: int, table_layers: int, n: int) -> None:
    """Numbers of rows below and above those that a subgroup adds up together, rows out of range
    among them, and zeros that are not added."""
    if not has_subgroups():
        pytest.skip("no sums over subgroups, or no float atomics")
    rng = np.random.default_rng(n)
    shape = (layers, 37, 41)
    index = rng.integers(-1, n + 1, (*shape, 1)).astype(np.int32)
    value = rng.integers(-8, 9, (*shape, *vtype.tail)).astype(np.float32) / 4  # exact sums
    value[rng.uniform(size=shape) < 0.5] = 0
    want = np.zeros((table_layers, n, *vtype.tail))
    for where in np.ndindex(*shape):
        row = index[where][0]
        if 0 <= row < n:
            want[where[0] if table_layers > 1 else 0, row] += value[where]
    v, i = Variable(vtype, shape[:0:-1], layers), Variable(INT, shape[:0:-1], layers)
    one = F.scatter_add(v, F.dynamic(i), (n, 1), table_layers)
    two = F.scatter_add(-v, F.dynamic(i), (n, 1), table_layers)
    for limits in (SUBGROUPS, ALONE):
        with DressiAD(options=COMPUTE, limits=limits) as ad:
            ad.send_img(v, value)
            ad.send_img(i, index)
            got = ad.recv_imgs([one, two])
        assert np.array_equal(got[0].reshape(want.shape), want)
        assert np.array_equal(got[1].reshape(want.shape), -want)


def test_a_single_contribution_is_exact() -> None:
    if not has_subgroups():
        pytest.skip("no sums over subgroups, or no float atomics")
    value = np.random.default_rng(0).normal(size=(8, 8, 1)).astype(np.float32)
    v, i = F.leaf(value, FLOAT), Variable(INT, (8, 8))
    with DressiAD(options=COMPUTE) as ad:
        ad.send_img(i, np.arange(64).reshape(8, 8, 1))
        got = ad.recv_img(F.scatter_add(v, F.dynamic(i), (64, 1)))
    assert np.array_equal(got.reshape(-1), value.reshape(-1))


@pytest.mark.parametrize("way", ["soft", "antialias"])
def test_a_silhouette_has_the_same_gradient_with_guards_and_subgroups(way: str) -> None:
    """Beside the subpasses' and, of the same loss, NaN-free: rows of faces that hardly any pixel
    sees, and of large ones."""
    matrices = view_matrices(2)
    mesh = sphere(80)
    targets = np.zeros((2, 48, 64, 1), np.float32)
    targets[:, 10:40, 12:44] = 1.0
    if way == "soft":
        problem = silhouette_problem(mesh, matrices, targets, r=0.1, max_r=0.1)
    else:
        problem = antialias_problem(mesh, matrices, targets)
    found = []
    for options, limits in ((COMPUTE, SUBGROUPS), (COMPUTE, ALONE), (GRAPHICS, ALONE)):
        if limits is SUBGROUPS and not has_subgroups():
            continue
        with DressiAD(options=options, limits=limits) as ad:
            problem.load(ad)
            found.append((ad.recv_img(problem.loss), ad.recv_grad(problem.parameter)))
    for loss, gradient in found[1:]:
        assert np.array_equal(loss, found[0][0]) or np.allclose(loss, found[0][0], atol=1e-6)
        norm = np.linalg.norm(found[0][1])
        assert norm > 0 and np.linalg.norm(gradient - found[0][1]) < 1e-4 * norm


@pytest.mark.parametrize("wrap", ["clamp", "repeat", "mirror", "border"])
@pytest.mark.parametrize("texels", [(4, 3), (24, 30), (90, 70)], ids=["coarse", "as fine", "finer"])
@pytest.mark.parametrize(("filter", "layers"), [("linear", 1), ("linear", 2), ("nearest", 1)])
def test_subgroups_add_to_textures_the_same(
    wrap: str, texels: tuple[int, int], filter: str, layers: int
) -> None:
    """Coarse textures, whose texels a subgroup shares; finer ones, where each lane has its own; a
    seam through the picture, and pixels without a gradient."""
    if not has_subgroups():
        pytest.skip("no sums over subgroups, or no float atomics")
    w, h = 37, 29
    y, x = np.mgrid[:h, :w] / float(max(w, h))
    uv = np.stack([0.3 + 1.1 * x, 1.2 * y - 0.1], -1).astype(np.float32)
    uv = np.stack([np.roll(uv, 5 * k, 1) for k in range(layers)])
    value = np.random.default_rng(0).normal(size=(layers, h, w, 3)).astype(np.float32)
    value[:, 8:12] = 0
    tex = Variable(VEC3, texels, layers, requires_grad=True)
    read = F.texture(tex, F.leaf(uv, VEC2), filter=filter, wrap=wrap)
    found = []
    for limits in (SUBGROUPS, ALONE):
        with DressiAD(options=COMPUTE, limits=limits) as ad:
            ad.send_img(tex, np.zeros((layers, *texels[::-1], 3)))
            ad.set_loss_var(read * F.leaf(value, VEC3))
            found.append(ad.recv_grad(tex).astype(np.float64))
    together, alone = found
    assert np.abs(alone).max() > 0.1
    assert np.allclose(together, alone, atol=2e-5 * np.abs(alone).max())
    if wrap != "border":  # else what lies beyond takes a share
        total = together.reshape(layers, -1, 3).sum(1)
        assert np.allclose(total, value.sum((1, 2)), atol=1e-3)
