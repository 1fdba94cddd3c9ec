"""R16: the reference has the derivatives that closed forms say, and the figure can fail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dressi.apps.bench import Settings
from dressi.apps.bench.reliability import chosen as chosen_figures
from dressi.apps.reliability import edge_gradients
from dressi.apps.reliability.edge_gradients import (
    BUILDERS,
    STEP_PX,
    Found,
    chosen,
    is_promised,
    measure,
    steps_of,
    truth,
)
from dressi.errors import DressiError
from dressi.testing.edge_scenes import (
    KINDS,
    LOOKS,
    EdgeScene,
    camera,
    edge_scene,
    random_scenes,
    sheet,
)
from dressi.testing.supersampled import derivatives, picture

SAMPLES, STEP = 8, 0.5


def _square(half: float, behind: tuple[float, float] | None = None) -> EdgeScene:
    """A square of brightness 0.9 before a ground of 0.1, turned by an angle at which its edges meet
    samples everywhere; behind: half side and depth of a still square of 0.4."""
    c, s = np.cos(0.3), np.sin(0.3)
    turn = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    positions, faces = sheet(half)
    positions, albedo = positions @ turn.T, np.full(4, 0.9)
    grown = positions.copy()
    if behind is not None:
        more, more_faces = sheet(behind[0])
        positions = np.concatenate([positions, more + (0, 0, behind[1])])
        faces = np.concatenate([faces, more_faces + 4])
        albedo, grown = np.append(albedo, np.full(4, 0.4)), np.concatenate([grown, 0 * more])
    return EdgeScene(
        "square", positions, faces, albedo, np.arange(len(albedo)) < 4, camera(), background=0.1,
        directions=grown[None],
    )  # fmt: skip


def _pixels_per_unit(depth: float = 0.0) -> float:
    return 32 * camera()[0, 0] / (4.0 - depth)


@pytest.mark.parametrize("behind, jump", [(None, 0.8), ((0.9, -0.5), 0.5)])
def test_a_square_that_grows_has_the_derivative_of_its_area(behind, jump: float) -> None:
    """The second square is wholly behind the edges of the first: they are occlusion edges."""
    half = 0.5
    scene = _square(half, behind)
    found = derivatives(scene, SAMPLES, STEP / (half * _pixels_per_unit()))
    side = 2 * half * _pixels_per_unit()
    # area (1 + t)^2; 0.3 %: of 60 edge samples per unit of a turned edge, as many errors as half
    assert found[0] == pytest.approx(2 * side**2 * jump, rel=3e-3)


def test_what_crosses_the_near_plane_ends_there() -> None:
    """A floor that leads behind the camera fills the picture below its far end."""
    positions, faces = sheet(1.0)
    floor = np.stack(
        [positions[:, 0] * 9, 0 * positions[:, 1] - 0.4, 5 - 4 * (1 - positions[:, 1])], 1
    )
    scene = EdgeScene("floor", floor, faces, np.full(4, 0.9), np.ones(4, bool), camera())
    shown = picture(scene, floor, 4)
    horizon = 32 * (1 + 0.4 * camera()[0, 0] / 7.0)  # its far end lies 7 before the camera
    assert (shown[int(horizon) + 1 :, 32] == pytest.approx(0.9)) and not shown[
        : int(horizon), 32
    ].any()


def test_differences_are_over_steps_short_beside_what_moves() -> None:
    """Half a pixel is a third of the small ball: what a difference over it measures is no
    derivative. Over the step that is taken, it is within 4 % of the limit and 1 - cosine within
    0.003, where half of it is one sample long."""
    scene = edge_scene("small ball", 3, "waves", True)
    step, samples = steps_of(scene, 4)
    limit, near, far = (derivatives(scene, samples, s) for s in (step / 2, step, STEP_PX))

    def turned(found: np.ndarray) -> float:
        return float(1 - found @ limit / np.linalg.norm(found) / np.linalg.norm(limit))

    assert near @ limit / (limit @ limit) == pytest.approx(1, abs=0.04) and turned(near) < 3e-3
    assert turned(far) > 0.02
    assert np.array_equal(truth(scene, 4), near)
    assert steps_of(edge_scene("ball"), 4) == (STEP_PX, 4)


def test_scenes_follow_from_their_seed_and_move_by_a_pixel() -> None:
    first, again = random_scenes(2 * len(KINDS)), random_scenes(2 * len(KINDS))
    assert {s.kind for s in first} == set(KINDS) and {s.look for s in first} == set(LOOKS)
    for a, b in zip(first, again, strict=True):
        assert np.array_equal(a.positions, b.positions)
        assert np.array_equal(a.directions, b.directions)
        assert not a.directions[:, ~a.moved].any()
        assert (np.abs(a.directions).max((1, 2)) > 0).all()


def test_words_choose_builders_and_kinds() -> None:
    assert chosen([]) == (list(BUILDERS), list(KINDS))
    assert chosen(["antialias", "torus"]) == (["antialias"], ["torus"])
    assert chosen(["K=3", "ball"]) == ([b for b in BUILDERS if b.startswith("K=3")], ["ball"])
    assert chosen_figures("R1,R16:torus") == ["R1", "R16:torus"]
    with pytest.raises(DressiError, match="nothing is no builder and no kind"):
        chosen(["nothing"])
    with pytest.raises(DressiError, match="no figure R1:torus"):
        chosen_figures("R1:torus")


def test_a_ratio_and_a_cosine_that_are_off_do_not_hold() -> None:
    true = np.array([3.0, 4.0])
    assert Found(2 * true, None, true, 0.0).against(true) == pytest.approx((2.0, 1.0))
    rows = list(edge_gradients._verdicts("R16", [Found(np.array([4.0, -3.0]), None, true, 0.0)]))
    assert [r["holds"] for r in rows] == [False] * 4


def _few(monkeypatch, kind: str, look: str = "flat") -> None:
    """One scene, which grows, and one timed step."""
    few = [replace(s, directions=s.directions[:1]) for s in (edge_scene(kind, 0, look),)]
    monkeypatch.setattr(edge_gradients, "scenes", lambda kind: few)
    monkeypatch.setattr(edge_gradients, "TIMED", 1)


@pytest.mark.gpu
def test_the_edge_of_an_object_before_a_wall_is_what_occlusion_and_antialias_have(
    monkeypatch,
) -> None:
    """What R16 is for. SMALL_SAMPLES of the reference know the derivative to some 2 %."""
    _few(monkeypatch, "wall")
    words = ("K=1 r=0.1", "occlusion r=0.1", "antialias", "wall")
    old, occlusion, antialias, *verdicts = measure(Settings().device, True, words)
    assert 0.9 <= old["value"] <= 1.1 and not old["holds"]
    assert occlusion["value"] <= 0.03 and occlusion["holds"]
    assert antialias["value"] < 0.05
    # One layer without occlusion does not promise it.
    assert {v["figure"].split(",")[0] for v in verdicts} == {"R16 occlusion r=0.1", "R16 antialias"}


@pytest.mark.gpu
@pytest.mark.parametrize(
    "kind, look", [("crossing", "flat"), ("contact", "flat"), ("ball", "facets")]
)
def test_antialias_has_the_gradient_of_every_line_that_moves(
    monkeypatch, kind: str, look: str
) -> None:
    """Lines where boxes cross; a box that stands on a floor, of which one side of a step is a
    crossing and the other an edge; facets."""
    _few(monkeypatch, kind, look)
    row, *_ = measure(Settings().device, True, ("antialias", kind))
    assert row["value"] < 0.05


@pytest.mark.gpu
@pytest.mark.parametrize("times, holds", [(1.02, [True] * 3), (-1.0, [False] * 3)])
def test_scenes_from_seeds_have_three_rows_and_can_fail(
    monkeypatch, times: float, holds: list[bool]
) -> None:
    """A builder whose gradient is a multiple of the truth."""
    few = [replace(s, directions=s.directions[:2]) for s in random_scenes(2)]

    def measured(ad, scene, builder, true, own) -> Found:
        return Found(times * true, None, true, 0.0)

    monkeypatch.setattr(edge_gradients, "random_scenes", lambda n: few)
    monkeypatch.setattr(edge_gradients, "FEWER_SAMPLES", 2)
    monkeypatch.setattr(edge_gradients, "measure_scene", measured)
    rows = list(measure(Settings().device, False, ("random", "occlusion r=0.03")))
    assert [r["holds"] for r in rows] == holds
    assert [r["value"] for r in rows] == pytest.approx([abs(times - 1)] * 2 + [2 * (times < 0)])


@pytest.mark.parametrize(
    "builder, kind, look, promised",
    [
        ("K=1 r=0.03", "thin", "waves", True),
        ("K=1 r=0.03", "thin", "facets", False),
        ("K=1 r=0.03", "wall", "flat", False),
        ("K=3 r=0.03", "wall", "flat", True),
        ("occlusion r=0.03", "wall", "facets", True),
    ],
)
def test_one_layer_promises_the_outline(builder: str, kind: str, look: str, promised: bool) -> None:
    assert is_promised(builder, edge_scene(kind, 0, look)) == promised
