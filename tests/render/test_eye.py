"""Directions to the eye, for every kind of projection.

References are how each camera was made: a perspective looks from a known point, a parallel
projection along a known axis; slopes are finite differences of float64 directions.
"""

from __future__ import annotations

import numpy as np
import pytest

from dressi import DressiAD, F, Variable
from dressi.ad import evaluate
from dressi.ad.vtype import IVEC3, MAT4, VEC2, VEC3
from dressi.errors import GraphError
from dressi.render.camera import (
    directions_to_eye,
    eye_of,
    eye_position,
    from_opencv,
    homogeneous_eye,
    look_at,
    orthographic,
    perspective,
    pixel_rays,
    ray_directions,
    to_eye,
)
from dressi.render.raster import build_hardsoftras
from dressi.render.shading import DirectionalLight, Surface, blinn_phong, build_surface

EYE, TARGET = np.array([1.0, 2.0, 3.0]), np.array([0.2, 0.1, -0.3])
VIEW = look_at(EYE, TARGET)
AXIS = (EYE - TARGET) / np.linalg.norm(EYE - TARGET)
MIRROR = np.diag([-1.0, 1.0, 1.0, 1.0])
POINTS = np.random.default_rng(3).uniform(-0.5, 0.5, (20, 3))
CORNERS = np.array([[-0.9, -0.7], [0.3, 0.8], [0.0, 0.0]])


def infinite(near: float) -> np.ndarray:
    p = perspective(40.0, 1.5, near, 2 * near)
    p[2, 2:] = -1.0, -near
    return p


def off_centre() -> np.ndarray:
    k = np.array([[300.0, 4.0, 20.0], [0.0, 320.0, 190.0], [0.0, 0.0, 1.0]])
    r = np.diag([1.0, -1.0, -1.0]) @ VIEW[:3, :3]
    return from_opencv(k, r, -r @ EYE, 200, 160, 0.1, 50.0).matrix


def oblique() -> tuple[np.ndarray, np.ndarray]:
    """A parallel projection along an axis that is not that of its planes: (matrix, to the eye)."""
    shear = np.eye(4)
    shear[0, 2], shear[1, 2] = 0.4, -0.3  # x' = x + .4 z: the line x = -.4 z, y = .3 z is a point
    along = np.array([-0.4, 0.3, 1.0]) @ VIEW[:3, :3]
    return orthographic(4, 3, 0.1, 9) @ shear @ VIEW, along / np.linalg.norm(along)


POINT_CASES = {
    "perspective": perspective(45.0, 1.5, 0.1, 50.0) @ VIEW,
    "off-centre with skew": off_centre(),
    "no far plane": infinite(0.01) @ VIEW,
    "mirrored picture": MIRROR @ perspective(45.0, 1.5, 0.1, 50.0) @ VIEW,
    "mirrored world": perspective(45.0, 1.5, 0.1, 50.0) @ VIEW @ MIRROR,
    "row w of length 7": 7.0 * perspective(45.0, 1.5, 0.1, 50.0) @ VIEW,
    "narrow": perspective(0.5, 1.0, 1.0, 9.0) @ VIEW,
    "wide": perspective(170.0, 1.0, 0.001, 1e4) @ VIEW,
}
PARALLEL_CASES = {
    "orthographic": (orthographic(3.0, 2.0, 0.1, 10.0) @ VIEW, AXIS),
    "near behind": (orthographic(1.2, 1.5, -5.0, 10.0) @ VIEW, AXIS),
    "large": (orthographic(3e5, 2e5, 1.0, 1e6) @ VIEW, AXIS),
    "mirrored picture": (MIRROR @ orthographic(3.0, 2.0, 0.1, 10.0) @ VIEW, AXIS),
    "mirrored world": (orthographic(3.0, 2.0, 0.1, 10.0) @ VIEW @ MIRROR, AXIS * [-1, 1, 1]),
    "oblique": oblique(),
}
WANTED = {
    **{
        f"point: {name}": (
            m,
            (lambda at: (at - POINTS) / np.linalg.norm(at - POINTS, axis=1, keepdims=True))(
                EYE * ([-1, 1, 1] if name == "mirrored world" else [1, 1, 1])
            ),
        )
        for name, m in POINT_CASES.items()
    },
    **{
        f"parallel: {name}": (m, np.broadcast_to(d, (20, 3)))
        for name, (m, d) in PARALLEL_CASES.items()
    },
}


@pytest.mark.parametrize("name", WANTED)
def test_directions_to_the_eye_are_the_cameras(name: str) -> None:
    """In NumPy, and in the graph from a matrix, from its eye and from ``eye_position``."""
    matrix, want = WANTED[name]
    assert np.abs(directions_to_eye(matrix, POINTS) - want).max() < 1e-9
    leaf, p = Variable(MAT4, name="matrix"), Variable(VEC3, (20, 1), name="p")
    feeds = {leaf: matrix.astype(np.float32), p: POINTS[None]}
    outputs = [to_eye(leaf, p), to_eye(homogeneous_eye(leaf), p), to_eye(eye_position(leaf), p)]
    tolerance = 2e-3 if "narrow" in name else 1e-5
    for got in evaluate(outputs, feeds):
        assert np.abs(got.reshape(20, 3) - want).max() < tolerance


