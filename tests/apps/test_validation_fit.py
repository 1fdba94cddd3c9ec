"""The validation fit of the experiments: one graph for many fits, looks, several views a step."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.ad import SGD
from dressi.apps.experiments.lit_fit import Fit, Fitter
from dressi.apps.experiments.lit_views import (
    LOOKS,
    Method,
    Painter,
    Views,
    random_views,
    with_targets,
)
from dressi.apps.experiments.meshes import horned
from dressi.errors import DressiError
from dressi.packing import Options
from dressi.render.scene import icosphere

SIZE = 32
WIDE = Method("soft", (4.0,), 2)
START = icosphere(1, 0.5)


def _views(look: str, r_px: float, n: int = 3, seed: int = 0) -> Views:
    with Painter(horned(2), WIDE, SIZE, look) as painter:
        return painter.paint(random_views(n, SIZE, seed), (r_px,))


@pytest.mark.gpu
def test_a_fitter_used_again_gives_the_bits_of_a_fresh_one() -> None:
    """Moments, rates, reach and positions of the run before leave nothing behind."""
    target, look, same = horned(2), "lambert_alpha", Options(deterministic=True)
    fit = Fit(6, every=3, look=look, seed=1)
    wide, narrow = _views(look, 4.0), _views(look, 1.5, seed=1)
    with Fitter(START, WIDE, SIZE, look, options=same) as fitter:
        fitter.run(START.positions * 0.9, target, wide, Fit(4, (0.01, 0.01), look=look))
        again = fitter.run(START.positions, target, narrow, fit, (6,), (1.5,))
    with Fitter(START, WIDE, SIZE, look, options=same) as fitter:
        fresh = fitter.run(START.positions, target, narrow, fit, (6,), (1.5,))
    assert np.array_equal(again.positions[6], fresh.positions[6])
    assert again.distances == fresh.distances and again.losses == fresh.losses
    assert not np.array_equal(fresh.positions[6], START.positions)


@pytest.mark.gpu
def test_other_reaches_than_the_widest_are_drawn_as_if_built_for_them() -> None:
    views = random_views(2, SIZE)
    own = with_targets(views, horned(2), Method("own", (1.5,), 2), "silhouette").pictures
    with Painter(horned(2), WIDE, SIZE, "silhouette") as painter:
        painter.paint(views)
        assert np.allclose(painter.paint(views, (1.5,)).pictures, own, atol=1e-6)


@pytest.mark.gpu
def test_a_reach_larger_than_built_for_is_refused() -> None:
    says = r"soft: built for \(4.0,\) px at most, got \(5.0,\)"
    views = random_views(2, SIZE)
    with Painter(horned(1), WIDE, SIZE, "silhouette") as painter:
        with pytest.raises(DressiError, match=says):
            painter.paint(views, (5.0,))
        painted = painter.paint(views)
    with (
        Fitter(START, WIDE, SIZE, "silhouette") as fitter,
        pytest.raises(DressiError, match=says),
    ):
        fitter.run(START.positions, horned(1), painted, Fit(2), r_px=(5.0,))


@pytest.mark.gpu
def test_lambert_with_alpha_is_the_two_pictures_side_by_side() -> None:
    shaded, outline, both = (_views(look, 2.0, n=2).pictures for look in LOOKS)
    assert both.shape == (1, 2, SIZE, SIZE, 2)
    assert np.allclose(both[..., :1], shaded, atol=1e-6)
    assert np.allclose(both[..., 1:], outline, atol=1e-6)
    assert np.abs(shaded - outline).max() > 0.3, "light shows"


@pytest.mark.gpu
def test_an_unknown_look_is_refused() -> None:
    with pytest.raises(DressiError, match="lambert, silhouette, lambert_alpha; got 'phong'"):
        Painter(horned(1), WIDE, SIZE, "phong")


@pytest.mark.gpu
def test_a_step_over_several_views_is_the_mean_of_the_steps_over_each() -> None:
    """Plain gradient descent, next to no Laplacian: the loss is a mean over views, so moves are
    too. The seed says which views a step draws."""
    look, rate, seed = "silhouette", (5.0, 5.0), 3
    views = _views(look, 3.0, n=4)
    order = np.random.default_rng(seed).integers(4, size=3)
    assert len(set(order.tolist())) > 1
    fit = Fit(1, rate, (1e-9, 1e-9), look=look, seed=seed)

    def moves(batch: int, given: Views) -> np.ndarray:
        with Fitter(START, WIDE, SIZE, look, lambda lr: SGD(lr), batch) as fitter:
            trace = fitter.run(START.positions, horned(2), given, fit, (1,))
        return trace.positions[1].astype(np.float64) - START.positions

    alone = []
    for k in order:
        one = Views(
            views.matrices[k : k + 1], views.lights[k : k + 1], views.pictures[:, k : k + 1]
        )
        alone.append(moves(1, one))
    assert np.abs(alone[0]).max() > 1e-4
    assert np.allclose(moves(3, views), np.mean(alone, axis=0), atol=2e-6)
