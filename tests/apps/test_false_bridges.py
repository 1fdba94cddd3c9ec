"""Bridges that no mask shows are cut; handles that masks show stay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dressi.apps.experiments.gallery import boundary_of
from dressi.apps.reconstruct.framing import around, views_of
from dressi.apps.reconstruct.pictures import Pictures
from dressi.apps.reconstruct.targets import draw, target_of_mesh
from dressi.errors import GraphError
from dressi.render.fit import without_false_bridges
from dressi.render.scene import Mesh, surface_problems

pytestmark = pytest.mark.gpu


def fork(bridges: int) -> Mesh:
    """Two prongs on a base, joined by bridges."""
    solid = np.zeros((5, 8, 2), bool)
    solid[:, 0] = solid[0] = solid[4] = True
    for k in range(bridges):
        solid[:, 3 + 3 * k, 0] = True
    return replace(boundary_of(solid), name="fork")


def pictures_of(mesh: Mesh) -> Pictures:
    """From six sides, framed alike whatever the bridges."""
    return draw(target_of_mesh(mesh), views_of(mesh.positions, around(6)), 64)


def cut(mesh: Mesh, seen: Pictures, agreeing_views: int = 1) -> Mesh:
    return without_false_bridges(
        mesh, seen.coverage, seen.matrices, seen.weights, agreeing_views=agreeing_views
    )


@pytest.mark.parametrize("shown", [0, 1, 2])
def test_bridges_are_cut_where_masks_are_empty_around_them(shown: int) -> None:
    mesh = fork(2)
    made = cut(mesh, pictures_of(fork(shown)))
    problems = surface_problems(made)
    assert problems.genus == shown and problems.n_components == 1
    assert problems.is_closed and problems.is_embedded
    assert (made is mesh) == (shown == 2)
    if shown < 2:  # the rest stays where it was
        old = {tuple(p) for p in mesh.positions.tolist()}
        rest = [p for p in made.positions.tolist() if tuple(p) not in old]
        assert len(rest) < 20 and all(0.5 < p[0] < 4.5 for p in rest)


def test_a_bridge_between_parts_stays() -> None:
    """Cut, it would leave two parts."""
    solid = np.zeros((5, 4, 2), bool)
    solid[0] = solid[4] = True
    apart = boundary_of(solid)
    solid[:, 2, 0] = True
    joined = boundary_of(solid)
    seen = draw(target_of_mesh(apart), views_of(joined.positions, around(6)), 64)
    assert cut(joined, seen) is joined


def test_as_many_views_agree_as_are_asked_for_and_pixels_without_weight_say_nothing() -> None:
    mesh, seen = fork(1), pictures_of(fork(0))
    assert surface_problems(cut(mesh, seen, agreeing_views=2)).genus == 0
    assert cut(mesh, seen, agreeing_views=7) is mesh
    unknown = replace(seen, weights=(seen.coverage > 0.5).astype(np.float32))
    assert cut(mesh, unknown) is mesh


def test_errors() -> None:
    with pytest.raises(GraphError, match="without_false_bridges"):
        without_false_bridges(fork(1), np.zeros((2, 8, 8)), np.zeros((1, 4, 4)))
