"""Textures solved from pictures: known ones come back, hidden and mixed pixels take no part."""

from __future__ import annotations

import numpy as np
import pytest

from dressi import DressiAD, F, evaluate
from dressi.ad import VEC2, VEC3
from dressi.errors import GraphError
from dressi.render.camera import look_at, perspective
from dressi.render.fit import bake_texture, chart_texels, psnr
from dressi.render.fit.texel_system import (
    conjugate_gradients,
    neighbour_differences,
    reads,
    seam_differences,
)
from dressi.render.scene import Mesh, icosphere
from dressi.testing.views import render, surround_views


def _places(mesh: Mesh, size: tuple[int, int]) -> np.ndarray:
    """(texels, 3): the place of each texel on the plane of the face nearest in the atlas."""
    u, v = (np.arange(n) + 0.5 for n in size)
    texel = np.stack(np.meshgrid(u / size[0], v / size[1]), axis=-1).reshape(-1, 2)
    a, b, c = np.moveaxis(mesh.uvs.astype(np.float64)[mesh.uv_faces], 1, 0)
    edges = np.linalg.inv(np.stack([b - a, c - a], axis=2))
    weights = np.einsum("fij,ftj->fti", edges, texel[None] - a[:, None])
    weights = np.concatenate([1 - weights.sum(axis=2, keepdims=True), weights], axis=2)
    face = weights.min(axis=2).argmax(axis=0)
    corners = mesh.positions.astype(np.float64)[mesh.faces[face]]
    return np.einsum("ti,tij->tj", weights[face, np.arange(len(face))], corners)


def _waves(mesh: Mesh, size: tuple[int, int]) -> np.ndarray:
    """A texture in [0.1, 0.9] without seams: waves over the surface, a radius long."""
    waves = np.sin(6.0 * _places(mesh, size) + [0.3, 1.1, 2.0])
    return (0.5 + 0.4 * waves).reshape(size[1], size[0], 3).astype(np.float32)


def _square(z: float, side: float) -> tuple[np.ndarray, np.ndarray]:
    places = np.array([[-1, 1, 0], [-1, -1, 0], [1, -1, 0], [1, 1, 0]]) * side + [0, 0, z]
    return places, np.array([[0, 1, 2], [0, 2, 3]])


def _two_squares() -> Mesh:
    """A large square at z = 0, left half of the atlas; a small one before it, right half."""
    (far, faces), (near, _) = _square(0.0, 1.0), _square(1.0, 0.3)
    unit = np.array([[0, 0], [0, 1], [1, 1], [1, 0]]) * 0.8 + 0.1
    uvs = np.concatenate([unit * [0.5, 1.0], unit * [0.5, 1.0] + [0.5, 0.0]])
    return Mesh(np.concatenate([far, near]), np.concatenate([faces, faces + 4]), uvs)


def _front() -> np.ndarray:
    return perspective(50.0, 1.0, 0.5, 10.0) @ look_at((0, 0, 3.5), (0, 0, 0), (0, 1, 0))


def test_a_row_reads_what_a_texture_op_reads():
    rng = np.random.default_rng(0)
    texture, uv = rng.random((5, 7, 3)), rng.uniform(-0.1, 1.1, (40, 2))
    at = F.leaf(uv.reshape(40, 1, 2), VEC2, "uv")
    drawn = F.texture(F.leaf(texture, VEC3, "texture"), at, wrap="clamp")
    want = np.asarray(evaluate([drawn], {})[0], np.float64).reshape(40, 3)
    got = reads(uv[:, None], (7, 5)) @ texture.reshape(35, 3)
    assert np.abs(got - want).max() < 1e-5  # float32 places of up to 7 texels


def test_conjugate_gradients_agree_with_a_dense_solver():
    rng = np.random.default_rng(1)
    from scipy.sparse import csr_matrix

    a = rng.normal(size=(30, 12))
    matrix = np.zeros((13, 13))
    matrix[:12, :12] = a.T @ a
    rhs, start = rng.normal(size=(13, 2)), np.full((13, 2), 7.0)
    got = conjugate_gradients(csr_matrix(matrix), rhs, start, 100, 1e-12)
    assert got[:12] == pytest.approx(np.linalg.solve(matrix[:12, :12], rhs[:12]), abs=1e-8)
    assert (got[12] == 7.0).all(), "what nothing determines stays"


def test_a_colour_that_is_linear_over_the_surface_has_no_seams():
    """Positions read on both sides of a seam are one place."""
    mesh, size = icosphere(2), (128, 96)
    seams = seam_differences(mesh, size)
    texel_length = 1.0 / 30.0  # about a cube side of 2 on 40 texels
    assert seams.shape[0] > 100
    assert np.abs(seams @ _places(mesh, size)).max() < texel_length
    assert np.abs(seams @ np.ones(128 * 96)).max() < 1e-12


@pytest.mark.gpu
def test_neighbours_differ_within_a_chart_only(ad: DressiAD):
    mesh = _two_squares()
    charts = chart_texels(ad, mesh, (40, 20))
    pairs = neighbour_differences(charts, mesh)
    left_is_one = np.where(np.arange(40) < 20, 1.0, 0.0) * np.ones((20, 1))
    assert pairs.shape[0] > 400
    assert np.abs(pairs @ left_is_one.ravel()).max() == 0.0
    assert np.abs(pairs @ np.tile(np.arange(40.0), 20)).max() == 1.0


