"""Camera parameters as Variables: rotations, view and projection matrices.

In: FLOAT, VEC3 or VEC4 @ 1x1, layers = views. Out: MAT3 and MAT4 @ 1x1, layers = views, for
``build_hardsoftras`` and the like. All of them have finite values and gradients at the identity.

A fit usually keeps its start in a constant and moves a small rotation and translation on top of it:
``view = build_view(axis_angle_matrix(w), t) @ start``. Conventions: docs/conventions.md; R is
world to camera, x_cam = R x_world + t.
"""

from __future__ import annotations

import math

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, MAT3, VEC3, VEC4, VType
from dressi.errors import GraphError

SERIES_BELOW = 1e-2
"""Squared angle below which sin and cos are replaced by their series: four terms leave an error
below 1e-13, and the closed form above it loses no digits."""


def _parameter(where: str, what: str, x: Variable, vtype: VType) -> Variable:
    if not isinstance(x, Variable) or x.vtype is not vtype or x.size != (1, 1):
        given = x.label() if isinstance(x, Variable) else repr(x)
        raise GraphError(f"{where}: {what} must be {vtype.name} @ 1x1, got {given}")
    return x


def axis_angle_matrix(w: Variable) -> Variable:
    """MAT3 rotation about w by |w| radians, right-handed (Rodrigues).

    w: VEC3 @ 1x1, layers = views. R = I + a K + b K^2 with K the cross product with w, a = sin t /
    t, b = (1 - cos t) / t^2, t = |w|; near t = 0 by their series. Gradient to w, finite everywhere,
    exact at w = 0. Angles at and beyond pi are rotations too; the gradient stays right there.
    Raises GraphError for another type or size.
    """
    _parameter("axis_angle_matrix", "w", w, VEC3)
    s = F.dot(w, w)
    small = s < SERIES_BELOW
    angle = F.sqrt(F.where(small, 1.0, s))
    half = F.sin(angle * 0.5) / angle  # 1 - cos t = 2 sin^2(t / 2): no digits are lost
    a = F.where(small, _series(s, 1.0, -1 / 6, 1 / 120, -1 / 5040), F.sin(angle) / angle)
    b = F.where(small, _series(s, 1 / 2, -1 / 24, 1 / 720, -1 / 40320), half * half * 2.0)
    x, y, z = w.x * a, w.y * a, w.z * a
    # K^2 = w w^T - t^2 I
    cos = 1.0 - s * b
    bw = w * b
    xy, xz, yz = bw.x * w.y, bw.x * w.z, bw.y * w.z
    return F.linalg.from_columns(
        F.vec3(cos + bw.x * w.x, xy + z, xz - y),
        F.vec3(xy - z, cos + bw.y * w.y, yz + x),
        F.vec3(xz + y, yz - x, cos + bw.z * w.z),
    )


def _series(s: Variable, *terms: float) -> Variable:
    """terms[0] + terms[1] s + terms[2] s^2 + ..., by Horner's rule."""
    total: Variable | float = terms[-1]
    for term in reversed(terms[:-1]):
        total = s * total + term
    assert isinstance(total, Variable)
    return total


def rotation_6d_matrix(a: Variable, b: Variable) -> Variable:
    """MAT3 rotation of two directions, made orthonormal (Zhou et al. 2019, "On the Continuity of
    Rotation Representations in Neural Networks", eq. 15).

    a, b: VEC3 @ 1x1, layers = views: before that the first two columns; (1, 0, 0) and (0, 1, 0)
    give the identity. Continuous: no rotation is far from a neighbour, unlike angles. Gradient to
    both; where a is 0, or b along a, the matrix has columns of 0 and the gradient is 0 there.
    Raises GraphError for another type or size.
    """
    _parameter("rotation_6d_matrix", "a", a, VEC3)
    _parameter("rotation_6d_matrix", "b", b, VEC3)
    x = F.safe_normalize(a)
    y = F.safe_normalize(b - x * F.dot(x, b))
    return F.linalg.from_columns(x, y, F.cross(x, y))


