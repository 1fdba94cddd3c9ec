"""Forward mode: every op against central differences and against the reverse mode."""

from __future__ import annotations

import numpy as np
import pytest
from op_cases import (
    all_cases,
    case_id,
    configs,
    differentiable,
    draw,
    instance,
    rel,
    seed_of,
)

from dressi.ad import F, Variable, build_backward, evaluate, simplify
from dressi.ad.graph import topological
from dressi.ad.registry import MACRO, OPS, Case, apply
from dressi.ad.vtype import FLOAT, INT, MAT2, MAT3, VEC2, VEC3
from dressi.errors import GraphError

STEP = 1e-6
NUMERIC = 1e-5  # as for the reverse mode, in test_op_table.py
TRANSPOSED = 1e-9  # <J v, u> against <v, J^T u>: only the order of sums differs

CASES = [c for c in all_cases() if c[2].gradient]

NO_TANGENT = {
    "block_extreme": "what F.max and F.min become after autodiff",
    "dilate": "a maximum over a neighbourhood, declared to have no gradient",
    "max_tap": "what F.dilate becomes",
    "resolve": "takes the nearest fragment's value, declared to have no gradient",
}
"""Ops of floats without a backward whose derivative is not 0: F.jvp refuses them."""


def tangents_of(
    xs: list[Variable], rng: np.random.Generator
) -> tuple[dict[Variable, Variable], dict[Variable, np.ndarray]]:
    """A leaf for the tangent of each Variable, and random data for it."""
    leaves = {x: Variable(x.vtype, x.size, x.layers, name=f"d {x.name}") for x in xs}
    data = {t: draw(t.vtype, -1, 1, (t.size, t.layers), rng) for t in leaves.values()}
    return leaves, data


def numeric(
    y: Variable, feeds: dict[Variable, np.ndarray], along: dict[Variable, np.ndarray]
) -> np.ndarray:
    """Central difference of y when leaves move along the given directions."""
    ends = [
        evaluate([y], {**feeds, **{x: feeds[x] + s * STEP * d for x, d in along.items()}})[0]
        for s in (1, -1)
    ]
    return (ends[0] - ends[1]) / (2 * STEP)


@pytest.mark.parametrize("item", CASES, ids=case_id)
def test_tangent_is_that_of_central_differences(item: tuple[str, int, Case]) -> None:
    for config in configs(*item, large=False):
        made = instance(*item, config)
        rng = np.random.default_rng(seed_of(item[:2], config.text, "tangent"))
        leaves, data = tangents_of(differentiable(made.inputs), rng)
        (ty,) = F.jvp([made.output], leaves)
        y = made.output
        assert (ty.vtype, ty.size, ty.layers) == (y.vtype, y.size, y.layers), config.text
        feeds = {**made.feeds, **data}
        got, lowered = evaluate([ty, *simplify([ty])], feeds)
        assert rel(lowered, got) < 1e-12, config.text
        want = numeric(y, made.feeds, {x: data[t] for x, t in leaves.items()})
        assert rel(got, want) < NUMERIC, f"{config.text}: {rel(got, want):.2e}"


@pytest.mark.parametrize("item", CASES, ids=case_id)
def test_forward_and_reverse_mode_are_transposes(item: tuple[str, int, Case]) -> None:
    """<J v, u> = <v, J^T u>, each input moving alone."""
    for config in configs(*item, large=False):
        made = instance(*item, config)
        y = made.output
        rng = np.random.default_rng(seed_of(item[:2], config.text, "transposed"))
        xs = differentiable(made.inputs)
        leaves, data = tangents_of(xs, rng)
        u = Variable(y.vtype, y.size, y.layers, name="upstream")
        data[u] = draw(u.vtype, -1, 1, (u.size, u.layers), rng)
        inner = apply(OPS["matrix_comp_mul"], (y, u)) if y.vtype.is_matrix else y * u
        loss = F.sum_components(inner) if y.vtype.is_matrix else inner
        grads = build_backward(loss, xs)
        for x in xs:
            (ty,) = F.jvp([y], {x: leaves[x]})
            moved, gradient = evaluate([ty, grads[x]], {**made.feeds, **data})
            terms = moved * data[u]
            off = abs(terms.sum() - (gradient * data[leaves[x]]).sum())
            assert off <= TRANSPOSED * np.abs(terms).sum() + 1e-12, f"{config.text}, {x.label()}"


NO_CASE = {
    "constant",
    "pixel_coord",
    "layer_index",
    "rasterize",
    "dynamic",
    "inverse_uv",
    "inverse_lookup",
}
"""Ops without a case that have no floats to move: none go in, or integers come out."""


