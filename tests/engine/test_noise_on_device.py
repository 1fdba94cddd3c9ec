"""Hashes and uniform noise have the bits of the NumPy reference on every device."""

from __future__ import annotations

import numpy as np
import pytest
from device import run_many

from dressi import DressiAD, F, Variable, evaluate
from dressi.ad.vtype import INT, IVEC4

pytestmark = pytest.mark.gpu


def test_hash_and_uniform_noise_have_the_same_bits(ad: DressiAD) -> None:
    key, step, steps = Variable(IVEC4, (40, 9), 2), Variable(INT), Variable(INT, layers=3)
    rng = np.random.default_rng(0)
    feeds = {
        key: rng.integers(-(2**31), 2**31, (2, 9, 40, 4)),
        step: -123456789,
        steps: [0, 2**31 - 1, -(2**31)],
    }
    outputs = [F.hash(key)]
    for size in ((33, 17), (100, 1), (1, 1)):
        outputs += [F.uniform_noise(size, step, n, seed=n) for n in (1, 2, 3, 4)]
        outputs.append(F.uniform_noise(size, steps, 4, layers=3))
    got = run_many(ad, outputs, feeds)
    for y, a, b in zip(outputs, got, evaluate(outputs, feeds), strict=True):
        assert (a == b).all(), y.label()


def test_noise_keeps_its_place_inside_of_a_shader_of_another_size(ad: DressiAD) -> None:
    """Of 1x1, or one layer against three: it is computed there, at another pixel and layer."""
    x = Variable(F.constant(0.0).vtype, (9, 7), 3)
    step = Variable(INT)
    feeds = {x: np.zeros((3, 7, 9)), step: 5}
    one, flat = F.uniform_noise((1, 1), step), F.uniform_noise((9, 7), step)
    each = F.uniform_noise((1, 1), step, layers=3)
    outputs = [x + one, x + flat, x + each, x + F.normal_noise((9, 7), step)]
    got = run_many(ad, outputs, feeds)
    want = evaluate(outputs, feeds)
    for a, b in zip(got[:3], want[:3], strict=True):
        assert (a == b).all()
    assert np.abs(got[3] - want[3]).max() < 1e-4
