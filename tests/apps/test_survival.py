"""R11 and R14 of ``dressi bench reliability`` can fail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dressi.apps.reliability import survival
from dressi.render.scene.convert import scene_of
from dressi.render.scene.mesh import icosphere

SCENE = scene_of(icosphere(1), np.full((2, 2, 3), 0.5))


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
