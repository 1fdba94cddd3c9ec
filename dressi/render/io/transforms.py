"""Blender's, NeRF's and instant-ngp's ``transforms.json``.

In: the JSON file. Out: ``Calibration`` of each frame, and back. Poses are camera to world, looking
down -Z with y up; the corner of the picture is (0, 0). Intrinsics and the lens may stand at the top
(for all frames) or in a frame: ``fl_x fl_y cx cy w h k1 k2 k3 p1 p2``, or ``camera_angle_x``
(radians, over the picture's width) as Blender's exporters write it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from dressi.errors import GraphError
from dressi.render.camera.convert import FLIP_YZ, Z_UP_TO_Y_UP, Calibration, rigid
from dressi.render.camera.distortion import Distortion
from dressi.render.io.images import PathLike, atomic_write
from dressi.render.io.sources import blamed_on, fail, find_beside, not_there, read_text

CAMERA_MODELS = ("PINHOLE", "SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV")
_LENS = ("k1", "k2", "p1", "p2", "k3")


def _number(file: str, where: str, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise fail(file, f"{where}.{key}" if where else key, f"a number is needed, got {value!r}")
    return float(value)


def _size(
    file: str, where: str, given: Mapping[str, Any], folder: Path, size: tuple[int, int] | None
) -> tuple[int, int]:
    name = given["file_path"]
    if "w" in given and "h" in given:
        w, h = (_number(file, where, key, given[key]) for key in ("w", "h"))
        if w < 1 or h < 1 or w != int(w) or h != int(h):
            raise fail(file, where, f"w and h must be whole pixels, got {w}, {h}")
        return int(w), int(h)
    if size is not None:
        return size
    for path in (find_beside(folder, name), find_beside(folder, name + ".png")):
        if path is not None:
            try:
                with Image.open(path) as picture:
                    return picture.width, picture.height
            except OSError as error:
                raise fail(file, where, f"{path} is no picture: {error}") from error
    missing = not_there(folder, name)
    problem = f"no w and h, and the image to take them from {missing}; give size=(w, h)"
    raise fail(file, where, problem)


def read_transforms(
    path: PathLike, *, size: tuple[int, int] | None = None, z_up: bool = False
) -> list[Calibration]:
    """One ``Calibration`` for each frame, in the file's order, named by its file_path.

    size: (width, height) where the file gives none and the images are not beside it. z_up: the
    file's world is Blender's (+Z up): it is turned to +Y up; False keeps the file's world. Raises
    LoadError naming the file and the key: no JSON, no frames, matrices that are no rigid motion
    (a fourth row may be missing), camera models other than CAMERA_MODELS, a k4 (tools disagree
    what it multiplies), no focal length.
    """
    file = os.fspath(path)
    try:
        top = json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise fail(file, f"line {line}", f"no JSON: {error}") from error
    if not isinstance(top, dict) or not isinstance(top.get("frames"), list):
        raise fail(file, "frames", "an object with a list of frames is expected")
    shared = {key: value for key, value in top.items() if key != "frames"}
    found = []
    for i, frame in enumerate(top["frames"]):
        where = f"frames[{i}]"
        if not isinstance(frame, dict):
            raise fail(file, where, f"an object is expected, got {type(frame).__name__}")
        found.append(_calibration(file, where, {**shared, **frame}, Path(path).parent, size, z_up))
    if not found:
        raise fail(file, "frames", "there are no frames")
    return found


def _calibration(
    file: str,
    where: str,
    given: Mapping[str, Any],
    folder: Path,
    size: tuple[int, int] | None,
    z_up: bool,
) -> Calibration:
    name = given.get("file_path", where)
    if not isinstance(name, str):
        raise fail(file, f"{where}.file_path", f"a name is expected, got {name!r}")
    model = given.get("camera_model", "OPENCV")
    if model not in CAMERA_MODELS:
        known = f"those that are: {CAMERA_MODELS}"
        raise fail(file, where, f"camera_model {model!r} is not supported; {known}")
    if given.get("is_fisheye"):
        raise fail(file, where, "is_fisheye: fisheye lenses are not supported")
    if given.get("k4"):
        raise fail(file, where, "k4 is not supported: tools disagree about what it multiplies")
    width, height = _size(file, where, {**given, "file_path": name}, folder, size)

    def number(key: str, default: float | None = None) -> float:
        value = given.get(key, default)
        if value is None:
            raise fail(file, where, f"{key} is missing")
        return _number(file, where, key, value)

    def focal(key: str, angle: str, pixels: int) -> float | None:
        if key in given:
            return number(key)
        if angle not in given:
            return None
        value = number(angle)
        if not 0.0 < value < math.pi:
            raise fail(file, where, f"{angle} must be in (0, pi) radians, got {value}")
        return 0.5 * pixels / math.tan(0.5 * value)

    fx, fy = focal("fl_x", "camera_angle_x", width), focal("fl_y", "camera_angle_y", height)
    fx, fy = (fy if fx is None else fx), (fx if fy is None else fy)  # square pixels
    if fx is None or fy is None or fx <= 0.0 or fy <= 0.0:
        raise fail(file, where, "needs fl_x or camera_angle_x, above 0")
    cx, cy = number("cx", 0.5 * width), number("cy", 0.5 * height)
    k = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1.0]])
    with blamed_on(file, where):
        lens = Distortion(*(number(key, 0.0) for key in _LENS))
    pose = _pose(file, f"{where}.transform_matrix", given.get("transform_matrix"))
    if z_up:
        pose = Z_UP_TO_Y_UP @ pose
    r = FLIP_YZ @ pose[:3, :3].T
    return Calibration(name, k, r, -r @ pose[:3, 3], width, height, lens, pixel_center=0.0)


def _pose(file: str, where: str, value: Any) -> np.ndarray:
    try:
        pose = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise fail(file, where, "4 rows of 4 numbers are expected") from None
    if pose.shape == (3, 4):
        pose = np.concatenate([pose, [[0.0, 0.0, 0.0, 1.0]]])
    with blamed_on(file, where):
        rigid(pose, "pose")
    return pose


def write_transforms(
    path: PathLike, calibrations: Sequence[Calibration], *, z_up: bool = False
) -> None:
    """Write a ``transforms.json``; intrinsics stand at the top where all frames share them.

    z_up: turn the world, +Y up, to Blender's +Z up. Atomic. Raises GraphError for no frames, skew
    and k4 to k6, which the format has not; OSError.
    """
    if not calibrations:
        raise GraphError("write_transforms: there are no frames")
    frames: list[dict[str, Any]] = []
    for made in calibrations:
        d = made.distortion
        if made.K[0, 1] != 0.0 or any((d.k4, d.k5, d.k6)):
            problem = "has skew or k4 to k6; transforms.json has not"
            raise GraphError(f"write_transforms: '{made.name}' {problem}")
        pose = np.eye(4)
        pose[:3, :3] = (FLIP_YZ @ made.R).T
        pose[:3, 3] = -made.R.T @ made.t
        if z_up:
            pose = Z_UP_TO_Y_UP.T @ pose
        k = made.K
        frames.append(
            {
                "w": int(made.width),
                "h": int(made.height),
                "fl_x": float(k[0, 0]),
                "fl_y": float(k[1, 1]),
                "cx": float(k[0, 2] + made.pixel_center),
                "cy": float(k[1, 2] + made.pixel_center),
                "camera_angle_x": 2.0 * math.atan(0.5 * made.width / float(k[0, 0])),
                **{key: float(getattr(d, key)) for key in _LENS},
                "file_path": made.name,
                "transform_matrix": pose.tolist(),
            }
        )
    own = ("file_path", "transform_matrix")
    shared = {k: v for k, v in frames[0].items() if k not in own}
    if all(frame[k] == v for frame in frames for k, v in shared.items()):
        frames = [{k: frame[k] for k in own} for frame in frames]
    else:
        shared = {}
    text = json.dumps({"camera_model": "OPENCV", **shared, "frames": frames}, indent=2)
    atomic_write(path, (text + "\n").encode())
