"""Numbers that say how alike two pictures are: overlap, difference, structural similarity.

In: NumPy arrays. Out: floats. Nothing here is differentiated.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.ndimage import gaussian_filter

from dressi.errors import GraphError
from dressi.render.fit.closest import distance_to_surface, mean_distance_to_surface

__all__ = ["distance_to_surface", "iou", "mean_distance_to_surface", "psnr", "ssim"]


def iou(mask_a: npt.ArrayLike, mask_b: npt.ArrayLike) -> float:
    """Intersection over union of two masks of one shape, inside where > 0.5; 1.0 if both are empty.

    Raises GraphError where the shapes differ.
    """
    a, b = np.asarray(mask_a) > 0.5, np.asarray(mask_b) > 0.5
    if a.shape != b.shape:
        raise GraphError(f"iou needs masks of one shape, got {a.shape} and {b.shape}")
    union = int((a | b).sum())
    return float((a & b).sum()) / union if union else 1.0


def psnr(
    image_a: npt.ArrayLike, image_b: npt.ArrayLike, mask: npt.ArrayLike | None = None
) -> float:
    """Peak signal-to-noise ratio in dB, ``-10 log10(mean squared difference)``, peak 1.

    image_a, image_b: (H, W, C) or (H, W), linear values, both clipped to [0, 1] first. mask: (H,
    W), only pixels > 0.5 count; None: all. Infinity where there is no difference.
    Raises GraphError (shapes differ, empty mask).
    """
    a, b = np.asarray(image_a, np.float64), np.asarray(image_b, np.float64)
    if a.shape != b.shape or a.ndim not in (2, 3):
        raise GraphError(f"psnr needs two images of one shape, got {a.shape} and {b.shape}")
    difference = (np.clip(a, 0.0, 1.0) - np.clip(b, 0.0, 1.0)) ** 2
    if mask is not None:
        inside = np.asarray(mask) > 0.5
        if inside.shape != a.shape[:2]:
            raise GraphError(f"psnr needs a mask of {a.shape[:2]}, got {inside.shape}")
        difference = difference[inside]
    if difference.size == 0:
        raise GraphError("psnr: there are no pixels to compare (empty mask or image)")
    error = float(difference.mean())
    return float("inf") if error == 0.0 else -10.0 * float(np.log10(error))


SSIM_SIGMA_PX = 1.5
SSIM_RADIUS_PX = 5
"""The window of Wang et al. 2004: 11 x 11 pixels, Gaussian."""


def ssim(
    image_a: npt.ArrayLike, image_b: npt.ArrayLike, mask: npt.ArrayLike | None = None
) -> float:
    """Structural similarity, 1 for equal pictures (Wang et al. 2004, K1 = 0.01, K2 = 0.03).

    image_a, image_b: (H, W, C) or (H, W), at least 11 x 11, values as given, range 1. Windows that
    lie wholly within the picture count; channels are averaged. mask: (H, W), only windows whose
    centre is > 0.5 count; None: all. Raises GraphError (shapes differ, too small, no window).
    """
    a, b = np.asarray(image_a, np.float64), np.asarray(image_b, np.float64)
    if a.shape != b.shape or a.ndim not in (2, 3):
        raise GraphError(f"ssim needs two images of one shape, got {a.shape} and {b.shape}")
    side = 2 * SSIM_RADIUS_PX + 1
    if min(a.shape[:2]) < side or a.size == 0:
        raise GraphError(f"ssim needs images of at least {side} x {side} pixels, got {a.shape}")

    def mean(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        truncate = SSIM_RADIUS_PX / SSIM_SIGMA_PX
        blurred = gaussian_filter(x, SSIM_SIGMA_PX, axes=(0, 1), truncate=truncate)
        inner = slice(SSIM_RADIUS_PX, -SSIM_RADIUS_PX)
        return np.asarray(blurred[inner, inner])

    mean_a, mean_b = mean(a), mean(b)
    variance_a, variance_b = mean(a * a) - mean_a**2, mean(b * b) - mean_b**2
    covariance = mean(a * b) - mean_a * mean_b
    c1, c2 = 0.01**2, 0.03**2
    similarity = (2.0 * mean_a * mean_b + c1) * (2.0 * covariance + c2)
    similarity /= (mean_a**2 + mean_b**2 + c1) * (variance_a + variance_b + c2)
    if mask is not None:
        inside = np.asarray(mask) > 0.5
        if inside.shape != a.shape[:2]:
            raise GraphError(f"ssim needs a mask of {a.shape[:2]}, got {inside.shape}")
        inside = inside[SSIM_RADIUS_PX:-SSIM_RADIUS_PX, SSIM_RADIUS_PX:-SSIM_RADIUS_PX]
        if not inside.any():
            raise GraphError("ssim: the mask holds no centre of a whole window")
        similarity = similarity[inside]
    return float(similarity.mean())
