"""Cube maps and equirectangular maps: orientation, no seams, poles, and what is refused.

The op table already compares gradients with central differences, and the device with float64.
"""

from __future__ import annotations

import numpy as np
import pytest

from dressi.ad import F, Variable, build_backward, evaluate
from dressi.ad.vtype import FLOAT, INT, VEC2, VEC3
from dressi.errors import GraphError

# Vulkan specification, "Cube Map Face Selection": the directions of the corners of each face, top
# left, top right, bottom left, bottom right, written by hand from its table of s and t.
CORNERS = {
    0: [(1, 1, 1), (1, 1, -1), (1, -1, 1), (1, -1, -1)],
    1: [(-1, 1, -1), (-1, 1, 1), (-1, -1, -1), (-1, -1, 1)],
    2: [(-1, 1, -1), (1, 1, -1), (-1, 1, 1), (1, 1, 1)],
    3: [(-1, -1, 1), (1, -1, 1), (-1, -1, -1), (1, -1, -1)],
    4: [(-1, 1, 1), (1, 1, 1), (-1, -1, 1), (1, -1, 1)],
    5: [(1, 1, -1), (-1, 1, -1), (1, -1, -1), (-1, -1, -1)],
}


def texel_table(n: int) -> np.ndarray:
    """Directions (6, n, n, 3) of texel centres, between the corners of each face."""
    out = np.zeros((6, n, n, 3))
    for face, corners in CORNERS.items():
        tl, tr, bl, br = (np.array(c, float) for c in corners)
        for j in range(n):
            for i in range(n):
                a, b = (i + 0.5) / n, (j + 0.5) / n
                out[face, j, i] = (tl * (1 - a) + tr * a) * (1 - b) + (bl * (1 - a) + br * a) * b
    return out


def read(kind: str, data: np.ndarray, d: np.ndarray, filter: str = "linear") -> np.ndarray:
    """Values (..., C) of a map (layers, h, w, C) along directions (..., 3)."""
    layers, h, w, n = data.shape
    image = Variable(FLOAT if n == 1 else VEC3, (w, h), layers)
    flat = np.asarray(d, float).reshape(-1, 3)
    direction = Variable(VEC3, (len(flat), 1))
    call = F.texture_cube if kind == "cube" else F.texture_equirect
    (got,) = evaluate([call(image, direction, filter)], {image: data, direction: flat})
    return got[0, 0].reshape(*np.shape(d)[:-1], n)


def random_map(kind: str, n: int = 4, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (6, n, n, 3) if kind == "cube" else (1, n, 2 * n, 3))


@pytest.mark.parametrize("filter", ["linear", "nearest"])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_cube_read_along_texel_centres_gives_the_texels(n: int, filter: str) -> None:
    data = random_map("cube", n)
    for scale in (1.0, 37.0, 1e-6):
        assert np.allclose(read("cube", data, scale * texel_table(n), filter), data, atol=1e-12)


def test_nearest_is_the_texel_whose_direction_is_nearest_on_its_face() -> None:
    data = np.arange(6 * 9.0).reshape(6, 3, 3, 1)
    rng = np.random.default_rng(1)
    d = rng.normal(size=(400, 3))
    got = read("cube", data, d, "nearest")[:, 0]
    # On the cube (largest component 1) the nearest centre in the maximum norm is the texel.
    on_cube = d / np.abs(d).max(-1, keepdims=True)
    table = texel_table(3).reshape(-1, 3)
    want = np.abs(on_cube[:, None] - table[None]).max(-1).argmin(-1)
    assert (got == want).all()


@pytest.mark.parametrize("n", [1, 2, 4, 7])
def test_no_seam_at_edges_and_corners_of_a_cube(n: int) -> None:
    data = random_map("cube", n)
    rng = np.random.default_rng(2)
    for axis in range(3):
        for _ in range(20):  # a point of an edge, approached from its two faces
            p = rng.choice([-1.0, 1.0], 3)
            p[axis] = rng.uniform(-1, 1)
            steps = [np.where(np.arange(3) == k, -1e-9 * p, 0.0) for k in range(3) if k != axis]
            a, b = (read("cube", data, p + s) for s in steps)
            assert np.abs(a - b).max() < 1e-7
    corner = texel_table(n)
    for p in np.array(CORNERS[0] + CORNERS[1], float):
        off = ((corner - p) ** 2).sum(-1).reshape(6, -1)
        nearest = [data.reshape(6, -1, 3)[f, off[f].argmin()] for f in np.argsort(off.min(1))[:3]]
        for s in np.eye(3):
            got = read("cube", data, p - 1e-9 * s * p)
            assert np.abs(got - np.mean(nearest, 0)).max() < 1e-7