def _of_floats(item: tuple[str, int, Case]) -> bool:
    made = instance(*item, next(iter(configs(*item))))
    return bool(differentiable(made.inputs)) and not made.output.vtype.is_int


def test_every_op_of_floats_has_a_backward_or_is_named() -> None:
    """A new op without a backward must be flat, linear, or refused."""
    unnamed = []
    for name, op in OPS.items():
        moves = op.backward is not None or op.flat or op.linear_in
        if moves or name in NO_TANGENT.keys() | NO_CASE:
            continue
        if not op.cases or any(_of_floats((name, k, c)) for k, c in enumerate(op.cases)):
            unnamed.append(name)
    assert unnamed == []


NO_GRADIENT = [
    c for c in all_cases() if not c[2].gradient and c[0] != "stop_gradient" and _of_floats(c)
]


@pytest.mark.parametrize("item", NO_GRADIENT, ids=case_id)
def test_ops_without_a_gradient_are_refused_or_right(item: tuple[str, int, Case]) -> None:
    """Never 0 where the values do move."""
    made = instance(*item, next(iter(configs(*item))))
    rng = np.random.default_rng(seed_of(item[:2], "flat"))
    leaves, data = tangents_of(differentiable(made.inputs), rng)
    try:
        (ty,) = F.jvp([made.output], leaves)
    except GraphError as error:
        assert "has no derivative" in str(error)
        return
    want = numeric(made.output, made.feeds, {x: data[t] for x, t in leaves.items()})
    assert rel(evaluate([ty], {**made.feeds, **data})[0], want) < NUMERIC


FLAT = [name for name, op in OPS.items() if op.flat and name != "stop_gradient"]


@pytest.mark.parametrize("name", FLAT)
def test_flat_ops_are_flat(name: str) -> None:
    x = Variable(FLOAT, (6, 5), name="x")
    rng = np.random.default_rng(1)
    y = F.image.border(F.to_float(F.compare("gt", x, 0.0))) if name == "border" else None
    y = apply(OPS[name], (x, F.constant(0.5))) if y is None else y
    t = Variable(FLOAT, (6, 5))
    feeds = {x: rng.normal(size=(5, 6)), t: rng.normal(size=(5, 6))}
    (ty,) = F.jvp([y], {x: t})
    (got,) = evaluate([ty], feeds)
    assert (got == 0).all() and got.shape == (1, 5, 6, 1)
    assert (numeric(y, {x: feeds[x]}, {x: feeds[t]}) == 0).all()


@pytest.mark.parametrize("name", ["floor", "ceil", "sign"])
def test_steps_have_a_tangent_of_0(name: str) -> None:
    x = Variable(VEC3, (3, 2))
    (ty,) = F.jvp([getattr(F, name)(x)], {x: F.constant([1.0, 2.0, 3.0])})
    assert (evaluate([ty], {x: np.full((2, 3, 3), 0.3)})[0] == 0).all()


def test_what_a_stop_gradient_covers_stands_still() -> None:
    x = Variable(FLOAT, (3, 1))
    (ty,) = F.jvp([x * F.stop_gradient(x * x)], {x: F.constant(1.0)})
    assert np.allclose(evaluate([ty], {x: [1.0, 2.0, 3.0]})[0].ravel(), [1, 4, 9])


def test_a_chain_of_ops_of_several_outputs_and_leaves() -> None:
    """y = sin(a b) + |v|, z = sum(y): as written down by hand."""
    a, b, v = Variable(FLOAT, name="a"), Variable(FLOAT, (4, 3)), Variable(VEC2, (4, 3))
    y = F.sin(a * b) + F.length(v)
    rng = np.random.default_rng(2)
    feeds = {a: 0.7, b: rng.normal(size=(3, 4)), v: rng.normal(size=(3, 4, 2))}
    da, db = Variable(FLOAT), Variable(FLOAT, (4, 3))
    feeds |= {da: -0.4, db: rng.normal(size=(3, 4))}
    ty, tz = evaluate(F.jvp([y, F.sum(y)], {a: da, b: db}), feeds)
    want = np.cos(0.7 * feeds[b]) * (-0.4 * feeds[b] + 0.7 * feeds[db])
    assert np.allclose(ty[0, :, :, 0], want)
    assert np.allclose(tz.ravel(), want.sum())


def test_tangent_of_one_number_serves_every_pixel() -> None:
    x = Variable(FLOAT, (3, 2), 2)
    (ty,) = F.jvp([x * x], {x: F.constant(2.0)})
    data = np.arange(12.0).reshape(2, 2, 3)
    assert np.allclose(evaluate([ty], {x: data})[0][..., 0], 4 * data)


