"""Masks that come with photos: a folder of pictures, or alpha."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dressi.apps.photo_masks import given_masks
from dressi.errors import GraphError, LoadError
from dressi.render.io import Photo, write_image

HEIGHT, WIDTH = 6, 8


def photos(alpha: bool = False) -> list[Photo]:
    image = np.full((HEIGHT, WIDTH, 3), 0.5, np.float32)
    shown = shape() if alpha else None
    return [Photo(f"{n}.jpg", image, np.eye(3), np.eye(3), np.ones(3), shown) for n in ("a", "b")]


def shape() -> np.ndarray:
    mask = np.zeros((HEIGHT, WIDTH), np.float32)
    mask[1:4, 2:7] = 1.0
    return mask


def test_a_folder_has_a_mask_per_photo_in_grey_or_alpha(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png", shape()[..., None])
    both = np.concatenate([np.ones((HEIGHT, WIDTH, 3), np.float32), shape()[..., None]], -1)
    write_image(tmp_path / "b.png", both)
    masks = given_masks(photos(), str(tmp_path))
    assert masks is not None and masks.shape == (2, HEIGHT, WIDTH, 1)
    np.testing.assert_array_equal(masks[..., 0], np.stack([shape()] * 2))


def test_alpha_is_the_mask_where_all_photos_have_one() -> None:
    masks = given_masks(photos(alpha=True), None)
    assert masks is not None
    np.testing.assert_array_equal(masks[1, ..., 0], shape())
    assert given_masks([photos(True)[0], photos()[1]], None) is None


def test_a_missing_mask_one_of_another_size_and_an_empty_one_are_named(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png", shape()[..., None])
    with pytest.raises(LoadError, match=r"no mask for the photo b\.jpg"):
        given_masks(photos(), str(tmp_path))
    write_image(tmp_path / "b.png", shape()[:, :5, None])
    with pytest.raises(LoadError, match=r"b\.png: the mask is 5x6, the photo 8x6"):
        given_masks(photos(), str(tmp_path))
    write_image(tmp_path / "b.png", np.zeros((HEIGHT, WIDTH, 1), np.float32))
    with pytest.raises(GraphError, match=r"b\.jpg.*its mask has no object"):
        given_masks(photos(), str(tmp_path))
