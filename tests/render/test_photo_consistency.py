"""Patches of a surface in photos: scores where it lies, before and behind it; offsets of a mesh."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from dressi.errors import GraphError
from dressi.render.fit import consistent_offsets, grey_photos, patch_scores
from dressi.render.fit.consistent_offsets import _beyond, thickness
from dressi.render.fit.photo_consistency import pixel_sizes
from dressi.render.scene import icosphere
from tests.helpers.marbled_ball import Floats, ball_photos, cameras, photos, with_bump


def facing() -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Points of the ball's front, and which views see them."""
    points = icosphere(2).positions.astype(np.float64)
    # Further up and down no pair sees the patches at 73 degrees or less.
    points = points[(points[:, 2] > 0.5) & (np.abs(points[:, 1]) < 0.5)]
    eyes = np.linalg.svd(cameras()[:, [0, 1, 3]])[2][:, 3]
    eyes = eyes[:, :3] / eyes[:, 3:]
    return points, np.einsum("vk,nk->vn", eyes, points) > 1.0


@pytest.mark.parametrize("too_far", [-0.06, 0.0, 0.12])
def test_patches_are_alike_where_the_surface_is(too_far: float) -> None:
    points, seen = facing()
    offsets = np.linspace(-0.1, 0.2, 31)
    scores = patch_scores(photos(), points * (1.0 + too_far), points, seen, offsets)
    best = offsets[np.nanargmax(scores, axis=1)]
    # A step is 0.01; of 27 patches two lie where the texture is plain.
    assert (np.abs(best - too_far) < 0.015).mean() > 0.9
    here = np.abs(offsets - too_far).argmin()
    assert np.median(scores[:, here]) > 0.9 and np.median(scores[:, here - 8]) < 0.5


def test_gain_and_bias_leave_the_score_as_it_is() -> None:
    points, seen = facing()
    matrices = cameras()
    scores = []
    for gain in (1.0, np.linspace(1.0, 2.0, 12)):
        colour, masks = ball_photos(matrices, gain=gain)
        scores.append(
            patch_scores(grey_photos(colour, masks, matrices), points, points, seen, np.zeros(1))
        )
    # But for the noise's share of contrast, which the gain changes: least where there is much.
    clear = scores[0] > 0.95
    assert clear.mean() > 0.5 and np.allclose(scores[0][clear], scores[1][clear], atol=0.03)


def test_what_has_no_texture_has_no_score() -> None:
    points, seen = facing()
    offsets = np.linspace(-0.1, 0.2, 11)
    scores = patch_scores(photos(contrast=0.0), points, points, seen, offsets)
    assert np.nanmax(scores) < 0.35 and abs(np.nanmean(scores)) < 0.1


def test_offsets_beyond_the_silhouettes_and_single_views_have_no_score() -> None:
    points, seen = facing()
    assert np.isnan(patch_scores(photos(), points, points, seen & False, np.zeros(2))).all()
    one = seen & (np.arange(12) == 0)[:, None]
    assert np.isnan(patch_scores(photos(), points, points, one, np.zeros(2))).all()
    out = patch_scores(photos(), points, points, seen, np.array([0.0, -1.0]))
    assert np.isnan(out[:, 1]).all() and np.isfinite(out[:, 0]).mean() > 0.9


def test_what_is_too_full_moves_to_where_the_object_is() -> None:
    mesh = with_bump(0.1)
    found = consistent_offsets(mesh, photos(), 0.2)
    away = [
        np.abs(np.linalg.norm(p, axis=1) - 1.0)
        for p in (mesh.positions, found.moved(mesh.positions))
    ]
    bump = away[0] > 0.05
    assert away[1][bump].mean() < 0.2 * away[0][bump].mean()
    assert np.nanmean(found.best[bump]) > np.nanmean(found.scores[bump]) + 0.3
    # What was right stays.
    assert away[1][away[0] < 0.001].max() < 0.03 and away[1][away[0] < 0.001].mean() < 0.002


@pytest.mark.parametrize("contrast", [0.0, 0.01])
def test_without_texture_nothing_moves(contrast: float) -> None:
    found = consistent_offsets(with_bump(0.1), photos(contrast), 0.2)
    assert np.abs(found.distances).max() < 0.005


def test_a_highlight_is_not_taken_for_a_surface() -> None:
    matrices = cameras()
    colour, masks = ball_photos(matrices, 0.02, noise=0.002, gloss=0.4)
    glossy = grey_photos(colour, masks, matrices, spacing_px=1.5)
    found = consistent_offsets(icosphere(4), glossy, 0.2)
    assert np.abs(found.distances).max() < 0.03 and np.abs(found.distances).mean() < 0.002


def test_a_score_that_rises_up_to_the_last_offset_has_no_peak() -> None:
    scores = np.array([[0.1, 0.2, 0.3, 0.9, 0.4, 0.5], [0.1, 0.2, 0.3, 0.4, 0.5, 0.9]])
    scores = np.concatenate([scores, np.full((1, 6), np.nan)])
    offsets = np.arange(-1.0, 5.0)
    beyond = _beyond(scores, offsets, np.array([2.0, 4.0, 0.0]))
    np.testing.assert_array_equal(beyond, [0.5, 0.9, np.nan])


def test_sides_that_are_near_do_not_meet() -> None:
    flat = icosphere(3)
    flat = replace(flat, positions=(flat.positions * [1.0, 1.0, 0.05]).astype(np.float32))
    normals = flat.positions / np.array([1.0, 1.0, 0.05]) ** 2
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    middle = np.linalg.norm(flat.positions[:, :2], axis=1) < 0.3
    found = thickness(flat.positions.astype(np.float64), normals.astype(np.float64))[middle]
    assert (found >= 0.095).all() and (found < 0.15).all()


def test_photos_that_do_not_fit_are_named() -> None:
    images = np.zeros((2, 4, 4, 3))
    with pytest.raises(GraphError, match=r"coverage \(views, H, W, 1\)"):
        grey_photos(images, np.zeros((2, 4, 4)), np.stack([np.eye(4)] * 2))
    with pytest.raises(GraphError, match="2 photos but matrices"):
        grey_photos(images, np.zeros((2, 4, 4, 1)), np.eye(4)[None])
    with pytest.raises(GraphError, match="spacing_px must be above 0"):
        grey_photos(images, np.zeros((2, 4, 4, 1)), np.stack([np.eye(4)] * 2), spacing_px=0.0)
    with pytest.raises(GraphError, match="reach must be above 0"):
        consistent_offsets(icosphere(1), photos(), 0.0)


def test_the_size_of_a_pixel_does_not_depend_on_how_far_a_lens_is_shifted() -> None:
    ball = photos()
    for shift in (0.0, 2.0):
        shifted = np.eye(4)
        shifted[0, 3] = shift
        matrix = shifted @ ball.matrices[:1]
        one = replace(ball, matrices=matrix, values=ball.values[:1])
        p = np.array([[0.3, 0.2, 0.1]])
        # The way along which the distance ahead stays the same and rows do, too.
        across = np.cross(matrix[0, 1, :3], matrix[0, 3, :3])
        across *= 1e-4 / np.linalg.norm(across)
        clip = np.concatenate([p, p + across]) @ matrix[0, :, :3].T + matrix[0, :, 3]
        columns = clip[:, 0] / clip[:, 3] / 2.0 * ball.values.shape[2]
        assert np.isclose(pixel_sizes(one, p)[0, 0], 1e-4 / abs(columns[1] - columns[0]), rtol=1e-3)
