"""The stochastic backward of F.texture where the texture is finer than the screen: every texel is
visited within a stated number of steps, in its turn, without stripes."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.ad import F, Variable, build_backward, evaluate
from dressi.ad.vtype import FLOAT, INT

STEPS_A_TEXEL = 6
"""Of m x m texels a pixel, each has been visited after 6 m^2 steps; each has one chance in m^2 a
step."""

SCREEN = 12


def _visits(m: int, n_steps: int) -> np.ndarray:
    """(steps, H, W): the gradients, 1 for each pixel that came by, while the projection is jittered
    by F.sobol of the step that F.texture has too."""
    n = SCREEN * m
    tex, step = Variable(FLOAT, (n, n), requires_grad=True), Variable(INT)
    uv = (F.pixel_coord((SCREEN, SCREEN)) + F.sobol(step) - 0.5) * (1.0 / SCREEN)
    g = build_backward(F.texture(tex, uv, backward="inverse_uv", step=step))[tex]
    zeros = np.zeros((1, n, n, 1))
    return np.stack([evaluate([g], {tex: zeros, step: k})[0][0, ..., 0] for k in range(n_steps)])


@pytest.mark.parametrize("m", [1, 2, 3, 4, 8])
def test_every_texel_is_visited_within_6_m2_steps(m: int) -> None:
    seen = _visits(m, STEPS_A_TEXEL * m * m)
    assert (seen.sum((1, 2)) == SCREEN * SCREEN).all()  # nobody's gradient is lost
    assert (seen.max(axis=0) > 0).all()


@pytest.mark.parametrize(("m", "times"), [(2, 64), (4, 32)])
def test_texels_are_visited_equally_often_and_there_are_no_stripes(m: int, times: int) -> None:
    """times: visits that each texel should have. Their shares spread less than those of independent
    draws. A jitter that goes along with the projection's gives some texels of 4 x 4 two and a half
    times their share, however many steps, and columns 12 % more than others."""
    share = _visits(m, times * m * m).sum(axis=0) / times
    assert abs(share.mean() - 1) < 1e-12
    assert share.std() < 1 / np.sqrt(times)
    assert share.min() > 0.5 and share.max() < 1.5
    for axis in (0, 1):
        line = share.mean(axis=axis)
        assert np.abs(line - 1).max() < 0.03
        phases = line.reshape(SCREEN, m).mean(axis=0)  # by place within a pixel
        assert np.abs(phases - 1).max() < 0.01
