"""Texels that nothing determines: filled from those around them.

In: a texture and a mask of texels that are known. Out: a texture that is known everywhere, so that
bilinear reads and mipmaps at the border of a chart mix no background in.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.ndimage import distance_transform_edt

from dressi.errors import GraphError

Floats = npt.NDArray[np.float64]


def _checked(
    what: str, texture: npt.ArrayLike, known: npt.ArrayLike
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    image, mask = np.asarray(texture, np.float64), np.asarray(known) > 0.5
    if image.ndim != 3 or mask.shape != image.shape[:2]:
        raise GraphError(
            f"{what} needs a texture (H, W, C) and a mask (H, W), got {image.shape}, {mask.shape}"
        )
    if not mask.any():
        raise GraphError(f"{what}: no texel is known")
    return image, mask


def fill_seams(texture: npt.ArrayLike, covered: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Return the texture with every uncovered texel set to the nearest covered one.

    texture: (H, W, C). covered: (H, W), inside where > 0.5; texels inside stay as they are. Raises
    GraphError (shapes, nothing is covered).
    """
    image, mask = _checked("fill_seams", texture, covered)
    rows, columns = distance_transform_edt(~mask, return_distances=False, return_indices=True)
    return np.asarray(image[rows, columns], np.float32)


def push_pull(texture: npt.ArrayLike, known: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Return the texture with unknown texels filled smoothly from the known ones around them.

    texture: (H, W, C). known: (H, W), inside where > 0.5; texels inside stay as they are. A pyramid
    of means of what is known (pull) fills from coarse to fine, bilinearly (push; Gortler et al.
    1996). Raises GraphError (shapes, nothing is known).
    """
    image, mask = _checked("push_pull", texture, known)
    levels = [(np.where(mask[..., None], image, 0.0), mask.astype(np.float64))]
    while max(levels[-1][1].shape) > 1:
        colour, weight = levels[-1]
        total = _halved(weight[..., None])
        mean = _halved(colour * weight[..., None]) / np.where(total > 0.0, total, 1.0)
        levels.append((mean, np.minimum(total[..., 0], 1.0)))
    filled = levels.pop()[0]
    for colour, weight in reversed(levels):
        above = _doubled(filled, (weight.shape[0], weight.shape[1]))
        filled = above + (colour - above) * weight[..., None]
    return filled.astype(np.float32)


def _halved(image: Floats) -> Floats:
    """Sums of 2 x 2 texels; the last row and column of odd sides stand alone."""
    height, width, channels = image.shape
    padded = np.pad(image, ((0, height % 2), (0, width % 2), (0, 0)))
    shape = (padded.shape[0] // 2, 2, padded.shape[1] // 2, 2, channels)
    return np.asarray(padded.reshape(shape).sum(axis=(1, 3)))


def _doubled(image: Floats, shape: tuple[int, int]) -> Floats:
    """Bilinear samples at twice the resolution, cut to the shape."""
    for axis in (0, 1):
        padded = np.concatenate([image.take([0], axis), image, image.take([-1], axis)], axis)
        n = image.shape[axis]
        left, right = (padded.take(np.arange(n) + k, axis) for k in (0, 2))
        pair = np.stack([0.75 * image + 0.25 * left, 0.75 * image + 0.25 * right], axis + 1)
        doubled = list(image.shape)
        doubled[axis] = 2 * n
        image = pair.reshape(doubled)
    return image[: shape[0], : shape[1]]
