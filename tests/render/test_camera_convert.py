"""Converters: random points land on the same pixels as in each tool's own words, written here."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.errors import GraphError
from dressi.render.camera import (
    Camera,
    depth_range,
    from_blender,
    from_opencv,
    from_opengl,
    from_pytorch3d,
    from_pytorch3d_fov,
    look_at,
    orthographic,
    perspective,
    project,
    to_blender,
    to_opencv,
    to_opengl,
    to_pytorch3d,
    to_pytorch3d_fov,
)

W, H = 640, 400
NEAR, FAR = 0.5, 20.0
K = np.array([[500.0, 3.0, 301.0], [0.0, 480.0, 207.0], [0.0, 0.0, 1.0]])
ATOL = 1e-9


def rotation(seed):
    q, r = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))
    q = q * np.sign(np.diag(r))
    return q * np.sign(np.linalg.det(q))


POINTS = np.random.default_rng(0).uniform(-1.5, 1.5, size=(200, 3))
R, T = rotation(1), np.array([0.2, -0.1, 6.0])


def odd_camera(skew=3.0):
    return from_opencv(K + [[0, skew - 3, 0], [0, 0, 0], [0, 0, 0]], R, T, W, H, NEAR, FAR)


def depths(camera):
    clip = np.c_[POINTS, np.ones(len(POINTS))] @ camera.matrix.T
    return clip[:, 2] / clip[:, 3]


def test_orthographic_is_a_box():
    camera = Camera(look_at((0, 0, 5)), orthographic(4.0, 2.0, 1.0, 9.0))
    corners = [[2, 1, 4], [-2, -1, -4], [0, 0, 0]]
    clip = np.c_[corners, np.ones(3)] @ camera.matrix.T
    assert np.allclose(clip, [[1, -1, 0, 1], [-1, 1, 1, 1], [0, 0, 0.5, 1]])
    assert np.allclose(depth_range(camera), (1.0, 9.0))


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((0, 1, 1, 2), "width"),
        ((1, -1, 1, 2), "height"),
        ((1, float("nan"), 1, 2), "nan"),
        ((1, 1, 2, 2), "near = 2"),
        ((1, 1, 1, float("inf")), "inf"),
    ],
)
def test_orthographic_refuses(arguments, word):
    with pytest.raises(GraphError, match=word):
        orthographic(*arguments)


@pytest.mark.parametrize("pixel_center", [0.5, 0.0])
def test_opencv_and_back(pixel_center):
    made = to_opencv(odd_camera(), W, H, pixel_center=pixel_center)
    homogeneous = (POINTS @ made.R.T + made.t) @ made.K.T
    pixels = homogeneous[:, :2] / homogeneous[:, 2:] + pixel_center
    assert np.allclose(pixels, project(odd_camera().matrix, POINTS, W, H), atol=ATOL)
    assert np.allclose(made.K[:2, :2], K[:2, :2]) and np.allclose(made.R, R)
    again = made.camera(*depth_range(odd_camera()))
    assert np.allclose(again.view, odd_camera().view)
    assert np.allclose(again.projection, odd_camera().projection)
    assert np.allclose(depth_range(again), (NEAR, FAR))


def test_opencv_refuses_what_has_no_k():
    view = look_at((0, 0, 5))
    with pytest.raises(GraphError, match="not a pinhole camera"):
        to_opencv(Camera(view, orthographic(1, 1, 1, 2), "flat"), W, H)
    with pytest.raises(GraphError, match="1x1"):
        to_opencv(odd_camera(), 0, H)
    with pytest.raises(GraphError, match=r"\|R R\^T - 1\|"):
        to_opencv(Camera(2 * view, perspective(40, 1, 1, 2)), W, H)
    with pytest.raises(GraphError, match="near and far"):
        depth_range(Camera(view, np.eye(4) * [1, 1, 0, 1]))


@pytest.mark.parametrize("flat", [False, True])
def test_opengl_and_back(flat):
    """glFrustum and glOrtho of the reference pages: y up, z in [-1, 1]."""
    left, right, bottom, top, n, f = -0.3, 0.5, -0.2, 0.1, 1.0, 30.0
    gl = np.zeros((4, 4))
    if flat:
        left, right, bottom, top = (10 * v for v in (left, right, bottom, top))
        gl[0, 0], gl[1, 1], gl[2, 2] = 2 / (right - left), 2 / (top - bottom), -2 / (f - n)
        gl[:3, 3] = (
            -(right + left) / (right - left),
            -(top + bottom) / (top - bottom),
            -(f + n) / (f - n),
        )
        gl[3, 3] = 1
    else:
        gl[0, 0], gl[1, 1] = 2 * n / (right - left), 2 * n / (top - bottom)
        gl[0, 2], gl[1, 2] = (right + left) / (right - left), (top + bottom) / (top - bottom)
        gl[2, 2:] = -(f + n) / (f - n), -2 * f * n / (f - n)
        gl[3, 2] = -1
    view = look_at((3, 2, 5))
    clip = np.c_[POINTS, np.ones(len(POINTS))] @ (gl @ view).T
    ndc = clip[:, :3] / clip[:, 3:]
    camera = from_opengl(view, gl)
    # glViewport: window y counts from the bottom; depth range [0, 1]
    window = (ndc[:, :2] * 0.5 + 0.5) * [W, H]
    assert np.allclose(
        project(camera.matrix, POINTS, W, H), np.c_[window[:, 0], H - window[:, 1]], atol=1e-8
    )
    assert np.allclose(depths(camera), ndc[:, 2] * 0.5 + 0.5)
    assert np.allclose(depth_range(camera), (n, f))
    back_view, back = to_opengl(camera)
    assert np.allclose(back, gl) and np.allclose(back_view, view)
    with pytest.raises(GraphError, match=r"\(4, 4\)"):
        from_opengl(view, np.eye(3))


def pytorch3d_pixels(r, t, focal, center, in_ndc):
    """x_cam = x_world R + T, +X left, +Y up; the short side of NDC spans [-1, 1]."""
    cam = POINTS @ r + t
    flat = cam[:, :2] / cam[:, 2:] * focal
    if not in_ndc:  # screen units: x right, y down
        return np.asarray(center) - flat
    ndc = flat + center
    return 0.5 * np.array([W, H]) - ndc * 0.5 * min(W, H)


@pytest.mark.parametrize("in_ndc", [True, False])
def test_pytorch3d_and_back(in_ndc):
    r, t = rotation(5), np.array([0.3, -0.2, 7.0])
    focal, center = ((1.7, 1.9), (0.1, -0.3)) if in_ndc else ((350.0, 380.0), (300.0, 230.0))
    want = pytorch3d_pixels(r, t, focal, center, in_ndc)
    camera = from_pytorch3d(r[None], t[None], focal, center, W, H, NEAR, FAR, in_ndc=in_ndc)
    assert np.allclose(project(camera.matrix, POINTS, W, H), want, atol=ATOL)
    back = to_pytorch3d(camera, W, H, in_ndc=in_ndc)
    assert np.allclose(back.R, r) and np.allclose(back.T, t)
    assert np.allclose(back.focal_length, focal) and np.allclose(back.principal_point, center)
    other = to_pytorch3d(camera, W, H, in_ndc=not in_ndc)
    got = pytorch3d_pixels(other.R, other.T, other.focal_length, other.principal_point, not in_ndc)
    assert np.allclose(got, want, atol=ATOL)


def test_pytorch3d_field_of_view_and_back():
    r, t = rotation(6), np.array([0.0, 0.1, 6.0])
    fov, aspect, near, far = 50.0, 1.2, 0.7, 30.0
    camera = from_pytorch3d_fov(r, t, fov, W, H, znear=near, zfar=far, aspect_ratio=aspect)
    tan = np.tan(np.radians(fov) / 2)
    want = pytorch3d_pixels(r, t, (1 / (tan * aspect), 1 / tan), (0, 0), True)
    assert np.allclose(project(camera.matrix, POINTS, W, H), want, atol=ATOL)
    depth = (POINTS @ r + t)[:, 2]
    assert np.allclose(depths(camera), far / (far - near) * (1 - near / depth))
    back = to_pytorch3d_fov(camera, W, H)
    assert np.allclose(back["R"], r) and np.allclose(back["T"], t)
    numbers = [back[k] for k in ("fov", "znear", "zfar", "aspect_ratio")]
    assert np.allclose(numbers, (fov, near, far, aspect))


def test_pytorch3d_refuses():
    good = dict(R=R, T=T, focal_length=2.0, principal_point=(0, 0), width=W, height=H)
    good |= dict(near=NEAR, far=FAR)
    for change, words in [
        ({"R": np.eye(4)}, "R must be"),
        ({"T": (1, np.nan, 0)}, "T must be"),
        ({"focal_length": -1.0}, "focal"),
        ({"principal_point": (1, 2, 3)}, "principal_point"),
        ({"width": 0}, "0x400"),
        ({"R": 2 * R}, "no rotation"),
    ]:
        with pytest.raises(GraphError, match=words):
            from_pytorch3d(**(good | change))
    with pytest.raises(GraphError, match="skew of 3"):
        to_pytorch3d(odd_camera(), W, H)
    with pytest.raises(GraphError, match="off centre"):
        to_pytorch3d_fov(odd_camera(skew=0.0), W, H)
    with pytest.raises(GraphError, match="fov_deg"):
        from_pytorch3d_fov(R, T, 180.0, W, H)
    with pytest.raises(GraphError, match="aspect_ratio"):
        from_pytorch3d_fov(R, T, 40.0, W, H, aspect_ratio=0.0)


@pytest.mark.parametrize("z_up", [False, True])
def test_blender_and_back(z_up):
    """Blender: a point in the camera's own axes is matrix_world^-1 p, and it looks down -Z."""
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = rotation(8), (1.0, -2.0, 0.5)
    p = perspective(60.0, W / H, NEAR, FAR)
    own = np.random.default_rng(2).uniform((-1, -1, -8), (1, 1, -3), size=(50, 3))
    world = own @ pose[:3, :3].T + pose[:3, 3]
    focal = 0.5 * H / np.tan(np.radians(30.0))
    want = np.c_[own[:, 0], -own[:, 1]] / -own[:, 2:] * focal + 0.5 * np.array([W, H])
    camera = from_blender(pose, p, z_up=z_up)
    y_up = np.c_[world[:, 0], world[:, 2], -world[:, 1]]  # what glTF exporters do
    assert np.allclose(project(camera.matrix, y_up if z_up else world, W, H), want, atol=ATOL)
    assert np.allclose(to_blender(camera, z_up=z_up), pose)
    with pytest.raises(GraphError, match="no rotation"):
        from_blender(pose * [[2], [2], [2], [1]], p)
