"""What tells scenes apart must see each kind of difference, and forgive rounding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dressi.render.scene import Image, Node, differences, icosphere, scene_of

SCENE = scene_of(icosphere(1), np.full((2, 2, 3), 0.5))


def moved(by):
    mesh = SCENE.meshes[0]
    primitive = replace(mesh.primitives[0], positions=mesh.primitives[0].positions + np.float32(by))
    return replace(SCENE, meshes=(replace(mesh, primitives=(primitive,)),))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (moved(1e-3), "positions"),
        (replace(SCENE, nodes=(Node(mesh=0), Node())), "nodes: 1 and 2 entries"),
        (
            replace(SCENE, images=(Image(np.full((2, 2, 3), 0.5), "linear", "albedo"),)),
            "color_space",
        ),
        (replace(SCENE, materials=(replace(SCENE.materials[0], roughness=0.5),)), "roughness"),
        (replace(SCENE, environment=Image(np.ones((1, 1)))), "NoneType and Image"),
        (replace(SCENE, name="x"), "scene.name"),
    ],
)
def test_each_kind_of_difference_is_seen(other, words):
    (line,) = differences(SCENE, other)
    assert words in line


def test_rounding_and_notes_do_not_count():
    assert differences(SCENE, replace(moved(1e-8), notes=("left out",))) == []
