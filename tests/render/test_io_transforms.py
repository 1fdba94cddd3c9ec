"""transforms.json: points land where Blender's and instant-ngp's words put them; faults by key."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from dressi.errors import GraphError, LoadError
from dressi.render.camera import Distortion, project
from dressi.render.io import read_transforms, write_png, write_transforms

POSE = np.eye(4)
POSE[:3, :3] = Rotation.from_rotvec([0.3, -0.5, 0.2]).as_matrix()
POSE[:3, 3] = 1.0, -2.0, 4.0
FULL = {"w": 64, "h": 40, "fl_x": 70.0, "fl_y": 72.0, "cx": 33.0, "cy": 19.0}
FULL |= {"k1": -0.1, "k2": 0.02, "p1": 1e-3, "p2": -2e-3}


@pytest.fixture
def file(tmp_path):
    def write(content):
        path = tmp_path / "transforms.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


def frames(**more):
    return [{"file_path": "a.png", "transform_matrix": POSE.tolist(), **more}]


def points_and_pixels(fx, fy, cx, cy):
    """The camera looks down its -Z, y up; pixels from the corner, y down."""
    own = np.random.default_rng(2).uniform((-1, -1, -8), (1, 1, -3), size=(50, 3))
    world = own @ POSE[:3, :3].T + POSE[:3, 3]
    return world, np.c_[fx * own[:, 0] / -own[:, 2] + cx, -fy * own[:, 1] / -own[:, 2] + cy]


@pytest.mark.parametrize("z_up", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_intrinsics_at_the_top_or_in_the_frame(file, shared, z_up):
    path = file({**FULL, "frames": frames()} if shared else {"frames": frames(**FULL)})
    (made,) = read_transforms(path, z_up=z_up)
    world, want = points_and_pixels(70.0, 72.0, 33.0, 19.0)
    if z_up:
        world = np.c_[world[:, 0], world[:, 2], -world[:, 1]]
    assert np.allclose(project(made.camera(0.1, 20.0).matrix, world, 64, 40), want, atol=1e-9)
    assert made.name == "a.png" and (made.width, made.height) == (64, 40)
    assert made.distortion == Distortion(k1=-0.1, k2=0.02, p1=1e-3, p2=-2e-3)


def test_blenders_angle_and_the_size_of_the_image(file, tmp_path):
    write_png(tmp_path / "a.png", np.zeros((30, 50)))
    path = file({"camera_angle_x": 0.8, "frames": [{**frames()[0], "file_path": "./a"}]})
    (made,) = read_transforms(path)  # nerf-synthetic leaves .png away
    f = 25.0 / np.tan(0.4)
    world, want = points_and_pixels(f, f, 25.0, 15.0)
    assert np.allclose(project(made.camera(0.1, 20.0).matrix, world, 50, 30), want, atol=1e-9)
    (other,) = read_transforms(
        file({"camera_angle_x": 0.8, "frames": [{**frames()[0], "file_path": "none"}]}),
        size=(50, 30),
    )
    assert np.allclose(other.K, made.K)


@pytest.mark.parametrize("z_up", [False, True])
def test_files_survive_writing_and_reading(file, tmp_path, z_up):
    path = file({"frames": frames(**FULL) + frames(**FULL | {"fl_x": 75.5, "k3": 0.01})})
    made = read_transforms(path)
    for shots in (made, made[:1] * 2):
        write_transforms(tmp_path / "out.json", shots, z_up=z_up)
        top = json.loads((tmp_path / "out.json").read_text())
        assert ("fl_x" in top) == (shots is not made)  # shared where equal
        for a, b in zip(read_transforms(tmp_path / "out.json", z_up=z_up), shots, strict=True):
            assert a.distortion == b.distortion and a.name == b.name
            for field in ("K", "R", "t"):
                assert np.allclose(getattr(a, field), getattr(b, field), atol=1e-12)
    centres = replace(made[0], pixel_center=0.5)
    write_transforms(tmp_path / "out.json", [centres])
    assert json.loads((tmp_path / "out.json").read_text())["cx"] == 33.5


def test_what_the_format_has_not(file, tmp_path):
    (made,) = read_transforms(file({**FULL, "frames": frames()}))
    with pytest.raises(GraphError, match="no frames"):
        write_transforms(tmp_path / "out.json", [])
    with pytest.raises(GraphError, match="k4 to k6"):
        write_transforms(tmp_path / "out.json", [replace(made, distortion=Distortion(k5=0.1))])


@pytest.mark.parametrize(
    ("content", "where", "words"),
    [
        ("{", "line 1", "no JSON"),
        ("[]", "frames", "list of frames"),
        ({"frames": []}, "frames", "no frames"),
        ({"frames": [3]}, "frames[0]", "object is expected, got int"),
        ({"frames": frames()}, "frames[0]", "no w and h"),
        ({"w": 4, "h": 4, "frames": frames()}, "frames[0]", "fl_x or camera_angle_x"),
        ({**FULL, "fl_x": "7", "frames": frames()}, "frames[0].fl_x", "number is needed, got '7'"),
        ({**FULL, "w": 4.5, "frames": frames()}, "frames[0]", "whole pixels"),
        ({**FULL, "fl_x": 0, "frames": frames()}, "frames[0]", "above 0"),
        ({"w": 4, "h": 4, "camera_angle_x": 4.0, "frames": frames()}, "frames[0]", r"\(0, pi\)"),
        ({**FULL, "camera_model": "OPENCV_FISHEYE", "frames": frames()}, "frames[0]", "FISHEYE"),
        ({**FULL, "is_fisheye": True, "frames": frames()}, "frames[0]", "fisheye"),
        ({**FULL, "k4": 0.1, "frames": frames()}, "frames[0]", "k4 is not supported"),
        ({**FULL, "k1": None, "frames": frames()}, "frames[0]", "k1 is missing"),
        ({**FULL, "frames": frames(file_path=3)}, "frames[0].file_path", "name is expected"),
        (
            {**FULL, "frames": frames(transform_matrix=[[1, 2], [3]])},
            "frames[0].transform_matrix",
            "4 rows",
        ),
        (
            {**FULL, "frames": frames(transform_matrix=(2 * np.eye(4)).tolist())},
            "frames[0].transform_matrix",
            "no rotation",
        ),
        ({**FULL, "frames": [{"file_path": "a"}]}, "frames[0].transform_matrix", "(4, 4)"),
    ],
)
def test_faults_are_named_by_key(file, content, where, words):
    path = file(content)
    with pytest.raises(LoadError, match=words.replace("(4, 4)", r"\(4, 4\)")) as caught:
        read_transforms(path)
    assert caught.value.file == str(path) and caught.value.where == where


def test_a_missing_file_and_a_broken_image(file, tmp_path):
    with pytest.raises(LoadError, match="cannot be read"):
        read_transforms(tmp_path / "none.json")
    (tmp_path / "a.png").write_text("no picture")
    with pytest.raises(LoadError, match="is no picture"):
        read_transforms(file({"camera_angle_x": 0.8, "frames": frames()}))
