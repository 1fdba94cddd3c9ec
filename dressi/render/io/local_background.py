"""The background of a photo, place by place.

In: a photo, and pixels that are certainly background. Out: how far each pixel differs from the
background around it, and how much the background itself varies there. A cloth or a stand that is
brighter than the rest of the background raises a threshold for the whole photo above the object's
shadows; beside the rest of the background those shadows are plain.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import ndimage

Floats = npt.NDArray[np.float64]

CELLS = 96
"""Along the longer side: the background is smooth beside the noise that a cell averages."""
REACH = 4.0
"""Standard deviation, in cells, of the weights of the nearest background."""
SCALES = 5
"""Each reaches twice as far as the one before and counts a thousandth: it speaks where nearer
background is not to be seen."""
FARTHER = 1e-3


def local_differences(colours: npt.ArrayLike, background: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return (H, W) twice: the largest difference of a channel to the mean of the background around
    a pixel, and the standard deviation of that background, of the channel that varies most.

    colours: (H, W, C). background: (H, W) bool, some of it True.
    """
    image, known = np.asarray(colours, np.float64), np.asarray(background, bool)
    height, width = known.shape
    cell = max(max(height, width) // CELLS, 1)
    weighted = np.concatenate([image, image**2, np.ones((height, width, 1))], -1)
    weighted *= known[..., None]
    pad = ((0, -height % cell), (0, -width % cell), (0, 0))
    padded = np.pad(weighted, pad)
    rows, columns = padded.shape[0] // cell, padded.shape[1] // cell
    sums = padded.reshape(rows, cell, columns, cell, -1).mean((1, 3))
    total = sum(
        FARTHER**k * ndimage.gaussian_filter(sums, (REACH * 2**k, REACH * 2**k, 0), mode="constant")
        for k in range(SCALES)
    )
    total = total / np.maximum(total[..., -1:], 1e-300)
    n = image.shape[2]
    mean = total[..., :n]
    deviation = np.sqrt(np.maximum(total[..., n : 2 * n] - mean**2, 0.0)).max(-1)
    y = (np.arange(height) + 0.5) / cell - 0.5
    x = (np.arange(width) + 0.5) / cell - 0.5
    at = np.meshgrid(y, x, indexing="ij")
    smooth = [
        ndimage.map_coordinates(part, at, order=1, mode="nearest")
        for part in (*np.moveaxis(mean, -1, 0), deviation)
    ]
    return np.abs(image - np.stack(smooth[:n], -1)).max(-1), smooth[n]
