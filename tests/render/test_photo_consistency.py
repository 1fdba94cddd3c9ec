"""Patches of a surface in photos: scores where it lies, before and behind it; offsets of a mesh."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from dressi.errors import GraphError
from dressi.render.camera import look_at, perspective
from dressi.render.fit import GreyPhotos, consistent_offsets, grey_photos, patch_scores
from dressi.render.fit.consistent_offsets import thickness
from dressi.render.scene import Mesh, icosphere

Floats = npt.NDArray[np.float64]

SIZE = 160
WAVES = np.random.default_rng(4)
WAVE = WAVES.normal(size=(24, 3)) * 9.0
PHASE = WAVES.uniform(0.0, 2.0 * np.pi, 24)


def marbled(places: Floats) -> Floats:
    """Brightness of a solid texture, waves a tenth of a unit and more long, in [0.1, 0.9]."""
    return np.asarray(0.5 + 0.4 * np.tanh(np.sin(places @ WAVE.T + PHASE).sum(-1) / 4.0))


def cameras(n: int = 12) -> Floats:
    """n views around the y axis, from two heights."""
    found = []
    for k in range(n):
        turn, height = 2.0 * np.pi * k / n, 0.3 if k % 2 else -0.2
        eye = 4.0 * np.array([np.sin(turn), height, np.cos(turn)]) / np.hypot(1.0, height)
        view = look_at(eye, (0.0, 0.0, 0.0), (0.0, 1.0, 0.0))
        found.append(perspective(34.0, 1.0, 1.0, 8.0) @ view)
    return np.stack(found)


def ball_photos(
    matrices: Floats, contrast: float = 1.0, gain: npt.ArrayLike = 1.0, noise: float = 0.0
) -> tuple[Floats, Floats]:
    """Photos (n, H, W, 3) of the unit ball, and its masks, by intersecting rays."""
    at = (np.arange(SIZE) + 0.5) / SIZE * 2.0 - 1.0
    x, y = np.meshgrid(at, at)
    colour, cover = [], []
    for matrix in matrices:
        inverse = np.linalg.inv(matrix)
        ends = [
            np.stack([x, y, np.full_like(x, z), np.ones_like(x)], -1) @ inverse.T for z in (0, 1)
        ]
        near, far = (e[..., :3] / e[..., 3:] for e in ends)
        way = far - near
        way /= np.linalg.norm(way, axis=-1, keepdims=True)
        half = (near * way).sum(-1)
        square = half**2 - (near**2).sum(-1) + 1.0
        hit = square > 0.0
        place = near + (-half - np.sqrt(np.maximum(square, 0.0)))[..., None] * way
        value = 0.5 + contrast * (marbled(place) - 0.5)
        colour.append(np.where(hit, value, 0.0))
        cover.append(hit)
    images = np.stack(colour) * np.reshape(np.asarray(gain, float), (-1, 1, 1))
    images = images + np.random.default_rng(0).normal(0.0, max(noise, 1e-9), images.shape)
    masks = np.stack(cover)[..., None].astype(float)
    return np.repeat(images[..., None], 3, -1) * masks, masks


def photos(contrast: float = 1.0, noise: float = 0.004, n: int = 12) -> GreyPhotos:
    matrices = cameras(n)
    colour, masks = ball_photos(matrices, contrast, noise=noise)
    return grey_photos(colour, masks, matrices, spacing_px=1.5)


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
    clear = scores[0] > 0.9
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


def dented_outwards(height: float) -> Mesh:
    """The ball with a bump of that height in front, 0.5 wide."""
    ball = icosphere(4)
    away = np.linalg.norm(ball.positions - [0.0, 0.0, 1.0], axis=1)
    bump = height * np.clip(1.5 - away / 0.5, 0.0, 1.0)
    return replace(ball, positions=(ball.positions * (1.0 + bump[:, None])).astype(np.float32))


def test_what_is_too_full_moves_to_where_the_object_is() -> None:
    mesh = dented_outwards(0.1)
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
    found = consistent_offsets(dented_outwards(0.1), photos(contrast), 0.2)
    assert np.abs(found.distances).max() < 0.005


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
