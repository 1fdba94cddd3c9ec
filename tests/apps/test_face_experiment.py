"""``dressi experiment face``: its start, its files, its measures, and a small fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from dressi.apps.data import human_file
from dressi.apps.data.heads import triangles
from dressi.apps.experiments import run_experiment
from dressi.apps.experiments.face_capture import N_LANDMARKS, Frame, read_scan, shrunk
from dressi.apps.experiments.face_files import checked, read_depth, read_frames, write_frames
from dressi.apps.experiments.face_model import JAW, head_model
from dressi.apps.experiments.face_results import align, cleaned, face_normals, unfolded
from dressi.apps.experiments.face_start import counted, similarity, start_from_landmarks
from dressi.errors import DressiError, LoadError
from dressi.render.fit import distance_to_surface
from dressi.render.io.images import srgb_to_linear
from dressi.render.scene import icosphere

FOCAL, CENTER, SIZE = np.array([230.0, 210.0]), np.array([73.5, 90.0]), (144, 192)


def posed(yaw: float) -> np.ndarray:
    view = np.eye(4)
    view[:3, :3] = Rotation.from_euler("xyz", [4.0, yaw, -3.0], degrees=True).as_matrix()
    view[:3, 3] = 1.0, -2.0, -60.0
    return view


def marks() -> np.ndarray:
    """(68, 3), cm: their pixels are so far apart that no depth is another's."""
    x, y = np.meshgrid(np.arange(9) - 4.0, np.arange(8) - 3.5)
    grid = np.stack([x.ravel(), y.ravel()], 1)[:N_LANDMARKS] * 2.6
    return np.c_[grid, 0.05 * grid[:, 0] ** 2]


def made_frame(places: np.ndarray, view: np.ndarray, name: str = "middle") -> Frame:
    """A frame in which only the pixels of landmarks have depth."""
    at = places @ view[:3, :3].T + view[:3, 3]
    pixel = CENTER + FOCAL * at[:, :2] * (1.0, -1.0) / -at[:, 2:]
    depth = np.full(SIZE[::-1], np.nan, np.float32)
    depth[pixel[:, 1].astype(int), pixel[:, 0].astype(int)] = -at[:, 2]
    levels = np.random.default_rng(0).integers(0, 256, (*SIZE[::-1], 3))
    color = srgb_to_linear(levels / np.float32(255))
    return Frame(name, color, depth, np.ones(depth.shape, bool), pixel, FOCAL, CENTER)


def test_the_start_finds_scale_and_poses_of_frames_without_noise() -> None:
    views = [posed(0.0), posed(12.0)]
    frames = [made_frame(1.3 * marks(), v) for v in views]
    frames[1].landmarks[:9] = np.nan
    frames[0].landmarks[9] += 40.0  # a wrong one counts little
    start = start_from_landmarks(marks(), frames)
    assert start.scale == pytest.approx(1.3, rel=0.01)
    for got, wanted in zip(start.views, views, strict=True):
        assert np.abs(got - wanted)[:3, :3].max() < 0.02
        assert np.abs(got - wanted)[:3, 3].max() < 0.5
    assert start.weights.sum(axis=1).tolist() == [68, 59]
    with pytest.raises(DressiError, match="frame 'bad' has 0 landmarks with depth, 6 are needed"):
        start_from_landmarks(
            marks(), [replace(frames[0], name="bad", depth=frames[0].depth * np.nan)]
        )


def test_landmarks_of_the_jaw_do_not_count_where_the_head_is_turned() -> None:
    frame = made_frame(marks(), posed(0.0))
    weights = counted([frame] * 3, np.stack([posed(a) for a in (10.0, -30.0, 30.0)]))
    assert weights[0].all() and weights[1:, 17:].all()
    assert not weights[1:, JAW].any()


