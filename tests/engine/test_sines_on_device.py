"""Sines of large angles: devices need only know them between -pi and pi."""

from __future__ import annotations

import numpy as np
import pytest
from device import run_many

from dressi import DressiAD, F, Variable
from dressi.ad.autodiff import build_backward
from dressi.ad.graph import topological
from dressi.ad.vtype import FLOAT, VEC2

pytestmark = pytest.mark.gpu


def test_the_highest_frequency_of_an_encoding_keeps_its_digits(ad: DressiAD) -> None:
    """pi * 2^15 * x in float32 is off by 6e-3."""
    data = np.random.default_rng(0).uniform(-1, 1, (8, 8, 2)).astype(np.float32)
    x = Variable(VEC2, (8, 8), requires_grad=True)
    encoded = F.nn.positional_encoding(x, 16, include_input=False)
    (g,) = build_backward(encoded, [x]).values()
    got, gradient = run_many(ad, [encoded, g], {x: data})
    scale = np.pi * 2.0 ** np.arange(16)[:, None, None, None]
    angle = scale * data.astype(np.float64)
    assert np.abs(got - np.concatenate([np.sin(angle), np.cos(angle)], -1)).max() < 2e-5
    want = (scale * (np.cos(angle) - np.sin(angle))).sum(0)
    assert np.abs(gradient[0] - want).max() < 2e-5 * np.pi * 2**16


@pytest.mark.parametrize(
    "y",
    [
        F.nn.positional_encoding(Variable(FLOAT, (64, 64)), 16, include_input=False),
        F.normal_noise((64, 64), n=4),
    ],
    ids=["encoding", "noise"],
)
def test_angles_stay_between_minus_pi_and_pi(ad: DressiAD, y: Variable) -> None:
    functions = topological([y])
    angles = [f.inputs[0] for f in functions if f.op.name in ("sin", "cos")]
    assert angles
    leaves = {x.uid: x for f in functions for x in f.inputs if x.creator is None and x.data is None}
    feeds = {x: np.random.default_rng(1).uniform(-1, 1, (64, 64, 1)) for x in leaves.values()}
    for angle in run_many(ad, angles, feeds):
        assert np.abs(angle).max() <= np.float32(np.pi)
        assert np.ptp(angle) > 6
