"""What the photos of an object say of each other's masks.

In: masks of calibrated photos. Out: background of a mask that the other photos contradict. A photo
in which a part of the object is as dark as the background carves that part away from the hull of
all masks, and other photos plainly show it then where nothing of the hull is left. A place where
more photos lose what they show than call it background is the object's, and the background there is
doubted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from dressi.render.io.masks import in_frame, pixels_of, voxel_centers

Camera = tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]
"""K (3, 3), R (3, 3) and t (3,), OpenCV's."""

CELL_PX = 1.5
"""Side, in cells of the hull, of the squares that photos are compared by: none is skipped."""
PLAIN = 0.9
"""Share of a square that the object covers where it is plainly seen."""
LOST = 2
"""Squares on a side of what a photo loses at least: less is an outline that is a little off."""
MOST_WRONG = 1 / 3
"""Share of the photos up to which calling a place background can be a mistake of theirs."""
PASSES = 4
"""What one pass gives back shows more of what is still missing."""
_BLOCK = 1 << 18
"""Cells that are projected at once: a few tens of megabytes."""


@dataclass(frozen=True, eq=False)
class Squares:
    """Cells of a hull in a photo that is divided in squares. at: (N, 2) row and column of each
    cell's pixel; seen: (N,) whether it lies in the frame; square: (N,) number of its square, -1
    where it is not seen. of_pixel: (H, W) number of each pixel's square. shape: rows and columns of
    squares. side: pixels."""

    at: npt.NDArray[np.int64]
    seen: npt.NDArray[np.bool_]
    square: npt.NDArray[np.int64]
    of_pixel: npt.NDArray[np.int64]
    shape: tuple[int, int]
    side: float

    def count(self, cells: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Return how many of the given cells (N,) are seen in each square."""
        return np.bincount(self.square[cells & self.seen], minlength=self.shape[0] * self.shape[1])

    def share(self, mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        """Return the share of each square that a mask (H, W) covers."""
        n = self.shape[0] * self.shape[1]
        whole = np.bincount(self.of_pixel.ravel(), minlength=n)
        return np.bincount(self.of_pixel.ravel(), mask.ravel(), n) / np.maximum(whole, 1)


def squares_of(
    cells: npt.NDArray[np.float64],
    camera: Camera,
    shape: tuple[int, int],
    box: npt.NDArray[np.float64],
    step: float,
) -> Squares:
    """Return the squares of a photo of ``shape`` (rows, columns), and where cells lie in them.

    cells: (N, 3) centres, world units. box: (2, 3). step: side of a cell, world units.
    """
    (height, width), (k, r, t) = shape, camera
    at, seen = _pixels(cells, camera, shape)
    depth = float((np.asarray(r) @ box.mean(0) + np.asarray(t))[2])
    side = max(CELL_PX * step * float(np.asarray(k)[0, 0]) / max(depth, 1e-9), 1.0)
    rows, columns = int(height / side) + 1, int(width / side) + 1
    square = (at[:, 0] / side).astype(np.int64) * columns + (at[:, 1] / side).astype(np.int64)
    y, x = (np.indices(shape) / side).astype(np.int64)
    return Squares(at, seen, np.where(seen, square, -1), y * columns + x, (rows, columns), side)


def _pixels(
    cells: npt.NDArray[np.float64], camera: Camera, shape: tuple[int, int]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return (N, 2) row and column of cells, (0, 0) where they are not seen, and (N,) seen."""
    pixel = pixels_of(cells, *camera)
    seen = in_frame(pixel, shape)
    return np.rint(np.where(seen[:, None], pixel, 0.0)).astype(np.int64)[:, ::-1], seen


def contradicted(
    masks: Sequence[npt.NDArray[np.bool_]],
    cameras: Sequence[Camera],
    bbox: npt.ArrayLike,
    resolution: int,
) -> list[npt.NDArray[np.bool_]]:
    """Return (H, W) of each photo: background that the other photos contradict.

    masks: (H, W), the object. bbox: (2, 3) around the object, world units. resolution: cells of the
    hull along each axis. A place counts where at least two photos lose what they plainly show, more
    than call it background, and of all photos at most MOST_WRONG do.
    """
    box = np.asarray(bbox, np.float64)
    step = float((box[1] - box[0]).max()) / resolution
    cells = _near_hull(masks, cameras, voxel_centers(box, resolution).reshape(-1, 3))
    doubted = [np.zeros(mask.shape, bool) for mask in masks]
    if len(cells) == 0:
        return doubted
    views = [
        squares_of(cells, camera, mask.shape, box, step)
        for camera, mask in zip(cameras, masks, strict=True)
    ]
    plain = [view.share(mask) > PLAIN for view, mask in zip(views, masks, strict=True)]
    carved = np.stack(
        [view.seen & ~mask[tuple(view.at.T)] for view, mask in zip(views, masks, strict=True)]
    )
    for _ in range(PASSES):
        count = carved.sum(0)
        losses = np.zeros(len(cells), np.int64)
        for view, shown in zip(views, plain, strict=True):
            missing = (shown & (view.count(count == 0) == 0)).reshape(view.shape)
            missing = ndimage.binary_opening(missing, np.ones((LOST, LOST), bool))
            losses += view.seen & missing.ravel()[view.square]
        given_back = (count > 0) & (losses >= 2) & (losses > count)
        if not given_back.any():
            break
        for k, view in enumerate(views):
            wrong = np.zeros(masks[k].shape, bool)
            wrong[tuple(view.at[carved[k] & given_back].T)] = True
            # As far as a cell reaches around its centre.
            doubted[k] |= ndimage.maximum_filter(wrong, int(view.side) | 1) & ~masks[k]
        carved[:, given_back] = False
    return doubted


def _near_hull(
    masks: Sequence[npt.NDArray[np.bool_]],
    cameras: Sequence[Camera],
    cells: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Return the cells that at most MOST_WRONG of the photos call background."""
    kept = []
    for start in range(0, len(cells), _BLOCK):
        block = cells[start : start + _BLOCK]
        count = np.zeros(len(block), np.int64)
        for mask, camera in zip(masks, cameras, strict=True):
            at, seen = _pixels(block, camera, mask.shape)
            count += seen & ~mask[tuple(at.T)]
        kept.append(block[count <= MOST_WRONG * len(masks)])
    return np.concatenate(kept)