def test_a_similarity_is_found_and_its_scale_can_be_kept() -> None:
    rng = np.random.default_rng(1)
    a, w = rng.normal(size=(20, 3)), rng.uniform(0.1, 1.0, 20)
    r = Rotation.from_rotvec([0.3, -2.0, 0.4]).as_matrix()
    b = 1.7 * a @ r.T + [1.0, 2.0, 3.0]
    b[0] += 100.0
    w[0] = 0.0
    scale, rotation, shift = similarity(a, b, w)
    assert scale == pytest.approx(1.7) and np.allclose(rotation, r)
    assert np.allclose(shift, [1.0, 2.0, 3.0])
    assert similarity(a, b, w, 1.0)[0] == 1.0
    mirrored = similarity(a, a * (-1.0, 1.0, 1.0), np.ones(20))[1]
    assert np.linalg.det(mirrored) == pytest.approx(1.0), "a rotation, never a mirror"


def test_frames_come_back_from_files_as_they_were(tmp_path: Path) -> None:
    frame = made_frame(marks(), posed(0.0))
    frame.landmarks[3] = np.nan
    frame.mask[:5] = False
    write_frames(tmp_path, [frame, replace(frame, name="kept", held_out=True)])
    one, two = read_frames(tmp_path)
    assert np.allclose(one.color, frame.color, atol=1e-5)
    for name in ("depth", "mask", "landmarks", "focal", "center"):
        np.testing.assert_array_equal(getattr(one, name), getattr(frame, name))
    assert (one.name, one.held_out, two.name, two.held_out) == ("middle", False, "kept", True)


def test_depth_of_png_counts_in_its_unit_and_what_is_not_above_0_is_unknown(tmp_path: Path) -> None:
    from PIL import Image

    levels = np.array([[0, 1, 400], [65535, 7, 0]], np.uint16)
    Image.fromarray(levels).save(tmp_path / "d.png")
    wanted = np.where(levels == 0, np.nan, levels * 0.1)
    np.testing.assert_allclose(read_depth(tmp_path / "d.png", 0.1), wanted, rtol=1e-6)
    np.save(tmp_path / "d.npy", np.array([[np.nan, -1.0, np.inf, 0.0, 42.0]]))
    found = read_depth(tmp_path / "d.npy", 0.1)
    assert np.isnan(found[0, :4]).all() and found[0, 4] == 42.0


def without(key: str) -> Callable[[dict], None]:
    return lambda index: index["frames"][0].pop(key)


def put(key: str, value: object) -> Callable[[dict], None]:
    return lambda index: index["frames"][0].update({key: value})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (without("depth"), "frame 0 needs color, depth"),
        (without("landmarks"), "frame 0 needs color, depth"),
        (put("landmarks", [[1, 2]] * 5), r"landmarks must be \(68, 2\), got \(5, 2\)"),
        (put("intrinsics", {"fx": 0, "fy": 1, "cx": 1, "cy": 1}), "fx, fy and the unit above 0"),
        (put("intrinsics", {"fx": 1}), "intrinsics fx, fy, cx, cy"),
        (put("held_out", True), "all frames are held out"),
        (put("depth", "small.npy"), "frame 'middle': depth must be of the size of the colours"),
        (put("depth", "absent.npy"), "absent.npy: no array of depth"),
        (put("depth", "cube.npy"), r"depth must be \(H, W\) numbers"),
        (put("mask", "black.png"), "frame 'middle': the mask is empty"),
        (lambda index: index.pop("frames"), "needs a list 'frames'"),
    ],
)
def test_what_is_wrong_in_a_folder_is_named(
    tmp_path: Path, change: Callable[[dict], None], says: str
) -> None:
    from PIL import Image

    write_frames(tmp_path, [made_frame(marks(), posed(0.0))])
    np.save(tmp_path / "small.npy", np.ones((3, 3)))
    np.save(tmp_path / "cube.npy", np.ones((3, 3, 3)))
    Image.fromarray(np.zeros(SIZE[::-1], np.uint8)).save(tmp_path / "black.png")
    index = json.loads((tmp_path / "frames.json").read_text())
    change(index)
    (tmp_path / "frames.json").write_text(json.dumps(index))
    with pytest.raises(LoadError, match=says):
        read_frames(tmp_path)


