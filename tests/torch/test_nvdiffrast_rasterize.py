"""``rasterize``, ``interpolate`` and ``DepthPeeler`` against float64 and finite differences."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="dressi.torch needs torch")

from pixel_reference import (  # noqa: E402
    differences,
    interpolated,
    interpolated_da,
    rasterized,
    visible,
)

import dressi.torch.nvdiffrast as dr  # noqa: E402
from dressi import GraphError  # noqa: E402

pytestmark = pytest.mark.gpu

SIZE = (11, 14)  # height, width: neither square nor even
FORWARD = 1e-4
GRADIENT = 2e-3
"""Of the largest entry: weights in float32 are sums of products of pixels."""


def scene(seed: int, n_faces: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Random large triangles in perspective, some of them over each other."""
    rng = np.random.default_rng(seed)
    w = rng.uniform(0.6, 2.0, (3 * n_faces, 1))
    ndc = rng.uniform(-1.1, 1.1, (3 * n_faces, 3)) * (1, 1, 0.8)
    tri = rng.permutation(3 * n_faces).reshape(n_faces, 3)
    return np.concatenate([ndc * w, w], 1), tri


def tensor(a: np.ndarray, grad: bool = False) -> torch.Tensor:
    return torch.tensor(a, dtype=torch.float32, requires_grad=grad)


def ints(a: object) -> torch.Tensor:
    return torch.tensor(np.asarray(a), dtype=torch.int32)


def draw(pos: np.ndarray, tri: np.ndarray, **kwargs: object) -> tuple[np.ndarray, np.ndarray]:
    rast, db = dr.rasterize(dr.RasterizeCudaContext(), tensor(pos), ints(tri), SIZE, **kwargs)
    return rast.numpy().astype(float), db.numpy().astype(float)


@pytest.mark.parametrize("seed", range(3))
def test_rasterize_and_its_derivatives_agree_with_float64(seed):
    pos, tri = scene(seed, 9)
    rast, db = draw(pos[None], tri)
    ids, sure = visible(pos, tri, SIZE)
    assert sure.mean() > 0.6 and (ids >= 0).mean() > 0.3
    wanted, wanted_db = rasterized(pos, tri, ids)
    np.testing.assert_allclose(rast[0][sure], wanted[sure], atol=FORWARD)
    scale = np.abs(wanted_db).max()
    np.testing.assert_allclose(db[0][sure], wanted_db[sure], atol=FORWARD * max(1.0, scale))


def test_a_picture_upside_down_is_that_of_positions_upside_down():
    pos, tri = scene(3)
    rast, db = draw(np.stack([pos, pos * (1, -1, 1, 1)]), tri)
    same = rast[0, ..., 3] == rast[1, ::-1, :, 3]
    assert same.mean() > 0.98  # ties of the rule for edges fall to one side
    np.testing.assert_allclose(rast[0][same], rast[1, ::-1][same], atol=1e-5)
    signs = (1, -1, 1, -1)
    np.testing.assert_allclose(db[0][same], db[1, ::-1][same] * signs, atol=1e-4)


def test_row_0_is_at_the_bottom_and_u_belongs_to_vertex_0():
    pos = np.array([[[-1.0, -1, 0, 1], [3, -1, 0, 1], [-1, 3, 0, 1]]])
    rast, _ = draw(pos, [[0, 1, 2]])
    h, w = SIZE
    assert rast[0, 0, 0, 0] == pytest.approx(1 - 0.25 / w - 0.25 / h, abs=1e-5)
    assert rast[0, 0, -1, 1] == pytest.approx(0.5 * (w - 0.5) / w, abs=1e-5)


def test_triangles_are_cut_at_the_near_plane_and_corners_may_lie_behind_the_camera():
    floor = np.array([[-3.0, -0.5, 4, 5], [3, -0.5, 4, 5], [0, -0.8, -2.5, -2]])
    ids, sure = visible(floor, np.array([[0, 1, 2]]), SIZE)
    assert (ids == 0).sum() > 10
    rast, _ = draw(floor[None], [[0, 1, 2]])
    wanted, _ = rasterized(floor, np.array([[0, 1, 2]]), ids)
    np.testing.assert_allclose(rast[0][sure], wanted[sure], atol=FORWARD)
    behind = floor * (1, 1, 1, -1)
    behind[2] = (0, 0.5, -2, -1)
    assert not draw(behind[None], [[0, 1, 2]])[0].any()


def test_triangles_without_area_are_not_drawn():
    pos, _ = scene(4)
    pos[3] = 0.5 * (pos[0] + pos[1])
    assert not draw(pos[None], [[0, 0, 0], [0, 1, 1]])[0].any()
    line, db = draw(pos[None], [[0, 1, 3]])
    assert np.isfinite(line).all() and np.isfinite(db).all()