def test_tangent_of_one_number_serves_a_table_that_is_looked_up() -> None:
    table, index = Variable(FLOAT, (5, 1)), Variable(INT, (3, 1))
    (ty,) = F.jvp([F.lookup(table, index)], {table: F.constant(2.0)})
    assert evaluate([ty], {index: [4, 0, -1]})[0].ravel().tolist() == [2, 2, 0]


def test_an_output_that_nothing_moves_gets_0_of_its_shape() -> None:
    x, other = Variable(FLOAT, (3, 1)), Variable(MAT2, (4, 2), 3)
    (ty,) = F.jvp([F.transpose(other)], {x: F.constant(1.0)})
    assert (ty.vtype, ty.size, ty.layers) == (MAT2, (4, 2), 3)
    assert (evaluate([ty], {})[0] == 0).all()


def test_an_output_that_is_what_moves_gets_its_tangent() -> None:
    x, t = Variable(FLOAT, (3, 1)), Variable(FLOAT, (3, 1))
    assert F.jvp(x, {x: t}) == [t]


def test_a_variable_in_the_middle_may_move() -> None:
    """What lies behind it does not count then."""
    x = Variable(FLOAT)
    middle = x * x
    (ty,) = F.jvp([middle * x], {middle: F.constant(1.0)})
    assert evaluate([ty], {x: 3.0})[0].item() == 3.0


def test_result_does_not_hold_the_placeholder_of_the_upstream_gradient() -> None:
    x, t = Variable(VEC3, (4, 4), name="x"), Variable(VEC3, (4, 4), name="t")
    (ty,) = F.jvp([F.normalize(F.exp(x) * x)], {x: t})
    names = {v.name for f in topological([ty]) for v in f.inputs if v.creator is None}
    assert names == {"x", "t"}


def test_graph_grows_linearly_with_the_chain() -> None:
    def length_of(n: int) -> int:
        x = Variable(FLOAT, (2, 2))
        y = x
        for _ in range(n):
            y = F.sin(y)
        return len(topological(F.jvp([y], {x: F.constant(1.0)})))

    assert length_of(1200) - length_of(800) == length_of(800) - length_of(400)


def _moves(y: Variable, x: Variable) -> None:
    F.jvp([y], {x: F.constant(1.0, x.vtype)})


def test_an_op_without_a_derivative_is_named_with_its_line() -> None:
    x = Variable(FLOAT, (8, 8), name="height")
    wide = F.image.dilate(x, 1.0, 4)
    line = wide.line
    with pytest.raises(GraphError) as caught:
        _moves(wide * 2.0, x)
    text = str(caught.value)
    assert text.startswith(f"F.dilate at {line}: has no derivative")
    assert "height FLOAT@8x8" in text


def test_an_op_without_a_derivative_is_no_obstacle_where_it_does_not_matter() -> None:
    x = Variable(FLOAT, (8, 8))
    mask = F.image.dilate(x, 1.0, 4) > 0.5
    (ty,) = F.jvp([x * mask], {x: F.constant(1.0)})
    (got,) = evaluate([ty], {x: np.eye(8)})
    assert set(np.unique(got)) == {0.0, 1.0}
    _moves(x * F.stop_gradient(F.image.dilate(x, 1.0, 4)), x)


def test_floats_that_travel_as_bits_are_refused() -> None:
    """The way back from bits would be the identity, not flat."""
    x = Variable(FLOAT, (8, 8), name="x")
    bits = F.bits.bit_and(F.bits.float_bits(x), 0x7FFFFFFF)
    with pytest.raises(GraphError, match=r"F\.bits_float at .*: has no derivative"):
        _moves(F.bits.bits_float(bits), x)
    _moves(x * F.to_float(F.compare("gt", bits, 0)), x)


def test_integers_and_misfits_are_refused() -> None:
    x, i = Variable(FLOAT, (4, 3)), Variable(INT, (4, 3))
    one = F.constant(1.0)
    bad = [
        lambda: F.jvp([F.to_int(x)], {x: one}),
        lambda: F.jvp([x], {i: one}),
        lambda: F.jvp([x], {x: Variable(FLOAT, (3, 4))}),
        lambda: F.jvp([x], {x: Variable(VEC2, (4, 3))}),
        lambda: F.jvp([x], {x: Variable(FLOAT, (4, 3), 2)}),
        lambda: F.jvp([x], {x: 1.0}),
        lambda: F.jvp([1.0], {x: one}),
    ]
    for k, call in enumerate(bad):
        with pytest.raises(GraphError, match=r"F\.jvp at test_forward\.py:\d+"):
            print(k, call())


