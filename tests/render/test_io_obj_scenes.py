"""OBJ as other programs write it: normals, colours, unusual names, encodings, line ends."""

from __future__ import annotations

import codecs

import numpy as np
import pytest

from dressi.errors import LoadError
from dressi.render.io import load_mesh, load_scene, read_obj, write_png

SQUARE = "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nvt 0 0\nvt 1 0\nvt 1 1\nvt 0 1\n"
CUBE = "".join(f"v {x} {y} {z}\n" for z in (0, 1) for y in (0, 1) for x in (0, 1))
AXES = ["0 0 -1", "0 0 1", "0 -1 0", "0 1 0", "-1 0 0", "1 0 0"]
QUADS = [(1, 3, 4, 2), (5, 6, 8, 7), (1, 2, 6, 5), (3, 7, 8, 4), (1, 5, 7, 3), (2, 4, 8, 6)]


def only(path):
    (primitive,) = load_scene(path).meshes[0].primitives
    return primitive


def test_a_cube_of_8_vertices_and_6_normals_is_flat(tmp_path):
    text = CUBE + "".join(f"vn {axis}\n" for axis in AXES)
    for k, quad in enumerate(QUADS, 1):
        text += "f " + " ".join(f"{v}//{k}" for v in quad) + "\n"
    (tmp_path / "a.obj").write_text(text)
    cube = only(tmp_path / "a.obj")
    want = np.repeat([[float(x) for x in axis.split()] for axis in AXES], 2, axis=0)
    assert np.array_equal(cube.normals[cube.faces], np.repeat(want[:, None], 3, axis=1))
    assert len(cube.positions) == 24, "each corner once per side"
    a, b, c = np.moveaxis(cube.positions[cube.faces], 1, 0)
    assert np.allclose(np.cross(b - a, c - a), want), "and the winding agrees"
    assert len(load_mesh(tmp_path / "a.obj").positions) == 8
    assert load_scene(tmp_path / "a.obj").notes == ()


def test_normals_are_made_unit_and_missing_ones_are_smooth(tmp_path):
    text = SQUARE + "vn 0 3 4\nvn 0 0 0\nvn nan 0 1\nf 1/1/1 2/2/2 3/3/3\nf 1/1 3/3/1 4/4\n"
    (tmp_path / "a.obj").write_text(text)
    square = only(tmp_path / "a.obj")
    up, tilted = [0, 0, 1], [0, 0.6, 0.8]
    assert np.allclose(square.normals[square.faces], [[tilted, up, up], [up, tilted, up]])
    assert np.allclose(square.uvs[0][square.faces[0]], [[0, 1], [1, 1], [1, 0]])
    (tmp_path / "a.obj").write_text(SQUARE + "vn 0 0 1\n\nf 1//1 2//2 3//1\n")
    with pytest.raises(LoadError, match="line 11: normal index 2 is out of range, there are 1"):
        load_scene(tmp_path / "a.obj")


def test_colours_behind_the_vertices(tmp_path):
    text = "v 0 0 0 1 0 0.5\nv 1 0 0 0 0 0\nv 0 1 0\nv 0 0 1 1\nf 1 2 3\n"
    (tmp_path / "a.obj").write_text(text)
    half = ((0.5 + 0.055) / 1.055) ** 2.4
    want = [[1, 0, half, 1], [0, 0, 0, 1], [1, 1, 1, 1], [1, 1, 1, 1]]
    assert np.allclose(only(tmp_path / "a.obj").colors, want, atol=1e-6)
    (tmp_path / "a.obj").write_text("v 0 0 0 255 0 51\nv 1 0 0 0 0 0\nv 0 1 0 0 0 0\nf 1 2 3\n")
    fifth = ((0.2 + 0.055) / 1.055) ** 2.4
    assert np.allclose(only(tmp_path / "a.obj").colors[0], [1, 0, fifth, 1], atol=1e-6)
    assert any("0 to 255" in note for note in load_scene(tmp_path / "a.obj").notes)
    (tmp_path / "a.obj").write_text("v 0 0 0 x 0 1\nf 1 1 1\n")
    with pytest.raises(LoadError, match="line 1"):
        load_scene(tmp_path / "a.obj")


ENCODED = {
    "UTF-8 with a mark": lambda text: codecs.BOM_UTF8 + text.encode(),
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-16 BE": lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
    "UTF-32": lambda text: text.encode("utf-32"),
    "Latin-1": lambda text: text.encode("latin-1"),
    "CRLF": lambda text: text.replace("\n", "\r\n").encode(),
    "CR": lambda text: text.replace("\n", "\r").encode(),
    "no end": lambda text: text.strip().encode(),
    "tabs": lambda text: text.replace("v ", "v\t").replace("Kd ", "Kd\t").encode(),
}


