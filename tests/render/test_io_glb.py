"""GLB: what we write is what trimesh and pygltflib read; the container is well formed."""

from __future__ import annotations

import io
import json
import struct

import numpy as np
import pygltflib
import pytest
import trimesh
from PIL import Image

from dressi.errors import GraphError
from dressi.render.io import linear_to_srgb, write_glb
from dressi.render.scene import Mesh, icosphere

TEXTURE = np.random.default_rng(1).uniform(size=(8, 16, 3)).astype(np.float32)


@pytest.fixture
def sphere_glb(tmp_path):
    mesh = icosphere(2)
    path = tmp_path / "sphere.glb"
    write_glb(path, mesh, TEXTURE)
    return mesh, path


def load(path):
    with open(path, "rb") as file:
        return trimesh.load(file, file_type="glb", force="mesh", process=False)


def test_trimesh_reads_the_same_surface_uvs_and_texture(sphere_glb):
    mesh, path = sphere_glb
    got = load(path)
    assert np.allclose(got.vertices[got.faces], mesh.positions[mesh.faces])
    uv = np.asarray(got.visual.uv) * [1, -1] + [0, 1]  # trimesh flips v to its own origin
    assert np.allclose(uv[got.faces], mesh.uvs[mesh.uv_faces], atol=1e-6)
    # faces keep their order, pairs are unique: 4 of the seam vertices are doubled, not all
    assert len(mesh.positions) < len(got.vertices) < len(mesh.faces) * 3
    assert np.einsum("vi,vi->v", got.vertex_normals, got.vertices).min() > 0.98
    material = got.visual.material
    assert (material.metallicFactor, material.roughnessFactor) == (0.0, 1.0)
    pixels = np.asarray(material.baseColorTexture.convert("RGB"))
    assert np.array_equal(pixels, np.rint(linear_to_srgb(TEXTURE) * 255))


def test_container_is_aligned_and_bounds_are_right(sphere_glb):
    mesh, path = sphere_glb
    data = path.read_bytes()
    magic, version, length, json_length, json_kind = struct.unpack("<4sIII4s", data[:20])
    assert (magic, version, length, json_kind) == (b"glTF", 2, len(data), b"JSON")
    assert json_length % 4 == 0 and length % 4 == 0
    document = json.loads(data[20 : 20 + json_length])
    bin_length, bin_kind = struct.unpack("<I4s", data[20 + json_length : 28 + json_length])
    assert bin_kind == b"BIN\0" and bin_length == document["buffers"][0]["byteLength"]
    assert len(document["meshes"][0]["primitives"]) == 1
    assert document["materials"][0]["doubleSided"] is False
    for view in document["bufferViews"]:
        assert view["byteOffset"] % 4 == 0
        assert view["byteOffset"] + view["byteLength"] <= bin_length
    position = document["accessors"][
        document["meshes"][0]["primitives"][0]["attributes"]["POSITION"]
    ]
    assert np.allclose(position["min"], mesh.positions.min(axis=0))
    assert np.allclose(position["max"], mesh.positions.max(axis=0))


def test_pygltflib_finds_one_embedded_png(sphere_glb):
    document = pygltflib.GLTF2.load_binary(str(sphere_glb[1]))
    assert document is not None
    view = document.bufferViews[document.images[0].bufferView]
    png = document.binary_blob()[view.byteOffset : view.byteOffset + view.byteLength]
    assert Image.open(io.BytesIO(png)).size == (16, 8)
    assert document.samplers[0].wrapS == pygltflib.CLAMP_TO_EDGE


def test_uvs_beyond_the_unit_square_repeat(tmp_path):
    mesh = Mesh(np.eye(3), [[0, 1, 2]], [[-0.5, 0], [1, 0], [0, 2]])
    write_glb(tmp_path / "a.glb", mesh, TEXTURE)
    document = pygltflib.GLTF2.load_binary(str(tmp_path / "a.glb"))
    assert document is not None and document.samplers[0].wrapT == pygltflib.REPEAT


def test_mesh_without_uvs_keeps_its_vertices_and_any_name(tmp_path):
    points = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [5, 5, 5]], dtype=np.float32)
    write_glb(tmp_path / "a.glb", Mesh(points, [[0, 1, 2]], name="péar 梨"))
    got = load(tmp_path / "a.glb")
    assert np.allclose(got.vertices, points)
    document = pygltflib.GLTF2.load_binary(str(tmp_path / "a.glb"))
    assert document is not None and document.nodes[0].name == "péar 梨"
    view = document.bufferViews[2]
    data = document.binary_blob()[view.byteOffset : view.byteOffset + view.byteLength]
    lengths = np.linalg.norm(np.frombuffer(data, "<f4").reshape(-1, 3), axis=1)
    assert np.allclose(lengths, 1.0), "glTF wants unit normals, of the lone vertex too"
    assert [p.name for p in tmp_path.iterdir()] == ["a.glb"]


def test_more_than_65534_vertices_take_32_bit_indices(tmp_path):
    n = 70000
    points = np.random.default_rng(0).uniform(size=(n, 3)).astype(np.float32)
    write_glb(tmp_path / "a.glb", Mesh(points, [[0, 1, n - 1]]))
    assert load(tmp_path / "a.glb").faces.tolist() == [[0, 1, n - 1]]


@pytest.mark.parametrize(
    ("mesh", "texture", "words"),
    [
        (Mesh(np.eye(3), [[0, 1, 3]], name="bad"), None, "face 0 of mesh 'bad'"),
        (Mesh(np.eye(3), [[0, 1, 2]], name="bare"), TEXTURE, "'bare' has no uvs"),
        (icosphere(1), TEXTURE[..., :2], r"\(8, 16, 2\)"),
        (icosphere(1), TEXTURE * np.nan, "NaN"),
    ],
)
def test_bad_meshes_and_textures_leave_no_file(tmp_path, mesh, texture, words):
    with pytest.raises(GraphError, match=words):
        write_glb(tmp_path / "a.glb", mesh, texture)
    assert not list(tmp_path.iterdir())
