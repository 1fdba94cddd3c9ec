"""``dressi experiment``: every experiment makes its files and figures; what is wrong is said."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dressi.apps.demo import EXTENT
from dressi.apps.experiments import EXPERIMENTS, Result, run_experiment
from dressi.apps.experiments.common import Settings, make_settings, option
from dressi.apps.experiments.enlarge import CORNERS, signed_distances
from dressi.apps.experiments.heatmap import summary, trends
from dressi.apps.experiments.lit_fit import Fit, run_fit, stage_at
from dressi.apps.experiments.lit_views import Method, random_views, with_targets
from dressi.apps.experiments.meshes import horned, merged
from dressi.apps.experiments.real import Photos, hull_masks, pairs, start_mesh
from dressi.apps.experiments.real_surfaces import chamfer, middle_distances, placed_reference
from dressi.cli import main
from dressi.errors import DressiError
from dressi.render.fit import iou, mean_distance_to_surface
from dressi.render.io.images import read_image
from dressi.render.raster import face_neighbors
from dressi.render.scene import icosphere
from dressi.testing.views import surround_views

HEAD = "experiment device driver commit copy1024_ms seconds settings figures conditions ours files"


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [n for v in value.values() for n in _numbers(v)]
    if isinstance(value, list):
        return [n for v in value for n in _numbers(v)]
    return [float(value)] if isinstance(value, (int, float)) else []


@pytest.mark.gpu
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_smoke_run_makes_its_files_and_figures(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out, figures = tmp_path / "out", tmp_path / "figures.json"
    arguments = ["experiment", name, "--smoke", "--out", str(out), "--json", str(figures)]
    assert main(arguments) == 0
    data = json.loads(figures.read_text())
    assert list(data) == HEAD.split() and data["experiment"] == name
    assert json.loads((out / "result.json").read_text()) == data
    assert data["files"] and {*data["files"], "result.json"} == {p.name for p in out.iterdir()}
    page = (out / "report.html").read_text(encoding="utf-8")
    assert f"<pre>dressi experiment {name} --smoke" in page and page.endswith("</html>\n")
    for file in data["files"]:
        if file.endswith(".png"):
            assert np.ptp(read_image(out / file)[..., :3]) > 0.1, f"{file} shows nothing"
    numbers = _numbers(data["figures"])
    assert numbers and np.isfinite(numbers).all()
    assert data["conditions"] == data["ours"] == [], "they are stated for whole runs"
    report = (out / "report.html").read_text(encoding="utf-8")
    shown = [f for f in data["files"] if f.endswith(".png")]
    assert report.count("<img") == len(shown) and f"dressi experiment {name} --smoke" in report


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_own_options_have_a_help_and_can_be_checked(name: str) -> None:
    kind = EXPERIMENTS[name].settings
    shared = {f.name for f in fields(Settings)}
    for f in fields(kind):
        if f.name in shared:
            continue
        assert f.metadata["help"]
        least = f.metadata["least"]
        if least is None:
            continue
        wrong: Any = type(least)(least - 1)
        value = (wrong,) if isinstance(f.default, tuple) else wrong
        with pytest.raises(DressiError, match=f"--{f.name.replace('_', '-')} must be at least"):
            make_settings(kind, **{f.name: value})


def test_unknown_names_list_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DressiError, match="no experiment 'maze'; known: enlarge"):
        run_experiment("maze")
    with pytest.raises(DressiError, match="no option 'sizes'; known: out, json, device"):
        run_experiment("enlarge", sizes=3)
    with pytest.raises(SystemExit) as stop:
        main(["experiment", "maze"])
    assert stop.value.code == 2
    assert "'maze'" in (text := capsys.readouterr().err) and "enlarge" in text
    assert main(["experiment"]) == 0
    assert "enlarge" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--size", "3"], "--size must be at least 8, got 3"),
        (["--r", "nan"], "--r must be at least 0.0, got nan"),
        (["--out", "afile"], "--out"),
        (["--json", "."], "--json"),
        pytest.param(["--device", "no such device"], "no such device", marks=pytest.mark.gpu),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_bad_flags_are_said_in_one_message(
    arguments: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("afile").write_text("")
    assert main(["experiment", "enlarge", *arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith("dressi: ") and says in error and "Traceback" not in error


def test_a_flag_of_many_values_and_the_defaults_of_a_smoke_run() -> None:
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Own(Settings):
        K: tuple[int, ...] = option((1, 3), "peels", smoke=(1,), least=1)
        size: int = option(256, "pixels", smoke=16)

    assert make_settings(Own).K == (1, 3) and make_settings(Own).size == 256
    assert make_settings(Own, smoke=True).K == (1,)
    small = make_settings(Own, smoke=True, size=64)
    assert small.size == 64, "what is given stays"


@pytest.mark.gpu
def test_without_matplotlib_the_figures_are_written_and_the_missing_plot_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real: Callable[..., Any] = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **more)

    from dressi.apps.experiments import run

    plain = run.Experiment(
        "one plot", Settings, lambda _: Result({"x": 1.0}, plots={"line": lambda _: None})
    )
    monkeypatch.setitem(run.EXPERIMENTS, "plain", plain)
    monkeypatch.setattr(builtins, "__import__", without)
    data = run_experiment("plain", out=str(tmp_path))
    assert data["files"] == ["report.html"] and data["figures"] == {"x": 1.0}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.html", "result.json"]
    assert "line.png needs matplotlib" in capsys.readouterr().err


def test_the_distances_that_enlarge_is_judged_by() -> None:
    """Of a right triangle, by hand: inside, beside a leg, beyond a corner."""
    d = signed_distances(np.array([[0.25, 0.25], [0.75, 0.25], [0.25, 0.75]]), 4)
    assert d[1, 1] == pytest.approx(0.125)  # the pixel at (0.375, 0.375)
    assert d[0, 1] == pytest.approx(-0.125)  # (0.375, 0.125)
    assert d[0, 0] == pytest.approx(-((0.125**2 * 2) ** 0.5))  # (0.125, 0.125)
    flipped = signed_distances(CORNERS[0, ::-1, :2], 16)
    assert np.allclose(flipped, signed_distances(CORNERS[0, :, :2], 16)), "either way round"


def test_the_horned_target_is_one_closed_surface_of_the_usual_size() -> None:
    mesh = horned(3)
    assert len(mesh.faces) == 1280
    assert np.ptp(mesh.positions, axis=0).max() == pytest.approx(EXTENT)
    assert (face_neighbors(mesh.faces) >= 0).all(), "no border"
    # By construction: a ball of 0.5 between horns, the longest of which adds 0.51. The quartile
    # stands for the ball (half of the vertices lie on the flanks of horns, the least are in dents).
    radius = np.linalg.norm(mesh.positions, axis=1)
    assert radius.max() > 2.0 * np.quantile(radius, 0.25), "horns stand out"


def test_merging_vertices_keeps_the_shape_with_fewer_faces() -> None:
    ball = icosphere(4)
    small = merged(ball, 600)
    assert 200 < len(small.faces) <= 600
    assert mean_distance_to_surface(small.positions, ball.positions, ball.faces) < 0.06
    a, b, c = small.faces.T
    assert ((a != b) & (b != c) & (c != a)).all()


def test_the_start_of_a_trial_is_an_unmirrored_sphere_about_as_large_as_the_box() -> None:
    half = np.array([0.5, 1.0, 0.7])
    meshes = [start_mesh(half, 2, np.random.default_rng(k)) for k in range(4)]
    for mesh in meshes:
        corners = mesh.positions[mesh.faces].astype(np.float64)
        volume = np.einsum("ij,ij->", corners[:, 0], np.cross(corners[:, 1], corners[:, 2])) / 6
        assert 0.5 < volume / (4 / 3 * np.pi * half.prod()) < 1.6, "positive: faces look outside"
    assert not np.allclose(meshes[0].positions, meshes[1].positions)


def test_the_summary_of_a_heatmap_is_over_seeds_and_names_the_best() -> None:
    early = [[5.0, 4.0], [3.0, 2.0]]  # r, K
    end = [[1.0, 1.5], [2.0, 3.0]]
    figures = summary(np.array([[early, end]]), (1, 3), (1.0, 8.0))
    assert (figures["early_best_K"], figures["early_best_r_px"]) == (3, 8.0)
    assert (figures["end_best_K"], figures["end_best_r_px"]) == (1, 1.0)
    assert figures["early_best_mean_r_px"] == 8.0 and figures["end_best_mean_r_px"] == 1.0
    assert figures["early_narrow_over_wide"] == pytest.approx(4.5 / 2.5)
    assert figures["end_narrow_over_wide"] == pytest.approx(1.25 / 2.5)
    assert figures["end_narrow_over_wide_by_K"] == pytest.approx([0.5, 0.5])
    assert figures["early_near_over_far"] == 2.5
    assert all(holds for _, holds in trends(figures, 500, 2500))

    # A second seed whose end is the other way around: mean 1.1 of 0.5 and 1.7, error 0.6.
    other = [[3.4, 3.4], [2.0, 2.0]]
    figures = summary(np.array([[early, end], [early, other]]), (1, 3), (1.0, 8.0))
    assert figures["seeds"] == 2
    assert figures["end_table"] == [[2.2, 2.45], [2.0, 2.5]]
    assert figures["end_narrow_over_wide"] == pytest.approx(1.1)
    assert figures["end_narrow_over_wide_error"] == pytest.approx(0.6)
    assert figures["early_narrow_over_wide_error"] == 0.0
    assert [holds for _, holds in trends(figures, 500, 2500)] == [True, False]


def test_a_trend_within_the_standard_error_does_not_hold() -> None:
    quotient = {"early_narrow_over_wide": 1.05, "end_narrow_over_wide": 0.95, "seeds": 3}
    for error, holds in ((0.04, True), (0.06, False)):
        errors = {f"{name}_narrow_over_wide_error": error for name in ("early", "end")}
        assert [h for _, h in trends({**quotient, **errors}, 500, 2500)] == [holds, holds]


def test_reaches_of_a_method_follow_each_other_and_the_last_stays() -> None:
    assert [stage_at(t / 10, 3, 0.6) for t in range(11)] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2]
    assert {stage_at(t / 10, 1, 0.6) for t in range(11)} == {0}


@pytest.mark.gpu
def test_targets_are_drawn_once_for_each_reach() -> None:
    """A wider rim lights more pixels; the same reach alone gives the same pictures."""
    both = with_targets(
        random_views(2, 32), horned(2), Method("two", (4.0, 1.0)), "lambert"
    ).pictures
    assert both.shape == (2, 2, 32, 32, 1)
    lit = (both > 0).sum((1, 2, 3, 4))
    assert lit[0] > lit[1] > 0
    one = with_targets(random_views(2, 32), horned(2), Method("one", (1.0,)), "lambert").pictures
    assert np.allclose(both[1], one[0], atol=1e-6)


@pytest.mark.gpu
def test_a_fit_comes_nearer_to_its_target_by_each_method() -> None:
    target, start = horned(2), icosphere(2, 0.5)
    views = with_targets(random_views(6, 48), target, None, "silhouette")
    covered = views.pictures[0].mean((1, 2, 3))
    assert (covered > 0.05).all() and (covered < 0.7).all(), "the target is seen whole"
    rates = Fit(60, (0.005, 0.001), (3.0, 0.1), every=30, look="silhouette")
    for method in (Method("soft", (3.0, 1.0)), Method("aa", antialias=True)):
        trace = run_fit(start, target, views, method, rates, (60,))
        assert trace.iterations == [0, 30, 60] and trace.seconds[0] == 0
        # 60 steps of Adam of at most 0.005 falling to 0.001 add up to 0.15; a vertex of a horn has
        # 0.5 to go, and each view moves only what its outline passes: a quarter of the way is what
        # they can do. Falling at each mark shows that it is the fit that moves.
        assert trace.distances[2] < trace.distances[1] < trace.distances[0]
        assert trace.distances[2] < 0.8 * trace.distances[0]
        assert trace.positions[60].shape == start.positions.shape


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["generalize", "--target", "nothing.obj"], "nothing.obj: no such file"),
        (["heatmap", "--K", "1", "0"], "--K must be at least 1, got 0"),
        (["heatmap", "--lr", "0.1"], "lr goes from a start to an end: two numbers, got (0.1,)"),
        (["curves", "--look", "phong"], "--look phong: must be of lambert, silhouette"),
        (["curves", "--peer", "nothing.json"], "nothing.json: must be a JSON object with name"),
        (["curves", "--iterations", "1"], "--iterations must be at least 2, got 1"),
        (["real"], "needs --images DIR and --cameras FILE"),
        (["real", "--images", "nowhere", "--cameras", "x"], "nowhere: no such folder"),
        (["real", "--smoke", "--images", "nowhere"], "needs --images DIR and --cameras FILE"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
@pytest.mark.gpu
def test_what_an_experiment_cannot_read_is_said(
    arguments: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["experiment", *arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith("dressi: ") and says in error


@pytest.mark.gpu
def test_real_reads_photos_of_a_data_set(shared_data: Path, tmp_path: Path) -> None:
    dino = shared_data / "dino"
    arguments = ["--images", str(dino), "--cameras", str(dino / "dinoSR_par.txt")]
    small = ["--smoke", "--trials", "1", "--folds", "1", "--size", "48", "--iterations", "30"]
    small += ["--subdivisions", "2", "--out", str(tmp_path)]
    assert main(["experiment", "real", *arguments, *small]) == 0
    figures = json.loads((tmp_path / "result.json").read_text())["figures"]
    assert figures["photos"] == 16 and len(figures["trials"]) == 1
    trial, fold = figures["trials"][0], figures["folds"][0]
    assert trial["start_iou"] < trial["iou"] and trial["iou"] > 0.6 and trial["to_middle"] == 0
    assert trial["start_psnr_db"] < trial["psnr_db"]
    # Sixteen photos of a real object: their hull fits the two that it does not know better than a
    # fit of 30 iterations on 48 pixels, and not perfectly.
    assert fold["iou"] < fold["hull"] < 1 and len(fold["kept_out"]) == len(fold["hulls"]) == 2


def test_real_keeps_every_photo_out_once() -> None:
    assert sorted(i for pair in pairs(16, 0) for i in pair) == list(range(16))
    assert len(pairs(16, 0)) == 8
    assert len(pairs(5, 0)) == 2 and pairs(16, 0) == pairs(16, 0) != pairs(16, 1)


def test_real_measures_the_spread_of_shapes_from_the_middle_one() -> None:
    """Concentric balls: the middle radius is the middle shape, the distances are the differences of
    the radii over the longest side of the object, 2."""
    balls = [icosphere(3, radius) for radius in (0.5, 0.9, 0.6)]
    assert np.allclose(middle_distances(balls), [0.05, 0.15, 0.0], atol=2e-3)


def test_real_draws_the_hull_of_the_photos_seen() -> None:
    """Of a ball seen from twelve sides the hull covers the ball in one more photo and a little
    more; of one photo it is a cone, which covers much more. Photos are drawn by formula, ray by
    ray."""
    size, radius, n = 96, 0.8, 13
    cameras = surround_views(n)
    clip = ((np.stack(np.meshgrid(*[np.arange(size)] * 2), -1) + 0.5) / size * 2 - 1).reshape(-1, 2)
    masks = []
    for camera in cameras:
        back = np.linalg.inv(camera.matrix)
        near, far = (
            p[:, :3] / p[:, 3:]
            for p in (
                np.c_[clip, np.full(len(clip), z), np.ones(len(clip))] @ back.T for z in (0, 1)
            )
        )
        ray = (far - near) / np.linalg.norm(far - near, axis=1, keepdims=True)
        foot = near - (near * ray).sum(1, keepdims=True) * ray
        masks.append((np.linalg.norm(foot, axis=1) < radius).reshape(size, size, 1))
    matrices = np.stack([c.matrix for c in cameras])
    images = np.zeros((n, size, size, 3))
    photos = Photos(np.stack(masks).astype(np.float32), images, matrices, np.full(3, radius))
    (twelve,) = hull_masks(photos, list(range(12)), [12])
    (one,) = hull_masks(photos, [0], [12])
    ball = masks[12][..., 0]
    assert (twelve > 0.5)[ball].mean() > 0.99
    assert 0.9 < iou(twelve, ball) < 1.0 and iou(one, ball) < iou(twelve, ball) - 0.1


def test_a_reference_scan_is_brought_into_the_box_of_the_fit(tmp_path: Path) -> None:
    """A ball of radius 3 about (10, 0, 0): radius 1 in a box of side 2; a ball of 1.1 is about a
    tenth of the radius away, in % of the box's diagonal; one that lies elsewhere is refused."""
    from dressi.render.io.obj_scene import write_obj
    from dressi.render.scene import Mesh

    ball = icosphere(3)
    file = tmp_path / "scan.obj"
    moved = ball.positions * 3.0 + np.float32([10.0, 0.0, 0.0])
    write_obj(file, Mesh(moved.astype(np.float32), ball.faces))
    box = np.array([[7.0, -3.0, -3.0], [13.0, 3.0, 3.0]])
    reference = placed_reference(str(file), box)
    assert np.allclose(reference.positions, ball.positions, atol=1e-5)
    found = chamfer(Mesh(ball.positions * np.float32(1.1), ball.faces), reference)
    diagonal = 2.0 * np.sqrt(3.0)
    assert found["chamfer_percent"] == pytest.approx(10.0 / diagonal, rel=0.05)
    assert chamfer(ball, None) == {}
    with pytest.raises(DressiError, match="lies outside of the object's box"):
        placed_reference(str(file), box - 100.0)