@pytest.mark.gpu
def test_a_known_texture_comes_back_from_its_pictures(ad: DressiAD):
    mesh = icosphere(2)
    texture = _waves(mesh, (96, 96))
    matrices = np.stack([c.matrix for c in surround_views(10)])
    coverage, colours = render(mesh, matrices, (96, 96), texture, 2)
    got, seen = bake_texture(
        ad, mesh, colours, coverage, matrices, (96, 96), smoothness=1e-4, supersample=2
    )
    assert seen.mean() > 0.6
    # Chart borders aside every texel is read by pixels; the rest of the error is the prior's.
    assert np.abs(got - texture)[seen].mean() < 0.01
    others = np.stack([c.matrix for c in surround_views(7)])[1:6]
    _, want = render(mesh, others, (96, 96), texture, 2)
    mask, drawn = render(mesh, others, (96, 96), got, 2)
    stack = (5 * 96, 96, 3)
    assert psnr(drawn.reshape(stack), want.reshape(stack), mask.reshape(stack[:2]) == 1.0) > 35.0


@pytest.mark.gpu
def test_a_hidden_part_takes_nothing_from_what_hides_it(ad: DressiAD):
    mesh = _two_squares()
    texture = np.zeros((32, 64, 3), np.float32)
    texture[:, :32, 0], texture[:, 32:, 2] = 0.8, 0.6  # red behind, blue before
    coverage, colours = render(mesh, _front()[None], (64, 64), texture, 2)
    got, seen = bake_texture(ad, mesh, colours, coverage, _front()[None], (64, 32))
    behind, before = got[4:-4, 4:28], got[4:-4, 36:60]
    assert behind == pytest.approx(np.broadcast_to([0.8, 0, 0], behind.shape), abs=0.02)
    assert before == pytest.approx(np.broadcast_to([0, 0, 0.6], before.shape), abs=0.02)
    assert not seen[16, 16] and seen[16, 48] and seen[5, 6]


@pytest.mark.gpu
def test_pixels_mixed_with_the_background_take_no_part(ad: DressiAD):
    """A white square over black: its outline is grey in the picture and white in the texture."""
    places, faces = _square(0.0, 1.0)
    uvs = np.array([[0, 0], [0, 1], [1, 1], [1, 0]]) * 0.9 + 0.05
    mesh = Mesh(places, faces, uvs)
    white = np.ones((24, 24, 3), np.float32)
    coverage, colours = render(mesh, _front()[None], (48, 48), white, 3)
    assert ((colours > 0.1) & (colours < 0.9)).any(), "the picture has grey pixels"
    got, _ = bake_texture(ad, mesh, colours, coverage, _front()[None], (24, 24), supersample=3)
    assert got.min() > 0.999
    # A mask alone is enough: pixels out of it hold anything.
    mask = coverage.copy()
    mask[:, :, 24:] = 0.0
    spoilt = np.where(mask > 0.99, colours, 0.3)
    got, seen = bake_texture(ad, mesh, spoilt, mask, _front()[None], (24, 24))
    assert got.max() <= 1.0 and got.min() > 0.98 and not seen[:, 14:].any()


@pytest.mark.gpu
def test_unseen_texels_are_filled_along_the_surface(ad: DressiAD):
    """One view of a sphere that is dark below and light above; the far side follows."""
    mesh = icosphere(3)
    matrix = surround_views(9)[4].matrix[None]
    coverage, shown = render(mesh, matrix, (64, 64), np.full((8, 8, 3), 0.5, np.float32), 1)
    rows = np.linspace(0.9, 0.1, 64)[None, :, None, None]
    got, seen = bake_texture(
        ad, mesh, rows * (shown > 0), coverage, matrix, (96, 96), supersample=1
    )
    assert 0.2 < seen.mean() < 0.6
    seams = seam_differences(mesh, (96, 96)) @ got.reshape(-1, 3)
    assert np.abs(seams).mean() < 0.02
    flat = neighbour_differences(chart_texels(ad, mesh, (96, 96)), mesh) @ got.reshape(-1, 3)
    assert np.abs(flat).max() < 0.2
    assert got.min() >= 0.0 and got.max() <= 0.9


@pytest.mark.gpu
def test_bad_inputs_are_named(ad: DressiAD):
    mesh, images = _two_squares(), np.zeros((1, 8, 8, 3))
    matrix = _front()[None]
    plain = Mesh(mesh.positions, mesh.faces)
    for word, call in (
        ("no uvs", lambda: bake_texture(ad, plain, images, None, matrix, (8, 8))),
        ("1 images but 2 matrices", lambda: bake_texture(ad, mesh, images, None, [matrix[0]] * 2)),
        ("images", lambda: bake_texture(ad, mesh, images[0], None, matrix)),
        ("masks", lambda: bake_texture(ad, mesh, images, np.ones((8, 8)), matrix)),
        ("smoothness > 0", lambda: bake_texture(ad, mesh, images, None, matrix, (8, 8), 0.0)),
        ("no pixel shows", lambda: bake_texture(ad, mesh, images, images[..., 0], matrix, (8, 8))),
        ("not finite", lambda: bake_texture(ad, mesh, images * np.nan, None, matrix, (8, 8))),
    ):
        with pytest.raises(GraphError, match=word):
            call()
