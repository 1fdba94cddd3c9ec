"""Compositions of ops against NumPy and central differences, as the ops of the registry are; values
at points that the docstrings name; bad input.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import numpy as np
import pytest
from composed import COMPOSED, Composed
from op_cases import configs, differentiable, instance, projected, rel, seed_of, weights_like

from dressi.ad import F, Variable, build_backward, evaluate, simplify
from dressi.ad.graph import topological
from dressi.ad.vtype import FLOAT, INT, MAT2, MAT3, MAT4, VEC2, VEC3, VEC4, VType
from dressi.errors import GraphError

NUMBERED = list(enumerate(COMPOSED))
WITH_GRADIENT = [c for c in NUMBERED if c[1].case.gradient]
STEP = 1e-6


def _id(item: tuple[int, Composed]) -> str:
    return f"{item[1].name}-{item[0]}"


@pytest.mark.parametrize("item", NUMBERED, ids=_id)
def test_values_are_those_of_numpy_lowered_or_not(item: tuple[int, Composed]) -> None:
    k, c = item
    for config in configs(c.name, k, c.case, large=False):
        made = instance(c.name, k, c.case, config)
        want = c.reference(*(made.feeds[x] for x in made.inputs))
        for y in (made.output, *simplify([made.output])):
            (got,) = evaluate([y], made.feeds)
            assert got.shape == (y.layers, y.size[1], y.size[0], *y.vtype.tail), config.text
            assert rel(got, np.broadcast_to(want, got.shape)) < 1e-12, config.text


@pytest.mark.parametrize("item", WITH_GRADIENT, ids=_id)
def test_gradient_is_that_of_central_differences(item: tuple[int, Composed]) -> None:
    k, c = item
    for config in configs(c.name, k, c.case, large=False):
        made = instance(c.name, k, c.case, config)
        rng = np.random.default_rng(seed_of(c.name, k, config.text, "upstream"))
        w, w_data = weights_like(made.output, rng)
        loss, feeds = projected(made.output, w), {**made.feeds, w: w_data}
        grads = build_backward(loss, differentiable(made.inputs))
        for x in differentiable(made.inputs):
            (g,) = evaluate([grads[x]], feeds)
            numeric, analytic = [], []
            for _ in range(3):
                d = rng.normal(size=feeds[x].shape)
                ends = [
                    evaluate([loss], {**feeds, x: feeds[x] + s * STEP * d})[0].sum()
                    for s in (1, -1)
                ]
                numeric.append((ends[0] - ends[1]) / (2 * STEP))
                analytic.append((g * d).sum())
            assert rel(np.array(analytic), np.array(numeric)) < 1e-5, f"{config.text}, {x.label()}"


@pytest.mark.parametrize("item", WITH_GRADIENT, ids=_id)
def test_zero_upstream_gives_exactly_0(item: tuple[int, Composed]) -> None:
    k, c = item
    made = instance(c.name, k, c.case, next(iter(configs(c.name, k, c.case))))
    w = Variable(made.output.vtype, made.output.size, made.output.layers)
    grads = build_backward(projected(made.output, w), differentiable(made.inputs))
    assert len(grads) == len(differentiable(made.inputs))
    for g in evaluate(list(grads.values()), {**made.feeds, w: np.zeros((1, 1, 1, *w.vtype.tail))}):
        assert (g == 0).all()


NO_GRADIENT = [c for c in NUMBERED if not c[1].case.gradient and c[1].name != "faceforward"]


@pytest.mark.parametrize("item", NO_GRADIENT, ids=_id)
def test_masks_and_integers_pass_no_gradient_on(item: tuple[int, Composed]) -> None:
    k, c = item
    made = instance(c.name, k, c.case, next(iter(configs(c.name, k, c.case))))
    assert build_backward(F.to_float(made.output), differentiable(made.inputs)) == {}


def _grad(y: Variable, x: Variable, feeds: dict[Variable, object]) -> np.ndarray:
    return evaluate([build_backward(y, [x])[x]], feeds)[0].reshape(x.vtype.tail)


def test_faceforward_passes_its_gradient_to_the_normal_only() -> None:
    n, i, r = (Variable(VEC3, requires_grad=True) for _ in range(3))
    y = F.faceforward(n, i, r)
    grads = build_backward(y)
    feeds = {n: [1, 2, 3], i: [0, 0, 1], r: [0, 1, 2]}
    assert set(grads) == {n}
    assert _grad(y, n, feeds).tolist() == [-1, -1, -1]
    assert _grad(y, n, {**feeds, i: [0, 0, -1]}).tolist() == [1, 1, 1]


# -- integers at the points that GLSL leaves open

LOW, HIGH = -(2**31), 2**31 - 1
POINTS: list[tuple[str, Callable[..., Variable], tuple[int, ...], int]] = [
    ("idiv(7, 2)", F.idiv, (7, 2), 3),
    ("idiv(-7, 2)", F.idiv, (-7, 2), -4),
    ("idiv(7, -2)", F.idiv, (7, -2), -4),
    ("idiv(-7, -2)", F.idiv, (-7, -2), 3),
    ("idiv(-8, 2)", F.idiv, (-8, 2), -4),
    ("idiv(5, 0)", F.idiv, (5, 0), 0),
    ("idiv(low, -1)", F.idiv, (LOW, -1), LOW),
    ("idiv(low, high)", F.idiv, (LOW, HIGH), -2),
    ("idiv(high, low)", F.idiv, (HIGH, LOW), -1),
    ("idiv(low, low)", F.idiv, (LOW, LOW), 1),
    ("imod(7, 3)", F.imod, (7, 3), 1),
    ("imod(-7, 3)", F.imod, (-7, 3), 2),
    ("imod(7, -3)", F.imod, (7, -3), -2),
    ("imod(-7, -3)", F.imod, (-7, -3), -1),
    ("imod(-6, 3)", F.imod, (-6, 3), 0),
    ("imod(5, 0)", F.imod, (5, 0), 5),
    ("imod(low, -1)", F.imod, (LOW, -1), 0),
    ("imod(low, high)", F.imod, (LOW, HIGH), HIGH - 1),
    ("imod(high, low)", F.imod, (HIGH, LOW), -1),
    ("bit_and", F.bits.bit_and, (-2, 0b1011), 0b1010),
    ("bit_or", F.bits.bit_or, (0b100, 0b001), 0b101),
    ("bit_xor", F.bits.bit_xor, (-1, 5), -6),
    ("bit_not", F.bits.bit_not, (0,), -1),
    ("1 << 31", F.bits.shift_left, (1, 31), LOW),
    ("3 << 31", F.bits.shift_left, (3, 31), LOW),
    ("1 << 32", F.bits.shift_left, (1, 32), 0),
    ("5 << -1", F.bits.shift_left, (5, -1), 5),
    ("-5 >> 1", F.bits.shift_right, (-5, 1), -3),
    ("-5 >> 40", F.bits.shift_right, (-5, 40), -1),
    ("5 >> -9", F.bits.shift_right, (5, -9), 5),
    ("-1 >>> 28", lambda a, n: F.bits.shift_right(a, n, logical=True), (-1, 28), 15),
    ("-1 >>> 32", lambda a, n: F.bits.shift_right(a, n, logical=True), (-1, 32), 0),
    ("-1 >>> 0", lambda a, n: F.bits.shift_right(a, n, logical=True), (-1, 0), -1),
    ("bit_count(-1)", F.bits.bit_count, (-1,), 32),
    ("bit_count(0)", F.bits.bit_count, (0,), 0),
    ("find_lsb(0)", F.bits.find_lsb, (0,), -1),
    ("find_lsb(low)", F.bits.find_lsb, (LOW,), 31),
    ("find_lsb(12)", F.bits.find_lsb, (12,), 2),
    ("find_msb(0)", F.bits.find_msb, (0,), -1),
    ("find_msb(-1)", F.bits.find_msb, (-1,), 31),
    ("find_msb(12)", F.bits.find_msb, (12,), 3),
    ("abs(-9)", F.abs, (-9,), 9),
    ("sign(-9)", F.sign, (-9,), -1),
    ("bits of 1", lambda a: F.bits.float_bits(F.to_float(a)), (1,), 0x3F800000),
    ("bits of -2", lambda a: F.bits.float_bits(F.to_float(a)), (-2,), 0xC0000000 - 2**32),
    ("float of bits", lambda a: F.to_int(F.bits.bits_float(a)), (0x40400000,), 3),
]


@pytest.mark.parametrize("point", POINTS, ids=lambda p: p[0])
def test_integer_points_are_as_documented(point: tuple) -> None:
    _, build, values, want = point
    xs = [Variable(INT) for _ in values]
    y = build(*xs)
    assert y.vtype is INT
    feeds = dict(zip(xs, values, strict=True))
    constants = build(*(F.constant(v, INT) for v in values))
    for v in (y, constants, *simplify([constants])):
        (got,) = evaluate([v], feeds)
        assert int(got.ravel()[0]) == want


# -- matrices

MATRICES = ((MAT2, 2), (MAT3, 3), (MAT4, 4))


@pytest.mark.parametrize(("t", "n"), MATRICES)
def test_inverse_and_determinant_are_numpys(t: VType, n: int) -> None:
    m = Variable(t, (9, 1))
    data = np.random.default_rng(n).normal(size=(1, 1, 9, n, n))
    d, i = evaluate([F.linalg.determinant(m), F.linalg.inverse(m)], {m: data})
    assert np.allclose(d[..., 0], np.linalg.det(data), rtol=1e-9)
    assert np.allclose(i, np.linalg.inv(data), rtol=1e-8)


@pytest.mark.parametrize(("t", "n"), MATRICES)
@pytest.mark.parametrize("kind", ["zeros", "equal rows", "counted"])
def test_singular_matrices_give_0_and_finite_gradients(t: VType, n: int, kind: str) -> None:
    counted = np.arange(n * n).reshape(n, n) if n > 2 else np.array([[1, 2], [2, 4]])
    data = {"zeros": np.zeros((n, n)), "equal rows": np.ones((n, n)), "counted": counted}[kind]
    m = Variable(t, requires_grad=True)
    y = F.sum_components(F.linalg.inverse(m)) + F.linalg.determinant(m) * 0.0
    inverse, det, g = evaluate(
        [F.linalg.inverse(m), F.linalg.determinant(m), build_backward(y)[m]], {m: data}
    )
    assert (inverse == 0).all() and (det == 0).all() and (g == 0).all()


@pytest.mark.parametrize(("t", "n"), MATRICES)
def test_gradient_of_the_determinant_of_a_singular_matrix_is_its_cofactors(
    t: VType, n: int
) -> None:
    data = np.eye(n)
    data[-1, -1] = 0.0
    m = Variable(t, requires_grad=True)
    want = np.zeros((n, n))
    want[-1, -1] = 1.0
    assert np.array_equal(_grad(F.linalg.determinant(m), m, {m: data}), want)


def test_identity_is_a_constant_of_every_size() -> None:
    for n in (2, 3, 4):
        (got,) = evaluate([F.linalg.identity(n)], {})
        assert np.array_equal(got[0, 0, 0], np.eye(n))
    for bad in (1, 5, 2.5, "3", Variable(INT)):
        with pytest.raises(GraphError):
            F.linalg.identity(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("layers", [1, 2, 3, 5])
def test_matmul_layers_is_the_product_of_the_stack(layers: int) -> None:
    m = Variable(MAT3, (2, 1), layers, requires_grad=True)
    data = np.random.default_rng(layers).normal(size=(layers, 1, 2, 3, 3))
    y = F.linalg.matmul_layers(m)
    want = data[0]
    for k in range(1, layers):
        want = want @ data[k]
    w = np.random.default_rng(9).normal(size=(1, 1, 2, 3, 3))
    weights = Variable(MAT3, (2, 1))
    loss = projected(y, weights)
    feeds = {m: data, weights: w}
    got, g = evaluate([y, build_backward(loss)[m]], feeds)
    assert y.layers == 1 and np.allclose(got[0], want)
    d = np.random.default_rng(1).normal(size=data.shape)
    ends = [evaluate([loss], {**feeds, m: data + s * STEP * d})[0].sum() for s in (1, -1)]
    assert np.isclose((g * d).sum(), (ends[0] - ends[1]) / (2 * STEP), rtol=1e-6)


# -- vectors


def test_component_attributes_read_xyzw_and_rgba() -> None:
    v = Variable(VEC4)
    data = [1.0, 2.0, 3.0, 4.0]
    for name, at in (("r", [0]), ("g", [1]), ("b", [2]), ("a", [3]), ("w", [3]), ("xz", [0, 2])):
        (got,) = evaluate([getattr(v, name)], {v: data})
        assert got.ravel().tolist() == [data[k] for k in at]
    for name, at in (("rgb", [0, 1, 2]), ("zw", [2, 3]), ("yz", [1, 2])):
        (got,) = evaluate([getattr(v, name)], {v: data})
        assert got.ravel().tolist() == [data[k] for k in at]
    (got,) = evaluate([F.swizzle(v, "bgr")], {v: data})
    assert got.ravel().tolist() == [3, 2, 1]
    assert F.swizzle(v, "rgba") is v
    assert v.xy.creator is not None and v.xy.creator.attr("comps") == "xy"


def test_three_equal_components_share_the_gradient_of_their_maximum() -> None:
    for t, n in ((VEC2, 2), (VEC3, 3), (VEC4, 4)):
        x = Variable(t, requires_grad=True)
        for f in (F.max_components, F.min_components):
            g = _grad(f(x), x, {x: [1.5] * n})
            assert g.sum() == 1 and (g > 0).all()


def test_softmax_of_a_hundred_thousand_is_finite_and_shift_free() -> None:
    x = Variable(VEC3)
    a, b, c = evaluate(
        [F.softmax(x), F.softmax(x + 1e5), F.logsumexp(x + 1e5)], {x: [0.0, 1.0, 2.0]}
    )
    assert np.allclose(a, b) and np.isclose(a.sum(), 1)
    assert np.isclose(c, 1e5 + np.log(1 + np.e + np.e**2))


def test_compositions_stay_small() -> None:
    """Functions in the graph: what a user pays for one call at most."""
    a, b = Variable(VEC3), Variable(VEC3)
    for y, most in ((F.norm(a), 2), (F.huber(a), 8), (F.softmax(a), 10), (F.reflect(a, b), 6)):
        assert len(topological([y])) <= most + 3


# -- bad input

v2, v3, f1, i1, m2, m3 = (Variable(t) for t in (VEC2, VEC3, FLOAT, INT, MAT2, MAT3))
BAD: list[Callable[[], object]] = [
    lambda: F.smoothstep(v2, v3, 0.5),
    lambda: F.smoothstep(i1, i1, i1),
    lambda: F.smoothstep(m2, m2, m2),
    lambda: F.refract(v2, v3, 0.5),
    lambda: F.refract(v3, v3, "glass"),
    lambda: F.refract(i1, i1, i1),
    lambda: F.faceforward(v3, v2, v3),
    lambda: F.faceforward(m2, v3, v3),
    lambda: F.with_components(v3, "w", 1.0),
    lambda: F.with_components(v3, "xx", 1.0),
    lambda: F.with_components(v3, "xyx", v3),
    lambda: F.with_components(v3, "xy", v3),
    lambda: F.with_components(v3, "xy", (1.0, 2.0, 3.0)),
    lambda: F.with_components(v3, "x", i1),
    lambda: F.with_components(v3, "x", m2),
    lambda: F.with_components(m2, "x", 1.0),
    lambda: F.with_components(v3, "", 1.0),
    lambda: F.with_components(v3, 0, 1.0),  # type: ignore[arg-type]
    lambda: F.with_components(1.0, "x", 1.0),  # type: ignore[arg-type]
    lambda: F.swizzle(v3, "xg"),
    lambda: F.swizzle(v3, "a"),
    lambda: F.swizzle(v2, "rgb"),
    lambda: F.linalg.from_columns(),
    lambda: F.linalg.from_columns(v3, v3),
    lambda: F.linalg.from_columns(v2, v3),
    lambda: F.linalg.from_columns(i1),
    lambda: F.linalg.from_columns(v2, (1.0, 2.0)),  # type: ignore[arg-type]
    lambda: F.linalg.from_rows(),
    lambda: F.linalg.from_rows(v2),
    lambda: F.linalg.row(m2, 2),
    lambda: F.linalg.row(m2, 0.5),  # type: ignore[arg-type]
    lambda: F.linalg.matmul_layers(v3),
    lambda: F.linalg.matmul_layers(3.0),  # type: ignore[arg-type]
    lambda: F.norm(v3, 3),
    lambda: F.norm(v3, "inf"),  # type: ignore[arg-type]
    lambda: F.safe_normalize(v3, v2),
    lambda: F.huber(v3, v2),
    lambda: F.huber(i1),
    lambda: F.charbonnier(m2),
]


@pytest.mark.parametrize("k", range(len(BAD)))
def test_what_does_not_fit_raises_at_the_users_line(k: int) -> None:
    with pytest.raises(GraphError) as info:
        BAD[k]()
    assert "test_more_ops.py:" in str(info.value), str(info.value)


def test_norm_takes_numbers_of_every_kind_for_its_order() -> None:
    for order in (1, 1.0, 2, 2.0, inf, np.inf, np.float32(1)):
        assert F.norm(v3, order).vtype is FLOAT
