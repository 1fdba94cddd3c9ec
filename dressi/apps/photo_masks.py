"""Masks of photos: files beside them, their alpha, or what the photos show.

In: calibrated photos. Out: (n, H, W, 1) masks, and the box around the object.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dressi.apps.photo_files import undistorted
from dressi.errors import GraphError, LoadError
from dressi.render.io import object_masks, photo_mask
from dressi.render.io.images import read_image
from dressi.render.io.middlebury import Photo
from dressi.render.io.object_masks import Alone, alone

MOST_COVERED = 0.95
"""Share of a photo above which its mask is no object before a background."""
BOX_MARGIN = 1.1
"""Of an estimated box: its masks may have lost parts of the object."""


def given_masks(photos: list[Photo], masks_dir: str | None) -> np.ndarray | None:
    """Return (n, H, W, 1) masks that come with the photos, or None.

    masks_dir: a folder with a picture per photo, of its name but for the ending; its alpha, or else
    its brightest channel, is above 1/2 on the object. None: the photos' alpha, where all have one.
    Raises LoadError for a mask that is missing or of another size, GraphError for one without an
    object.
    """
    if masks_dir is None:
        if any(p.alpha is None for p in photos):
            return None
        found = [p.alpha > 0.5 for p in photos if p.alpha is not None]
    else:
        found = [_read_mask(p, masks_dir) for p in photos]
    for photo, mask in zip(photos, found, strict=True):
        if not mask.any():
            raise GraphError(f"{photo.name}: its mask has no object")
    return np.stack(found)[..., None].astype(np.float32)


def _read_mask(photo: Photo, masks_dir: str) -> npt.NDArray[np.bool_]:
    """Return the mask of a photo from a folder. Raises LoadError."""
    stem = Path(photo.name).stem
    files = sorted(f for f in Path(masks_dir).glob("*") if f.stem == stem or f.name == photo.name)
    if not files:
        raise LoadError(f"{masks_dir}: no mask for the photo {photo.name}", masks_dir, photo.name)
    image = read_image(files[0])
    if photo.lens is not None and image.shape[:2] == photo.image.shape[:2]:
        image = undistorted(image, photo.lens)
    if image.shape[:2] != photo.image.shape[:2]:
        raise LoadError(
            f"{files[0]}: the mask is {image.shape[1]}x{image.shape[0]}, the photo "
            f"{photo.image.shape[1]}x{photo.image.shape[0]}",
            str(files[0]),
        )
    has_alpha = image.shape[2] in (2, 4) and image[..., -1].min() < 1.0
    return np.asarray((image[..., -1] if has_alpha else image[..., :3].max(-1)) > 0.5)


def box_of(photos: list[Photo], threshold: float | None) -> npt.NDArray[np.float64]:
    """Return a box (2, 3) around the object in photos, from the masks that each shows alone."""
    box = estimate_box(photos, np.stack([_mask(p, threshold) for p in photos])[..., None])
    return np.asarray(box.mean(0) + (box - box.mean(0)) * BOX_MARGIN)


def alone_in(
    photos: list[Photo], box: npt.NDArray[np.float64], threshold: float | None
) -> list[Alone]:
    """Return what each photo says without the others."""
    return [alone(p.image, (p.K, p.R, p.t), box, threshold) for p in photos]


def found_masks(
    photos: list[Photo], box: npt.NDArray[np.float64], known: list[Alone], noted: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Return (n, H, W, 1) masks from what the photos show, and (n, H, W, 1) bool, their pixels that
    only the other photos call the object's. known: ``alone_in``. noted: print a note about an
    object that reaches the frame. Raises GraphError naming the photo in which there is no object to
    be found."""
    found = object_masks(
        [p.image for p in photos],
        [p.K for p in photos],
        [p.R for p in photos],
        [p.t for p in photos],
        box,
        known=known,
    )
    for photo, mask in zip(photos, found.masks, strict=True):
        _check_mask(photo, mask)
    if found.cut and noted:
        names = ", ".join(photos[k].name for k in found.cut)
        text = f"note: the object reaches the frame in {names}: what lies beyond is not seen there"
        print(text, file=sys.stderr)
    return np.stack(found.masks)[..., None], np.stack(found.doubted)[..., None]


def _mask(photo: Photo, threshold: float | None) -> np.ndarray:
    """Return the mask that one photo alone shows; GraphError naming it where there is no object to
    be found."""
    try:
        mask = photo_mask(photo.image, threshold)
    except GraphError as error:
        raise GraphError(f"{photo.name}: {error.reason}") from None
    _check_mask(photo, mask)
    return mask


def _check_mask(photo: Photo, mask: np.ndarray) -> None:
    """Raise GraphError where a mask covers the whole photo."""
    if mask.mean() > MOST_COVERED:
        raise GraphError(
            f"{photo.name}: {mask.mean():.0%} of the photo is unlike the background\n  hint: "
            "--threshold, or --masks with a picture per photo"
        )


def estimate_box(photos: list[Photo], masks: np.ndarray) -> npt.NDArray[np.float64]:
    """Return a box (2, 3) around the object where none is given: the point nearest to all rays
    through the masks' centres, and the largest radius that the masks' areas ask for."""
    a, b = np.zeros((3, 3)), np.zeros(3)
    rays = []
    for photo, mask in zip(photos, masks, strict=True):
        y, x = np.nonzero(mask[..., 0] > 0.5)
        direction = photo.R.T @ np.linalg.solve(photo.K, [x.mean(), y.mean(), 1.0])
        direction /= np.linalg.norm(direction)
        eye = -photo.R.T @ photo.t
        project = np.eye(3) - np.outer(direction, direction)
        a += project
        b += project @ eye
        rays.append((photo, x, y))
    centre = np.linalg.solve(a, b)
    radius = 0.0
    for photo, x, y in rays:
        depth = float((photo.R @ centre + photo.t)[2])
        extent = max(np.ptp(x), np.ptp(y)) / 2
        radius = max(radius, extent * depth / float(photo.K[0, 0]))
    return np.stack([centre - radius, centre + radius])
