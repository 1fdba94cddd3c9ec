"""OBJ: indices of every form, n-gons, missing parts; faults are named by file and line."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.errors import LoadError
from dressi.render.io import read_obj
from dressi.render.scene import area_normals, surface_area

SQUARE = "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\n"
UVS = "vt 0 0\nvt 1 0\nvt 1 1\nvt 0 1\n"


@pytest.fixture
def obj(tmp_path):
    def write(text, name="model.obj"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def load(path, warnings=None):
    mesh, _ = read_obj(path, warnings)
    return mesh


@pytest.mark.parametrize(
    "corner", ["{}", "{}//1", "{}/{}", "{}/{}/1", "{}/"], ids=["v", "v//vn", "v/vt", "all", "v/"]
)
def test_every_form_of_corner(obj, corner):
    face = " ".join(corner.format(i, i) for i in (1, 2, 3))
    mesh = load(obj(SQUARE + UVS + "vn 0 0 1\nf " + face + "\n"))
    assert mesh.faces.tolist() == [[0, 1, 2]]
    assert (mesh.uvs is not None) == ("{}/{}" in corner)
    assert len(mesh.positions) == 4, "vertices stay in order, lone ones too"


def test_v_of_uvs_is_flipped(obj):
    mesh = load(obj(SQUARE + "vt 0.25 0.1\nvt 1 0\nvt 1 1\nf 1/1 2/2 3/3\n"))
    assert np.allclose(mesh.uvs[mesh.uv_faces[0]], [[0.25, 0.9], [1, 1], [1, 0]])


def test_negative_indices_count_back_from_where_they_stand(obj):
    text = (
        "v 0 0 0\nv 1 0 0\nv 0 1 0\nf -3 -2 -1\nv 5 0 0\nv 6 0 0\nv 5 1 0\nf -3 -2 -1\nf 1 -1 2\n"
    )
    assert load(obj(text)).faces.tolist() == [[0, 1, 2], [3, 4, 5], [0, 5, 1]]


def test_vertices_may_follow_the_faces_that_use_them(obj):
    assert load(obj("f 1 2 3\n" + SQUARE)).faces.tolist() == [[0, 1, 2]]


def test_convex_polygon_is_a_fan(obj):
    mesh = load(obj(SQUARE + UVS + "f 1/4 2/3 3/2 4/1\n"))
    assert mesh.faces.tolist() == [[0, 1, 2], [0, 2, 3]]
    assert mesh.uv_faces.tolist() == [[3, 2, 1], [3, 1, 0]]


CONCAVE = {
    "arrow": [(0, 0), (2, 1), (0, 2), (0.5, 1)],
    "L": [(0, 0), (3, 0), (3, 1), (1, 1), (1, 3), (0, 3)],
    "comb": [(0, 0), (5, 0), (5, 2), (4, 0.5), (3, 2), (2, 0.5), (1, 2)],
    "L with straight corners": [(0, 0), (1, 0), (3, 0), (3, 1), (2, 1), (1, 1), (1, 3), (0, 3)],
}


@pytest.mark.parametrize("kind", list(CONCAVE))
@pytest.mark.parametrize("axes", [(0, 1, 2), (1, 2, 0), (2, 0, 1), (1, 0, 2)])
@pytest.mark.parametrize("start", [0, 1, 2, 3])
def test_concave_polygon_is_covered_once(obj, kind, axes, start):
    flat = np.roll(np.array([(x, y, 0.3 * x) for x, y in CONCAVE[kind]]), start, axis=0)
    points = flat[:, axes]
    lines = "".join("v {} {} {}\n".format(*p) for p in points)
    numbers = " ".join(str(i + 1) for i in range(len(points)))
    mesh = load(obj(f"{lines}f {numbers}\n"))
    assert len(mesh.faces) == len(points) - 2
    normals = area_normals(mesh.positions, mesh.faces)
    whole = np.cross(points, np.roll(points, -1, axis=0)).sum(axis=0) / 2
    # same winding everywhere, and areas that add up: nothing is covered twice or left out
    assert np.allclose(normals.sum(axis=0), whole, atol=1e-6)
    assert surface_area(mesh.positions, mesh.faces) == pytest.approx(
        np.linalg.norm(whole), abs=1e-6
    )


@pytest.mark.parametrize(
    "points",
    [
        [(0, 0), (2, 2), (2, 0), (0, 2)],  # a symmetric bow tie, whose areas cancel
        [(0, 0), (3, 2), (3, 0), (0, 1)],
        [(np.cos(a), np.sin(a)) for a in 0.3 + np.arange(5) * 4 * np.pi / 5],  # a star
    ],
)
def test_polygon_that_crosses_itself_is_refused(obj, points):
    lines = "".join(f"v {x} {y} 0\n" for x, y in points)
    numbers = " ".join(str(i + 1) for i in range(len(points)))
    with pytest.raises(LoadError, match="crosses itself") as caught:
        load(obj(f"{lines}f {numbers}\n"))
    assert caught.value.where == f"line {len(points) + 1}"


def test_faces_without_uv_beside_faces_with_uv(obj):
    warnings = []
    mesh = load(obj(SQUARE + UVS + "f 1/1 2/2 3/3\nf 1 3 4\n"), warnings)
    assert mesh.uv_faces.tolist() == [[0, 1, 2], [4, 4, 4]]
    assert mesh.uvs[4].tolist() == [0, 0]
    assert "1 triangles have no UV" in warnings[0]


def test_comments_continued_lines_colours_and_unknown_words(obj):
    text = "# x\r\no thing\nv 0 0 0 1 0.5 0.5 # red\nv 1 0 0 \\\n  1\n"
    text += "v 0 1 0\ns off\nl 1 2\nf 1 2 \\\n3"
    assert load(obj(text)).faces.tolist() == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (SQUARE + "f 1 2 5\n", 5, ["vertex index 5", "4"]),
        (SQUARE + "f 1 2 -5\n", 5, ["vertex index -5", "4"]),
        (SQUARE + "f 0 1 2\n", 5, ["vertex index 0"]),
        (SQUARE + "f 1/1 2/1 3/1\n", 5, ["uv index 1", "0"]),
        (SQUARE + "f 1 2\n", 5, ["3 corners"]),
        (SQUARE + "f 1 2 x\n", 5, ["'x'"]),
        (SQUARE + "f 1/1/1/1 2 3\n", 5, ["1/1/1/1"]),
        ("v 1 2\n" + SQUARE, 1, ["3 numbers", "2"]),
        ("v 1 2 y\n" + SQUARE, 1, ["y"]),
        (SQUARE + "\nv 1 nan 2\nf 1 2 3", 6, ["NaN"]),
        (SQUARE + "v 1 1e39 2\nf 1 2 3", 5, ["float32"]),
        (SQUARE + "vt\nf 1 2 3", 5, ["1 numbers"]),
    ],
)
def test_faults_are_named_by_file_and_line(obj, text, line, words):
    path = obj(text)
    with pytest.raises(LoadError) as caught:
        read_obj(path)
    assert caught.value.file == str(path) and caught.value.where == f"line {line}"
    for word in [*words, "model.obj", f"line {line}:"]:
        assert word in str(caught.value)


def test_no_faces_and_no_file_are_load_errors(obj, tmp_path):
    with pytest.raises(LoadError, match="no faces"):
        read_obj(obj(SQUARE))
    with pytest.raises(LoadError, match="cannot be read"):
        read_obj(tmp_path / "none.obj")


def test_texture_is_that_of_the_first_used_material(obj, tmp_path):
    (tmp_path / "a b.png").touch()
    (tmp_path / "m.mtl").write_text(
        "newmtl other\nmap_Kd c.png\nnewmtl plain\nKd 1 1 1\n"
        "newmtl skin\nmap_Kd -s 2 2 -clamp on a b.png\n"
    )
    body = (
        "mtllib m.mtl\n"
        + SQUARE
        + "usemtl plain\nf 1 2 3\nusemtl skin\nf 1 3 4\nusemtl other\nf 1 2 4\n"
    )
    warnings = []
    assert read_obj(obj(body), warnings)[1] == tmp_path / "a b.png"
    assert any("2 textures" in w for w in warnings)


def test_missing_mtl_or_texture_is_a_warning(obj, tmp_path):
    warnings = []
    body = SQUARE + "usemtl skin\nf 1 2 3\n"
    assert read_obj(obj("mtllib none.mtl\n" + body), warnings)[1] is None
    assert "none.mtl is not there" in warnings[0]
    (tmp_path / "m.mtl").write_text("newmtl skin\nmap_Kd gone.png\n")
    assert read_obj(obj("mtllib m.mtl\n" + body), warnings)[1] is None
    assert "gone.png is not there" in warnings[1]


def test_lone_stem_texture_beside_the_file_is_taken(obj, tmp_path):
    path = obj(SQUARE + "f 1 2 3\n")
    (tmp_path / "model_texture.png").touch()
    (tmp_path / "model_texture.txt").touch()
    assert read_obj(path)[1] == tmp_path / "model_texture.png"
    (tmp_path / "model_texture.jpg").touch()
    assert read_obj(path)[1] is None, "two of them: no guess"


@pytest.mark.parametrize(
    ("name", "n_vertices", "n_faces", "n_uvs"),
    [
        ("spot/spot.obj", 2930, 5856, 3225),
        ("meshes/teapot.obj", 3644, 6320, 0),
        ("meshes/suzanne.obj", 507, 968, 0),
        ("meshes/stanford-bunny.obj", 35947, 69451, 0),
    ],
)
def test_known_models_load_whole(shared_data, name, n_vertices, n_faces, n_uvs):
    path = shared_data / name
    if not path.is_file():
        pytest.skip(f"shared/data/{name} is absent")
    mesh, texture = read_obj(path)
    assert (len(mesh.positions), len(mesh.faces)) == (n_vertices, n_faces)
    assert (0 if mesh.uvs is None else len(mesh.uvs)) == n_uvs
    if "spot" in name:
        assert texture == path.with_name("spot_texture.png")
