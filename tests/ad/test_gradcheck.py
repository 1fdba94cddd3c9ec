"""gradcheck finds wrong gradients, says where, and leaves kinks alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dressi.ad import F, GradCheck, Variable, evaluate, explain, gradcheck
from dressi.ad.vtype import FLOAT, INT, MAT2, MAT3, VEC2, VEC3
from dressi.errors import GraphError


def leaf(vtype: Any, size: tuple[int, int] = (1, 1), layers: int = 1, name: str = "x") -> Variable:
    return Variable(vtype, size, layers, requires_grad=True, name=name)


def data(x: Variable, seed: int = 0) -> np.ndarray:
    shape = (x.layers, x.size[1], x.size[0], *x.vtype.tail)
    return np.random.default_rng(seed).uniform(0.2, 1.5, shape)


def test_a_right_gradient_passes_at_every_leaf() -> None:
    x, m = leaf(VEC3, (9, 7), 2), leaf(MAT3, name="m")
    loss = F.exp(F.length(m @ F.sin(x)))
    result = gradcheck(loss, feeds={x: data(x), m: data(m, 1)})
    assert result.ok
    assert [c.label for c in result.leaves] == ["x VEC3@9x7x2", "m MAT3@1x1"]
    assert [len(c.compared) for c in result.leaves] == [16, 9]
    assert all(c.error < 1e-7 and c.kinks == () for c in result.leaves)
    assert result.text().startswith("gradcheck: ok")


def _off(factor: float, at: int | None = None) -> tuple[Variable, Variable]:
    """A loss sum(x^2) whose gradient is off by a factor, everywhere or at one pixel."""
    x = leaf(FLOAT, (4, 1))
    if at is None:
        wrong: Variable = F.constant(factor)
    else:
        wrong = F.where(F.equal(F.to_int(F.pixel_coord((4, 1)).x), at), factor, 1.0)
    square = F.custom(
        "{y} = {x0} * {x0};",
        0,
        backward=lambda f, gy, i: gy * 2.0 * f.inputs[0] * wrong,
        reference=lambda a: a * a,
    )
    return square(x), x


@pytest.mark.parametrize("factor", [-1.0, 0.0, 0.5, 1.001, 2.0])
def test_a_wrong_gradient_is_found(factor: float) -> None:
    loss, x = _off(factor)
    result = gradcheck(loss, feeds={x: data(x)})
    assert not result.ok
    error = abs(factor - 1) / max(factor, 1)
    assert result.leaves[0].error == pytest.approx(error if factor >= 0 else 2.0, rel=1e-3)


def test_where_it_is_worst_is_named_with_both_numbers() -> None:
    loss, x = _off(3.0, at=2)
    result = gradcheck(loss, feeds={x: [1.0, 2.0, 5.0, 7.0]})
    worst = result.leaves[0].worst
    assert worst is not None and worst.index == (0, 0, 2, 0)
    text = result.text()
    assert text.startswith("gradcheck: NOT OK")
    assert "worst at (0, 0, 2, 0): gradient 30, central differences 10" in text


def test_a_right_gradient_within_a_wide_tolerance_passes() -> None:
    loss, x = _off(1.001)
    assert gradcheck(loss, feeds={x: data(x)}, tolerance=1e-2).ok


def test_a_gradient_that_is_missing_is_found() -> None:
    x = leaf(FLOAT, (4, 1))
    result = gradcheck(F.stop_gradient(x) * 2.0, feeds={x: data(x)})
    assert not result.ok and not result.leaves[0].has_gradient
    assert "no gradient reaches it: dressi.explain says why" in result.text()


def test_a_leaf_that_the_loss_does_not_use_has_gradient_0_and_that_is_right() -> None:
    x, other = leaf(FLOAT, (4, 1)), leaf(VEC2, (3, 1), name="other")
    result = gradcheck(x * x, wrt=[x, other], feeds={x: data(x)})
    assert result.ok and not result.leaves[1].has_gradient


KINKS = {
    "abs at the kink": (F.abs, [0.0, 1.0], {0}),
    "abs near the kink": (F.abs, [3e-9, 1.0], {0}),
    "abs within the small step": (F.abs, [1e-5, 1.0], {0}),
    "abs within the large step": (F.abs, [6e-5, 1.0], {0}),
    "abs outside": (F.abs, [2e-4, 1.0], set()),
    "floor at a jump": (lambda x: F.floor(x) + x, [2.00002, 1.5], {0}),
    "floor near a jump": (lambda x: F.floor(x) + x, [1.99994, 1.5], {0}),
    "maximum": (lambda x: F.maximum(x, 0.5), [0.5, 0.7], {0}),
    "a steep but smooth one": (lambda x: F.exp(x * 20.0), [0.5, 0.7], set()),
}


@pytest.mark.parametrize("name", KINKS)
def test_kinks_and_jumps_are_named_and_left_out(name: str) -> None:
    build, values, kinks = KINKS[name]
    x = leaf(FLOAT, (len(values), 1))
    result = gradcheck(build(x), feeds={x: values})
    (check,) = result.leaves
    assert {e.index[2] for e in check.kinks} == kinks
    assert len(check.compared) == len(values) - len(kinks)
    assert result.ok
    assert ("left out, a kink or a jump within the step: (0, 0, 0, 0)" in result.text()) == bool(
        kinks
    )


def test_nothing_but_kinks_is_not_ok() -> None:
    x = leaf(FLOAT, (2, 1))
    result = gradcheck(F.abs(x), feeds={x: [0.0, 0.0]})
    assert not result.ok
    assert "nothing was compared" in result.text()


def test_at_a_minimum_the_gradient_can_be_checked_too() -> None:
    x = leaf(FLOAT, (3, 1))
    off = x * x * x - 1.0
    result = gradcheck(off * off, feeds={x: [1.0, 1.0 + 1e-6, 1.0 - 1e-5]})
    assert result.ok and len(result.leaves[0].compared) == 3


def test_a_large_loss_does_not_hide_in_rounding() -> None:
    x = leaf(FLOAT, (3, 1))
    assert gradcheck(F.sin(x) + 1e8, feeds={x: data(x)}).ok


def test_outputs_of_a_list_are_weighted_so_that_nothing_cancels() -> None:
    """The sum of softmax is constant: its gradient says nothing; each part does."""
    x = leaf(VEC3, (2, 2))
    e = F.exp(x)
    soft = e / F.sum_components(e)
    m = F.linalg.outer(soft, soft)
    result = gradcheck([soft, m], feeds={x: data(x)})
    assert result.ok
    assert all(abs(entry.gradient) > 1e-4 for entry in result.leaves[0].compared)
    assert all(
        abs(e.gradient) < 1e-9 for e in gradcheck(soft, feeds={x: data(x)}).leaves[0].compared
    )


def test_half_of_the_entries_are_where_the_gradient_is_not_0() -> None:
    x = leaf(FLOAT, (100, 100))
    index = Variable(INT, (4, 1))
    result = gradcheck(
        F.lookup(x, index) * 2.0, feeds={x: data(x), index: [5, 77, 1234, 9999]}, n_entries=10
    )
    found = {e.index[1] * 100 + e.index[2] for e in result.leaves[0].compared if e.gradient}
    assert found == {5, 77, 1234, 9999} and len(result.leaves[0].compared) == 10


def test_same_seed_same_entries() -> None:
    x = leaf(FLOAT, (20, 20))
    feeds = {x: data(x)}

    def entries(seed: int) -> list[tuple[int, ...]]:
        return [e.index for e in gradcheck(x * x, feeds=feeds, seed=seed).leaves[0].compared]

    assert entries(1) == entries(1) != entries(2)


def test_leaves_that_hold_data_need_no_feeds() -> None:
    x = F.leaf(np.array([1.0, 2.0, 3.0]), FLOAT, "x")
    x.requires_grad = True
    assert gradcheck(x * x).ok


class FakeEngine:
    """Holds data and evaluates with NumPy, off by a factor in what is no leaf."""

    def __init__(self, factor: float = 1.0) -> None:
        self.held: dict[Variable, np.ndarray] = {}
        self.factor = factor

    def send_img(self, var: Variable, array: np.ndarray) -> None:
        self.held[var] = np.asarray(array, np.float32)

    def recv_img(self, var: Variable) -> np.ndarray:
        if var.creator is None:
            return self.held[var]
        return (evaluate([var], self.held)[0] * self.factor).astype(np.float32)[0]


def test_the_gradient_of_an_engine_is_compared() -> None:
    x = leaf(VEC2, (5, 4))
    loss = F.sin(x) * x
    for factor, ok in ((1.0, True), (1.005, True), (1.02, False), (float("nan"), False)):
        engine = FakeEngine(factor)
        engine.send_img(x, data(x))
        result = gradcheck(loss, engine=engine)
        assert result.ok == ok
        error = result.leaves[0].device_error
        assert error == pytest.approx(abs(factor - 1), abs=1e-6, nan_ok=True)
        assert "device " in result.text()


def test_what_feeds_has_is_sent_to_the_engine() -> None:
    x, scale = leaf(FLOAT, (3, 1)), Variable(FLOAT, name="scale")
    engine = FakeEngine()
    engine.send_img(x, np.ones((1, 1, 3, 1)))
    assert gradcheck(x * x * scale, feeds={scale: 2.0}, engine=engine).ok
    assert engine.held[scale].item() == 2.0


X = leaf(FLOAT, (4, 3))
BAD = {
    "integer loss": (lambda: gradcheck(F.to_int(X)), "is an integer: no gradient"),
    "no Variable": (lambda: gradcheck(3.0), "needs a Variable or a list of them, got 3.0"),
    "empty list": (lambda: gradcheck([]), "no outputs to check"),
    "no leaf": (lambda: gradcheck(Variable(FLOAT) * 2.0), "no leaf of the loss has requires_grad"),
    "no data": (lambda: gradcheck(X * X), "no data in feeds for x FLOAT@4x3"),
    "bad feed": (lambda: gradcheck(X * X, feeds={"x": 1}), "feeds are arrays by Variable"),
    "shape": (lambda: gradcheck(X * X, feeds={X: np.ones((4, 3))}), "needs an array of shape"),
    "eps": (lambda: gradcheck(X, eps=0.0), "eps must be in (0, 1)"),
    "n_entries": (lambda: gradcheck(X, n_entries=0), "n_entries must be an integer"),
    "n_entries type": (lambda: gradcheck(X, n_entries=2.5), "n_entries must be an integer"),
    "wrt": (lambda: gradcheck(X, wrt=X), "wrt must be a list of leaves"),
    "wrt computed": (lambda: gradcheck(X, wrt=[X * 2.0]), "wrt must be a list of leaves"),
    "wrt integer": (lambda: gradcheck(X, wrt=[Variable(INT)]), "is an integer"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_arguments_are_refused_at_the_users_line(case: str) -> None:
    call, message = BAD[case]
    with pytest.raises(GraphError) as caught:
        print(call())
    assert message in str(caught.value)
    assert "test_gradcheck.py:" in str(caught.value)


def test_leaves_that_only_the_gradient_reads_get_their_data() -> None:
    """The counter of a stochastic lookup. Where each row is read once, a draw is the sum."""
    table, index = leaf(FLOAT, (5, 1)), Variable(INT, (4, 1), name="index")
    step = Variable(INT, name="step")
    y = F.lookup(table, F.dynamic(index), scatter="stochastic", step=step)
    loss, feeds = F.sum(y * y), {table: data(table), index: [4, 0, -1, 2]}
    assert gradcheck(loss, feeds={**feeds, step: 7}).ok
    assert explain(table, loss, feeds={**feeds, step: 7}).reason == "none"
    for ask in (lambda: gradcheck(loss, feeds=feeds), lambda: explain(table, loss, feeds)):
        with pytest.raises(GraphError, match="no data in feeds for step INT@1x1"):
            ask()


def test_matrix_leaves_have_row_and_column_in_their_index() -> None:
    m = leaf(MAT2)
    result = gradcheck(F.sum_components(m @ m), feeds={m: [[1.0, 2.0], [3.0, 4.0]]})
    assert isinstance(result, GradCheck) and result.ok
    assert [e.index for e in result.leaves[0].compared] == [
        (0, 0, 0, r, c) for r in (0, 1) for c in (0, 1)
    ]


# -- what rounding hides


def _off_beside(add) -> tuple[Variable, Variable]:
    """A gradient that is 10 % too large, and what ``add`` makes of the loss."""
    loss, x = _off(1.1)
    return add(loss), x


BESIDE = {
    "a number": lambda y: F.sum(y) + 1.6e10,
    "before": lambda y: 1.6e10 - F.sum(y),
    "per pixel": lambda y: y + F.leaf(np.full((4, 1), 1.6e10), FLOAT),
    "1x1 beside an image": lambda y: F.sum(y) + F.leaf(np.full((5, 5, 1), 1.6e10), FLOAT),
    "scaled and nested": lambda y: 3.0 * -(F.mean(y) * 0.25 + 1.6e10) / 7.0 - 1e12,
    "two terms": lambda y: F.sum(y) + F.sum(F.exp(F.leaf([23.0], FLOAT))) + F.sum(y * 2.0),
    "in a vector": lambda y: F.vec2(y, y) * 2.0 + (1.6e10, -3e9),
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_constant_hides_no_wrong_gradient(name: str) -> None:
    """The issue: ok, error 0.0, for a constant of 1.6e10."""
    loss, x = _off_beside(BESIDE[name])
    result = gradcheck(loss, feeds={x: data(x)})
    assert not result.ok and result.leaves[0].error == pytest.approx(0.1 / 1.1, rel=1e-3)
    assert "NOT OK" in result.text()


@pytest.mark.parametrize("name", BESIDE)
def test_nor_does_it_spoil_a_right_one(name: str) -> None:
    x = leaf(FLOAT, (4, 1))
    result = gradcheck(BESIDE[name](x * x), feeds={x: data(x)})
    assert result.ok and not result.leaves[0].undecided


@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_what_cannot_be_decided_is_never_ok(factor: float) -> None:
    """The constant is inside of a root: float64 keeps no digit of x beside 1e20."""
    loss, x = _off(factor)
    result = gradcheck(F.sqrt(loss * 1e-4 + 1e20) * 1e10, feeds={x: data(x)})
    assert not result.ok and len(result.leaves[0].undecided) == 4
    assert "UNDECIDED" in result.text() and "rounding hides" in result.text()


def test_a_gradient_of_0_is_right_with_an_engine_too() -> None:
    """sin^2 + cos^2 is 1: what float32 and float64 leave of its gradient is rounding."""
    x = leaf(FLOAT, (6, 5))
    loss = F.sin(x) * F.sin(x) + F.cos(x) * F.cos(x)

    class Rounds(FakeEngine):
        def recv_img(self, v: Variable) -> np.ndarray:
            if v.creator is None:
                return super().recv_img(v)
            a = self.held[x].astype(np.float32)
            s, c = np.sin(a), np.cos(a)
            return (s * c + c * s - c * s - s * c) + np.float32(self.factor * 6e-8)

    for factor, ok in ((1.0, True), (1e4, False)):
        engine = Rounds(factor)
        engine.send_img(x, data(x))
        result = gradcheck(loss, engine=engine)
        assert result.ok == ok, result
