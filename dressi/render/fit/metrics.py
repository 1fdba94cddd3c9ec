"""Numbers that say how good a fit is: overlap, picture difference, distance to a surface.

In: NumPy arrays. Out: floats. Nothing here is differentiated.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dressi.errors import GraphError
from dressi.render.fit.closest import closest_on_surface


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


def distance_to_surface(
    points: npt.ArrayLike, mesh_positions: npt.ArrayLike, faces: npt.ArrayLike
) -> npt.NDArray[np.float64]:
    """(N,) float64: the exact distance of each point to the closest point of the surface.

    points: (N, 3). mesh_positions: (V, 3). faces: (F, 3) int. World units, never negative.
    Exact because no triangle is skipped that could be closer: with d the distance to the triangles
    whose centroids are nearest, every triangle whose bounding sphere comes within d is tried;
    triangles are sorted in classes by size, so a few large ones do not widen the search for all.
    Raises GraphError (shapes, no points, no faces, NaN, index out of range).
    """
    _, squared = closest_on_surface("distance_to_surface", points, mesh_positions, faces)
    return np.sqrt(squared)


def mean_distance_to_surface(
    points: npt.ArrayLike, mesh_positions: npt.ArrayLike, faces: npt.ArrayLike
) -> float:
    """Mean of ``distance_to_surface`` over the points, world units (points to surface only)."""
    return float(distance_to_surface(points, mesh_positions, faces).mean())
