"""glTF: every way to write a triangle comes out as the same triangle. Files are hand-written."""

from __future__ import annotations

import base64
import math

import numpy as np
import pytest
import trimesh
from mini_gltf import TRIANGLE, Mini, png, triangle
from scipy.spatial import cKDTree

from dressi.errors import LoadError
from dressi.render.io import srgb_to_linear
from dressi.render.io.gltf import read_gltf
from dressi.render.scene import area_normals, flat

SQUARE = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], "<f4")
UVS = np.array([[0, 0], [1, 0], [0.2, 1]], "<f4")
UP = np.tile(np.array([0, 0, 1], "<f4"), (3, 1))
PIXELS = np.random.default_rng(3).integers(0, 256, (2, 3, 4), np.uint8)


def load(mini, tmp_path, kind="glb"):
    return read_gltf(mini.save(tmp_path, kind))


def only(scene):
    """The primitive of a scene of one."""
    ((primitive,),) = [mesh.primitives for mesh in scene.meshes]
    return primitive


def attribute(tmp_path, name, values, dtype, quantized=False, points=TRIANGLE, **more):
    mini = Mini()
    extra = {name: mini.accessor(values, dtype, **more)}
    mini.scene(mini.primitive(points, attributes=extra))
    if quantized:
        mini.doc["extensionsUsed"] = mini.doc["extensionsRequired"] = ["KHR_mesh_quantization"]
    return only(load(mini, tmp_path))


@pytest.mark.parametrize("kind", ["glb", "embedded", "external"])
def test_all_containers_hold_the_same_triangle(tmp_path, kind):
    scene = load(triangle(), tmp_path, kind)
    assert np.array_equal(only(scene).positions, TRIANGLE)
    assert scene.name == "mini" and scene.roots == (0,)


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4"])
def test_indices_of_every_width(tmp_path, dtype):
    mini = Mini()
    normals = {"NORMAL": mini.accessor(np.tile(UP[:1], (4, 1)), "f4")}
    mini.scene(mini.primitive(SQUARE, [0, 1, 2, 0, 2, 3], dtype, attributes=normals))
    got = only(load(mini, tmp_path))
    assert got.faces.tolist() == [[0, 1, 2], [0, 2, 3]]
    assert np.array_equal(got.positions, SQUARE), "vertices with normals stay shared"


def test_strips_and_fans_keep_their_winding(tmp_path):
    for mode, points, order in ((5, SQUARE[[0, 1, 3, 2]], 1), (6, SQUARE, 1)):
        got = only(load(triangle(positions=points, mode=mode), tmp_path))
        assert len(got.faces) == 2
        assert np.allclose(got.normals, [0, 0, order]), "both triangles look up"
        area = np.cross(
            *np.moveaxis(got.positions[got.faces[:, 1:]], 1, 0) - got.positions[got.faces[:, 0]]
        )
        assert np.allclose(np.abs(area[:, 2]).sum(), 2.0)


def test_repeated_corners_of_a_strip_join_two_strips(tmp_path):
    mini = Mini()
    points = np.concatenate([SQUARE[[0, 1, 3, 2]], SQUARE[[0, 1, 3, 2]] + np.float32([5, 0, 0])])
    mini.scene(mini.primitive(points, [0, 1, 2, 3, 3, 4, 4, 5, 6, 7], mode=5))
    got = only(load(mini, tmp_path))
    assert len(got.faces) == 4 and np.allclose(got.normals, [0, 0, 1])


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_points_and_lines_are_no_triangles(tmp_path, mode):
    mini = Mini()
    scene = load(mini.scene(mini.primitive(mode=mode), mini.primitive()), tmp_path)
    assert len(scene.meshes[0].primitives) == 1
    assert len(scene.strands) == (mode > 1), "three vertices are no pairs"
    if mode < 2:
        assert ("points" if mode == 0 else "lines") in scene.notes[0]
    alone = load(triangle(mode=mode), tmp_path)
    assert alone.meshes == () and alone.nodes[0].mesh is None


