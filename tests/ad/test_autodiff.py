"""Reverse mode: which Variables get a gradient, of what shape, and how gradients add up."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.ad import F, Variable, build_backward, evaluate, parameters
from dressi.ad.graph import topological
from dressi.ad.vtype import FLOAT, INT, IVEC3, MAT2, VEC2, VEC3, VType
from dressi.errors import GraphError


def grad(loss: Variable, x: Variable, feeds: dict[Variable, object]) -> np.ndarray:
    return evaluate([build_backward(loss, [x])[x]], feeds)[0]


def test_image_loss_is_seeded_with_1_at_every_pixel() -> None:
    x = Variable(FLOAT, (3, 2), requires_grad=True)
    assert (grad(x * 5.0, x, {x: np.zeros((2, 3))}) == 5).all()


def test_loss_that_is_the_leaf_itself_has_gradient_1() -> None:
    x = Variable(VEC2, (3, 2), 2, requires_grad=True)
    g = grad(x, x, {x: np.zeros((2, 2, 3, 2))})
    assert g.shape == (2, 2, 3, 2) and (g == 1).all()


def test_vector_loss_is_the_sum_of_its_components() -> None:
    x = Variable(FLOAT, requires_grad=True)
    assert grad(x * (1.0, 2.0, 4.0), x, {x: 3.0}).item() == 7


def test_integer_loss_raises() -> None:
    with pytest.raises(GraphError, match="integer"):
        build_backward(Variable(INT, name="ids") + 1)


def test_default_is_every_leaf_that_asks() -> None:
    a = Variable(FLOAT, requires_grad=True, name="a")
    b = Variable(FLOAT, name="b")
    c = Variable(FLOAT, requires_grad=True, name="c")
    loss = c * b + a
    assert parameters(loss) == [a, c]
    assert list(build_backward(loss)) == [a, c]
    assert list(build_backward(loss, [b])) == [b]


def test_variable_that_the_loss_does_not_reach_is_absent() -> None:
    a, b = (Variable(FLOAT, requires_grad=True) for _ in range(2))
    assert list(build_backward(a * 2.0, [a, b])) == [a]


def test_blocked_paths_are_absent() -> None:
    a = Variable(FLOAT, requires_grad=True)
    for blocked in (F.stop_gradient(a), F.floor(a), a > 0.0, F.to_float(F.to_int(a))):
        assert build_backward(blocked * 3.0, [a]) == {}


def test_stop_gradient_blocks_one_path_only() -> None:
    """a --- mul --- loss
    a -stop-/
    """
    a = Variable(FLOAT, requires_grad=True)
    assert grad(a * F.stop_gradient(a), a, {a: 3.0}).item() == 3


def test_diamond_sums_both_paths() -> None:
    """a -- sin --- mul
    a -- exp --/
    """
    a = Variable(FLOAT, requires_grad=True)
    g = grad(F.sin(a) * F.exp(a), a, {a: 0.7}).item()
    assert np.isclose(g, np.exp(0.7) * (np.sin(0.7) + np.cos(0.7)))


def test_intermediate_variables_can_be_asked_for() -> None:
    a = Variable(FLOAT, requires_grad=True)
    b = a * 2.0
    c = b * b
    grads = build_backward(c * 3.0, [b, a])
    values = evaluate([grads[b], grads[a]], {a: 5.0})
    assert [v.item() for v in values] == [60.0, 120.0]


@pytest.mark.parametrize(
    ("size", "layers"), [((1, 1), 1), ((1, 1), 3), ((4, 2), 1), ((4, 2), 3), ((8, 1), 3)]
)
@pytest.mark.parametrize("vtype", [FLOAT, VEC3])
def test_gradient_has_the_shape_of_its_variable_and_sums_over_broadcasts(
    size: tuple[int, int], layers: int, vtype: VType
) -> None:
    """A narrow x against a wide y: 4x2 (or 8x1), 3 layers, VEC3."""
    x = Variable(vtype, size, layers, requires_grad=True)
    wide = Variable(VEC3, (8, 1) if size == (8, 1) else (4, 2), 3)
    data = np.random.default_rng(0).normal(size=(3, wide.size[1], wide.size[0], 3))
    g = grad(x * wide, x, {x: np.ones((layers, size[1], size[0], vtype.n)), wide: data})
    want = data
    if size == (1, 1):
        want = want.sum((1, 2), keepdims=True)
    if layers == 1:
        want = want.sum(0, keepdims=True)
    if vtype is FLOAT:
        want = want.sum(-1, keepdims=True)
    assert g.shape == want.shape and np.allclose(g, want)


@pytest.mark.parametrize("per_layer", [False, True])
@pytest.mark.parametrize(("size", "layers"), [((1, 1), 3), ((5, 3), 1), ((5, 3), 2), ((130, 1), 2)])
def test_gradient_of_a_mean_is_1_over_the_count(
    size: tuple[int, int], layers: int, per_layer: bool
) -> None:
    x = Variable(VEC2, size, layers, requires_grad=True)
    g = grad(F.mean(x, per_layer), x, {x: np.zeros((layers, size[1], size[0], 2))})
    count = size[0] * size[1] * (1 if per_layer else layers)
    assert g.shape == (layers, size[1], size[0], 2) and np.allclose(g, 1 / count)


def test_many_uses_are_added_in_a_tree_of_fan_in_4() -> None:
    """Vulkan guarantees only 4 input attachments."""
    a = Variable(FLOAT, (3, 3), requires_grad=True)
    loss = F.add_n([F.sin(a * float(k)) for k in range(1, 30)])
    (g,) = build_backward(loss).values()
    assert max(len(f.inputs) for f in topological([g])) <= 4
    data = np.linspace(-1, 1, 9).reshape(3, 3)
    want = sum(k * np.cos(k * data) for k in range(1, 30))
    assert np.allclose(evaluate([g], {a: data})[0][0, :, :, 0], want)


def test_lookup_gradient_counts_every_use_of_a_row() -> None:
    table = Variable(VEC2, (4, 1), requires_grad=True)
    index = Variable(INT, (3, 2))
    g = grad(
        F.lookup(table, index), table, {table: np.zeros((4, 2)), index: [[0, 1, 1], [3, 1, -1]]}
    )
    assert g[0, 0, :, 0].tolist() == [1, 3, 0, 1]


def test_static_and_dynamic_index_have_the_same_gradient() -> None:
    rng = np.random.default_rng(1)
    table = Variable(VEC3, (6, 5), 2, requires_grad=True)
    index = Variable(INT, (9, 4))
    w = Variable(VEC3, (9, 4), 2)
    feeds = {
        table: rng.normal(size=(2, 5, 6, 3)),
        index: rng.integers(-1, 30, (4, 9)),
        w: rng.normal(size=(2, 4, 9, 3)),
    }
    a = grad(F.lookup(table, index) * w, table, feeds)
    b = grad(F.lookup(table, F.dynamic(index)) * w, table, feeds)
    assert np.allclose(a, b)


def test_matrix_gradient_has_rows_and_columns_in_place() -> None:
    """loss = (M v) . w: the gradient of M is w v^T."""
    m = Variable(MAT2, requires_grad=True)
    v, w = np.array([1.0, 2.0]), np.array([3.0, 5.0])
    g = grad(F.dot(m @ F.constant(v), F.constant(w)), m, {m: np.zeros((2, 2))})
    assert (g[0, 0, 0] == np.outer(w, v)).all()


def test_gradient_of_a_gradient_can_be_built() -> None:
    """d/dx (d/dx x^3) = 6 x."""
    x = Variable(FLOAT, requires_grad=True)
    first = build_backward(x * x * x, [x])[x]
    assert grad(first, x, {x: 2.0}).item() == 12


def test_reads_through_equal_indices_are_gathered_once() -> None:
    """faces.x made three times is one index: its inverse is shared, and three gathers are one.
    Another component, another size of the table, and a derived index keep theirs."""
    faces = Variable(IVEC3, (3, 1), name="faces")
    table = Variable(VEC2, (4, 1), requires_grad=True)
    short = Variable(VEC2, (3, 1), requires_grad=True)
    reads = [F.lookup(table, faces.x) * float(k + 1) for k in range(3)]
    loss = F.add_n([*reads, F.lookup(table, faces.y) * 10.0, F.lookup(short, faces.z)])
    shifted = F.lookup(table, F.minimum(faces.x + 1, 3))
    gradients = build_backward(loss + shifted * 100.0, [table, short])
    gathers = [f for f in topological(gradients.values()) if f.op.name == "csr_gather"]
    assert len([g for g in gathers if g.output.size == (4, 1)]) == 3  # x, y, and x + 1
    assert len([g for g in gathers if g.output.size == (3, 1)]) == 1
    feeds = {
        faces: np.array([[0, 1, 2], [0, 3, 1], [2, 0, 0]]),
        table: np.ones((4, 2)),
        short: np.ones((3, 2)),
    }
    got, other = evaluate(list(gradients.values()), feeds)
    want = np.zeros(4)
    for x, y in ((0, 1), (0, 3), (2, 0)):
        want[x] += 1 + 2 + 3
        want[y] += 10
        want[min(x + 1, 3)] += 100
    assert (got[0, 0] == want[:, None]).all()
    assert (other[0, 0] == np.ones((3, 1))).all()


@pytest.mark.parametrize("size", [(1, 1), (2, 1), (1, 2), (2, 2), (5, 1), (3, 4)])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_number_that_is_broadcast_gets_the_sum_over_its_pixels(
    size: tuple[int, int], layers: int
) -> None:
    """Images of one or two rows and columns among them."""
    x = Variable(FLOAT, requires_grad=True)
    image = Variable(FLOAT, size, layers)
    data = np.random.default_rng(0).normal(size=(layers, size[1], size[0]))
    g = grad(x * image, x, {x: 2.0, image: data[..., None]})
    assert g.shape == (1, 1, 1, 1)
    assert np.isclose(g.item(), data.sum(), rtol=1e-12)
