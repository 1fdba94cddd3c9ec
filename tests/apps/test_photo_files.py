"""Photos as COLMAP, ``transforms.json`` and Middlebury files name them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dressi.apps.photo_files import read_photos
from dressi.apps.photo_masks import given_masks
from dressi.errors import LoadError
from dressi.render.camera import Calibration, Distortion
from dressi.render.io import colmap_model, write_colmap, write_image, write_transforms

WIDTH, HEIGHT = 48, 36
# The corner of a picture is (0, 0).
K = np.array([[60.0, 0.0, 25.0], [0.0, 58.0, 17.0], [0.0, 0.0, 1.0]])
K1 = -0.15
TURN = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])
NAMES = ("a.png", "b.png")


def pattern(xy: np.ndarray) -> np.ndarray:
    """(..., 3) smooth colours on the plane z = 1 before a camera."""
    x, y = xy[..., 0], xy[..., 1]
    return np.stack([0.5 + 0.4 * np.sin(5 * x), 0.5 + 0.4 * np.cos(6 * y), 0.3 + 0.5 * x * y], -1)


def plane(width: int, height: int, k: np.ndarray) -> np.ndarray:
    """(H, W, 2): where the centres of pixels lie on the plane z = 1."""
    x, y = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    return np.stack([(x - k[0, 2]) / k[0, 0], (y - k[1, 2]) / k[1, 1]], -1)


def before_the_lens(xy: np.ndarray) -> np.ndarray:
    """Solve (1 + k1 r^2) ideal = xy by iteration."""
    ideal = xy.copy()
    for _ in range(60):
        ideal = xy / (1.0 + K1 * (ideal**2).sum(-1, keepdims=True))
    return ideal


def taken(folder: Path, width: int = WIDTH, height: int = HEIGHT) -> list[Calibration]:
    """Write two photos through a lens; return their calibrations."""
    k = np.diag([width / WIDTH, height / HEIGHT, 1.0]) @ K
    photo = pattern(before_the_lens(plane(width, height, k))).astype(np.float32)
    for name in NAMES:
        write_image(folder / name, photo)
    lens = Distortion(K1)
    at = ((np.eye(3), np.array([0.0, 0.0, 3.0])), (TURN, np.array([0.1, 0.0, 2.0])))
    return [
        Calibration(name, K, r, t, WIDTH, HEIGHT, lens, pixel_center=0.0)
        for name, (r, t) in zip(NAMES, at, strict=True)
    ]


def as_text(folder: Path, made: list[Calibration]) -> Path:
    write_colmap(folder / "sparse" / "0", colmap_model(made), binary=False)
    return folder


def as_binary(folder: Path, made: list[Calibration]) -> Path:
    write_colmap(folder, colmap_model(made))
    return folder / "cameras.bin"


def as_transforms(folder: Path, made: list[Calibration]) -> Path:
    write_transforms(folder / "transforms.json", made)
    return folder / "transforms.json"


def as_opencv(folder: Path, made: list[Calibration]) -> Path:
    """As ``cv::FileStorage`` writes it: pixel centres are whole numbers, rotations are vectors."""
    k = made[0].K - [[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]]
    turn = np.pi / 2  # about y, of the second photo
    rows = [[0, 0, 0, *made[0].t], [0, turn, 0, *made[1].t]]
    (folder / "calib.yml").write_text(
        f"""%YAML:1.0
---
calibration_time: "Mon 01 Jan 2024 10:00:00"
nr_of_frames: 2
image_width: {WIDTH}
image_height: {HEIGHT}
# flags: 0
camera_matrix: !!opencv-matrix
   rows: 3
   cols: 3
   dt: d
   data: [ {k[0, 0]:.16e}, 0., {k[0, 2]:.16e}, 0.,
       {k[1, 1]:.16e}, {k[1, 2]:.16e}, 0., 0., 1. ]
distortion_coefficients: !!opencv-matrix
   rows: 5
   cols: 1
   dt: d
   data: [ {K1}, 0., 0., 0., 0. ]
avg_reprojection_error: 1.2e-01
image_points: !!opencv-matrix
   rows: 1
   cols: 2
   dt: "2f"
   data: [ 1., 2., 3., 4. ]
extrinsic_parameters: !!opencv-matrix
   rows: 2
   cols: 6
   dt: d
   data: [ {", ".join(f"{x:.16e}" for x in np.ravel(rows))} ]