def test_interleaved_attributes(tmp_path):
    mini = Mini()
    rows = np.concatenate([TRIANGLE, UP, UVS], axis=1).astype("<f4")
    view = mini.view(rows.tobytes(), byteStride=32)
    attributes = {}
    for name, start, n in (("POSITION", 0, 3), ("NORMAL", 12, 3), ("TEXCOORD_0", 24, 2)):
        accessor = {"bufferView": view, "byteOffset": start, "componentType": 5126, "count": 3}
        mini.doc["accessors"].append(accessor | {"type": f"VEC{n}"})
        attributes[name] = len(mini.doc["accessors"]) - 1
    got = only(load(mini.scene({"attributes": attributes}), tmp_path))
    assert np.array_equal(got.positions, TRIANGLE) and np.array_equal(got.normals, UP)
    assert np.array_equal(got.uvs[0], UVS)


@pytest.mark.parametrize("has_base", [True, False])
def test_sparse_accessors_change_some_elements(tmp_path, has_base):
    mini = Mini()
    at, new = mini.view(np.array([0, 2], "<u2").tobytes()), mini.view(SQUARE[2:].tobytes())
    primitive = mini.primitive()
    accessor = mini.doc["accessors"][primitive["attributes"]["POSITION"]]
    accessor["sparse"] = {
        "count": 2,
        "indices": {"bufferView": at, "componentType": 5123},
        "values": {"bufferView": new},
    }
    if not has_base:
        del accessor["bufferView"]
    got = only(load(mini.scene(primitive), tmp_path))
    assert got.positions.tolist() == [[1, 1, 0], [1, 0, 0] if has_base else [0, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize(
    ("dtype", "normalized", "stored", "want"),
    [
        ("f4", False, [0.25, 3.0], [0.25, 3.0]),
        ("u1", True, [51, 255], [0.2, 1.0]),
        ("u2", True, [13107, 65535], [0.2, 1.0]),
    ],
)
def test_uvs_of_every_type(tmp_path, dtype, normalized, stored, want):
    got = attribute(tmp_path, "TEXCOORD_0", [stored] * 3, dtype, normalized=normalized)
    assert np.allclose(got.uvs[0], want)


@pytest.mark.parametrize(
    ("dtype", "normalized", "stored", "want"),
    [
        ("i1", True, [-128, -127], [-1.0, -1.0]),
        ("i1", False, [-128, 5], [-128, 5]),
        ("i2", True, [-32768, 32767], [-1.0, 1.0]),
        ("i2", False, [-300, 7], [-300, 7]),
        ("u1", False, [255, 7], [255, 7]),
        ("u2", False, [65535, 7], [65535, 7]),
    ],
)
def test_quantized_uvs_need_their_extension(tmp_path, dtype, normalized, stored, want):
    table = [stored] * 3
    got = attribute(tmp_path, "TEXCOORD_0", table, dtype, quantized=True, normalized=normalized)
    assert np.allclose(got.uvs[0], want)
    with pytest.raises(LoadError, match="KHR_mesh_quantization"):
        attribute(tmp_path, "TEXCOORD_0", table, dtype, normalized=normalized)


def test_quantized_positions_normals_and_tangents(tmp_path):
    mini = Mini()
    attributes = {
        "POSITION": mini.accessor(TRIANGLE * 1000, "i2"),
        "NORMAL": mini.accessor(UP * 127, "i1", normalized=True),
        "TANGENT": mini.accessor([[127, 0, 0, -127]] * 3, "i1", normalized=True),
    }
    mini.scene({"attributes": attributes}, scale=[0.001] * 3)
    mini.doc["extensionsUsed"] = ["KHR_mesh_quantization"]
    (instance,) = load(mini, tmp_path).instances()
    assert np.allclose(instance.positions(), TRIANGLE)
    assert np.allclose(instance.primitive.normals, UP)
    assert np.allclose(instance.primitive.tangents, [1, 0, 0, -1])


@pytest.mark.parametrize("dtype", ["f4", "u1", "u2"])
@pytest.mark.parametrize("channels", [3, 4])
def test_colors_of_every_type_are_rgba(tmp_path, dtype, channels):
    most = {"f4": 1.0, "u1": 255, "u2": 65535}[dtype]
    table = np.array([[0.2, 0.4, 1.0, 0.6][:channels]] * 3) * most
    got = attribute(tmp_path, "COLOR_0", table, dtype, normalized=dtype != "f4")
    assert np.allclose(got.colors, [0.2, 0.4, 1.0, 0.6 if channels == 4 else 1.0])


def test_missing_normals_are_flat_and_split_vertices(tmp_path):
    mini = Mini()
    points = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], "<f4")
    tangents = {"TANGENT": mini.accessor([[1, 0, 0, 1]] * 4, "f4")}
    mini.scene(mini.primitive(points, [0, 1, 2, 0, 3, 1], attributes=tangents))
    scene = load(mini, tmp_path)
    got = only(scene)
    assert got.positions.shape == (6, 3) and got.faces.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert np.array_equal(got.positions, points[[0, 1, 2, 0, 3, 1]])
    assert got.normals.tolist() == [[0, 0, 1]] * 3 + [[0, 1, 0]] * 3
    assert got.tangents is None, "they are to be ignored then"
    assert "no normals" in scene.notes[0]


