"""The frame that a scene is drawn in: relative to its middle, with depths that float32 tells apart.

In: instances and cameras in the world, float64. Out: ``Frame``, where the origin lies and how large
the scene is; cameras seen from there. Far from the origin of the world float32 has steps of up to
the size of the scene; the difference to a point in the scene is taken on the host, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from dressi.errors import warn
from dressi.render.camera import Camera, eye_of, far_origin, look_at, perspective, translation
from dressi.render.scene.flat import Instance

FOV_DEG = 45.0
"""Of the camera that a scene without one gets."""

DEPTH_STEP = 2.0**-23
"""The difference that two depths in [0.5, 1] need to be distinct, rounding of their interpolation
included."""

FINE_DEPTH = 5e-5
"""Step of depths, in radii of the scene, up to which the planes of a camera stay as they are."""

MIN_SEEN = 0.05
"""Share of the largest outline, over the directions tried, that the first one must show."""


def unit_of(low: np.ndarray, high: np.ndarray) -> float:
    """Half the longest side of a box, 1 for an empty one: what lengths are measured in by learning
    rates and regularizers, so that a fit is the same one in metres and in millimetres. low, high:
    (3,) corners."""
    half = 0.5 * float((np.asarray(high, np.float64) - np.asarray(low, np.float64)).max())
    return half if half > 0.0 else 1.0


@dataclass(frozen=True, eq=False)
class Frame:
    """origin: (3,) float64, where the frame's zero lies in the world; each is a float32. low, high:
    corners of the scene's box in the frame. center, radius: of a sphere around it, in the frame.
    edge: median length of edges. front: (3,) direction from which a scene without cameras is seen.
    """

    origin: np.ndarray
    low: np.ndarray
    high: np.ndarray
    center: np.ndarray
    radius: float
    edge: float
    front: np.ndarray

    @property
    def unit(self) -> float:
        """``unit_of`` the scene."""
        return unit_of(self.low, self.high)

    @property
    def corners(self) -> np.ndarray:
        """(8, 4) corners of the box, homogeneous."""
        return np.array([(*c, 1.0) for c in product(*zip(self.low, self.high, strict=True))])

    def seen(self, camera: Camera) -> Camera:
        """The camera with its world moved to the frame."""
        if not self.origin.any():
            return camera
        return replace(camera, view=camera.view @ translation(self.origin))


def build_frame(found: list[Instance]) -> tuple[Frame, list[Instance]]:
    """The frame of instances in the world, and the instances in it."""
    origin = far_origin(np.concatenate([i.exact_positions() for i in found]))
    if origin.any():
        back = translation(-origin)
        found = [replace(i, world=back @ i.world) for i in found]
    tables = [i.exact_positions() for i in found]
    world = np.concatenate(tables)
    low, high = world.min(axis=0), world.max(axis=0)
    center = 0.5 * (low + high)
    radius = float(np.linalg.norm(world - center, axis=1).max())
    corners = [t[i.faces] for t, i in zip(tables, found, strict=True)]
    triangles = np.concatenate(corners)
    sides = np.linalg.norm(triangles - np.roll(triangles, 1, axis=1), axis=2)
    edge = float(np.median(sides))
    frame = Frame(origin, low, high, center, max(radius, 1e-6), edge, front_of(triangles))
    return frame, found


def front_of(triangles: np.ndarray) -> np.ndarray:
    """(3,) the direction from which triangles (F, 3, 3) are looked at: +Z, or where they are nearly
    edge-on from there, the one of 13 directions (axes and diagonals) that shows most of them."""
    a, b, c = triangles[:, 0], triangles[:, 1], triangles[:, 2]
    areas = np.cross(b - a, c - a)
    tried = [np.array([0.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0]), np.array([1.0, 0.0, 0.0])]
    signs = [s for s in product((1, 0, -1), repeat=3) if sum(map(abs, s)) > 1 and s > (0, 0, 0)]
    tried += [np.array(s) / np.linalg.norm(s) for s in signs]
    shown = [float(np.abs(areas @ d).sum()) for d in tried]
    best = int(np.argmax(shown))
    return tried[0] if shown[0] >= MIN_SEEN * shown[best] else tried[best]


def front_camera(frame: Frame, aspect: float) -> Camera:
    """The camera of a scene that has none, in the world: all of the scene is in view."""
    half = math.radians(FOV_DEG) / 2.0
    narrow = min(half, math.atan(math.tan(half) * aspect))
    away = 1.05 * frame.radius / math.sin(narrow)
    near = away - 1.05 * frame.radius
    center = frame.center + frame.origin
    up = (0.0, 0.0, -1.0) if abs(frame.front[1]) > 0.99 else (0.0, 1.0, 0.0)
    view = look_at(center + frame.front * away, center, up)
    lens = perspective(FOV_DEG, aspect, 0.5 * near, away + 2.0 * frame.radius)
    return Camera(view, lens, "front")


# -- depth


def depth_step(matrix: np.ndarray, points: np.ndarray) -> float:
    """The largest distance along the ray of a visible point by which float32 depths do not differ,
    world units; 0 where no point is between the planes.

    matrix: (4, 4), world to clip. points: (N, 4). A step s from P towards the eye e adds s z(e) to
    clip z and leaves clip w, and moves P by s |e.xyz - e.w P| / P.w.
    """
    clip = points @ matrix.T
    z, w = clip[:, 2], clip[:, 3]
    seen = (w > 0.0) & (z >= 0.0) & (z <= w)
    if not seen.any():
        return 0.0
    e = eye_of(matrix)
    moved = np.linalg.norm(e[:3] - e[3] * points[seen, :3], axis=1)
    slope = abs(float(matrix[2] @ e))
    return float((w[seen] * moved).max()) * DEPTH_STEP / slope if slope > 0.0 else math.inf


def tightened(camera: Camera, corners: np.ndarray, radius: float) -> Camera:
    """The camera with planes that separate depths of 5e-5 of the scene's radius in float32, where
    those that it has do not and the scene leaves room.

    corners: (8, 4) of the scene's box, in the world of the camera. A near plane is moved to a
    quarter of the way to the box, the planes of a parallel projection to 10 radii around it; so
    vertices that a fit moves are not cut soon. Nothing that the given planes show is hidden.
    """
    m = camera.matrix
    if depth_step(m, corners) <= FINE_DEPTH * radius:
        return camera
    clip = corners @ m.T
    z, w = clip[:, 2], clip[:, 3]
    if w.min() <= 0.0:
        return camera
    depth = z / w
    along = m[3, :3]
    if along.any():
        limit = float(m[2, :3] @ along) / float(along @ along)  # of the depth, towards infinity
        first, last = limit - 4.0 * (limit - float(depth.min())), 1.0
    else:
        room = 10.0 * radius * float(np.linalg.norm(m[2, :3])) / float(m[3, 3])
        first, last = float(depth.min()) - room, float(depth.max()) + room
    first, last = max(first, 0.0), min(last, 1.0)
    if not first < last or (first, last) == (0.0, 1.0):
        return camera
    p = camera.projection.copy()
    p[2] = (p[2] - first * p[3]) / (last - first)
    return replace(camera, projection=p)


def crosses(cameras: Sequence[Camera], frame: Frame) -> bool:
    """Whether the scene's box crosses the near or the far plane of a camera, in the frame."""
    for camera in cameras:
        _, _, z, w = (frame.corners @ camera.matrix.T).T
        for inside in (z > 0.0, z < w):
            if inside.any() and not inside.all():
                return True
    return False


