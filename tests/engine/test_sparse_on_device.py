"""Sparse passes, and what vertices read for fragments: the same bits as without, on a device."""

from __future__ import annotations

import numpy as np
import pytest

from dressi import Adam, DressiAD, F, Options, Variable
from dressi.ad.vtype import FLOAT, INT, IVEC3, MAT4, VEC3
from dressi.packing import sparse
from dressi.render.raster import build_hardsoftras
from dressi.render.scene import icosphere
from dressi.testing.problems import (
    antialias_problem,
    hard_silhouettes,
    silhouette_problem,
    squashed,
    view_matrices,
)
from dressi.testing.random_graphs import masked_graph

pytestmark = pytest.mark.gpu

PLAIN = Options(
    deterministic=True, sparse=False, per_primitive=False, image_loads=False, rederive=False
)
"""Additions commute, so that all bits can be compared."""
FAST = Options(deterministic=True)
STEPS = 12
"""Enough for both rebuilds of the cache."""


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all devices take passes, and a second draw pay at the small sizes of tests."""
    monkeypatch.setenv("DRESSI_PROFILE", "llvmpipe")
    monkeypatch.setattr(sparse, "pays", lambda profile, n_pixels, n_saved: True)


def n_sparse(ad: DressiAD) -> int:
    return sum(bool(s.mask) for stage in ad.plan.stages for s in stage.substages)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.tobytes() == b.tobytes()


@pytest.mark.parametrize("views", [1, 3])
@pytest.mark.parametrize("method", ["K = 1", "K = 3", "antialias"])
def test_steps_of_silhouettes_have_the_same_bits(method: str, views: int) -> None:
    """Parameters, moments and loss after steps; a size that no power of two divides."""
    mesh, matrices = icosphere(2, 0.6), view_matrices(views)
    targets = hard_silhouettes(squashed(mesh), matrices, 44)
    results = []
    for options in (PLAIN, FAST):
        if method == "antialias":
            problem = antialias_problem(mesh, matrices, targets, adam=Adam(1e-2))
        else:
            K = int(method[-1])
            problem = silhouette_problem(mesh, matrices, targets, K, adam=Adam(1e-2))
        with DressiAD(options=options) as ad:
            problem.load(ad)
            ad.exec_steps(STEPS)
            assert (n_sparse(ad) > 0) == options.sparse
            shown = [problem.parameter, problem.loss, problem.picture]
            results.append([ad.recv_img(v) for v in shown])
    for a, b in zip(*results, strict=True):
        assert same_bits(a, b)


def test_random_graphs_with_masks_have_the_same_bits() -> None:
    """Loss and gradients of graphs with sides that are NaN, and steps, in which updates are written
    in place."""
    values: list[list[list[np.ndarray]]] = []
    n = 0
    for options in (PLAIN, FAST):
        values.append([])
        with DressiAD(options=options) as ad:
            for seed in range(18):
                graph = masked_graph(seed)
                gradients = list(graph.gradients().values())
                for v, data in graph.feeds.items():
                    ad.send_img(v, data)
                values[-1].append(ad.recv_imgs([graph.loss, *gradients]))
                ad.set_loss_var(F.sum(graph.loss))
                ad.set_optimizer(Adam(1e-2))
                ad.exec_steps(3)
                n += n_sparse(ad)
                values[-1].append([ad.recv_img(v) for v in graph.feeds])
    assert n >= 9
    for a, b in zip(*values, strict=True):
        assert all(same_bits(x, y) for x, y in zip(a, b, strict=True))


def test_a_mask_of_any_value_chooses_the_same() -> None:
    """-0, NaN and denormals in the mask, infinity and NaN on the side that is not taken."""
    size = (7, 5)
    c, x = Variable(FLOAT, size, name="c"), Variable(FLOAT, size, name="x")
    y = x
    for _ in range(30):
        y = F.sqrt(y) * 1.5
    chosen = F.where(c / c * c, y, x)  # NaN where c is 0
    other = F.where(c, y, x + 1.0)
    mask = np.resize(np.float32([0.0, -0.0, 1.0, 1e-42, -3.0]), (5, 7, 1))
    data = np.linspace(-2, 2, 35, dtype=np.float32).reshape(5, 7, 1)
    shown = []
    for options in (PLAIN, FAST):
        with DressiAD(options=options) as ad:
            ad.send_img(c, mask)
            ad.send_img(x, data)
            shown.append(ad.recv_imgs([chosen, other]))
    for a, b in zip(*shown, strict=True):
        np.testing.assert_array_equal(a, b)


def test_vertices_read_the_same_for_fragments() -> None:
    """Faces that reach behind the camera and out of the picture, two views."""
    rng = np.random.default_rng(5)
    pos, faces = rng.normal(size=(12, 3)), rng.integers(0, 12, (9, 3))
    leaf, index = Variable(VEC3, (12, 1), name="pos"), Variable(IVEC3, (9, 1), name="faces")
    matrix = Variable(MAT4, (1, 1), 2, name="matrix")
    hs = build_hardsoftras(leaf, index, matrix, (48, 40), 0.05, K=2)
    shown = []
    for options in (PLAIN, FAST):
        with DressiAD(options=options) as ad:
            ad.send_img(leaf, pos)
            ad.send_img(index, faces)
            ad.send_img(matrix, view_matrices(2))
            values = [hs.silhouette, *(v for p in hs.peels for v in (p.ids, p.depth, p.bary))]
            shown.append(ad.recv_imgs(values))
    assert (shown[0][1] >= 0).mean() > 0.2
    for a, b in zip(*shown, strict=True):
        assert same_bits(a, b)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("size", [(70, 37), (64, 32), (31, 16)])
def test_tiles_of_a_packed_mask_have_the_same_bits(size: tuple[int, int], layers: int) -> None:
    """No bit, some, all; sizes that no tile divides; the sum, and the gradient through the long
    side, which is NaN where it is not taken."""
    table = Variable(FLOAT, (9, 1), requires_grad=True, name="table")
    rows, level = Variable(INT, size, layers), Variable(FLOAT, size, layers)
    x = F.lookup(table, F.dynamic(rows))
    bits = F.bits.unpack_bits(F.bits.pack_bits(level, 0.5), size)
    y = x
    for _ in range(15):
        y = F.sqrt(y) * 1.5
    e = F.where(bits, y, level) - 0.25
    loss = F.sum(e * e)
    rng = np.random.default_rng(1)
    shape = (layers, size[1], size[0], 1)
    shown: list[list[np.ndarray]] = []
    in_tiles = 0
    for options in (PLAIN, FAST):
        shown.append([])
        for share in (0.0, 0.03, 1.0):
            mask = np.random.default_rng(2).random(shape) < share
            index = np.where(mask, rng.integers(4, 9, shape), rng.integers(0, 9, shape))
            rng = np.random.default_rng(1)
            with DressiAD(options=options) as ad:
                ad.send_img(table, np.arange(-4.0, 5.0))
                for v, data in ((rows, index), (level, mask.astype(np.float32))):
                    ad.send_img(v, data if layers > 1 else data[0])
                ad.set_loss_var(loss)
                ad.set_optimizer(Adam(1e-2))
                ad.exec_step()
                shown[-1] += [ad.recv_img(loss), ad.recv_img(table)]
                drawn = [s for stage in ad.plan.stages for s in stage.substages if s.mask]
                in_tiles += sum(not s.outside for s in drawn)
    assert in_tiles == 3
    for a, b in zip(*shown, strict=True):
        assert np.isfinite(a).all() and same_bits(a, b)


@pytest.mark.parametrize("views", [1, 3])
def test_both_plans_of_a_silhouette_draw_tiles_and_give_the_same_bits(views: int) -> None:
    """The picture is kept: a first draw covers what is outside of the mask. The gradient comes from
    the pixels of the mask alone. A size that no tile divides."""
    mesh, matrices = icosphere(2, 0.6), view_matrices(views)
    pos = Variable(VEC3, (len(mesh.positions), 1), requires_grad=True, name="pos")
    faces, matrix = Variable(IVEC3, (len(mesh.faces), 1)), Variable(MAT4, (1, 1), views)
    picture = build_hardsoftras(pos, faces, matrix, (70, 37), 0.05).silhouette
    upstream = np.random.default_rng(1).normal(size=(views, 37, 70, 1)).astype(np.float32)
    shown: list[list[np.ndarray]] = []
    for options in (PLAIN, FAST):
        with DressiAD(options=options) as ad:
            for leaf, data in ((pos, mesh.positions), (faces, mesh.faces), (matrix, matrices)):
                ad.send_img(leaf, data if leaf.layers > 1 or leaf is not matrix else data[0])
            vjp = ad.vjp([picture], [pos])
            shown.append(vjp.forward() + vjp.backward([upstream if views > 1 else upstream[0]]))
            halves = [[s for t in p.packed.plan.stages for s in t.substages] for p in vjp.parts()]
    for half, covered in zip(halves, (True, False), strict=True):
        (drawn,) = [s for s in half if s.mask and not s.depth]
        assert bool(drawn.outside) == covered
    for a, b in zip(*shown, strict=True):
        assert a.any() and same_bits(a, b)


def test_what_an_update_overwrites_is_not_covered_before_it_is_read() -> None:
    """x becomes where(bits, sqrt(... x), other) in place: the second draw reads the old x."""
    size = (70, 37)
    x, level, other = (Variable(FLOAT, size, name=name) for name in ("x", "level", "other"))
    y = x
    for _ in range(15):
        y = F.sqrt(y) * 1.5
    bits = [F.bits.unpack_bits(F.bits.pack_bits(v, 0.5), size) for v in (level, other)]
    x.update = F.where(bits[0], y, bits[1])
    rng = np.random.default_rng(1)
    data = [rng.random((37, 70, 1), np.float32) for _ in range(3)]
    shown = []
    for options in (PLAIN, FAST):
        with DressiAD(options=options) as ad:
            for v, values in zip((x, level, other), data, strict=True):
                ad.send_img(v, values)
            ad.set_loss_var(F.sum(x))
            ad.exec_steps(2)
            assert (n_sparse(ad) > 0) == options.sparse and not ad.plan.updates
            shown.append(ad.recv_img(x))
    assert same_bits(*shown)