def test_several_primitives_and_a_second_uv_set(tmp_path):
    mini = Mini()
    uvs = {f"TEXCOORD_{k}": mini.accessor(UVS + k, "f4") for k in range(2)}
    mini.scene(mini.primitive(), mini.primitive(attributes=uvs, material=0))
    image = "data:image/png;base64," + base64.b64encode(png(PIXELS)).decode()
    mini.doc |= {
        "images": [{"uri": image}],
        "textures": [{"source": 0}],
        "materials": [{"occlusionTexture": {"index": 0, "texCoord": 1, "strength": 0.5}}],
    }
    scene = load(mini, tmp_path)
    first, second = scene.meshes[0].primitives
    assert (first.material, second.material) == (None, 0)
    assert np.array_equal(second.uvs[1], UVS + 1)
    material = scene.materials[0]
    assert material.occlusion_map.uv_set == 1 and material.occlusion_strength == 0.5


def textured(where="bufferView", **material):
    mini = Mini()
    uvs = {"TEXCOORD_0": mini.accessor(UVS, "f4")}
    mini.scene(mini.primitive(attributes=uvs, material=0))
    data = png(PIXELS)
    image = {
        "bufferView": lambda: {"bufferView": mini.view(data), "mimeType": "image/png"},
        "uri": lambda: {"uri": "data:image/png;base64," + base64.b64encode(data).decode()},
        "file": lambda: {"uri": "sub/a%20b.png"},
    }[where]()
    mini.doc |= {"images": [image], "textures": [{"source": 0}], "materials": [material]}
    return mini


@pytest.mark.parametrize("where", ["bufferView", "uri", "file"])
def test_images_inside_and_outside(tmp_path, where):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a b.png").write_bytes(png(PIXELS))
    base = {"index": 0}
    mini = textured(where, pbrMetallicRoughness={"baseColorTexture": base}, normalTexture=base)
    scene = load(mini, tmp_path)
    color, normal = scene.images
    assert (color.color_space, normal.color_space) == ("srgb", "linear")
    assert np.allclose(normal.pixels, PIXELS / 255.0, atol=1e-6)
    assert np.allclose(color.pixels[..., :3], srgb_to_linear(PIXELS[..., :3] / 255.0), atol=1e-6)
    assert np.allclose(color.pixels[..., 3], PIXELS[..., 3] / 255.0, atol=1e-6)
    assert color.name == {"file": "a b"}.get(where, "")


def test_samplers_and_texture_transforms(tmp_path):
    move = {"offset": [0.5, 0.25], "rotation": 0.5, "scale": [2, 3], "texCoord": 0}
    info = {"index": 0, "texCoord": 1, "extensions": {"KHR_texture_transform": move}}
    mini = textured(emissiveTexture=info)
    mini.doc["extensionsRequired"] = ["KHR_texture_transform"]
    mini.doc["samplers"] = [{"magFilter": 9728, "minFilter": 9984, "wrapS": 33071, "wrapT": 33648}]
    mini.doc["textures"][0]["sampler"] = 0
    ref = load(mini, tmp_path).materials[0].emissive_map
    assert (ref.wrap_u, ref.wrap_v) == ("clamp", "mirror")
    assert (ref.mag_filter, ref.min_filter) == ("nearest", "nearest_mipmap_nearest")
    assert ref.uv_set == 0, "that of the extension goes first"
    assert (ref.offset, ref.rotation_rad, ref.scale) == ((0.5, 0.25), 0.5, (2.0, 3.0))