# -- of a gradient: second derivatives where the ops of the backward have tangents


def _second(loss: Variable, x: Variable, feeds: dict[Variable, np.ndarray], seed: int) -> float:
    """Relative error of the tangent of a gradient against its central differences."""
    rng = np.random.default_rng(seed)
    g = build_backward(loss, [x])[x]
    t = Variable(x.vtype, x.size, x.layers)
    data = rng.normal(size=feeds[x].shape)
    (tg,) = F.jvp([g], {x: t})
    (got,) = evaluate([tg], {**feeds, t: data})
    return rel(got, numeric(g, feeds, {x: data}))


@pytest.mark.parametrize("static", [True, False])
def test_product_with_the_hessian_through_lookup(static: bool) -> None:
    rng = np.random.default_rng(3)
    x, i = Variable(VEC3, (5, 1)), Variable(INT, (4, 3))
    feeds = {x: rng.normal(size=(1, 1, 5, 3)), i: rng.integers(-1, 5, (1, 3, 4, 1))}
    y = F.lookup(x, i if static else F.dynamic(i))
    assert _second(F.exp(y) * y, x, feeds, 4) < 1e-5


@pytest.mark.parametrize("backward", ["exact", "inverse_uv"])
def test_product_with_the_hessian_through_texture(backward: str) -> None:
    rng = np.random.default_rng(5)
    x, uv = Variable(VEC3, (5, 4)), Variable(VEC2, (7, 6))
    feeds = {x: rng.normal(size=(1, 4, 5, 3)), uv: rng.uniform(0, 1, (1, 6, 7, 2))}
    y = F.texture(x, uv, backward=backward)
    assert _second(F.sin(y) * y, x, feeds, 6) < 1e-5


def test_slope_along_uv_when_the_texture_moves() -> None:
    """d/dtex of d/duv: both the texture and the gradient that arrives at it move."""
    rng = np.random.default_rng(6)
    x, uv, t = Variable(VEC3, (5, 4)), Variable(VEC2, (7, 6)), Variable(VEC3, (5, 4))
    feeds = {x: rng.normal(size=(1, 4, 5, 3)), uv: rng.uniform(0, 1, (1, 6, 7, 2))}
    y = F.texture(x, uv)
    g = build_backward(y * y, [uv])[uv]
    data = rng.normal(size=(1, 4, 5, 3))
    (got,) = evaluate(F.jvp([g], {x: t}), {**feeds, t: data})
    assert rel(got, numeric(g, feeds, {x: data})) < 1e-5


def test_product_with_the_hessian_of_matrices() -> None:
    rng = np.random.default_rng(7)
    m, v = Variable(MAT3), Variable(VEC3, (4, 1))
    feeds = {m: rng.normal(size=(1, 1, 1, 3, 3)), v: rng.normal(size=(1, 1, 4, 3))}
    loss = F.length(m @ (m @ v))
    assert _second(loss, m, feeds, 8) < 1e-5
    assert _second(loss, v, feeds, 9) < 1e-5


def test_curvature_of_sampling_along_uv_is_refused() -> None:
    """The derivative of the slope of a bilinear texture is not among the ops."""
    tex, uv = Variable(FLOAT, (4, 4)), Variable(VEC2, (3, 3))
    y = F.texture(tex, uv)
    g = build_backward(y * y, [uv])[uv]
    with pytest.raises(GraphError, match=r"F\.texture_grad_uv at .*: has no derivative"):
        _moves(g, uv)


def test_lowered_tangents_hold_no_macro() -> None:
    x = Variable(FLOAT, (40, 30))
    (ty,) = F.jvp([F.mean(F.sum(x * x))], {x: F.constant(1.0)})
    assert all(f.op.kind != MACRO for f in topological(simplify([ty])))


# -- whole pipelines


def test_soft_rasterization_forward_and_reverse_are_transposes() -> None:
    """Also against central differences: moving vertices of a soft silhouette, two layers deep."""
    from dressi.testing.scenes import Scene, cube

    scene = Scene("cube", *cube(0.7), size=(20, 16), K=2)
    rng = np.random.default_rng(11)
    t = Variable(scene.pos.vtype, scene.pos.size, scene.pos.layers)
    d = rng.normal(size=evaluate([scene.pos], scene.feeds)[0].shape)
    (moved,) = F.jvp([scene.loss], {scene.pos: t})
    g = build_backward(scene.loss, [scene.pos])[scene.pos]
    a, b = evaluate([moved, g], {**scene.feeds, t: d})
    assert abs(a.sum() - (b * d).sum()) < 1e-9 * (np.abs(b * d).sum())
    assert np.abs(b).max() > 0
