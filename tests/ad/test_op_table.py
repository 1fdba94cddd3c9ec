"""Every op, generated from the registry: NumPy reference, lowering, gradient against central
differences.

R1 without the device: all in float64, so the tolerances are tight. The configurations
of a
case (sizes 1x1, 13x1, 7x5, 101x37; layers 1 and 3; broadcasts) are its draws: each has a seed of
its own.
"""

from __future__ import annotations

import numpy as np
import pytest
from op_cases import (
    all_cases,
    case_id,
    configs,
    differentiable,
    instance,
    projected,
    rel,
    seed_of,
    weights_like,
)

from dressi.ad import F, Variable, build_backward, evaluate, simplify
from dressi.ad.graph import topological
from dressi.ad.registry import MACRO, OPS, Case

LOWERED = 1e-12  # the sums of a pyramid are in another order
GRADIENT = 1e-5
STEP = 1e-6  # of the central differences
FEW = 24  # inputs of at most so many numbers are differentiated one by one

CASES = all_cases()


def test_every_op_has_a_reference_or_is_rasterization() -> None:
    missing = {n for n, op in OPS.items() if op.reference is None}
    assert missing == {"rasterize", "resolve"}


@pytest.mark.parametrize("item", CASES, ids=case_id)
def test_shape_of_the_reference_is_the_inferred_one(item: tuple[str, int, Case]) -> None:
    for config in configs(*item, large=False):
        made = instance(*item, config)
        y = made.output
        (got,) = evaluate([y], made.feeds)
        assert got.shape == (y.layers, y.size[1], y.size[0], *y.vtype.tail), config.text
        assert np.isfinite(got).all(), config.text


@pytest.mark.parametrize("item", CASES, ids=case_id)
def test_lowered_graph_gives_the_same_values(item: tuple[str, int, Case]) -> None:
    for config in configs(*item):
        made = instance(*item, config)
        (lowered,) = simplify([made.output])
        assert all(f.op.kind != MACRO for f in topological([lowered]))
        a, b = (evaluate([v], made.feeds)[0] for v in (made.output, lowered))
        assert rel(b, a) < LOWERED, config.text


def _loss_at(loss: Variable, feeds: dict[Variable, np.ndarray]) -> float:
    return float(evaluate([loss], feeds)[0].sum())


def _check_gradient(
    loss: Variable,
    x: Variable,
    gradient: np.ndarray,
    feeds: dict[Variable, np.ndarray],
    rng: np.random.Generator,
) -> float:
    """Relative error of a gradient: entry by entry for few, along random directions for many."""
    data = feeds[x]
    if data.size <= FEW:
        directions = list(np.eye(data.size).reshape(-1, *data.shape))
    else:
        directions = [rng.normal(size=data.shape) for _ in range(3)]
        one = np.zeros(data.size)
        one[rng.integers(data.size)] = 1.0
        directions.append(one.reshape(data.shape))
    numeric, analytic = [], []
    for d in directions:
        ends = [_loss_at(loss, {**feeds, x: data + s * STEP * d}) for s in (1, -1)]
        numeric.append((ends[0] - ends[1]) / (2 * STEP))
        analytic.append(float((gradient * d).sum()))
    return rel(np.array(analytic), np.array(numeric))


@pytest.mark.parametrize("item", [c for c in CASES if c[2].gradient], ids=case_id)
def test_gradient_is_that_of_central_differences(item: tuple[str, int, Case]) -> None:
    for config in configs(*item):
        made = instance(*item, config)
        rng = np.random.default_rng(seed_of(item[:2], config.text, "upstream"))
        w, w_data = weights_like(made.output, rng)
        loss = projected(made.output, w)
        feeds = {**made.feeds, w: w_data}
        xs = differentiable(made.inputs)
        grads = build_backward(loss, xs)
        for x in xs:
            g = grads[x]
            assert (g.vtype, g.size, g.layers) == (x.vtype, x.size, x.layers), config.text
            direct, lowered = evaluate([g, *simplify([g])], feeds)
            assert rel(lowered, direct) < LOWERED, config.text
            error = _check_gradient(loss, x, direct, feeds, rng)
            assert error < GRADIENT, f"{config.text}, {x.label()}: {error:.2e}"


