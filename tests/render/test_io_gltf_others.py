"""glTF as other programs write it: odd roots, lights, images, names, extras. Files by hand."""

from __future__ import annotations

import base64
import codecs
import io
import json
import os
from dataclasses import replace
from urllib.parse import quote

import numpy as np
import pygltflib
import pytest
from mini_gltf import Mini, png, triangle
from PIL import Image as PillowImage

from dressi.errors import GraphError, LoadError
from dressi.render.io import load_scene, save_scene
from dressi.render.scene import Node, differences, icosphere, scene_of

UVS = np.array([[0, 0], [1, 0], [0, 1]])
RED = np.full((2, 2, 3), (255, 0, 0), np.uint8)


def noted(scene, *words):
    return [note for note in scene.notes if all(word in note for word in words)]


def textured(image, texture=None, **material):
    mini = Mini()
    primitive = mini.primitive(attributes={"TEXCOORD_0": mini.accessor(UVS, "f4")}, material=0)
    mini.scene(primitive)
    surface = {"baseColorTexture": {"index": 0}, "baseColorFactor": [0.5, 1, 1, 1]}
    mini.doc["materials"] = [{"pbrMetallicRoughness": surface} | material]
    mini.doc["textures"], mini.doc["images"] = [texture or {"source": 0}], [image]
    return mini


def moved(roots, *children):
    """Nodes in a row, each 1 to the right of its parent; the last has the mesh."""
    mini = triangle()
    nodes = [{"name": f"n{i}", "translation": [1, 0, 0]} for i in range(len(children))]
    for node, own in zip(nodes, children, strict=True):
        node.update({"children": own} if own else {})
    nodes[-1]["mesh"] = 0
    mini.doc["nodes"], mini.doc["scenes"] = nodes, [{"nodes": roots}]
    return mini


@pytest.mark.parametrize(
    ("roots", "children", "x", "words"),
    [
        ([0, 1], [[1], []], 2.0, "drawn once, as the child"),
        ([1, 0], [[1], []], 2.0, "drawn once, as the child"),
        ([0, 2], [[1], [2], []], 3.0, "drawn once, as the child"),
        ([1], [[1], []], 1.0, "which the scene lacks"),
        ([2, 1], [[1], [2], []], 2.0, "which the scene lacks"),
        ([0, 0], [[]], 1.0, "lists a node twice"),
    ],
)
def test_a_root_that_is_a_child_too_is_drawn_once(tmp_path, roots, children, x, words):
    scene = load_scene(moved(roots, *children).save(tmp_path))
    (instance,) = scene.instances()
    assert instance.world[0, 3] == x
    assert noted(scene, words)
    assert differences(scene, load_scene(_saved(tmp_path, scene))) == []


def _saved(folder, scene):
    save_scene(folder / "again.glb", scene)
    return folder / "again.glb"


def test_two_parents_and_cycles_are_still_refused(tmp_path):
    for children in ([[2], [2], []], [[1], [2], [1]]):
        with pytest.raises(LoadError, match=r"parents|cycle"):
            load_scene(moved([0, 1], *children).save(tmp_path))


@pytest.mark.parametrize(("angle", "inner"), [(0.5, 0.499), (1e-4, 5e-5)])
def test_a_spot_without_a_soft_rim_gets_a_thin_one(tmp_path, angle, inner):
    mini = triangle()
    spot = {"innerConeAngle": angle, "outerConeAngle": angle}
    mini.doc["extensions"] = {"KHR_lights_punctual": {"lights": [{"type": "spot", "spot": spot}]}}
    mini.doc["extensionsUsed"] = ["KHR_lights_punctual"]
    mini.doc["nodes"][0]["extensions"] = {"KHR_lights_punctual": {"light": 0}}
    scene = load_scene(mini.save(tmp_path))
    assert scene.lights[0].inner_cone_rad == pytest.approx(inner)
    assert scene.lights[0].outer_cone_rad == angle and noted(scene, "lights[0].spot", "inner")


def webp():
    stream = io.BytesIO()
    PillowImage.fromarray(RED).save(stream, "WEBP", lossless=True)
    return stream.getvalue()


@pytest.mark.parametrize("required", [True, False])
def test_webp_textures(tmp_path, required):
    mini = textured({"uri": "a.webp"}, {"extensions": {"EXT_texture_webp": {"source": 0}}})
    mini.doc["extensionsUsed"] = ["EXT_texture_webp"]
    if required:
        mini.doc["extensionsRequired"] = ["EXT_texture_webp"]
    (tmp_path / "a.webp").write_bytes(webp())
    scene = load_scene(mini.save(tmp_path))
    assert scene.notes == (
        "meshes[0].primitives[0]: no normals; they are flat, and vertices are split",
    )
    assert np.array_equal(scene.images[0].pixels, RED / 255)
    again = load_scene(_saved(tmp_path, scene))
    assert np.array_equal(again.images[0].pixels, RED / 255)


def test_one_missing_image_is_a_note(tmp_path):
    mini = textured({"uri": "sk%69n.png"}, emissiveFactor=[1, 1, 1], emissiveTexture={"index": 0})
    (tmp_path / "Skin.png").touch()
    scene = load_scene(mini.save(tmp_path))
    (material,) = scene.materials
    assert material.maps == {} and scene.images == ()
    assert material.base_color == (0.5, 1, 1, 1) and material.emissive == (0, 0, 0)
    assert noted(scene, "images[0].uri", "'skin.png'", "'Skin.png'", f"'{tmp_path}'")
    mini.doc["buffers"] = [{"byteLength": 4, "uri": "gone.bin"}]
    with pytest.raises(LoadError, match=r"gone\.bin.*looked in the folder"):
        load_scene(mini.save(tmp_path))
    (tmp_path / "skin.png").write_bytes(b"no picture")
    with pytest.raises(LoadError, match=r"images\[0\]"):
        load_scene(textured({"uri": "skin.png"}).save(tmp_path))