@pytest.mark.parametrize("name", WANTED)
def test_rays_leave_the_eye_through_their_points(name: str) -> None:
    """A step along the ray of a point keeps its place in the picture and leads away from the eye,
    in every kind of matrix; near and far planes play no part."""
    matrix, _ = WANTED[name]
    leaf, at = Variable(MAT4, name="matrix"), Variable(VEC2, (20, 1), name="ndc")
    clip = np.concatenate([POINTS, np.ones((20, 1))], axis=1) @ matrix.T
    ndc = clip[:, :2] / clip[:, 3:]
    got = evaluate([ray_directions(leaf, at)], {leaf: matrix.astype(np.float32), at: ndc[None]})
    rays = got[0].reshape(20, 3)
    tolerance = 2e-3 if "narrow" in name else 1e-5
    assert np.abs(rays + WANTED[name][1]).max() < tolerance


def test_the_eye_of_a_parallel_projection_lies_at_infinity() -> None:
    for matrix, axis in PARALLEL_CASES.values():
        e = eye_of(matrix)
        assert e[3] == 0.0 and np.allclose(e[:3] / np.linalg.norm(e[:3]), axis)
    e = eye_of(POINT_CASES["perspective"])
    assert np.allclose(e[:3] / e[3], EYE)


@pytest.mark.parametrize("name", ["point: off-centre with skew", "parallel: oblique"])
def test_the_gradient_is_that_of_differences(name: str, ad: DressiAD) -> None:
    matrix, _ = WANTED[name]
    weights = np.random.default_rng(5).normal(size=(20, 3))
    leaf = Variable(MAT4, requires_grad=True, name="matrix")
    p = Variable(VEC3, (20, 1), requires_grad=True, name="p")
    factor = F.leaf(weights, VEC3)
    ad.send_img(leaf, matrix)
    ad.send_img(p, POINTS)
    ad.set_loss_var(F.sum(F.dot(to_eye(leaf, p), factor)))
    got_m, got_p = ad.recv_grad(leaf), ad.recv_grad(p)

    def total(m: np.ndarray, q: np.ndarray) -> float:
        return float((directions_to_eye(m, q) * weights).sum())

    for (i, j), step in np.ndenumerate(np.full((4, 4), 1e-6)):
        if i == 2 or (i == 3 and "parallel" in name):  # row z only orients; row w would bend rays
            continue
        d = np.zeros((4, 4))
        d[i, j] = step
        want = (total(matrix + d, POINTS) - total(matrix - d, POINTS)) / (2 * step)
        assert got_m.reshape(4, 4)[i, j] == pytest.approx(want, rel=2e-3, abs=2e-3)
    for (i, j), step in np.ndenumerate(np.full((3, 3), 1e-6)):
        d = np.zeros((20, 3))
        d[i, j] = step
        want = (total(matrix, POINTS + d) - total(matrix, POINTS - d)) / (2 * step)
        assert got_p.reshape(20, 3)[i, j] == pytest.approx(want, rel=2e-3, abs=2e-3)


@pytest.mark.gpu
def test_the_recipe_shades_orthographic_views(ad: DressiAD) -> None:
    """A quad that faces the eye, light from the eye: the highlight is full at every pixel. With the
    eye in the origin, which is in the quad, it was 0."""
    across = look_at((2.0, 1.0, 3.0))
    normal = np.array([2.0, 1.0, 3.0]) / np.sqrt(14.0)
    right, up = across[0, :3], across[1, :3]
    quad = np.array([-right - up, right - up, right + up, -right + up])
    pos, faces = Variable(VEC3, (4, 1), name="pos"), Variable(IVEC3, (2, 1), name="faces")
    matrix = Variable(MAT4, name="matrix")
    hs = build_hardsoftras(pos, faces, matrix, (9, 9), 0.0)
    light = DirectionalLight(tuple(-normal), intensity=1.0)
    ad.send_img(pos, quad)
    ad.send_img(faces, np.array([[0, 1, 2], [0, 2, 3]]))
    ad.send_img(matrix, orthographic(1.5, 1.5, 0.1, 9.0) @ across)
    for eye in (eye_position(matrix), homogeneous_eye(matrix), matrix):
        s = build_surface(hs.peels[0], pos, faces, eye, two_sided=True, albedo=0.0)
        assert s.to_eye is not None and s.normal is not None
        assert np.abs(ad.recv_img(s.to_eye) - normal).max() < 1e-5
        shine = ad.recv_img(blinn_phong(s, [light], specular=27.5, shininess=50.0))
        assert np.allclose(shine, 27.5, rtol=1e-3)
        assert isinstance(s, Surface)


def test_pixel_rays_are_those_of_pixel_centres() -> None:
    matrix = Variable(MAT4, layers=2, name="matrix")
    both = [POINT_CASES["no far plane"], PARALLEL_CASES["oblique"][0]]
    feeds = {matrix: np.stack(both)[:, None, None].astype(np.float32)}
    got = evaluate([pixel_rays(matrix, (6, 4))], feeds)[0]
    for k, m in enumerate(both):
        for y, x in ((0, 0), (3, 5), (1, 2)):
            at = np.array([(x + 0.5) / 3 - 1, (y + 0.5) / 2 - 1])
            ends = [np.linalg.solve(m, [*at, z, 1.0]) for z in (0.3, 0.6)]
            way = ends[1][:3] / ends[1][3] - ends[0][:3] / ends[0][3]
            assert np.allclose(got[k, y, x], way / np.linalg.norm(way), atol=1e-5)


def test_wrong_types_are_named() -> None:
    with pytest.raises(GraphError, match="needs a MAT4"):
        homogeneous_eye(Variable(VEC3))
    with pytest.raises(GraphError, match="needs an eye"):
        to_eye(Variable(VEC2), Variable(VEC3))
    with pytest.raises(GraphError, match="needs VEC2"):
        ray_directions(Variable(MAT4), Variable(VEC3))
    with pytest.raises(GraphError, match="finite"):
        eye_of(np.eye(3))