NO_GRADIENT = [c for c in CASES if not c[2].gradient and c[0] not in ("block_sum", "max_tap")]
"""But for the internal ops that F.sum and F.image.dilate become after autodiff."""


@pytest.mark.parametrize("item", NO_GRADIENT, ids=case_id)
def test_ops_without_a_gradient_pass_none_on(item: tuple[str, int, Case]) -> None:
    made = instance(*item, next(iter(configs(*item))))
    y = made.output
    loss = F.to_float(y) if y.vtype.is_int else y
    assert build_backward(loss, differentiable(made.inputs)) == {}


@pytest.mark.parametrize("item", [c for c in CASES if c[2].gradient], ids=case_id)
def test_zero_upstream_gives_exactly_0(item: tuple[str, int, Case]) -> None:
    for config in configs(*item, large=False):
        made = instance(*item, config)
        y = made.output
        w = Variable(y.vtype, y.size, y.layers, name="upstream")
        feeds = {**made.feeds, w: np.zeros((y.layers, y.size[1], y.size[0], *y.vtype.tail))}
        grads = build_backward(projected(y, w), differentiable(made.inputs))
        for x, values in zip(grads, evaluate(list(grads.values()), feeds), strict=True):
            assert (values == 0).all(), f"{config.text}, {x.label()}"


TWICE = [
    c
    for c in CASES
    if c[2].gradient
    and c[2].elementwise
    and len(c[2].inputs) > 1
    and len({i[0] for i in c[2].inputs}) == 1
]


@pytest.mark.parametrize("item", TWICE, ids=case_id)
def test_one_variable_used_for_every_input_gets_the_sum(item: tuple[str, int, Case]) -> None:
    name, k, case = item
    rng = np.random.default_rng(seed_of(name, k, "twice"))
    vtype, low, high = case.inputs[0]
    for layers in (1, 3):
        x = Variable(vtype, (7, 5), layers, requires_grad=True)
        y = case.build(*[x] * len(case.inputs))
        w, w_data = weights_like(y, rng)
        loss = projected(y, w)
        feeds = {x: rng.uniform(low, high, (layers, 5, 7, *vtype.tail)), w: w_data}
        (g,) = evaluate([build_backward(loss)[x]], feeds)
        if name in ("minimum", "maximum"):  # a tie everywhere: half and half
            assert rel(g, w_data) < GRADIENT
        else:
            assert _check_gradient(loss, x, g, feeds, rng) < GRADIENT


@pytest.mark.parametrize("wrap", ["repeat", "clamp", "mirror"])
@pytest.mark.parametrize("filter", ["linear", "nearest"])
@pytest.mark.parametrize("layers", [1, 2])
def test_inverse_uv_backward_is_exact_in_the_mean(wrap: str, filter: str, layers: int) -> None:
    """The mean over steps approaches the exact scatter, within 5 standard errors of it
    everywhere."""
    rng = np.random.default_rng(seed_of(wrap, filter, layers))
    tex = Variable(F.vec2(0, 0).vtype, (5, 4), layers, requires_grad=True)
    uv = Variable(F.vec2(0, 0).vtype, (8, 6), layers)
    step = Variable(F.to_int(F.constant(0.0)).vtype)
    feeds = {
        tex: rng.normal(size=(layers, 4, 5, 2)),
        uv: rng.uniform(-0.4, 1.4, (layers, 6, 8, 2)),
    }
    w = Variable(tex.vtype, (8, 6), layers)
    feeds[w] = rng.normal(size=(layers, 6, 8, 2))
    grads = []
    for mode in ("exact", "inverse_uv"):
        y = F.texture(tex, uv, filter=filter, wrap=wrap, backward=mode, step=step)
        grads.append(build_backward(y * w)[tex])
    (exact,) = evaluate(grads[:1], feeds)
    n = 600
    samples = np.stack([evaluate(grads[1:], {**feeds, step: k})[0] for k in range(n)])
    error = samples.std(axis=0) / np.sqrt(n)
    off = np.abs(samples.mean(axis=0) - exact)
    assert (off <= 5 * error + 1e-9).all(), float((off / (error + 1e-9)).max())
