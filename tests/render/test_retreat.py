"""Retreat: what a fit folds goes back towards the surface before, no further than it must."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dressi.errors import GraphError
from dressi.render.fit import retreat
from dressi.render.scene import Mesh, icosphere, surface_problems

SPHERE = icosphere(1)


def slab(n: int = 13, thickness: float = 0.2) -> Mesh:
    """A closed box, n x n squares on each of its large sides; vertices are shared."""
    y, x = np.mgrid[:n, :n] / (n - 1.0)
    top = np.stack([x, y, np.full_like(x, thickness / 2)], -1).reshape(-1, 3)
    a = np.arange(n * n).reshape(n, n)
    squares = np.stack([a[:-1, :-1], a[:-1, 1:], a[1:, 1:], a[1:, :-1]], -1).reshape(-1, 4)
    loop = np.concatenate([a[0, :-1], a[:-1, -1], a[-1, :0:-1], a[:0:-1, 0]])
    sides = np.stack([loop, loop + n * n, np.roll(loop, -1) + n * n, np.roll(loop, -1)], -1)
    quads = np.concatenate([squares, squares[:, ::-1] + n * n, sides])
    faces = np.concatenate([quads[:, [0, 1, 2]], quads[:, [0, 2, 3]]])
    return Mesh(np.concatenate([top, top * [1, 1, -1]]).astype(np.float32), faces)


def test_sheets_pushed_through_each_other_keep_a_gap_and_the_rest_goes_all_the_way() -> None:
    thin = slab()
    at = thin.positions.astype(float)
    middle = np.linalg.norm(at[:, :2] - 0.5, axis=1) < 0.2
    pushed = at + [0.0, 0.0, 0.05]  # all of it moves, and a part of each side through the other one
    pushed[middle, 2] = 0.05 - 0.5 * at[middle, 2]
    mesh = replace(thin, positions=pushed.astype(np.float32))
    assert len(surface_problems(thin).intersections) == 0
    assert len(surface_problems(mesh).intersections) > 0
    made, kept = retreat(mesh, thin)
    assert surface_problems(made).is_embedded and surface_problems(made).is_closed
    far = np.linalg.norm(at[:, :2] - 0.5, axis=1) > 0.45
    np.testing.assert_array_equal(made.positions[far], mesh.positions[far])
    assert (kept[far] == 1.0).all() and 0.0 < kept[middle].max() < 1.0


def test_where_all_is_lost_the_surface_is_the_one_before_to_the_bit() -> None:
    noise = np.random.default_rng(0).normal(size=SPHERE.positions.shape)
    mesh = replace(SPHERE, positions=(10.0 * noise).astype(np.float32))
    made, kept = retreat(mesh, SPHERE)
    assert surface_problems(made).is_embedded
    still = kept == 0.0
    assert still.mean() > 0.5
    np.testing.assert_array_equal(made.positions[still], SPHERE.positions[still])


def test_a_surface_in_order_stays_as_it_is() -> None:
    larger = replace(SPHERE, positions=SPHERE.positions * np.float32(2.0))
    made, kept = retreat(larger, SPHERE)
    assert made is larger and (kept == 1.0).all()


def test_other_faces_and_a_tangled_mesh_before_are_named() -> None:
    with pytest.raises(GraphError, match="same vertices and faces"):
        retreat(SPHERE, icosphere(2))
    folded = SPHERE.positions.copy()
    folded[0] *= -1.5
    with pytest.raises(GraphError, match=r"before is tangled itself: .*intersecting"):
        retreat(SPHERE, replace(SPHERE, positions=folded))
