"""What photos say of each other's masks, and of a background that differs from place to place."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.render.fit import iou
from dressi.render.io import histogram_threshold, object_masks, srgb_to_linear
from dressi.render.io.local_background import like_background
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
    masks, bites = [shape.copy() for shape in shapes], {}
    for k in dark:
        middle = int(np.argwhere(shapes[k])[:, 1].mean())
        bites[k] = bite(shapes[k], slice(middle - 7, middle + 7))
        masks[k] &= ~bites[k]
    found = contradicted(masks, list(zip(*cameras(), strict=True)), BOX, N_CELLS)
    for k, part in bites.items():
        assert part.sum() > 100 and found[k][part].mean() > 0.9
        assert iou(masks[k] | found[k], shapes[k]) > 0.97
    # In the others at most a rim, where pixels and the hull's cells differ.
    assert max(d.mean() for k, d in enumerate(found) if k not in dark) < 0.01


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
    assert min(histogram_threshold(photo) for photo in photos) > 0.1
    for mask, shape in zip(found.masks, shapes, strict=True):
        assert iou(mask, shape) > 0.98


def test_the_background_is_followed_from_the_frame_and_an_object_like_its_other_side_is_not() -> (
    None
):
    """Two halves of 0.2 and 0.6 with noise, an object of 0.6 in the middle of the first."""
    rng = np.random.default_rng(0)
    image = np.full((96, 192, 3), 0.2)
    image[:, 96:] += 0.4
    wanted = np.ones((96, 192), bool)
    wanted[40:56, 40:56] = False
    image[40:56, 40:56] = 0.6
    image += rng.normal(0.0, 0.01, image.shape)
    found = like_background(image, 0.5)
    assert (found == wanted).mean() > 0.998 and not found[41:55, 41:55].any()


@pytest.mark.parametrize("away", [0.12, -0.12])
def test_a_dim_object_before_a_background_that_grows_brighter_is_found(away: float) -> None:
    """One threshold for the photo would lie above the difference: the background spans 0.3."""
    behind = np.broadcast_to(np.linspace(0.2, 0.5, 192)[None, :, None], (96, 192, 3)).copy()
    inside = np.zeros((96, 192), bool)
    inside[30:66, 70:120] = True
    image = np.where(inside[..., None], behind + away, behind)
    assert ((~like_background(image, 0.5)) == inside).mean() > 0.99
