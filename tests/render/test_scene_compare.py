"""What tells scenes apart must see each kind of difference, and forgive rounding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dressi.apps.reliability import survival
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


def test_r11_names_a_scene_that_comes_back_different(monkeypatch):
    monkeypatch.setattr(survival, "features", lambda: {"planted": SCENE})
    real = survival.load_scene
    monkeypatch.setattr(survival, "load_scene", lambda path: replace(real(path), name="other"))
    (row,) = survival.conformance(None, True)
    assert row["value"] == 3 and not row["holds"] and "planted, a.glb: scene" in row["figure"]


def test_r14_sees_a_writer_that_is_not_atomic(tmp_path):
    """Half of the trials fill the disk: a plain write leaves a part of the new file then."""

    def write(path, version):
        path.write_bytes(bytes([version]) * 60000)

    left = set()
    for seed in range(12):
        done = survival._trial(survival.random.Random(seed), tmp_path, "a.bin", write)
        data = (tmp_path / "a.bin").read_bytes()
        left.add((done == "full disk", len(data) == 60000))
    assert (True, False) in left
