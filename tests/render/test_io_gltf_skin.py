"""Skinned glTF meshes are posed as their joints stand; the mesh's own node does not move them."""

from __future__ import annotations

import numpy as np
import pytest
from mini_gltf import TRIANGLE, WEIGHTS, skinned

from dressi.errors import LoadError
from dressi.render.io.gltf import read_gltf
from dressi.render.io.gltf_write import write_gltf
from dressi.render.scene import differences


@pytest.mark.parametrize("joint_type", ["u1", "u2"])
@pytest.mark.parametrize("weight_type", ["f4", "u1", "u2"])
def test_vertices_follow_the_mean_of_their_joints(tmp_path, joint_type, weight_type):
    most = {"u1": 127, "u2": 30000}.get(weight_type, 1)  # they need not sum to 1
    weights = np.array(WEIGHTS) * most
    scene = read_gltf(skinned(weights, joint_type, weight_type).save(tmp_path))
    (instance,) = scene.instances()
    # Vertex 0 is with the first joint. Vertex 2, (0, 1, 0), with the second: (-1, 1, 0) before it,
    # (-1, 0, 1) turned, (0, 0, 1) and up by 5. Vertex 1, (1, 0, 0), is on both joints' axis.
    assert np.allclose(instance.positions(), [[0, 0, 5], [1, 0, 5], [0, 0, 6]], atol=1e-2)
    normals = instance.normals()
    assert np.allclose(normals[0], [0, 0, 1]) and np.allclose(normals[2], [0, -1, 0], atol=1e-6)
    assert any("posed" in note for note in scene.notes)


def test_a_posed_scene_survives_save_and_load(tmp_path):
    scene = read_gltf(skinned().save(tmp_path))
    write_gltf(tmp_path / "b.glb", scene)
    got = read_gltf(tmp_path / "b.glb")
    assert got.instances()[0].positions().tolist() == scene.instances()[0].positions().tolist()
    assert differences(got.nodes, scene.nodes, skip=("mesh",)) == []


def test_a_skin_without_inverse_bind_matrices_has_identities(tmp_path):
    mini = skinned(weights=((1, 0, 0, 0),) * 3)
    del mini.doc["skins"][0]["inverseBindMatrices"]
    (instance,) = read_gltf(mini.save(tmp_path)).instances()
    assert np.allclose(instance.positions(), TRIANGLE + [0, 0, 5])


def test_a_mesh_without_joints_stays_at_its_node(tmp_path):
    mini = skinned()
    del mini.doc["meshes"][0]["primitives"][0]["attributes"]["JOINTS_0"]
    scene = read_gltf(mini.save(tmp_path))
    assert np.allclose(scene.instances()[0].positions(), TRIANGLE + [100, 0, 0])
    assert any("not posed" in note for note in scene.notes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d["nodes"][0].update(skin=1), "skin: 1 is out of range"),
        (lambda d: d["skins"][0].update(joints=[]), "one joint or more"),
        (lambda d: d["skins"][0].update(joints=[1, 9]), "joints: 9 is out of range"),
        (lambda d: d["skins"][0].update(joints=[1]), "joint 1 of a skin with 1 joints"),
        (lambda d: d["skins"][0].update(inverseBindMatrices=0), "MAT4 of floats"),
        (lambda d: d["scenes"][0].update(nodes=[0]), "joint 1 is not in the scene"),
    ],
)
def test_broken_skins_are_refused(tmp_path, change, words):
    mini = skinned()
    change(mini.doc)
    with pytest.raises(LoadError, match=words):
        read_gltf(mini.save(tmp_path))


@pytest.mark.parametrize("row", [(0, 0, 0, 0), (2, -1, 0, 0)])
def test_weights_that_are_no_mean_are_refused(tmp_path, row):
    with pytest.raises(LoadError, match="weights must not"):
        read_gltf(skinned(weights=((1, 0, 0, 0), (1, 0, 0, 0), row)).save(tmp_path))
