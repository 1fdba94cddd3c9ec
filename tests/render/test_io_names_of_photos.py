"""Calibrated photo sets: names that people give files, and every encoding and line end."""

from __future__ import annotations

import codecs
import json

import numpy as np
import pytest

from dressi.errors import LoadError
from dressi.render.camera import Calibration, Distortion
from dressi.render.io import (
    colmap_model,
    load_photos,
    read_bounding_box,
    read_colmap,
    read_par,
    read_transforms,
    write_colmap,
    write_png,
    write_transforms,
)

K = np.array([[500.0, 0, 320], [0, 480, 200], [0, 0, 1]])
ROW = " ".join(map(str, [500, 0, 320, 0, 480, 200, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3]))
NAMES = ["a b.png", "my  photo 12 (copy).jpg", "ümläut.png", "🐄.png", "it's.png", 'q"uote.png']
NAMES += ["#1.png", "a #1.png", "100%.png", "a%20b.png", "...dots", "x" * 250, "dir\\b.png"]
NAMES += ["a\u2028b.png", "a\u3000b.png", "a\x85b.png", "a\x1cb.png", "sub dir/a b.png"]
ENCODED = {
    "UTF-8 with a mark": lambda text: codecs.BOM_UTF8 + text.encode(),
    "UTF-16": lambda text: text.encode("utf-16"),
    "Latin-1": lambda text: text.encode("latin-1"),
    "CRLF": lambda text: text.replace("\n", "\r\n").encode(),
    "CR": lambda text: text.replace("\n", "\r").encode(),
    "no end": lambda text: text.strip().encode(),
}


def shot(name):
    t = np.array([1.0, 2.0, 3.0])
    return Calibration(name, K, np.eye(3), t, 640, 400, Distortion(), pixel_center=0.0)


@pytest.mark.parametrize("name", NAMES)
def test_names_come_back_from_every_format(tmp_path, name):
    for binary in (True, False):
        folder = tmp_path / f"colmap{binary}"
        write_colmap(folder, colmap_model([shot(name), shot("other.png")]), binary=binary)
        images = read_colmap(folder).images
        assert [images[i].name for i in (1, 2)] == [name, "other.png"]
    write_transforms(tmp_path / "t.json", [shot(name)])
    assert read_transforms(tmp_path / "t.json")[0].name == name
    (tmp_path / "a_par.txt").write_text(f"1\n{name} {ROW}\n", encoding="utf-8")
    ((found, k, _, t),) = read_par(tmp_path / "a_par.txt")
    assert found == name and np.array_equal(k, K) and t.tolist() == [1, 2, 3]


@pytest.mark.parametrize("kind", list(ENCODED))
def test_every_encoding_and_line_end(tmp_path, kind):
    encode = ENCODED[kind]
    write_png(tmp_path / "fläche 1.png", np.ones((3, 5, 3)))
    texts = {
        "cameras.txt": "7 PINHOLE 640 400 500 480 320 200\n",
        "images.txt": "3 1 0 0 0 1 2 3 7 fläche 1.png\n4.5 6.5 -1\n",
        "points3D.txt": "1 1 2 3 255 0 0 0.5 3 0\n",
        "a_par.txt": f"1\nfläche 1.png {ROW}\n",
        "README.txt": "bounding box\n(0 0 0)\n(1 2 3)\n",
    }
    frame = {"file_path": "fläche 1", "fl_x": 5, "transform_matrix": np.eye(4).tolist()}
    texts["t.json"] = json.dumps({"frames": [frame]}, ensure_ascii=False, indent=1)
    for name, text in texts.items():
        (tmp_path / name).write_bytes(encode(text))
    model = read_colmap(tmp_path)
    assert model.images[3].name == "fläche 1.png" and model.cameras[7].params[0] == 500
    assert model.images[3].xys.tolist() == [[4.5, 6.5]] and model.points.xyz.tolist() == [[1, 2, 3]]
    (photo,) = load_photos(tmp_path, tmp_path / "a_par.txt")
    assert photo.name == "fläche 1.png" and photo.image.shape == (3, 5, 3)
    assert read_bounding_box(tmp_path / "README.txt").tolist() == [[0, 0, 0], [1, 2, 3]]
    (made,) = read_transforms(tmp_path / "t.json")
    assert (made.width, made.height, made.name) == (5, 3, "fläche 1")


def test_names_in_latin_1_inside_a_binary_model(tmp_path):
    write_colmap(tmp_path, colmap_model([shot("fl_che.png")]))
    data = (tmp_path / "images.bin").read_bytes()
    (tmp_path / "images.bin").write_bytes(data.replace(b"fl_che", "fläche".encode("latin-1")))
    assert read_colmap(tmp_path).images[1].name == "fläche.png"


def test_windows_paths_of_frames_and_what_is_not_there(tmp_path):
    (tmp_path / "images").mkdir()
    write_png(tmp_path / "images" / "A 1.png", np.ones((3, 5, 3)))
    frame = {"fl_x": 5, "transform_matrix": np.eye(4).tolist()}
    for name in (".\\images\\A 1.png", "images\\A 1", "./images/A 1"):
        text = json.dumps({"frames": [frame | {"file_path": name}]})
        (tmp_path / "t.json").write_text(text)
        assert read_transforms(tmp_path / "t.json")[0].width == 5
    text = json.dumps({"frames": [frame | {"file_path": "images/a 1.png"}]})
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(LoadError, match=r"frames\[0\].*looked in .*images', which has 'A 1.png'"):
        read_transforms(tmp_path / "t.json")
    (tmp_path / "a_par.txt").write_text(f"1\na 1.png {ROW}\n")
    with pytest.raises(LoadError, match=r"a 1\.png: cannot be read.*which has 'A 1.png'"):
        load_photos(tmp_path / "images", tmp_path / "a_par.txt")
    with pytest.raises(LoadError, match=r"which has 't\.json'"):
        read_transforms(tmp_path / "T.json")
