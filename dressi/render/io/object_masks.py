"""Masks of one object in calibrated photos: what a photo alone cannot tell, the others decide.

In: photos with OpenCV cameras. Out: masks for the silhouette loss. A spot within an outline that
looks like the background is a shadow or an opening; in one photo they look alike. An opening is
empty space along a whole cone of rays: other photos look through that space, too, and emptying it
takes away nothing that one of them plainly shows. A spot is kept open where both hold. Background
that makes other photos lose what they plainly show (``mask_agreement``) is the object's, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from dressi.errors import GraphError
from dressi.render.io.mask_agreement import PLAIN, Camera, contradicted, squares_of
from dressi.render.io.masks import (
    Mask,
    background_of,
    hull_cells,
    photo_mask,
    pixels_of,
    voxel_centers,
)

RESOLUTION = 112
"""Cells of the hull along each axis."""
CLOSING = 0.008
"""Radius, as a share of the longer side, up to which a shadow that is open to the background is
closed: 5 pixels of 640."""
JUDGED = 4.0
"""Squares that a spot must have to be judged: cells of the hull tell nothing about smaller ones,
which are the object's."""
TAKEN = 0.02
"""Share of the squares that emptying a spot touches in another photo above which too much of what
is plainly there would be gone."""
AGREED = 0.5
"""Share of the space behind an opening that other photos look through, too."""


@dataclass(frozen=True, eq=False)
class ObjectMasks:
    """The masks of a set of photos, and how they were found.

    masks: (H, W) float32 each. doubted: (H, W) bool, pixels of a mask that its photo alone would
    call background and the other photos do not: the silhouette there is not known.
    n_shadows, n_openings: spots within outlines that were closed and kept open. cut: names of the
    photos whose object reaches the frame."""

    masks: list[Mask]
    doubted: list[npt.NDArray[np.bool_]]
    n_shadows: int
    n_openings: int
    cut: list[int]


@dataclass(frozen=True, eq=False)
class Alone:
    """What one photo alone says. inside: pixels that the box is seen in. sure: its mask, with all
    that looks like the background open. full: with shadows and openings closed. All (H, W) bool.
    cut: whether the object reaches the frame."""

    inside: npt.NDArray[np.bool_]
    sure: npt.NDArray[np.bool_]
    full: npt.NDArray[np.bool_]
    cut: bool


def alone(
    image: npt.ArrayLike, camera: Camera, bbox: npt.ArrayLike, threshold: float | None = None
) -> Alone:
    """Return what a photo says of the object's mask without the others; for ``object_masks``, where
    that is asked several times about the same photos. camera: K, R, t. The rest as there."""
    photo = np.asarray(image, np.float64)
    within = box_mask(bbox, *camera, photo.shape[:2])
    behind = background_of(photo) if threshold is None else None
    find = partial(photo_mask, photo, threshold, within=within, background=behind)
    sure = find() > 0.5
    radius = CLOSING * max(photo.shape[:2])
    full = (find(radius, radius, fill_holes=True) > 0.5) | sure
    edge = np.concatenate([sure[0], sure[-1], sure[:, 0], sure[:, -1]])
    return Alone(within, sure, full, bool(edge.any()))


def object_masks(
    images: Sequence[npt.ArrayLike],
    Ks: Sequence[npt.ArrayLike],
    Rs: Sequence[npt.ArrayLike],
    ts: Sequence[npt.ArrayLike],
    bbox: npt.ArrayLike,
    threshold: float | None = None,
    resolution: int = RESOLUTION,
    known: Sequence[Alone] | None = None,
) -> ObjectMasks:
    """Return masks of the object that all photos show.

    images: (H, W, 3) linear, before a background that is alike within each photo. Ks, Rs, ts:
    OpenCV cameras. bbox: (2, 3) around the object, world units: nothing outside of it is in a mask.
    threshold: of ``photo_mask``; None: the background is told place by place. known: what each
    photo says ``alone``, with the same box and threshold; None: found here. Raises GraphError for
    lists of unequal length, photos without an object and an empty box.
    """
    if not len(images) == len(Ks) == len(Rs) == len(ts) > 0:
        raise GraphError(
            f"object_masks needs one camera per photo, got {len(images)} photos, {len(Ks)} Ks"
        )
    cameras = list(zip(Ks, Rs, ts, strict=True))
    if known is None:
        pairs = zip(images, cameras, strict=True)
        known = [alone(image, camera, bbox, threshold) for image, camera in pairs]
    inside, sure, full = ([getattr(one, n) for one in known] for n in ("inside", "sure", "full"))
    cut = [k for k, one in enumerate(known) if one.cut]
    spots = [_labelled(f & ~s) for f, s in zip(full, sure, strict=True)]
    views = _views(sure, full, spots, cameras, bbox, resolution)
    n_shadows = n_openings = 0
    masks: list[Mask] = []
    closed_spots = []
    for k, labels in enumerate(spots):
        shadow = np.zeros(labels.max() + 1, bool)
        for spot in range(1, len(shadow)):
            shadow[spot] = _is_shadow(views, k, int(spot))
            n_shadows, n_openings = n_shadows + shadow[spot], n_openings + (not shadow[spot])
        masks.append((sure[k] | shadow[labels]).astype(np.float32))
        closed_spots.append(shadow[labels] & ~sure[k])
    doubted = contradicted([m > 0.5 for m in masks], cameras, bbox, resolution)
    doubted = [
        (d & within) | spot for d, within, spot in zip(doubted, inside, closed_spots, strict=True)
    ]
    masks = [np.maximum(m, d.astype(np.float32)) for m, d in zip(masks, doubted, strict=True)]
    return ObjectMasks(masks, doubted, int(n_shadows), int(n_openings), cut)


