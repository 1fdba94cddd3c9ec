"""Lens distortion: OpenCV's formula written out, the inverse, its limits, photos, the graph."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.ad import FLOAT, VEC2, F, Variable, evaluate, gradcheck
from dressi.errors import GraphError
from dressi.render.camera import (
    Distortion,
    Lens,
    build_lens_uv,
    distort_image,
    distort_points,
    through_lens,
    undistort_image,
    undistort_points,
)

K = np.array([[80.0, 1.5, 49.0], [0.0, 76.0, 33.0], [0.0, 0.0, 1.0]])
LENSES = {
    "barrel": (-0.28, 0.07, 1.5e-3, -1e-3, 0.0),
    "pincushion": (0.15, 0.05, -2e-3, 1e-3, 0.01),
    "rational": (0.6, 0.2, 1e-3, 5e-4, 0.02, 0.9, 0.3, 0.05),
    "none": (),
}
SIZE = (96, 64)


def formula(x, y, k1=0, k2=0, p1=0, p2=0, k3=0, k4=0, k5=0, k6=0):
    """calib3d's page, one point."""
    r2 = x * x + y * y
    radial = (1 + k1 * r2 + k2 * r2**2 + k3 * r2**3) / (1 + k4 * r2 + k5 * r2**2 + k6 * r2**3)
    return (
        x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x),
        y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y,
    )


def pixels(n=200, seed=0):
    return np.random.default_rng(seed).uniform((0, 0), SIZE, size=(n, 2))


@pytest.mark.parametrize("name", LENSES)
def test_points_follow_the_formula_and_come_back(name):
    lens = Distortion(*LENSES[name])
    ideal = pixels()
    want = []
    for u, v in ideal:
        x, y, _ = np.linalg.solve(K, [u, v, 1.0])
        want.append((K @ [*formula(x, y, *LENSES[name]), 1.0])[:2])
    got = distort_points(ideal, K, lens)
    assert np.allclose(got, want, atol=1e-10)
    assert np.allclose(undistort_points(got, K, lens), ideal, atol=1e-6)


def test_jacobian_is_the_derivative():
    lens, at, h = Distortion(*LENSES["rational"]), np.array([0.4, -0.3]), 1e-6
    for k in range(2):
        step = np.eye(2)[k] * h
        slope = (lens.apply(at + step) - lens.apply(at - step)) / (2 * h)
        assert np.allclose(lens.jacobian(at)[:, k], slope, atol=1e-8)


def test_limit_of_the_model():
    assert Distortion().max_radius() == np.inf
    assert Distortion(k1=0.1).max_radius() == np.inf
    # d/dr (r - r^3 / 3) = 1 - r^2
    assert Distortion(k1=-1 / 3).max_radius() == pytest.approx(1.0)
    # the denominator 1 - s vanishes at 1, but r / (1 - s) grows up to there
    assert Distortion(k4=-1.0).max_radius() == pytest.approx(1.0)


def test_points_outside_the_lens_are_errors():
    lens = Distortion(k1=-1 / 3)  # shows radii up to 1 at 2/3
    flat = np.diag([100.0, 100.0, 1.0])
    want = sorted(np.roots([-1 / 3, 0, 1, -0.66]).real)[1]  # of three, the one within the limit
    assert np.allclose(undistort_points([66.0, 0.0], flat, lens), [100 * want, 0.0])
    with pytest.raises(GraphError, match=r"1 of 2 points.*70\.0") as caught:
        undistort_points([[10.0, 0.0], [70.0, 0.0]], flat, lens)
    assert "radius of 1" in str(caught.value)
    with pytest.raises(GraphError, match="hold up to a radius of 1"):
        distort_points([[110.0, 0.0]], flat, lens)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"K": np.eye(2)}, "K must be"),
        ({"K": np.diag([-1.0, 1, 1])}, "fx, fy > 0"),
        ({"points": np.zeros((3, 3))}, r"\(\.\.\., 2\)"),
        ({"points": [np.nan, 0.0]}, "not finite"),
    ],
)
def test_bad_points(change, words):
    good = {"points": [1.0, 2.0], "K": K, "distortion": Distortion()}
    for function in (distort_points, undistort_points):
        with pytest.raises(GraphError, match=words):
            function(**(good | change))


def test_bad_coefficients_and_images():
    with pytest.raises(GraphError, match="finite"):
        Distortion(k1=float("nan"))
    with pytest.raises(GraphError, match="image"):
        undistort_image(np.zeros((3, 3, 3, 3)), K, Distortion())
    with pytest.raises(GraphError, match="0x5"):
        distort_image(np.zeros((3, 3)), K, Distortion(), size=(0, 5))


def scene(x, y):
    """A smooth picture on the plane z = 1."""
    return 0.5 + 0.25 * np.sin(6.0 * x + 1.0) + 0.25 * np.cos(5.0 * y - 2.0 * x)


def photo(coefficients, pixel_center=0.5):
    """What a lens shows: the ideal ray of every pixel, found by a search of its own."""
    from scipy.optimize import fsolve

    out = np.zeros((SIZE[1], SIZE[0]))
    for j, i in np.ndindex(*out.shape):
        at = np.linalg.solve(K, [i + 0.5 - pixel_center, j + 0.5 - pixel_center, 1.0])[:2]
        x = fsolve(lambda p, at=at: np.subtract(formula(*p, *coefficients), at), at)
        out[j, i] = scene(*x)
    return out


