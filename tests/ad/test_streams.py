"""Stochastic backwards that share one counter draw independently, and the same in every build."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dressi.ad import F, Variable, build_backward, evaluate
from dressi.ad.functions.inverse_maps import in_stream
from dressi.ad.vtype import FLOAT, INT, VEC2

N_OPS = 3
STEPS = 400

Made = tuple[list[Variable], dict[Variable, object], Variable]


def _lookups(samples: int) -> Made:
    """Gradients of tables that are read through one index by one counter: what differs between the
    draws is only the stream."""
    rng = np.random.default_rng(2)
    index, step = Variable(INT, (12, 8)), Variable(INT)
    tables = [Variable(FLOAT, (9, 1), requires_grad=True) for _ in range(N_OPS)]
    w = Variable(FLOAT, (12, 8))
    loss = sum(
        F.lookup(t, F.dynamic(index), scatter="stochastic", step=step, samples=samples) * w
        for t in tables
    )
    grads = build_backward(loss)  # type: ignore[arg-type]
    feeds: dict[Variable, object] = dict.fromkeys(tables, np.zeros((9, 1)))
    feeds |= {index: rng.integers(0, 9, (8, 12, 1)), w: rng.normal(size=(8, 12, 1))}
    return [grads[t] for t in tables], feeds, step


def _textures(filter: str = "linear") -> Made:
    rng = np.random.default_rng(3)
    uv, w, step = Variable(VEC2, (16, 12)), Variable(FLOAT, (16, 12)), Variable(INT)
    textures = [Variable(FLOAT, (5, 4), requires_grad=True) for _ in range(N_OPS)]
    loss = sum(
        F.texture(t, uv, filter=filter, backward="inverse_uv", step=step) * w for t in textures
    )
    grads = build_backward(loss)  # type: ignore[arg-type]
    feeds: dict[Variable, object] = dict.fromkeys(textures, np.zeros((4, 5, 1)))
    feeds |= {uv: rng.uniform(0, 1, (12, 16, 2)), w: rng.normal(size=(12, 16, 1))}
    return [grads[t] for t in textures], feeds, step


KINDS: dict[str, Callable[[], Made]] = {
    "lookup": lambda: _lookups(1),
    "lookup, 2 samples": lambda: _lookups(2),
    "texture": _textures,
    "nearest texture": lambda: _textures("nearest"),
}


def _draws(made: Made, n: int) -> np.ndarray:
    """(ops, steps, values)."""
    outputs, feeds, step = made
    rows = [[g.ravel() for g in evaluate(outputs, {**feeds, step: k})] for k in range(n)]
    return np.array(rows).swapaxes(0, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_ops_that_share_a_counter_are_not_correlated(kind: str) -> None:
    """Of 400 steps the correlation of independent noise spreads by 1/20 a value; its mean over the
    values by 1/20 over the root of their number, were they independent of each other, which the
    bound does not lean on. Before, all draws were the same: a correlation of 1."""
    draws = _draws(KINDS[kind](), STEPS)
    noise = draws - draws.mean(axis=1, keepdims=True)
    noise = noise[..., (noise.std(axis=1) > 0).all(axis=0)]
    assert noise.shape[2] >= 5, "there is something to draw"
    scaled = noise / noise.std(axis=1, keepdims=True)
    for a in range(N_OPS):
        for b in range(a):
            correlation = (scaled[a] * scaled[b]).mean(axis=0)
            assert abs(correlation.mean()) < 0.05, (a, b, correlation)
            assert np.abs(correlation).max() < 0.35, (a, b, correlation)


@pytest.mark.parametrize("kind", KINDS)
def test_every_op_keeps_the_exact_mean(kind: str) -> None:
    """Each stream has the mean that the first one has, within 5 standard errors of both."""
    draws = _draws(KINDS[kind](), STEPS)
    mean, error = draws.mean(axis=1), draws.std(axis=1) / np.sqrt(STEPS)
    for k in range(1, N_OPS):
        assert (np.abs(mean[k] - mean[0]) <= 5 * (error[k] + error[0]) + 1e-9).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_that_is_built_twice_draws_the_same(kind: str) -> None:
    first, second = (_draws(KINDS[kind](), 3) for _ in range(2))
    assert (first == second).all()
    assert (first[0] != first[1]).any() and (first[1] != first[2]).any()


def test_gradients_built_twice_of_one_graph_are_equal() -> None:
    step, index = Variable(INT), Variable(INT, (20, 1))
    table = Variable(FLOAT, (4, 1), requires_grad=True)
    _ = F.lookup(table, F.dynamic(index), scatter="stochastic", step=step)  # not of this loss
    y = F.lookup(table, F.dynamic(index), scatter="stochastic", step=step)
    loss = y * y
    feeds = {
        table: np.arange(1.0, 5.0).reshape(4, 1),
        index: np.arange(20).reshape(20, 1) % 4,
        step: 5,
    }
    a, b = (evaluate([build_backward(loss)[table]], feeds)[0] for _ in range(2))
    assert (a == b).all()


def test_streams_are_far_ahead_of_each_other_modulo_32_bits() -> None:
    step = Variable(INT)
    assert in_stream(step, 0) is step
    ahead = [
        int(evaluate([in_stream(step, k)], {step: 0})[0].ravel()[0]) % 2**32 for k in range(1000)
    ]
    gaps = np.diff(np.sort([*ahead, 2**32]))
    assert gaps.min() > 10**6  # steps
