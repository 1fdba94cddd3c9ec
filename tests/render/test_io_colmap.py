"""COLMAP models: both formats, each camera model against COLMAP's formulas, faults by place."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from dressi.errors import GraphError, LoadError
from dressi.render.camera import Distortion, distort_points, project
from dressi.render.io import (
    ColmapCamera,
    ColmapImage,
    ColmapModel,
    ColmapPoints,
    colmap_model,
    read_colmap,
    write_colmap,
)

PARAMS = {
    "SIMPLE_PINHOLE": (500.0, 320.0, 201.0),
    "PINHOLE": (500.0, 480.0, 320.0, 201.0),
    "SIMPLE_RADIAL": (500.0, 320.0, 201.0, -0.1),
    "RADIAL": (500.0, 320.0, 201.0, -0.1, 0.02),
    "OPENCV": (500.0, 480.0, 320.0, 201.0, -0.1, 0.02, 1e-3, -2e-3),
    "FULL_OPENCV": (500.0, 480.0, 320.0, 201.0, 0.1, 0.02, 1e-3, -2e-3, 0.01, 0.1, 0.02, 0.03),
}


def img_from_cam(model, p, u, v):
    """camera_models.h in words: normalized (u, v) to pixels."""
    r2 = u * u + v * v
    if model == "SIMPLE_PINHOLE":
        return p[0] * u + p[1], p[0] * v + p[2]
    if model == "PINHOLE":
        return p[0] * u + p[2], p[1] * v + p[3]
    if model in ("SIMPLE_RADIAL", "RADIAL"):
        radial = 1 + p[3] * r2 + (p[4] * r2 * r2 if model == "RADIAL" else 0.0)
        return p[0] * u * radial + p[1], p[0] * v * radial + p[2]
    k1, k2, p1, p2, k3, k4, k5, k6 = [*p[4:], *([0.0] * (12 - len(p)))]
    radial = (1 + k1 * r2 + k2 * r2**2 + k3 * r2**3) / (1 + k4 * r2 + k5 * r2**2 + k6 * r2**3)
    return (
        p[0] * (u * radial + 2 * p1 * u * v + p2 * (r2 + 2 * u * u)) + p[2],
        p[1] * (v * radial + 2 * p2 * u * v + p1 * (r2 + 2 * v * v)) + p[3],
    )


def rotate(q, x):
    """q x q*, Hamilton's product, q = (w, x, y, z)."""
    w, v = q[0], np.asarray(q[1:])
    return x + 2 * w * np.cross(v, x) + 2 * np.cross(v, np.cross(v, x))


def full_model():
    rng = np.random.default_rng(0)
    cameras, images = {}, {}
    for i, (name, params) in enumerate(PARAMS.items(), 1):
        cameras[i] = ColmapCamera(i, name, 640, 400, params)
        q = rng.normal(size=4)
        images[i] = ColmapImage(
            i,
            f"dir/img{i}.jpg",
            i,
            q / np.linalg.norm(q),
            rng.normal(size=3) + [0, 0, 6],
            rng.uniform(0, 400, size=(i % 3, 2)),
            np.array([-1, 7][: i % 3], np.int64),
        )
    points = ColmapPoints(
        np.array([7, 9]),
        rng.normal(size=(2, 3)),
        np.array([[0, 128, 255], [1, 2, 3]], np.uint8),
        np.array([0.5, -1.0]),
        (np.array([[1, 0], [2, 1]]), np.zeros((0, 2), np.int64)),
    )
    return ColmapModel(cameras, images, points)


def same(a, b):
    assert a.cameras == b.cameras
    assert list(a.images) == list(b.images)
    for i, image in a.images.items():
        other = b.images[i]
        assert (image.name, image.camera_id) == (other.name, other.camera_id)
        assert np.allclose(image.qvec, other.qvec, atol=1e-15)
        assert np.array_equal(image.tvec, other.tvec)
        assert np.array_equal(image.xys, other.xys) and image.xys.shape == other.xys.shape
        assert np.array_equal(image.point_ids, other.point_ids)
    for field in ("ids", "xyz", "rgb", "errors"):
        assert np.array_equal(getattr(a.points, field), getattr(b.points, field))
    assert all(np.array_equal(x, y) for x, y in zip(a.points.tracks, b.points.tracks, strict=True))


