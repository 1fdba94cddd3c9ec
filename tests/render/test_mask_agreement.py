"""What photos say of each other's masks, and of a background that differs from place to place."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.render.fit import iou
from dressi.render.io import object_masks, srgb_to_linear
from dressi.render.io.local_background import local_differences
from dressi.render.io.mask_agreement import contradicted
from tests.helpers.torus_photos import BOX, N_CELLS, SIZE, cameras, pictures, torus


def bite(shape: np.ndarray, columns: slice) -> np.ndarray:
    """(H, W) bool: the upper half of the object within some columns, open to the background."""
    part = np.zeros_like(shape)
    part[: SIZE[0] // 2, columns] = shape[: SIZE[0] // 2, columns]
    return part


@pytest.mark.parametrize("dark", [(2,), (2, 3)])
def test_what_one_or_two_photos_take_for_background_and_the_others_show_is_given_back(
    dark: tuple[int, ...],
) -> None:
    shapes = torus(0.7, 0.25)
    photos, bites = pictures(shapes), {}
    for k in dark:
        middle = int(np.argwhere(shapes[k])[:, 1].mean())
        bites[k] = bite(shapes[k], slice(middle - 7, middle + 7))
        photos[k][bites[k]] = 0.0
    found = object_masks(photos, *cameras(), BOX, resolution=N_CELLS)
    for k, part in bites.items():
        assert part.sum() > 100 and found.doubted[k][part].mean() > 0.9
        assert iou(found.masks[k], shapes[k]) > 0.97
        # What is doubted beside it is a rim, no wider than a square.
        assert (found.doubted[k] & ~part).sum() < part.sum()
    assert not any(d.any() for k, d in enumerate(found.doubted) if k not in dark)


@pytest.mark.parametrize("radius", [0.0, 0.7])
def test_masks_that_agree_are_not_doubted(radius: float) -> None:
    shapes = torus(radius, 0.25)
    for doubted in contradicted(shapes, list(zip(*cameras(), strict=True)), BOX, N_CELLS):
        assert not doubted.any()


def test_what_one_photo_alone_shows_overrules_no_other() -> None:
    """Something bright that stands beside the object in one photo."""
    shapes = torus(0.7, 0.25)
    row, column = np.argwhere(shapes[4])[-1]
    shapes[4][row - 3 : row + 14, column - 8 : column + 8] = True
    for doubted in contradicted(shapes, list(zip(*cameras(), strict=True)), BOX, N_CELLS):
        assert not doubted.any()


def test_a_shadow_beside_a_black_background_is_plain_though_a_cloth_is_brighter() -> None:
    """The cloth raises the threshold of the whole photo above the shadow, which three photos show
    at one place of the object: the photos alone would call it an opening."""
    shapes = torus(0.0, 0.45)
    photos = pictures(shapes, 0.0, 0.8)
    cloth, shadow = (float(srgb_to_linear(np.float32(v))) for v in (0.15, 0.09))
    for photo, shape in zip(photos, shapes, strict=True):
        photo[:, :30][~shape[:, :30]] = cloth
        photo[40:54, 56:72] = shadow
    found = object_masks(photos, *cameras(), BOX, resolution=N_CELLS)
    assert min(found.thresholds) > 0.1
    for mask, shape in zip(found.masks, shapes, strict=True):
        assert iou(mask, shape) > 0.98


def test_the_background_around_a_pixel_is_that_of_its_side() -> None:
    """Two halves of 0.2 and 0.6 with noise, an object of 0.6 in the middle of the first."""
    rng = np.random.default_rng(0)
    image = np.full((96, 192, 3), 0.2) + rng.normal(0.0, 0.01, (96, 192, 3))
    image[:, 96:] += 0.4
    known = np.ones((96, 192), bool)
    known[40:56, 40:56] = False
    image[40:56, 40:56] = 0.6
    difference, deviation = local_differences(image, known)
    assert abs(difference[48, 48] - 0.4) < 0.02 and difference[48, 150] < 0.06
    assert abs(deviation[48, 16] - 0.01) < 0.003
    # Where halves meet, the background varies by half their difference.
    assert abs(deviation[48, 95] - 0.2) < 0.03
