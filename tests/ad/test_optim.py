"""Optimizers against a NumPy reference: 20 steps by evaluating the updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dressi.ad import (
    SGD,
    Adam,
    AdamUniform,
    F,
    Momentum,
    Variable,
    build_backward,
    evaluate,
    exponential_decay,
    step_counter,
)
from dressi.ad.graph import leaves
from dressi.ad.optim import Optimizer
from dressi.ad.vtype import FLOAT, MAT3, VEC2, VEC3, VType
from dressi.errors import GraphError

STEPS = 20
RTOL = 1e-9


def run(
    optimizer: Optimizer, loss: Variable, feeds: dict[Variable, Any], steps: int = STEPS
) -> list:
    """Parameters after each step, as the engine would: updates written back after every step."""
    grads = build_backward(loss)
    xs = list(grads)
    new = list(optimizer(xs, [grads[x] for x in xs]))
    pairs = list(zip(xs, new, strict=True))
    frontier = [*new, loss]
    known = {x.uid for x in xs}
    while frontier:
        states = [v for v in leaves(frontier) if v.update is not None and v.uid not in known]
        known |= {v.uid for v in states}
        pairs += [(v, v.update) for v in states]
        frontier = [v.update for v in states if v.update is not None]
    values = {**feeds}
    for leaf, _ in pairs:
        if leaf not in values:
            assert leaf.data is not None
            values[leaf] = leaf.data
    history = []
    for _ in range(steps):
        after = evaluate([n for _, n in pairs], values)
        values.update({leaf: a for (leaf, _), a in zip(pairs, after, strict=True)})
        history.append([values[x] for x in xs])
    return history


def sgd(x: np.ndarray, gradient: Callable[[np.ndarray], np.ndarray], lr: float) -> list[np.ndarray]:
    out = []
    for _ in range(STEPS):
        x = x - lr * gradient(x)
        out.append(x)
    return out


def momentum(x: np.ndarray, gradient: Callable, lr: float, mu: float) -> list[np.ndarray]:
    out, v = [], np.zeros_like(x)
    for _ in range(STEPS):
        v = mu * v + gradient(x)
        x = x - lr * v
        out.append(x)
    return out


def adam(x: np.ndarray, gradient: Callable, lr: float, b1: float, b2: float, eps: float) -> list:
    """Kingma and Ba 2015, algorithm 1."""
    out, m, v = [], np.zeros_like(x), np.zeros_like(x)
    for t in range(1, STEPS + 1):
        g = gradient(x)
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        x = x - lr * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
        out.append(x)
    return out


def setup(size: tuple[int, int] = (4, 3), layers: int = 2) -> tuple[Variable, Variable, dict, Any]:
    """loss = sum (x - target)^2 * weight."""
    rng = np.random.default_rng(3)
    x = Variable(VEC3, size, layers, requires_grad=True, name="x")
    target, weight = Variable(VEC3, size, layers), Variable(FLOAT, size, layers)
    shape = (layers, size[1], size[0])
    feeds = {
        x: rng.normal(size=(*shape, 3)),
        target: rng.normal(size=(*shape, 3)),
        weight: rng.uniform(0.1, 2, (*shape, 1)),
    }
    loss = (x - target) * (x - target) * weight

    def gradient(value: np.ndarray) -> np.ndarray:
        return 2 * (value - feeds[target]) * feeds[weight]

    return loss, x, feeds, gradient


@pytest.mark.parametrize(("size", "layers"), [((4, 3), 2), ((1, 1), 1), ((17, 1), 1)])
def test_sgd_follows_the_reference(size: tuple[int, int], layers: int) -> None:
    loss, x, feeds, gradient = setup(size, layers)
    for got, want in zip(run(SGD(0.1), loss, feeds), sgd(feeds[x], gradient, 0.1), strict=True):
        assert np.allclose(got[0], want, rtol=RTOL)


def test_momentum_follows_the_reference() -> None:
    loss, x, feeds, gradient = setup()
    history = run(Momentum(0.05, 0.8), loss, feeds)
    for got, want in zip(history, momentum(feeds[x], gradient, 0.05, 0.8), strict=True):
        assert np.allclose(got[0], want, rtol=RTOL)


def test_adam_follows_the_reference() -> None:
    loss, x, feeds, gradient = setup()
    history = run(Adam(0.05, 0.8, 0.95, 1e-6), loss, feeds)
    for got, want in zip(history, adam(feeds[x], gradient, 0.05, 0.8, 0.95, 1e-6), strict=True):
        assert np.allclose(got[0], want, rtol=RTOL)


def adam_uniform(
    x: np.ndarray, gradient: Callable, lr: float, b1: float, b2: float, eps: float
) -> list:
    """Adam, with the largest second moment for all (Nicolet 2021)."""
    out, m, v = [], np.zeros_like(x), np.zeros_like(x)
    for t in range(1, STEPS + 1):
        g = gradient(x)
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        x = x - lr * (m / (1 - b1**t)) / (np.sqrt(v.max() / (1 - b2**t)) + eps)
        out.append(x)
    return out


@pytest.mark.parametrize(("size", "layers"), [((4, 3), 2), ((1, 1), 1), ((17, 1), 1)])
def test_adam_uniform_follows_the_reference(size: tuple[int, int], layers: int) -> None:
    loss, x, feeds, gradient = setup(size, layers)
    history = run(AdamUniform(0.05, 0.8, 0.95, 1e-6), loss, feeds)
    want = adam_uniform(feeds[x], gradient, 0.05, 0.8, 0.95, 1e-6)
    for got, w in zip(history, want, strict=True):
        assert np.allclose(got[0], w, rtol=RTOL)


def test_adam_uniform_keeps_the_direction_of_the_first_gradient() -> None:
    loss, x, feeds, gradient = setup()
    ((after,), *_) = run(AdamUniform(0.01), loss, feeds, steps=1)
    g = gradient(feeds[x])
    assert np.allclose(after - feeds[x], -0.01 * g / np.abs(g).max(), rtol=1e-5)


def test_adam_uniform_takes_the_largest_entry_of_a_matrix() -> None:
    m = Variable(MAT3, requires_grad=True, name="m")
    weight = np.arange(1.0, 4.0)
    loss = F.dot(m @ F.constant((1.0, 2.0, 3.0)), F.constant(weight))
    ((after,), *_) = run(AdamUniform(0.01), loss, {m: np.zeros((1, 1, 1, 3, 3))}, steps=1)
    want = -0.01 * np.outer(weight, [1.0, 2.0, 3.0]) / 9.0
    assert np.allclose(after[0, 0, 0], want, rtol=1e-5)


@pytest.mark.parametrize(
    ("bad", "words"),
    [({"beta1": 1.0}, "beta1"), ({"beta2": -0.1}, "beta2"), ({"eps": 0.0}, "eps")],
)
def test_adam_uniform_refuses(bad: dict[str, float], words: str) -> None:
    with pytest.raises(GraphError, match=f"AdamUniform at test_optim.*{words}"):
        AdamUniform(**bad)


def test_adam_defaults_are_those_of_the_paper() -> None:
    a = Adam()
    assert (a.beta1, a.beta2, a.eps) == (0.9, 0.999, 1e-8)


@pytest.mark.parametrize(("beta1", "beta2"), [(0.0, 0.9), (0.9, 0.0), (0.0, 0.0)])
def test_adam_takes_a_beta_of_0(beta1: float, beta2: float) -> None:
    """beta1 = 0 is RMSprop with bias correction."""
    loss, x, feeds, gradient = setup()
    history = run(Adam(0.05, beta1, beta2), loss, feeds)
    for got, want in zip(history, adam(feeds[x], gradient, 0.05, beta1, beta2, 1e-8), strict=True):
        assert np.allclose(got[0], want, rtol=RTOL)


def test_first_step_of_adam_is_the_learning_rate_whatever_the_gradient() -> None:
    x = Variable(FLOAT, requires_grad=True)
    for scale in (1e-3, 1.0, 1e3):
        ((after,), *_) = run(Adam(0.01), x * scale, {x: 1.0}, steps=1)
        assert np.isclose(after.item(), 0.99, rtol=1e-4)


def test_zero_gradient_moves_nothing() -> None:
    """R4 of docs/checking.md: parameters bit-identical at the optimum."""
    for optimizer in (SGD(0.1), Momentum(0.1), Adam(0.1), AdamUniform(0.1)):
        x, zero = Variable(VEC2, (3, 3), requires_grad=True), Variable(FLOAT)
        data = np.random.default_rng(0).normal(size=(3, 3, 2))
        history = run(optimizer, x * zero, {x: data, zero: 0.0})
        assert (history[-1][0][0] == data).all()


def test_several_parameters_have_states_of_their_own() -> None:
    a, b = Variable(FLOAT, requires_grad=True), Variable(VEC3, (5, 1), requires_grad=True)
    loss = a * a + F.dot(b, b) * 3.0
    feeds = {a: 1.0, b: np.arange(15.0).reshape(5, 3)}
    history = run(Adam(0.1), loss, feeds)
    want_a = adam(np.array(1.0), lambda v: 5 * 2 * v, 0.1, 0.9, 0.999, 1e-8)
    want_b = adam(feeds[b], lambda v: 6 * v, 0.1, 0.9, 0.999, 1e-8)
    assert np.isclose(history[-1][0].item(), want_a[-1])
    assert np.allclose(history[-1][1][0, 0], want_b[-1])


@pytest.mark.parametrize(
    "optimizer",
    [SGD(0.1), Momentum(0.1), Adam(0.1), AdamUniform(0.1)],
    ids=lambda o: type(o).__name__,
)
@pytest.mark.parametrize("vtype", [FLOAT, VEC2, VEC3, MAT3], ids=lambda t: t.name)
def test_every_float_type_can_be_optimized(optimizer: Optimizer, vtype: VType) -> None:
    """Matrices too: HardSoftRas says that the gradient flows to the camera's matrix."""
    x = Variable(vtype, requires_grad=True)
    start = np.arange(float(vtype.n_words)).reshape(vtype.tail) + 1
    if vtype.is_matrix:
        loss = F.dot(x @ F.constant((1.0, 2.0, 3.0)), (1.0, 1.0, 1.0))
        g = np.outer([1, 1, 1], [1, 2, 3])
    else:
        loss, g = x * 2.0, np.full(vtype.tail, 2.0)
    after = run(optimizer, loss, {x: start}, steps=1)[0][0][0, 0, 0]
    step = {"Adam": np.sign(g), "AdamUniform": g / np.abs(g).max()}
    want = start - 0.1 * step.get(type(optimizer).__name__, g)
    assert np.allclose(after, want, rtol=1e-6)


