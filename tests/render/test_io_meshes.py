"""Meshes and scenes by file name: OBJ with its materials, PLY, STL; what comes back is the same."""

from __future__ import annotations

import math

import numpy as np
import pytest
import trimesh

from dressi.errors import GraphError, LoadError
from dressi.render.io import load_mesh, load_scene, save_mesh, srgb_to_linear, write_png
from dressi.render.scene import Mesh, icosphere, surface_area

SQUARE = "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nvt 0 0\nvt 1 0\nvt 1 1\nvt 0 1\n"


@pytest.mark.parametrize("ending", [".obj", ".ply", ".stl", ".glb", ".gltf"])
def test_a_mesh_comes_back_from_every_format(tmp_path, ending):
    ball = icosphere(2)
    path = tmp_path / f"a{ending}"
    save_mesh(path, ball)
    got = load_mesh(path).check()
    assert len(got.positions) == len(ball.positions), "vertices are shared again"
    assert np.array_equal(got.positions[got.faces], ball.positions[ball.faces])
    if ending != ".stl":
        assert np.allclose(got.uvs[got.corner_faces], ball.uvs[ball.corner_faces], atol=1e-7)
    if ending in (".obj", ".ply"):
        assert np.array_equal(got.positions, ball.positions), "in the same order"
    (instance,) = load_scene(path).instances()
    assert len(instance.faces) == len(ball.faces)


@pytest.mark.parametrize("ending", [".ply", ".stl"])
def test_trimesh_reads_what_we_write(tmp_path, ending):
    ball = icosphere(1)
    save_mesh(tmp_path / f"a{ending}", ball)
    other = trimesh.load_mesh(tmp_path / f"a{ending}")
    other.merge_vertices(merge_tex=True)  # it doubles vertices at the seams of UVs
    assert other.is_watertight
    assert other.area == pytest.approx(surface_area(ball.positions, ball.faces), rel=1e-5)


def test_ascii_stl_and_big_endian_ply(tmp_path):
    facet = "facet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 1 0 0\nvertex 0 {} 0\nendloop\n"
    text = (
        "solid a b\n" + facet.format(1) + "endfacet\n" + facet.format(-1) + "endfacet\nendsolid\n"
    )
    (tmp_path / "a.stl").write_text(text)
    mesh = load_mesh(tmp_path / "a.stl")
    assert mesh.faces.tolist() == [[0, 1, 2], [0, 1, 3]]
    head = "ply\nformat binary_big_endian 1.0\nelement vertex 3\n"
    head += "property float x\nproperty float y\nproperty float z\nproperty uchar red\n"
    head += "element face 1\nproperty list uchar int vertex_indices\nend_header\n"
    rows = np.zeros(3, [("p", ">f4", 3), ("c", "u1")])
    rows["p"] = [[0, 0, 0], [1, 0, 0], [0, 1, 0]]
    body = rows.tobytes() + b"\3" + np.array([2, 0, 1], ">i4").tobytes()
    (tmp_path / "a.ply").write_bytes(head.encode() + body)
    mesh = load_mesh(tmp_path / "a.ply")
    assert np.array_equal(mesh.positions, rows["p"]) and mesh.faces.tolist() == [[2, 0, 1]]


def test_obj_with_materials_is_one_primitive_each(tmp_path):
    pixels = np.linspace(0, 1, 12).reshape(2, 2, 3)
    write_png(tmp_path / "skin.png", pixels)
    (tmp_path / "m.mtl").write_text(
        "newmtl skin\nKd 0 0 0\nmap_Kd -clamp on skin.png\nNs 98\n"
        "newmtl glass # clear\nKd 0.5 0.25 1\nd 0.5\nKe 1 0 0\nPr 0.3\nPm 0.9\nmap_Bump b.png\n"
    )
    text = "mtllib m.mtl\n" + SQUARE + "usemtl skin\nf 1/1 2/2 3/3\nusemtl glass\nf 1/1 3/3 4/4\n"
    (tmp_path / "a.obj").write_text(text + "usemtl skin\nf 2/2 3/3 4/4\n")
    scene = load_scene(tmp_path / "a.obj").check()
    first, second = scene.meshes[0].primitives
    assert (len(first.faces), len(second.faces)) == (2, 1)
    skin, glass = scene.materials
    assert skin.base_color == (1, 1, 1, 1) and skin.base_color_map.image == 0
    assert skin.roughness == pytest.approx(math.sqrt(0.02)) and skin.metallic == 0
    assert glass.base_color == (0.5, 0.25, 1, 0.5) and glass.alpha_mode == "BLEND"
    assert (glass.roughness, glass.metallic, glass.emissive) == (0.3, 0.9, (1, 0, 0))
    want = srgb_to_linear(
        np.rint(
            255 * np.where(pixels > 0.0031308, 1.055 * pixels ** (1 / 2.4) - 0.055, 12.92 * pixels)
        )
        / 255
    )
    assert np.allclose(scene.images[0].pixels, want, atol=1e-6)
    assert any("map_Bump left out" in note for note in scene.notes)
    assert np.allclose(first.uvs[0][first.faces[0]], [[0, 1], [1, 1], [1, 0]]), "v is flipped"


