"""Untangling: folds, crossings and spikes go, and what is not tangled stays."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.errors import DressiError, GraphError
from dressi.render.fit import (
    distance_to_surface,
    enclosed_surface,
    mean_edge_length,
    untangle,
    winding_numbers,
)
from dressi.render.fit.patches import refilled
from dressi.render.scene import Mesh, icosphere, surface_problems

SPHERE = icosphere(3)
EDGE = mean_edge_length(SPHERE)


def moved(change):
    """The sphere with other positions. change: function of positions (V, 3) float64."""
    return Mesh(change(SPHERE.positions.astype(float)), SPHERE.faces)


def noise(positions, length=EDGE):
    step = np.random.default_rng(0).normal(size=positions.shape)
    return positions + length * step / np.linalg.norm(step, axis=1, keepdims=True)


def fin(positions):
    """A part of the sphere pulled over its surroundings."""
    part = np.linalg.norm(positions - [1, 0, 0], axis=1) < 0.35
    return np.where(part[:, None], positions + [-0.15, 0.6, 0], positions)


def pinch(positions):
    """A belt around the sphere turned inside out."""
    belt = np.abs(positions[:, 2]) < 0.3
    return positions * np.where(belt, -0.3, 1.0)[:, None] ** [1, 1, 0]


def spike(positions):
    out = positions.copy()
    out[100] *= 1.0 + 10.0 * EDGE
    return out


def both(first, second):
    n = len(first.positions)
    return Mesh(
        np.concatenate([first.positions, second.positions]),
        np.concatenate([first.faces, second.faces + n]),
    )


CASES = {"noise": noise, "fin": fin, "pinch": pinch, "spike": spike}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_tangled_spheres_become_embedded(case):
    mesh = moved(case)
    before = surface_problems(mesh)
    assert not before.is_embedded or len(before.spikes)
    made = untangle(mesh)
    found = surface_problems(made)
    assert found.is_closed and found.is_embedded and found.genera == (0,)
    assert len(found.spikes) == 0
    # Two edge lengths are what a local repair may be off; a rebuilt surface is nearer.
    away = distance_to_surface(made.positions, mesh.positions, mesh.faces)
    assert away.max() < 2.0 * EDGE + 1e-6


def test_what_is_not_tangled_stays():
    assert untangle(SPHERE) is SPHERE
    made = untangle(moved(spike))
    away = np.linalg.norm(SPHERE.positions - SPHERE.positions[100], axis=1)
    same = (made.positions == SPHERE.positions).all(axis=1)
    assert same[away > 3.0 * EDGE].all() and not same[100]


def test_sheets_that_cross_become_their_union():
    # So deep that drawing them apart would move vertices by more than two edge lengths.
    mesh = both(SPHERE, Mesh(SPHERE.positions + np.float32([0.9, 0.1, 0.05]), SPHERE.faces))
    made = untangle(mesh)
    found = surface_problems(made)
    assert found.is_closed and found.is_embedded and found.genera == (0,)
    a, b, c = np.moveaxis(made.positions[made.faces].astype(float), 1, 0)
    # Two balls of radius 1, less the lens between them.
    d = np.linalg.norm([0.9, 0.1, 0.05])
    exact = 8.0 * np.pi / 3.0 - np.pi * (2.0 - d) ** 2 * (d * d + 4.0 * d) / (12.0 * d)
    # Chords of edges of 0.15 lose about 0.15^2 / 4, twice: of the spheres, and of the result.
    assert np.einsum("fi,fi->", a, np.cross(b, c)) / 6.0 == pytest.approx(exact, rel=0.02)
    assert distance_to_surface(made.positions, mesh.positions, mesh.faces).max() < 0.5 * EDGE


def test_faces_that_are_there_twice_go():
    coarse = icosphere(2)
    mesh = Mesh(coarse.positions, np.concatenate([coarse.faces, coarse.faces[:5, ::-1]]))
    assert len(surface_problems(mesh).nonmanifold_edges)
    found = surface_problems(untangle(mesh))
    assert found.is_closed and found.is_embedded and found.genera == (0,)


def test_an_error_says_what_is_left():
    shifted = Mesh(SPHERE.positions + np.float32([0.9, 0.1, 0.05]), SPHERE.faces)
    with pytest.raises(DressiError, match=r"could not be untangled; left: .* intersecting pairs"):
        untangle(both(SPHERE, shifted), rounds=0, rebuild=False)
    with pytest.raises(GraphError, match="rounds must not be negative, got -1"):
        untangle(SPHERE, rounds=-1)


def test_a_patch_is_smooth_and_leaves_the_rest():
    bad = np.linalg.norm(SPHERE.positions - [0, 0, 1], axis=1) < 0.4
    broken = moved(lambda p: np.where(bad[:, None], noise(p, 3 * EDGE), p))
    made = refilled(broken, bad)
    found = surface_problems(made)
    assert found.is_closed and found.is_embedded and found.genus == 0
    # A cap of 24 degrees, bent as its surroundings: a hundredth of the radius off.
    assert np.abs(np.linalg.norm(made.positions, axis=1) - 1.0).max() < 0.03
    kept = {tuple(p) for p in made.positions.tolist()}
    assert all(tuple(p) in kept for p in SPHERE.positions[~bad].tolist())


def test_a_ring_is_no_disk_and_is_not_filled():
    belt = np.abs(SPHERE.positions[:, 2]) < 0.3
    assert refilled(SPHERE, belt) is SPHERE
    assert refilled(SPHERE, np.zeros(len(belt), bool)) is SPHERE


def test_winding_numbers_count_how_often_a_surface_goes_around():
    inner = Mesh(0.5 * SPHERE.positions, SPHERE.faces)
    turned = Mesh(0.5 * SPHERE.positions + np.float32([2.5, 0, 0]), SPHERE.faces[:, ::-1])
    mesh = both(both(SPHERE, inner), turned)
    low, spacing, shape = np.array([-1.31, -1.32, -1.33]), 0.1, (46, 27, 28)
    number = winding_numbers(mesh.positions, mesh.faces, low, spacing, shape)
    at = low + spacing * np.stack(np.indices(shape), axis=-1)
    radius, other = np.linalg.norm(at, axis=-1), np.linalg.norm(at - [2.5, 0, 0], axis=-1)
    # Not within the chords of the faces, 0.01.
    assert (number[radius < 0.48] == 2).all()
    assert (number[(radius > 0.51) & (radius < 0.97)] == 1).all()
    assert (number[(radius > 1.01) & (other > 0.51)] == 0).all()
    assert (number[other < 0.48] == -1).all()


def test_lines_through_edges_and_vertices_count_once():
    # Every coordinate of this octahedron is one of the grid's.
    points = np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1.0]])
    faces = np.array([[0, 2, 4], [2, 1, 4], [1, 3, 4], [3, 0, 4]])
    faces = np.concatenate([faces, faces[:, ::-1] + (faces[:, ::-1] == 4)])
    number = winding_numbers(points, faces, [-2.0] * 3, 0.25, (17, 17, 17))
    size = np.abs(-2.0 + 0.25 * np.stack(np.indices((17, 17, 17)), axis=-1)).sum(axis=-1)
    assert (number[size < 1.0] == 1).all() and (number[size > 1.0] == 0).all()


def test_small_holes_do_not_matter_to_what_is_enclosed():
    rng = np.random.default_rng(0)
    holes = Mesh(SPHERE.positions, SPHERE.faces[rng.permutation(len(SPHERE.faces))[:-15]])
    made = enclosed_surface(holes, 0.5 * EDGE)
    found = surface_problems(made)
    assert found.is_closed and found.genera == (0,)
    # A hole is a face large, and so is what lines through two holes may dent.
    assert np.abs(np.linalg.norm(made.positions, axis=1) - 1.0).max() < EDGE


def test_a_grid_that_is_too_large_is_refused():
    with pytest.raises(GraphError, match=r"a spacing of 0\.001 makes a grid of"):
        enclosed_surface(SPHERE, 0.001)
    flat = Mesh(SPHERE.positions * [1, 1, 0.0], SPHERE.faces)
    with pytest.raises(GraphError, match="encloses no point of its grid"):
        enclosed_surface(flat, 0.2)
