"""Optimizers in the device's float32 against float64, where 1 - beta has few digits left."""

from __future__ import annotations

import numpy as np
import pytest

from dressi import Adam, AdamUniform, DressiAD, F, Momentum, Variable
from dressi.ad.graph import leaves
from dressi.ad.optim import exponential_decay
from dressi.ad.vtype import FLOAT

pytestmark = pytest.mark.gpu

BETAS = [(0.0, 0.9), (0.9, 0.999), (0.001, 0.3), (0.9999, 0.999999), (0.99999, 0.9999999)]


def adam64(gradients: np.ndarray, b1: float, b2: float, eps: float = 1e-8) -> np.ndarray:
    """-x after each step with rate 1 from 0 (Kingma and Ba 2015, algorithm 1), float64."""
    m = v = x = 0.0
    out = []
    for t, g in enumerate(gradients.astype(np.float32).astype(np.float64), 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        # 1 - beta^t by expm1: float64 has digits enough, but not for nothing.
        x += (
            m
            / -np.expm1(t * np.log(b1) if b1 else -np.inf)
            / (np.sqrt(v / -np.expm1(t * np.log(b2))) + eps)
        )
        out.append(x)
    return np.array(out)


@pytest.mark.parametrize("optimizer", [Adam, AdamUniform])
@pytest.mark.parametrize(("beta1", "beta2"), BETAS)
def test_adam_near_one(optimizer, beta1: float, beta2: float) -> None:
    """The issue: the first step was 3.6 % too long at beta2 = 0.999999."""
    gradients = np.random.default_rng(5).uniform(0.2, 2.0, 24) * np.tile([1, 1, -1], 8)
    x, c = Variable(FLOAT, requires_grad=True), Variable(FLOAT)
    with DressiAD() as ad:
        ad.set_loss_var(x * c)
        ad.set_optimizer(optimizer(1.0, beta1, beta2))
        ad.send_img(x, 0.0)
        got = []
        for g in gradients:
            ad.send_img(c, g)
            ad.exec_step()
            got.append(-ad.recv_img(x).item())
    np.testing.assert_allclose(got, adam64(gradients, beta1, beta2), rtol=2e-5, atol=2e-5)


def test_a_constant_gradient_gives_steps_of_the_rate_for_ever() -> None:
    """The closed form: m = g and v = g^2 after correction, at any step."""
    x = Variable(FLOAT, (3, 1), requires_grad=True)
    with DressiAD() as ad:
        ad.set_loss_var(x * 0.3)
        ad.set_optimizer(Adam(1.0, 0.99999, 0.999999))
        ad.send_img(x, np.zeros(3))
        ad.exec_steps(20_000)
        np.testing.assert_allclose(ad.recv_img(x).ravel(), -20_000, rtol=1e-5)


def test_a_counter_of_a_million_steps() -> None:
    """As after 10^6 steps with gradient 1: then 0. Float64: v = 1 - beta^n, so the next v is
    (beta - beta^(n + 1)) / (1 - beta^(n + 1))."""
    n, beta1, beta2 = 10**6, 0.999, 0.999999
    x, c = Variable(FLOAT, requires_grad=True), Variable(FLOAT)
    with DressiAD() as ad:
        ad.send_img(x, 0.0)
        ad.send_img(c, 1.0)
        ad.set_loss_var(x * c)
        ad.set_optimizer(Adam(1.0, beta1, beta2))
        ad.exec_step()
        (counter,) = (v for v in ad.optimizer_states if v.name == "adam.step")
        ad.send_img(counter, n)  # both corrected moments are 1, as they are then
        ad.send_img(x, 0.0)
        ad.send_img(c, 0.0)
        ad.exec_step()
        got = -ad.recv_img(x).item()
    logs = (n + 1) * np.log([beta1, beta2])
    kept = [1 - (1 - b) / -np.expm1(e) for b, e in zip((beta1, beta2), logs, strict=True)]
    assert got == pytest.approx(kept[0] / np.sqrt(kept[1]), rel=1e-6)


def test_momentum_near_one() -> None:
    """After n steps of gradient 1: the sum of (1 - mu^k) / (1 - mu), in float64."""
    mu, n = 0.9999, 3000
    x = Variable(FLOAT, requires_grad=True)
    with DressiAD() as ad:
        ad.set_loss_var(x * 1.0)
        ad.set_optimizer(Momentum(1e-6, mu))
        ad.send_img(x, 0.0)
        ad.exec_steps(n)
        got = -ad.recv_img(x).item()
    k = np.arange(1, n + 1)
    want = 1e-6 * (-np.expm1(k * np.log(mu)) / (1 - mu)).sum()
    assert got == pytest.approx(want, rel=1e-4)


@pytest.mark.parametrize(("start", "end"), [(1e-3, 1e-7), (3.0, 1e4), (0.1, 0.1)])
def test_a_decay_starts_and_ends_where_it_says(start: float, end: float) -> None:
    n = 1_000_000
    rate = exponential_decay(start, end, n)
    (counter,) = (v for v in leaves([rate]) if v.update is not None)
    with DressiAD() as ad:
        for step in (0, 1, n // 3, n - 1, n, 3 * n):
            ad.send_img(counter, step)
            want = start * (end / start) ** min(step / n, 1.0)
            assert ad.recv_img(rate).item() == pytest.approx(want, rel=2e-6)
        ad.send_img(counter, 0)
        assert ad.recv_img(rate).item() == np.float32(start)


@pytest.mark.parametrize(("op", "sign"), [(F.asin, 1.0), (F.acos, -1.0)])
def test_gradients_of_arcs_near_one_keep_their_digits(op, sign: float) -> None:
    """1 - x * x in float32 is off by 0.15 % at 1 - x = 1e-5."""
    near = np.float32(1.0) - np.float32([1e-3, 1e-5, 1.3e-6, 1.0])
    near = np.concatenate([near, -near])
    x = Variable(FLOAT, (len(near), 1), requires_grad=True)
    with DressiAD() as ad:
        ad.send_img(x, near)
        ad.set_loss_var(op(x))
        got = ad.recv_grad(x).ravel()
    wide = near.astype(np.float64)
    np.testing.assert_allclose(got, sign / np.sqrt(1 - wide * wide), rtol=2e-6)