""",
        encoding="utf-8",
    )
    return folder / "calib.yml"


@pytest.mark.parametrize("write", [as_text, as_binary, as_transforms, as_opencv])
def test_photos_are_undistorted_and_their_cameras_the_same_from_every_kind_of_file(
    tmp_path: Path, write: Callable[[Path, list[Calibration]], Path]
) -> None:
    made = taken(tmp_path)
    photos = read_photos(str(tmp_path), str(write(tmp_path, made)))
    assert [p.name for p in photos] == list(NAMES)
    ideal = pattern(plane(WIDTH, HEIGHT, K))
    for photo, want in zip(photos, made, strict=True):
        np.testing.assert_allclose(photo.R, want.R, atol=1e-12)
        np.testing.assert_allclose(photo.t, want.t, atol=1e-12)
        # Centres of pixels have integer coordinates: half a pixel less.
        np.testing.assert_allclose(photo.K, K - [[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]], atol=1e-9)
        # 8 bits of sRGB, and bilinear reads of waves of 50 pixels and more.
        np.testing.assert_allclose(photo.image[4:-4, 4:-4], ideal[4:-4, 4:-4], atol=0.012)


def test_where_the_lens_showed_nothing_stands_the_nearest_pixel(tmp_path: Path) -> None:
    made = taken(tmp_path)
    photos = read_photos(str(tmp_path), str(as_transforms(tmp_path, made)))
    assert photos[0].image[0, 0].min() > 0.05


def test_masks_beside_the_photos_are_undistorted_alike(tmp_path: Path) -> None:
    made = taken(tmp_path)
    masks = tmp_path / "masks"
    masks.mkdir()
    radius = 0.25  # on the plane z = 1: a circle stays one, but grows
    seen = (before_the_lens(plane(WIDTH, HEIGHT, K)) ** 2).sum(-1) < radius**2
    for name in NAMES:
        write_image(masks / name, np.repeat(seen[..., None], 3, -1).astype(np.float32))
    photos = read_photos(str(tmp_path), str(as_transforms(tmp_path, made)))
    found = given_masks(photos, str(masks))
    assert found is not None
    ideal = (plane(WIDTH, HEIGHT, K) ** 2).sum(-1) < radius**2
    assert np.mean((found[0, ..., 0] > 0.5) != ideal) < 0.01


def test_a_photo_of_half_the_size_gets_half_the_intrinsics(tmp_path: Path) -> None:
    made = taken(tmp_path, WIDTH // 2, HEIGHT // 2)
    photos = read_photos(str(tmp_path), str(as_text(tmp_path, made)))
    half = np.diag([0.5, 0.5, 1.0]) @ K
    np.testing.assert_allclose(photos[0].K[:2, 2], half[:2, 2] - 0.5, atol=1e-9)
    np.testing.assert_allclose(np.diag(photos[0].K), np.diag(half), atol=1e-9)


def test_errors_name_the_file_and_the_photo(tmp_path: Path) -> None:
    made = taken(tmp_path)
    (tmp_path / "b.png").unlink()
    with pytest.raises(LoadError, match=r"transforms\.json: the photo 'b\.png' is not in"):
        read_photos(str(tmp_path), str(as_transforms(tmp_path, made)))
    write_image(tmp_path / "b.png", np.zeros((10, 30, 3), np.float32))
    with pytest.raises(LoadError, match=r"'b\.png' is 30x10, its camera 48x36"):
        read_photos(str(tmp_path), str(tmp_path / "transforms.json"))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(LoadError, match="a folder without a COLMAP model"):
        read_photos(str(tmp_path), str(empty))


def test_a_calibration_of_opencv_may_name_its_photos(tmp_path: Path) -> None:
    path = as_opencv(tmp_path, taken(tmp_path))
    for listed in ('images: [ "b.png", a.png ]\n', 'images:\n   - "b.png"\n   - a.png\n'):
        path.write_text(as_opencv(tmp_path, taken(tmp_path)).read_text() + listed)
        assert [p.name for p in read_photos(str(tmp_path), str(path))] == ["b.png", "a.png"]


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("camera_matrix:", "other_matrix:", "camera_matrix: is missing"),
        ("rows: 5", "rows: 6", "line 14: 5 values cannot be numbers of 6 x 1"),
        ("rows: 5\n   cols: 1", "rows: 1\n   cols: 5", ""),
        (f"image_width: {WIDTH}", "image_width: 4.5", "image_width: whole pixels"),
        ("nr_of_frames: 2", "fisheye_model: 1", "fisheye lenses are not supported"),
        ("nr_of_frames: 2", "images: [ a.png ]", "2 poses and 1 photos"),
        ("nr_of_frames: 2", "odd", "line 4: 'key: value' is expected"),
        (f"{K1}, 0., 0., 0., 0. ]", f"{K1}, 0., 0., 0., 0.", "a list without an end|needs rows"),
    ],
)
def test_a_calibration_of_opencv_that_is_wrong_is_named(
    tmp_path: Path, old: str, new: str, word: str
) -> None:
    path = as_opencv(tmp_path, taken(tmp_path))
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    if not word:
        assert len(read_photos(str(tmp_path), str(path))) == 2
        return
    with pytest.raises(LoadError, match=word):
        read_photos(str(tmp_path), str(path))
