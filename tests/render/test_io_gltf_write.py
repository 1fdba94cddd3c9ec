"""Scenes survive load, save, load; files are what other programs read; writing is atomic."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import numpy as np
import pygltflib
import pytest
import trimesh

from dressi.errors import GraphError
from dressi.render.io import linear_to_srgb, load_scene, save_scene, srgb_to_linear
from dressi.render.scene import (
    Image,
    Material,
    MorphTarget,
    Node,
    Primitive,
    PunctualLight,
    Scene,
    SceneCamera,
    SceneMesh,
    TextureRef,
    differences,
    icosphere,
    primitive_of,
    scene_of,
    trs_matrix,
)

RNG = np.random.default_rng(11)
ENDINGS = [("a.glb", False), ("a.gltf", False), ("a.gltf", True)]


def steps(shape, levels=255):
    """Values that a file of so many levels holds exactly."""
    return RNG.integers(0, levels + 1, shape) / levels


def rich_scene():
    """Everything that a scene can hold and glTF too; images in the order of their use."""
    ball = primitive_of(icosphere(1), material=0)
    n = len(ball.positions)
    unit = RNG.normal(size=(n, 3))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    sign = RNG.choice([-1.0, 1.0], (n, 1))
    full = Primitive(
        ball.positions,
        ball.faces,
        ball.normals,
        np.concatenate([unit, sign], axis=1),
        (*ball.uvs, RNG.uniform(size=(n, 2)), RNG.uniform(size=(n, 2))),
        RNG.uniform(size=(n, 4)),
        0,
        (
            MorphTarget(RNG.normal(size=(n, 3)), RNG.normal(size=(n, 3)), unit, "smile"),
            MorphTarget(RNG.normal(size=(n, 3)), name="frown"),
        ),
    )
    plain = replace(
        full,
        targets=(MorphTarget(unit, None, None, "smile"), MorphTarget(unit, name="frown")),
        material=1,
    )
    move = {"offset": (0.25, -1.5), "rotation_rad": 0.3, "scale": (2.0, -1.0)}
    material = Material(
        (0.1, 0.2, 0.3, 0.4),
        TextureRef(0, 1, "clamp", "mirror", "nearest", "nearest_mipmap_linear", **move),
        0.25,
        0.75,
        TextureRef(1, min_filter="linear"),
        TextureRef(2, 2),
        -0.5,
        TextureRef(1),
        0.5,
        (1.0, 0.5, 0.0),
        3.5,
        TextureRef(3),
        "MASK",
        0.125,
        True,
        True,
        "everything",
    )
    srgb = srgb_to_linear(steps((4, 5, 3)))
    rgba = np.concatenate([srgb_to_linear(steps((3, 2, 3))), steps((3, 2, 1))], axis=-1)
    return Scene(
        nodes=(
            Node(trs_matrix((1, 2, 3), (0.1, 0.2, 0.3, 0.9), (1, -2, 3)), (1, 2), name="root"),
            Node(mesh=0, weights=(0.5, -1.0), name="child"),
            Node(camera=1, light=2),
            Node(camera=0, light=0),
            Node(light=1),
        ),
        roots=(0, 3, 4),
        meshes=(SceneMesh((full, plain), (0.25, 0.0), "ball"),),
        materials=(material, Material(alpha_mode="BLEND")),
        images=(
            Image(srgb, "srgb", "albedo"),
            Image(steps((2, 2, 3)), "linear", "orm"),
            Image(steps((3, 3, 3), 65535), "linear", "normals", 16),
            Image(rgba, "srgb", "glow"),
        ),
        cameras=(
            SceneCamera("perspective", 33.3, 1.5, near=0.1, far=70.0, name="a"),
            SceneCamera("orthographic", x_mag=2.0, y_mag=3.0, near=0.0, far=5.0),
        ),
        lights=(
            PunctualLight("directional", (1.0, 0.5, 0.25), 3.0, name="sun"),
            PunctualLight("point", range=7.5),
            PunctualLight("spot", intensity=2.5, inner_cone_rad=0.25, outer_cone_rad=0.5),
        ),
        name="all of it",
    )


@pytest.mark.parametrize(("name", "embed"), ENDINGS)
def test_everything_survives_save_and_load(tmp_path, name, embed):
    scene = rich_scene()
    assert save_scene(tmp_path / name, scene, embed=embed) == ()
    got = load_scene(tmp_path / name)
    # Grids of fields that have a meaning for one kind only are not in the file.
    assert differences(scene, got, skip=("notes", "fov_y_deg")) == []
    assert got.cameras[0].fov_y_deg == pytest.approx(33.3) and got.notes == ()


@pytest.mark.parametrize(
    "model",
    [
        *("Duck", "Avocado", "BoxTextured", "BoxInterleaved", "CesiumMilkTruck"),
        "no_indices_3storybuilding",
    ],
)
def test_known_models_survive_load_save_load(shared_data, tmp_path, model):
    path = shared_data / "gltf" / f"{model}.glb"
    if not path.is_file():
        pytest.skip(f"shared/data/gltf/{model}.glb is absent")
    scene = load_scene(path)
    name = "a.gltf" if model == "Duck" else "a.glb"
    save_scene(tmp_path / name, scene)
    assert differences(scene, load_scene(tmp_path / name)) == []


def test_other_readers_agree(tmp_path):
    save_scene(tmp_path / "a.glb", rich_scene())
    document = pygltflib.GLTF2.load_binary(str(tmp_path / "a.glb"))
    assert document.extensionsUsed == [
        "KHR_lights_punctual",
        "KHR_materials_emissive_strength",
        "KHR_materials_unlit",
        "KHR_texture_transform",
    ]
    assert len(document.samplers) == 3 and len(document.textures) == 5, "no doubles"
    ball = icosphere(1)
    save_scene(tmp_path / "b.gltf", scene_of(ball, np.full((2, 2, 3), 0.25)))
    other = trimesh.load_scene(tmp_path / "b.gltf", process=False).to_geometry()
    assert np.allclose(other.vertices[other.faces], ball.positions[ball.faces])
    pixels = np.asarray(other.visual.material.baseColorTexture.convert("RGB"))
    assert (pixels == np.rint(linear_to_srgb(0.25) * 255)).all()


def test_values_that_a_png_cannot_hold_are_clipped_and_said(tmp_path):
    scene = scene_of(icosphere(1), np.full((2, 2, 3), 1.5))
    scene = replace(scene, environment=Image(np.ones((2, 4, 3)), "linear"))
    notes = save_scene(tmp_path / "a.glb", scene)
    assert "from 1.5 to 1.5; they are clipped" in notes[1] and "environment" in notes[0]
    assert load_scene(tmp_path / "a.glb").images[0].pixels.max() == 1.0


def test_a_scene_without_meshes_is_a_file_without_buffers(tmp_path):
    scene = Scene((Node(name="empty"),), (0,), name="nothing")
    for name, _ in ENDINGS[:2]:
        save_scene(tmp_path / name, scene)
        assert differences(scene, load_scene(tmp_path / name)) == []
    assert len(os.listdir(tmp_path)) == 2


def test_data_beside_a_gltf_belong_to_it_alone(tmp_path):
    """A new .gltf names new files; those of the old one go, other people's files stay."""
    path = tmp_path / "my scene.gltf"
    (tmp_path / "my_scene.bin").write_bytes(b"not ours")
    save_scene(path, scene_of(icosphere(1), np.full((2, 2, 3), 0.5)))
    before = set(os.listdir(tmp_path))
    assert len(before) == 4
    save_scene(path, scene_of(icosphere(1), np.full((2, 2, 3), 0.25)))
    after = set(os.listdir(tmp_path))
    assert len(after) == 4 and {"my scene.gltf", "my_scene.bin"} <= after
    assert len(before & after) == 3, "the .bin has the same content; the PNG was replaced"
    uris = [b["uri"] for b in json.loads(path.read_text())["buffers"]]
    assert set(uris) <= after


