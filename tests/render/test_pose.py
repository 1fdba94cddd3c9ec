"""Pose builders: right rotations, right gradients, finite at the identity and beyond."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from dressi.ad import (
    FLOAT,
    MAT3,
    MAT4,
    VEC3,
    VEC4,
    F,
    Variable,
    build_backward,
    evaluate,
    gradcheck,
)
from dressi.errors import GraphError
from dressi.render.camera import (
    axis_angle_matrix,
    build_projection,
    build_view,
    from_opencv,
    look_at,
    quaternion_matrix,
    rotation_6d_matrix,
)

ANGLES = (0.0, 1e-12, 1e-6, 1e-3, 0.05, 0.0999, 0.1001, 1.0, 3.1415, np.pi, 4.0, 7.0)
AXIS = np.array([0.6, -0.64, 0.48])
WEIGHT = np.random.default_rng(0).normal(size=(4, 4))


def leaf(value, vtype, name):
    out = F.leaf(np.asarray(value, np.float64), vtype, name)
    out.data = out.data.astype(np.float32)
    out.requires_grad = True
    return out


def weighted(m):
    n = m.vtype.n
    return F.sum_components(
        F.linalg.from_columns(*(F.linalg.column(m, k) for k in range(n)))
        @ F.constant(WEIGHT[:n, 0])
    ) + F.dot(F.linalg.column(m, 0), F.constant(WEIGHT[:n, 1]))


def value(m, feeds=None):
    return evaluate([m], feeds or {})[0][0, 0, 0]


@pytest.mark.parametrize("angle", ANGLES)
def test_axis_angle_is_the_rotation(angle):
    w = (AXIS * angle).astype(np.float32)
    got = value(axis_angle_matrix(F.leaf(w, VEC3)))
    assert np.allclose(got, Rotation.from_rotvec(w.astype(float)).as_matrix(), atol=1e-12)


@pytest.mark.parametrize("angle", ANGLES)
def test_axis_angle_has_the_right_gradient_everywhere(angle):
    w = leaf(AXIS * angle, VEC3, "w")
    found = gradcheck(weighted(axis_angle_matrix(w)), [w])
    assert found.ok and not found.leaves[0].kinks, found.text()


def test_gradient_of_axis_angle_at_the_identity_is_the_generators():
    """d R / d w_k = [e_k]x: the cross product with a unit vector."""
    w = leaf(np.zeros(3), VEC3, "w")
    for row, column in np.ndindex(3, 3):
        entry = F.swizzle(F.linalg.column(axis_angle_matrix(w), column), "xyz"[row])
        got = evaluate([build_backward(entry, [w])[w]], {})[0].reshape(3)
        want = [np.cross(np.eye(3)[k], np.eye(3)[column])[row] for k in range(3)]
        assert np.allclose(got, want, atol=1e-15)


def test_6d_is_gram_schmidt():
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 3)).astype(np.float32).astype(float)
    x = a / np.linalg.norm(a)
    y = b - x * (x @ b)
    y /= np.linalg.norm(y)
    va, vb = leaf(a, VEC3, "a"), leaf(b, VEC3, "b")
    m = rotation_6d_matrix(va, vb)
    assert np.allclose(value(m), np.stack([x, y, np.cross(x, y)], 1), atol=1e-7)
    found = gradcheck(weighted(m), [va, vb])
    assert found.ok, found.text()
    va, vb = leaf([1, 0, 0], VEC3, "a"), leaf([0, 1, 0], VEC3, "b")
    m = rotation_6d_matrix(va, vb)
    assert np.allclose(value(m), np.eye(3), atol=1e-7)
    found = gradcheck(weighted(m), [va, vb])
    assert found.ok, found.text()


@pytest.mark.parametrize("q", [(0, 0, 0, 1), (0.5, -0.7, 0.2, 0.9), (1, 0, 0, 0), (-2, 0, 1, -3)])
def test_quaternion_is_the_rotation(q):
    v = leaf(q, VEC4, "q")
    m = quaternion_matrix(v)
    want = Rotation.from_quat(v.data.reshape(4).astype(float)).as_matrix()
    assert np.allclose(value(m), want, atol=1e-12)
    found = gradcheck(weighted(m), [v])
    assert found.ok, found.text()


def test_what_is_no_rotation_stays_finite():
    zero3, zero4 = leaf(np.zeros(3), VEC3, "a"), leaf(np.zeros(4), VEC4, "q")
    along = leaf([0.0, 0.0, 2.0], VEC3, "b")
    for m, parameters in (
        (rotation_6d_matrix(zero3, along), [zero3, along]),
        (rotation_6d_matrix(along, along), [along]),
        (quaternion_matrix(zero4), [zero4]),
    ):
        grads = build_backward(weighted(m), parameters)
        values = evaluate([m, *grads.values()], {})
        assert all(np.isfinite(v).all() for v in values)
    assert np.array_equal(value(quaternion_matrix(zero4)), np.eye(3))


def test_view_in_layers():
    rng = np.random.default_rng(1)
    w, t = rng.normal(size=(3, 1, 1, 3)), rng.normal(size=(3, 1, 1, 3))
    vw, vt = leaf(w, VEC3, "w"), leaf(t, VEC3, "t")
    start = look_at((1, 2, 3))
    m = build_view(axis_angle_matrix(vw), vt) @ F.constant(start, MAT4)
    got = evaluate([m], {})[0].reshape(3, 4, 4)
    for k in range(3):
        want = np.eye(4)
        want[:3, :3], want[:3, 3] = Rotation.from_rotvec(w[k, 0, 0]).as_matrix(), t[k, 0, 0]
        assert np.allclose(got[k], want @ start, atol=1e-6)
    found = gradcheck(F.sum(weighted(m)), [vw, vt])
    assert found.ok, found.text()


def test_projection_is_that_of_opencv_and_has_all_gradients():
    names = ("fx", "fy", "cx", "cy", "skew", "near", "far")
    values = (50.0, 48.0, 30.5, 20.25, 1.5, 0.5, 20.0)
    made = [leaf([v], FLOAT, n) for n, v in zip(names, values, strict=True)]
    m = build_projection(*made, size=(64, 40))
    k = np.array([[50, 1.5, 30.5], [0, 48, 20.25], [0, 0, 1]])
    want = from_opencv(k, np.eye(3), np.zeros(3), 64, 40, 0.5, 20.0, pixel_center=0.0)
    assert np.allclose(value(m), want.projection, atol=1e-6)
    assert np.allclose(value(build_projection(*values, size=(64, 40))), want.projection, atol=1e-6)
    m = m @ F.constant(look_at((1, 2, 3)), MAT4)
    found = gradcheck(weighted(m), made)
    assert found.ok, found.text()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: axis_angle_matrix(Variable(VEC4)), "w must be VEC3"),
        (lambda: axis_angle_matrix(Variable(VEC3, (2, 1))), "1x1"),
        (lambda: axis_angle_matrix([0, 0, 0]), "w must be VEC3"),
        (lambda: rotation_6d_matrix(Variable(VEC3), Variable(FLOAT)), "b must be VEC3"),
        (lambda: quaternion_matrix(Variable(VEC3)), "q must be VEC4"),
        (lambda: build_view(Variable(MAT4), Variable(VEC3)), "rotation must be MAT3"),
        (lambda: build_view(Variable(MAT3), Variable(VEC4)), "translation must be VEC3"),
        (lambda: build_projection(0.0, 1, 1, 1, size=(4, 4)), "fx must be > 0"),
        (lambda: build_projection(1, 1, float("nan"), 1, size=(4, 4)), "cx must be a finite"),
        (lambda: build_projection(1, 1, 1, 1, near=3, far=2, size=(4, 4)), "near = 3"),
        (lambda: build_projection(1, 1, 1, 1, near=0.0, size=(4, 4)), "near must be > 0"),
        (lambda: build_projection(Variable(VEC3), 1, 1, 1, size=(4, 4)), "fx must be FLOAT"),
        (lambda: build_projection(1, 1, 1, 1, size=(0, 4)), "at least 1x1"),
    ],
)
def test_wrong_arguments_are_named(call, words):
    with pytest.raises(GraphError, match=words) as caught:
        call()
    assert "test_pose.py" in str(caught.value)


@pytest.mark.gpu
def test_on_the_device():
    from dressi import DressiAD

    w, t = leaf(AXIS * 0.05, VEC3, "w"), leaf([0.1, 0.2, -3.0], VEC3, "t")
    fx = leaf([50.0], FLOAT, "fx")
    m = build_projection(fx, 48.0, 32.0, 20.0, size=(64, 40)) @ build_view(axis_angle_matrix(w), t)
    with DressiAD() as ad:
        for x in (w, t, fx):
            ad.send_img(x, x.data)
        assert np.allclose(ad.recv_img(m), value(m), rtol=1e-5, atol=1e-5)
        found = gradcheck(weighted(m), [w, t, fx], engine=ad)
        assert found.ok, found.text()
        w0 = leaf(np.zeros(3), VEC3, "w0")
        found = gradcheck(weighted(axis_angle_matrix(w0)), [w0], engine=ad, feeds={w0: w0.data})
        assert found.ok, found.text()
