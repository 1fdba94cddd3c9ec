"""PLY and STL as other programs write them, byte by byte; values are written by hand."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import trimesh

from dressi.errors import LoadError
from dressi.render.io import load_mesh, load_scene, save_mesh, write_png
from dressi.render.scene import Mesh, surface_area

CUBE = [(x, y, z) for z in (0, 1) for y in (0, 1) for x in (0, 1)]
QUADS = [(0, 2, 3, 1), (4, 5, 7, 6), (0, 1, 5, 4), (2, 6, 7, 3), (0, 4, 6, 2), (1, 3, 7, 5)]
XYZ = "property float x\nproperty float y\nproperty float z\n"
FACES = "property list uchar int vertex_indices\n"
HALF = ((0.5 + 0.055) / 1.055) ** 2.4  # sRGB 0.5, IEC 61966-2-1


def ply(path, vertex, rows, face=FACES, faces=("3 0 1 2",), more="", form="ascii"):
    text = f"ply\nformat {form} 1.0\ncomment by hand\nobj_info x y\n"
    text += f"element vertex {len(rows)}\n{vertex}{more}"
    text += f"element face {len(faces)}\n{face}end_header\n"
    path.write_bytes((text + "\n".join([*rows, *faces]) + "\n").encode())
    return path


def points(table):
    return [" ".join(map(str, row)) for row in table]


def cube_volume(mesh):
    a, b, c = np.moveaxis(mesh.positions[mesh.faces].astype(np.float64), 1, 0)
    return float(np.einsum("fi,fi->", a, np.cross(b, c)) / 6)


def test_a_ply_of_quads_is_split(tmp_path):
    faces = ["4 " + " ".join(map(str, quad)) for quad in QUADS]
    mesh = load_mesh(ply(tmp_path / "a.ply", XYZ, points(CUBE), faces=faces))
    assert len(mesh.faces) == 12 and len(mesh.positions) == 8
    assert cube_volume(mesh) == pytest.approx(1.0)
    assert surface_area(mesh.positions, mesh.faces) == pytest.approx(6.0)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("coordinate", ["f4", "f8"])
@pytest.mark.parametrize(("count", "index"), [("u1", "i4"), ("i4", "u4"), ("u2", "u2")])
def test_binary_plys_of_mixed_polygons(tmp_path, order, coordinate, count, index):
    """A cube with one side as two triangles, extra properties and elements between."""
    words = {"f4": "float", "f8": "float64", "u1": "uchar", "i4": "int32", "u4": "uint"}
    words |= {"u2": "ushort"}
    form = {"<": "binary_little_endian", ">": "binary_big_endian"}[order]
    head = f"ply\nformat {form} 1.0\nelement vertex 8\n"
    head += "".join(f"property {words[coordinate]} {axis}\n" for axis in "xyz")
    head += "property uchar quality\nelement camera 2\nproperty double fov\n"
    head += "property list uchar char tags\n"
    head += f"element face 7\nproperty list {words[count]} {words[index]} vertex_index\n"
    head += "property uchar flags\nend_header\n"
    rows = np.zeros(8, [("p", order + coordinate, 3), ("q", "u1")])
    rows["p"], rows["q"] = CUBE, 9
    body = rows.tobytes()
    for tags in (b"\1\2\3", b""):
        body += struct.pack(order + "d", 0.5) + bytes([len(tags)]) + tags
    for face in [*QUADS[:5], (1, 3, 7), (1, 7, 5)]:
        body += np.array([len(face)], order + count).tobytes()
        body += np.array(face, order + index).tobytes() + b"\5"
    (tmp_path / "a.ply").write_bytes(head.encode() + body)
    mesh = load_mesh(tmp_path / "a.ply")
    assert cube_volume(mesh) == pytest.approx(1.0) and len(mesh.faces) == 12
    notes = load_scene(tmp_path / "a.ply").notes
    assert [n for n in notes if "camera" in n] and [n for n in notes if "flags" in n]
    (tmp_path / "a.ply").write_bytes(head.encode() + body[:-3])
    with pytest.raises(LoadError, match="face 6"):
        load_mesh(tmp_path / "a.ply")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_comments_and_no_newline_at_the_end(tmp_path, end):
    path = ply(tmp_path / "a.ply", XYZ, ["0 0 0", "", "1\t0 0", " 0 1 0 "])
    text = path.read_text().replace("vertex 4", "vertex 3").strip()
    path.write_bytes(text.replace("\n", end).encode())
    assert load_mesh(path).positions.tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("names", ["s t", "u v", "texture_u texture_v"])
def test_uvs_of_vertices(tmp_path, names):
    u, v = names.split()
    vertex = XYZ + f"property float {u}\nproperty float {v}\n"
    mesh = load_mesh(ply(tmp_path / "a.ply", vertex, ["0 0 0 0.25 0", "1 0 0 1 0", "0 1 0 0 1"]))
    assert mesh.uvs[mesh.corner_faces[0]].tolist() == [[0.25, 1], [1, 1], [0, 0]]


def test_uvs_of_corners_and_the_texture_of_meshlab(tmp_path):
    write_png(tmp_path / "my skin.png", np.ones((2, 2, 3)))
    face = FACES + "property list uchar float texcoord\nproperty int texnumber\n"
    path = ply(
        tmp_path / "a.ply",
        XYZ,
        ["0 0 0", "1 0 0", "1 1 0", "0 1 0"],
        face,
        ["3 0 1 2 6 0 0 1 0 1 1 0", "3 0 2 3 6 0.5 0.25 1 1 0 1 0"],
    )
    text = path.read_text()
    path.write_text(text.replace("comment by hand", "comment TextureFile my skin.png"))
    mesh = load_mesh(path)
    want = [[[0, 1], [1, 1], [1, 0]], [[0.5, 0.75], [1, 0], [0, 0]]]
    assert mesh.uvs[mesh.uv_faces].tolist() == want and len(mesh.positions) == 4
    scene = load_scene(path)
    assert scene.materials[0].base_color_map.image == 0 and scene.images[0].name == "my skin"
    first = scene.meshes[0].primitives[0]
    assert np.allclose(first.uvs[0][first.faces], want)


def test_a_quad_with_uvs_of_corners_is_split_with_them(tmp_path):
    face = FACES + "property list uchar float texcoord\n"
    rows = ["0 0 0", "1 0 0", "1 1 0", "0 1 0"]
    path = ply(tmp_path / "a.ply", XYZ, rows, face, ["4 0 1 2 3 8 0 1 1 1 1 0 0 0"])
    mesh = load_mesh(path)
    assert np.allclose(mesh.uvs[mesh.uv_faces], mesh.positions[mesh.faces][..., :2])
    path = ply(tmp_path / "b.ply", XYZ, rows, face, ["4 0 1 2 3 6 0 0 1 0 1 1"])
    with pytest.raises(LoadError, match="face 0: texcoord has 6 numbers"):
        load_mesh(path)


def test_colours_and_normals_of_a_ply(tmp_path):
    vertex = XYZ + "property float nx\nproperty float ny\nproperty float nz\n"
    vertex += "".join(f"property uchar {c}\n" for c in ("red", "green", "blue", "alpha"))
    rows = ["0 0 0 0 3 0 255 0 51 255", "1 0 0 0 0 0 0 0 0 0", "0 1 0 nan 0 0 0 0 0 51"]
    (primitive,) = load_scene(ply(tmp_path / "a.ply", vertex, rows)).meshes[0].primitives
    assert primitive.normals[primitive.faces[0]].tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 1]]
    blue = ((0.2 + 0.055) / 1.055) ** 2.4
    got = primitive.colors[primitive.faces[0]]
    assert np.allclose(got, [[1, 0, blue, 1], [0, 0, 0, 0], [0, 0, 0, 0.2]], atol=1e-6)
    vertex = XYZ + "".join(f"property float {c}\n" for c in ("r", "g", "b"))
    rows = ["0 0 0 0.5 1 0", "1 0 0 0 0 0", "0 1 0 0 0 0"]
    (primitive,) = load_scene(ply(tmp_path / "b.ply", vertex, rows)).meshes[0].primitives
    assert np.allclose(primitive.colors[0], [HALF, 1, 0, 1], atol=1e-6)


def test_triangle_strips_of_a_ply(tmp_path):
    text = f"ply\nformat ascii 1.0\nelement vertex 5\n{XYZ}element tristrips 1\n"
    text += "property list int int vertex_indices\nend_header\n"
    rows = ["0 0 0", "1 0 0", "0 1 0", "1 1 0", "5 5 5"]
    (tmp_path / "a.ply").write_text(text + "\n".join(rows) + "\n8 0 1 2 3 -1 0 1 2\n")
    assert load_mesh(tmp_path / "a.ply").faces.tolist() == [[0, 1, 2], [2, 1, 3], [0, 1, 2]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("float x", "float q"), "lacks the property x"),
        (("vertex_indices", "corners"), "vertex_indices"),
        (("format ascii", "format asci"), "header: line 2"),
        (("property float y", "property floaty y"), "header: line 7"),
        (("1 0 0\n", "1 0\n"), "vertex 1"),
        (("1 0 0\n", "1 0,5 0\n"), "vertex 1: '0,5'"),
        (("3 0 1 2", "3 0 1"), "face 0"),
        (("3 0 1 2", "3 0 1 -1"), "face 0: index -1"),
        (("3 0 1 2", "3 0 1 1.5"), "face.vertex_indices"),
        (("3 0 1 2", ""), "face 0"),
    ],
)
def test_broken_plys_name_the_place(tmp_path, change, words):
    path = ply(tmp_path / "a.ply", XYZ, ["0 0 0", "1 0 0", "0 1 0"])
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(LoadError, match=words) as caught:
        load_mesh(path)
    assert caught.value.where


@pytest.mark.parametrize("bits", [0x7F800001, 0x7FC00000, 0x7F800000])
def test_every_kind_of_nan_in_a_binary_ply_is_refused(tmp_path, bits):
    head = f"ply\nformat binary_little_endian 1.0\nelement vertex 3\n{XYZ}"
    head += f"element face 1\n{FACES}end_header\n"
    table = np.zeros(9, "<u4")
    table[4] = bits  # the first is a signaling NaN: a cast of it warns
    body = table.tobytes() + b"\3" + np.arange(3, dtype="<i4").tobytes()
    (tmp_path / "a.ply").write_bytes(head.encode() + body)
    with pytest.raises(LoadError, match="vertex 1 is not finite"):
        load_mesh(tmp_path / "a.ply")


def test_trimesh_reads_our_ply_with_uvs_of_corners(tmp_path):
    square = Mesh(np.array(CUBE[:4]), [[0, 1, 3], [0, 3, 2]], [[0, 0], [1, 0], [0.25, 1]], None)
    square = Mesh(square.positions, square.faces, square.uvs, [[0, 1, 2], [2, 1, 0]])
    save_mesh(tmp_path / "a.ply", square)
    other = trimesh.load_mesh(tmp_path / "a.ply", process=False)
    got = np.asarray(other.visual.uv)[other.faces] * [1, -1] + [0, 1]
    assert np.allclose(got, square.uvs[square.uv_faces])
    assert np.allclose(other.vertices[other.faces], square.positions[square.faces])


FACET = "facet normal 0 0 1\n outer loop\n  vertex 0 0 {0}\n  vertex 1 0 {0}\n"
FACET += "  vertex 0 1 {0}\n endloop\nendfacet\n"


def solid(name, *heights):
    return f"solid {name}\n" + "".join(FACET.format(h) for h in heights) + f"endsolid {name}\n"


@pytest.mark.parametrize(
    "text",
    [
        solid("a", 0) + solid("b", 2),
        solid("my vertex facet", 0) + solid("", 2),
        (solid("a", 0) + solid("b", 2)).upper(),
        (solid("a", 0) + solid("empty") + solid("b", 2)).replace("\n", "\r\n"),
        (solid("a", 0) + solid("b", 2)).replace("\n", "\r"),
        "\ufeff" + solid("ü", 0) + solid("b", 2.0).strip(),
        solid("a", "0.0e+00") + solid("b", "+2."),
    ],
)
def test_ascii_stls_of_several_solids(tmp_path, text):
    path = tmp_path / "a.stl"
    path.write_bytes(text.encode())
    mesh = load_mesh(path)
    want = [[[0, 0, z], [1, 0, z], [0, 1, z]] for z in (0, 2)]
    assert mesh.positions[mesh.faces].tolist() == want
    assert any("solids are one mesh" in note for note in load_scene(path).notes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (solid("a", 0).replace("  vertex 1 0 0\n", ""), "line 7: a facet of 2 vertices"),
        (solid("a", 0).replace("vertex 1 0 0", "vertex 1 0"), "line 5: no 3 numbers"),
        (solid("a", 0).replace("vertex 1 0 0", "vertex 1 0,5 0"), "line 5: no 3 numbers"),
        (solid("a", 0) + solid("b", 0)[:-12], "truncated"),
        (solid("a", "nan"), "vertex 0"),
        (solid("a"), "no triangles"),
    ],
)
def test_broken_ascii_stls_name_the_line(tmp_path, text, words):
    (tmp_path / "a.stl").write_text(text)
    with pytest.raises(LoadError, match=words):
        load_mesh(tmp_path / "a.stl")


@pytest.mark.parametrize("head", [b"solid of a CAD program", b"\0", b"COLOR=abcd"])
@pytest.mark.parametrize("rest", [b"", b"\0\0", b"made by x"])
def test_binary_stls_with_odd_heads_and_rests(tmp_path, head, rest):
    facet = np.array([0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0], "<f4").tobytes() + b"\x1f\x80"
    data = head.ljust(80, b" ") + struct.pack("<I", 2) + 2 * facet + rest
    (tmp_path / "a.stl").write_bytes(data)
    scene = load_scene(tmp_path / "a.stl")
    assert scene.instances()[0].world_mesh().positions.tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0]]
    assert len(scene.instances()[0].faces) == 2
    assert any("attributes" in n for n in scene.notes)
    assert bool(rest) == any("left out" in n and "bytes behind" in n for n in scene.notes)