def test_sides_that_cannot_be_divided_are_named(tmp_path: Path) -> None:
    frame = made_frame(marks(), posed(0.0))
    odd = replace(frame, color=frame.color[:-1], depth=frame.depth[:-1], mask=frame.mask[:-1])
    write_frames(tmp_path, [odd])
    with pytest.raises(LoadError, match=r"sides of \(144, 191\) pixels"):
        read_frames(tmp_path)
    write_frames(tmp_path, [frame, odd])
    with pytest.raises(LoadError, match="frames differ in size"):
        read_frames(tmp_path)


def test_colours_that_are_no_numbers_are_named() -> None:
    frame = made_frame(marks(), posed(0.0))
    with pytest.raises(LoadError, match="frame 'middle': a colour is not finite"):
        checked(replace(frame, color=frame.color * np.nan))
    assert checked(replace(frame, depth=frame.depth * np.nan)), "depth may be unknown everywhere"


def test_smaller_pictures_are_means_of_what_is_known() -> None:
    frame = made_frame(marks(), posed(0.0))
    depth = np.full(SIZE[::-1], 50.0, np.float32)
    depth[0, 0], depth[0:2, 2:4], depth[0, 4] = np.nan, np.nan, 80.0
    mask = frame.mask.copy()
    mask[2, 0] = False
    out = shrunk(replace(frame, depth=depth, mask=mask), 2)
    assert out["depth"].shape == (96, 72, 1)
    weights = out["depth_weight"][:2, :3, 0]
    assert weights.tolist() == [[1, 0, 0], [1, 1, 1]], "unknown; across an edge of depth"
    assert out["depth"][0, 0, 0] == 50.0
    assert out["color_weight"][:2, :2, 0].tolist() == [[1, 1], [0, 1]]
    np.testing.assert_allclose(out["color"][0, 0], frame.color[:2, :2].mean(axis=(0, 1)), rtol=1e-6)


def test_hardly_seen_texels_are_filled_from_those_around_them() -> None:
    rng = np.random.default_rng(2)
    image = np.full((8, 16, 3), 0.3, np.float32) + rng.normal(0, 0.01, (8, 16, 3))
    counts = np.full((8, 16), 5.0, np.float32)
    image[4, 7], counts[4, 7] = 9.0, 0.0
    image[2, 3], counts[2, 3] = 9.0, 0.5
    out = cleaned({"albedo": image.astype(np.float32)}, counts)["albedo"]
    assert np.abs(out[4, 7] - 0.3).max() < 0.05
    assert np.abs(out[2, 3] - 4.65).max() < 0.05, "half seen: half its own"
    rest = counts >= 1.0
    np.testing.assert_array_equal(out[rest], image.astype(np.float32)[rest])
    unseen = cleaned({"albedo": out}, counts * 0)["albedo"]
    np.testing.assert_array_equal(unseen, out)


def test_folded_faces_go_back_as_far_as_they_must() -> None:
    """A vertex is pushed across its neighbours, all others move together."""
    ball = icosphere(3)
    before, faces = ball.positions.astype(np.float32), ball.faces
    moved = before + np.float32((0.0, 0.0, 0.5))
    assert unfolded(moved, before, faces)[1] == 0
    np.testing.assert_array_equal(unfolded(moved, before, faces)[0], moved)
    pushed = moved.copy()
    beside = np.setdiff1d(faces[(faces == 0).any(axis=1)], [0])[0]
    pushed[0] += 2.0 * (before[beside] - before[0])
    found, n_turned = unfolded(pushed, before, faces)
    assert n_turned > 0
    turns = (face_normals(found, faces) * face_normals(before, faces)).sum(axis=1)
    assert (turns > 0.0).all()
    far = np.linalg.norm(before - before[0], axis=1) > 1.0
    np.testing.assert_array_equal(found[far], moved[far])

    assert np.abs(found - before)[:, 2].mean() > 0.45, "more went back than was folded"


