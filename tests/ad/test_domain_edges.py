"""Domain edges in float64 (R2); the same points run on the device in tests/engine."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.ad import F, Variable, build_backward, evaluate
from dressi.ad.vtype import FLOAT, INT, VEC3
from dressi.testing.domain_edges import (
    EDGES,
    Edge,
    forward_obstacles,
    gradient_obstacles,
    leaf_of,
)

RTOL = 1e-9


@pytest.mark.parametrize("edge", EDGES, ids=lambda e: e.name)
def test_value_and_gradient_are_as_documented(edge: Edge) -> None:
    xs = [leaf_of(v) for v in edge.inputs]
    y = edge.build(*xs)
    grads = build_backward(y, xs)
    feeds = dict(zip(xs, edge.inputs, strict=True))
    (forward,) = evaluate([y], feeds)
    values = [evaluate([grads[x]], feeds)[0] if x in grads else None for x in xs]
    assert forward_obstacles(edge, forward, RTOL) == []
    assert gradient_obstacles(edge, values, RTOL) == []


ALL_ZERO = [e for e in EDGES if e.name != "0 / 0"]


@pytest.mark.parametrize("edge", ALL_ZERO, ids=lambda e: e.name)
def test_zero_upstream_gives_exactly_0_at_the_edges_too(edge: Edge) -> None:
    xs = [leaf_of(v) for v in edge.inputs]
    y = edge.build(*xs)
    w = Variable(y.vtype)
    grads = build_backward(y * w, xs)
    feeds = {**dict(zip(xs, edge.inputs, strict=True)), w: np.zeros(y.vtype.tail)}
    for x, g in grads.items():
        (values,) = evaluate([g], feeds)
        assert (values == 0).all(), f"{x.label()}: {values.ravel()}"


@pytest.mark.parametrize("index", [-1, -5, 4, 1000])
def test_lookup_outside_the_table_gives_0_and_no_gradient(index: int) -> None:
    table, at = Variable(VEC3, (4, 1), requires_grad=True), Variable(INT, (2, 1))
    y = F.lookup(table, at)
    feeds = {table: np.ones((4, 3)), at: [index, 2]}
    value, g = evaluate([y, build_backward(y)[table]], feeds)
    assert (value[0, 0] == [[0, 0, 0], [1, 1, 1]]).all()
    assert (g[0, 0] == [[0] * 3, [0] * 3, [1] * 3, [0] * 3]).all()


def test_lookup_with_a_dynamic_index_outside_the_table_does_the_same() -> None:
    table, at = Variable(FLOAT, (4, 1), requires_grad=True), Variable(INT, (3, 1))
    y = F.lookup(table, F.dynamic(at))
    value, g = evaluate([y, build_backward(y)[table]], {table: [1, 2, 3, 4], at: [-1, 4, 0]})
    assert value.ravel().tolist() == [0, 0, 1]
    assert g.ravel().tolist() == [1, 0, 0, 0]
