"""Places far from the origin: what float32 loses there is taken away on the host, in float64.

In: positions and cameras in the world. Out: the same, relative to a point among them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dressi.errors import GraphError
from dressi.render.camera.camera import Camera

FAR_RADII = 100.0
"""Radii away from the origin from which on a scene is moved to it: nearer, float32 rounds positions
to 1e-5 of the radius at most, and leaves and files keep the same numbers."""

Matrix = npt.NDArray[np.float64]


def recentred(
    positions: npt.ArrayLike, cameras: Sequence[Camera], center: npt.ArrayLike | None = None
) -> tuple[npt.NDArray[np.float32], list[Camera], Matrix]:
    """(positions, cameras, center) for the device: positions relative to a center, float32, and
    cameras that see them as they saw the given ones.

    positions: (N, 3), world, in float64 where they are far away. cameras: in the world. center:
    (3,), world; None: the middle of the positions' box. Add the returned center, (3,) float64, in
    float64 to what comes back. Raises GraphError for other shapes and what is not finite.
    """
    points = np.asarray(positions, np.float64)
    if points.ndim != 2 or points.shape[1] != 3 or not len(points) or not np.isfinite(points).all():
        raise GraphError(f"recentred needs finite positions (N, 3), got {points.shape}")
    middle = 0.5 * (points.min(axis=0) + points.max(axis=0)) if center is None else center
    at = np.asarray(middle, np.float64)
    if at.shape != (3,) or not np.isfinite(at).all():
        raise GraphError(f"recentred needs a center (3,), got {middle!r}")
    moved = [replace(c, view=c.view @ translation(at)) for c in cameras]
    return (points - at).astype(np.float32), moved, at


def translation(offset: np.ndarray) -> Matrix:
    """(4, 4) float64."""
    m = np.eye(4)
    m[:3, 3] = offset
    return m


def far_origin(points: np.ndarray) -> Matrix:
    """(3,) float64, each a float32: the middle of points (N, 3) that lie far from 0, else 0."""
    low, high = points.min(axis=0), points.max(axis=0)
    center = 0.5 * (low + high)
    far = float(np.abs(center).max()) > FAR_RADII * 0.5 * float(np.linalg.norm(high - low))
    # An origin that float32 holds: the difference to a near float32 has no rounding then.
    return center.astype(np.float32).astype(np.float64) if far else np.zeros(3)


def relative(
    origin: np.ndarray,
) -> tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]:
    """(to the origin, back to the world) of points, in float64; as they are where it is 0."""
    if not origin.any():
        return (lambda a: a), (lambda a: a)
    return (
        lambda a: np.asarray(a, np.float64) - origin,
        lambda a: np.asarray(a, np.float64) + origin,
    )