NAMES = [
    "a b",
    "ümläut",
    "🐄",
    "it's",
    'q"uote',
    "a#1",
    "100%",
    "50%25",
    ".dots..",
    "x" * 200,
    "a?b",
]


@pytest.mark.parametrize("escaped", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_unusual_names_of_images_and_nodes(tmp_path, name, escaped):
    (tmp_path / f"{name}.png").write_bytes(png(RED))
    mini = textured({"uri": (quote(name) if escaped else name) + ".png"})
    mini.doc["nodes"][0]["name"] = name
    scene = load_scene(mini.save(tmp_path, name="n"))
    assert np.array_equal(scene.images[0].pixels, RED / 255)
    assert scene.nodes[0].name == name
    path = tmp_path / f"{name}.gltf"
    save_scene(path, scene)
    again = load_scene(path)
    assert again.nodes[0].name == name and np.array_equal(again.images[0].pixels, RED / 255)
    assert pygltflib.GLTF2().load(str(path)).nodes[0].name == name


def test_windows_paths_and_marks_and_latin_1(tmp_path):
    (tmp_path / "tex").mkdir()
    (tmp_path / "tex" / "ä.png").write_bytes(png(RED))
    mini = textured({"uri": "tex\\ä.png"})
    uri = "data:application/octet-stream;base64," + base64.b64encode(mini.data).decode()
    text = json.dumps(mini.document(uri), ensure_ascii=False)
    path = tmp_path / "a.gltf"
    for data in (
        codecs.BOM_UTF8 + text.encode(),
        text.encode("utf-16"),
        text.encode("latin-1"),
        json.dumps(mini.document(uri), indent=1).replace("\n", "\r").encode(),
    ):
        path.write_bytes(data)
        assert np.array_equal(load_scene(path).images[0].pixels, RED / 255)


def test_copyright_and_extras_come_back(tmp_path):
    mini = textured({"bufferView": 0})
    mini.doc["images"] = [{"bufferView": mini.view(png(RED)), "extras": [1, "two", None]}]
    mini.doc["asset"]["copyright"] = "© me"
    mini.doc["asset"]["extras"] = {"kept": 1}
    mini.doc["textures"][0]["extras"] = 5
    extras = {"nodes": {"a": {"b": 0.1}}, "materials": "text", "scenes": 7.5, "meshes": {"x": True}}
    for key, value in extras.items():
        mini.doc[key][0]["extras"] = value
    mini.doc["meshes"][0]["primitives"][0]["extras"] = [3]
    lens = {"yfov": 1, "znear": 0.1}
    mini.doc["cameras"] = [{"type": "perspective", "perspective": lens, "extras": False}]
    light = {"type": "point", "extras": {"l": 1}}
    mini.doc["extensions"] = {"KHR_lights_punctual": {"lights": [light]}}
    mini.doc["extensionsUsed"] = ["KHR_lights_punctual"]
    first = load_scene(mini.save(tmp_path))
    assert noted(first, "extras of textures[0] are left out")
    assert save_scene(tmp_path / "b.gltf", first) == ()
    for scene in (first, load_scene(tmp_path / "b.gltf")):
        assert scene.copyright == "© me" and scene.extras == 7.5
        assert scene.nodes[0].extras == {"a": {"b": 0.1}} and scene.materials[0].extras == "text"
        assert scene.meshes[0].extras == {"x": True}
        assert scene.meshes[0].primitives[0].extras == [3]
        assert scene.images[0].extras == [1, "two", None]
        assert scene.cameras[0].extras is False and scene.lights[0].extras == {"l": 1}
    document = json.loads((tmp_path / "b.gltf").read_text(encoding="utf-8"))
    assert document["asset"]["copyright"] == "© me" and document["asset"]["extras"] == {"kept": 1}
    assert document["nodes"][0]["extras"] == {"a": {"b": 0.1}}


def test_extras_beside_the_names_of_blendshapes(tmp_path):
    mini = Mini()
    target = {"POSITION": mini.accessor(np.ones((3, 3)), "f4")}
    mini.scene(mini.primitive(targets=[target]))
    mini.doc["meshes"][0]["extras"] = {"targetNames": ["smile"], "mine": 1}
    scene = load_scene(mini.save(tmp_path))
    again = load_scene(_saved(tmp_path, scene))
    for got in (scene, again):
        assert got.meshes[0].extras == {"mine": 1}
        assert got.meshes[0].primitives[0].targets[0].name == "smile"
    odd = replace(scene, meshes=(replace(scene.meshes[0], extras=3),))
    assert "extras are left out" in save_scene(tmp_path / "c.glb", odd)[0]


@pytest.mark.parametrize("bad", [{1, 2}, float("nan"), np.float32(1.0)])
def test_extras_that_are_no_json_are_refused(tmp_path, bad):
    scene = replace(scene_of(icosphere(1)), nodes=(Node(mesh=0, extras=bad),))
    with pytest.raises(GraphError, match=r"extras of nodes\[0\]"):
        save_scene(tmp_path / "a.glb", scene)
    assert not os.listdir(tmp_path)