def loss_of(rast, db, coefficients):
    return (rast[..., :2] * coefficients[0]).sum() + (db * coefficients[1]).sum()


@pytest.mark.parametrize("grad_db", [False, True])
def test_gradient_reaches_positions_through_weights_and_their_derivatives(grad_db):
    pos, tri = scene(5, 3)
    rng = np.random.default_rng(5)
    c = [rng.uniform(-1, 1, (*SIZE, 2)), rng.uniform(-1, 1, (*SIZE, 4)) * 0.5]
    p = tensor(pos[None], grad=True)
    rast, db = dr.rasterize(dr.RasterizeCudaContext(), p, ints(tri), SIZE, grad_db=grad_db)
    ids = rast.detach().numpy()[0, ..., 3].astype(int) - 1
    # What lies on an edge is the nearest point of the face, not the pixel.
    sure = visible(pos, tri, SIZE)[1][..., None]
    c = [v * sure for v in c]
    loss_of(rast[0], db[0], [tensor(v) for v in c]).backward()
    used = c if grad_db else [c[0], c[1] * 0]
    wanted = differences(lambda x: loss_of(*rasterized(x, tri, ids), used), pos)
    np.testing.assert_allclose(p.grad[0].numpy(), wanted, atol=GRADIENT * np.abs(wanted).max())


def test_no_gradient_through_depth_and_number():
    pos, tri = scene(6)
    p = tensor(pos[None], grad=True)
    rast, _ = dr.rasterize(dr.RasterizeCudaContext(), p, ints(tri), SIZE)
    rast[..., 2:].sum().backward()
    assert p.grad is None or not p.grad.any()


def test_ranges_draw_each_its_own_triangles_under_their_own_numbers():
    pos, tri = scene(7, 6)
    ranges = [[0, 2], [2, 4], [3, 0], [5, 1]]
    rast, db = draw(pos, tri, ranges=ints(ranges))
    for k, (start, count) in enumerate(ranges):
        if count == 0:
            assert not rast[k].any()
            continue
        alone, alone_db = draw(pos[None], tri[start : start + count])
        number = alone[0, ..., 3]
        alone[0, ..., 3] = np.where(number > 0, number + start, 0)
        np.testing.assert_array_equal(rast[k], alone[0])
        np.testing.assert_array_equal(db[k], alone_db[0])


def test_the_peeler_gives_the_layers_from_the_nearest_to_nothing():
    pos, tri = scene(8)
    ctx = dr.RasterizeCudaContext()
    with dr.DepthPeeler(ctx, tensor(pos[None]), ints(tri), SIZE) as peeler:
        for peel in range(3):
            rast, _ = peeler.rasterize_next_layer()
            ids, sure = visible(pos, tri, SIZE, peel)
            wanted, _ = rasterized(pos, tri, ids)
            np.testing.assert_allclose(rast[0].numpy()[sure], wanted[sure], atol=FORWARD)
    with pytest.raises(GraphError, match="not open"):
        peeler.rasterize_next_layer()


@pytest.mark.parametrize("n", [1, 3, 4, 9])
def test_interpolate_takes_any_number_of_channels(n):
    pos, tri = scene(9)
    attr = np.random.default_rng(n).uniform(-1, 1, (len(pos), n))
    rast, db = dr.rasterize(dr.RasterizeCudaContext(), tensor(pos[None]), ints(tri), SIZE)
    out, da = dr.interpolate(tensor(attr[None]), rast, ints(tri), db, diff_attrs="all")
    r, d = rast[0].double().numpy(), db[0].double().numpy()
    np.testing.assert_allclose(out[0].numpy(), interpolated(attr, r, tri), atol=FORWARD)
    wanted = interpolated_da(attr, r, tri, d)
    np.testing.assert_allclose(da[0].numpy(), wanted, atol=FORWARD * np.abs(wanted).max())
    some, few = dr.interpolate(tensor(attr), rast, ints(tri), db, diff_attrs=[n - 1])
    np.testing.assert_array_equal(some, out)
    np.testing.assert_array_equal(few, da[..., -2:])
    assert dr.interpolate(tensor(attr), rast, ints(tri))[1].numel() == 0