@pytest.mark.parametrize("kind", list(ENCODED))
def test_every_encoding_keeps_the_first_line_of_obj_and_mtl(tmp_path, kind):
    write_png(tmp_path / "häßlich.png", np.ones((2, 2, 3)))
    encode = ENCODED[kind]
    text = "v 7 8 9\n" + SQUARE + "mtllib fläche.mtl\nusemtl ä\nf 1/1 2/2 3/3\n"
    (tmp_path / "a.obj").write_bytes(encode(text))
    (tmp_path / "fläche.mtl").write_bytes(encode("newmtl ä\nmap_Kd häßlich.png\nKd 1 0.5 0\n"))
    scene = load_scene(tmp_path / "a.obj")
    assert scene.notes == ()
    assert scene.materials[0].name == "ä" and scene.materials[0].base_color == (1, 0.5, 0, 1)
    assert scene.images[0].name == "häßlich"
    primitive = scene.meshes[0].primitives[0]
    assert primitive.positions[primitive.faces[0]].tolist() == [[7, 8, 9], [0, 0, 0], [1, 0, 0]]
    assert read_obj(tmp_path / "a.obj")[1] == tmp_path / "häßlich.png"


def test_utf_16_without_a_mark_is_named(tmp_path):
    (tmp_path / "a.obj").write_bytes(SQUARE.encode("utf-16-le"))
    with pytest.raises(LoadError, match="UTF-16"):
        load_mesh(tmp_path / "a.obj")
    (tmp_path / "a.obj").write_bytes(codecs.BOM_UTF16_LE + b"v\0 \0\1")
    with pytest.raises(LoadError, match="broken UTF-16"):
        load_mesh(tmp_path / "a.obj")


NAMES = ["a b", "ümläut", "🐄", "it's", 'q"uote', "wood #25", "a#1", "100%", ".dots..", "x" * 200]


@pytest.mark.parametrize("name", NAMES)
def test_unusual_names_of_materials_and_files(tmp_path, name):
    write_png(tmp_path / f"{name}.png", np.ones((2, 2, 3)))
    (tmp_path / f"{name}.mtl").write_text(
        f"# library\nnewmtl {name}\nmap_Kd -s 2 2 -o 0 0 0 -bm 1 -clamp on {name}.png # as it is\n",
        encoding="utf-8",
    )
    text = f"mtllib {name}.mtl\n" + SQUARE + f"usemtl {name}\nf 1/1 2/2 3/3 #end\n"
    (tmp_path / "a.obj").write_text(text, encoding="utf-8")
    scene = load_scene(tmp_path / "a.obj")
    assert scene.notes == () and scene.materials[0].name == name
    assert scene.images[0].name == name


@pytest.mark.parametrize(
    "written",
    ["tex\\skin.png", "./tex/skin.png", "C:\\Users\\me\\my files\\skin2.png", '"tex/skin.png"']
    + ["/home/me/skin2.png", "tex/../tex//skin.png", "-mm 0 1 -texres 512 tex/skin.png"],
)
def test_paths_of_other_machines(tmp_path, written):
    (tmp_path / "tex").mkdir()
    for file in ("tex/skin.png", "skin2.png"):
        write_png(tmp_path / file, np.ones((2, 2, 3)))
    (tmp_path / "m.mtl").write_text(f"newmtl a\nmap_Kd {written}\n")
    (tmp_path / "a.obj").write_text("mtllib .\\m.mtl\n" + SQUARE + "usemtl a\nf 1/1 2/2 3/3\n")
    scene = load_scene(tmp_path / "a.obj")
    assert scene.notes == () and len(scene.images) == 1


def test_several_libraries_in_one_line_and_near_misses(tmp_path):
    (tmp_path / "m one.mtl").write_text("newmtl a\nKd 1 0 0\n")
    (tmp_path / "two.mtl").write_text("newmtl b\nKd 0 1 0\nmap_Kd skin.png\n")
    (tmp_path / "Skin.PNG").touch()
    (tmp_path / "skim.png").touch()
    (tmp_path / "skin.jpg").touch()
    body = SQUARE + "usemtl a\nf 1/1 2/2 3/3\nusemtl b\nf 1/1 3/3 4/4\n"
    (tmp_path / "a.obj").write_text("mtllib m one.mtl\nmtllib three.mtl two.mtl\n" + body)
    scene = load_scene(tmp_path / "a.obj")
    assert [m.base_color[:3] for m in scene.materials] == [(1, 0, 0), (0, 1, 0)]
    missing = [note for note in scene.notes if "three.mtl" in note]
    assert len(missing) == 1 and str(tmp_path) in missing[0]
    (note,) = [note for note in scene.notes if "skin.png" in note]
    for word in (str(tmp_path), "'Skin.PNG'", "'skin.jpg'", "'skim.png'"):
        assert word in note


@pytest.mark.parametrize("ending", [".obj", ".ply", ".stl", ".glb", ".gltf"])
def test_a_missing_file_names_folder_and_near_misses(tmp_path, ending):
    (tmp_path / f"Model{ending}").touch()
    with pytest.raises(LoadError) as caught:
        load_scene(tmp_path / f"model{ending}")
    assert f"'Model{ending}'" in str(caught.value) and f"'{tmp_path}'" in str(caught.value)
    with pytest.raises(LoadError, match=r"the folder '.*nowhere' is not there"):
        load_scene(tmp_path / "nowhere" / f"model{ending}")
