"""Cameras: Vulkan's clip space, and OpenCV's K, R, t give the same pixels as K (R x + t)."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.errors import DressiWarning, GraphError
from dressi.render.camera import Camera, from_opencv, look_at, perspective, project, ring

K = np.array([[500.0, 3.0, 301.0], [0.0, 480.0, 207.0], [0.0, 0.0, 1.0]])


def rotation(seed):
    q, r = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))
    q = q * np.sign(np.diag(r))
    return q * np.sign(np.linalg.det(q))


def clip_point(camera, point):
    clip = camera.matrix @ [*point, 1.0]
    return clip[:3] / clip[3]


def test_clip_space_is_vulkans():
    camera = Camera(look_at((0, 0, 5)), perspective(90.0, 2.0, 1.0, 9.0))
    assert clip_point(camera, (0, 0, 4))[2] == pytest.approx(0.0)  # near plane
    assert clip_point(camera, (0, 0, -4))[2] == pytest.approx(1.0)  # far plane
    assert clip_point(camera, (0, 5, 0))[1] == pytest.approx(-1.0)  # up in the world is -y
    assert clip_point(camera, (10, 0, 0))[0] == pytest.approx(1.0)  # aspect: width / height
    assert (camera.matrix @ [0, 0, 0, 1.0])[3] == pytest.approx(5.0)  # w is the distance
    assert np.allclose(camera.eye, [0, 0, 5])
    assert camera.matrix32.dtype == np.float32


def test_point_above_the_target_lies_higher_in_the_picture():
    camera = Camera(look_at((3, 2, 5)), perspective(45.0, 1.0, 0.1, 100.0))
    center, above = project(camera.matrix, [[0, 0, 0], [0, 0.5, 0]], 200, 100)
    assert np.allclose(center, [100, 50])
    assert above[1] < 50
    assert above[0] == pytest.approx(100.0)


def test_points_behind_the_camera_project_to_nan():
    camera = Camera(look_at((0, 0, 5)), perspective(45.0, 1.0, 0.1, 100.0))
    assert np.isnan(project(camera.matrix, [[0, 0, 6]], 10, 10)).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (((1, 2, 3), (1, 2, 3)), ["same point", "1.0, 2.0, 3.0"]),
        (((0, 5, 0), (0, 0, 0)), ["parallel", "another up"]),
        (((0, 0, 5), (0, 0, 0), (0, 0, 0)), ["zero vector"]),
        (((0, float("nan"), 5),), ["eye", "nan"]),
        (((0, 1),), ["eye", "three"]),
    ],
)
def test_look_at_refuses_what_has_no_view(arguments, words):
    with pytest.raises(GraphError) as caught:
        look_at(*arguments)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((45, 1, 0.0, 10), "near"),
        ((45, 1, 5, 5), "near = 5"),
        ((45, 1, 5, 1), "far = 1"),
        ((45, 1, float("nan"), 1), "nan"),
        ((45, 1, 1, float("inf")), "inf"),
        ((0, 1, 1, 2), "fov_y_deg"),
        ((180, 1, 1, 2), "fov_y_deg"),
        ((float("nan"), 1, 1, 2), "fov_y_deg"),
        ((45, 0, 1, 2), "aspect"),
    ],
)
def test_perspective_refuses_bad_ranges(arguments, word):
    with pytest.raises(GraphError, match=word):
        perspective(*arguments)


def test_nan_in_a_matrix_is_refused_at_once():
    bad = np.eye(4)
    bad[1, 2] = np.nan
    with pytest.raises(GraphError, match="view of 'cam'"):
        Camera(bad, np.eye(4), "cam")
    with pytest.raises(GraphError, match=r"\(4, 4\)"):
        Camera(np.eye(3), np.eye(4))


def test_ring_of_six_looks_from_all_sides_at_the_target():
    target = np.array([0.5, -1.0, 2.0])
    cameras = ring(6, 3.0, target=target)
    out = np.array([c.eye - target for c in cameras]) / 3.0
    assert np.allclose(np.linalg.norm(out, axis=1), 1.0)
    for camera in cameras:
        assert np.allclose(project(camera.matrix, [target], 64, 64), 32.0)
    # any direction is within 60 degrees of a camera (54.7 is the best that six can do)
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(2000, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    assert (directions @ out.T).max(axis=1).min() > 0.5
    assert out[4, 1] > 0.9 and out[5, 1] < -0.9
    again = ring(6, 3.0, target=target)
    assert all(np.array_equal(a.matrix, b.matrix) for a, b in zip(cameras, again, strict=True))


@pytest.mark.parametrize("n_views", [1, 2, 5, 9, 16])
def test_ring_gives_as_many_different_views_as_asked(n_views):
    eyes = {tuple(c.eye.round(6)) for c in ring(n_views, 2.0)}
    assert len(eyes) == n_views


def test_ring_refuses_bad_arguments():
    with pytest.raises(GraphError, match="n_views"):
        ring(0, 3.0)
    with pytest.raises(GraphError, match="distance"):
        ring(3, -1.0)
    with pytest.raises(GraphError, match="elevations"):
        ring(3, 1.0, elevations=(90.0,))


@pytest.mark.parametrize("pixel_center", [0.5, 0.0])
def test_opencv_camera_gives_the_pixels_of_k_r_t(pixel_center):
    rng = np.random.default_rng(3)
    points = rng.uniform(-1.5, 1.5, size=(200, 3))
    r, t = rotation(1), np.array([0.2, -0.1, 6.0])
    homogeneous = (points @ r.T + t) @ K.T
    want = homogeneous[:, :2] / homogeneous[:, 2:]
    camera = from_opencv(K, r, t, 640, 400, 0.5, 20.0, pixel_center=pixel_center)
    got = project(camera.matrix, points, 640, 400)
    assert np.allclose(got, want + pixel_center, atol=1e-9)
    depth = (points @ r.T + t)[:, 2]
    clip = np.c_[points, np.ones(200)] @ camera.matrix.T
    assert np.allclose(clip[:, 3], depth)
    assert np.allclose(clip[:, 2] / clip[:, 3], 20.0 / 19.5 * (1.0 - 0.5 / depth))
    assert np.allclose(camera.eye, -r.T @ t)


def test_opencv_camera_with_centred_principal_point_is_the_perspective_camera():
    k = np.array([[120.0, 0, 100], [0, 120.0, 50], [0, 0, 1]])
    fov = 2 * np.degrees(np.arctan(50 / 120))
    ours = perspective(fov, 2.0, 0.1, 10.0)
    theirs = from_opencv(k, np.eye(3), np.zeros(3), 200, 100, 0.1, 10.0, pixel_center=0.0)
    assert np.allclose(theirs.projection, ours)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"R": np.diag([1.0, 1.0, -1.0])}, ["R of 'shot'", "det = -1"]),
        ({"R": 1.1 * np.eye(3)}, ["R of 'shot'", "no rotation"]),
        ({"R": np.eye(4)}, ["R of 'shot'", "(3, 3)"]),
        ({"K": K * [[-1], [1], [1]]}, ["focal", "shot"]),
        ({"K": K.T}, ["last row", "shot"]),
        ({"K": K * np.nan}, ["K of 'shot'", "finite"]),
        ({"t": [0, 1]}, ["t of 'shot'", "three"]),
        ({"width": 0}, ["0x400", "shot"]),
        ({"near": 0.0}, ["near"]),
        ({"far": 0.1}, ["far"]),
    ],
)
def test_from_opencv_names_what_is_wrong(change, words):
    arguments = dict(K=K, R=np.eye(3), t=np.zeros(3), width=640, height=400, near=0.5, far=9.0)
    with pytest.raises(GraphError) as caught:
        from_opencv(**(arguments | change), name="shot")
    assert all(word in str(caught.value) for word in words)


def test_an_angle_that_may_be_in_radians_is_doubted():
    with pytest.warns(DressiWarning, match="0.785 is in degrees; of radians it is 44.98"):
        perspective(0.785, 1.0, 0.1, 10.0)
    for meant in (0.5, 5.0, 45.0):  # a telescope; and no warning is an error here
        perspective(meant, 1.0, 0.1, 10.0)
    perspective(1.0, 48.0, 0.1, 10.0)  # a row of pixels


@pytest.mark.parametrize(
    ("view", "hint"),
    [
        (look_at((0, 0, 4)).T, "it looks transposed"),
        (perspective(45.0, 1.0, 0.1, 10.0), r"Camera\(view, projection\)"),
    ],
)
def test_a_view_that_is_none_is_refused(view, hint):
    with pytest.raises(GraphError, match=rf"must have the last row 0, 0, 0, 1(.|\n)*{hint}"):
        Camera(view, perspective(45.0, 1.0, 0.1, 10.0), "front")