def test_distances_are_those_after_rigid_alignment_without_scale() -> None:
    ball = icosphere(2)
    stretched = ball.positions.astype(np.float64) * (1.0, 1.3, 0.8)
    turned = stretched @ Rotation.from_rotvec([0.02, 0.01, -0.02]).as_matrix().T + 0.02
    found = align(turned, np.eye(4), stretched, ball.faces)
    assert found.mean_mm < 0.02, "0.002 cm"
    bigger = align(1.1 * stretched, np.eye(4), stretched, ball.faces)
    raw = 10.0 * distance_to_surface(1.1 * stretched, stretched, ball.faces).mean()
    assert bigger.mean_mm > 0.8 * raw, "no scale"


def test_the_model_has_the_skin_its_landmarks_and_uvs_that_do_not_overlap() -> None:
    model = head_model(human_file("ict/ict_face_light.npz"), 3)
    assert model.basis.shape == (3 + len(model.names), 1, len(model.mean), 3)
    assert {"eyeBlink_L", "eyeBlink_R", "jawOpen"} <= set(model.names)
    assert not any(name.startswith("eyeLook") for name in model.names)
    nose, chin = model.mean[model.landmarks[30]], model.mean[model.landmarks[8]]
    assert nose[2] > 12.0 and abs(nose[0]) < 0.1 and chin[1] < nose[1] - 6.0
    assert model.uv.min() >= 0.0 and model.uv.max() <= 1.0
    corners = model.uv[model.uv_faces]
    apart = (corners[..., 0] < 0.5).sum(axis=1)
    assert set(apart.tolist()) == {0, 3}, "no face reaches from one square into the other"


def test_quads_become_two_triangles_and_triangles_one() -> None:
    quads = np.array([[0, 1, 2, 3], [4, 5, 6, -1]])
    assert sorted(triangles(quads).tolist()) == [[0, 1, 2], [0, 2, 3], [4, 5, 6]]


def test_what_is_no_head_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "head.npz", neutral=np.zeros((3, 3)))
    for path in (tmp_path / "absent.npz", tmp_path / "head.npz"):
        with pytest.raises(LoadError, match="no ICT head"):
            head_model(path, 3)


def test_landmarks_of_the_scan_lie_on_it() -> None:
    scan = read_scan()
    off = distance_to_surface(scan.landmarks, scan.mesh.positions, scan.mesh.faces)
    assert off.max() < 0.01, "cm; they are stored with four digits"


def test_landmarks_of_the_scan_are_where_anatomy_has_them() -> None:
    """Tip of the nose: farthest to the front. Chin: below the lip, not on the way to the neck."""
    scan = read_scan()
    tip, chin, lip = scan.landmarks[[30, 8, 57]]
    assert tip[2] == pytest.approx(scan.mesh.positions[:, 2].max(), abs=0.001)
    assert lip[2] - chin[2] < 2.0 and 2.5 < lip[1] - chin[1] < 4.5
    left, right = scan.landmarks[:8], scan.landmarks[16:8:-1]
    assert np.abs(left - right)[:, 1:].max() < 1.0, "cm; a jaw is nearly the same on both sides"


@pytest.mark.gpu
def test_a_folder_of_frames_is_fitted(tmp_path: Path) -> None:
    """Frames of our own, from the scan, without a known camera; the result is a head as GLB."""
    from dressi.apps.experiments.face_capture import Noise, scan_frames

    frames = scan_frames(read_scan(), (48, 64), Noise(landmarks_px=0.1), 0)
    write_frames(tmp_path / "in", [frames[0], frames[1], frames[4]])
    out = tmp_path / "out"
    data = run_experiment(
        "face", data=str(tmp_path / "in"), smoke=True, iterations=20, in_span=False, out=str(out)
    )
    figures = data["figures"]
    assert "distance_mm" not in figures, "its shape is not known"
    depth = figures["losses"]["depth"]
    assert depth[3] < depth[0], "both of the coarse level; others see other pixels"
    assert depth[5] < depth[3], "both of one size, the last beyond the span of the model"
    assert figures["losses"]["offset"][1] > 0.0
    assert len(figures["psnr_db"]) == 2 and np.isfinite(figures["psnr_kept_out_db"])
    assert (out / "head.glb").stat().st_size > 100_000
