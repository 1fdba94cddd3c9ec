"""Remeshing: even triangles on the same surface, or an error that says which edge is to blame."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest

from dressi.errors import DressiError, GraphError
from dressi.render.fit import mean_edge_length, remesh
from dressi.render.scene import Mesh, flipped_faces, icosphere, subdivide

needs_gpytoolbox = pytest.mark.skipif(
    importlib.util.find_spec("gpytoolbox") is None, reason="gpytoolbox (extra remesh) is absent"
)


def edge_lengths(mesh):
    pairs = np.sort(mesh.faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
    a, b = mesh.positions[np.unique(pairs, axis=0)].transpose(1, 0, 2)
    return np.linalg.norm(a - b, axis=1)


@needs_gpytoolbox
@pytest.mark.parametrize("target", [0.12, 0.35])
def test_a_sphere_stays_one_with_even_edges(target):
    sphere = icosphere(3)
    stretched = Mesh(sphere.positions * [1, 1, 0.2], sphere.faces)
    for mesh in (sphere, stretched):
        made = remesh(mesh, target)
        lengths = edge_lengths(made)
        assert 0.7 * target < lengths.mean() < 1.3 * target
        assert lengths.std() < 0.3 * lengths.mean()
        assert not flipped_faces(made.positions, made.faces).any()
        assert made.uvs is None
        # closed: every edge has two faces
        pairs = np.sort(made.faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
        assert (np.unique(pairs, axis=0, return_counts=True)[1] == 2).all()
    radius = np.linalg.norm(remesh(sphere, target).positions, axis=1)
    assert radius.min() > 0.98 and radius.max() < 1.001


@needs_gpytoolbox
def test_seams_lone_vertices_and_flat_faces_do_not_matter():
    sphere = icosphere(2)
    corners = sphere.positions[sphere.faces].reshape(-1, 3)  # no vertex is shared
    faces = np.arange(len(corners)).reshape(-1, 3)
    dirty = Mesh(
        np.concatenate([corners, [[5.0, 5, 5]]]), np.concatenate([faces, [[0, 0, 1], [3, 3, 3]]])
    )
    clean, made = remesh(sphere, 0.3), remesh(dirty, 0.3)
    assert len(made.faces) == pytest.approx(len(clean.faces), rel=0.1)
    assert np.linalg.norm(made.positions, axis=1).max() < 1.001


@needs_gpytoolbox
def test_borders_stay():
    sphere = icosphere(3)
    half = Mesh(sphere.positions, sphere.faces[sphere.positions[sphere.faces].mean(1)[:, 2] > 0])
    made = remesh(half, 0.3)
    pairs = np.sort(half.faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
    edges, count = np.unique(pairs, axis=0, return_counts=True)
    for point in half.positions[np.unique(edges[count == 1])]:
        assert np.linalg.norm(made.positions - point, axis=1).min() < 1e-6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target_edge_length": 0.0}, "must be > 0"),
        ({"target_edge_length": float("nan")}, "nan"),
        ({"target_edge_length": 1e-6}, "mean edge is 0.29"),
        ({"target_edge_length": 50.0}, "4 to 2000000"),
        ({"iterations": 0}, "at least 1"),
    ],
)
def test_bad_numbers(change, words):
    with pytest.raises(GraphError, match=words):
        remesh(**({"mesh": icosphere(2), "target_edge_length": 0.3} | change))


def test_bad_meshes():
    points = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1]], float)
    with pytest.raises(GraphError, match=r"1 edges .* more than two faces.* 0 and 1"):
        remesh(Mesh(points, np.array([[0, 1, 2], [1, 0, 3], [0, 1, 4]])), 0.3)
    with pytest.raises(GraphError, match=r"turned two ways.* 0 and 1"):
        remesh(Mesh(points, np.array([[0, 1, 2], [0, 1, 3]])), 0.3)
    with pytest.raises(GraphError, match="no face with an area"):
        remesh(Mesh(points, np.array([[0, 0, 1]])), 0.3)
    with pytest.raises(GraphError, match="lie on borders"):
        remesh(Mesh(points, np.array([[0, 1, 2]])), 0.3)
    with pytest.raises(GraphError, match="out of range"):
        remesh(Mesh(points, np.array([[0, 1, 9]])), 0.3)


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "gpytoolbox", None)
    with pytest.raises(DressiError, match=r"pip install 'dressi\[remesh\]'"):
        remesh(icosphere(2), 0.3)


def test_subdivision_halves_edges_and_keeps_the_surface():
    mesh = icosphere(1)
    made = subdivide(mesh)
    assert len(made.faces) == 4 * len(mesh.faces)
    assert mean_edge_length(made) == pytest.approx(0.5 * mean_edge_length(mesh), rel=1e-6)
