"""Directions and solid angles of texels, and conversions between the two maps."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import dblquad

from dressi.ad import F, Variable, build_backward, evaluate
from dressi.ad.vtype import FLOAT, INT, MAT2, VEC3
from dressi.errors import GraphError
from dressi.render import ibl

MAPS = [Variable(VEC3, (5, 5), 6), Variable(VEC3, (1, 1), 6), Variable(VEC3, (12, 7))]


@pytest.mark.parametrize("env", MAPS, ids=lambda v: v.label().split()[1])
def test_a_read_along_texel_directions_gives_the_map(env: Variable) -> None:
    data = np.random.default_rng(0).uniform(-1, 1, (env.layers, *env.size[::-1], 3))
    d = F.leaf(ibl.texel_directions(env), VEC3)
    (got,) = evaluate([ibl.read_map(env, d)], {env: data})
    # float32 directions
    assert np.abs(got - data).max() < 1e-5


@pytest.mark.parametrize("env", MAPS, ids=lambda v: v.label().split()[1])
def test_solid_angles_cover_the_sphere(env: Variable) -> None:
    omega, d = ibl.solid_angles(env), ibl.texel_directions(env)
    assert omega.shape == d.shape[:3]
    assert omega.sum() == pytest.approx(4 * np.pi, rel=1e-12)
    assert np.abs((omega[..., None] * d).sum((0, 1, 2))).max() < 1e-12
    assert (omega > 0).all()


def test_solid_angle_of_a_cube_texel_is_its_integral() -> None:
    omega = ibl.cube_solid_angles(4)
    for j, i in ((0, 0), (1, 2)):
        want, _ = dblquad(
            lambda y, x: (1 + x * x + y * y) ** -1.5,
            i / 2 - 1, i / 2 - 0.5, j / 2 - 1, j / 2 - 0.5,
        )  # fmt: skip
        assert omega[3, j, i] == pytest.approx(want, rel=1e-9)


def smooth(d: np.ndarray) -> np.ndarray:
    x, y, z = np.moveaxis(d, -1, 0)
    return np.stack([1 + x, 0.5 * y * z, z * x - y], -1)


def test_conversions_keep_a_smooth_environment() -> None:
    """Error of linear interpolation: about (texel angle)^2 / 8 times the second derivative."""
    equirect, cube = Variable(VEC3, (64, 32)), Variable(VEC3, (24, 24), 6)
    feeds = {e: smooth(ibl.texel_directions(e)) for e in (equirect, cube)}
    a, b = evaluate([ibl.to_cube(equirect, 24), ibl.to_equirect(cube, (64, 32))], feeds)
    assert np.abs(a - feeds[cube]).max() < 1e-2
    assert np.abs(b - feeds[equirect]).max() < 1e-2


def test_conversion_has_the_exact_transpose() -> None:
    """<A x, y> = <x, A^T y>."""
    rng = np.random.default_rng(1)
    cube = Variable(VEC3, (6, 6), 6, requires_grad=True)
    y = Variable(VEC3, (16, 8))
    out = ibl.to_equirect(cube, (16, 8))
    x, w = rng.normal(size=(6, 6, 6, 3)), rng.normal(size=(1, 8, 16, 3))
    value, g = evaluate([out, build_backward(out * y)[cube]], {cube: x, y: w})
    assert (value * w).sum() == pytest.approx((x * g).sum(), rel=1e-12)


def test_what_is_no_map_is_named() -> None:
    for bad in (Variable(VEC3, (4, 4), 5), Variable(INT, (4, 4)), Variable(MAT2, (8, 4)), 3.0):
        for call in (ibl.check_map, ibl.texel_directions, ibl.solid_angles):
            with pytest.raises(GraphError, match="environment"):
                call(bad)  # type: ignore[operator]
    assert ibl.check_map(Variable(FLOAT, (6, 3))).size == (6, 3)
    with pytest.raises(GraphError, match="at least 1"):
        ibl.cube_directions(0)