def quaternion_matrix(q: Variable) -> Variable:
    """MAT3 rotation of a quaternion (x, y, z, w), glTF's order; (0, 0, 0, 1) is the identity.

    q: VEC4 @ 1x1, layers = views, of any length but 0: it is divided by its length. Gradient to q,
    across its length 0; q = 0 gives the identity and no gradient. Raises GraphError for another
    type or size.
    """
    _parameter("quaternion_matrix", "q", q, VEC4)
    scaled = q * F.safe_div(2.0, F.dot(q, q))
    x, y, z, w = (F.swizzle(q, axis) for axis in "xyzw")
    sx, sy, sz = scaled.x, scaled.y, scaled.z
    xx, yy, zz, xy, xz, yz = sx * x, sy * y, sz * z, sx * y, sx * z, sy * z
    wx, wy, wz = sx * w, sy * w, sz * w
    return F.linalg.from_columns(
        F.vec3(1.0 - (yy + zz), xy + wz, xz - wy),
        F.vec3(xy - wz, 1.0 - (xx + zz), yz + wx),
        F.vec3(xz + wy, yz - wx, 1.0 - (xx + yy)),
    )


def build_view(rotation: Variable, translation: Variable) -> Variable:
    """MAT4 [R t; 0 1], world to camera: x_cam = R x_world + t.

    rotation: MAT3 @ 1x1. translation: VEC3 @ 1x1, world units. layers = views, one goes with n.
    Gradient to both. Raises GraphError for other types and sizes.
    """
    _parameter("build_view", "rotation", rotation, MAT3)
    _parameter("build_view", "translation", translation, VEC3)
    axes = [F.vec4(F.linalg.column(rotation, k), 0.0) for k in range(3)]
    return F.linalg.from_columns(*axes, F.vec4(translation, 1.0))


def build_projection(
    fx: Variable | float,
    fy: Variable | float,
    cx: Variable | float,
    cy: Variable | float,
    skew: Variable | float = 0.0,
    near: Variable | float = 0.1,
    far: Variable | float = 100.0,
    *,
    size: tuple[int, int],
) -> Variable:
    """MAT4 projection of intrinsics, camera to Vulkan's clip space.

    fx, fy, cx, cy, skew: FLOAT @ 1x1 (layers = views) or numbers, pixels; cx, cy count from the top
    left corner of the picture, so its middle is (width / 2, height / 2) (OpenCV's cx, cy plus 0.5).
    near, far: the same, world units. size: (width, height) of the picture, pixels. Gradient to all
    that are Variables. Raises GraphError for other types, numbers that are not finite, focal
    lengths <= 0 and not 0 < near < far where they are numbers.
    """
    where = "build_projection"
    if min(size) < 1:
        raise GraphError(f"{where}: size must be at least 1x1, got {size}")
    given = {"fx": fx, "fy": fy, "cx": cx, "cy": cy, "skew": skew, "near": near, "far": far}
    made: dict[str, Variable] = {}
    for name, value in given.items():
        if isinstance(value, Variable):
            made[name] = _parameter("build_projection", name, value, FLOAT)
            continue
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise GraphError(f"{where}: {name} must be a finite number, got {value!r}")
        if name in ("fx", "fy", "near") and value <= 0.0:
            raise GraphError(f"{where}: {name} must be > 0, got {value!r}")
        made[name] = F.constant(float(value))
    if isinstance(near, (int, float)) and isinstance(far, (int, float)) and not near < far:
        raise GraphError(f"{where}: needs near < far, got near = {near}, far = {far}")
    w, h = 2.0 / size[0], 2.0 / size[1]
    depth = made["far"] / (made["near"] - made["far"])
    # The camera looks down -Z with y up, pixels run down: signs of from_opencv, written out.
    return F.linalg.from_columns(
        F.vec4(made["fx"] * w, 0.0, 0.0, 0.0),
        F.vec4(made["skew"] * -w, made["fy"] * -h, 0.0, 0.0),
        F.vec4(1.0 - made["cx"] * w, 1.0 - made["cy"] * h, depth, -1.0),
        F.vec4(0.0, 0.0, made["near"] * depth, 0.0),
    )