def test_materials_with_all_their_factors(tmp_path):
    mini = textured(
        name="all",
        pbrMetallicRoughness={
            "baseColorFactor": [0.1, 0.2, 0.3, 0.4],
            "metallicFactor": 0.25,
            "roughnessFactor": 0.75,
        },
        emissiveFactor=[1, 0.5, 0],
        alphaMode="MASK",
        alphaCutoff=0.3,
        doubleSided=True,
        normalTexture={"index": 0, "scale": -2},
        extensions={
            "KHR_materials_unlit": {},
            "KHR_materials_emissive_strength": {"emissiveStrength": 5},
        },
    )
    material = load(mini, tmp_path).materials[0]
    assert material.base_color == (0.1, 0.2, 0.3, 0.4)
    assert (material.metallic, material.roughness) == (0.25, 0.75)
    assert (material.emissive, material.emissive_strength) == ((1, 0.5, 0), 5)
    assert (material.alpha_mode, material.alpha_cutoff) == ("MASK", 0.3)
    assert material.double_sided and material.unlit and material.normal_scale == -2
    default = load(textured(), tmp_path).materials[0]
    assert (default.metallic, default.roughness, default.alpha_mode) == (1.0, 1.0, "OPAQUE")
    assert not default.unlit and default.emissive == (0, 0, 0)


def test_material_that_reads_missing_uvs_gets_zeros_and_a_note(tmp_path):
    mini = textured(pbrMetallicRoughness={"baseColorTexture": {"index": 0, "texCoord": 1}})
    scene = load(mini, tmp_path)
    assert len(only(scene).uvs) == 2 and not only(scene).uvs[1].any()
    assert any("UV set 1" in note for note in scene.notes)


@pytest.mark.parametrize("scale", [1, -1])
def test_nodes_carry_matrices_or_trs_and_mirrors_flip(tmp_path, scale):
    mini = triangle()
    angle = math.radians(30)
    spin = [0, 0, math.sin(angle / 2), math.cos(angle / 2)]
    c, s = math.cos(angle), math.sin(angle)
    mini.doc["nodes"] = [
        {"children": [1, 2], "translation": [1, 2, 3]},
        {"mesh": 0, "rotation": spin, "scale": [2, scale, 1]},
        {
            "mesh": 0,
            "matrix": [2 * c, 2 * s, 0, 0, -scale * s, scale * c, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1],
        },
    ]
    one, other = load(mini, tmp_path).instances()
    assert np.allclose(one.world, other.world)
    want = TRIANGLE * [2, scale, 1] @ np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]]) + [1, 2, 3]
    assert np.allclose(one.positions(), want, atol=1e-6)
    assert one.flips == (scale < 0)
    mesh = one.world_mesh()
    a, b, c = mesh.positions[mesh.faces[0]]
    assert np.cross(b - a, c - a)[2] > 0, "still counter-clockwise, seen from +Z"


def test_blendshapes_with_weights_and_names(tmp_path):
    mini = Mini()
    targets = [
        {"POSITION": mini.accessor(TRIANGLE * 2, "f4"), "NORMAL": mini.accessor(UP, "f4")},
        {"POSITION": mini.accessor(UP, "f4")},
    ]
    normals = {"NORMAL": mini.accessor(UP, "f4")}
    mini.scene(mini.primitive(targets=targets, attributes=normals), weights=[0, 3])
    mini.doc["meshes"][0] |= {"weights": [0.5, 0], "extras": {"targetNames": ["big", "up"]}}
    scene = load(mini, tmp_path)
    first, second = only(scene).targets
    assert (first.name, second.name) == ("big", "up") and second.normals is None
    assert scene.meshes[0].weights == (0.5, 0) and scene.nodes[0].weights == (0, 3)
    (instance,) = scene.instances()
    assert np.allclose(instance.positions(), TRIANGLE + [0, 0, 3])


