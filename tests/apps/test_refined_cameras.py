"""Cameras that are off are found again, with their lens, where the truth is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from dressi.apps.experiments.gallery import notched_box
from dressi.apps.photo_cameras import camera_figures, refined_calibrations, refined_views
from dressi.apps.photo_views import Prepared, matrix_of
from dressi.apps.photos import PhotoOptions, run_fit
from dressi.apps.reconstruct.cameras import (
    CameraState,
    Refinement,
    intrinsics_of,
    scale_direction,
    without_lens,
    zoomed,
)
from dressi.apps.reconstruct.framing import around, views_of
from dressi.apps.reconstruct.photo_sets import PhotoSet, write_photo_set
from dressi.apps.reconstruct.pictures import Pictures
from dressi.apps.reconstruct.rounds import LossWeights, Round, fit_round
from dressi.apps.reconstruct.targets import draw, target_of_mesh
from dressi.engine import DressiAD
from dressi.render.camera import Distortion, distort_image, from_opencv, to_opencv
from dressi.render.io import read_transforms
from dressi.render.io.images import write_png
from dressi.render.io.middlebury import Photo
from dressi.render.scene import Mesh

SIZE, VIEWS = 48, 6
STILL = Round(None, SIZE, 80, (2.0, 1.0), (1e-9, 1e-9))


def box() -> Mesh:
    """The notched cube in a box of side 2 around the origin."""
    mesh = notched_box()
    return replace(mesh, positions=mesh.positions - np.float32(1.0))


def pictures_of(mesh: Mesh) -> Pictures:
    views = views_of(mesh.positions, around(VIEWS))
    drawn = draw(target_of_mesh(mesh), views, SIZE)
    return Pictures(drawn.matrices, drawn.coverage)


def pixels(matrices: np.ndarray, mesh: Mesh) -> np.ndarray:
    """Places of the mesh's vertices in pictures, (n, V, 2), pixels; the formula written out."""
    at = np.concatenate([mesh.positions, np.ones((len(mesh.positions), 1))], 1)
    clip = np.einsum("nij,vj->nvi", matrices, at)
    return (clip[..., :2] / clip[..., 3:] + 1.0) * SIZE / 2.0


def error_px(matrices: np.ndarray, true: np.ndarray, mesh: Mesh) -> float:
    away = pixels(matrices, mesh) - pixels(true, mesh)
    return float(np.sqrt((away**2).sum(-1).mean()))


def moved(matrices: np.ndarray, gauge: bool) -> np.ndarray:
    """Matrices of cameras that are off by a degree and a hundredth of the object or so."""
    rng = np.random.default_rng(0)
    turns, shifts = rng.normal(0.0, 0.02, (2, len(matrices), 3))
    if gauge:  # without what no picture can tell
        far = scale_direction(matrices)
        turns, shifts = turns - turns.mean(0), shifts - shifts.mean(0)
        shifts -= far * (far * shifts).sum()
    motion = np.tile(np.eye(4), (len(matrices), 1, 1))
    motion[:, :3, :3] = Rotation.from_rotvec(turns).as_matrix()
    motion[:, :3, 3] = shifts
    return matrices @ motion


def found(given: Pictures, how: Refinement) -> CameraState:
    with DressiAD() as ad:
        start = CameraState(given.matrices, how)
        weights = LossWeights(bend=0.0)
        _, course = fit_round(
            ad, box(), given, STILL, weights, "cameras", False, False, start=start
        )
    assert course.cameras is not None
    return course.cameras


@pytest.mark.gpu
@pytest.mark.parametrize("free", [True, False], ids=["free", "in the gauge"])
def test_poses_are_found_again_by_silhouettes(free: bool) -> None:
    true = pictures_of(box())
    off = moved(true.matrices, gauge=not free)
    how = Refinement((0.006, 0.0006), lens=False, free_gauge=free)
    state = found(replace(true, matrices=off), how)
    before = error_px(off, true.matrices, box())
    # A quarter of what it was: an edge of 48 pixels says where it lies to about a tenth of one.
    assert before > 0.5 and error_px(state.matrices, true.matrices, box()) < 0.25 * before