def test_gradient_of_interpolate_reaches_attributes_weights_and_derivatives():
    pos, tri = scene(10, 3)
    rng = np.random.default_rng(10)
    attr = rng.uniform(-1, 1, (len(pos), 5))
    rast, db = dr.rasterize(dr.RasterizeCudaContext(), tensor(pos[None]), ints(tri), SIZE)
    a, r, d = tensor(attr[None], True), rast.clone().requires_grad_(), db.clone().requires_grad_()
    out, da = dr.interpolate(a, r, ints(tri), d, [0, 4])
    c, e = rng.uniform(-1, 1, out.shape[1:]), rng.uniform(-1, 1, da.shape[1:])
    ((out[0] * tensor(c)).sum() + (da[0] * tensor(e)).sum()).backward()
    rr, dd = r[0].detach().double().numpy(), d[0].detach().double().numpy()

    def loss(attr_, rast_, db_):
        picked = interpolated_da(attr_[:, [0, 4]], rast_, tri, db_)
        return (interpolated(attr_, rast_, tri) * c).sum() + (picked * e).sum()

    wanted = differences(lambda x: loss(x, rr, dd), attr)
    np.testing.assert_allclose(a.grad[0].numpy(), wanted, atol=GRADIENT * np.abs(wanted).max())
    patch = (slice(3, 7), slice(4, 8), slice(0, 2))
    by_rast = np.zeros_like(rr)
    by_rast[patch] = differences(lambda x: loss(attr, _with(rr, patch, x), dd), rr[patch])
    got = r.grad[0].numpy()
    np.testing.assert_allclose(got[patch], by_rast[patch], atol=GRADIENT * np.abs(got).max())
    assert not got[..., 2:].any()
    whole = (slice(3, 7), slice(4, 8), slice(0, 4))
    wanted = differences(lambda x: loss(attr, rr, _with(dd, whole, x)), dd[whole])
    got = d.grad[0].numpy()
    np.testing.assert_allclose(got[whole], wanted, atol=GRADIENT * np.abs(got).max())


def _with(a: np.ndarray, patch: tuple[slice, ...], values: np.ndarray) -> np.ndarray:
    out = a.copy()
    out[patch] = values
    return out


def test_nothing_to_draw_is_an_empty_picture():
    ctx = dr.RasterizeCudaContext()
    rast, db = dr.rasterize(ctx, torch.zeros(2, 3, 4), ints(np.zeros((0, 3))), SIZE)
    assert rast.shape == db.shape == (2, *SIZE, 4) and not rast.any()
    out, _ = dr.interpolate(torch.ones(2, 3, 5), rast, ints(np.zeros((0, 3))))
    assert out.shape == (2, *SIZE, 5) and not out.any()
    pos, attr = torch.zeros(2, 3, 4, requires_grad=True), torch.ones(2, 3, 5, requires_grad=True)
    rast, db = dr.rasterize(ctx, pos, ints(np.zeros((0, 3))), SIZE)
    out = dr.interpolate(attr, rast, ints(np.zeros((0, 3))), db, "all")
    (sum(x.sum() for x in out) + db.sum()).backward()  # a loss of a mesh that has vanished
    assert not pos.grad.any() and not attr.grad.any()
    gl = dr.RasterizeGLContext(output_db=False)
    assert dr.rasterize(gl, torch.zeros(1, 3, 4), ints([[0, 1, 2]]), SIZE)[1].numel() == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pos": torch.zeros(3, 4)}, r"pos must be \[N, V, 4\], got \[3, 4\]"),
        ({"pos": torch.zeros(1, 3, 4, dtype=torch.float64)}, "pos must be float32, got float64"),
        ({"tri": torch.zeros(1, 3, dtype=torch.int64)}, "tri must be int32, got int64"),
        ({"tri": ints([[0, 1, 3]])}, "tri must have indices from 0 to 2"),
        ({"resolution": (0, 4)}, "resolution must be"),
        ({"ranges": ints([[0, 1]])}, r"pos must be \[V, 4\]"),
        ({"pos": torch.zeros(3, 4), "ranges": ints([[0, 2]])}, "ranges must be .* within the 1"),
        ({"glctx": None}, "glctx must be a RasterizeCudaContext"),
        ({"pos": np.zeros((1, 3, 4))}, "pos must be a torch tensor, got ndarray"),
    ],
)
def test_wrong_arguments_of_rasterize_are_named(change, message):
    given = {
        "glctx": dr.RasterizeCudaContext(),
        "pos": torch.zeros(1, 3, 4),
        "tri": ints([[0, 1, 2]]),
        "resolution": SIZE,
    } | change
    with pytest.raises(GraphError, match=message):
        dr.rasterize(**given)


def test_wrong_arguments_of_interpolate_are_named():
    rast, tri = torch.zeros(2, 4, 4, 4), ints([[0, 1, 2]])
    with pytest.raises(GraphError, match="attr must have a minibatch of 1 or 2, got 3"):
        dr.interpolate(torch.zeros(3, 3, 2), rast, tri)
    with pytest.raises(GraphError, match="rast_db must be a torch tensor"):
        dr.interpolate(torch.zeros(1, 3, 2), rast, tri, diff_attrs="all")
    with pytest.raises(GraphError, match="diff_attrs must be 'all' or numbers from 0 to 1"):
        dr.interpolate(torch.zeros(1, 3, 2), rast, tri, rast, diff_attrs=[2])
