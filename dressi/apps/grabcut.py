"""Masks by GrabCut (Rother, Kolmogorov and Blake 2004), as OpenCV has it: the extra ``grabcut``.

In: photos and masks to begin with. Out: masks whose outlines lie where the colours change.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from dressi.errors import DressiError, GraphError
from dressi.render.io.images import linear_to_srgb

BAND = 0.03
"""Share of the longer side: what lies further inside or outside of an outline stays as it is."""

ITERATIONS = 5
"""Of GrabCut: colours of both sides, then a cut, in turn."""


def grabcut_masks(
    images: Sequence[npt.ArrayLike], masks: npt.ArrayLike, names: Sequence[str]
) -> npt.NDArray[np.float32]:
    """Return (n, H, W, 1) masks in {0, 1}.

    images: (H, W, 3) linear. masks: (n, H, W, 1), what is thought to be the object. names: of the
    photos, for messages. Two mixtures of Gaussians are fitted to the colours of the object and of
    the background, and a cut through a band around each outline goes where colours fit best and
    change most. The largest part is kept, and what the cut leaves open within it stays open. Raises
    DressiError without OpenCV, GraphError naming a photo in which nothing is left.
    """
    try:
        cv2: Any = importlib.import_module("cv2")
    except ImportError as error:
        raise DressiError(
            f"--segment grabcut needs OpenCV: pip install 'dressi[grabcut]' ({error})"
        ) from error
    out = []
    for image, mask, name in zip(images, np.asarray(masks)[..., 0] > 0.5, names, strict=True):
        encoded = linear_to_srgb(np.clip(np.asarray(image, np.float32), 0.0, 1.0))
        bgr = np.ascontiguousarray((encoded[..., ::-1] * 255.0).round().astype(np.uint8))
        seeds = _seeds(mask, cv2)
        if not (np.isin(seeds, (cv2.GC_FGD, cv2.GC_PR_FGD)).any() and (seeds == 0).any()):
            raise GraphError(f"{name}: GrabCut needs both object and background to begin with")
        cv2.setRNGSeed(0)  # its k-means begins anywhere
        models = np.zeros((1, 65)), np.zeros((1, 65))
        cv2.grabCut(bgr, seeds, None, *models, ITERATIONS, cv2.GC_INIT_WITH_MASK)
        found = np.isin(seeds, (cv2.GC_FGD, cv2.GC_PR_FGD))
        labels, n = ndimage.label(found, np.ones((3, 3)))
        if n == 0:
            raise GraphError(f"{name}: GrabCut left nothing of the object")
        sizes = np.bincount(labels.ravel())
        sizes[0] = 0
        out.append(labels == sizes.argmax())
    return np.stack(out)[..., None].astype(np.float32)


def _seeds(mask: npt.NDArray[np.bool_], cv2: Any) -> npt.NDArray[np.uint8]:
    """Return (H, W), OpenCV's numbers: certainly or probably the object's, or not."""
    band = BAND * max(mask.shape)
    wide = np.pad(mask, 1, mode="edge")  # the frame is no outline
    within = ndimage.distance_transform_edt(wide)[1:-1, 1:-1]
    beside = ndimage.distance_transform_edt(~wide)[1:-1, 1:-1]
    seeds = np.full(mask.shape, cv2.GC_PR_BGD, np.uint8)
    seeds[mask] = cv2.GC_PR_FGD
    seeds[beside > band] = cv2.GC_BGD
    seeds[within > band] = cv2.GC_FGD
    return seeds
