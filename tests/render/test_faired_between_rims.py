"""Between rims a surface bends as little as it can; on them it stays at the outlines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dressi.errors import GraphError
from dressi.render.camera import ring
from dressi.render.fit import faired_between_rims, remesh, visual_hull
from dressi.render.fit.silhouettes import distances_in_views, silhouettes
from dressi.render.scene import Mesh, surface_problems

SIZE = 96
RADIUS = 0.8


def ball_views(n: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Masks of a ball of RADIUS and matrices, from a ring at two heights."""
    matrices = np.stack([c.matrix for c in ring(n, 4.0, (-15.0, 25.0), fov_y_deg=35.0)])
    x, y = np.meshgrid(*[(np.arange(4 * SIZE) + 0.5) / (2 * SIZE) - 1.0] * 2)
    reach = np.tan(np.radians(17.5)) * np.hypot(x, y)
    mask = (4.0 * reach / np.hypot(1.0, reach) < RADIUS).astype(np.float32)
    small = mask.reshape(SIZE, 4, SIZE, 4).mean((1, 3))
    return np.tile(small[..., None], (len(matrices), 1, 1, 1)), matrices


def even_hull(masks: np.ndarray, matrices: np.ndarray) -> Mesh:
    hull = visual_hull(masks, matrices, resolution=48)
    return remesh(hull, np.full(len(hull.positions), 0.09))


Given = tuple[np.ndarray, np.ndarray, Mesh]


@pytest.fixture(scope="module")
def ball() -> Given:
    """Masks, matrices, and the even hull; none is written to."""
    masks, matrices = ball_views()
    hull = even_hull(masks, matrices)
    for given in (masks, matrices, hull.positions, hull.faces):
        given.flags.writeable = False
    return masks, matrices, hull


def off_ball(mesh: Mesh) -> float:
    return float(np.abs(np.linalg.norm(mesh.positions, axis=1) - RADIUS).mean())


def test_ridges_of_a_hull_between_rims_become_round(ball: Given) -> None:
    masks, matrices, hull = ball
    made = faired_between_rims(hull, masks, matrices)
    assert off_ball(made) < 0.35 * off_ball(hull)
    problems = surface_problems(made)
    assert problems.is_closed and problems.is_embedded and len(problems.flipped_faces) == 0


def test_rims_stay_at_the_outlines(ball: Given) -> None:
    masks, matrices, hull = ball
    made = faired_between_rims(hull, masks, matrices)
    views = silhouettes("test", masks, matrices, 0.7)
    away, _, _, pixel = distances_in_views(views, made.positions.astype(np.float64))
    assert away.min() > -0.6  # the slack, and what pixels round
    middle = SIZE / 2.0
    for one, place in zip(away, pixel, strict=True):  # all around, something reaches the outline
        angle = np.arctan2(*(place - middle).T)
        sector = np.floor((angle + np.pi) / (2.0 * np.pi) * 24).clip(0, 23).astype(int)
        nearest = [np.abs(one[sector == k]).min() for k in range(24)]
        assert max(nearest) < 1.0


def test_flat_sides_do_not_bulge_and_do_not_sink() -> None:
    half = np.array([0.7, 0.5, 0.6])
    matrices = np.stack([c.matrix for c in ring(8, 4.0, (-15.0, 25.0), fov_y_deg=35.0)])
    corners = half * (np.indices((2, 2, 2)).reshape(3, -1).T * 2.0 - 1.0)
    masks = np.stack([_convex(corners, m) for m in matrices])[..., None].astype(np.float32)
    hull = even_hull(masks, matrices)
    made = faired_between_rims(hull, masks, matrices)
    assert _volume(made) == pytest.approx(_volume(hull), rel=0.05)


def test_a_view_without_weights_says_nothing(ball: Given) -> None:
    masks, matrices, hull = ball
    wrong, weights = masks.copy(), np.ones_like(masks)
    wrong[0, :, SIZE // 2 :] = 0.0
    weights[0] = 0.0
    right = faired_between_rims(hull, masks[1:], matrices[1:])
    made = faired_between_rims(hull, wrong, matrices, weights)
    np.testing.assert_allclose(made.positions, right.positions, atol=1e-5)
    believed = faired_between_rims(hull, wrong, matrices)
    assert np.abs(believed.positions - right.positions).max() > 1e-3
    assert off_ball(believed) < 2.0 * off_ball(right)  # it stood out before: nothing is cut off


def test_errors(ball: Given) -> None:
    masks, matrices, hull = ball
    with pytest.raises(GraphError, match="weights must be"):
        faired_between_rims(hull, masks, matrices, masks[:, 1:])
    with pytest.raises(GraphError, match="need matrices"):
        faired_between_rims(hull, masks, matrices[1:])
    with pytest.raises(GraphError):
        faired_between_rims(replace(hull, faces=hull.faces + 10**6), masks, matrices)


def _convex(corners: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Which pixel centres lie in the convex outline of points."""
    clip = corners @ matrix[:, :3].T + matrix[:, 3]
    points = (clip[:, :2] / clip[:, 3:] + 1.0) / 2.0 * SIZE
    y, x = np.mgrid[:SIZE, :SIZE] + 0.5
    inside = np.ones((SIZE, SIZE), bool)
    for a in points:
        for b in points:
            along = b - a
            side = along[0] * (points[:, 1] - a[1]) - along[1] * (points[:, 0] - a[0])
            if np.abs(along).max() > 0.0 and side.min() > -1e-9:
                inside &= along[0] * (y - a[1]) - along[1] * (x - a[0]) >= 0.0
    return inside


def _volume(mesh: Mesh) -> float:
    a, b, c = np.moveaxis(mesh.positions.astype(np.float64)[mesh.faces], 1, 0)
    return float(np.einsum("ij,ij->", a, np.cross(b, c)) / 6.0)
