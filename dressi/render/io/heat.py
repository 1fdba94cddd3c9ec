"""Values as colours, and the bar that says what the colours mean.

In: values and the largest one that is told apart. Out: linear images.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dressi.errors import GraphError
from dressi.render.io.images import srgb_to_linear
from dressi.render.io.sheet import LINE_PX, label_image

STOPS = np.array(
    [
        [0.86, 0.90, 0.94],
        [0.55, 0.77, 0.86],
        [0.98, 0.84, 0.45],
        [0.93, 0.45, 0.22],
        [0.66, 0.10, 0.20],
        [0.22, 0.00, 0.12],
    ]
)
"""sRGB, evenly spaced from 0 to the limit: pale and cool is small, dark and warm is large."""


def heat_colors(values: npt.ArrayLike, limit: float) -> npt.NDArray[np.float32]:
    """Return linear colours (..., 3) of values (...): 0 is pale, limit and more is dark red.

    Raises GraphError for a limit that is not above 0, or NaN.
    """
    array = np.asarray(values, dtype=np.float64)
    if not (np.isfinite(limit) and limit > 0.0) or np.isnan(array).any():
        raise GraphError(f"heat_colors needs numbers and a limit > 0, got a limit of {limit}")
    at = np.clip(array / limit, 0.0, 1.0) * (len(STOPS) - 1)
    stops = np.arange(len(STOPS))
    return srgb_to_linear(np.stack([np.interp(at, stops, c) for c in STOPS.T], axis=-1))


def heat_bar(limit: float, unit: str, size: tuple[int, int] = (320, 54)) -> npt.NDArray[np.float32]:
    """Return a bar of the colours from 0 to the limit, with figures and the unit below.

    Result: (H, W, 3) linear. unit: what is measured and in what. size: (width, height) in pixels,
    at least (160, 40). Raises GraphError for a smaller size and a limit that is not above 0.
    """
    width, height = size
    if width < 160 or height < 40:
        raise GraphError(f"heat_bar needs at least 160 x 40 pixels, got {width} x {height}")
    image = np.ones((height, width, 3), np.float32)
    top = height - 2 * LINE_PX
    image[:top] = heat_colors(np.linspace(0.0, limit, width), limit)
    texts = [(0.0, top, "0"), (0.5, top, f"{limit / 2:.3g}"), (1.0, top, f"{limit:.3g} or more")]
    for share, row, text in [*texts, (0.5, top + LINE_PX, unit)]:
        label = label_image(text, LINE_PX)[:, :width]
        left = round(share * (width - label.shape[1]))
        image[row : row + LINE_PX, left : left + label.shape[1]] *= 1.0 - label[..., None]
    return image
