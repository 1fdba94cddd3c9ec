"""Masks: shadows closed, outlines not moved, the frame is no background; hulls of known shapes."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.errors import GraphError
from dressi.render.fit import iou
from dressi.render.io import (
    hull_cells,
    hull_mask,
    load_photos,
    object_masks,
    photo_mask,
    read_bounding_box,
    srgb_to_linear,
)


def disc(height, width, cy, cx, radius):
    y, x = np.mgrid[:height, :width]
    return ((y - cy) ** 2 + (x - cx) ** 2 <= radius**2).astype(float)


def test_outline_of_a_sharp_object_is_not_moved():
    truth = disc(100, 120, 50, 60, 30)
    mask = photo_mask(0.6 * truth)
    assert mask.dtype == np.float32 and set(np.unique(mask)) == {0.0, 1.0}
    assert iou(mask, truth) > 0.995


def test_outline_of_a_blurred_object_lies_at_half_of_its_brightness():
    from scipy import ndimage

    truth = disc(100, 120, 50, 60, 30)
    blurred = ndimage.gaussian_filter(0.6 * truth, 1.5)
    assert iou(photo_mask(blurred), truth) > 0.99
    assert iou(photo_mask(blurred, edge_px=0.0), truth) < 0.95


def test_threshold_is_an_srgb_value():
    truth = disc(60, 60, 30, 30, 15)
    dark = truth * float(srgb_to_linear(0.2))
    assert iou(photo_mask(dark, 0.19), truth) > 0.99
    with pytest.raises(GraphError, match=r"differs from the background by 0\.21"):
        photo_mask(dark, 0.21)
    assert iou(photo_mask(truth * 0.2, 0.19, linear=False), truth) > 0.99


def test_shadow_holes_are_filled_and_large_openings_can_be_kept():
    truth = disc(100, 100, 50, 50, 40)
    image = truth - disc(100, 100, 50, 50, 20)
    assert iou(photo_mask(image, fill_holes=True), truth) > 0.99
    assert iou(photo_mask(image, fill_holes=True, max_hole_px=500), image) > 0.97
    assert iou(photo_mask(image), image) > 0.97


def test_narrow_shadow_open_to_the_background_is_closed():
    truth = disc(100, 100, 50, 50, 40)
    image = truth.copy()
    image[48:52, 50:] = 0.0
    assert photo_mask(image, dilate_px=5, erode_px=5)[50, 60:80].all()
    assert not photo_mask(image)[50, 60:80].any()


def test_small_bright_specks_are_dropped():
    image = disc(80, 80, 40, 40, 20)
    image[2:5, 2:5] = 1.0
    assert not photo_mask(image)[:10, :10].any()


def test_object_that_leaves_the_frame_is_not_eroded_from_the_border():
    image = disc(60, 80, 0, 40, 30)
    mask = photo_mask(image, dilate_px=0, erode_px=4, edge_px=0)
    assert mask[0, 20:60].all()
    assert not mask[0, 8:12].any()  # eroded from its own outline


def test_dark_pocket_at_the_border_is_background():
    image = np.zeros((60, 80))
    image[:40, 10:70] = 1.0
    image[:20, 30:50] = 0.0  # enclosed by the object and the frame
    assert not photo_mask(image)[:14, 34:46].any()


@pytest.mark.parametrize(
    ("image", "options", "word"),
    [
        (np.zeros((5, 5, 3)), {}, "no pixel"),
        (np.full((5, 5, 3), np.nan), {}, "NaN"),
        (np.zeros(5), {}, r"\(5,\)"),
        (np.ones((5, 5)), {"dilate_px": -1}, "radii"),
        (disc(20, 20, 10, 10, 3), {"erode_px": 9}, "leaves nothing"),
    ],
)
def test_bad_photos_are_refused(image, options, word):
    with pytest.raises(GraphError, match=word):
        photo_mask(image, **options)


def cameras_around(n):
    """n OpenCV cameras 4 away on a circle, 256 x 192 pixels, looking at the origin."""
    k = np.array([[320.0, 0, 127.5], [0, 320.0, 95.5], [0, 0, 1]])
    for i in range(n):
        a = np.pi * i / n
        r = np.array([[np.cos(a), 0, -np.sin(a)], [0, 1, 0], [np.sin(a), 0, np.cos(a)]])
        yield k, r, np.array([0.0, 0.0, 4.0])


def test_hull_of_a_ball_is_the_ball_and_projects_back():
    bbox = np.array([[-1.0, -1, -1], [1, 1, 1]])
    ks, rs, ts = zip(*cameras_around(8), strict=True)
    # the outline of a ball of radius 0.9 at distance 4: tan = 0.9 / sqrt(16 - 0.81)
    masks = [disc(192, 256, 95.5, 127.5, 320 * 0.9 / np.sqrt(16 - 0.81))] * 8
    hull = hull_cells(masks, ks, rs, ts, bbox, 48)
    center = (np.mgrid[:48, :48, :48] + 0.5) / 24 - 1
    ball = (center**2).sum(axis=0) < 0.81
    core = (center**2).sum(axis=0) < 0.88**2
    assert hull[core].all(), "never less than the object"
    assert hull.sum() < 1.3 * ball.sum()
    assert iou(hull_mask(hull, bbox, ks[0], rs[0], ts[0], (256, 192)), masks[0]) > 0.93
    assert not hull_mask(hull & False, bbox, ks[0], rs[0], ts[0], (256, 192)).any()


def test_hull_is_not_carved_by_what_a_camera_does_not_see():
    bbox = np.array([[-9.0, -9, -9], [9, 9, 9]])  # reaches behind the camera and out of the frame
    k, r, t = next(cameras_around(1))
    empty = hull_cells([np.zeros((192, 256))], [k], [r], [t], bbox, 18)
    full = hull_cells([np.ones((192, 256))], [k], [r], [t], bbox, 18)
    assert full.all() and 0 < empty.sum() < full.sum()
    assert empty[:, :, :4].all(), "behind the camera"


def test_hull_refuses_lists_of_different_length_and_empty_boxes():
    k, r, t = next(cameras_around(1))
    with pytest.raises(GraphError, match="2 masks, 1 Ks"):
        hull_cells([np.ones((4, 4))] * 2, [k], [r], [t], np.eye(2, 3), 4)
    with pytest.raises(GraphError, match="empty box"):
        hull_cells([np.ones((4, 4))], [k], [r], [t], np.zeros((2, 3)), 4)


@pytest.mark.slow
def test_dino_masks_agree_with_each_other(shared_data):
    """The hull of all 16 covers each mask; a held-out mask lies inside the others' hull."""
    folder = shared_data / "dino"
    if not folder.is_dir():
        pytest.skip("shared/data/dino is absent")
    photos = load_photos(folder, folder / "dinoSR_par.txt")
    bbox = read_bounding_box(folder / "README.txt")
    rows = [(p.image, p.K, p.R, p.t) for p in photos]
    masks = object_masks(*zip(*rows, strict=True), bbox).masks

    def hull_of(keep):
        rows = [(masks[i], photos[i].K, photos[i].R, photos[i].t) for i in keep]
        return hull_cells(*zip(*rows, strict=True), bbox, 128)

    def reproject(hull, i):
        return hull_mask(hull, bbox, photos[i].K, photos[i].R, photos[i].t, (640, 480))

    everything = hull_of(range(16))
    assert np.mean([iou(reproject(everything, i), masks[i]) for i in range(0, 16, 3)]) > 0.95
    held = hull_of([i for i in range(16) if i not in (4, 11)])
    for i in (4, 11):
        shadow, mask = reproject(held, i) > 0.5, masks[i] > 0.5
        assert (mask & ~shadow).sum() < 0.03 * mask.sum(), "the others carve what this one shows"
        assert iou(shadow, mask) > (0.83 if i == 4 else 0.93)  # the rest is the 47 degree gap
