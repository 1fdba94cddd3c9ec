"""A COLMAP model in memory: cameras, images and points, as its files hold them.

In: what files say, or calibrations. Out: ``ColmapModel``, checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.spatial.transform import Rotation

from dressi.errors import GraphError
from dressi.render.camera import Calibration, Distortion
from dressi.render.io.sources import blamed_on, fail

Matrix = npt.NDArray[np.float64]

MODELS: dict[str, tuple[int, int]] = {  # name -> (id, number of parameters)
    "SIMPLE_PINHOLE": (0, 3),
    "PINHOLE": (1, 4),
    "SIMPLE_RADIAL": (2, 4),
    "RADIAL": (3, 5),
    "OPENCV": (4, 8),
    "FULL_OPENCV": (6, 12),
}
OTHER_MODELS = {  # known to COLMAP, not to Dressi: named in errors
    5: "OPENCV_FISHEYE",
    7: "FOV",
    8: "SIMPLE_RADIAL_FISHEYE",
    9: "RADIAL_FISHEYE",
    10: "THIN_PRISM_FISHEYE",
    11: "RAD_TAN_THIN_PRISM_FISHEYE",
}
NO_POINT = 2**64 - 1
"""Point id of a key point that belongs to no 3D point, as unsigned; -1 in text."""


@dataclass(frozen=True)
class ColmapCamera:
    """One camera. model: a key of ``MODELS``. params: as COLMAP orders them, pixels; the corner of
    the picture is (0, 0)."""

    id: int
    model: str
    width: int
    height: int
    params: tuple[float, ...]

    @property
    def K(self) -> Matrix:
        """(3, 3) intrinsics, pixels."""
        p = self.params
        if self.model in ("SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL"):
            fx, fy, cx, cy = p[0], p[0], p[1], p[2]
        else:
            fx, fy, cx, cy = p[:4]
        return np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])

    @property
    def coefficients(self) -> tuple[float, ...]:
        """Distortion in OpenCV's order, as many as the model has."""
        if self.model in ("SIMPLE_RADIAL", "RADIAL"):
            return self.params[3:]
        return self.params[4:] if self.model in ("OPENCV", "FULL_OPENCV") else ()


@dataclass(frozen=True, eq=False)
class ColmapImage:
    """One image. qvec: (w, x, y, z), tvec: (3,): x_cam = R(q) x_world + t, OpenCV's axes. xys: (N,
    2) key points, pixels. point_ids: (N,) int64, the 3D point of each, -1 none."""

    id: int
    name: str
    camera_id: int
    qvec: Matrix
    tvec: Matrix
    xys: Matrix = field(default_factory=lambda: np.zeros((0, 2)))
    point_ids: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def R(self) -> Matrix:
        """(3, 3) world to camera."""
        w, x, y, z = self.qvec
        return np.asarray(Rotation.from_quat([x, y, z, w]).as_matrix())


@dataclass(frozen=True, eq=False)
class ColmapPoints:
    """The sparse points. ids: (N,) int64. xyz: (N, 3) world units. rgb: (N, 3) uint8, sRGB. errors:
    (N,) pixels. tracks: of each point, (M, 2) int64 rows (image id, index of its key point)."""

    ids: npt.NDArray[np.int64]
    xyz: Matrix
    rgb: npt.NDArray[np.uint8]
    errors: Matrix
    tracks: tuple[npt.NDArray[np.int64], ...]


def no_points() -> ColmapPoints:
    """A model's points where it has none: arrays of length 0."""
    rgb = np.zeros((0, 3), np.uint8)
    return ColmapPoints(np.zeros(0, np.int64), np.zeros((0, 3)), rgb, np.zeros(0), ())


@dataclass(frozen=True, eq=False)
class ColmapModel:
    """Cameras and images by id, and points."""

    cameras: dict[int, ColmapCamera]
    images: dict[int, ColmapImage]
    points: ColmapPoints = field(default_factory=no_points)

    def calibrations(self) -> list[Calibration]:
        """One ``Calibration`` for each image, by name; its ``camera(near, far)`` renders it."""
        found = []
        for image in sorted(self.images.values(), key=lambda i: i.name):
            camera = self.cameras[image.camera_id]
            size, lens = (camera.width, camera.height), Distortion(*camera.coefficients)
            pose = image.R, image.tvec
            found.append(Calibration(image.name, camera.K, *pose, *size, lens, pixel_center=0.0))
        return found


def camera_of(made: Calibration, camera_id: int) -> ColmapCamera:
    """The ColmapCamera of a Calibration, of the smallest model that holds it.

    Raises GraphError for skew, which COLMAP has not.
    """
    fx, fy, cx, cy = made.K[0, 0], made.K[1, 1], made.K[0, 2], made.K[1, 2]
    if made.K[0, 1] != 0.0:
        raise GraphError(f"'{made.name}' has a skew of {made.K[0, 1]:.6g} pixels; COLMAP has none")
    d = made.distortion
    base = [fx, fy, cx + made.pixel_center, cy + made.pixel_center]
    if d.is_none:
        model, params = "PINHOLE", base
    elif not any((d.k3, d.k4, d.k5, d.k6)):
        model, params = "OPENCV", [*base, d.k1, d.k2, d.p1, d.p2]
    else:
        model, params = "FULL_OPENCV", [*base, *d.coefficients]
    return ColmapCamera(camera_id, model, made.width, made.height, tuple(map(float, params)))


def colmap_model(calibrations: Iterable[Calibration]) -> ColmapModel:
    """A model without points of calibrated photos: camera and image i for photo i, from 1 on."""
    cameras, images = {}, {}
    for i, made in enumerate(calibrations, 1):
        cameras[i] = camera_of(made, i)
        x, y, z, w = Rotation.from_matrix(made.R).as_quat()
        t = np.asarray(made.t, np.float64)
        images[i] = ColmapImage(i, made.name, i, np.array([w, x, y, z]), t)
    return ColmapModel(cameras, images)


def checked_camera(
    file: str, where: str, id: int, model: str, size: Sequence[int], params: Sequence[float]
) -> ColmapCamera:
    """A camera read from a file. Raises LoadError for what cannot be one."""
    if model not in MODELS:
        known = list(MODELS)
        raise fail(file, where, f"camera model {model} is not supported; those that are: {known}")
    (width, height), wanted = size, MODELS[model][1]
    if len(params) != wanted:
        raise fail(file, where, f"{model} has {wanted} parameters, got {len(params)}")
    if width < 1 or height < 1:
        raise fail(file, where, f"the picture's size is {width}x{height}")
    camera = ColmapCamera(id, model, width, height, tuple(params))
    if not np.isfinite(params).all() or camera.K[0, 0] <= 0.0 or camera.K[1, 1] <= 0.0:
        raise fail(file, where, f"focal lengths must be > 0 and numbers finite, got {list(params)}")
    with blamed_on(file, where):
        Distortion(*camera.coefficients)
    return camera


def checked_pose(file: str, where: str, values: list[float]) -> tuple[Matrix, Matrix]:
    """(qvec, tvec) read from a file; qvec of length 1. Raises LoadError."""
    q, t = np.array(values[:4], np.float64), np.array(values[4:7], np.float64)
    if not np.isfinite(values).all() or np.linalg.norm(q) < 1e-6:
        raise fail(file, where, f"no pose: quaternion {q.tolist()}, translation {t.tolist()}")
    return q / np.linalg.norm(q), t
