"""Carving: photos move what silhouettes leave too full, and no mask is uncovered by it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dressi.apps.photo_flags import PHOTO_WITHOUT
from dressi.apps.photos import photo_carving
from dressi.apps.reconstruct.carving import Carving, covering
from dressi.apps.reconstruct.pictures import Pictures
from dressi.apps.reconstruct.pipeline import WITHOUT, Plan, reconstruct
from dressi.apps.reconstruct.rounds import Round
from dressi.cli import _parser
from dressi.engine import DressiAD
from dressi.errors import GraphError
from dressi.render.fit import view_rasters
from dressi.render.scene import icosphere, surface_problems
from tests.helpers.marbled_ball import ball_photos, cameras, with_bump


def pictures(contrast: float = 1.0) -> Pictures:
    matrices = cameras()
    colour, masks = ball_photos(matrices, contrast, noise=0.004)
    return Pictures(matrices, masks.astype(np.float32), colour=colour.astype(np.float32))


def plan(**more: object) -> Plan:
    one = Round(None, 40, 3, (2.0, 1.0), (0.001, 0.001), smoothness=10.0)
    carving = Carving(((1.5, 0.2),), one, 160)
    return replace(Plan((), None, start=with_bump(0.1), carving=carving), **more)  # type: ignore[arg-type]


def mean_error(positions: np.ndarray) -> float:
    """Mean distance from the ball, over the bump."""
    rows = np.linalg.norm(with_bump(0.1).positions, axis=1) > 1.05
    return float(np.abs(np.linalg.norm(positions[rows], axis=1) - 1.0).mean())


@pytest.mark.gpu
def test_photos_take_a_bump_off_that_is_in_none_of_them() -> None:
    made = reconstruct(pictures(), plan())
    assert "carving 1 of 1" in made.courses
    assert mean_error(made.mesh.positions) < 0.3 * mean_error(with_bump(0.1).positions)
    problems = surface_problems(made.mesh)
    assert problems.is_closed and problems.is_embedded


@pytest.mark.gpu
def test_without_consistency_or_colours_a_surface_is_not_carved() -> None:
    bump = with_bump(0.1).positions
    for given, how in (
        (pictures(), plan(without=frozenset({"consistency"}))),
        (pictures(), plan(carving=None)),
        (replace(pictures(), colour=None), plan()),
    ):
        made = reconstruct(given, how)
        assert not made.courses and np.allclose(made.mesh.positions, bump, atol=1e-5)
    with pytest.raises(GraphError, match=r"known: .*occlusion, fairing, consistency"):
        reconstruct(pictures(), plan(without=frozenset({"luck"})))


@pytest.mark.gpu
def test_a_cap_sinks_where_masks_stay_covered_and_only_there() -> None:
    """Views from the side show the cap at their rims, between two of them it may sink."""
    ball, seen = icosphere(4), replace(pictures(), colour=None)
    cap = ball.positions[:, 2] > 0.75
    way = -0.1 * cap[:, None] * ball.positions.astype(np.float64)
    blind = replace(seen, weights=np.zeros_like(seen.coverage))
    wanted, lost = seen.coverage[..., 0] > 0.5, []
    with DressiAD() as ad:
        for made in (ball, covering(ad, ball, way, seen), covering(ad, ball, way, blind)):
            shown = view_rasters(ad, made, seen.matrices, seen.size)
            lost.append(sum((wanted[k] & (r.ids < 0)).sum() for k, r in enumerate(shown)))
    # What has no weight need not be covered.
    assert np.allclose(made.positions, ball.positions + way, atol=1e-6)
    assert lost[2] > lost[0] + 300 and lost[1] - lost[0] < 0.3 * (lost[2] - lost[0]), lost


def test_the_flag_leaves_out_what_the_pipeline_knows() -> None:
    assert set(PHOTO_WITHOUT) - {"consistency", "fairing"} < set(WITHOUT)
    given = ["fit", "--images", "a", "--cameras", "b"]
    assert _parser().parse_args(given).without == []
    assert _parser().parse_args([*given, "--without", "consistency"]).without == ["consistency"]


def test_reaches_are_parts_of_the_box_and_steps_a_tenth_of_the_others() -> None:
    how = photo_carving(600, 480)
    assert how.round.iterations == 60 and how.round.size == 240 and how.size == 480
    assert all(0.0 < reach < 0.25 for _, reach in how.levels)