def ideal_picture(pixel_center=0.5):
    i, j = np.meshgrid(np.arange(SIZE[0]) + 0.5, np.arange(SIZE[1]) + 0.5)
    flat = np.stack([i - pixel_center, j - pixel_center, np.ones_like(i)], -1) @ np.linalg.inv(K).T
    return scene(flat[..., 0], flat[..., 1])


@pytest.mark.parametrize("pixel_center", [0.5, 0.0])
def test_photos_lose_and_gain_their_lens(pixel_center):
    lens = Distortion(*LENSES["barrel"])
    seen, ideal = photo(LENSES["barrel"], pixel_center), ideal_picture(pixel_center)
    flat, mask = undistort_image(seen, K, lens, pixel_center=pixel_center, order=3)
    assert mask.mean() > 0.9
    assert np.abs(flat - ideal)[mask].max() < 0.02 and np.abs(flat - ideal)[mask].mean() < 1e-3
    assert np.abs(seen - ideal).max() > 0.1  # there was something to undo
    bent, mask = distort_image(ideal, K, lens, pixel_center=pixel_center, order=3)
    assert 0.3 < mask.mean() < 1.0  # barrel: the corners look beyond the ideal picture
    assert np.abs(bent - seen)[mask].max() < 0.02 and np.abs(bent - seen)[mask].mean() < 1e-3
    assert (flat[~mask] >= 0).all() and (bent[~mask] == 0).all()


def test_another_size_and_k():
    lens = Distortion(*LENSES["pincushion"])
    half = K * [[0.5], [0.5], [1.0]]
    colour = np.repeat(ideal_picture()[..., None], 3, axis=2)
    small, mask = undistort_image(colour, K, lens, new_K=half, size=(48, 32))
    assert small.shape == (32, 48, 3) and mask.shape == (32, 48)


def leaves(names, values):
    made = []
    for name, value in zip(names, values, strict=True):
        v = F.leaf(np.array([value], np.float32), FLOAT, name)
        v.requires_grad = True
        made.append(v)
    return made


@pytest.mark.parametrize("name", ["barrel", "rational"])
def test_graph_agrees_with_the_host(name):
    c = LENSES[name]
    lens = Lens(80.0, 76.0, 49.5, 33.5, 1.5, c)
    uv = evaluate([build_lens_uv(lens, SIZE)], {})[0][0]
    got = uv * SIZE - 0.5  # pixel centres have integer coordinates in K
    i, j = np.meshgrid(np.arange(SIZE[0]), np.arange(SIZE[1]))
    want, found = Distortion(*c).invert(
        (np.stack([i, j, np.ones_like(i)], -1) @ np.linalg.inv(K).T)[..., :2]
    )
    assert found.all()
    want = np.concatenate([want, np.ones((*i.shape, 1))], -1) @ K.T
    assert np.allclose(got, want[..., :2], atol=1e-4)


def test_gradients_of_the_lens():
    names = ("fx", "fy", "cx", "cy", "skew", "k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6")
    values = (12.0, 11.0, 6.5, 5.2, 0.3, -0.2, 0.05, 2e-3, -1e-3, 0.01, 0.02, 0.01, -0.01)
    made = leaves(names, values)
    lens = Lens(*made[:5], made[5:])
    weight = np.random.default_rng(0).normal(size=(10, 12, 2))
    uv = build_lens_uv(lens, (12, 10), Lens(11.0, 11.0, 6.0, 5.0))
    loss = F.sum(F.dot(uv, F.leaf(weight, VEC2)))
    found = gradcheck(loss, made)
    assert found.ok, found.text()
    other = build_lens_uv(lens, (12, 10))  # the intrinsics act twice
    found = gradcheck(F.sum(F.dot(other, F.leaf(weight, VEC2))), made)
    assert found.ok, found.text()


def test_through_the_lens_is_the_photo():
    lens = Lens(80.0, 76.0, 49.5, 33.5, 1.5, LENSES["barrel"])
    pad = 16  # a larger ideal picture: the lens shows more
    i, j = np.meshgrid(np.arange(SIZE[0] + 2 * pad), np.arange(SIZE[1] + 2 * pad))
    flat = np.stack([i - pad, j - pad, np.ones_like(i)], -1) @ np.linalg.inv(K).T
    big = F.leaf(scene(flat[..., 0], flat[..., 1])[..., None], FLOAT)
    ideal = Lens(80.0, 76.0, 49.5 + pad, 33.5 + pad, 1.5)
    got = evaluate([through_lens(big, lens, SIZE, ideal)], {})[0][0, ..., 0]
    want = photo(LENSES["barrel"])
    assert np.abs(got - want).max() < 5e-3


def test_bad_lenses():
    with pytest.raises(GraphError, match="at most 8"):
        Lens(1.0, 1.0, 0.0, 0.0, 0.0, [0.0] * 9)
    with pytest.raises(GraphError, match="FLOAT @ 1x1"):
        Lens(Variable(FLOAT, (2, 1)), 1.0, 0.0, 0.0)
    with pytest.raises(GraphError, match="steps"):
        build_lens_uv(Lens(1.0, 1.0, 0.0, 0.0), (2, 2), steps=0)
