"""F.pow on the device where GLSL's own is undefined: negative bases and 0; the same in fragment
shaders and dispatches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from device import run_many

from dressi import DressiAD, F, Options, Variable
from dressi.ad.autodiff import build_backward
from dressi.ad.vtype import FLOAT, VEC3

pytestmark = pytest.mark.gpu

BASES = [-3.5, -2.0, -1.0, -0.3, 0.0, 0.3, 1.0, 2.5]
POWERS = [-5.0, -3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 7.0, 16777217.0]
RTOL = 2e-5


@pytest.fixture(params=["graphics", "compute"])
def engine(request: pytest.FixtureRequest) -> Iterator[DressiAD]:
    with DressiAD(options=Options(lowering=request.param)) as made:
        yield made


def _close(got: np.ndarray, want: np.ndarray) -> bool:
    return bool(np.allclose(got.ravel(), np.ravel(want), rtol=RTOL, atol=1e-7, equal_nan=True))


def test_values_are_those_of_numpy(engine: DressiAD) -> None:
    pairs = np.array(
        [(x, p) for x, p in product(BASES, POWERS) if abs(p) < 100 or abs(x) in (0, 1)], np.float32
    )
    x, p = Variable(FLOAT, (len(pairs), 1)), Variable(FLOAT, (len(pairs), 1))
    three = F.vec3(x, x, 1.0)
    outputs = [F.pow(x, p), F.pow(three, p)]
    got = run_many(engine, outputs, {x: pairs[:, :1], p: pairs[:, 1:]})
    with np.errstate(all="ignore"):
        want = np.power(pairs[:, 0].astype(np.float64), pairs[:, 1])
    assert np.isnan(want).any() and np.isinf(want).any()
    assert _close(got[0], want)
    assert _close(got[1][..., 0], want) and _close(got[1][..., 1], want)
    assert (got[1][..., 2] == 1).all()


def test_small_powers_and_their_gradients(engine: DressiAD) -> None:
    data = np.array([-2.5, -1.0, -0.5, 0.0, 0.5, 2.0], np.float32)
    powers = [1.0, 2.0, 3.0, 4.0, -1.0, -2.0, 5.0, 0.5]
    x = Variable(FLOAT, (len(data), 1), requires_grad=True)
    ys = [x**p for p in powers]
    outputs = ys + [build_backward(y, [x])[x] for y in ys]
    got = run_many(engine, outputs, {x: data[:, None]})
    a = data.astype(np.float64)
    with np.errstate(all="ignore"):
        for p, y, g in zip(powers, got[: len(powers)], got[len(powers) :], strict=True):
            assert _close(y, np.power(a, p)), p
            want = np.where(a == 0, p == 1.0, p * np.power(a, p - 1))
            assert _close(g, want), p


def test_gradients_of_exponents_that_are_images(engine: DressiAD) -> None:
    pairs = np.array(list(product([-2.0, -0.5, 0.0, 0.5, 2.0], [-2.0, 0.0, 1.0, 3.0])), np.float32)
    x = Variable(FLOAT, (len(pairs), 1), requires_grad=True)
    p = Variable(FLOAT, (len(pairs), 1), requires_grad=True)
    grads = build_backward(F.pow(x, p), [x, p])
    gx, gp = run_many(engine, [grads[x], grads[p]], {x: pairs[:, :1], p: pairs[:, 1:]})
    a, b = pairs.astype(np.float64).T
    with np.errstate(all="ignore"):
        assert _close(gx, np.where(a == 0, b == 1, b * np.power(a, b - 1)))
        assert _close(gp, np.where(a > 0, np.power(a, b) * np.log(np.where(a > 0, a, 1)), 0))


def test_a_fit_through_a_square_of_what_is_negative(engine: DressiAD) -> None:
    """x - 3 is negative throughout."""
    x = Variable(VEC3, (4, 4), requires_grad=True)
    data = np.random.default_rng(1).uniform(size=(4, 4, 3)).astype(np.float32)
    y = (x - 3.0) ** 2
    value, gradient = run_many(engine, [y, build_backward(y, [x])[x]], {x: data})
    assert np.allclose(value[0], (data - 3.0) ** 2, rtol=1e-6)
    assert np.allclose(gradient[0], 2 * (data - 3.0), rtol=1e-6)
