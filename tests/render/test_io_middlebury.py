"""Middlebury photo sets: parameters by line, missing images by name, the bounding box."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.errors import LoadError
from dressi.render.camera import from_opencv, project
from dressi.render.io import load_photos, read_bounding_box, read_par, write_png

ROW = " ".join(str(float(i)) for i in range(1, 22))


@pytest.fixture
def par(tmp_path):
    def write(text):
        path = tmp_path / "set_par.txt"
        path.write_text(text)
        return path

    return write


def test_parameters_come_in_order(par):
    (first, k, r, t), (second, *_) = read_par(par(f"2\na.png {ROW}\n\nb.png {ROW}\n"))
    assert (first, second) == ("a.png", "b.png")
    assert k.tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert r[0].tolist() == [10, 11, 12] and t.tolist() == [19, 20, 21]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "empty"),
        ("x\n", 1, "number of images"),
        (f"a.png {ROW}\n", 1, "number of images"),
        (f"1\na.png {ROW} 5\n", 2, "23 fields"),
        (f"1\n\na.png {ROW[:-4]}x\n", 3, "could not convert"),
        (f"1\na.png {ROW[:-4]}nan\n", 2, "NaN"),
        (f"2\na.png {ROW}\n", 1, "2 images are announced, 1 follow"),
    ],
)
def test_faults_are_named_by_line(par, text, line, words):
    path = par(text)
    with pytest.raises(LoadError, match=words) as caught:
        read_par(path)
    assert caught.value.file == str(path) and caught.value.where == f"line {line}"


def test_missing_files_are_named(par, tmp_path):
    with pytest.raises(LoadError, match=r"none_par\.txt"):
        read_par(tmp_path / "none_par.txt")
    with pytest.raises(LoadError, match=r"a\.png: cannot be read"):
        load_photos(tmp_path, par(f"1\na.png {ROW}\n"))


def test_photos_are_linear_rgb(par, tmp_path):
    write_png(tmp_path / "a.png", np.full((3, 4), 0.25))
    (photo,) = load_photos(tmp_path, par(f"1\na.png {ROW}\n"))
    assert photo.image.shape == (3, 4, 3)
    assert np.allclose(photo.image, 0.25, atol=5e-3)


def test_bounding_box_is_read_where_there_is_one(tmp_path):
    readme = tmp_path / "README.txt"
    assert read_bounding_box(readme) is None
    readme.write_text("no box (1 2 3) (4 5 6)")
    assert read_bounding_box(readme) is None
    readme.write_text("The (tight) bounding box for it is\n(-1 2.5 3e-2)\n(4, -5, 6)\n")
    assert read_bounding_box(readme).tolist() == [[-1, -5, 0.03], [4, 2.5, 6]]


def test_dino_cameras_see_the_dino(shared_data):
    folder = shared_data / "dino"
    if not folder.is_dir():
        pytest.skip("shared/data/dino is absent")
    box = read_bounding_box(folder / "README.txt")
    cameras = read_par(folder / "dinoSR_par.txt")
    assert len(cameras) == 16
    for name, k, r, t in cameras:
        camera = from_opencv(k, r, t, 640, 480, 0.3, 1.5, name=name)
        x, y = project(camera.matrix, [box.mean(axis=0)], 640, 480)[0]
        assert 200 < x < 440 and 120 < y < 360
