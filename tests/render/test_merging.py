"""Groups of vertices become one where that leaves the topology and turns no face."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from dressi.render.fit import distance_to_surface, isosurface
from dressi.render.fit.merging import merged
from dressi.render.scene import Mesh, icosphere, surface_problems


def torus(n: int = 31) -> Mesh:
    x, y, z = np.meshgrid(*[np.linspace(-12.0, 12.0, n)] * 3, indexing="ij")
    return isosurface(3.0 - np.hypot(np.hypot(x, y) - 7.0, z), [-12.0] * 3, 24.0 / (n - 1))


def cells(mesh: Mesh, size: float) -> np.ndarray:
    at = np.rint(mesh.positions / size).astype(np.int64) + 1000
    return np.ravel_multi_index(tuple(at.T), (2000,) * 3)


def edge_lengths(mesh: Mesh) -> np.ndarray:
    corners = mesh.positions[mesh.faces]
    return np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2)


def test_triangles_become_even_and_the_surface_stays() -> None:
    mesh = torus()
    made = merged(mesh, cells(mesh, 0.8))
    assert np.quantile(edge_lengths(mesh), 0.01) < 0.1
    assert np.quantile(edge_lengths(made), 0.01) > 0.4
    assert len(made.faces) < 0.3 * len(mesh.faces)
    found = surface_problems(made)
    assert found.is_closed and found.is_embedded and found.genus == 1
    away = distance_to_surface(made.positions, mesh.positions, mesh.faces)
    assert away.mean() < 0.03 and away.max() < 0.4


@pytest.mark.parametrize("size", [0.8, 2.0, 6.0, 30.0])
def test_the_topology_stays_however_large_groups_are(size: float) -> None:
    mesh = torus()
    found = surface_problems(merged(mesh, cells(mesh, size)))
    assert found.is_closed and found.genera == (1,)


@pytest.mark.parametrize("shares", [1, 2, 3])
def test_no_group_makes_a_sphere_vanish_or_flat(shares: int) -> None:
    ball = icosphere(1)
    turn = np.arctan2(ball.positions[:, 1], ball.positions[:, 0]) / (2.0 * np.pi) + 40.0 / 360.0
    found = merged(ball, np.floor((turn % 1.0) * shares).astype(np.int64))
    assert len(found.faces) >= 4
    assert surface_problems(found).is_closed and surface_problems(found).genera == (0,)


@pytest.mark.parametrize("seed", range(4))
def test_noise_keeps_its_parts_and_handles(seed: int) -> None:
    noise = ndimage.gaussian_filter(np.random.default_rng(seed).normal(size=(16,) * 3), 0.8)
    values = np.full((18,) * 3, -1.0)
    values[1:-1, 1:-1, 1:-1] = noise / noise.std()
    mesh = isosurface(values)
    made = merged(mesh, cells(mesh, 1.0))
    before, after = surface_problems(mesh), surface_problems(made)
    assert after.is_closed
    assert sorted(after.genera) == sorted(before.genera)
    assert len(made.faces) < 0.6 * len(mesh.faces)


def test_the_ring_around_a_hole_stays() -> None:
    mesh = torus()
    ring = np.hypot(mesh.positions[:, 0], mesh.positions[:, 1])
    made = merged(mesh, np.where(ring < 6.0, 0, np.arange(1, len(ring) + 1)))
    assert len(made.faces) == len(mesh.faces)


def test_no_face_is_turned_over() -> None:
    # A strip three quarters around the pole: its middle lies beyond what it surrounds.
    ball = icosphere(4)
    x, y, z = ball.positions.T
    around, radius = np.degrees(np.arctan2(y, x)), np.hypot(x, y)
    strip = (z > 0.0) & (radius > 0.3) & (radius < 0.5) & (np.abs(around) < 135.0)
    made = merged(ball, np.where(strip, 0, np.arange(1, len(x) + 1)))
    assert len(made.faces) == len(ball.faces)
