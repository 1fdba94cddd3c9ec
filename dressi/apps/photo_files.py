"""Calibrated photos from the files that reconstruction tools write.

In: a folder of photos, and what says where they were taken: a Middlebury ``*_par.txt``, a COLMAP
model (a folder with cameras and images, text or binary), a ``transforms.json`` or OpenCV's YAML.
Out: ``Photo`` of an ideal camera each: where the lens distorts, the photo is undistorted.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from dressi.errors import LoadError
from dressi.render.camera import Calibration, undistort_image
from dressi.render.io import read_colmap, read_opencv, read_transforms
from dressi.render.io.images import read_image, with_colors
from dressi.render.io.middlebury import Photo, load_photos

ENDINGS = ("", ".png", ".jpg", ".jpeg", ".PNG", ".JPG", ".JPEG", ".exr", ".hdr")
"""Of a photo's file, in this order, where the calibration names it without one."""

SAME_ASPECT = 0.01
"""Relative difference of aspects that is rounding of sizes."""


def read_photos(images: str, cameras: str) -> list[Photo]:
    """Return all photos that a calibration names, in its order.

    images: folder of the photos. cameras: a folder with a COLMAP model (or with ``sparse/0`` or
    ``sparse`` in it), one of a model's files, a ``.json`` as ``read_transforms`` takes it, a
    ``.yml`` or ``.yaml`` as ``read_opencv`` does (photos by name where it names none), or else a
    Middlebury ``*_par.txt``. Raises LoadError naming the file and the photo.
    """
    path = Path(cameras)
    model = colmap_folder(path)
    if model is not None:
        return [_photo(images, c, cameras) for c in read_colmap(model).calibrations()]
    if path.suffix.lower() == ".json":
        return [_photo(images, c, cameras) for c in read_transforms(path)]
    if path.suffix.lower() in (".yml", ".yaml"):
        folder = sorted(p.name for p in Path(images).iterdir() if p.suffix in ENDINGS[1:])
        return [_photo(images, c, cameras) for c in read_opencv(path, folder)]
    if path.is_dir():
        raise LoadError(
            f"{cameras}: a folder without a COLMAP model (cameras.bin or cameras.txt), also in "
            "sparse/0 and sparse",
            cameras,
        )
    return load_photos(images, cameras)


def colmap_folder(path: Path) -> Path | None:
    """Return the folder of the COLMAP model that a path means, or None where there is none."""
    if path.is_file() and path.stem in ("cameras", "images", "points3D"):
        if path.suffix in (".txt", ".bin"):
            return path.parent
    for folder in (path, path / "sparse" / "0", path / "sparse"):
        if any((folder / f"cameras{ending}").is_file() for ending in (".bin", ".txt")):
            return folder
    return None


def _photo(images: str, made: Calibration, cameras: str) -> Photo:
    """Read the photo of a calibration, and undistort it. Raises LoadError."""
    image = with_colors(read_image(_file_of(images, made.name, cameras)))
    made = _of_size(made, image.shape[1], image.shape[0], cameras)
    image = undistorted(image, made)
    alpha = image[..., 3] if image.shape[2] == 4 and image[..., 3].min() < 1.0 else None
    # K of a photo gives pixel centres integer coordinates.
    k = made.K.copy()
    k[:2, 2] += made.pixel_center - 0.5
    lens = None if made.distortion.is_none else made
    colors = np.ascontiguousarray(image[..., :3])
    return Photo(made.name, colors, k, made.R, made.t, alpha, lens)


def _file_of(images: str, name: str, cameras: str) -> Path:
    """Return the file of a photo: by its name in the folder, or by the last part of it."""
    for place in (Path(images) / name, Path(images) / Path(name).name):
        for ending in ENDINGS:
            file = place.with_name(place.name + ending)
            if file.is_file():
                return file
    raise LoadError(f"{cameras}: the photo '{name}' is not in {images}", cameras, name)


def _of_size(made: Calibration, width: int, height: int, cameras: str) -> Calibration:
    """Return the calibration for a photo that was made smaller or larger as a whole. Raises
    LoadError where its aspect differs."""
    if (made.width, made.height) == (width, height):
        return made
    x, y = width / made.width, height / made.height
    if abs(x / y - 1.0) > SAME_ASPECT:
        raise LoadError(
            f"{cameras}: the photo '{made.name}' is {width}x{height}, its camera "
            f"{made.width}x{made.height}",
            cameras,
            made.name,
        )
    shift = np.array([[1.0, 0.0, made.pixel_center], [0.0, 1.0, made.pixel_center], [0, 0, 1.0]])
    k = np.linalg.inv(shift) @ np.diag([x, y, 1.0]) @ shift @ made.K
    return Calibration(
        made.name, k, made.R, made.t, width, height, made.distortion, made.pixel_center
    )


def undistorted(image: npt.NDArray[np.float32], made: Calibration) -> npt.NDArray[np.float32]:
    """Return a picture (H, W, C) as an ideal camera takes it. Where the lens showed nothing, the
    nearest pixel stands: black would look like an object before a bright background."""
    if made.distortion.is_none:
        return image
    found, known = undistort_image(image, made.K, made.distortion, pixel_center=made.pixel_center)
    if not known.all() and known.any():
        rows = ndimage.distance_transform_edt(~known, return_distances=False, return_indices=True)
        found = found[tuple(rows)]
    return found
