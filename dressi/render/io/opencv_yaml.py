"""OpenCV's calibration files: the YAML that ``cv::FileStorage`` writes.

In: a file with ``camera_matrix``, ``distortion_coefficients``, ``image_width``, ``image_height``
and ``extrinsic_parameters``, as OpenCV's calibration sample names them, and the names of photos.
Out: ``Calibration`` of each photo. Read are plain values, lists and ``!!opencv-matrix``: what the
format's writer makes, not all of YAML.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial.transform import Rotation

from dressi.render.camera.convert import Calibration
from dressi.render.camera.distortion import Distortion
from dressi.render.io.sources import PathLike, blamed_on, fail, read_text

_ENTRY = re.compile(r"^( *)([A-Za-z_][\w. -]*?):(?: +(.*))?$")
_LENS_SIZES = (4, 5, 8, 12, 14)
"""Numbers of coefficients that OpenCV's lens models have; what is beyond 8 must be 0 here."""


def read_opencv(path: PathLike, names: Sequence[str]) -> list[Calibration]:
    """Return a ``Calibration`` per photo from an OpenCV YAML file.

    names: of the photos, in the order of the file's ``extrinsic_parameters`` (n rows of a rotation
    vector and a translation, world to camera); a list ``images`` in the file goes before them.
    Raises LoadError naming the file and the key: no such file, a key that is missing or of another
    shape, other numbers of photos than of poses, a lens of a model that is not read (fisheye, thin
    prism, tilted).
    """
    file = os.fspath(path)
    found = parse_opencv(file, read_text(path))
    k = _matrix(file, found, "camera_matrix", (3, 3))
    lens = _lens(file, found)
    width, height = (_whole(file, found, key) for key in ("image_width", "image_height"))
    poses = _matrix(file, found, "extrinsic_parameters", (None, 6))
    listed = found.get("images", list(names))
    if not isinstance(listed, list) or not all(isinstance(n, str) for n in listed):
        raise fail(file, "images", "a list of names is expected")
    if len(listed) != len(poses):
        raise fail(
            file,
            "extrinsic_parameters",
            f"{len(poses)} poses and {len(listed)} photos; name those that have poses in a list "
            "'images'",
        )
    with blamed_on(file, "extrinsic_parameters"):
        turns = Rotation.from_rotvec(poses[:, :3]).as_matrix()
        return [
            Calibration(name, k, r, pose[3:], width, height, lens)
            for name, r, pose in zip(listed, turns, poses, strict=True)
        ]


def _lens(file: str, found: dict[str, Any]) -> Distortion:
    if "fisheye_model" in found and found["fisheye_model"] not in (0, "0"):
        raise fail(file, "fisheye_model", "fisheye lenses are not supported")
    if "distortion_coefficients" not in found:
        return Distortion()
    values = np.asarray(found["distortion_coefficients"], np.float64).ravel()
    if len(values) not in _LENS_SIZES:
        known = ", ".join(map(str, _LENS_SIZES))
        raise fail(file, "distortion_coefficients", f"{len(values)} numbers, needed are {known}")
    if values[8:].any():
        problem = "thin prism and tilted lenses (numbers 9 to 14) are not supported"
        raise fail(file, "distortion_coefficients", problem)
    with blamed_on(file, "distortion_coefficients"):
        return Distortion(*values[:8].tolist())


def _matrix(
    file: str, found: dict[str, Any], key: str, shape: tuple[int | None, int]
) -> npt.NDArray[np.float64]:
    value = found.get(key)
    if value is None:
        raise fail(file, key, "is missing")
    rows, columns = shape
    fits = isinstance(value, np.ndarray) and value.shape[1:] == (columns,)
    if not fits or (rows is not None and len(value) != rows) or not np.isfinite(value).all():
        got = value.shape if isinstance(value, np.ndarray) else repr(value)[:60]
        wanted = "n" if rows is None else rows
        raise fail(file, key, f"a finite matrix of {wanted} x {columns} is expected, got {got}")
    return np.asarray(value, np.float64)


def _whole(file: str, found: dict[str, Any], key: str) -> int:
    value = found.get(key)
    if not isinstance(value, float) or value < 1 or value != int(value):
        raise fail(file, key, f"whole pixels are expected, got {value!r}")
    return int(value)


def parse_opencv(file: str, text: str) -> dict[str, Any]:
    """Return the top of a file: float, str, list, or arrays of matrices, by key.

    Raises LoadError naming the line of what this part of YAML does not have.
    """
    found: dict[str, Any] = {}
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        line, number = lines[at].rstrip(), at + 1
        at += 1
        if not line.strip() or line.lstrip().startswith("#") or line.startswith(("%YAML", "---")):
            continue
        entry = _ENTRY.match(line)
        if line == "...":
            break
        if entry is None or entry[1]:
            raise fail(file, f"line {number}", f"'key: value' is expected, got {line.strip()!r}")
        inner = []
        while at < len(lines) and (not lines[at].strip() or lines[at].startswith((" ", "-"))):
            if lines[at].startswith("---"):
                break
            inner.append(lines[at])
            at += 1
        found[entry[2]] = _value(file, number, entry[3] or "", inner)
    return found


def _value(file: str, number: int, first: str, inner: list[str]) -> Any:
    if first.startswith("!!opencv-matrix"):
        return _opencv_matrix(file, number, inner)
    text = " ".join([first, *inner]).strip()
    if text.startswith("["):
        return _list(file, number, text)
    if not first and all(line.strip().startswith("- ") for line in inner if line.strip()):
        return [_scalar(line.strip()[2:]) for line in inner if line.strip()]
    return _scalar(text)


def _opencv_matrix(file: str, number: int, inner: list[str]) -> npt.NDArray[np.float64]:
    text = " ".join(line.strip() for line in inner)
    sizes = {key: re.search(rf"\b{key}: *(\d+)", text) for key in ("rows", "cols")}
    data = re.search(r"\bdata: *(\[.*\])", text)
    if data is None or None in sizes.values():
        raise fail(file, f"line {number}", "a matrix needs rows, cols and data")
    rows, columns = (int(m[1]) for m in sizes.values() if m is not None)
    kind = re.search(r'\bdt: *"?(\d+)', text)  # of several channels, as points of a picture
    shape = (rows, columns) if kind is None else (rows, columns, int(kind[1]))
    values = _list(file, number, data[1])
    if len(values) != np.prod(shape) or not all(isinstance(v, float) for v in values):
        problem = f"{len(values)} values cannot be numbers of {' x '.join(map(str, shape))}"
        raise fail(file, f"line {number}", problem)
    return np.array(values, np.float64).reshape(shape)


def _list(file: str, number: int, text: str) -> list[Any]:
    if not text.endswith("]"):
        raise fail(file, f"line {number}", "a list without an end")
    return [_scalar(word) for word in text[1:-1].split(",") if word.strip()]


def _scalar(text: str) -> float | str:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    try:
        return float(text.replace(".Nan", "nan").replace(".Inf", "inf"))
    except ValueError:
        return text
