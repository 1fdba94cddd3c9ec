"""Meshes: checks name the first fault; spheres and the pear are closed; charts do not overlap."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from dressi.errors import GraphError
from dressi.render.scene import make_pear
from dressi.render.scene import mesh as m

TETRA = np.array([[1, 1, 1], [-1, -1, 1], [-1, 1, -1], [1, -1, -1]], dtype=np.float32)
TETRA_FACES = np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])


@pytest.fixture(scope="module")
def pear():
    return make_pear()


def assert_closed(faces):
    """Each directed edge once, and its opposite once."""
    edges = faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2)
    directed = {tuple(e) for e in edges.tolist()}
    assert len(directed) == len(edges)
    assert directed == {(b, a) for a, b in directed}


def volume(mesh):
    a, b, c = np.moveaxis(mesh.positions.astype(np.float64)[mesh.faces], 1, 0)
    return float(np.einsum("fi,fi->", a, np.cross(b, c))) / 6.0


def texel_coverage(mesh, size):
    """How many UV triangles hold the centre of each texel."""
    count = np.zeros((size, size), dtype=int)
    for a, b, c in mesh.uvs[mesh.corner_faces].astype(np.float64) * size:
        low = np.floor(np.minimum(np.minimum(a, b), c) - 0.5).astype(int).clip(0)
        high = np.ceil(np.maximum(np.maximum(a, b), c) + 0.5).astype(int).clip(max=size)
        x, y = np.meshgrid(np.arange(low[0], high[0]) + 0.5, np.arange(low[1], high[1]) + 0.5)
        sides = [(q[0] - p[0]) * (y - p[1]) - (q[1] - p[1]) * (x - p[0]) for p, q in
                 ((a, b), (b, c), (c, a))]  # fmt: skip
        inside = np.all(np.array(sides) > 1e-9, axis=0) | np.all(np.array(sides) < -1e-9, axis=0)
        count[low[1] : high[1], low[0] : high[0]] += inside
    return count


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"positions": np.where(np.eye(4, 3) * TETRA == -1, np.nan, TETRA)}, ["vertex 1", "nan"]),
        ({"positions": TETRA * [1, 1, np.inf]}, ["vertex 0", "inf"]),
        ({"positions": np.zeros((0, 3))}, ["empty", "positions"]),
        ({"positions": np.zeros((4, 2))}, ["positions", "(4, 2)"]),
        ({"faces": np.zeros((0, 3), int)}, ["empty", "faces"]),
        ({"faces": [[0, 1, 2], [0, 1, 4]]}, ["face 1", "[0, 1, 4]", "4 vertices"]),
        ({"faces": [[0, 1, -1]]}, ["face 0", "out of range"]),
        ({"faces": [[0, 1, 2, 3]]}, ["faces", "(1, 4)"]),
        ({"uvs": np.zeros((3, 2))}, ["face 1", "3 uvs"]),
        ({"uvs": np.full((4, 2), np.nan)}, ["uv 0"]),
        ({"uv_faces": TETRA_FACES}, ["uv_faces but no uvs"]),
        ({"uvs": np.zeros((4, 2)), "uv_faces": TETRA_FACES[:2]}, ["4 faces", "2 uv_faces"]),
    ],
)
def test_check_names_the_first_fault(change, words):
    good = m.Mesh(TETRA, TETRA_FACES, name="tetra")
    assert good.check() is good
    with pytest.raises(GraphError) as caught:
        replace(good, **change).check()
    for word in [*words, "tetra"]:
        assert word in str(caught.value)


def test_indices_that_are_no_int32_are_refused_at_once():
    with pytest.raises(GraphError, match="integers"):
        m.Mesh(TETRA, TETRA_FACES.astype(float))
    with pytest.raises(GraphError, match="int32"):
        m.Mesh(TETRA, [[0, 1, 2**32]])


@pytest.mark.parametrize("subdivisions", [1, 3, 4])
def test_icosphere_is_a_closed_unit_sphere(subdivisions):
    sphere = m.icosphere(subdivisions).check()
    assert len(sphere.positions) == 10 * 4**subdivisions + 2
    assert_closed(sphere.faces)
    assert np.allclose(np.linalg.norm(sphere.positions, axis=1), 1.0, atol=1e-6)
    assert volume(sphere) > 2.5
    assert not m.flipped_faces(sphere.positions, sphere.faces).any()


def test_icosphere_of_four_subdivisions_has_2562_vertices_and_about_4_pi_area():
    sphere = m.icosphere(4, radius=2.0)
    assert (len(sphere.positions), len(sphere.faces)) == (2562, 5120)
    assert m.surface_area(sphere.positions, sphere.faces) / (16 * np.pi) == pytest.approx(
        1, rel=2e-3
    )


@pytest.mark.parametrize("bad", [0, 9])
def test_icosphere_refuses_other_subdivisions(bad):
    with pytest.raises(GraphError, match=f"got {bad}"):
        m.icosphere(bad)


@pytest.mark.parametrize("subdivisions", [1, 2, 4])
def test_charts_of_the_sphere_do_not_overlap(subdivisions):
    sphere = m.icosphere(subdivisions)
    assert sphere.uvs.min() > 0.0 and sphere.uvs.max() < 1.0
    assert texel_coverage(sphere, 256).max() == 1


def test_charts_stay_two_texels_inside_their_cells():
    sphere = m.icosphere(4)
    corners = sphere.uvs[sphere.uv_faces] * [3 * 256 / 3, 256]
    cell = np.array([256 / 3, 128])
    cell_idx = np.floor(corners / cell)
    assert (cell_idx == cell_idx[:, :1]).all(), "a face crosses a chart border"
    inside = corners - cell_idx * cell
    assert np.minimum(inside, cell - inside).min() > 2.0 - 1e-3


def test_each_face_of_the_sphere_gets_a_fair_share_of_texels():
    sphere = m.icosphere(4)
    a, b, c = np.moveaxis(sphere.uvs[sphere.uv_faces].astype(np.float64) * 256, 1, 0)
    area = 0.5 * ((b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0])
    # v runs down: counter-clockwise faces have negative area, all of them (none is mirrored)
    assert (area < -8.0).all()
    assert area.min() / area.max() < 2.0


def test_cube_atlas_refuses_a_mesh_that_reaches_behind_its_cube_side():
    with pytest.raises(GraphError, match="finer mesh"):
        m.cube_atlas(TETRA, TETRA_FACES)


def test_subdivide_keeps_surface_vertices_and_uv_topology():
    sphere = m.icosphere(2)
    fine = m.subdivide(sphere).check()
    assert len(fine.faces) == 4 * len(sphere.faces)
    assert np.array_equal(fine.positions[: len(sphere.positions)], sphere.positions)
    assert_closed(fine.faces)
    for before, after in ((sphere.positions[sphere.faces], fine.positions[fine.faces]),
                          (sphere.uvs[sphere.uv_faces], fine.uvs[fine.uv_faces])):  # fmt: skip
        assert np.allclose(
            before.mean(axis=1), after.reshape(-1, 4, 3, before.shape[2]).mean((1, 2))
        )
    assert texel_coverage(fine, 256).max() == 1
    assert m.subdivide(m.Mesh(TETRA, TETRA_FACES)).uvs is None


def test_neighbours_are_unique_and_lone_vertices_have_none():
    offsets, columns = m.vertex_neighbors(np.array([[0, 1, 2], [2, 1, 3], [1, 1, 3]]), 6)
    rows = [columns[a:b].tolist() for a, b in pairwise(offsets)]
    assert rows == [[1, 2], [0, 2, 3], [0, 1, 3], [1, 2], [], []]
    assert offsets.dtype == columns.dtype == np.int32


def test_laplacian_is_mean_of_neighbours_minus_self():
    rng = np.random.default_rng(0)
    n = 10
    faces = np.array([[0, 1, 2], [2, 1, 3], [4, 5, 6], [6, 5, 7]])  # 8 and 9 are alone
    x = rng.normal(size=(n, 3))
    offsets, columns, values = m.uniform_laplacian(faces, n)
    adjacency = np.zeros((n, n))
    for face in faces:
        for i in face:
            adjacency[i, [j for j in face if j != i]] = 1.0
    for i in range(n):
        row = slice(offsets[i], offsets[i + 1])
        got = (values[row, None] * x[columns[row]]).sum(axis=0)
        degree = adjacency[i].sum()
        want = adjacency[i] @ x / degree - x[i] if degree else np.zeros(3)
        assert np.allclose(got, want, atol=1e-6)
        assert abs(values[row].sum()) < 1e-6
    assert offsets[8] == offsets[9] == offsets[10]


def test_normals_point_outward_and_are_zero_without_area():
    sphere = m.icosphere(3)
    normals = m.vertex_normals(sphere.positions, sphere.faces)
    assert np.einsum("vi,vi->v", normals, sphere.positions).min() > 0.995
    needle = np.array([[0, 0, 0], [1, 0, 0], [2, 0, 0], [9, 9, 9]], dtype=np.float32)
    assert not m.face_normals(needle, np.array([[0, 1, 2]])).any()
    assert not m.vertex_normals(needle, np.array([[0, 1, 2]])).any()


def test_vertex_normals_weigh_faces_by_area():
    points = np.array([[0, 0, 0], [3, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=np.float32)
    faces = np.array([[0, 1, 2], [0, 2, 3]])  # areas 1.5 along z, 0.5 along x
    assert np.allclose(m.vertex_normals(points, faces)[0], np.array([1, 0, 3]) / np.sqrt(10))


def test_a_vertex_pushed_through_the_surface_flips_faces():
    sphere = m.icosphere(3)
    points = sphere.positions.copy()
    _, columns = m.vertex_neighbors(sphere.faces, len(points))
    points[0] = points[columns[0]] * 1.0 + 0.8 * (
        points[columns[0]] - points[0]
    )  # over its neighbour
    flipped = m.flipped_faces(points, sphere.faces)
    assert 1 <= flipped.sum() <= 6
    assert (sphere.faces[flipped] == 0).any()


def test_inside_out_mesh_counts_all_faces_as_flipped_and_flat_faces_as_none():
    sphere = m.icosphere(2)
    assert m.flipped_faces(sphere.positions, sphere.faces[:, ::-1]).all()
    assert not m.flipped_faces(sphere.positions * 0.0, sphere.faces).any()


def test_bounding_box():
    assert m.bounding_box(TETRA).tolist() == [[-1, -1, -1], [1, 1, 1]]
    with pytest.raises(GraphError, match="no vertices"):
        m.bounding_box(np.zeros((0, 3)))


def test_pear_is_closed_outward_centred_and_two_units_high(pear):
    mesh = pear[0].check()
    assert 10_000 <= len(mesh.faces) <= 20_000
    assert_closed(mesh.faces)
    assert len(np.unique(mesh.faces)) == len(mesh.positions)
    assert volume(mesh) > 1.0
    assert not m.flipped_faces(mesh.positions, mesh.faces).any()
    box = m.bounding_box(mesh.positions)
    assert np.allclose(box.sum(axis=0), 0.0, atol=1e-3)
    assert box[1, 1] - box[0, 1] == pytest.approx(2.0, abs=0.02)


def test_pear_has_a_stem_of_visible_thickness(pear):
    points = pear[0].positions
    for height in (0.75, 0.8, 0.85, 0.9):
        ring = points[np.abs(points[:, 1] - height) < 0.02]
        assert 0.045 < np.ptp(ring[:, 2]) / 2 < 0.08


def test_pear_uvs_do_not_stretch_across_the_seam_or_overlap(pear):
    mesh = pear[0]
    corners = mesh.uvs[mesh.uv_faces]
    assert np.ptp(corners[..., 0], axis=1).max() < 1.5 / 72
    assert corners.min() >= 0.0 and corners.max() <= 1.0
    assert texel_coverage(mesh, 256).max() == 1


def test_pear_texture_is_linear_albedo_without_a_seam_and_repeatable(pear):
    texture = pear[1]
    assert texture.shape == (512, 512, 3) and texture.dtype == np.float32
    assert texture.min() >= 0.0 and texture.max() <= 1.0
    across = np.abs(texture[:, 0] - texture[:, -1]).mean()
    inside = np.abs(texture[:, 100] - texture[:, 101]).mean()
    assert across < 3.0 * inside
    again = make_pear(texture_size=64), make_pear(texture_size=64)
    assert np.array_equal(again[0][1], again[1][1])
    assert np.array_equal(again[0][0].positions, again[1][0].positions)
