"""Cameras around an object that see all of it, with a margin.

In: points of the object, a number of views. Out: ``Camera``s that look at the centre of its box.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dressi.errors import GraphError
from dressi.render.camera import Camera, look_at, perspective

DISTANCE = 4.0
"""Distance of the eye from the centre, in radii of the ball around the object: near enough that
perspective shows depth, far enough that the near half hides little."""

MARGIN = 0.08
"""Part of the half picture that stays free on every side: what a soft silhouette reaches beyond the
object lies in the picture too."""

GOLDEN_ANGLE = np.pi * (3.0 - np.sqrt(5.0))


def around(n: int, turn: float = 0.0) -> npt.NDArray[np.float64]:
    """Return (n, 3) directions spread evenly over the sphere: a spiral of the golden angle.

    turn: radians about the y axis, so that two sets of directions differ. Raises GraphError for
    n < 1.
    """
    if n < 1:
        raise GraphError(f"around needs at least one view, got {n}")
    k = np.arange(n)
    y = 1.0 - (2.0 * k + 1.0) / n
    flat, azimuth = np.sqrt(1.0 - y * y), GOLDEN_ANGLE * k + turn
    return np.stack([flat * np.sin(azimuth), y, flat * np.cos(azimuth)], -1)


def framed(camera: Camera, points: npt.ArrayLike, margin: float = MARGIN) -> Camera:
    """Return the camera with its picture zoomed and shifted so that the points fill it up to the
    margin.

    points: (N, 3), world units, in front of the camera. margin: part of the half picture that stays
    free on each side, in [0, 1). The scale is the same along x and y. Raises GraphError where a
    point lies behind the camera, all coincide, or the margin is none.
    """
    if not 0.0 <= margin < 1.0:
        raise GraphError(f"framed needs a margin in [0, 1), got {margin}")
    p = np.asarray(points, np.float64)
    clip = p @ camera.matrix[:, :3].T + camera.matrix[:, 3]
    if not (clip[:, 3] > 0.0).all():
        raise GraphError(f"framed: the object reaches behind the camera '{camera.name}'")
    ndc = clip[:, :2] / clip[:, 3:]
    low, high = ndc.min(0), ndc.max(0)
    half = float((high - low).max()) / 2.0
    if not half > 0.0:
        raise GraphError(f"framed: all points coincide in the view of '{camera.name}'")
    scale = (1.0 - margin) / half
    zoom = np.eye(4)
    zoom[0, 0] = zoom[1, 1] = scale
    # A shift in NDC is one by w in clip space.
    zoom[:2, 3] = -scale * (low + high) / 2.0
    return replace(camera, projection=zoom @ camera.projection)


def views_of(points: npt.ArrayLike, directions: npt.ArrayLike) -> list[Camera]:
    """Return one framed camera per direction, all at one distance from the centre of the points'
    box.

    points: (N, 3), world units. directions: (n, 3), from the object to the eye. Raises GraphError
    where the points have no extent.
    """
    p = np.asarray(points, np.float64)
    centre = (p.min(0) + p.max(0)) / 2.0
    radius = float(np.linalg.norm(p - centre, axis=1).max())
    if not radius > 0.0:
        raise GraphError("views_of: the object has no extent: all its vertices coincide")
    distance = DISTANCE * radius
    # Wide enough for the ball; ``framed`` zooms in.
    projection = perspective(40.0, 1.0, distance - 1.05 * radius, distance + 1.05 * radius)
    cameras = []
    for k, direction in enumerate(np.asarray(directions, np.float64)):
        unit = direction / np.linalg.norm(direction)
        up = (0.0, 1.0, 0.0) if abs(unit[1]) < 0.98 else (0.0, 0.0, 1.0)
        camera = Camera(look_at(centre + distance * unit, centre, up), projection, f"view {k}")
        cameras.append(framed(camera, p))
    return cameras
