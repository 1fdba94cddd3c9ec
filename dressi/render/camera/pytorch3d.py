"""Cameras to and from PyTorch3D: PerspectiveCameras and FoVPerspectiveCameras.

In: R, T and intrinsics as NumPy arrays of one camera. Out: ``Camera``, and back. PyTorch3D's
conventions (its notes on cameras): row vectors, x_cam = x_world R + T; the camera has +X to the
LEFT, +Y up and looks down +Z. NDC: +X left, +Y up, the shorter side of the picture spans [-1, 1]
and the longer one [-s, s] with s = longer / shorter. Screen: pixels, x right, y down, the corner of
the picture is (0, 0).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dressi.errors import GraphError
from dressi.render.camera.camera import Camera, from_opencv
from dressi.render.camera.convert import depth_range, to_opencv

Matrix = npt.NDArray[np.float64]

_TURN = np.diag([-1.0, -1.0, 1.0])
"""PyTorch3D's camera axes (left, up, forward) to OpenCV's (right, down, forward), and back."""


@dataclass(frozen=True, eq=False)
class PyTorch3DCamera:
    """Arguments of PyTorch3D's ``PerspectiveCameras``, one camera.

    R: (3, 3), T: (3,): x_cam = x_world @ R + T. focal_length, principal_point: (2,) each, NDC units
    where in_ndc, else pixels. width, height: pixels (PyTorch3D wants ``image_size=((height,
    width),)``).
    """

    R: Matrix
    T: Matrix
    focal_length: Matrix
    principal_point: Matrix
    in_ndc: bool
    width: int
    height: int


def _numbers(value: npt.ArrayLike, shape: tuple[int, ...], what: str) -> Matrix:
    array = np.asarray(value, np.float64)
    if array.size == np.prod(shape):  # a batch of one
        array = array.reshape(shape)
    if array.shape != shape or not np.isfinite(array).all():
        raise GraphError(f"PyTorch3D camera: {what} must be {shape} and finite, got {array}")
    return array


def _side(width: int, height: int) -> float:
    if width < 1 or height < 1:
        raise GraphError(f"PyTorch3D camera: size must be at least 1x1, got {width}x{height}")
    return 0.5 * min(width, height)


def from_pytorch3d(
    R: npt.ArrayLike,
    T: npt.ArrayLike,
    focal_length: npt.ArrayLike,
    principal_point: npt.ArrayLike,
    width: int,
    height: int,
    near: float,
    far: float,
    *,
    in_ndc: bool = True,
    name: str = "pytorch3d",
) -> Camera:
    """Camera of PyTorch3D's ``PerspectiveCameras(focal_length, principal_point, R, T, in_ndc)``.

    R: (3, 3) or (1, 3, 3). T: (3,) or (1, 3). focal_length: one number, or (2,). principal_point:
    (2,). Units: NDC where in_ndc, else pixels. width, height: pixels. near, far: world units.
    Raises GraphError for wrong shapes, NaN, focal lengths <= 0, R no rotation, sizes and ranges.
    """
    half = _side(width, height)
    focal = np.asarray(focal_length, np.float64).reshape(-1)
    focal = _numbers(np.repeat(focal, 2) if focal.size == 1 else focal, (2,), "focal_length")
    center = _numbers(principal_point, (2,), "principal_point")
    if in_ndc:
        focal = focal * half
        center = 0.5 * np.array([width, height]) - half * center
    k = np.array([[focal[0], 0, center[0]], [0, focal[1], center[1]], [0, 0, 1.0]])
    r, t = _numbers(R, (3, 3), "R"), _numbers(T, (3,), "T")
    return from_opencv(
        k, _TURN @ r.T, _TURN @ t, width, height, near, far, pixel_center=0.0, name=name
    )


def to_pytorch3d(
    camera: Camera, width: int, height: int, *, in_ndc: bool = True
) -> PyTorch3DCamera:
    """Arguments of ``PerspectiveCameras``; the inverse of ``from_pytorch3d``.

    Raises GraphError for orthographic cameras and for skew, which PyTorch3D has not.
    """
    half = _side(width, height)
    made = to_opencv(camera, width, height, pixel_center=0.0)
    if abs(made.K[0, 1]) > 1e-9 * made.K[0, 0]:
        raise GraphError(
            f"to_pytorch3d: '{camera.name}' has a skew of {made.K[0, 1]:.6g} pixels, PyTorch3D none"
        )
    focal, center = np.diag(made.K)[:2].copy(), made.K[:2, 2].copy()
    if in_ndc:
        focal, center = focal / half, (0.5 * np.array([width, height]) - center) / half
    return PyTorch3DCamera((_TURN @ made.R).T, _TURN @ made.t, focal, center, in_ndc, width, height)


def from_pytorch3d_fov(
    R: npt.ArrayLike,
    T: npt.ArrayLike,
    fov_deg: float,
    width: int,
    height: int,
    *,
    znear: float = 1.0,
    zfar: float = 100.0,
    aspect_ratio: float = 1.0,
    name: str = "pytorch3d",
) -> Camera:
    """Camera of PyTorch3D's ``FoVPerspectiveCameras(znear, zfar, aspect_ratio, fov, R, T)``.

    fov_deg: degrees, in (0, 180): the opening of the picture's shorter side (of its height where it
    is wide). aspect_ratio: of a pixel, as there. Raises GraphError.
    """
    if not 0.0 < fov_deg < 180.0:
        raise GraphError(f"from_pytorch3d_fov needs 0 < fov_deg < 180, got {fov_deg}")
    if not (np.isfinite(aspect_ratio) and aspect_ratio > 0.0):
        raise GraphError(f"from_pytorch3d_fov needs aspect_ratio > 0, got {aspect_ratio}")
    focal = 1.0 / np.tan(0.5 * np.radians(fov_deg))
    return from_pytorch3d(
        R, T, (focal / aspect_ratio, focal), (0.0, 0.0), width, height, znear, zfar, name=name
    )


def to_pytorch3d_fov(camera: Camera, width: int, height: int) -> dict[str, object]:
    """Keyword arguments of ``FoVPerspectiveCameras``: R, T, fov (degrees), znear, zfar,
    aspect_ratio.

    Raises GraphError where the principal point is not the middle of the picture: this class has
    none; use ``to_pytorch3d``.
    """
    made = to_pytorch3d(camera, width, height)
    if np.abs(made.principal_point).max() > 1e-6:
        raise GraphError(
            f"to_pytorch3d_fov: the principal point of '{camera.name}' is off centre by "
            f"{made.principal_point.tolist()} NDC; use to_pytorch3d"
        )
    near, far = depth_range(camera)
    return {
        "R": made.R,
        "T": made.T,
        "fov": float(np.degrees(2.0 * np.arctan(1.0 / made.focal_length[1]))),
        "znear": near,
        "zfar": far,
        "aspect_ratio": float(made.focal_length[1] / made.focal_length[0]),
    }
