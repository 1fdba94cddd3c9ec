"""Cameras to and from other tools: OpenCV, COLMAP, OpenGL, Blender.

In: their matrices. Out: ``Camera`` (docs/conventions.md), and back. ``Calibration`` is what photo
formats have in common: K, R, t, the size of the photo and its lens. PyTorch3D's own axes and units
are in ``camera_pytorch3d``; files in ``dressi.render.io``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dressi.errors import GraphError
from dressi.render.camera.camera import FLIP_YZ, ROTATION_TOLERANCE, Camera, from_opencv
from dressi.render.camera.distortion import NO_DISTORTION, Distortion

Matrix = npt.NDArray[np.float64]

Z_UP_TO_Y_UP = np.array([[1.0, 0, 0, 0], [0, 0, 1.0, 0], [0, -1.0, 0, 0], [0, 0, 0, 1.0]])
"""Turns Blender's world (+Z up) by -90 degrees about X."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """A calibrated photo: pixel ~ lens(K (R x + t)), OpenCV's axes.

    K: (3, 3), pixels of the photo. R: (3, 3), t: (3,), world to camera (x right, y down, z
    forward). width, height: pixels. distortion: of the lens. pixel_center: as in ``from_opencv``:
    0.5 where K gives a pixel's centre integer coordinates (OpenCV), 0 where the corner of the photo
    is (0, 0) (COLMAP, transforms.json).
    """

    name: str
    K: Matrix
    R: Matrix
    t: Matrix
    width: int
    height: int
    distortion: Distortion = NO_DISTORTION
    pixel_center: float = 0.5

    def camera(self, near: float, far: float) -> Camera:
        """The ideal ``Camera``, without the lens. near, far: world units. Raises GraphError."""
        photo = self.K, self.R, self.t, self.width, self.height
        return from_opencv(*photo, near, far, pixel_center=self.pixel_center, name=self.name)


def depth_range(camera: Camera) -> tuple[float, float]:
    """(near, far) of a camera, world units. Raises GraphError where its projection has none."""
    p = camera.projection
    a, b, of_w, w = p[2, 2], p[2, 3], p[3, 2], p[3, 3]
    # z / w is 0 at the depth near, 1 at far, with z = -depth in the camera.
    if a != 0.0 and a != of_w:
        near, far = b / a, (b - w) / (a - of_w)
        if np.isfinite([near, far]).all() and near < far:
            return float(near), float(far)
    raise GraphError(f"'{camera.name}' has no near and far plane: row z of its projection {p[2]}")


def rigid(view: npt.ArrayLike, where: str) -> tuple[Matrix, Matrix]:
    """(R, t) of a (4, 4) rigid motion. Raises GraphError where it scales, mirrors or shears."""
    m = np.asarray(view, np.float64)
    if m.shape != (4, 4) or not np.isfinite(m).all():
        raise GraphError(f"{where}: a (4, 4) finite matrix is needed, got shape {m.shape}")
    r = m[:3, :3]
    off = float(np.abs(r @ r.T - np.eye(3)).max())
    if off > ROTATION_TOLERANCE or np.linalg.det(r) < 0 or np.abs(m[3] - [0, 0, 0, 1]).max() > 1e-9:
        raise GraphError(
            f"{where}: no rotation and translation: |R R^T - 1| = {off:.3g}, "
            f"det = {np.linalg.det(r):.3g}, last row {m[3].tolist()}"
        )
    return r.copy(), m[:3, 3].copy()


def _inverse(motion: npt.ArrayLike, where: str) -> Matrix:
    """(4, 4): the inverse of a rigid motion."""
    r, t = rigid(motion, where)
    out = np.eye(4)
    out[:3, :3], out[:3, 3] = r.T, -r.T @ t
    return out


def to_opencv(camera: Camera, width: int, height: int, *, pixel_center: float = 0.5) -> Calibration:
    """K, R, t of a Camera; the inverse of ``from_opencv``.

    width, height: pixels of the picture. pixel_center: see ``from_opencv``; 0.5 gives OpenCV's
    pixels, 0 COLMAP's. Near and far: ``depth_range``. Raises GraphError for an orthographic camera,
    a view that is no rigid motion and a size below 1x1.
    """
    where = f"to_opencv of '{camera.name}'"
    if width < 1 or height < 1:
        raise GraphError(f"{where}: the size must be at least 1x1, got {width}x{height}")
    p = camera.projection
    if p[3, 3] != 0.0 or p[3, 2] >= 0.0 or p[3, :2].any():
        raise GraphError(f"{where}: not a pinhole camera, last row of the projection {p[3]}")
    p = p / -p[3, 2]
    if p[0, 3] or p[1, 3] or p[1, 0] or not (p[0, 0] > 0.0 and p[1, 1] < 0.0):
        raise GraphError(f"{where}: no K gives the projection {p.tolist()}")
    r, t = rigid(camera.view, where)
    w, h = 0.5 * width, 0.5 * height
    cx, cy = w * (1.0 - p[0, 2]) - pixel_center, h * (1.0 - p[1, 2]) - pixel_center
    k = np.array([[w * p[0, 0], -w * p[0, 1], cx], [0.0, -h * p[1, 1], cy], [0.0, 0.0, 1.0]])
    return Calibration(
        camera.name, k, FLIP_YZ @ r, FLIP_YZ @ t, width, height, pixel_center=pixel_center
    )


_GL_TO_VULKAN = np.array([[1.0, 0, 0, 0], [0, -1.0, 0, 0], [0, 0, 0.5, 0.5], [0, 0, 0, 1.0]])


def from_opengl(view: npt.ArrayLike, projection: npt.ArrayLike, name: str = "opengl") -> Camera:
    """Camera of OpenGL's matrices: clip space with y up and z in [-w, w]; column vectors.

    view, projection: (4, 4), row-major as NumPy prints mathematics (transpose what is kept column
    by column). Perspective and orthographic. Raises GraphError for wrong shapes and NaN.
    """
    p = np.asarray(projection, np.float64)
    if p.shape != (4, 4):
        raise GraphError(f"projection of '{name}' must be (4, 4), not {p.shape}")
    return Camera(np.asarray(view, np.float64), _GL_TO_VULKAN @ p, name)


def to_opengl(camera: Camera) -> tuple[Matrix, Matrix]:
    """(view, projection), (4, 4) each, for OpenGL; the inverse of ``from_opengl``."""
    return camera.view.copy(), np.linalg.inv(_GL_TO_VULKAN) @ camera.projection


def from_blender(
    matrix_world: npt.ArrayLike,
    projection: npt.ArrayLike,
    *,
    z_up: bool = False,
    name: str = "blender",
) -> Camera:
    """Camera of a Blender or NeRF pose: camera to world, looking down -Z, y up.

    matrix_world: (4, 4); a scaled camera object is refused. projection: (4, 4), e.g. from
    ``perspective``. z_up: True turns the world, +Z up in Blender, to +Y up, as glTF exporters do
    to the meshes; False keeps the world. Raises GraphError.
    """
    view = _inverse(matrix_world, f"from_blender of '{name}'")
    if z_up:
        view = view @ Z_UP_TO_Y_UP.T
    return Camera(view, np.asarray(projection, np.float64), name)


def to_blender(camera: Camera, *, z_up: bool = False) -> Matrix:
    """(4, 4) camera to world for Blender; the inverse of ``from_blender``. Raises GraphError."""
    pose = _inverse(camera.view, f"to_blender of '{camera.name}'")
    return Z_UP_TO_Y_UP.T @ pose if z_up else pose