@pytest.mark.gpu
def test_a_focal_length_and_a_lens_are_found_again() -> None:
    true = pictures_of(box())
    inner = intrinsics_of(true.matrices, true.size)
    corner = 2.0 * (SIZE / 2.0 / inner[0, 0]) ** 2
    lens = Distortion(k1=0.06 / corner)
    bent = []
    for mask, (fx, fy, cx, cy) in zip(true.coverage, inner, strict=True):
        k = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1.0]])
        bent.append(distort_image(mask, k, lens, pixel_center=0.0)[0])
    off = zoomed(true.matrices, 0.97)
    given = Pictures(off, np.stack(bent))
    state = found(given, Refinement((0.004, 0.0004)))
    assert abs(state.zoom * 0.97 - 1.0) < 0.01
    assert abs(state.k1 / lens.k1 - 1.0) < 0.35
    # Bent twice, pictures are blurred: the reference is the true lens taken away.
    straight, right = (without_lens(given.coverage, off, k1) for k1 in (state.k1, lens.k1))
    was = np.abs(given.coverage - right).mean()
    assert np.abs(straight - right).mean() < 0.3 * was
    assert np.abs(right - true.coverage).mean() < np.abs(given.coverage - true.coverage).mean()


@pytest.mark.gpu
def test_the_command_writes_cameras_that_it_can_read_again(tmp_path: Path) -> None:
    how = PhotoSet(views=6, size=32, tilt_deg=0.5, shadows=0)
    photos, masks = tmp_path / "photos", tmp_path / "masks"
    covered = write_photo_set(photos, target_of_mesh(box()), how)
    masks.mkdir()
    for k, mask in enumerate(covered):
        write_png(masks / f"view{k:02d}.png", np.repeat(mask, 3, -1), srgb=False)
    options = PhotoOptions(
        str(photos), str(photos / "views_par.txt"), str(tmp_path / "out"),
        iterations=4, texture_iterations=0, size=32, masks=str(masks), refine_cameras=True,
    )  # fmt: skip
    result = run_fit(options)
    assert result["camera_turn_deg"] > 0.0 and result["heldout_aligned_iou"] > 0.8
    assert result["flipped_faces"] == result["intersecting_faces"] == 0
    again = read_transforms(tmp_path / "out" / "cameras.json")
    assert [c.name for c in again] == ["view01.png", "view02.png", "view04.png", "view05.png"]
    assert again[0].distortion.k1 == pytest.approx(result["camera_k1"])


def test_intrinsics_and_zoom_are_those_of_the_cameras() -> None:
    k = np.array([[90.0, 0, 30.0], [0, 80.0, 20.0], [0, 0, 1.0]])
    camera = from_opencv(k, np.eye(3), [0.1, 0.2, 5.0], 64, 48, 1.0, 9.0)
    # K gives centres of pixels integer coordinates; intrinsics count from the corner.
    inner = intrinsics_of(camera.matrix[None], (64, 48))[0]
    np.testing.assert_allclose(inner, [90.0, 80.0, 30.5, 20.5], atol=1e-9)
    larger = intrinsics_of(zoomed(camera.matrix[None], 1.1), (64, 48))[0]
    np.testing.assert_allclose(larger, [99.0, 88.0, 30.5, 20.5], atol=1e-9)


def test_refined_calibrations_project_as_the_matrices_of_the_fit() -> None:
    cameras = views_of(box().positions * 3.0, around(VIEWS))
    made = [to_opencv(c, SIZE, SIZE) for c in cameras]
    image = np.zeros((SIZE, SIZE, 3), np.float32)
    photos = [Photo(f"{i}.png", image, m.K, m.R, m.t) for i, m in enumerate(made)]
    sides = np.array([[-3.0, -3.0, -3.0], [3.0, 3.0, 3.0]])
    matrices = np.stack([matrix_of(p, sides) for p in photos])
    masks = np.zeros((VIEWS, SIZE, SIZE, 1), np.float32)
    pictures = np.zeros((VIEWS, SIZE, SIZE, 3), np.float32)
    given = Prepared(masks, masks > 0.0, pictures, sides, matrices, False)
    fitted = [0, 2, 3, 5]
    after = zoomed(moved(matrices, gauge=False), 1.05)[fitted]
    state = CameraState(after, Refinement(), k1=0.1, zoom=1.05)
    calibrations = refined_calibrations(photos, given, fitted, state)
    wanted = pixels(after, box())
    for calibration, where in zip(calibrations, wanted, strict=True):
        at = calibration.R @ (box().positions.T * 3.0) + calibration.t[:, None]
        place = (calibration.K @ at)[:2] / at[2] + 0.5
        np.testing.assert_allclose(place.T, where, atol=1e-3)
        assert calibration.distortion.k1 == 0.1
    figures = camera_figures(given, fitted, state)
    assert np.isclose(figures["camera_zoom_percent"], 5.0) and figures["camera_k1"] == 0.1
    assert 1.0 < figures["camera_turn_deg"] < 4.0 and 0.5 < figures["camera_shift_percent"] < 4.0
    rest = refined_views(given, fitted, replace(state, k1=0.0))
    np.testing.assert_allclose(rest.matrices[fitted], after)
    np.testing.assert_allclose(rest.matrices[1], zoomed(matrices, 1.05)[1])
