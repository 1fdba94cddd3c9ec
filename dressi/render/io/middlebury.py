"""Photo sets in the Middlebury multi-view stereo format.

In: a ``*_par.txt`` with one line ``name k11..k33 r11..r33 t1 t2 t3`` for each image, and the
images. Out: ``Photo`` with K, R, t in OpenCV's convention (K gives pixel centres integer
coordinates), which ``dressi.render.camera.camera.from_opencv`` turns into a ``Camera``.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dressi.errors import LoadError
from dressi.render.camera import Calibration
from dressi.render.io.images import PathLike, read_image, with_colors
from dressi.render.io.sources import fail, is_number, read_text

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Photo:
    """One calibrated photo: image (H, W, 3) float32 linear; pixel ~ K (R x + t), world units.
    alpha: (H, W) of a picture that has one and is not opaque everywhere. lens: the calibration that
    it was undistorted from; masks that lie beside it need the same."""

    name: str
    image: npt.NDArray[np.float32]
    K: Matrix
    R: Matrix
    t: Matrix
    alpha: npt.NDArray[np.float32] | None = None
    lens: Calibration | None = None


def read_par(path: PathLike) -> list[tuple[str, Matrix, Matrix, Matrix]]:
    """(name, K (3, 3), R (3, 3), t (3,)) of each image, in the file's order.

    A name may hold blanks, but not end in one and a number: that is a number too many.
    Raises LoadError naming the line: no count, wrong number of fields, no number, NaN, fewer or
    more images than the count says.
    """
    file = os.fspath(path)

    def broken(line: int, problem: object) -> LoadError:
        return fail(file, f"line {line}", problem)

    lines = enumerate(read_text(path).split("\n"), 1)
    numbered = [(i, line.rsplit(None, 21)) for i, line in lines if line.strip()]
    if not numbered:
        raise broken(1, "the file is empty; the number of images is expected")
    first, head = numbered[0]
    if len(head) != 1 or not head[0].isdecimal():
        raise broken(first, f"the number of images is expected, got '{' '.join(head)[:40]}'")
    cameras = []
    for line, fields in numbered[1:]:
        n_fields = len(fields[0].split()) + len(fields) - 1  # a name may hold blanks
        if len(fields) != 22 or (n_fields > 22 and is_number(fields[0].split()[-1])):
            raise broken(line, f"a name and 21 numbers are expected, got {n_fields} fields")
        try:
            values = np.array([float(field) for field in fields[1:]])
        except ValueError as error:
            raise broken(line, error) from error
        if not np.isfinite(values).all():
            raise broken(line, "a number is NaN or infinite")
        cameras.append(
            (fields[0].strip(), values[:9].reshape(3, 3), values[9:18].reshape(3, 3), values[18:])
        )
    if len(cameras) != int(head[0]):
        raise broken(first, f"{head[0]} images are announced, {len(cameras)} follow")
    return cameras


def load_photos(images_dir: PathLike, par_file: PathLike) -> list[Photo]:
    """All photos that ``par_file`` lists, read from ``images_dir``; grey becomes RGB.

    Raises LoadError naming the par file and line, or the image file that is missing or broken.
    """
    photos = []
    for name, k, rotation, translation in read_par(par_file):
        image = with_colors(read_image(Path(images_dir) / name))
        alpha = image[..., 3] if image.shape[2] == 4 and image[..., 3].min() < 1.0 else None
        colors = np.ascontiguousarray(image[..., :3])
        photos.append(Photo(name, colors, k, rotation, translation, alpha))
    return photos


def read_bounding_box(readme: PathLike) -> Matrix | None:
    """(2, 3) float64: the "(tight) bounding box" of the set's README.txt, or None if it has none.

    The two lines after the words hold the smallest and the largest corner, world units; a corner is
    three numbers in brackets. A missing file gives None.
    """
    if not Path(readme).is_file():
        return None
    text = read_text(readme)
    number = r"[\s,]*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
    corner = r"\(" + 3 * number + r"\s*\)"
    found = re.search(r"bounding box[^()]*" + corner + r"\s*" + corner, text)
    if found is None:
        return None
    corners = np.array([float(field) for field in found.groups()]).reshape(2, 3)
    return np.stack([corners.min(axis=0), corners.max(axis=0)])
