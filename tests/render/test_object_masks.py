"""Masks of a set of photos: an opening stays open, a shadow is closed, whatever the background."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.errors import GraphError
from dressi.render.fit import iou
from dressi.render.io import histogram_threshold, object_masks, photo_mask, srgb_to_linear
from tests.helpers.torus_photos import BOX, N_CELLS, SIZE, N, cameras, pictures, torus


def overlap(got: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    return min(iou(a, b) for a, b in zip(got, wanted, strict=True))


def test_the_hole_of_a_torus_stays_open() -> None:
    shapes = torus(0.7, 0.25)
    found = object_masks(pictures(shapes), *cameras(), BOX, resolution=N_CELLS)
    assert overlap(found.masks, shapes) > 0.99
    assert found.n_openings > 0 and not found.cut


def test_shadows_on_a_body_are_closed() -> None:
    """Black spots in two photos of a torus without a hole: no other photo looks through there."""
    shapes = torus(0.0, 0.45)
    photos = pictures(shapes)
    photos[2, 45:52, 59:68] = 0.0
    photos[5, 47:55, 65:70] = 0.0
    photos[6, 40:42, 60:62] = 0.0
    found = object_masks(photos, *cameras(), BOX, resolution=N_CELLS)
    assert overlap(found.masks, shapes) > 0.99
    assert found.n_shadows >= 2 and found.n_openings == 0


def test_a_shadow_beside_the_hole_is_closed_and_the_hole_is_not() -> None:
    shapes = torus(0.7, 0.25)
    photos = pictures(shapes)
    y, x = np.argwhere(shapes[2])[len(np.argwhere(shapes[2])) // 8]
    photos[2, y : y + 3, x - 2 : x + 2] = 0.0
    assert overlap(object_masks(photos, *cameras(), BOX, resolution=N_CELLS).masks, shapes) > 0.985


@pytest.mark.parametrize(("background", "shape"), [(0.5, 0.9), (0.5, 0.15), (0.9, 0.2), (0.1, 0.4)])
def test_the_background_may_be_grey_or_bright(background: float, shape: float) -> None:
    shapes = torus(0.7, 0.25)
    rng = np.random.default_rng(1)
    photos = pictures(shapes, background, shape) + rng.normal(0, 0.004, (N, *SIZE, 3))
    assert overlap(object_masks(photos, *cameras(), BOX, resolution=N_CELLS).masks, shapes) > 0.97


def test_a_cloth_behind_the_object_is_background() -> None:
    """It reaches the frame, and shows through the hole."""
    shapes = torus(0.7, 0.25)
    cloth = np.zeros(SIZE, bool)
    cloth[:, 30:85] = True
    photos = np.maximum(pictures(shapes), 0.0)
    values = float(srgb_to_linear(np.float32(0.2)))
    for photo, seen in zip(photos, shapes, strict=True):
        photo[cloth & ~seen] = values
    assert overlap(object_masks(photos, *cameras(), BOX, resolution=N_CELLS).masks, shapes) > 0.97


def test_a_lamp_in_one_photo_does_not_raise_its_threshold() -> None:
    shapes = torus(0.7, 0.25)
    photos = pictures(shapes, 0.05, 0.5)
    photos[3, :, 3:12] = float(srgb_to_linear(np.float32(0.45)))
    photos[3][shapes[3] & (np.arange(SIZE[1]) > 75)] = float(srgb_to_linear(np.float32(0.3)))
    found = object_masks(photos, *cameras(), BOX, resolution=N_CELLS)
    assert iou(found.masks[3], shapes[3]) > 0.97


def test_nothing_outside_the_box_is_in_a_mask() -> None:
    shapes = torus(0.7, 0.25)
    photos = pictures(shapes)
    photos[:, 2:7, 2:100] = 0.9  # joined to nothing, or to the outline's top
    masks = object_masks(photos, *cameras(), BOX * 0.9, resolution=N_CELLS).masks
    assert not any(m[2:7, 2:15].any() for m in masks)


def test_a_strip_that_reaches_the_frame_is_no_object() -> None:
    """The square beside it keeps its hole."""
    image = np.zeros((64, 64), np.float32)
    image[:, 10:24] = 0.2
    image[20:44, 24:48] = 0.8
    image[28:36, 32:40] = 0.0
    wanted = np.zeros((64, 64), bool)
    wanted[20:44, 24:48] = True
    wanted[28:36, 32:40] = False
    for turned in range(4):
        mask = photo_mask(np.rot90(srgb_to_linear(image), turned))
        np.testing.assert_array_equal(mask > 0.5, np.rot90(wanted, turned))
    assert 0.2 < histogram_threshold(srgb_to_linear(image)) < 0.5


def test_an_object_that_reaches_the_frame_is_told() -> None:
    shapes = [np.roll(s, 50, axis=1) for s in torus(0.7, 0.25)]
    shapes[0][45:50, 60:] = True
    box = np.array([[-3.0, -3, -3], [3, 3, 3]])
    found = object_masks(pictures(shapes), *cameras(), box, resolution=N_CELLS)
    assert 0 in found.cut


def test_alpha_is_the_mask() -> None:
    image = np.ones((40, 50, 4), np.float32)
    image[..., 3] = 0.0
    image[10:20, 10:30, 3] = 1.0
    assert photo_mask(image).sum() == 200


def test_lists_of_unequal_length_and_photos_without_an_object_are_refused() -> None:
    shapes = torus(0.7, 0.25)
    ks, rs, ts = cameras()
    with pytest.raises(GraphError, match="one camera per photo"):
        object_masks(pictures(shapes), ks[:2], rs, ts, BOX)
    with pytest.raises(GraphError, match="no pixel differs"):
        object_masks(np.zeros((N, *SIZE, 3)), ks, rs, ts, BOX)
