"""The background of a photo, place by place.

In: a photo. Out: the pixels that are like the background around them. The background grows inwards
from the frame, through what is like the background that is known nearby: gradients, cloths and
stands that reach the frame are followed, and the dim side of an object is not, as it begins at an
edge. One threshold for a whole photo would lie above the object's dim parts wherever the background
is uneven.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import ndimage

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

CELLS = 96
"""Along the longer side: squares of pixels that are looked at as one, so that noise averages."""
REACH = 5
"""Cells on each side that are nearby; where none of them is known, twice as many, and so on."""
BESIDE = 2
"""Cells beside the object from which nothing is learned."""
NEAR = 0.03
"""Difference, sRGB, up to which a cell is like another: what blur and reflections do."""
DRIFT = 0.1
"""Difference to all that the frame shows, sRGB, beyond which nothing is background: where the light
on an object fades out smoothly, growth would creep into it."""
FARTHER = 1e-3
"""Weight of background twice as far away: it speaks where nearer background is not to be seen."""
DEVIATIONS = 3.0
"""Of the pixels of the background around a pixel, by which it may differ more than a cell."""


def like_background(encoded: npt.ArrayLike, most: float) -> Bools:
    """Return (H, W) bool, the pixels that are like the background around them.

    encoded: (H, W, C), sRGB values. most: difference to the median of the frame from which on a
    part of the frame is no background.
    """
    image = np.asarray(encoded, np.float64)
    height, width = image.shape[:2]
    cell = max(max(height, width) // CELLS, 1)
    means, squares = _cell_means(image, cell), _cell_means(image**2, cell)
    ring = np.ones(means.shape[:2], bool)
    ring[1:-1, 1:-1] = False
    away = np.abs(means - np.median(means[ring], axis=0)).max(-1)
    known = ring & (away <= max(most, np.median(away[ring])))
    low, high = _range(means, known, everywhere=True)
    possible = _within(means, low - DRIFT, high + DRIFT)
    while True:
        low, high = _range(means, known)
        alike = possible & _within(means, low - NEAR, high + NEAR)
        grown = known | (alike & ndimage.binary_dilation(known, np.ones((3, 3)), REACH // 2))
        if (grown == known).all():
            break
        known = grown
    # Cells beside the object hold parts of it, and growth may have crept into its shadows.
    sure = ndimage.binary_erosion(known, np.ones((3, 3)), BESIDE, border_value=1)
    mean, deviation = _around(means, squares, sure if sure.any() else known)
    margin = DEVIATIONS * deviation[..., None] + NEAR
    at = np.ix_(np.arange(height) // cell, np.arange(width) // cell)
    return _within(image, (mean - margin)[at], (mean + margin)[at])


def _within(values: Floats, low: Floats, high: Floats) -> Bools:
    return np.asarray(((values >= low) & (values <= high)).all(-1))


def _cell_means(image: Floats, cell: int) -> Floats:
    """Return means over squares of pixels; the last ones repeat the border."""
    height, width, n = image.shape
    padded = np.pad(image, ((0, -height % cell), (0, -width % cell), (0, 0)), mode="edge")
    rows, columns = padded.shape[0] // cell, padded.shape[1] // cell
    return np.asarray(padded.reshape(rows, cell, columns, cell, n).mean((1, 3)))


def _around(means: Floats, squares: Floats, known: Bools) -> tuple[Floats, Floats]:
    """Return the mean of the known background around each cell, the nearest of it counting most,
    and (rows, columns) the standard deviation of its pixels, of the channel that varies most."""
    sums = np.concatenate([means, squares, np.ones((*known.shape, 1))], -1) * known[..., None]
    total = np.zeros_like(sums)
    sigma, weight = float(REACH), 1.0
    while weight == 1.0 or sigma < max(known.shape):
        total += weight * ndimage.gaussian_filter(sums, (sigma, sigma, 0), mode="constant")
        sigma, weight = 2.0 * sigma, FARTHER * weight
    total /= np.maximum(total[..., -1:], 1e-300)
    n = means.shape[2]
    variance = np.maximum(total[..., n : 2 * n] - total[..., :n] ** 2, 0.0)
    return total[..., :n], np.sqrt(variance).max(-1)


def _range(means: Floats, known: Bools, everywhere: bool = False) -> tuple[Floats, Floats]:
    """Return the least and the largest value of each channel of the known cells nearby; where there
    are none, infinity and its negative. everywhere: look farther until there are."""
    low, high = (np.full(means.shape, s * np.inf) for s in (1.0, -1.0))
    reach = REACH
    while True:
        size = (2 * reach + 1, 2 * reach + 1, 1)
        open_ = np.isinf(low)
        for out, sign in ((low, 1.0), (high, -1.0)):
            values = np.where(known[..., None], sign * means, np.inf)
            found = sign * ndimage.minimum_filter(values, size, mode="constant", cval=np.inf)
            out[open_] = found[open_]
        if not everywhere or not np.isinf(low).any():
            return low, high
        reach *= 2
