"""The sRGB curve: known values, its inverse, and finite gradients at and around 0."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.ad import F, Variable, build_backward, evaluate
from dressi.ad.vtype import FLOAT, VEC4

# Values of the standard's own formula, by hand: ((0.5 + 0.055) / 1.055)^2.4, and so on.
KNOWN = {0.0: 0.0, 0.04: 0.0030959752, 0.5: 0.2140411, 1.0: 1.0}


@pytest.mark.parametrize("encoded", KNOWN)
def test_srgb_curve_at_known_values(encoded: float) -> None:
    (linear,) = evaluate([F.image.srgb_to_linear(F.constant(encoded))], {})
    assert abs(linear.item() - KNOWN[encoded]) < 1e-7
    (back,) = evaluate([F.image.linear_to_srgb(F.constant(KNOWN[encoded]))], {})
    assert abs(back.item() - encoded) < 1e-6


def test_curves_are_inverse_over_the_range() -> None:
    x = Variable(FLOAT, (301, 1))
    data = np.linspace(-1, 2, 301).reshape(1, 1, -1, 1)
    both = [
        F.image.linear_to_srgb(F.image.srgb_to_linear(x)),
        F.image.srgb_to_linear(F.image.linear_to_srgb(x)),
    ]
    for got in evaluate(both, {x: data}):
        assert np.abs(got - data).max() < 2e-6  # the standard's two thresholds do not quite meet


@pytest.mark.parametrize(
    ("curve", "at_0", "at_1"),
    [
        (F.image.srgb_to_linear, 1 / 12.92, 2.4 / 1.055),
        (F.image.linear_to_srgb, 12.92, 1.055 / 2.4),
    ],
)
def test_slopes_are_finite_at_0_and_below(curve: object, at_0: float, at_1: float) -> None:
    x = Variable(FLOAT, (4, 1), requires_grad=True)
    (g,) = evaluate(
        [build_backward(curve(x))[x]],  # type: ignore[operator]
        {x: np.array([-0.5, -0.0, 0.0, 1.0]).reshape(1, 1, 4, 1)},
    )
    assert np.allclose(g.ravel(), [at_0, at_0, at_0, at_1], rtol=1e-6)


def test_all_components_are_treated_alike() -> None:
    x = Variable(VEC4, (1, 1))
    (y,) = evaluate([F.image.srgb_to_linear(x)], {x: np.full((1, 1, 1, 4), 0.5)})
    assert np.ptp(y) == 0
