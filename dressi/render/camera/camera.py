"""Cameras as 4x4 matrices, and converters from other conventions.

In: eye and target, angles in degrees, or OpenCV's K, R, t. Out: ``Camera`` with float64 matrices in
Dressi's conventions: right-handed world, +Y up, the camera looks down -Z; clip space as Vulkan's (z
in [0, 1], y down after projection); column vectors, NumPy row-major: clip = P @ V @ [x, y, z, 1].

Pixel coordinates are continuous: (0, 0) is the top left corner of the top left pixel, whose centre
is (0.5, 0.5); x runs right and y runs down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyglm import glm

from dressi.errors import GraphError, warn
from dressi.previews import table_html

Matrix = npt.NDArray[np.float64]
ROTATION_TOLERANCE = 1e-3
"""Largest entry of R R^T - 1 that from_opencv lets pass: calibration files are often rounded."""

FLIP_YZ = np.diag([1.0, -1.0, -1.0])
"""Axes of a camera that looks down +Z with y down (OpenCV's), to one that looks down -Z with y up,
and back."""


LEAST_RADIANS = 0.6
"""Lenses of photos open by more than this in radians, 34 degrees; by fewer degrees than pi do those
of telescopes."""
WIDEST = 4.0
"""Width over height of what a camera takes: single rows or columns of pixels have narrow angles."""


@dataclass(frozen=True, eq=False)
class Camera:
    """One view. view: (4, 4), world to camera. projection: (4, 4), camera to clip space. size:
    (width, height) in pixels of the photo that the projection was measured in, or None.

    Raises GraphError on construction where a matrix has another shape or holds NaN or infinity, and
    where the last row of view does not begin with 0, 0, 0.
    """

    view: Matrix
    projection: Matrix
    name: str = "camera"
    size: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        for field in ("view", "projection"):
            matrix = np.array(getattr(self, field), dtype=np.float64)
            if matrix.shape != (4, 4):
                raise GraphError(f"{field} of '{self.name}' must be (4, 4), not {matrix.shape}")
            if not np.isfinite(matrix).all():
                raise GraphError(f"{field} of '{self.name}' is not finite: {matrix.tolist()}")
            object.__setattr__(self, field, matrix)
        if np.abs(self.view[3, :3]).max() > 1e-6 * np.abs(self.view).max():
            turned = np.allclose(self.view[:3, 3], 0) and np.isclose(self.view[3, 3], 1)
            raise GraphError(
                f"view of '{self.name}' must have the last row 0, 0, 0, 1, not "
                f"{self.view[3].tolist()}\n  hint: "
                + ("it looks transposed: view.T" if turned else "Camera(view, projection)")
            )

    @property
    def matrix(self) -> Matrix:
        """(4, 4) float64: world to clip space, P @ V."""
        return self.projection @ self.view

    @property
    def matrix32(self) -> npt.NDArray[np.float32]:
        """``matrix`` rounded once, for a (1, 1) MAT4 leaf."""
        return self.matrix.astype(np.float32)

    def _repr_html_(self) -> str:
        rows = {
            "stands at": np.round(self.eye, 4).tolist(),
            "looks along": np.round(-self.view[2, :3], 4).tolist(),
            "projection": "parallel" if not self.projection[3, :3].any() else "perspective",
            "size": "of any picture" if self.size is None else f"{self.size[0]} x {self.size[1]}",
        }
        return table_html(f"camera {self.name}", rows)

    @property
    def eye(self) -> Matrix:
        """(3,) float64: the camera's position in the world."""
        return np.asarray(np.linalg.inv(self.view)[:3, 3])


def _vector(value: npt.ArrayLike, label: str) -> Matrix:
    vector = np.asarray(value, dtype=np.float64)
    if vector.shape != (3,) or not np.isfinite(vector).all():
        raise GraphError(f"{label} must be three finite numbers, got {vector.tolist()}")
    return vector


def look_at(
    eye: npt.ArrayLike, target: npt.ArrayLike = (0.0, 0.0, 0.0), up: npt.ArrayLike = (0.0, 1.0, 0.0)
) -> Matrix:
    """(4, 4) float64 view matrix of a camera at ``eye`` that looks at ``target``.

    eye, target: (3,), world units. up: (3,), the direction that points up in the picture.
    Raises GraphError where eye equals target, or up is zero or parallel to the viewing direction.
    """
    eye_, target_, up_ = _vector(eye, "eye"), _vector(target, "target"), _vector(up, "up")
    forward = target_ - eye_
    length = float(np.linalg.norm(forward))
    if length <= 1e-12 * max(1.0, float(np.abs(eye_).max())):
        raise GraphError(f"look_at: eye and target are the same point, {eye_.tolist()}")
    up_length = float(np.linalg.norm(up_))
    if up_length == 0.0:
        raise GraphError("look_at: up is the zero vector")
    if float(np.linalg.norm(np.cross(forward / length, up_ / up_length))) < 1e-6:
        raise GraphError(
            f"look_at: up {up_.tolist()} is parallel to the viewing direction "
            f"{(forward / length).tolist()}; choose another up, for example (0, 0, 1)"
        )
    view = glm.lookAtRH(*(glm.dvec3(*vector.tolist()) for vector in (eye_, target_, up_)))
    return np.array(view, dtype=np.float64)  # PyGLM hands rows to NumPy, not columns


def _check_range(near: float, far: float, where: str) -> None:
    if not (np.isfinite(near) and np.isfinite(far) and 0.0 < near < far):
        raise GraphError(f"{where} needs 0 < near < far, got near = {near}, far = {far}")


def perspective(fov_y_deg: float, aspect: float, near: float, far: float) -> Matrix:
    """(4, 4) float64 projection for Vulkan's clip space (z 0 at near, 1 at far; y down).

    fov_y_deg: vertical opening angle, degrees, in (0, 180). aspect: width / height. near, far:
    distances along -Z, world units. Raises GraphError for values outside these ranges, or NaN.
    """
    if not 0.0 < fov_y_deg < 180.0:
        raise GraphError(f"perspective needs 0 < fov_y_deg < 180, got {fov_y_deg}")
    if not (np.isfinite(aspect) and aspect > 0.0):
        raise GraphError(f"perspective needs aspect > 0, got {aspect}")
    _check_range(near, far, "perspective")
    if LEAST_RADIANS <= fov_y_deg <= np.pi and 1 / WIDEST <= aspect <= WIDEST:
        warn(
            f"perspective: fov_y_deg = {fov_y_deg:g} is in degrees; of radians it is "
            f"{np.degrees(fov_y_deg):.4g}"
        )
    # Differs from glm.perspectiveRH_ZO: that computes in float32 and leaves y up.
    focal = 1.0 / np.tan(0.5 * np.radians(fov_y_deg))
    projection = np.zeros((4, 4))
    projection[0, 0] = focal / aspect
    projection[1, 1] = -focal
    projection[2, 2:] = far / (near - far), near * far / (near - far)
    projection[3, 2] = -1.0
    return projection


def orthographic(width: float, height: float, near: float, far: float) -> Matrix:
    """(4, 4) float64 parallel projection for Vulkan's clip space (z 0 at near, 1 at far; y down).

    width, height: of the visible box, world units; the optical axis meets its middle. near, far:
    distances along -Z, world units; near may lie behind the camera (be negative). w is 1, so the
    perspective-correct weights of a rasterizer are the plain ones. Raises GraphError unless width,
    height > 0 and near < far, all finite.
    """
    if not (np.isfinite(width) and np.isfinite(height) and width > 0.0 and height > 0.0):
        raise GraphError(f"orthographic needs width and height > 0, got {width}, {height}")
    if not (np.isfinite(near) and np.isfinite(far) and near < far):
        raise GraphError(f"orthographic needs near < far, got near = {near}, far = {far}")
    projection = np.diag([2.0 / width, -2.0 / height, 1.0 / (near - far), 1.0])
    projection[2, 3] = near / (near - far)
    return projection


def ring(
    n_views: int,
    distance: float,
    elevations: Sequence[float] = (15.0, -15.0),
    *,
    fov_y_deg: float = 45.0,
    aspect: float = 1.0,
    near: float | None = None,
    far: float | None = None,
    target: npt.ArrayLike = (0.0, 0.0, 0.0),
    start_deg: float = 0.0,
    pole_elevation: float | None = 80.0,
) -> list[Camera]:
    """Cameras around ``target``, in a fixed order; the first one stands on the +Z side.

    n_views: at least 1. distance: from the target, world units. elevations: degrees above the
    horizon, used in turn around the ring, each in (-90, 90). near, far: 0.1 and 3 times the
    distance where None. start_deg: azimuth of the first camera, from +Z towards +X. pole_elevation:
    from 6 views on, the last two look down from this elevation and up from its negative; None keeps
    all in the ring. The pole views stand half a step off the ring's azimuths. Raises GraphError for
    bad arguments.
    """
    if n_views < 1 or not elevations:
        raise GraphError(f"ring needs n_views >= 1 and elevations, got {n_views}, {elevations}")
    if not (np.isfinite(distance) and distance > 0.0):
        raise GraphError(f"ring needs a distance > 0, got {distance}")
    has_poles = pole_elevation is not None and n_views >= 6
    n_ring = n_views - 2 if has_poles else n_views
    step = 360.0 / n_ring
    angles = [(start_deg + i * step, elevations[i % len(elevations)]) for i in range(n_ring)]
    if pole_elevation is not None and has_poles:
        angles += [(start_deg + (k + 0.5) * step, s * pole_elevation) for k, s in ((0, 1), (2, -1))]
    near = 0.1 * distance if near is None else near
    far = 3.0 * distance if far is None else far
    projection = perspective(fov_y_deg, aspect, near, far)
    center = _vector(target, "target")
    cameras = []
    for i, (azimuth_deg, elevation_deg) in enumerate(angles):
        if not abs(elevation_deg) < 90.0:
            raise GraphError(f"ring needs elevations in (-90, 90) degrees, got {elevation_deg}")
        a, e = np.radians(azimuth_deg), np.radians(elevation_deg)
        out = np.array([np.cos(e) * np.sin(a), np.sin(e), np.cos(e) * np.cos(a)])
        view = look_at(center + distance * out, center)
        cameras.append(Camera(view, projection, f"ring{i}"))
    return cameras


def from_opencv(
    K: npt.ArrayLike,
    R: npt.ArrayLike,
    t: npt.ArrayLike,
    width: int,
    height: int,
    near: float,
    far: float,
    *,
    pixel_center: float = 0.5,
    name: str = "opencv",
) -> Camera:
    """The Camera of OpenCV's, COLMAP's or Middlebury's K, R, t (x right, y down, z forward).

    K: (3, 3), pixels; skew and an off-centre principal point are kept. R: (3, 3), t: (3,) with
    x_cam = R @ x_world + t. width, height: pixels of the image that K belongs to. near, far:
    distances along +z, world units.
    pixel_center: where the centre of the top left pixel lies in Dressi's pixel coordinates minus
    where it lies in K's, pixels. 0.5 (default): K gives a pixel's centre integer coordinates
    (OpenCV, Middlebury). 0: K gives the top left corner of the image (0, 0) (COLMAP, renderers).
    Raises GraphError: shapes, NaN, K's last row, focal length <= 0, R no rotation, image size,
    near and far.
    """
    k, rotation = np.asarray(K, dtype=np.float64), np.asarray(R, dtype=np.float64)
    for label, matrix in (("K", k), ("R", rotation)):
        if matrix.shape != (3, 3) or not np.isfinite(matrix).all():
            raise GraphError(f"{label} of '{name}' must be (3, 3) and finite: {matrix.tolist()}")
    translation = _vector(np.ravel(np.asarray(t, dtype=np.float64)), f"t of '{name}'")
    if k[2, 2] == 0.0 or np.abs(k[2, :2]).max() > 1e-9 * abs(k[2, 2]):
        raise GraphError(f"the last row of K of '{name}' must be (0, 0, 1): {k[2].tolist()}")
    k = k / k[2, 2]
    if not (k[0, 0] > 0.0 and k[1, 1] > 0.0):
        raise GraphError(f"focal lengths of '{name}' must be > 0: {k[0, 0]}, {k[1, 1]}")
    error = float(np.abs(rotation @ rotation.T - np.eye(3)).max())
    if error > ROTATION_TOLERANCE or np.linalg.det(rotation) < 0.0:
        problem = f"|R R^T - 1| = {error:.3g}, det = {np.linalg.det(rotation):.3g}"
        raise GraphError(f"R of '{name}' is no rotation: {problem}")
    if width < 1 or height < 1:
        raise GraphError(f"image size of '{name}' must be at least 1x1, got {width}x{height}")
    _check_range(near, far, "from_opencv")

    view = np.eye(4)
    view[:3, :3], view[:3, 3] = FLIP_YZ @ rotation, FLIP_YZ @ translation
    pixels = k.copy()
    pixels[:2, 2] += pixel_center
    projection = np.zeros((4, 4))
    projection[0, :3] = 2.0 / width * pixels[0] - pixels[2]
    projection[1, :3] = 2.0 / height * pixels[1] - pixels[2]
    projection[2, 2:] = far / (far - near), near * far / (near - far)
    projection[3, 2] = 1.0
    projection[:, :3] = projection[:, :3] @ FLIP_YZ
    return Camera(view, projection, name, (int(width), int(height)))


def project(camera_matrix: npt.ArrayLike, points: npt.ArrayLike, width: int, height: int) -> Matrix:
    """(N, 2) float64 pixel coordinates of world points; NaN for points not in front (w <= 0).

    camera_matrix: (4, 4), ``Camera.matrix``. points: (N, 3). width, height: pixels.
    """
    matrix, world = np.asarray(camera_matrix, np.float64), np.asarray(points, np.float64)
    clip = world @ matrix[:, :3].T + matrix[:, 3]
    w = np.where(clip[:, 3] > 0.0, clip[:, 3], np.nan)
    return np.asarray((clip[:, :2] / w[:, None] * 0.5 + 0.5) * [width, height])
