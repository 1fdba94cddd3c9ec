"""``dressi experiment edges``: its scenes are what they are said to be, its verdicts follow from
the figures, and a disc before another one is found."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.apps.experiments.common import make_settings
from dressi.apps.experiments.edge_fits import (
    DARK,
    GROUND,
    INNER,
    METHODS,
    SCENES,
    Problem,
    fit,
    truth,
)
from dressi.apps.experiments.edges import Settings, conditions, run, wins
from dressi.errors import DressiError


def _ends(problem: Problem, samples: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of the start and the truth."""
    start, end = np.array(problem.start), np.zeros(len(problem.start))
    return truth(problem, start, samples), truth(problem, end, samples)


@pytest.mark.parametrize("name", [*SCENES, *INNER])
def test_a_start_is_off_from_the_truth_by_its_parameters(name: str) -> None:
    problem = {**SCENES, **INNER}[name]()
    assert problem.error_px(np.zeros(len(problem.start))) == 0.0
    assert 0.5 < problem.error_px(np.array(problem.start)) < 40.0
    start, end = _ends(problem)
    assert np.abs(start - end).max() > 0.2


@pytest.mark.parametrize("name", INNER)
def test_outlines_of_inner_fits_are_the_same_at_the_start_but_for_the_hole(name: str) -> None:
    start, end = (np.abs(p - GROUND) > 0.01 for p in _ends(INNER[name]()))
    assert not (end & ~start).any()
    closed = start & ~end
    y, x = np.nonzero(closed)
    if name == "torus hole":
        assert closed.sum() > 20 and abs(x.mean() - 31.5) < 1 and abs(y.mean() - 31.5) < 3
        # Wholly within: the hole's border is the ring on all sides.
        assert x.min() > np.nonzero(start)[1].min() + 4 and x.max() < np.nonzero(start)[1].max() - 4
    else:
        assert not closed.any()


def test_a_far_start_does_not_overlap_its_target() -> None:
    start, end = (np.abs(p - GROUND) > 0.01 for p in _ends(SCENES["far start"]()))
    assert start.any() and end.any() and not (start & end).any()


def test_verdicts_follow_from_the_figures() -> None:
    def figures(ratio: float, end: float, ms: float) -> dict[str, float]:
        off = abs(ratio - 1)
        left = end / 4
        return {"ratio": ratio, "off": off, "left": left, "end_px": end, "start_px": 4.0, "ms": ms}

    scenes = {
        "inner occlusion": {"K=1": figures(0.0, 3.9, 1.0), "occlusion": figures(1.1, 0.1, 5.0)},
        "far start": {"antialias": figures(1.0, 1.0, 3.0)},
    }
    assert wins(scenes)["inner occlusion"] == {
        "derivative": "occlusion",
        "fit": "occlusion",
        "fastest that converged": "occlusion",
    }
    assert wins(scenes)["far start"]["fastest that converged"] == "none"
    fits = {"hand": {"K=1": figures(0, 3.0, 1), "occlusion": figures(0, 0.5, 1)}}
    found = [holds for _, holds in conditions(scenes, fits)]
    # hand: stays, does not converge; occlusion is 10 % off; K=1 has nothing; antialias came along.
    assert found == [True, False, False, True, False]


def test_unknown_names_of_scenes_and_methods_list_the_known_ones() -> None:
    with pytest.raises(DressiError, match="--scenes: there is no 'moon'; known: outline only"):
        run(make_settings(Settings, scenes=("moon",)))
    with pytest.raises(DressiError, match="--methods: there is no 'K=9'; known: K=1"):
        run(make_settings(Settings, methods=("K=9",)))


@pytest.mark.gpu
def test_an_edge_inside_the_outline_is_found_by_occlusion_and_not_by_the_old_mode() -> None:
    problem = INNER["two discs"]()
    target = truth(problem, np.zeros(2), 4)
    assert np.isclose(target, DARK).any()
    left = {m: fit(problem, METHODS[m], target, 40, None, False).left for m in ("K=1", "occlusion")}
    assert left["K=1"] > 0.99 and left["occlusion"] < 0.1
