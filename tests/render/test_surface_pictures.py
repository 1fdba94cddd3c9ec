"""Pictures of surfaces with known colours."""

from __future__ import annotations

import numpy as np
import pytest

from dressi import DressiAD
from dressi.errors import GraphError
from dressi.render.camera import look_at, orthographic, perspective
from dressi.render.fit import rows_of, surface_pictures, view_rasters
from dressi.render.io import heat_bar, heat_colors, linear_to_srgb
from dressi.render.scene import Mesh, icosphere


def test_heat_goes_from_pale_to_dark_and_stops_at_the_limit():
    colors = heat_colors(np.linspace(0.0, 3.0, 7), 2.0)
    assert np.array_equal(colors[4], colors[6])
    light = colors @ [0.2126, 0.7152, 0.0722]
    assert light[0] > 3.0 * light[4]
    assert len(np.unique(colors[:5].round(4), axis=0)) == 5
    for bad in (lambda: heat_colors(0.0, 0.0), lambda: heat_bar(1.0, "mm", (10, 10))):
        with pytest.raises(GraphError):
            bad()


def test_a_heat_bar_shows_its_colours_and_its_figures():
    bar = heat_bar(2.0, "% of the diagonal", (300, 60))
    assert bar.shape == (60, 300, 3)
    assert np.allclose(bar[5], heat_colors(np.linspace(0.0, 2.0, 300), 2.0))
    assert bar[-15:].min() < 0.2 and bar[-30:-15].min() < 0.2, "figures, then the unit"


def _view(eye: tuple[float, float, float]) -> np.ndarray:
    return perspective(40.0, 1.0, 0.5, 10.0) @ look_at(eye, (0, 0, 0), (0, 1, 0))


@pytest.mark.gpu
def test_rasters_name_the_face_and_the_place_of_each_pixel(ad: DressiAD):
    mesh = icosphere(1)
    matrices = np.stack([_view((0, 0, 3)), _view((3, 0.5, 0))])
    for raster, matrix in zip(view_rasters(ad, mesh, matrices, (40, 30)), matrices, strict=True):
        places = raster.interpolate(mesh.positions, mesh.faces)
        shown = raster.ids >= 0
        assert 0.2 < shown.mean() < 0.8 and not places[~shown].any()
        clip = places[shown] @ matrix[:, :3].T + matrix[:, 3]
        at = (clip[:, :2] / clip[:, 3:] + 1.0) * 0.5 * [40, 30]
        rows, columns = np.nonzero(shown)
        # Weights are float32, of places up to 40 pixels apart.
        assert at == pytest.approx(np.stack([columns, rows], axis=1) + 0.5, abs=1e-3)


@pytest.mark.gpu
def test_pictures_have_the_colours_of_what_they_show(ad: DressiAD):
    """A sphere from +X: in the middle its normal looks at the eye, at the top it looks up."""
    mesh = icosphere(3)
    texture = np.full((4, 4, 3), [0.2, 0.4, 0.6], np.float32)
    matrix = orthographic(2.2, 2.2, 0.5, 10.0) @ look_at((4, 0, 0), (0, 0, 0), (0, 1, 0))
    height = mesh.positions[:, 1].astype(np.float64) + 1.0
    got = surface_pictures(ad, mesh, matrix[None], (66, 66), height, 2.0, texture)
    normals = linear_to_srgb(got.normals[0])
    # Normals turn by a degree or two per pixel: 0.02 of the values.
    assert normals[33, 33] == pytest.approx([0.5, 0.5, 1.0], abs=0.03)
    assert normals[5, 33, 1] > 0.93 and normals[60, 33, 1] < 0.07
    assert normals[33, 60, 0] > 0.93 and normals[33, 5, 0] < 0.07
    assert got.texture[0, 20:46, 20:46] == pytest.approx(
        np.broadcast_to(texture[0, 0], (26, 26, 3)), abs=1e-5
    )
    for stack in rows_of(got).values():
        assert np.asarray(stack[0])[0, 0] == pytest.approx(1.0), "white background"
    for row, value in ((10, 1.7), (33, 1.0), (56, 0.3)):
        drawn, want = got.error[0, row, 33], heat_colors(value, 2.0)
        shade = drawn / np.maximum(want, 0.02)
        assert (drawn <= want + 0.05).all() and shade.max() > 0.6
    shaded = got.shaded[0, ..., 0]
    assert shaded[20, 22] > shaded[50, 50] > 0.0, "the light is at the upper left"


@pytest.mark.gpu
def test_a_wire_frame_has_lines_along_edges_and_none_within_faces(ad: DressiAD):
    places = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]])
    square = Mesh(places, [[0, 1, 2], [0, 2, 3]])
    got = surface_pictures(ad, square, _view((0, 0, 4))[None], (80, 80))
    shaded, wire = got.shaded[0, ..., 0], got.wire[0, ..., 0]
    ratio = wire / shaded
    k = np.arange(20, 60)
    assert ratio[k, 79 - k].max() < 0.7, "the diagonal from the lower left"
    assert ratio[50, 60] == pytest.approx(1.0) and ratio[30, 20] == pytest.approx(1.0)


@pytest.mark.gpu
def test_pictures_refuse_what_does_not_fit(ad: DressiAD):
    mesh, matrix = icosphere(1), _view((0, 0, 4))[None]
    plain = Mesh(mesh.positions, mesh.faces)
    for word, call in (
        ("value per vertex", lambda: surface_pictures(ad, mesh, matrix, (8, 8), np.zeros(3))),
        (
            "no uvs",
            lambda: surface_pictures(ad, plain, matrix, (8, 8), None, 1.0, np.ones((2, 2, 3))),
        ),
        (r"\(views, 4, 4\)", lambda: surface_pictures(ad, mesh, matrix[0], (8, 8))),
    ):
        with pytest.raises(GraphError, match=word):
            call()
