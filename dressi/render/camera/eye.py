"""Where a matrix is seen from: the direction to the eye at any point, and the ray of each pixel.

In: a matrix (4, 4), world to clip, of any projection: perspective, parallel, off-centre, mirrored,
with or without a far plane; as a Variable or as an array. Out: the eye in homogeneous coordinates,
and unit vectors towards it. The eye is the null vector of the rows x, y and w of the matrix: a
point for a perspective, the direction towards the viewer (w = 0) for a parallel projection.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dressi.ad import F, Variable
from dressi.ad.vtype import MAT4, VEC2, VEC3, VEC4
from dressi.errors import GraphError

SIGN_NOISE = 1e-5
"""Relative error below which float32 does not tell the sign of a sum of four products."""

PARALLEL_DISTANCE = 1e6
"""Half widths of the picture at which ``eye_position`` stands in for an eye at infinity: the
directions to it are right to 2e-6, near the rounding of float32."""


def homogeneous_eye(matrix: Variable) -> Variable:
    """VEC4 @ 1x1, layers = views: the eye e of a matrix. ``e.xyz - e.w * p`` points from p to it.

    matrix: MAT4 @ 1x1, layers = views, world to clip. e.w is not 0 for a perspective, whose eye is
    the point e.xyz / e.w; it is 0 for a parallel projection, whose eye lies at infinity. Its length
    means nothing. Gradient to matrix. Raises GraphError for other types.
    """
    _check_matrix("homogeneous_eye", matrix)
    return _oriented(matrix)[0]


def to_eye(eye: Variable, position: Variable) -> Variable:
    """VEC3 unit: from each position towards the eye; 0 in the eye itself.

    eye: VEC3 @ 1x1, a point, VEC4 @ 1x1 (``homogeneous_eye``), or MAT4 @ 1x1, the matrix, world to
    clip; layers = views. position: VEC3 @ any size, world. Gradient to both. Raises GraphError for
    other types.
    """
    vtype = getattr(eye, "vtype", None)
    if vtype not in (VEC3, VEC4, MAT4) or getattr(position, "vtype", None) is not VEC3:
        given = ", ".join(
            v.label() if isinstance(v, Variable) else repr(v) for v in (eye, position)
        )
        raise GraphError(
            f"to_eye needs an eye (VEC3, VEC4 or a MAT4 @ 1x1) and VEC3 positions, got {given}"
        )
    if vtype is VEC3:
        return F.normalize(eye - position)
    at = homogeneous_eye(eye) if vtype is MAT4 else eye
    return F.normalize(at.xyz - position * at.w)


def eye_position(matrix: Variable) -> Variable:
    """VEC3 @ 1x1, layers = views: where the camera of a matrix stands, world units.

    matrix: MAT4 @ 1x1, layers = views, world to clip. Of a parallel projection, which has no such
    place: a point so far away in the direction of the viewer (1e6 half widths of the picture) that
    directions to it are parallel; ``homogeneous_eye`` is exact. Gradient to matrix. Raises
    GraphError for other types.
    """
    _check_matrix("eye_position", matrix)
    e = homogeneous_eye(matrix)
    x, y = F.linalg.row(matrix, 0), F.linalg.row(matrix, 1)
    # The point of the plane through the middle of the picture that is nearest to the origin.
    a, b = x.xyz, y.xyz
    normal = F.cross(a, b)
    middle = F.safe_div(
        F.cross(b, normal) * -x.w + F.cross(normal, a) * -y.w, F.dot(normal, normal)
    )
    half = F.safe_div(1.0, F.minimum(F.length(a), F.length(b)))
    far = middle + F.normalize(e.xyz) * (half * PARALLEL_DISTANCE)
    return F.where(F.abs(e.w) > 0.0, F.safe_div(e.xyz, e.w), far)


def pixel_rays(matrix: Variable, size: tuple[int, int]) -> Variable:
    """VEC3 unit @ size, layers = views: the direction in which each pixel looks, world.

    matrix: MAT4 @ 1x1, layers = views, world to clip. size: (width, height). Gradient to matrix.
    Raises GraphError for other types.
    """
    _check_matrix("pixel_rays", matrix)
    ndc = F.pixel_coord(size, matrix.layers) * (2.0 / size[0], 2.0 / size[1]) - 1.0
    return ray_directions(matrix, ndc)


def ray_directions(matrix: Variable, ndc: Variable) -> Variable:
    """VEC3 unit: the direction in which points of the picture look, world.

    matrix: MAT4 @ 1x1, layers = views. ndc: VEC2, clip x / w and y / w. Each lies in two planes,
    x - ndc.x w = 0 and y - ndc.y w = 0; near and far planes play no part. Gradient to both. Raises
    GraphError for other types.
    """
    _check_matrix("ray_directions", matrix)
    if not isinstance(ndc, Variable) or ndc.vtype is not VEC2:
        raise GraphError(f"ray_directions needs VEC2 points, got {ndc!r}")
    _, sign = _oriented(matrix)
    x, y, w = (F.linalg.row(matrix, k).xyz for k in (0, 1, 3))
    return F.normalize(F.cross(x - w * ndc.x, y - w * ndc.y) * sign)


def _check_matrix(where: str, matrix: object) -> None:
    if not isinstance(matrix, Variable) or matrix.vtype is not MAT4 or matrix.size != (1, 1):
        given = matrix.label() if isinstance(matrix, Variable) else repr(matrix)
        raise GraphError(f"{where} needs a MAT4 @ 1x1, got {given}")


def _oriented(matrix: Variable) -> tuple[Variable, Variable]:
    """(VEC4 eye, FLOAT sign by which the null vector of the minors was turned)."""
    rows = [F.linalg.row(matrix, k) for k in range(4)]
    # The null vector is one for rows of any length; unit rows keep products within float32.
    x, y = (r * F.safe_div(1.0, F.length(r.xyz)) for r in rows[:2])
    z, w = rows[2], rows[3]
    a, b, c = x.xyz, y.xyz, w.xyz
    ab = F.cross(a, b)
    at = F.cross(b, c) * -x.w + F.cross(c, a) * -y.w + ab * -w.w
    e = F.vec4(at, F.dot(ab, c))
    sign = F.stop_gradient(_sign(z, e))
    return e * sign, sign


def _sign(z: Variable, e: Variable) -> Variable:
    """1 or -1, which turns e so that the way to it leads to smaller depths.

    A step from a point P towards e leaves clip w as it is and adds a multiple of z(e) to clip z:
    the depth falls where z(e) < 0. z(e) is the near distance of a perspective, which float32 loses
    far from the origin; there e.w > 0 says the same.
    """
    terms = z * e
    depth = F.sum_components(terms)
    noise = F.sum_components(F.abs(terms)) * SIGN_NOISE
    by_depth = F.where(depth > 0.0, -1.0, 1.0)
    by_w = F.where(e.w < 0.0, -1.0, 1.0)
    return F.where(F.abs(depth) > noise, by_depth, by_w)


# -- the same on the host, in float64


def eye_of(matrix: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """(4,) float64: ``homogeneous_eye`` of an array (4, 4). Raises GraphError for other shapes and
    for matrices that are not finite."""
    m = np.asarray(matrix, np.float64)
    if m.shape != (4, 4) or not np.isfinite(m).all():
        raise GraphError(f"eye_of needs a finite (4, 4) matrix, got {m.tolist()}")
    rows = m[[0, 1, 3]]
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows / np.where(lengths > 0.0, lengths, 1.0)
    e = np.array([(-1.0) ** (k + 1) * np.linalg.det(np.delete(rows, k, axis=1)) for k in range(4)])
    if not m[3, :3].any():
        e[3] = 0.0  # a parallel projection, whatever the elimination left
    e /= np.abs(e).max() or 1.0
    depth = float(m[2] @ e)
    if abs(depth) > 1e-13 * float(np.abs(m[2] * e).sum()):
        return -e if depth > 0.0 else e
    return -e if e[3] < 0.0 else e


def directions_to_eye(matrix: npt.ArrayLike, points: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """(N, 3) float64 unit vectors from world points (N, 3) towards the eye of a matrix (4, 4)."""
    e, p = eye_of(matrix), np.asarray(points, np.float64)
    way: Any = e[:3] - e[3] * p
    length = np.linalg.norm(way, axis=-1, keepdims=True)
    return np.asarray(np.divide(way, length, out=np.zeros_like(way), where=length > 0.0))
