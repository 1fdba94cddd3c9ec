"""What a fit needs of calibrated photos: masks, the box around the object, matrices.

In: photos and their calibration. Out: ``Prepared``. Photos that are kept out of a fit have no part
in the masks of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dressi.apps.demo import EXTENT
from dressi.apps.grabcut import grabcut_masks
from dressi.apps.photo_masks import alone_in, box_of, estimate_box, found_masks, given_masks
from dressi.errors import GraphError, LoadError
from dressi.render.camera import from_opencv
from dressi.render.io.middlebury import Photo, read_bounding_box


@dataclass(frozen=True, eq=False)
class Prepared:
    """masks: (n, H, W, 1). doubted: (n, H, W, 1) bool, pixels of masks that the photo alone would
    call background. images: (n, H, W, 3), times masks. box: (2, 3) around the object, in the units
    of the cameras. matrices: (n, 4, 4) to clip space for positions that are centred and scaled to
    EXTENT. found: whether masks are what the photos show, and may be wrong."""

    masks: np.ndarray
    doubted: np.ndarray
    images: np.ndarray
    box: npt.NDArray[np.float64]
    matrices: np.ndarray
    found: bool


def prepare(
    photos: list[Photo],
    cameras: str,
    masks_dir: str | None = None,
    threshold: float | None = None,
    kept: Sequence[int] = (),
    segment: str = "places",
) -> Prepared:
    """Return what a fit needs of photos. The box comes from the README.txt beside the camera file,
    or is estimated.

    masks_dir: of masks, see ``given_masks``; None: alpha, or what the photos show. threshold: of
    ``object_masks``. kept: numbers of photos that the fit does not see: theirs are the masks that
    all photos together say, those of the others are found without them. segment: grabcut: masks
    that were found are cut anew by ``grabcut_masks``. Raises GraphError where sizes differ or an
    object is not found, LoadError where the calibration is none or a mask is missing, DressiError
    where an extra is.
    """
    shapes = {p.image.shape for p in photos}
    if len(shapes) > 1:
        raise GraphError(f"the photos must have one size, got {sorted(shapes)}")
    for photo in photos:
        _check_calibration(photo, cameras)
    fitted = [i for i in range(len(photos)) if i not in set(kept)]
    box = read_bounding_box(Path(cameras).parent / "README.txt")
    masks = given_masks(photos, masks_dir)
    found = masks is None
    if masks is None:
        masks, doubted = _found(photos, fitted, box, threshold)
        if segment == "grabcut":
            cut = grabcut_masks([p.image for p in photos], masks, [p.name for p in photos])
            # What only other photos know, no colour of this one tells.
            masks = np.maximum(cut, doubted.astype(np.float32))
    else:
        doubted = np.zeros(masks.shape, bool)
    if box is None:
        box = estimate_box([photos[i] for i in fitted], masks[fitted])
    images = np.stack([p.image for p in photos]) * masks
    matrices = np.stack([matrix_of(p, box) for p in photos])
    return Prepared(masks, doubted, images, box, matrices, found)


def _found(
    photos: list[Photo],
    fitted: list[int],
    box: npt.NDArray[np.float64] | None,
    threshold: float | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return masks and doubted pixels of all photos; those of the fitted ones know nothing of the
    others. What each photo says alone is found once."""
    some = [photos[i] for i in fitted]
    around = box_of(some, threshold) if box is None else box
    known = alone_in(photos, around, threshold)
    whole = len(some) == len(photos)
    masks, doubted = found_masks(some, around, [known[i] for i in fitted], whole)
    if whole:
        return masks, doubted
    all_masks, all_doubted = found_masks(photos, around, known)
    all_masks[fitted], all_doubted[fitted] = masks, doubted
    return all_masks, all_doubted


def _check_calibration(photo: Photo, cameras: str) -> None:
    """LoadError naming file and photo when K, R, t are no camera."""
    height, width = photo.image.shape[:2]
    try:
        from_opencv(photo.K, photo.R, photo.t, width, height, 1.0, 2.0, name=photo.name)
    except GraphError as error:
        raise LoadError(f"{cameras}: {error.reason}", cameras, photo.name) from None


def scale_of(box: npt.NDArray[np.float64]) -> float:
    """Return the scale from the units of the cameras to those of a fit."""
    return EXTENT / float((box[1] - box[0]).max())


def matrix_of(photo: Photo, box: npt.NDArray[np.float64]) -> np.ndarray:
    """Return the world-to-clip matrix of a photo for positions that are centred and scaled to
    EXTENT."""
    height, width = photo.image.shape[:2]
    centre = box.mean(0)
    depth = float((photo.R @ centre + photo.t)[2])
    radius = float(np.linalg.norm(box[1] - box[0]))
    camera = from_opencv(
        photo.K, photo.R, photo.t, width, height, max(depth - radius, depth * 0.05), depth + radius
    )
    place = np.eye(4)
    place[:3, :3] /= scale_of(box)
    place[:3, 3] = centre
    return camera.matrix @ place