# -- what is said


def look_through(cameras: Sequence[Camera], frame: Frame) -> None:
    """Warn of views that show nothing of the scene's box, and of depths that float32 mixes up.

    cameras: in the frame, with the planes that are drawn with.
    """
    corners = frame.corners
    for camera in cameras:
        clip = corners @ camera.matrix.T
        x, y, z, w = clip.T
        outside = {
            "behind the camera": (w <= 0.0).all(),
            "beyond the far plane": (z > w).all(),
            "nearer than the near plane": (z < 0.0).all(),
            "left of the picture": (x < -w).all(),
            "right of the picture": (x > w).all(),
            "above the picture": (y < -w).all(),
            "below the picture": (y > w).all(),
        }
        where = next((name for name, all_out in outside.items() if all_out), None)
        if where is not None:
            center = (frame.center + frame.origin).tolist()
            warn(
                f"camera '{camera.name}' sees nothing: the scene (center {center}, radius "
                f"{frame.radius:.4g}) lies {where}"
            )
            continue
        step = depth_step(camera.matrix, corners)
        if step > 0.01 * frame.edge > 0.0:
            warn(
                f"camera '{camera.name}': at the scene's distance, float32 depths differ from "
                f"{step:.3g} world units on, its edges are {frame.edge:.3g} long: what lies behind "
                "may show\n  hint: raise the near plane"
            )