@pytest.mark.parametrize("binary", [True, False])
def test_models_survive_writing_and_reading(tmp_path, binary):
    model = full_model()
    write_colmap(tmp_path / "sparse", model, binary=binary)
    assert len(list((tmp_path / "sparse").iterdir())) == 3
    same(read_colmap(tmp_path / "sparse"), model)


@pytest.mark.parametrize("model", PARAMS)
def test_every_model_puts_points_where_colmap_does(model):
    made = full_model()
    image = next(i for i in made.images.values() if made.cameras[i.camera_id].model == model)
    points = np.random.default_rng(4).uniform(-1, 1, size=(40, 3))
    cam = np.array([rotate(image.qvec, p) for p in points]) + image.tvec
    want = [img_from_cam(model, PARAMS[model], *(c[:2] / c[2])) for c in cam]
    shot = next(c for c in made.calibrations() if c.name == image.name)
    ideal = project(shot.camera(0.1, 50.0).matrix, points, 640, 400)
    assert np.allclose(distort_points(ideal, shot.K, shot.distortion), want, atol=1e-8)


def test_calibrations_become_the_smallest_model(tmp_path):
    shots = full_model().calibrations()
    model = colmap_model(shots)
    kinds = [c.model for c in model.cameras.values()]
    assert kinds == ["PINHOLE", "PINHOLE", "OPENCV", "OPENCV", "OPENCV", "FULL_OPENCV"]
    write_colmap(tmp_path, model)
    for a, b in zip(read_colmap(tmp_path).calibrations(), shots, strict=True):
        assert a.name == b.name and a.distortion == b.distortion
        assert np.allclose(a.K, b.K) and np.allclose(a.R, b.R) and np.allclose(a.t, b.t)
    centres = replace(shots[0], pixel_center=0.5)  # OpenCV's pixels: corner + 0.5
    assert colmap_model([centres]).cameras[1].params[2:] == (320.5, 201.5)
    with pytest.raises(GraphError, match="skew of 2"):
        colmap_model([replace(shots[0], K=shots[0].K + [[0, 2, 0], [0, 0, 0], [0, 0, 0]])])


def test_what_cannot_be_written_is_named(tmp_path):
    model = full_model()
    lost = replace(model, cameras={1: model.cameras[1]})
    with pytest.raises(GraphError, match=r"image 2 .* no camera 2"):
        write_colmap(tmp_path, lost)
    for name in ("", "a\nb", "a\rb", " a", "a ", "a\0b", "\udc80"):
        odd = replace(model, images={1: replace(model.images[1], name=name)})
        with pytest.raises(GraphError, match=r"image 1 needs.* a name"):
            write_colmap(tmp_path, odd, binary=False)
        if name in ("", "a\0b", "\udc80"):
            with pytest.raises(GraphError, match="image 1 needs a name"):
                write_colmap(tmp_path, odd)
    assert not list(tmp_path.iterdir())


CAMERAS = "# comment\n1 PINHOLE 640 400 500 480 320 201\n"
IMAGES = "1 1 0 0 0 0 0 5 1 a.jpg\n10 20 -1 30 40 7\n"