def test_cameras_and_lights(tmp_path):
    mini = triangle()
    mini.doc |= {
        "cameras": [
            {"type": "perspective", "perspective": {"yfov": 0.5, "znear": 0.1}, "name": "eye"},
            {"type": "orthographic", "orthographic": {"xmag": 2, "ymag": 1, "znear": 0, "zfar": 9}},
        ],
        "extensions": {
            "KHR_lights_punctual": {
                "lights": [
                    {"type": "spot", "intensity": 7, "spot": {"outerConeAngle": 0.5}, "range": 4},
                    {"type": "directional", "color": [1, 0.5, 0]},
                ]
            }
        },
        "extensionsUsed": ["KHR_lights_punctual"],
    }
    mini.doc["nodes"] += [
        {
            "camera": 0,
            "extensions": {"KHR_lights_punctual": {"light": 0}},
            "translation": [0, 0, 5],
        },
        {"camera": 1, "extensions": {"KHR_lights_punctual": {"light": 1}}},
    ]
    mini.doc["scenes"][0]["nodes"] = [0, 1, 2]
    scene = load(mini, tmp_path)
    eye, ortho = scene.cameras
    assert (eye.fov_y_deg, eye.far, eye.aspect) == (pytest.approx(math.degrees(0.5)), None, None)
    assert (ortho.kind, ortho.x_mag, ortho.far) == ("orthographic", 2, 9)
    spot, sun = flat.lights(scene)
    assert (spot.light.intensity, spot.light.range, spot.light.outer_cone_rad) == (7, 4, 0.5)
    assert spot.position.tolist() == [0, 0, 5] and sun.direction.tolist() == [0, 0, -1]
    assert sun.light.color == (1, 0.5, 0) and sun.light.range is None
    assert np.allclose(flat.cameras(scene)[0].eye, [0, 0, 5])


def test_what_is_left_out_is_noted(tmp_path):
    mini = triangle(attributes={"_CUSTOM": 0, "JOINTS_0": 0})
    mini.doc["animations"] = [{}]
    mini.doc["extensionsUsed"] = ["KHR_materials_sheen"]
    mini.doc["scenes"].append({"nodes": []})
    notes = " ".join(load(mini, tmp_path).notes)
    for word in ("JOINTS_0, _CUSTOM", "animations[0] is left out", "sheen", "2 scenes"):
        assert word in notes


def test_without_scenes_all_nodes_without_a_parent_are_roots(tmp_path):
    mini = triangle()
    mini.doc["nodes"] = [{}, {"children": [0]}, {"mesh": 0}]
    del mini.doc["scenes"], mini.doc["scene"]
    assert load(mini, tmp_path).roots == (1, 2)


MODELS = [
    *("Duck.glb", "Avocado.glb", "BoxTextured.glb", "BoxInterleaved.glb", "CesiumMilkTruck.glb"),
    "no_indices_3storybuilding.glb",
]


@pytest.mark.parametrize("name", MODELS)
def test_known_models_load_as_trimesh_loads_them(shared_data, name):
    path = shared_data / "gltf" / name
    if not path.is_file():
        pytest.skip(f"shared/data/gltf/{name} is absent")
    instances = read_gltf(path).instances()
    meshes = [instance.world_mesh().check() for instance in instances]
    got = np.concatenate([mesh.positions[mesh.faces] for mesh in meshes])
    parts = trimesh.load_scene(path, process=False).dump()
    want = np.concatenate([np.asarray(part.triangles) for part in parts])
    assert len(got) == len(want)
    a, b = got.reshape(-1, 9), want.reshape(-1, 9)
    assert cKDTree(a).query(b)[0].max() < 1e-4 and cKDTree(b).query(a)[0].max() < 1e-4
    for instance, mesh in zip(instances, meshes, strict=True):
        normals = instance.normals()
        assert np.allclose(np.linalg.norm(normals, axis=1), 1.0, atol=1e-3)
        up = area_normals(mesh.positions, mesh.faces)
        agree = np.einsum("fi,fi->f", up, normals[mesh.faces].sum(axis=1)) > 0
        assert agree.mean() > 0.999, "normals are on the side that the winding says"
