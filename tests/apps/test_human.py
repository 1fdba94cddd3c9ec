"""The digital human: its arrays, what turns and grows, and what is wrong is said."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dressi.apps.data import human_file
from dressi.apps.experiments import human, run_experiment
from dressi.apps.experiments.human_fit import TRUE, fit_views, small_map, summary
from dressi.apps.experiments.human_hair import brows, coarser, grow_human_hair, lashes
from dressi.apps.experiments.human_parts import PARTS, Human, build_human, openness, read_ict
from dressi.apps.experiments.human_scene import (
    Setting,
    build_human_picture,
    eye_texture,
    portrait,
    skin_texture,
    turntable,
)
from dressi.errors import DressiError, GraphError, LoadError, OutOfMemoryError
from dressi.render.scene import Mesh, Strands, icosphere

ICT = human_file("ict/ict_face_light.npz")
GAZE = (2.0, 1.0, 8.0)


@cache
def _human() -> Human:
    return build_human(ICT, gaze=GAZE)


def test_eyeballs_turn_about_their_centres_to_the_place_they_look_at() -> None:
    ict = read_ict(ICT)
    sclera = ict.faces[np.isin(ict.material, [ict.names.index("M_ScleraLeft")])]
    rows = np.unique(sclera[sclera >= 0])
    for eye in _human().eyes:
        wanted = np.array(GAZE) - eye.center
        assert np.allclose(eye.axis, wanted / np.linalg.norm(wanted), atol=1e-6)
    # A turn about the centre leaves the distances from it as they were.
    straight = build_human(ICT).mesh.positions[rows].astype(np.float64)
    turned = _human().mesh.positions[rows].astype(np.float64)
    center = _human().eyes[0].center
    before, after = (np.linalg.norm(p - center, axis=1) for p in (straight, turned))
    assert np.allclose(before, after, atol=1e-6)
    assert np.abs(straight - turned).max() > 0.01


def test_an_expression_moves_the_jaw_and_opens_the_mouth() -> None:
    closed = build_human(ICT, {}).mouth[1]
    assert build_human(ICT, {"jawOpen": 0.5}).mouth[1] > closed + 0.05


def test_parts_have_their_textures_apart() -> None:
    human = _human()
    uvs = human.mesh.uvs
    assert uvs is not None
    skin = human.mesh.corner_faces[human.parts == list(PARTS).index("skin")]
    assert uvs[skin].min() >= 0.0 and uvs[skin].max() <= 1.0
    assert set(np.unique(human.parts)) == set(range(len(PARTS)))
    assert skin_texture().shape[2] == 3 and eye_texture().shape[2] == 3
    assert small_map().mean(axis=(0, 1)) == pytest.approx(
        skin_texture().mean(axis=(0, 1)), abs=0.01
    )
    assert len(fit_views()) == 4


def test_a_ball_is_open_to_the_sky_and_what_is_inside_of_it_is_not() -> None:
    ball = icosphere(3)
    inner = (ball.positions * 0.5).astype(np.float32)
    both = Mesh(
        np.concatenate([ball.positions, inner]),
        np.concatenate([ball.faces, ball.faces + len(ball.positions)]),
    )
    free = openness(both, np.concatenate([ball.positions, ball.positions]))
    n = len(ball.positions)
    # The pictures of depths are made of points, between which a little light comes through.
    assert free[:n].min() > 0.9 and free[n:].mean() < 0.05 and free[n:].max() < 0.4


def test_lashes_begin_at_the_lids_and_brows_grow_above_the_eyes() -> None:
    human = _human()
    made = lashes(human)
    roots, tips = made.points[made.roots], made.points[made.roots + made.counts - 1]
    centers = np.stack([e.center for e in human.eyes])

    def away(p: np.ndarray) -> np.ndarray:
        return np.linalg.norm(p[:, None] - centers, axis=2).min(axis=1)

    assert (away(tips) > away(roots)).all() and away(roots).max() < 0.3
    brow = brows(human, skin_texture())
    height = brow.points[brow.roots][:, 1]
    assert len(brow.counts) > 100 and height.min() > centers[0, 1] and height.max() < 0.5
    assert {np.sign(x) for x in brow.points[brow.roots][:, 0]} == {-1.0, 1.0}


def test_coarser_hair_covers_as_much_with_fewer_strands() -> None:
    hair = lashes(_human())
    coarse = coarser(hair, 0.25)
    assert len(coarse.counts) == round(0.25 * len(hair.counts))
    assert coarse.widths.sum() == pytest.approx(hair.widths.sum(), rel=1e-4)
    for share in (0.0, 1.5, float("nan")):
        with pytest.raises(GraphError, match="share of strands"):
            coarser(hair, share)


@pytest.mark.parametrize(
    ("expression", "gaze", "said"),
    [
        ({"jawOpn": 0.2}, GAZE, "no expression 'jawOpn'"),
        ({"jawOpen": 1.5}, GAZE, "weight of jawOpen must be in"),
        ({"jawOpen": float("nan")}, GAZE, "weight of jawOpen must be in"),
        ({}, (0.0, 0.0, -9.0), "gaze must lie in front"),
        ({}, (0.0, 1.0), "gaze must be three numbers"),
    ],
)
def test_a_bad_human_is_refused(expression: dict, gaze: tuple, said: str) -> None:
    with pytest.raises(GraphError, match=said):
        build_human(ICT, expression, gaze)


def test_files_that_hold_no_head_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="no ICT head"):
        build_human(tmp_path / "absent.npz")
    with np.load(ICT) as found:
        arrays = {k: found[k] for k in found.files if k not in ("identity",)}
    np.savez(tmp_path / "odd.npz", **(arrays | {"uv_faces": arrays["uv_faces"][:, :3]}))
    with pytest.raises(LoadError, match="uv_faces must be"):
        build_human(tmp_path / "odd.npz")


def test_bad_strands_textures_and_settings_are_refused() -> None:
    with pytest.raises(GraphError, match="strand 0 has 1 points"):
        Strands(np.zeros((1, 3)), np.array([1]), np.float32(0.1))
    with pytest.raises(GraphError, match="skin must be"):
        grow_human_hair(_human(), np.zeros((4, 4)), 10)
    with pytest.raises(GraphError, match="number of strands must be"):
        grow_human_hair(_human(), skin_texture(), 0)
    strands = lashes(_human())
    with pytest.raises(GraphError, match="one camera, got 2"):
        build_human_picture(_human(), strands, Setting([portrait(), turntable(1, 4)], (16, 16)))
    with pytest.raises(GraphError, match="at least one light"):
        build_human_picture(_human(), None, Setting([portrait()], (16, 16), lights=()))


@pytest.mark.gpu
def test_the_picture_is_the_same_for_4_and_8_input_attachments(tmp_path: Path) -> None:
    data = run_experiment("human", smoke=True, size=24, parts=("attachments",), out=str(tmp_path))
    figures = data["figures"]
    assert figures["attachments_difference"] <= 2e-3
    assert figures["attachments_4"] != figures["attachments_8"], "both were packed alike"


def test_a_step_is_as_large_as_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def step(built: human.Built, setting: Setting, settings: human.Settings) -> tuple:
        tried.append((setting.size, setting.n_layers))
        if setting.size[0] > fits:
            raise OutOfMemoryError("full", needed=100 * setting.size[0], available=350)
        return 1.0, 0.5, SimpleNamespace(stages=[], scopes=[])

    monkeypatch.setattr(human, "_timed_step", step)
    strands = lashes(_human())
    built = human.Built(_human(), strands, Setting([portrait()], (64, 64), n_layers=6))
    fits = 32
    figures, _ = human.measure_step(built, human.Settings())
    assert tried == [((64, 64), 6), ((32, 32), 6)] and figures["step_size"] == 32
    fits = 0
    with pytest.raises(OutOfMemoryError, match="full"):
        human.measure_step(built, human.Settings())
    assert [size[0] for size, _ in tried[2:]] == [64, 32, 16]


def test_the_fit_is_judged_by_its_own_errors() -> None:
    true = np.full((2, 2, 3), 0.4, np.float32)
    seen = np.array([[True, False], [True, True]])
    found = true + 0.01
    found[0, 1] = 1.0  # not seen: does not count
    picture = np.full((4, 4, 4, 3), 0.5, np.float32)
    numbers = {"skin_width": 1.05 * TRUE["skin_width"], "skin_roughness": TRUE["skin_roughness"]}
    fit = summary(picture * 0.5, picture + 0.001, picture, numbers, found, true, seen, 0.0)
    assert fit.figures["fit_width_error"] == pytest.approx(0.05)
    assert fit.figures["fit_color_error"] == pytest.approx(0.01, rel=1e-3)
    assert fit.figures["fit_psnr_db"] == pytest.approx(60.0, abs=0.01)
    assert all(holds for _, holds in fit.conditions)
    off = summary(picture, picture, picture, numbers | {"skin_width": 0.04}, true, true, seen, 0.0)
    assert [holds for _, holds in off.conditions] == [True, False, True, True]


def test_an_unknown_part_of_the_experiment_is_named(tmp_path: Path) -> None:
    with pytest.raises(DressiError, match=r"--parts knows .* got pics"):
        run_experiment("human", smoke=True, parts=("pics",), out=str(tmp_path))
