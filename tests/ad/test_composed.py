"""Scatters to a table that others gather from go to those others at once: the same sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dressi.ad import F, Variable, build_backward, evaluate, simplify
from dressi.ad.composed import Part, compose_scatters
from dressi.ad.graph import Function, topological
from dressi.ad.vtype import FLOAT, INT, IVEC3, VEC4
from dressi.packing.lower import ACTIVE, READS_OF_ITEM, behind_a_mask, pays_to_compose

N_VERTICES, N_FACES, SIZE = 9, 12, (7, 5)


def graph(layers: int = 1, masked: bool = True, weigh: bool = False) -> tuple[Variable, Variable]:
    """Pixels look up the corners of a face in tables of faces, which look them up in a table of
    vertices; a mask of faces holds gradients back. Returns the vertices and a loss."""
    vertices = Variable(VEC4, (N_VERTICES, 1), layers, requires_grad=True, name="vertices")
    faces = Variable(IVEC3, (N_FACES, 1), name="faces")
    still = Variable(FLOAT, (N_FACES, 1), name="still")
    rows = Variable(INT, SIZE, layers, name="rows")
    total = F.constant(0.0)
    for axis in "xyz":
        corner = F.lookup(vertices, F.swizzle(faces, axis))
        if masked:
            corner = F.where(still, F.stop_gradient(corner), corner)
        if weigh:
            corner = corner * still
        for other in (rows, rows + 1):
            shown = F.lookup(corner, F.dynamic(other))
            total = total + F.sum(F.dot(shown, F.sin(shown)))
    return vertices, total


def feeds(layers: int) -> dict[str, np.ndarray]:
    """Rows of faces and corners of vertices that there are not, too."""
    rng = np.random.default_rng(3)
    return {
        "vertices": rng.normal(size=(layers, 1, N_VERTICES, 4)),
        "faces": rng.integers(-1, N_VERTICES + 1, (1, 1, N_FACES, 3)),
        "still": (rng.uniform(size=(1, 1, N_FACES, 1)) < 0.4).astype(float),
        "rows": rng.integers(-2, N_FACES + 2, (layers, SIZE[1], SIZE[0], 1)),
    }


def ops(outputs: list[Variable]) -> list[str]:
    return [f.op.name for f in topological(outputs)]


def values_of(outputs: list[Variable], layers: int) -> list[np.ndarray]:
    data = feeds(layers)
    leaves = {x.uid: x for f in topological(outputs) for x in f.inputs if x.creator is None}
    given = {v: data[v.name] for v in leaves.values() if v.name in data}
    return evaluate(outputs, given)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("masked", [False, True])
def test_the_gradient_is_the_same_without_a_gather(layers: int, masked: bool) -> None:
    vertices, loss = graph(layers, masked)
    simple = simplify([loss, build_backward(loss)[vertices]])
    composed = simplify(compose_scatters(simple, lambda gather, parts: True))
    assert ops(simple).count("csr_gather") == 3 and ops(simple).count("scatter_add") == 6
    found = ops(composed)
    assert "csr_gather" not in found and "scatter_add" not in found
    assert found.count("scatter_all") == 1  # one buffer
    for a, b in zip(values_of(simple, layers), values_of(composed, layers), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-12)  # float64, another order


def test_what_weighs_the_rows_of_a_table_stays() -> None:
    """A product would be rounded before the sum, not after it."""
    vertices, loss = graph(weigh=True)
    simple = simplify([loss, build_backward(loss)[vertices]])
    composed = compose_scatters(simple, lambda gather, parts: True)
    assert ops(composed).count("csr_gather") == 3


def test_a_fixed_order_stays() -> None:
    table = Variable(VEC4, (N_VERTICES, 1), requires_grad=True)
    faces = Variable(INT, (N_FACES, 1))
    shown = F.lookup(F.lookup(table, faces), Variable(INT, SIZE), scatter="deterministic")
    loss = F.sum(F.dot(shown, shown))
    simple = simplify([build_backward(loss)[table]])
    assert compose_scatters(simple, lambda gather, parts: True) == simple


@pytest.mark.parametrize("image", [(10, 10), (40, 40), (200, 200)])
@pytest.mark.parametrize("masked", [False, True])
def test_it_pays_where_pixels_look_up_fewer_rows_than_are_gathered(
    image: tuple[int, int], masked: bool
) -> None:
    """Pixels count less where a mask says that most of them have no gradient."""
    table = Variable(VEC4, (64, 1), requires_grad=True)
    faces, rows = Variable(INT, (128, 1)), Variable(INT, image)
    shown = F.lookup(F.lookup(table, faces), F.dynamic(rows))
    value = F.dot(shown, shown)
    for _ in range(20):
        value = F.sin(value)
    loss = F.sum(F.where(Variable(FLOAT, image), value, 0.0) if masked else value)
    chosen: list[bool] = []

    def pays(gather: Function, parts: Sequence[Part]) -> bool:
        assert [behind_a_mask([p.scatter]) for p in parts] == [masked]
        chosen.append(pays_to_compose(gather, parts))
        return chosen[-1]

    compose_scatters(simplify([build_backward(loss)[table]]), pays)
    n = image[0] * image[1] * (ACTIVE if masked else 1)
    assert chosen == [n < READS_OF_ITEM * 128]


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("beside", [False, True])
def test_scatters_beside_each_other_are_one(layers: int, beside: bool) -> None:
    """Of pixels of one size; those of others, and those in a fixed order, stay by themselves."""
    vertices = Variable(VEC4, (N_VERTICES, 1), layers, requires_grad=True, name="vertices")
    rows = Variable(INT, SIZE, layers, name="rows")
    few = Variable(INT, (3, 1), name="few")
    total = F.constant(0.0)
    for index in (rows, rows + 1, few, rows * 2):
        way = "deterministic" if index.creator and index.creator.op.name == "mul" else "exact"
        shown = F.lookup(vertices, F.dynamic(index), scatter=way)
        total = total + F.sum(F.dot(shown, F.sin(shown)))
    simple = simplify([total, build_backward(total)[vertices]])
    asked: list[int] = []

    def answer(scatters: Sequence[Function]) -> bool:
        asked.append(len(scatters))
        return beside

    composed = simplify(compose_scatters(simple, lambda gather, parts: True, answer))
    assert asked == [2]
    assert ops(simple).count("scatter_add") == 4
    assert ops(composed).count("scatter_add") == (2 if beside else 4)
    assert ops(composed).count("scatter_all") == (1 if beside else 0)
    data = {**feeds(layers), "few": np.array([0, 5, 5]).reshape(1, 1, 3, 1)}
    given = {v: data[v.name] for v in (vertices, rows, few)}
    for a, b in zip(evaluate(simple, given), evaluate(composed, given), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("masks", [0, 1, 2])
def test_scatters_lie_beside_each_other_behind_one_mask(masks: int) -> None:
    """Then one pass makes them, or nobody knows."""
    table = Variable(VEC4, (64, 1), requires_grad=True)
    total = F.constant(0.0)
    mask = Variable(FLOAT, (40, 40))
    for k in range(2):
        shown = F.lookup(table, F.dynamic(Variable(INT, (40, 40))))
        value = F.dot(shown, shown)
        for _ in range(20):
            value = F.sin(value)
        if masks:
            value = F.where(mask if masks == 1 or k else Variable(FLOAT, (40, 40)), value, 0.0)
        total = total + F.sum(value)
    found = topological(simplify([build_backward(total)[table]]))
    scatters = [f for f in found if f.op.name == "scatter_add"]
    assert len(scatters) == 2
    assert behind_a_mask(scatters) == (masks == 1)
