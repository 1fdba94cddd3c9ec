"""Holes through hulls that masks decide stay; others are filled."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.render.fit.isosurface import isosurface
from dressi.render.fit.undecided_holes import euler_gains, without_undecided_holes
from dressi.render.scene import surface_problems

SHAPE = (17, 17, 9)
PIXEL = 0.5


def plate(hole: float, bottom: float = -np.inf) -> np.ndarray:
    """A plate with a hole of a radius, cells, through it; values at most ``bottom`` below 0."""
    x, y, z = np.moveaxis(np.indices(SHAPE) - (np.array(SHAPE)[:, None, None, None] // 2), 0, 0)
    solid = np.minimum(6.5 - np.maximum(np.abs(x), np.abs(y)), 2.5 - np.abs(z)).astype(float)
    away = np.hypot(x, y) - hole
    return np.where((away < 0.0) & (solid > 0.0), np.maximum(away, bottom), np.minimum(solid, 2.0))


def genus(values: np.ndarray) -> int:
    return surface_problems(isosurface(values)).genus


@pytest.mark.parametrize(
    ("hole", "bottom", "left"),
    [(0.4, -np.inf, 0), (1.2, -0.4, 0), (1.2, -np.inf, 1), (4.0, -0.4, 1)],
)
def test_a_hole_is_filled_where_it_is_narrow_and_within_a_pixel_of_outlines(
    hole: float, bottom: float, left: int
) -> None:
    values = plate(hole, bottom)
    assert genus(values) == 1
    made = without_undecided_holes(values, PIXEL)
    assert genus(made) == left
    assert (made >= values).all()


def test_dents_and_gaps_between_parts_stay() -> None:
    values = plate(0.4)
    values[:, :, 6:] = -1.0
    values[8, 8, 2:4] = 1.0  # the hole ends within: a dent
    values[8, 8, 4:6] = -0.1
    apart = values.copy()
    apart[8] = -0.1  # two halves, a cell apart
    for given in (values, apart):
        assert np.array_equal(without_undecided_holes(given, PIXEL), given)


def euler_number(inside: np.ndarray) -> int:
    return int(euler_gains(np.zeros(inside.shape, bool), inside.astype(int))[1])


def test_parts_change_the_euler_number_each_by_itself() -> None:
    ring = plate(1.2) > 0.0
    plug, piece = np.zeros((2, *ring.shape), bool)
    plug[7:10, 7:10, 2:7] = ~ring[7:10, 7:10, 2:7]
    piece[0, 0, 0] = True
    assert euler_gains(ring, plug * 2 + piece * 1).tolist() == [0, 1, 1]
    bridge = np.zeros(ring.shape, bool)
    bridge[8, 7:10, 4] = ~ring[8, 7:10, 4]  # across the hole: two holes
    assert euler_gains(ring, bridge.astype(int)).tolist() == [0, -1]


def test_the_euler_number_counts_parts_holes_and_cavities() -> None:
    ring = plate(1.2) > 0.0
    assert euler_number(ring) == 0  # 1 part, 1 hole
    both = np.concatenate([ring, np.ones((3, *ring.shape[1:]), bool)], axis=0)
    both[len(ring) - 1] = False
    assert euler_number(both) == 1
    hollow = np.ones((5, 5, 5), bool)
    hollow[2, 2, 2] = False
    assert euler_number(hollow) == 2