def _labelled(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    labels, _ = ndimage.label(mask)
    return np.asarray(labels, np.int32)


def box_mask(
    bbox: npt.ArrayLike,
    K: npt.ArrayLike,
    R: npt.ArrayLike,
    t: npt.ArrayLike,
    shape: tuple[int, ...],
) -> npt.NDArray[np.bool_]:
    """Return (H, W), the pixels that a box (2, 3) can be seen in: all where it reaches behind the
    camera."""
    low, high = np.asarray(bbox, np.float64)
    corners = np.array(np.meshgrid(*np.stack([low, high], 1))).reshape(3, -1).T
    height, width = shape[:2]
    pixel = pixels_of(corners, K, R, t)
    if not np.isfinite(pixel).all():
        return np.ones((height, width), bool)
    y, x = np.mgrid[:height, :width]
    inside = np.ones((height, width), bool)
    # The convex outline of eight points: an edge between two of them has all others on one side.
    for a in range(8):
        for b in range(a + 1, 8):
            along = pixel[b] - pixel[a]
            side = _cross(along, pixel - pixel[a])
            if np.abs(along).max() > 0.0 and (side.min() >= -1e-9 or side.max() <= 1e-9):
                sign = 1.0 if side.max() > -side.min() else -1.0
                off = sign * (along[0] * (y - pixel[a, 1]) - along[1] * (x - pixel[a, 0]))
                inside &= off >= -np.hypot(*along)  # a pixel of margin
    return inside


def _cross(u: npt.NDArray[np.float64], v: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.asarray(u[0] * v[:, 1] - u[1] * v[:, 0])


@dataclass(frozen=True, eq=False)
class _View:
    """One photo. square: of each cell of the hull, where it is seen, -1 where it is not. spot: the
    doubtful spot that it is seen in, 0 for none. n_cells: of each square. plain: squares that the
    object plainly covers. side: of a square, pixels. sizes: of the spots, pixels."""

    square: npt.NDArray[np.int64]
    spot: npt.NDArray[np.int32]
    n_cells: npt.NDArray[np.int64]
    plain: npt.NDArray[np.bool_]
    side: float
    sizes: npt.NDArray[np.int64]


def _views(
    sure: Sequence[npt.NDArray[np.bool_]],
    full: Sequence[npt.NDArray[np.bool_]],
    spots: Sequence[npt.NDArray[np.int32]],
    cameras: Sequence[Camera],
    bbox: npt.ArrayLike,
    resolution: int,
) -> list[_View]:
    """The cells of the hull of the full masks, seen by each photo."""
    Ks, Rs, ts = zip(*cameras, strict=True)
    hull = hull_cells(full, Ks, Rs, ts, bbox, resolution)
    box = np.asarray(bbox, np.float64)
    cells = voxel_centers(box, resolution).reshape(-1, 3)[hull.ravel()]
    step = (box[1] - box[0]).max() / resolution
    out = []
    for mask, labels, camera in zip(sure, spots, cameras, strict=True):
        found = squares_of(cells, camera, mask.shape, box, step)
        spot = np.where(found.seen, labels[tuple(found.at.T)], 0)
        n_cells = found.count(np.ones(len(cells), bool))
        plain = found.share(mask) > PLAIN
        sizes = np.bincount(labels.ravel())
        out.append(_View(found.square, spot, n_cells, plain, found.side, sizes))
    return out


def _is_shadow(views: Sequence[_View], k: int, spot: int) -> bool:
    """Whether a spot of photo k is none that other photos look through, or one whose cone cannot be
    emptied without taking away what another photo shows."""
    emptied = views[k].spot == spot
    if views[k].sizes[spot] < JUDGED * views[k].side ** 2:
        return True
    if not emptied.any():  # the others have emptied it
        return False
    others = [view for j, view in enumerate(views) if j != k]
    agreed = np.any([view.spot[emptied] > 0 for view in others], axis=0)
    if agreed.mean() < AGREED:
        return True
    for other in others:
        squares = other.square[emptied]
        gone = np.bincount(squares[squares >= 0], minlength=len(other.n_cells))
        touched = gone > 0
        lost = touched & (gone == other.n_cells) & other.plain
        if lost.sum() > max(TAKEN * touched.sum(), 1):
            return True
    return False
