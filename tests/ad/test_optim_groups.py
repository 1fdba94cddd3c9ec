"""Parameter groups and clipping, beside NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dressi.ad import (
    FLOAT,
    MAT2,
    SGD,
    VEC2,
    VEC3,
    Adam,
    F,
    GradientClipping,
    GradientOnly,
    ParameterGroups,
    Variable,
    build_backward,
    evaluate,
)
from dressi.ad.optim_groups import global_norm
from dressi.errors import GraphError

A = Variable(VEC3, (4, 3), requires_grad=True, name="a")
B = Variable(FLOAT, requires_grad=True, name="b")
C = Variable(MAT2, (2, 1), requires_grad=True, name="c")
RNG = np.random.default_rng(3)
DATA = {
    A: RNG.normal(size=(3, 4, 3)),
    B: RNG.normal(size=1),
    C: RNG.normal(size=(2, 2, 2)),
}
LOSS = (
    F.sum(F.dot(A, A)) * 3.0
    + B * B
    + F.sum(F.dot(C @ F.leaf([1.0, 2.0], VEC2), F.leaf([3.0, -1.0], VEC2)))
)


def step(optimizer: Callable) -> dict[str, np.ndarray]:
    """The parameters after a step, flat, in float64."""
    gradients = build_backward(LOSS)
    new = optimizer(list(gradients), list(gradients.values()))
    values = evaluate(list(new), DATA)
    return {x.name: v.ravel() for x, v in zip(gradients, values, strict=True)}


def gradients() -> dict[str, np.ndarray]:
    found = build_backward(LOSS)
    return {
        x.name: v.ravel() for x, v in zip(found, evaluate(list(found.values()), DATA), strict=True)
    }


def flat(v: Variable) -> np.ndarray:
    return np.asarray(DATA[v]).ravel()


def test_each_group_has_its_optimizer() -> None:
    after = step(ParameterGroups({"a": SGD(0.5)}, default=SGD(0.1)))
    g = gradients()
    np.testing.assert_allclose(after["a"], flat(A) - 0.5 * g["a"], rtol=1e-12)
    np.testing.assert_allclose(after["b"], flat(B) - 0.1 * g["b"], rtol=1e-12)
    np.testing.assert_allclose(after["c"], flat(C) - 0.1 * g["c"], rtol=1e-12)


def test_a_group_is_one_call() -> None:
    """Adam counts its steps once for all parameters of a group."""
    adam, seen = Adam(0.1), []

    def noting(xs, gxs):  # type: ignore[no-untyped-def]
        seen.append([x.name for x in xs])
        return adam(xs, gxs)

    step(ParameterGroups({"a": noting, "c": noting}, default=GradientOnly()))
    assert seen == [["a", "c"]]


def test_clipping_by_norm_scales_all_alike() -> None:
    g = gradients()
    norm = np.sqrt(sum((v**2).sum() for v in g.values()))
    after = step(GradientClipping(SGD(1.0), norm=0.25 * norm))
    for v in (A, B, C):
        np.testing.assert_allclose(after[v.name], flat(v) - 0.25 * g[v.name], rtol=1e-9)
    after = step(GradientClipping(SGD(1.0), norm=1.01 * norm))
    np.testing.assert_allclose(after["a"], flat(A) - g["a"], rtol=1e-12)


def test_clipping_by_value_clamps_each_entry() -> None:
    g = gradients()
    after = step(GradientClipping(SGD(1.0), value=0.7))
    for v in (A, B, C):
        np.testing.assert_allclose(after[v.name], flat(v) - np.clip(g[v.name], -0.7, 0.7))


@pytest.mark.parametrize("scale", [0.0, 1e-25, 1.0, 1e30])
def test_norm_of_gradients_that_explode_or_vanish(scale: float) -> None:
    """In float32 the squares of the last would overflow, of the second vanish."""
    data = np.full((3, 4, 3), scale)
    (norm,) = evaluate([global_norm([A])], {A: data})
    assert norm.item() == pytest.approx(6.0 * scale, rel=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: step(ParameterGroups({"x": SGD()}, SGD())),
            "no parameter is named .x.",
        ),
        (lambda: step(ParameterGroups({"a": SGD()})), "b FLOAT@1x1 is in no group"),
        (lambda: ParameterGroups({"a": SGD}), "'a' needs an optimizer like"),
        (lambda: ParameterGroups({}, default=0.1), "'default' needs an optimizer like"),
        (lambda: GradientClipping(SGD()), "norm or value must be given"),
        (lambda: GradientClipping(SGD, norm=1.0), "optimizer must be one like"),
        (lambda: GradientClipping(SGD(), norm=0.0), "norm must be a finite number, above 0"),
        (lambda: GradientClipping(SGD(), norm=float("nan")), "norm must be a finite number"),
        (lambda: GradientClipping(SGD(), value="1"), "value must be a finite number"),
        (lambda: step(ParameterGroups({}, lambda xs, gs: [])), "returned 0 Variables for 3"),
    ],
)
def test_errors(make: Callable[[], object], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        make()
