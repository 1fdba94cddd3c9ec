"""Surfaces of grids whose triangles fold at the size of a cell come out in order."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from dressi.render.fit.isosurface import isosurface
from dressi.render.fit.orderly_grid import even_isosurface, orderly_isosurface
from dressi.render.fit.winding import winding_numbers
from dressi.render.scene import surface_problems

LOW = np.zeros(3)


def places(n: int) -> np.ndarray:
    return np.stack(np.meshgrid(*[np.arange(n, dtype=np.float64)] * 3, indexing="ij"), -1)


def ball(n: int = 20, radius: float = 6.3) -> np.ndarray:
    return radius - np.linalg.norm(places(n) - n / 2.0, axis=-1)


def leaf() -> np.ndarray:
    """A slanted disk a cell thick: its rim has no room to turn."""
    at = places(24) - 11.7
    away = at @ (np.array([1.0, 2.0, 4.0]) / np.sqrt(21.0))
    return np.minimum(0.5 - np.abs(away), 8.0 - np.linalg.norm(at, axis=-1))


def sponge() -> np.ndarray:
    """Noise: strands, slits and handles of all kinds, a cell or two wide."""
    noise = ndimage.gaussian_filter(np.random.default_rng(5).normal(size=(18,) * 3), 0.9)
    return np.where(ball(18, 7.0) > 0.0, noise / noise.std(), -1.0)


@pytest.mark.parametrize("make", [leaf, sponge])
def test_what_folds_at_the_size_of_a_cell_comes_out_in_order(make) -> None:
    values = make()
    assert len(surface_problems(even_isosurface(values, LOW, 1.0, "made")).flipped_faces) > 0
    made = orderly_isosurface(values, LOW, 1.0, "made")
    found = surface_problems(made)
    assert found.is_embedded and found.is_closed


def test_a_thin_sheet_stays_where_it_is() -> None:
    made = orderly_isosurface(leaf(), LOW, 1.0, "made")
    assert surface_problems(made).n_components == 1 and surface_problems(made).genus == 0
    box = np.ptp(made.positions, axis=0)
    wanted = np.ptp(isosurface(leaf()).positions, axis=0)
    # Two cells: a sheet a cell thick has grown by one on each side at most.
    assert (np.abs(box - wanted) < 2.0).all()


def wire(radius: float) -> np.ndarray:
    """A slanted ring of a wire about a cell thick: in pieces."""
    at = places(24) - 11.6
    up = np.array([1.0, 2.0, 4.0]) / np.sqrt(21.0)
    along = at @ up
    flat = np.linalg.norm(at - along[..., None] * up, axis=-1)
    return radius - np.hypot(flat - 8.0, along)


@pytest.mark.parametrize("radius", [0.4, 0.5, 0.6])
def test_smoothing_keeps_the_points_of_a_thin_wire_inside(radius: float) -> None:
    values = wire(radius)
    made = orderly_isosurface(values, LOW, 1.0, "made")
    found = surface_problems(made)
    assert found.is_embedded and found.is_closed
    numbers = winding_numbers(made.positions, made.faces, LOW, 1.0, values.shape)
    assert (numbers[values > 0.0] > 0).all()


def test_a_surface_without_folds_is_the_grids() -> None:
    made = orderly_isosurface(ball(), LOW, 1.0, "made")
    plain = even_isosurface(ball(), LOW, 1.0, "made")
    assert np.array_equal(made.positions, plain.positions)
