"""Rounds begin and end in order: what is done where one way does not lead there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dressi.apps.reconstruct import order
from dressi.errors import DressiError
from dressi.render.scene import Mesh, icosphere, surface_problems

SPHERE = icosphere(2)


def folded() -> Mesh:
    """The sphere with a vertex pulled through the other side."""
    positions = SPHERE.positions.copy()
    positions[0] *= -1.5
    return replace(SPHERE, positions=positions)


def no_way(mesh: Mesh, rounds: int = 12, rebuild: bool = True) -> Mesh:
    raise DressiError("no way")


def test_where_untangling_finds_no_way_vertices_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "untangle", no_way)
    made = order.repaired(folded(), SPHERE)
    assert surface_problems(made).is_embedded and made.faces is SPHERE.faces
    assert (made.positions == SPHERE.positions).all(axis=1).mean() > 0.9
    # With nothing to go back to, it stays as it came.
    mesh = folded()
    assert order.repaired(mesh, folded()) is mesh


def test_more_holes_than_before_are_no_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    from dressi.apps.experiments.meshes import torus

    monkeypatch.setattr(order, "untangle", lambda mesh: torus(12, 8))
    made = order.repaired(folded(), SPHERE)
    assert surface_problems(made).genus == 0 and surface_problems(made).is_embedded


def test_a_round_begins_with_more_faces_where_fewer_cross(monkeypatch: pytest.MonkeyPatch) -> None:
    finer = icosphere(3)
    asked = []

    def evenly(mesh: Mesh, faces: int) -> Mesh:
        asked.append(faces)
        return finer if faces >= 400 else folded()

    monkeypatch.setattr(order, "evenly", evenly)
    monkeypatch.setattr(
        order, "untangle", lambda mesh, rebuild: mesh if mesh is finer else no_way(mesh)
    )
    assert order.remeshed(SPHERE, 200) is finer and asked == [200, 400]
    # Where no number of faces will do, the surface keeps its own.
    asked.clear()
    monkeypatch.setattr(
        order, "untangle", lambda mesh, rebuild: mesh if mesh is SPHERE else no_way(mesh)
    )
    assert order.remeshed(SPHERE, 50) is SPHERE and asked == [50, 100, 200]


def test_an_even_surface_in_order_is_taken_as_it_is() -> None:
    made = order.remeshed(icosphere(3), 320)
    assert surface_problems(made).is_embedded
    # Edges of a remeshed surface are 4/5 to 4/3 of what is asked for: half to one and a half of
    # the faces.
    assert 160 < len(made.faces) < 480
    assert np.allclose(np.linalg.norm(made.positions, axis=1), 1.0, atol=0.05)
