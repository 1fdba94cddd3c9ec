"""Remeshing with an edge length per vertex, and the lengths that follow the curvature."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from dressi.errors import GraphError
from dressi.render.fit import adaptive_edge_lengths, distance_to_surface, isosurface, remesh
from dressi.render.fit.closest import closest_on_surface, weights_of_closest
from dressi.render.fit.edits import (
    SHORTEST,
    WorkingSurface,
    collapse_short,
    flip_uneven,
    split_long,
    with_creases,
)
from dressi.render.scene import Mesh, area_normals, icosphere, subdivide, surface_problems
from dressi.render.scene.half_edges import EdgeTable


def cube(n_splits=3):
    points = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], float)
    quads = [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]]
    faces = np.array([[q[i] for i in t] for q in quads for t in ((0, 1, 2), (0, 2, 3))])
    mesh = Mesh(points, faces)
    for _ in range(n_splits):
        mesh = subdivide(mesh)
    return mesh


def torus(n=31, half=1.2):
    x, y, z = np.meshgrid(*[np.linspace(-half, half, n)] * 3, indexing="ij")
    values = 0.3 - np.hypot(np.hypot(x, y) - 0.7, z)
    return isosurface(values, [-half] * 3, 2 * half / (n - 1))


def working(mesh, length):
    n = len(mesh.positions)
    zeros = np.zeros(n, np.int64)
    return WorkingSurface(
        mesh.positions.astype(float),
        mesh.faces.astype(np.int64),
        np.full(n, float(length)),
        zeros,
        zeros[:0],
    )


def edge_lengths(mesh):
    pairs = np.sort(mesh.faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
    pairs = np.unique(pairs, axis=0)
    a, b = mesh.positions[pairs].transpose(1, 0, 2)
    return np.linalg.norm(a - b, axis=1), 0.5 * (a + b)


def test_lengths_per_vertex_are_met_where_they_are():
    sphere = icosphere(4)
    wanted = np.where(sphere.positions[:, 0] > 0, 0.08, 0.16)
    made = remesh(sphere, wanted)
    length, middle = edge_lengths(made)
    for side, target in ((middle[:, 0] > 0.2, 0.08), (middle[:, 0] < -0.2, 0.16)):
        assert length[side].mean() == pytest.approx(target, rel=0.1)
        assert length[side].min() > 0.5 * target and length[side].max() < 1.6 * target
    found = surface_problems(made)
    assert found.is_closed and found.is_embedded and found.genus == 0
    assert np.abs(np.linalg.norm(made.positions, axis=1) - 1.0).max() < 0.002


def test_slivers_of_a_grid_become_even_triangles_on_the_same_surface():
    mesh = torus()
    made = remesh(mesh, np.full(len(mesh.positions), 0.1))
    found = surface_problems(made)
    assert found.is_closed and found.is_embedded and found.genus == 1
    assert len(found.spikes) == len(found.folds) == 0
    a, b, c = np.moveaxis(made.positions[made.faces].astype(float), 1, 0)
    edges = np.stack([np.linalg.norm(x - y, axis=1) for x, y in ((a, b), (b, c), (c, a))])
    # Twice the inscribed over the circumscribed radius, 1 for an even triangle.
    area = np.linalg.norm(np.cross(b - a, c - a), axis=1) / 2
    quality = 16 * area**2 / (edges.prod(axis=0) * edges.sum(axis=0))
    assert quality.min() > 0.5 and quality.mean() > 0.9
    assert distance_to_surface(made.positions, mesh.positions, mesh.faces).max() < 1e-5
    # A chord of 0.13 over the smallest radius, 0.3.
    assert distance_to_surface(mesh.positions, made.positions, made.faces).max() < 0.13**2 / 0.3 / 4


@pytest.mark.parametrize("length", [0.3, 0.06])
def test_creases_and_corners_of_a_cube_stay(length):
    box = cube()
    made = remesh(box, np.full(len(box.positions), length), 5)
    assert surface_problems(made).is_embedded
    for corner in cube(0).positions:
        assert np.linalg.norm(made.positions - corner, axis=1).min() < 1e-6
    a, b, c = np.moveaxis(made.positions[made.faces].astype(float), 1, 0)
    assert np.einsum("fi,fi->", a, np.cross(b, c)) / 6.0 == pytest.approx(1.0, abs=1e-5)


def test_without_creases_corners_go():
    box = cube()
    made = remesh(box, np.full(len(box.positions), 0.3), 5, sharp_angle_deg=None)
    a, b, c = np.moveaxis(made.positions[made.faces].astype(float), 1, 0)
    assert np.einsum("fi,fi->", a, np.cross(b, c)) / 6.0 < 0.999


def test_borders_stay_with_lengths_per_vertex():
    sphere = icosphere(3)
    half = Mesh(sphere.positions, sphere.faces[sphere.positions[sphere.faces].mean(1)[:, 2] > 0])
    made = remesh(half, np.full(len(half.positions), 0.2), 3)
    before, after = (surface_problems(m).boundary_edges for m in (half, made))
    assert len(before) == len(after)
    for point in half.positions[np.unique(before)]:
        assert np.linalg.norm(made.positions - point, axis=1).min() < 1e-6


def test_lengths_need_no_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "gpytoolbox", None)
    assert remesh(icosphere(1), np.full(42, 0.5), 1).name == "icosphere1"


def test_a_split_leaves_the_surface_as_it_is():
    sphere = icosphere(1)
    made = split_long(working(sphere, 0.3))
    assert len(made.faces) > 2 * len(sphere.faces)
    assert area_normals(made.positions, made.faces).sum(axis=0) == pytest.approx(0.0, abs=1e-12)
    whole = np.linalg.norm(area_normals(sphere.positions, sphere.faces), axis=1).sum()
    parts = np.linalg.norm(area_normals(made.positions, made.faces), axis=1).sum()
    assert parts == pytest.approx(whole, rel=1e-12)


def test_a_collapse_never_turns_faces_or_the_genus():
    mesh = torus(21)
    for length in (0.2, 0.5, 2.0):  # the last one longer than the torus' tube
        made = collapse_short(working(mesh, length))
        found = surface_problems(Mesh(made.positions.astype(np.float32), made.faces))
        assert found.is_closed and found.genus == 1


def test_flips_stop_and_never_make_the_smallest_angle_smaller():
    rng = np.random.default_rng(0)
    sphere = icosphere(2)
    uneven = sphere.positions + rng.normal(scale=0.05, size=sphere.positions.shape)
    uneven /= np.linalg.norm(uneven, axis=1, keepdims=True)
    surface = working(Mesh(uneven, sphere.faces), 0.3)
    once = flip_uneven(surface, 50)
    assert not np.array_equal(once.faces, surface.faces)
    assert np.array_equal(flip_uneven(once, 50).faces, once.faces)
    assert surface_problems(Mesh(once.positions.astype(np.float32), once.faces)).is_embedded


def test_creases_are_the_sharp_edges_in_long_chains():
    box = cube(2)
    surface = with_creases(working(box, 0.25), 50.0)
    assert len(surface.creases) == 12 * 4
    assert np.bincount(surface.rank).tolist() == [6 * 9, 12 * 3, 8]
    assert len(with_creases(working(box, 10.0), 50.0).creases) == 0  # shorter than four lengths


def test_adaptive_lengths_are_short_where_the_surface_bends():
    points = icosphere(4).positions.astype(float)
    egg = Mesh(points * [1, 1, 3.0], icosphere(4).faces)
    lengths = adaptive_edge_lengths(egg, target_vertices=1000)
    tip, belly = lengths[points[:, 2] > 0.98], lengths[np.abs(points[:, 2]) < 0.1]
    # Radii of curvature: 1/3 at the tips; around the belly the smaller one is 1.
    assert belly.mean() / tip.mean() == pytest.approx(np.sqrt(3.0), rel=0.25)
    assert lengths.max() / lengths.min() <= 4.0 + 1e-9


@pytest.mark.parametrize("n", [400, 1500])
def test_adaptive_lengths_make_about_so_many_vertices(n):
    egg = Mesh(icosphere(4).positions * [1, 1, 2.0], icosphere(4).faces)
    made = remesh(egg, adaptive_edge_lengths(egg, target_vertices=n), 5)
    assert len(made.positions) == pytest.approx(n, rel=0.15)


@pytest.mark.parametrize("tolerance", [0.01, 0.004])
def test_a_tolerance_is_the_distance_of_faces_to_a_sphere(tolerance):
    sphere = icosphere(4)
    made = remesh(sphere, adaptive_edge_lengths(sphere, tolerance=tolerance), 5)
    deepest = 1.0 - np.linalg.norm(made.positions[made.faces].mean(axis=1), axis=1)
    assert np.median(deepest) == pytest.approx(tolerance, rel=0.3)


def test_lengths_change_no_faster_than_the_gradation():
    box = cube(4)
    lengths = adaptive_edge_lengths(box, target_vertices=500, gradation=0.2)
    pairs = np.unique(box.faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=0)
    a, b = box.positions[pairs].astype(float).transpose(1, 0, 2)
    change = np.abs(lengths[pairs[:, 0]] - lengths[pairs[:, 1]])
    assert (change <= 0.2 * np.linalg.norm(a - b, axis=1) + 1e-9).all()
    assert lengths.max() > 1.2 * lengths.min()


def test_bad_lengths_and_numbers():
    sphere = icosphere(1)
    with pytest.raises(GraphError, match=r"a number or \(42,\), one per vertex, got \(3,\)"):
        remesh(sphere, np.ones(3))
    with pytest.raises(GraphError, match="of vertex 5 must be > 0, got -1"):
        remesh(sphere, np.where(np.arange(42) == 5, -1.0, 0.3))
    with pytest.raises(GraphError, match="4 to 2000000 are allowed"):
        remesh(sphere, np.full(42, 1e-6))
    with pytest.raises(GraphError, match=r"sharp_angle_deg must be in \(0, 180\], got 0"):
        remesh(sphere, np.ones(42), sharp_angle_deg=0.0)
    with pytest.raises(GraphError, match="needs one of target_vertices and tolerance"):
        adaptive_edge_lengths(sphere)
    with pytest.raises(GraphError, match="target_vertices must be at least 4, got 3"):
        adaptive_edge_lengths(sphere, target_vertices=3)
    with pytest.raises(GraphError, match=r"ratio must be at least 1, got 0\.5"):
        adaptive_edge_lengths(sphere, tolerance=0.1, ratio=0.5)


def test_closest_points_are_the_nearest_of_all_faces():
    rng = np.random.default_rng(0)
    points, corners = rng.normal(size=(40, 3)), rng.normal(size=(30, 3))
    faces = rng.integers(0, 30, (25, 3))  # some without area
    distance, of, _ = closest_on_surface(points, corners, faces)
    weights = weights_of_closest(points, *np.moveaxis(corners[faces[of]], 1, 0))
    place = np.einsum("nk,nki->ni", weights, corners[faces[of]])
    assert np.linalg.norm(place - points, axis=1) == pytest.approx(distance, rel=1e-9)
    # Points of a fine net over every face come no nearer.
    net = np.array([[i, j, 40 - i - j] for i in range(41) for j in range(41 - i)]) / 40
    every = np.einsum("mk,fki->fmi", net, corners[faces]).reshape(-1, 3)
    nearest = np.linalg.norm(points[:, None] - every, axis=2).min(axis=1)
    assert (distance <= nearest + 1e-12).all()
    assert (nearest - distance).max() < 0.15


@pytest.mark.parametrize("share", [0.4, 0.6])
def test_one_call_collapses_nearly_all_that_is_short(share):
    # Two thirds of the edges that marching leaves are short: few rounds have to take many each.
    n = 51
    once = collapse_short(working(torus(n), share * 2.4 / (n - 1) / SHORTEST))
    again = collapse_short(once)
    assert len(again.faces) > 0.93 * len(once.faces)


def test_rounds_look_only_around_short_edges(monkeypatch):
    # A fine patch in a coarse mesh: only the first round sees the rest of it.
    mesh = icosphere(5)
    near = mesh.positions[:, 2] > 0.95
    seen = []
    real = EdgeTable.of

    def counted(faces):
        seen.append(len(faces))
        return real(faces)

    monkeypatch.setattr(EdgeTable, "of", counted)
    lengths = np.where(near, 0.2, 1e-3)
    made = collapse_short(replace(working(mesh, 1.0), lengths=lengths))
    assert len(made.faces) < len(mesh.faces)
    assert seen[0] == len(mesh.faces) and max(seen[1:]) < 0.15 * len(mesh.faces)
