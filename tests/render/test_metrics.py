"""Metrics and sheets: exact distances, known overlaps, pictures that can be written."""

from __future__ import annotations

import builtins
import time

import numpy as np
import pytest

from dressi.errors import DressiError, GraphError
from dressi.render.fit import distance_to_surface, iou, mean_distance_to_surface, psnr
from dressi.render.io import contact_sheet, loss_curves, read_image
from dressi.render.scene import icosphere, make_pear


def test_iou_counts_pixels_above_one_half():
    a, b = np.zeros((4, 4)), np.zeros((4, 4))
    a[:2], b[1:3] = 1.0, 0.6
    assert iou(a, b) == pytest.approx(1 / 3)
    assert iou(a * 0, b * 0) == 1.0
    assert iou(a, a * 0) == 0.0
    with pytest.raises(GraphError, match=r"\(4, 4\) and \(3, 4\)"):
        iou(a, b[:3])


def test_psnr_has_peak_one_and_looks_at_the_mask_only():
    a, b = np.zeros((4, 5, 3)), np.full((4, 5, 3), 0.1)
    assert psnr(a, b) == pytest.approx(20.0)
    assert psnr(a, a) == float("inf")
    assert psnr(a + 1.0, a + 7.0) == float("inf")  # clipped to [0, 1] first
    mask = np.zeros((4, 5))
    mask[0] = 1
    b[1:] = 0.9
    assert psnr(a, b, mask) == pytest.approx(20.0)
    for bad, word in ((mask * 0, "no pixels"), (mask[:2], r"\(4, 5\)")):
        with pytest.raises(GraphError, match=word):
            psnr(a, b, bad)
    with pytest.raises(GraphError, match="one shape"):
        psnr(a, b[..., :1])


def test_distance_to_one_triangle_is_known_in_every_region():
    triangle = np.array([[0.0, 0, 0], [2, 0, 0], [0, 2, 0]])
    points = [[0.5, 0.5, 3], [-3, 0, 4], [1, -2, 0], [2, 2, 0], [5, 0, 4], [0.5, 0.5, 0]]
    want = [3, 5, 2, np.sqrt(2), 5, 0]
    assert np.allclose(distance_to_surface(points, triangle, [[0, 1, 2]]), want)


def test_distance_agrees_with_trimesh_on_uneven_and_degenerate_triangles():
    import trimesh

    rng = np.random.default_rng(5)
    corners = rng.normal(size=(300, 1, 3)) + rng.normal(size=(300, 3, 3)) * rng.choice(
        [0.01, 0.2, 2.0], size=(300, 1, 1)
    )
    corners[0, 1] = corners[0, 0]  # a needle
    corners[1, :] = corners[1, 0]  # a point
    points = rng.normal(size=(80, 3)) * 2.0
    got = distance_to_surface(points, corners.reshape(-1, 3), np.arange(900).reshape(-1, 3))
    for i, point in enumerate(points):
        closest = trimesh.triangles.closest_point(corners[2:], np.repeat(point[None], 298, axis=0))
        others = np.linalg.norm(closest - point, axis=1).min()
        a, b = corners[0, 0], corners[0, 2]
        s = np.clip((point - a) @ (b - a) / ((b - a) @ (b - a)), 0, 1)
        needle = np.linalg.norm(a + s * (b - a) - point)
        spot = np.linalg.norm(corners[1, 0] - point)
        assert got[i] == pytest.approx(min(others, needle, spot), abs=1e-9)


def test_mean_distance_of_a_sphere_to_the_pear_takes_less_than_two_seconds():
    pear, _ = make_pear(texture_size=8)
    sphere = icosphere(4)
    start = time.perf_counter()
    value = mean_distance_to_surface(sphere.positions, pear.positions, pear.faces)
    assert 0.2 < value < 0.5
    assert time.perf_counter() - start < 2.0 * 3  # 0.3 s on an idle core; others may be busy
    assert mean_distance_to_surface(pear.positions, pear.positions, pear.faces) < 1e-9


@pytest.mark.parametrize(
    ("points", "faces", "word"),
    [
        (np.zeros((0, 3)), [[0, 1, 2]], "points"),
        ([[0, 0, np.nan]], [[0, 1, 2]], "row 0 of points"),
        ([[0, 0, 0]], np.zeros((0, 3), int), "faces"),
        ([[0, 0, 0]], [[0, 1, 3]], "3 vertices"),
    ],
)
def test_distance_refuses_bad_tables(points, faces, word):
    with pytest.raises(GraphError, match=word):
        distance_to_surface(points, np.eye(3), faces)


def test_contact_sheet_holds_every_picture_unchanged_beside_its_label():
    a = np.random.default_rng(0).uniform(size=(30, 40, 3)).astype(np.float32)
    sheet = contact_sheet({"target": [a, a[:20, :10]], "fit\n2": [a[..., 0]]}, gap_px=3)
    height, width = sheet.shape[:2]
    assert height == 3 + 2 * 33
    left = width - 2 * 43
    assert np.array_equal(sheet[3:33, left : left + 40], a)
    assert np.array_equal(sheet[36:66, left : left + 40, 1], a[..., 0])
    assert sheet[3:33, :left].min() < 0.2, "the label is drawn"
    assert (sheet[:3] == 1.0).all()
    for rows, word in (({}, "no images"), ({"x": [np.zeros((2, 2, 4))]}, "row 'x'")):
        with pytest.raises(GraphError, match=word):
            contact_sheet(rows)


def test_contact_sheet_puts_headings_over_its_columns():
    a = np.zeros((30, 20, 3), np.float32)
    plain = contact_sheet({"x": [a, a]})
    sheet = contact_sheet({"x": [a, a]}, columns=["one", "a heading wider than its picture"])
    head = sheet.shape[0] - plain.shape[0]
    assert head > 0 and sheet.shape[1] > plain.shape[1]
    assert sheet[:head].min() < 0.2, "the headings are drawn"
    assert (sheet[head:] < 0.5).sum() == (plain < 0.5).sum(), "and the rest is as it was"


def test_loss_curves_write_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    loss_curves(tmp_path / "loss.png", {"a": [1.0, 0.1, float("nan"), 0.01], "b": [2.0]}, "fit")
    image = read_image(tmp_path / "loss.png")
    assert image.shape[:2] == (450, 800)
    assert image[..., :3].min() < 0.9
    assert [p.name for p in tmp_path.iterdir()] == ["loss.png"]
    with pytest.raises(GraphError, match="no values"):
        loss_curves(tmp_path / "none.png", {})


def test_loss_curves_without_matplotlib_say_what_to_install(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DressiError, match=r"pip install dressi\[plots\]"):
        loss_curves(tmp_path / "loss.png", {"a": [1.0]})