@pytest.mark.parametrize(
    ("file", "text", "where", "words"),
    [
        ("cameras", "1 PINHOLE 640\n", "line 1", "are expected"),
        ("cameras", "\n1 OPENCV_FISHEYE 640 400 1 1 1 1 0 0 0 0\n", "line 2", "OPENCV_FISHEYE is"),
        ("cameras", "1 PINHOLE 640 400 500 480 320\n", "line 1", "4 parameters, got 3"),
        ("cameras", "1 PINHOLE 640 x 500 480 320 201\n", "line 1", "camera: invalid literal"),
        ("cameras", "1 PINHOLE 640 0 500 480 320 201\n", "line 1", "640x0"),
        ("cameras", "1 PINHOLE 640 400 nan 480 320 201\n", "line 1", "finite"),
        ("cameras", "1 PINHOLE 640 400 -500 480 320 201\n", "line 1", "> 0"),
        ("cameras", CAMERAS + CAMERAS, "line 4", "twice"),
        ("images", "1 1 0 0 0 0 0 5 a.jpg\n\n", "line 1", "10 fields, not 9"),
        ("images", "1 0 0 0 0 0 0 5 1 a.jpg\n\n", "line 1", "no pose"),
        ("images", "1 1 0 0 0 0 inf 5 1 a.jpg\n\n", "line 1", "no pose"),
        ("images", "1 1 0 0 0 0 0 5 1 a.jpg\n10 20\n", "line 2", "3 numbers each"),
        ("images", "1 1 0 0 0 0 0 5 1 a.jpg\n10 20 x\n", "line 2", "point ids"),
        ("images", "1 1 0 0 0 0 0 5 3 a.jpg\n\n", "image 1", "camera 3 is not in"),
        ("images", IMAGES + IMAGES, "line 3", "twice"),
        ("points3D", "1 0 0 0 1 2 3\n", "line 1", "got 7 fields"),
        ("points3D", "1 0 0 nan 1 2 3 0.5\n", "line 1", "position"),
        ("points3D", "1 0 0 0 1 2 300 0.5\n", "line 1", "300"),
        ("points3D", "1 0 0 0 1 2 3 0.5 1 x\n", "line 1", "track"),
    ],
)
def test_faults_of_text_are_named_by_line(tmp_path, file, text, where, words):
    texts = {"cameras": CAMERAS, "images": IMAGES, "points3D": ""} | {file: text}
    for name, content in texts.items():
        (tmp_path / f"{name}.txt").write_text(content)
    with pytest.raises(LoadError, match=words) as caught:
        read_colmap(tmp_path)
    assert caught.value.where == where and caught.value.file == str(tmp_path / f"{file}.txt")
    assert where in str(caught.value)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(LoadError, match=r"neither cameras\.bin nor cameras\.txt"):
        read_colmap(tmp_path)
    (tmp_path / "cameras.txt").write_text(CAMERAS)
    with pytest.raises(LoadError, match=r"images\.txt: cannot be read"):
        read_colmap(tmp_path)
    (tmp_path / "images.txt").write_text(IMAGES)
    model = read_colmap(tmp_path)  # points may be missing
    assert len(model.points.ids) == 0 and model.images[1].point_ids.tolist() == [-1, 7]


@pytest.mark.parametrize("name", ["cameras", "images", "points3D"])
def test_binary_files_cut_anywhere_raise_load_error(tmp_path, name):
    write_colmap(tmp_path, full_model())
    path = tmp_path / f"{name}.bin"
    data = path.read_bytes()
    for end in range(len(data)):
        path.write_bytes(data[:end])
        with pytest.raises(LoadError) as caught:
            read_colmap(tmp_path)
        assert caught.value.file == str(path) and caught.value.where.startswith("byte ")
    path.write_bytes(data + b"\0")
    with pytest.raises(LoadError, match="1 bytes are left over"):
        read_colmap(tmp_path)


def test_binary_faults_are_named(tmp_path):
    write_colmap(tmp_path, full_model())
    path = tmp_path / "cameras.bin"
    good = path.read_bytes()
    path.write_bytes(struct.pack("<Q", 2**60) + good[8:])  # no memory is taken for them
    with pytest.raises(LoadError, match="cameras are announced"):
        read_colmap(tmp_path)
    for number, words in ((5, "OPENCV_FISHEYE is not supported"), (77, "number 77")):
        path.write_bytes(good[:12] + struct.pack("<i", number) + good[16:])
        with pytest.raises(LoadError, match=words) as caught:
            read_colmap(tmp_path)
        assert caught.value.where == "byte 8"


def test_distortion_of_the_models():
    cameras = full_model().cameras
    assert Distortion(*cameras[3].coefficients) == Distortion(k1=-0.1)
    assert Distortion(*cameras[6].coefficients).k6 == 0.03
