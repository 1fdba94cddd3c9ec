"""COLMAP models: cameras, images and points, text and binary.

In: a folder with ``cameras``, ``images`` and ``points3D``, as ``.bin`` or ``.txt``. Out:
``ColmapModel``, whose ``calibrations`` are what a renderer needs, and back to files. The formats
are those of COLMAP's documentation ("Output Format"); binary files are little endian. Read here,
not through pycolmap, which is a hundred times larger than these tables and stops at a broken file
without saying where.
"""

from __future__ import annotations

import os
from pathlib import Path

from dressi.errors import GraphError, LoadError
from dressi.render.io import colmap_binary, colmap_text
from dressi.render.io.colmap_data import ColmapImage, ColmapModel, no_points
from dressi.render.io.images import PathLike
from dressi.render.io.sources import fail


def read_colmap(folder: PathLike) -> ColmapModel:
    """A model from a folder with cameras, images and points3D (may be missing), .bin or .txt.

    Where both are there, .bin is read. Raises LoadError naming the file and the place in it: a file
    missing or cut short, a camera model that Dressi has not, NaN, an image without its camera,
    wrong counts.
    """
    base = Path(folder)
    for suffix, reader in ((".bin", colmap_binary), (".txt", colmap_text)):
        cameras_file, images_file = base / f"cameras{suffix}", base / f"images{suffix}"
        if not cameras_file.is_file():
            continue
        cameras = reader.read_cameras(cameras_file)
        images = reader.read_images(images_file)
        for image in images.values():
            if image.camera_id not in cameras:
                problem = f"camera {image.camera_id} is not in {cameras_file.name}"
                raise fail(os.fspath(images_file), f"image {image.id}", problem)
        points_file = base / f"points3D{suffix}"
        points = reader.read_points(points_file) if points_file.is_file() else no_points()
        return ColmapModel(cameras, images, points)
    problem = "holds neither cameras.bin nor cameras.txt; a COLMAP model has cameras, images and"
    raise LoadError(f"{os.fspath(folder)}: {problem} points3D", os.fspath(folder), "cameras")


def write_colmap(folder: PathLike, model: ColmapModel, *, binary: bool = True) -> None:
    """Write a model's three files, .bin or .txt; each is replaced atomically.

    The folder is made where it is missing. Raises OSError; GraphError where an image's camera is
    missing, or a name cannot be written.
    """
    for image in model.images.values():
        if image.camera_id not in model.cameras:
            raise GraphError(f"image {image.id} '{image.name}' has no camera {image.camera_id}")
        _check_name(image, binary)
    Path(folder).mkdir(parents=True, exist_ok=True)
    (colmap_binary if binary else colmap_text).write(Path(folder), model)


def _check_name(image: ColmapImage, binary: bool) -> None:
    """Raise GraphError for a name that would not come back from the file."""
    name, problem = image.name, ""
    if not name or "\0" in name:
        problem = "needs a name without zero bytes"
    elif not binary and (name != name.strip() or "\n" in name or "\r" in name):
        problem = "needs, in text, a name of one line that neither begins nor ends with a blank"
    try:
        name.encode()
    except UnicodeEncodeError:
        problem = "needs a name that UTF-8 can hold"
    if problem:
        raise GraphError(f"image {image.id} {problem}, got {name!r}")