def test_learning_rate_may_be_a_variable() -> None:
    x, lr = Variable(FLOAT, requires_grad=True), Variable(FLOAT, name="lr")
    for optimizer in (SGD(lr), Momentum(lr), Adam(lr), AdamUniform(lr)):
        fast = run(optimizer, x * 3.0, {x: 1.0, lr: 0.5}, 1)[0][0].item()
        slow = run(optimizer, x * 3.0, {x: 1.0, lr: 0.25}, 1)[0][0].item()
        assert np.isclose(1 - fast, 2 * (1 - slow))


BAD = (-0.1, float("nan"), float("inf"), "0.1", None, True)


@pytest.mark.parametrize("lr", [*BAD, Variable(VEC3), Variable(FLOAT, (2, 2))])
@pytest.mark.parametrize("kind", [SGD, Momentum, Adam, AdamUniform])
def test_bad_learning_rate_raises(kind: Callable[..., Optimizer], lr: object) -> None:
    with pytest.raises(GraphError, match=f"{kind.__name__} at .*: lr.* must be"):
        kind(lr)


def test_a_learning_rate_that_is_replaced_is_checked_too() -> None:
    x, optimizer = Variable(FLOAT, requires_grad=True), Adam()
    optimizer.lr = -1.0
    with pytest.raises(GraphError, match="learning rate"):
        run(optimizer, x * 2.0, {x: 1.0}, 1)


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (SGD, "weight_decay"),
        (Momentum, "weight_decay"),
        (Momentum, "momentum"),
        *((kind, n) for kind in (Adam, AdamUniform) for n in ("beta1", "beta2", "eps")),
        (Adam, "weight_decay"),
    ],
)
def test_bad_numbers_raise_and_are_named(
    kind: Callable[..., Optimizer], name: str, value: object
) -> None:
    with pytest.raises(GraphError, match=f"{kind.__name__} at .*: {name} must be a finite number"):
        kind(**{name: value})


def test_step_counter_counts_the_steps_done_before() -> None:
    x = Variable(FLOAT, requires_grad=True)
    counter = F.to_float(step_counter())
    # the gradient is the counter: x = -(0 + 1 + 2 + ...)
    history = run(SGD(1.0), x * counter, {x: 0.0}, 5)
    assert [h[0].item() for h in history] == [0, -1, -3, -6, -10]


def test_exponential_decay_is_geometric_and_then_stays() -> None:
    lr = exponential_decay(1.0, 0.01, 4)
    (state,) = (v for v in leaves([lr]) if v.update is not None)
    got = [evaluate([lr], {state: k})[0].item() for k in range(7)]
    want = [0.01 ** min(k / 4, 1) for k in range(7)]
    assert np.allclose(got, want, rtol=1e-6)
    assert np.isclose(got[0], 1.0) and got[-1] == got[4]


@pytest.mark.parametrize("bad", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (-1, 1, 5), (float("nan"), 1, 1)])
def test_exponential_decay_refuses_what_is_not_positive(bad: tuple[float, float, int]) -> None:
    with pytest.raises(GraphError):
        exponential_decay(*bad)