@pytest.mark.parametrize("name", ["a.glb", "a.gltf"])
def test_a_full_disk_leaves_the_old_scene(tmp_path, monkeypatch, name):
    old = scene_of(icosphere(1), np.full((2, 2, 3), 0.5))
    new = scene_of(icosphere(2), np.full((2, 2, 3), 0.25))
    path = tmp_path / name
    save_scene(path, old)
    real = os.fsync
    for n_good in range(3 if name.endswith("gltf") else 1):
        left = [n_good]

        def full(descriptor, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(28, "No space left on device")
            real(descriptor)

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            save_scene(path, new)
        assert differences(old, load_scene(path), skip=("notes", "pixels", "name")) == []
    monkeypatch.setattr(os, "fsync", real)
    save_scene(path, new)
    assert not [n for n in os.listdir(tmp_path) if n.endswith(".tmp")]


def test_bad_scenes_and_names_leave_no_file(tmp_path):
    bad = Scene((Node(mesh=3),), (0,))
    with pytest.raises(GraphError, match="mesh is 3"):
        save_scene(tmp_path / "a.glb", bad)
    with pytest.raises(GraphError, match=r"a\.fbx"):
        save_scene(tmp_path / "a.fbx", scene_of(icosphere(1)))
    assert not os.listdir(tmp_path)
