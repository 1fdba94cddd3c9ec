"""Charts that do not touch, and texels that nothing determines, against plain searches."""

from __future__ import annotations

import builtins

import numpy as np
import pytest
from scipy.ndimage import distance_transform_edt

from dressi.errors import DressiError, GraphError
from dressi.render.fit import fill_seams, push_pull, unwrap
from dressi.render.fit.texel_system import chart_labels
from dressi.render.scene import Mesh, icosphere


def _covering(mesh: Mesh, size: int, slack: float) -> np.ndarray:
    """(F, size, size): the faces whose UVs have the texel's centre inside by more than slack."""
    centre = (np.arange(size) + 0.5) / size
    u, v = np.meshgrid(centre, centre)
    a, b, c = np.moveaxis(mesh.uvs.astype(np.float64)[mesh.uv_faces], 1, 0)[..., None, None]
    area = (b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]
    inside = np.abs(area) > 0.0
    for start, end in ((a, b), (b, c), (c, a)):
        edge = end - start
        side = edge[:, 0] * (v - start[:, 1]) - edge[:, 1] * (u - start[:, 0])
        inside = inside & (side * np.sign(area) > slack / size**2)
    return inside


@pytest.fixture(scope="module")
def ball() -> Mesh:
    pytest.importorskip("xatlas", reason="xatlas (dressi[atlas]) is not installed")
    return unwrap(icosphere(2), 96, padding_px=3)


def test_charts_lie_in_the_square_and_positions_stay(ball):
    sphere = icosphere(2)
    assert np.array_equal(ball.positions, sphere.positions)
    assert np.array_equal(ball.faces, sphere.faces)
    ball.check()
    assert ball.uvs.min() > 0.0 and ball.uvs.max() < 1.0
    assert 1 < len(np.unique(chart_labels(ball))) < len(ball.faces) // 4


def test_no_two_faces_share_a_texel(ball):
    covering = _covering(ball, 96, slack=1e-3)
    assert covering.sum(axis=0).max() == 1
    assert covering.any(axis=0).mean() > 0.25  # and the square is used


def test_charts_keep_their_padding(ball):
    covering = _covering(ball, 96, slack=-1e-9)
    labels = chart_labels(ball)
    for chart in np.unique(labels):
        own = covering[labels == chart].any(axis=0)
        others = covering[labels != chart].any(axis=0)
        assert distance_transform_edt(~own)[others].min() > 3.0


def test_texels_have_one_scale_over_the_surface(ball):
    corners, uvs = ball.positions[ball.faces], ball.uvs[ball.uv_faces]
    on_surface = np.linalg.norm(np.roll(corners, 1, 1) - corners, axis=2)
    in_atlas = np.linalg.norm(np.roll(uvs, 1, 1) - uvs, axis=2)
    ratio = in_atlas / on_surface
    assert ratio.max() / ratio.min() < 3.0


def test_the_same_mesh_has_the_same_charts(ball):
    again = unwrap(icosphere(2), 96, padding_px=3)
    assert np.array_equal(again.uvs, ball.uvs) and np.array_equal(again.uv_faces, ball.uv_faces)


def test_what_does_not_fit_is_said(ball):
    with pytest.raises(DressiError, match="do not fit 16 x 16 texels"):
        unwrap(icosphere(3), 16, padding_px=3)
    with pytest.raises(GraphError, match="padding_px"):
        unwrap(icosphere(1), 64, padding_px=0)
    with pytest.raises(GraphError, match="no face with an area"):
        unwrap(Mesh(np.zeros((3, 3)), [[0, 1, 2]]), 64)


def test_without_xatlas_the_line_to_install_is_said(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name == "xatlas":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DressiError, match=r"pip install 'dressi\[atlas\]'"):
        unwrap(icosphere(1), 64)


def test_uncovered_texels_take_the_nearest_covered_one():
    rng = np.random.default_rng(4)
    texture, covered = rng.random((9, 13, 3)), rng.random((9, 13)) > 0.9
    filled = fill_seams(texture, covered)
    rows, columns = np.nonzero(covered)
    for i in range(9):
        for j in range(13):
            apart = (rows - i) ** 2 + (columns - j) ** 2
            nearest = texture[rows[apart == apart.min()], columns[apart == apart.min()]]
            assert (np.abs(nearest - filled[i, j]).max(axis=1) < 1e-6).any()


def test_push_pull_keeps_what_is_known_and_stays_between():
    rng = np.random.default_rng(5)
    for shape in ((1, 1), (7, 16), (33, 10)):
        texture, known = rng.random((*shape, 3)), rng.random(shape) > 0.8
        known[0, 0] = True
        filled = push_pull(texture, known)
        assert np.abs(filled - texture)[known].max() < 1e-6
        values = texture[known]
        assert (filled >= values.min(axis=0) - 1e-6).all()
        assert (filled <= values.max(axis=0) + 1e-6).all()


def test_push_pull_goes_from_one_side_to_the_other_without_a_step():
    texture, known = np.zeros((32, 32, 1)), np.zeros((32, 32))
    texture[:, -1], known[:, [0, -1]] = 1.0, 1.0
    across = push_pull(texture, known)[16, :, 0]
    assert np.diff(across).min() > -1e-6
    assert np.abs(np.diff(across)).max() < 0.25, "half of it in one step would be a border"


def test_filling_refuses_what_it_cannot_fill():
    for fill in (fill_seams, push_pull):
        with pytest.raises(GraphError, match="no texel is known"):
            fill(np.zeros((4, 4, 3)), np.zeros((4, 4)))
        with pytest.raises(GraphError, match=r"\(H, W, C\)"):
            fill(np.zeros((4, 4)), np.ones((4, 4)))
