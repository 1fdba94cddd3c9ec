"""Morphable models, landmarks and depth against float64 NumPy, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from dressi import Adam, DressiAD, Options
from dressi.ad import FLOAT, MAT4, VEC2, VEC3, F, Variable, build_backward, evaluate, gradcheck
from dressi.errors import GraphError
from dressi.render.camera import look_at, perspective
from dressi.render.fit import depth_loss, landmark_loss, metric_depth, morphable, project_points

N, K = 37, 11


def model(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "mean": rng.normal(size=(1, 1, N, 3)),
        "basis": rng.normal(size=(K, 1, N, 3)),
        "coefficients": rng.normal(size=(K, 1, 1, 1)),
    }


def leaves() -> dict[str, Variable]:
    return {
        "mean": Variable(VEC3, (N, 1), requires_grad=True, name="mean"),
        "basis": Variable(VEC3, (N, 1), K, requires_grad=True, name="basis"),
        "coefficients": Variable(FLOAT, layers=K, requires_grad=True, name="coefficients"),
    }


def test_it_is_the_mean_plus_the_basis_times_the_coefficients() -> None:
    x, data = leaves(), model()
    (got,) = evaluate([morphable(**x)], {x[k]: v for k, v in data.items()})
    wanted = data["mean"][0, 0] + np.einsum(
        "k,kvi->vi", data["coefficients"].ravel(), data["basis"][:, 0]
    )
    np.testing.assert_allclose(got[0, 0], wanted, atol=1e-12)


def test_its_gradients_are_those_of_differences_and_of_the_transposed_product() -> None:
    x, data = leaves(), model()
    feeds = {x[k]: v for k, v in data.items()}
    found = gradcheck([morphable(**x)], list(x.values()), feeds)
    assert found.ok, found.text()
    weight = np.random.default_rng(3).normal(size=(N, 3))
    loss = F.dot(morphable(**x), F.leaf(weight.astype(np.float32), VEC3))
    (g,) = evaluate([build_backward(loss)[x["coefficients"]]], feeds)
    wanted = np.einsum("kvi,vi->k", data["basis"][:, 0], weight.astype(np.float32))
    np.testing.assert_allclose(g.ravel(), wanted, atol=1e-10)


def test_offsets_leave_the_span_and_get_the_gradient_of_the_positions() -> None:
    x, data = leaves(), model()
    offsets = Variable(VEC3, (N, 1), requires_grad=True, name="offsets")
    beyond = np.random.default_rng(4).normal(size=(1, 1, N, 3))
    feeds = {**{x[k]: v for k, v in data.items()}, offsets: beyond}
    weight = np.float32(np.random.default_rng(5).normal(size=(N, 3)))
    free, plain = morphable(**x, offsets=offsets), morphable(**x)
    g = build_backward(F.dot(free, F.leaf(weight, VEC3)))[offsets]
    found, spanned, slope = evaluate([free, plain, g], feeds)
    np.testing.assert_allclose(found, spanned + beyond, atol=1e-12)
    np.testing.assert_allclose(slope[0, 0], weight, atol=1e-12)
    for wrong in (Variable(VEC3, (N + 1, 1)), Variable(VEC2, (N, 1)), Variable(VEC3, (N, 1), 2)):
        with pytest.raises(GraphError, match="offsets must be VEC3 @ 37x1 like the mean"):
            morphable(**x, offsets=wrong)


def test_hundreds_of_components_are_as_many_functions_as_a_few() -> None:
    def count(n: int) -> int:
        y = morphable(Variable(VEC3, (N, 1)), Variable(VEC3, (N, 1), n), Variable(FLOAT, layers=n))
        seen, stack = set(), [y]
        while stack:
            f = stack.pop().creator
            if f is not None and f not in seen:
                seen.add(f)
                stack += f.inputs
        return len(seen)

    assert count(2) == count(300)


@pytest.mark.gpu
@pytest.mark.parametrize("lowering", ["graphics", "compute"])
def test_a_device_finds_the_coefficients_in_both_lowerings(lowering: str) -> None:
    x, data = leaves(), model()
    wanted = data["mean"] + (data["basis"] * data["coefficients"]).sum(axis=0)
    off = morphable(**x) - F.leaf(wanted[0, 0].astype(np.float32), VEC3)
    x["mean"].requires_grad = x["basis"].requires_grad = False
    with DressiAD(options=Options(lowering=lowering)) as ad:
        for name in ("mean", "basis"):
            ad.send_img(x[name], data[name])
        ad.send_img(x["coefficients"], np.zeros((K, 1, 1, 1)))
        ad.set_loss_var(F.mean(F.dot(off, off)))
        ad.set_optimizer(Adam(0.05))
        ad.exec_steps(300)
        got = ad.recv_img(x["coefficients"]).ravel()
    np.testing.assert_allclose(got, data["coefficients"].ravel(), atol=2e-3)


def test_wrong_shapes_are_named() -> None:
    good = leaves()
    for name, wrong, says in (
        ("coefficients", Variable(FLOAT, layers=K + 1), f"{K + 1} coefficients for {K}"),
        ("coefficients", Variable(VEC3, layers=K), "coefficients must be FLOAT"),
        ("coefficients", Variable(FLOAT, (K, 1)), "coefficients must be FLOAT @ 1x1"),
        ("basis", Variable(VEC3, (N + 1, 1), K), "basis must be VEC3 @ 37x1"),
        ("basis", Variable(VEC2, (N, 1), K), "basis must be VEC3"),
        ("mean", Variable(VEC3, (N, 2)), "mean must be a table"),
        ("mean", np.zeros((N, 3)), "mean must be a Variable, got ndarray"),
    ):
        with pytest.raises(GraphError, match=says):
            morphable(**{**good, name: wrong})


SIZE = (64, 48)
VIEWS = [look_at((0.3, 0.2, 4.0)), look_at((3.0, 0.5, 2.0), (0.1, 0.0, 0.0))]
PROJECTION = perspective(50.0, SIZE[0] / SIZE[1], 0.1, 20.0)


def camera_feeds() -> tuple[Variable, Variable, dict[Variable, np.ndarray]]:
    view, projection = Variable(MAT4, layers=2, name="view"), Variable(MAT4, name="projection")
    return view, projection, {view: np.stack(VIEWS), projection: PROJECTION[None]}


def pixels(points: np.ndarray) -> np.ndarray:
    """(views, L, 2), written apart: through the opening angle, not through the matrix."""
    out = []
    focal = 0.5 * SIZE[1] / np.tan(np.deg2rad(25.0))
    for view in VIEWS:
        x, y, z = (points @ view[:3, :3].T + view[:3, 3]).T
        out.append(np.stack([SIZE[0] / 2 + focal * x / -z, SIZE[1] / 2 - focal * y / -z], -1))
    return np.stack(out)


def test_landmarks_count_by_their_distance_in_pixels_where_they_are_seen() -> None:
    rng = np.random.default_rng(5)
    places = rng.uniform(-0.5, 0.5, (6, 3))
    view, projection, feeds = camera_feeds()
    points = Variable(VEC3, (6, 1), requires_grad=True, name="points")
    targets, weights = (Variable(t, (6, 1), 2) for t in (VEC2, FLOAT))
    at = pixels(places) + rng.normal(size=(2, 6, 2))
    seen = rng.uniform(size=(2, 6)) < 0.6
    feeds |= {points: places[None, None], targets: at[:, None], weights: seen[:, None, :, None]}
    loss = landmark_loss(points, projection @ view, targets, weights, SIZE)
    (got,) = evaluate([loss], feeds)
    wanted = np.abs(pixels(places) - at).sum(axis=2)[seen].mean()
    assert got.item() == pytest.approx(wanted, rel=1e-9)
    view.requires_grad = True
    found = gradcheck([loss], [points, view], feeds)
    assert found.ok, found.text()


def test_a_landmark_behind_the_camera_counts_as_hidden_and_none_at_all_give_0() -> None:
    view, projection, feeds = camera_feeds()
    points = Variable(VEC3, (2, 1), requires_grad=True)
    targets, weights = (Variable(t, (2, 1), 2) for t in (VEC2, FLOAT))
    loss = landmark_loss(points, projection @ view, targets, weights, SIZE)
    gradient = build_backward(loss)[points]
    places = np.array([[0.1, 0.2, 0.0], [9.0, 9.0, 99.0]])
    feeds |= {points: places[None, None], targets: np.zeros((2, 1, 2, 2))}
    got, g = evaluate([loss, gradient], feeds | {weights: np.ones((2, 1, 2, 1))})
    assert got.item() == pytest.approx(pixels(places[:1]).sum(axis=2).mean(), rel=1e-9)
    assert np.isfinite(g).all() and (g[0, 0, 1] == 0.0).all() and (g[0, 0, 0] != 0.0).any()
    got, g = evaluate([loss, gradient], feeds | {weights: np.zeros((2, 1, 2, 1))})
    assert got.item() == 0.0 and (g == 0.0).all()
    at, front = evaluate(list(project_points(points, projection @ view, SIZE)), feeds)
    assert front.ravel().tolist() == [1, 0, 1, 0] and np.isfinite(at).all()


def test_depth_is_the_distance_from_the_plane_of_the_camera_and_its_loss_is_cut_off() -> None:
    rng = np.random.default_rng(6)
    places = rng.uniform(-0.5, 0.5, (5, 3))
    view, _, feeds = camera_feeds()
    position = Variable(VEC3, (5, 1), requires_grad=True, name="position")
    target, weights = (Variable(FLOAT, (5, 1), 2) for _ in range(2))
    depth = metric_depth(position, view)
    loss = depth_loss(depth, target, weights, 0.2)
    wanted = np.stack([-(places @ v[2, :3] + v[2, 3]) for v in VIEWS])
    off = np.array([0.1, -0.15, 0.5, -3.0, 0.05])
    known = np.array([[1, 1, 1, 1, 0], [1, 0, 1, 1, 1]])
    feeds |= {
        position: places[None, None],
        target: (wanted + off)[:, None, :, None],
        weights: known[:, None, :, None],
    }
    got, total, g = evaluate([depth, loss, build_backward(loss)[position]], feeds)
    np.testing.assert_allclose(got[:, 0, :, 0], wanted, rtol=1e-9)
    cut = np.minimum(np.abs(off), 0.2)
    assert total.item() == pytest.approx((cut * known).sum() / known.sum(), rel=1e-9)
    assert (g[0, 0, 2:4] == 0.0).all(), "beyond the truncation there is no gradient"
    assert (g[0, 0, :2] != 0.0).any(axis=1).all()
    (nothing,) = evaluate([loss], feeds | {weights: np.zeros((2, 1, 5, 1))})
    assert nothing.item() == 0.0


def test_wrong_inputs_of_landmarks_and_depth_are_named() -> None:
    view, projection, _ = camera_feeds()
    points, matrix = Variable(VEC3, (6, 1)), projection @ view
    marks, weights = Variable(VEC2, (6, 1), 2), Variable(FLOAT, (6, 1), 2)
    with pytest.raises(GraphError, match="targets must be VEC2 @ 6x1, layers=2"):
        landmark_loss(points, matrix, Variable(VEC2, (5, 1), 2), weights, SIZE)
    with pytest.raises(GraphError, match="weights must be FLOAT @ 6x1, layers=2"):
        landmark_loss(points, matrix, marks, Variable(FLOAT, (6, 1)), SIZE)
    with pytest.raises(GraphError, match="VEC3 points"):
        project_points(marks, matrix, SIZE)
    with pytest.raises(GraphError, match="metric_depth needs VEC3"):
        metric_depth(marks, view)
    depth = Variable(FLOAT, SIZE)
    with pytest.raises(GraphError, match="target must be like the depth"):
        depth_loss(depth, Variable(FLOAT, (8, 8)), depth, 1.0)
    with pytest.raises(GraphError, match="truncation must be above 0"):
        depth_loss(depth, depth, depth, 0.0)
