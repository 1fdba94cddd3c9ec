"""``antialias`` against exact areas and their finite differences, and by symmetry."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="dressi.torch needs torch")

from pixel_reference import differences  # noqa: E402

import dressi.torch.nvdiffrast as dr  # noqa: E402
from dressi import GraphError  # noqa: E402

pytestmark = pytest.mark.gpu

SIZE = H, W = 32, 40
TRIANGLE = np.array([[-0.7, -0.6, 0.1, 1], [0.8, -0.5, 0.2, 1], [0.1, 0.9, -0.3, 1]])


def tensor(a: object, grad: bool = False) -> torch.Tensor:
    return torch.tensor(np.asarray(a), dtype=torch.float32, requires_grad=grad)


def ints(a: object) -> torch.Tensor:
    return torch.tensor(np.asarray(a), dtype=torch.int32)


def drawn(pos, tri, n=1, **kwargs):
    """A white picture of what is seen, before and after ``antialias``."""
    ctx = dr.RasterizeCudaContext()
    rast, _ = dr.rasterize(ctx, pos, tri, SIZE, grad_db=False)
    hard = (rast[..., 3:] > 0).float().expand(-1, -1, -1, n)
    return hard, dr.antialias(hard, rast, pos, tri, **kwargs)


def area_px(pos: np.ndarray) -> float:
    """Pixels that a counter-clockwise triangle covers."""
    xy = pos[:, :2] / pos[:, 3:] * (W / 2, H / 2)
    a, b = xy[1] - xy[0], xy[2] - xy[0]
    return 0.5 * float(a[0] * b[1] - a[1] * b[0])


def area_left_of_px(pos: np.ndarray) -> float:
    """Pixels of the picture on the left of the line from vertex 0 to vertex 1."""
    (x0, y0), (x1, y1) = pos[:2, :2] / pos[:2, 3:]
    return 0.5 * H * W * (x0 + (x1 - x0) * (0 - y0) / (y1 - y0) + 1)


@pytest.mark.parametrize("lean", [-0.5, 0.0, 0.3])
def test_a_straight_edge_covers_the_exact_area_with_its_exact_gradient(lean):
    pos = np.array([[0.123 - lean, -3, 0, 1], [0.123 + lean, 3, 0, 1], [-9, 0, 0, 1]])
    pos *= np.array([[1.5], [0.8], [1.0]])  # w, which must play its part
    p = tensor(pos[None], grad=True)
    _, soft = drawn(p, ints([[0, 1, 2]]))
    assert soft.sum().item() == pytest.approx(area_left_of_px(pos), abs=0.02)
    soft.sum().backward()
    wanted = differences(area_left_of_px, pos)
    np.testing.assert_allclose(p.grad[0], wanted, atol=2e-3 * np.abs(wanted).max())


def test_the_sum_is_the_area_and_its_gradient_that_of_the_area():
    rng = np.random.default_rng(0)
    shifts = rng.uniform(-1, 1, (16, 2)) / (W, H)  # up to half a pixel
    pos = np.repeat(TRIANGLE[None], 16, 0) * 1.1
    pos[..., 3] *= 1.1
    pos[..., :2] += shifts[:, None] * pos[..., 3:]
    p = tensor(pos, grad=True)
    hard, soft = drawn(p, ints([[0, 1, 2]]))
    area = soft.sum((1, 2, 3))
    wanted = [area_px(q) for q in pos]
    # A tip between two edges is drawn with the square of its width: each of the three corners
    # may miss a third of a pixel.
    np.testing.assert_allclose(area.detach(), wanted, atol=1.0)
    assert (hard.sum((1, 2, 3)) - tensor(wanted)).abs().max() > 3.0
    area.mean().backward()
    gradient = p.grad.sum(0).numpy()
    exact = np.mean([differences(area_px, q) for q in pos], 0)
    # An edge of about 30 pixels may lose one at either end, where a tip is drawn too faint.
    np.testing.assert_allclose(gradient, exact, atol=2 / 30 * np.abs(exact).max())


def test_a_picture_upside_down_has_the_weights_and_gradients_upside_down():
    p = tensor(np.stack([TRIANGLE, TRIANGLE * (1, -1, 1, 1)]), grad=True)
    _, soft = drawn(p, ints([[0, 1, 2]]))
    np.testing.assert_allclose(soft[0].detach(), soft[1].detach().flip(0), atol=1e-5)
    soft.square().sum().backward()
    np.testing.assert_allclose(p.grad[0], p.grad[1] * tensor((1, -1, 1, 1)), atol=2e-3)


def test_edges_between_triangles_of_one_surface_are_left_alone():
    pos = tensor([[[-0.8, -0.8, 0, 1], [0.8, -0.8, 0, 1], [0.8, 0.8, 0, 1], [-0.8, 0.8, 0, 1]]])
    tri = ints([[0, 1, 2], [0, 2, 3]])
    rast, _ = dr.rasterize(dr.RasterizeCudaContext(), pos, tri, SIZE)
    color = rast[..., 3:].clone()  # other colours on both triangles
    out = dr.antialias(color, rast, pos, tri)
    inner = (slice(None), slice(6, 26), slice(8, 32))
    np.testing.assert_array_equal(out[inner], color[inner])
    assert not np.array_equal(out, color)


def test_the_nearer_surface_gives_the_edge_before_a_farther_one():
    back = [[-3.0, -3, 0.5, 1], [3, -3, 0.5, 1], [0, 3, 0.5, 1]]
    p = tensor([np.concatenate([TRIANGLE, back])], grad=True)
    tri = ints([[0, 1, 2], [3, 4, 5]])
    rast, _ = dr.rasterize(dr.RasterizeCudaContext(), p, tri, SIZE)
    color = (rast[..., 3:] == 1).float()
    dr.antialias(color, rast, p, tri).sum().backward()
    exact = differences(area_px, TRIANGLE)
    got = p.grad[0].numpy()
    np.testing.assert_allclose(got[:3], exact, atol=0.08 * np.abs(exact).max())
    assert np.abs(got[3:]).max() < 0.02 * np.abs(exact).max()


def test_colours_get_the_transposed_weights_in_any_number_of_channels():
    p, tri = tensor(TRIANGLE[None]), ints([[0, 1, 2]])
    rast, _ = dr.rasterize(dr.RasterizeCudaContext(), p, tri, SIZE)
    rng = np.random.default_rng(1)
    color = tensor(rng.uniform(0, 1, (1, H, W, 6)), grad=True)
    c = tensor(rng.uniform(-1, 1, color.shape))
    out = dr.antialias(color, rast, p, tri)
    (out * c).sum().backward()
    # Linear in color: the product with any change of it is the change of the loss.
    move = tensor(rng.uniform(-1, 1, color.shape))
    moved = dr.antialias(move, rast, p, tri)
    assert (color.grad * move).sum().item() == pytest.approx((moved * c).sum().item(), abs=1e-3)
    alone = dr.antialias(color.detach()[..., 4:5], rast, p, tri)
    np.testing.assert_allclose(out.detach()[..., 4:5], alone, atol=1e-6)


def test_the_boost_is_a_factor_and_a_kept_topology_changes_nothing():
    tri = ints([[0, 1, 2]])
    known = dr.antialias_construct_topology_hash(tri)
    gradients = []
    for options in ({}, {"pos_gradient_boost": 3.0}, {"topology_hash": known}):
        p = tensor(TRIANGLE[None], grad=True)
        drawn(p, tri, **options)[1].sum().backward()
        gradients.append(p.grad.numpy())
    np.testing.assert_allclose(gradients[1], 3 * gradients[0], rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(gradients[2], gradients[0], rtol=1e-5, atol=1e-4)


def test_images_of_ranges_are_those_of_their_triangles_alone():
    both = np.concatenate([TRIANGLE, TRIANGLE * (0.6, 0.7, 1, 1) - (0, 0, 0.2, 0)])
    pos, tri = tensor(both, grad=True), ints([[0, 1, 2], [3, 4, 5]])
    ranges = ints([[0, 1], [1, 1], [0, 0]])
    rast, _ = dr.rasterize(dr.RasterizeCudaContext(), pos, tri, SIZE, ranges)
    out = dr.antialias((rast[..., 3:] > 0).float(), rast, pos, tri)
    for k in (0, 1):
        alone = drawn(pos.detach()[None], tri[k : k + 1])[1]
        np.testing.assert_allclose(out[k].detach(), alone[0], atol=1e-6)
    assert not out[2].any()
    out[1].sum().backward()
    assert pos.grad[3:].abs().max() > 10 and not pos.grad[:3].any()


def test_wrong_arguments_of_antialias_are_named():
    color, rast, pos = torch.zeros(1, 4, 4, 3), torch.zeros(1, 4, 4, 4), torch.zeros(1, 3, 4)
    tri = ints([[0, 1, 2]])
    with pytest.raises(GraphError, match=r"rast must be \[1, 4, 4, 4\], got \[1, 4, 5, 4\]"):
        dr.antialias(color, torch.zeros(1, 4, 5, 4), pos, tri)
    with pytest.raises(GraphError, match="pos must have a minibatch of 1 or 1, got 2"):
        dr.antialias(color, rast, torch.zeros(2, 3, 4), tri)
    with pytest.raises(GraphError, match="topology_hash must be what"):
        dr.antialias(color, rast, pos, tri, topology_hash=3)
    with pytest.raises(GraphError, match="topology_hash is of 2 triangles, tri has 1"):
        twice = dr.antialias_construct_topology_hash(ints([[0, 1, 2], [0, 2, 1]]))
        dr.antialias(color, rast, pos, tri, twice)