def test_normals_of_an_obj_are_smooth_across_its_materials(tmp_path):
    text = "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 0 1\nusemtl a\nf 1 2 3\nusemtl b\nf 1 4 2\n"
    (tmp_path / "a.obj").write_text(text)
    scene = load_scene(tmp_path / "a.obj")
    first, second = scene.meshes[0].primitives
    assert np.allclose(first.normals[0], second.normals[0])
    assert len(second.positions) == 3, "only the vertices that it uses"
    assert sum("is in none of its libraries" in note for note in scene.notes) == 2


def test_obj_without_uvs_drops_its_maps_and_says_so(tmp_path):
    write_png(tmp_path / "skin.png", np.ones((2, 2, 3)))
    (tmp_path / "m.mtl").write_text("newmtl skin\nmap_Kd skin.png\n")
    (tmp_path / "a.obj").write_text(
        "mtllib m.mtl\nv 0 0 0\nv 1 0 0\nv 1 1 0\nusemtl skin\nf 1 2 3\n"
    )
    scene = load_scene(tmp_path / "a.obj")
    assert scene.materials[0].base_color_map is None
    assert any("no UVs" in note for note in scene.notes)


def test_a_lone_texture_beside_an_obj_is_its_base_colour(tmp_path):
    write_png(tmp_path / "a_texture.png", np.ones((2, 2, 3)))
    (tmp_path / "a.obj").write_text(SQUARE + "f 1/1 2/2 3/3\n")
    scene = load_scene(tmp_path / "a.obj")
    assert scene.materials[0].base_color_map.image == 0 and scene.images[0].name == "a_texture"


@pytest.mark.parametrize(
    ("library", "words"),
    [
        ("newmtl a\nKd 1 x 1\n", "'1 x 1'"),
        ("newmtl a\nd nan\n", "'nan'"),
        ("newmtl a\nKd 1\n", "3 numbers"),
    ],
)
def test_bad_numbers_in_a_library_name_the_material(tmp_path, library, words):
    (tmp_path / "m.mtl").write_text(library)
    (tmp_path / "a.obj").write_text("mtllib m.mtl\n" + SQUARE + "usemtl a\nf 1 2 3\n")
    with pytest.raises(LoadError, match=words) as caught:
        load_scene(tmp_path / "a.obj")
    assert caught.value.where == "material 'a'"


def test_broken_texture_of_an_obj_is_a_load_error(tmp_path):
    (tmp_path / "skin.png").write_bytes(b"x")
    (tmp_path / "m.mtl").write_text("newmtl a\nmap_Kd skin.png\n")
    (tmp_path / "a.obj").write_text("mtllib m.mtl\n" + SQUARE + "usemtl a\nf 1/1 2/2 3/3\n")
    with pytest.raises(LoadError, match=r"skin\.png"):
        load_scene(tmp_path / "a.obj")


def test_a_mesh_of_a_scene_without_triangles_is_a_load_error(tmp_path):
    (tmp_path / "a.gltf").write_text('{"asset": {"version": "2.0"}, "nodes": [{}]}')
    assert load_scene(tmp_path / "a.gltf").instances() == []
    with pytest.raises(LoadError, match="no triangles"):
        load_mesh(tmp_path / "a.gltf")


def test_bad_meshes_and_endings_are_refused(tmp_path):
    bad = Mesh(np.eye(3), [[0, 1, 5]], name="bad")
    for ending in (".obj", ".ply", ".stl", ".glb"):
        with pytest.raises(GraphError, match="'bad'"):
            save_mesh(tmp_path / f"a{ending}", bad)
    with pytest.raises(GraphError, match=r"a\.xyz"):
        save_mesh(tmp_path / "a.xyz", icosphere(1))
    for load in (load_mesh, load_scene):
        with pytest.raises(LoadError, match=r"'\.xyz' is none of"):
            load(tmp_path / "a.xyz")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["spot/spot.obj", "meshes/suzanne.obj"])
def test_known_obj_models_are_scenes(shared_data, name):
    path = shared_data / name
    if not path.is_file():
        pytest.skip(f"shared/data/{name} is absent")
    scene = load_scene(path).check()
    mesh = load_mesh(path)
    assert sum(len(i.faces) for i in scene.instances()) == len(mesh.faces)
    assert ("spot" in name) == bool(scene.images)