def test_equirect_is_turned_as_stated() -> None:
    """Width 8, height 4: columns of 45 degrees; one value a texel."""
    data = np.arange(32.0).reshape(1, 4, 8, 1)

    def at(polar: float, turn: float) -> float:
        """Degrees from +Y, degrees to the right of -Z."""
        t, a = np.radians([polar, turn])
        d = [np.sin(t) * np.sin(a), np.cos(t), -np.sin(t) * np.cos(a)]
        return float(read("equirect", data, np.array([d]))[0, 0])

    row, left = 67.5, 22.5
    assert at(row, -left) == pytest.approx(8 + 3)  # just left of the centre of the image
    assert at(row, left) == pytest.approx(8 + 4)  # just right, towards +X
    assert at(row, 90 + left) == pytest.approx(8 + 6)
    assert at(row, 180 - left) == pytest.approx(8 + 7)  # the last column, beside the seam
    assert at(row, -180 + left) == pytest.approx(8 + 0)
    assert at(row, 180) == pytest.approx(8 + 3.5)  # on it: half of each
    assert at(22.5, left) == pytest.approx(4)  # row 0 is up
    assert at(157.5, left) == pytest.approx(28)
    assert at(0, 0) == pytest.approx(3.5)  # the mean of row 0
    assert at(180, 77) == pytest.approx(27.5)
    assert at(11.25, left) == pytest.approx((3.5 + 4) / 2)


@pytest.mark.parametrize("h", [1, 2, 6])
def test_no_seam_at_the_poles_and_the_meridian(h: int) -> None:
    data = random_map("equirect", h)
    turns = np.linspace(0, 2 * np.pi, 17)
    for y in (1.0, -1.0):
        ring = np.stack([1e-9 * np.sin(turns), np.full(17, y), 1e-9 * np.cos(turns)], -1)
        want = data[0, 0 if y > 0 else -1].mean(0)
        assert np.abs(read("equirect", data, ring) - want).max() < 1e-7
    for y in (-3.0, -0.1, 0.4, 9.0):
        a, b = (read("equirect", data, np.array([s * 1e-9, y, 1.0])) for s in (-1, 1))
        assert np.abs(a - b).max() < 1e-7


@pytest.mark.parametrize("kind", ["cube", "equirect"])
def test_gradient_is_across_the_direction_and_finite_everywhere(kind: str) -> None:
    data = random_map(kind)
    image = Variable(VEC3, (data.shape[2], data.shape[1]), data.shape[0], requires_grad=True)
    special = [(0, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (1, 1, 1), (1e-20, 1, 0), (-1, 0, 1)]
    special += [(3e-6, 1, 1e-6), (0, -1, 2e-5), (1e-13, 0, 0), (1e10, 2e10, -1e10), (1e-5, 0, 3e-6)]
    d = np.concatenate([special, np.random.default_rng(3).normal(size=(50, 3))])
    direction = Variable(VEC3, (len(d), 1), requires_grad=True)
    call = F.texture_cube if kind == "cube" else F.texture_equirect
    grads = build_backward(call(image, direction), [image, direction])
    feeds = {image: data, direction: d}
    to_map, to_d = evaluate([grads[image], grads[direction]], feeds)
    g = to_d[0, 0]
    length = np.linalg.norm(d, axis=-1)
    assert np.isfinite(to_d).all() and np.isfinite(to_map).all()
    assert to_map.sum() == pytest.approx(3 * len(d))  # weights sum to 1
    assert np.abs((g * d).sum(-1)).max() < 1e-9
    assert (g[0] == 0).all() and (g[9] == 0).all()
    assert (np.linalg.norm(g, axis=-1) * length).max() < 40  # bounded slopes, also beside poles
    assert kind == "cube" or (np.linalg.norm(g[7]) > 0.1)  # which are not 0 there


def test_zero_reads_as_plus_z() -> None:
    for kind in ("cube", "equirect"):
        data = random_map(kind)
        zero, plus_z = read(kind, data, np.array([[0.0, 0, 0], [0, 0, 1.0]]))
        assert (zero == plus_z).all()


def test_what_does_not_fit_is_named() -> None:
    d, cube = Variable(VEC3, (4, 3)), Variable(VEC3, (4, 4), 6)
    env = Variable(VEC3, (8, 4))
    bad = [
        (lambda: F.texture_cube(Variable(VEC3, (4, 4)), d), "layers=6"),
        (lambda: F.texture_cube(Variable(VEC3, (4, 3), 6), d), "square"),
        (lambda: F.texture_cube(Variable(INT, (4, 4), 6), d), "INT"),
        (lambda: F.texture_cube(cube, Variable(VEC2, (4, 3))), "VEC3"),
        (lambda: F.texture_cube(cube, d, "cubic"), "'cubic'"),
        (lambda: F.texture_cube(cube, 1.0), "needs a Variable"),
        (lambda: F.texture_cube(None, d), "needs a Variable"),
        (lambda: F.texture_cube(None, d, index=Variable(INT)), "needs a Variable"),
        (lambda: F.texture_cube(Variable(VEC3, (4, 4), 12), d), "layers=6,"),
        (lambda: F.texture_cube(Variable(VEC3, (4, 4), 9), d, index=Variable(INT)), "layers=6 k"),
        (lambda: F.texture_cube(cube, d, index=Variable(FLOAT)), "index must be INT"),
        (lambda: F.texture_cube(cube, d, index=1), "needs a Variable"),
        (lambda: F.texture_equirect(cube, d), "layers=1"),
        (lambda: F.texture_equirect(env, Variable(FLOAT)), "VEC3"),
        (lambda: F.texture_equirect(env, d, "mip"), "'mip'"),
        (lambda: F.texture_equirect(None, d), "needs a Variable"),
    ]
    for call, text in bad:
        with pytest.raises(GraphError) as info:
            call()  # type: ignore[no-untyped-call]
        assert text in str(info.value) and "test_sphere_maps.py:" in str(info.value)
