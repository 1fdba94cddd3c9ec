"""Signs of orientation tests that are right always: float64 with an error bound, else integers.

In: points and numbers of points. Out: int8 signs, -1, 0 or 1. Each determinant is
computed in float64 first; where it is smaller than what rounding may have done (Shewchuk 1997, the
A bounds), it is computed again with Python's integers, to which all coordinates are scaled by one
power of two, without an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.integer]
Signs = npt.NDArray[np.int8]

_HALF_ULP = 2.0**-53
_BOUND_2D = (3.0 + 16.0 * _HALF_ULP) * _HALF_ULP
_BOUND_3D = (7.0 + 56.0 * _HALF_ULP) * _HALF_ULP


@dataclass(frozen=True, eq=False)
class ExactPoints:
    """Points by number: float64 (V, 3), and the same as integers (made when first needed).

    The values are those of float32 numbers: then no product of three differences underflows, which
    the error bounds do not cover, and none overflows.
    """

    positions: Floats
    _integers: list[npt.NDArray[np.object_]] = field(default_factory=list)

    @property
    def integers(self) -> npt.NDArray[np.object_]:
        """(V, 3) Python integers: positions times one power of two."""
        if not self._integers:
            mantissa, exponent = np.frexp(self.positions)
            whole = np.ldexp(mantissa, 53).astype(np.int64)
            lowest = int(exponent[whole != 0].min()) if whole.any() else 0
            shift = np.where(whole != 0, exponent - lowest, 0).astype(object)
            self._integers.append(whole.astype(object) * 2**shift)
        return self._integers[0]


def orient3d(points: ExactPoints, a: Ints, b: Ints, c: Ints, d: Ints) -> Signs:
    """(N,) sign of the volume of the tetrahedra abcd: 1 where d is on the side that abc's
    counter-clockwise face looks to, 0 where the four lie in a plane. a, b, c, d: (N,) numbers.
    """
    p = points.positions
    u, v, w = (p[i] - p[a] for i in (b, c, d))
    first, second, third = (v[:, k] * w[:, m] for k, m in ((1, 2), (2, 0), (0, 1)))
    fourth, fifth, sixth = (v[:, k] * w[:, m] for k, m in ((2, 1), (0, 2), (1, 0)))
    det = u[:, 0] * (first - fourth) + u[:, 1] * (second - fifth) + u[:, 2] * (third - sixth)
    size = (
        np.abs(u[:, 0]) * (np.abs(first) + np.abs(fourth))
        + np.abs(u[:, 1]) * (np.abs(second) + np.abs(fifth))
        + np.abs(u[:, 2]) * (np.abs(third) + np.abs(sixth))
    )
    sign = np.sign(det).astype(np.int8)
    rows = np.flatnonzero(_unsure(det, size, _BOUND_3D))
    if len(rows):
        q = points.integers
        u, v, w = (q[i[rows]] - q[a[rows]] for i in (b, c, d))
        exact = (
            u[:, 0] * (v[:, 1] * w[:, 2] - v[:, 2] * w[:, 1])
            + u[:, 1] * (v[:, 2] * w[:, 0] - v[:, 0] * w[:, 2])
            + u[:, 2] * (v[:, 0] * w[:, 1] - v[:, 1] * w[:, 0])
        )
        sign[rows] = _sign_of(exact)
    return sign


def orient2d(points: ExactPoints, axes: Ints, a: Ints, b: Ints, c: Ints) -> Signs:
    """(N,) sign of the area of the triangles abc along two axes: 1 where counter-clockwise.

    axes: (N, 2), the coordinates that are kept, as x and y.
    """

    def difference(table: npt.NDArray, i: Ints, rows: Ints) -> list[npt.NDArray]:
        return [table[i[rows], axes[rows, k]] - table[a[rows], axes[rows, k]] for k in (0, 1)]

    everything = np.arange(len(a))
    u, v = (difference(points.positions, i, everything) for i in (b, c))
    left, right = u[0] * v[1], u[1] * v[0]
    sign = np.sign(left - right).astype(np.int8)
    rows = np.flatnonzero(_unsure(left - right, np.abs(left) + np.abs(right), _BOUND_2D))
    if len(rows):
        u, v = (difference(points.integers, i, rows) for i in (b, c))
        sign[rows] = _sign_of(u[0] * v[1] - u[1] * v[0])
    return sign


def has_area(points: ExactPoints, faces: Ints) -> npt.NDArray[np.bool_]:
    """(F,) bool: the corners of a face do not lie on one line. faces: (F, 3)."""
    a, b, c = faces.T
    found = np.zeros(len(faces), bool)
    for axes in ((1, 2), (2, 0), (0, 1)):
        rest = np.flatnonzero(~found)
        kept = np.broadcast_to(np.array(axes), (len(rest), 2))
        found[rest] = orient2d(points, kept, a[rest], b[rest], c[rest]) != 0
    return found


def _unsure(det: Floats, size: Floats, bound: float) -> npt.NDArray[np.bool_]:
    """Where the float64 sign may be wrong: not where every product has a factor that is 0."""
    return (np.abs(det) <= bound * size) & (size > 0.0)


def _sign_of(numbers: npt.NDArray[np.object_]) -> Signs:
    return (numbers > 0).astype(np.int8) - (numbers < 0).astype(np.int8)
