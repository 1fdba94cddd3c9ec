"""What a glTF file holds that is of no use here comes back: animations, skins while vertices stay,
extras, unknown extensions. Files are read again by a reader of their own: JSON and NumPy alone."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mini_gltf import BINDS, JOINTS, WEIGHTS, Mini, skinned

from dressi.render.io import load_scene, save_scene
from dressi.render.scene import differences

TYPES = {5121: "<u1", 5123: "<u2", 5125: "<u4", 5126: "<f4"}
WIDTHS = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4, "MAT4": 16}


class Plain:
    """A GLB, chunk by chunk."""

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        (size,) = struct.unpack_from("<I", data, 12)
        self.doc: dict[str, Any] = json.loads(data[20 : 20 + size])
        self.bytes = data[20 + size + 8 :]

    def table(self, row: int) -> np.ndarray:
        accessor = self.doc["accessors"][row]
        view = self.doc["bufferViews"][accessor["bufferView"]]
        width, kind = WIDTHS[accessor["type"]], np.dtype(TYPES[accessor["componentType"]])
        start = view.get("byteOffset", 0) + accessor.get("byteOffset", 0)
        assert start % kind.itemsize == 0
        values = np.frombuffer(self.bytes, kind, accessor["count"] * width, start)
        return values.reshape(-1, width)


def _times(mini: Mini) -> dict[str, Any]:
    times = mini.accessor([[0.0], [0.5], [2.0]], "f4", min=[0.0], max=[2.0])
    turns = mini.accessor([[0, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0]], "f4")
    sampler = {"input": times, "output": turns, "interpolation": "STEP"}
    channel = {"sampler": 0, "target": {"node": 1, "path": "rotation"}}
    return {"name": "wave", "samplers": [sampler], "channels": [channel], "extras": {"fps": 24}}


def _saved(path: Path, scene: Any) -> tuple[Plain, tuple[str, ...]]:
    notes = save_scene(path, scene)
    return Plain(path), notes


def _checked_animation(got: Plain) -> None:
    (animation,) = got.doc["animations"]
    assert animation["name"] == "wave" and animation["extras"] == {"fps": 24}
    (sampler,) = animation["samplers"]
    assert got.table(sampler["input"]).ravel().tolist() == [0.0, 0.5, 2.0]
    times = got.doc["accessors"][sampler["input"]]
    assert times["min"] == [0.0] and times["max"] == [2.0], "glTF asks for them"
    assert got.table(sampler["output"])[1].tolist() == [0, 1, 0, 0]
    assert sampler["interpolation"] == "STEP"
    assert animation["channels"] == [{"sampler": 0, "target": {"node": 1, "path": "rotation"}}]
    assert "matrix" not in got.doc["nodes"][1], "animated nodes must not have one"
    assert got.doc["nodes"][1]["translation"] == [0, 0, 5]


def test_a_skin_and_its_animation_come_back(tmp_path: Path) -> None:
    mini = skinned()
    mini.doc["animations"] = [_times(mini)]
    scene = load_scene(mini.save(tmp_path))
    assert "animations are kept, and not played" in scene.notes
    for k in range(2):  # once more of what was written
        got, notes = _saved(tmp_path / f"{k}.glb", scene)
        assert notes == ()
        _checked_animation(got)
        (skin,) = got.doc["skins"]
        assert skin["joints"] == [1, 2] and got.doc["nodes"][0]["skin"] == 0
        binds = got.table(skin["inverseBindMatrices"]).reshape(-1, 4, 4)
        assert np.array_equal(binds, BINDS)
        (mesh,) = got.doc["meshes"]
        attributes = mesh["primitives"][0]["attributes"]
        assert np.array_equal(got.table(attributes["JOINTS_0"]), JOINTS)
        total = np.sum(WEIGHTS, axis=1, keepdims=True)
        assert np.allclose(got.table(attributes["WEIGHTS_0"]), np.array(WEIGHTS) / total)
        assert got.table(attributes["POSITION"]).tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0]]
        assert len(got.doc["nodes"]) == 3 and got.doc["scenes"][0]["nodes"] == [0, 1]
        scene = load_scene(tmp_path / f"{k}.glb")
        assert np.allclose(scene.instances()[0].positions()[2], [0, 0, 6], atol=1e-6)


def test_a_mesh_that_was_moved_stays_where_it_is_without_its_skin(tmp_path: Path) -> None:
    mini = skinned()
    mini.doc["animations"] = [_times(mini)]
    scene = load_scene(mini.save(tmp_path))
    mesh = scene.meshes[-1]
    moved = replace(mesh.primitives[0], positions=mesh.primitives[0].positions + np.float32(0.25))
    changed = replace(mesh, primitives=(moved,))
    scene = replace(scene, meshes=(*scene.meshes[:-1], changed))
    got, notes = _saved(tmp_path / "moved.glb", scene)
    assert notes == ("the skin of nodes[0] is left out: its mesh has changed",)
    assert "skins" not in got.doc and not any("skin" in node for node in got.doc["nodes"])
    _checked_animation(got)
    again = load_scene(tmp_path / "moved.glb").instances()[0].positions()
    assert np.allclose(again[2], [0.25, 0.25, 6.25], atol=1e-6)


def test_another_material_does_not_take_the_skin(tmp_path: Path) -> None:
    mini = skinned()
    mini.doc["materials"] = [{"name": "first"}, {"name": "second"}]
    scene = load_scene(mini.save(tmp_path))
    mesh = scene.meshes[-1]
    other = replace(mesh, primitives=(replace(mesh.primitives[0], material=1),))
    got, notes = _saved(tmp_path / "other.glb", replace(scene, meshes=(*scene.meshes[:-1], other)))
    assert notes == () and len(got.doc["skins"]) == 1
    assert got.doc["meshes"][0]["primitives"][0]["material"] == 1


def test_unknown_extensions_and_extras_come_back(tmp_path: Path) -> None:
    mini = Mini()
    points = {"attributes": {"POSITION": mini.accessor(np.zeros((1, 3)), "f4")}, "mode": 0}
    mini.scene(points, mini.primitive(), mini.primitive())
    variants = {"mappings": [{"material": 0, "variants": [0]}]}
    mini.doc["meshes"][0]["primitives"][2]["extensions"] = {"KHR_materials_variants": variants}
    mini.doc["meshes"][0]["extensions"] = {"ACME_mesh": {"weight": 3.5}}
    named = {"KHR_materials_variants": {"variants": [{"name": "red"}]}}
    mini.doc |= {"extensions": named, "extras": ["document"]}
    mini.doc["asset"]["extras"] = {"asset": 1}
    mini.doc["nodes"][0]["extensions"] = {"ACME_node": {"a": [1, 2]}, "ACME_data": {"accessor": 0}}
    sheen = {"sheenColorTexture": {"index": 0}}
    mini.doc["materials"] = [{"extensions": {"KHR_materials_sheen": sheen, "ACME_m": {"b": 1}}}]
    names = ["KHR_materials_variants", "ACME_mesh", "ACME_node", "ACME_data", "ACME_m"]
    mini.doc["extensionsUsed"] = [*names, "KHR_materials_sheen"]
    scene = load_scene(mini.save(tmp_path))
    for name in ("ACME_data", "KHR_materials_sheen"):
        assert f"the extension {name} is left out" in scene.notes
    assert "the extension ACME_node is kept, and makes no difference here" in scene.notes
    got, notes = _saved(tmp_path / "b.glb", scene)
    assert notes == ()
    doc = got.doc
    assert doc["extensions"] == named and doc["extras"] == ["document"]
    assert doc["asset"]["extras"] == {"asset": 1}
    # The points are gone: the third primitive is the second now.
    first, second = doc["meshes"][0]["primitives"]
    assert second["extensions"] == {"KHR_materials_variants": variants}
    assert "extensions" not in first
    assert doc["meshes"][0]["extensions"] == {"ACME_mesh": {"weight": 3.5}}
    assert doc["nodes"][0]["extensions"] == {"ACME_node": {"a": [1, 2]}}
    assert doc["materials"][0]["extensions"] == {"ACME_m": {"b": 1}}
    assert doc["extensionsUsed"] == sorted(n for n in names if n != "ACME_data")
    assert differences(scene, load_scene(tmp_path / "b.glb"), skip=("notes", "name")) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.pop("samplers"),
        lambda a: a["samplers"][0].update(input=99),
        lambda a: a["channels"][0].update(sampler=4),
        lambda a: a["channels"][0]["target"].update(node=77),
    ],
)
def test_an_animation_that_is_broken_is_left_out_with_its_place(tmp_path: Path, change) -> None:
    mini = skinned()
    mini.doc["animations"] = [_times(mini)]
    change(mini.doc["animations"][0])
    scene = load_scene(mini.save(tmp_path))
    assert any(note.startswith("animations[0] is left out") for note in scene.notes)
    assert "animations" not in _saved(tmp_path / "b.glb", scene)[0].doc


def test_an_animated_node_that_was_turned_gets_parts_of_its_matrix(tmp_path: Path) -> None:
    mini = skinned()
    mini.doc["animations"] = [_times(mini)]
    scene = load_scene(mini.save(tmp_path))
    turn = np.array([[0, -2.0, 0, 7], [2, 0, 0, 8], [0, 0, 3, 9], [0, 0, 0, 1]])
    nodes = (scene.nodes[0], replace(scene.nodes[1], matrix=turn), *scene.nodes[2:])
    got, _ = _saved(tmp_path / "b.glb", replace(scene, nodes=nodes))
    node = got.doc["nodes"][1]
    assert node["translation"] == [7, 8, 9] and np.allclose(node["scale"], [2, 2, 3])
    half = 0.5**0.5
    assert np.allclose(np.abs(node["rotation"]), [0, 0, half, half])


def test_the_wheels_of_a_known_model_still_turn(tmp_path: Path, shared_data: Path) -> None:
    path = shared_data / "gltf" / "CesiumMilkTruck.glb"
    if not path.is_file():
        pytest.skip("shared/data/gltf/CesiumMilkTruck.glb is absent")
    before = Plain(path)
    got, _ = _saved(tmp_path / "truck.glb", load_scene(path))
    assert len(got.doc["animations"]) == len(before.doc["animations"]) > 0
    for old, new in zip(before.doc["animations"], got.doc["animations"], strict=True):
        assert old["channels"] == new["channels"]
        for a, b in zip(old["samplers"], new["samplers"], strict=True):
            for key in ("input", "output"):
                assert np.array_equal(before.table(a[key]), got.table(b[key]))


def test_factors_of_clear_coats_and_transmission_come_back(tmp_path: Path) -> None:
    mini = Mini()
    mini.scene(mini.primitive(material=0))
    coat = {"clearcoatFactor": 0.5, "clearcoatRoughnessFactor": 0.25}
    glass = {"transmissionFactor": 0.75, "transmissionTexture": {"index": 0}}
    given = {"KHR_materials_clearcoat": coat, "KHR_materials_transmission": glass}
    mini.doc["materials"] = [{"extensions": given}]
    mini.doc["extensionsUsed"] = list(given)
    scene = load_scene(mini.save(tmp_path))
    assert any("transmissionTexture left out" in note for note in scene.notes)
    got, notes = _saved(tmp_path / "b.glb", scene)
    assert notes == ()
    glass.pop("transmissionTexture")
    assert got.doc["materials"][0]["extensions"] == given
    assert got.doc["extensionsUsed"] == sorted(given)
    material = load_scene(tmp_path / "b.glb").materials[0]
    assert (material.clearcoat, material.clearcoat_roughness) == (0.5, 0.25)
    assert material.transmission == 0.75
