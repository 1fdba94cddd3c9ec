"""Reads of maps at seams, corners and poles on the device, where float32 is at its worst."""

from __future__ import annotations

import numpy as np
import pytest
from device import run_many

from dressi import DressiAD, F, Variable, evaluate
from dressi.ad.autodiff import build_backward
from dressi.ad.vtype import VEC3

pytestmark = pytest.mark.gpu

SPECIAL = [
    *((x, y, z) for x in (-1, 0, 1) for y in (-1, 0, 1) for z in (-1, 0, 1)),
    *((s * 1e-6, y, 1e-6) for s in (-1, 1) for y in (-1, 1)),
    *((s * 1e-3, y, 1e-4) for s in (-1, 1) for y in (-1, 1)),
    *((s * 1e-4, y, 1) for s in (-1, 1) for y in (-0.3, 0.7)),
    (0, 0, 1e-13),
    (3e9, -1e9, 2e9),
]


@pytest.mark.parametrize("shape", [(6, 4, 4), (6, 1, 1), (6, 33, 33), (1, 8, 16), (1, 1, 3)])
def test_special_directions(ad: DressiAD, shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(0)
    layers, h, w = shape
    image = Variable(VEC3, (w, h), layers, requires_grad=True)
    direction = Variable(VEC3, (len(SPECIAL), 1), 2, requires_grad=True)
    upstream = Variable(VEC3, (len(SPECIAL), 1), 2)
    feeds = {
        image: rng.uniform(-1, 1, (*shape, 3)),
        # The second layer of directions is a little off all ties and seams.
        direction: np.stack([SPECIAL, np.array(SPECIAL) * (1.013, 0.991, 1.007)]),
        upstream: rng.uniform(-1, 1, (2, len(SPECIAL), 3)),
    }
    y = (F.texture_cube if layers == 6 else F.texture_equirect)(image, direction)
    grads = build_backward(y * upstream, [image, direction])
    outputs = [y, grads[image], grads[direction]]
    got = run_many(ad, outputs, feeds)
    want = evaluate(outputs, {v: np.float32(a).astype(np.float64) for v, a in feeds.items()})
    assert np.abs(got[0] - want[0]).max() < 1e-5 * h
    assert np.abs(got[1] - want[1]).max() < 1e-4 * h
    assert np.isfinite(got[2]).all()
    d = np.linalg.norm(np.float32(feeds[direction]), axis=-1)[:, None, :, None]
    # Off the seams, where the direction has a gradient, not one on each side.
    off = (np.abs(got[2] - want[2]) * d)[1]
    assert off[0, : len(SPECIAL) - 2].max() < 1e-3 * w
    assert (got[2][:, 0, -2] == 0).all()
