"""Masks by GrabCut: outlines go where the colours change."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.apps.grabcut import grabcut_masks
from dressi.errors import GraphError

pytest.importorskip("cv2", reason="the extra grabcut is not installed")


def scene() -> tuple[np.ndarray, np.ndarray]:
    """A brown disk with a hole before a grey background, both with noise; its mask."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:96, :96] - 48.0
    away = np.hypot(x, y)
    mask = (away < 30.0) & (away > 8.0)
    image = np.where(mask[..., None], [0.25, 0.12, 0.05], [0.2, 0.2, 0.2])
    image = image + rng.normal(0.0, 0.01, image.shape)
    return np.clip(image, 0.0, 1.0).astype(np.float32), mask


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    return float((a & b).sum() / (a | b).sum())


def test_an_outline_that_is_off_by_pixels_comes_to_where_the_object_ends() -> None:
    image, mask = scene()
    begun = np.roll(mask, 2, axis=1)
    found = grabcut_masks([image], begun[None, ..., None], ["a"])[0, ..., 0] > 0.5
    assert overlap(begun, mask) < 0.9 and overlap(found, mask) > 0.98
    assert not found[48, 48]  # the hole stays open


def test_a_photo_without_background_is_named() -> None:
    image, _ = scene()
    with pytest.raises(GraphError, match=r"^b.*: GrabCut needs both"):
        grabcut_masks([image], np.ones((1, 96, 96, 1)), ["b"])
    with pytest.raises(GraphError, match=r"^b.*: GrabCut needs both"):
        grabcut_masks([image], np.zeros((1, 96, 96, 1)), ["b"])
