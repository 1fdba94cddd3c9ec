"""Layers of a rasterization: what they hold, and how they are drawn one by one (no device)."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.ad import F, Variable, evaluate, simplify
from dressi.ad.graph import topological
from dressi.ad.peeling import draw_peels, peels
from dressi.ad.vtype import FLOAT, VEC4
from dressi.errors import GraphError

DEPTHS = (0.5, 0.2, 0.9, 0.2, 0.5, 0.7, 0.2 + 2.0**-24, -0.5)
KEPT = (1, 1, 1, 1, 1, 0, 1, 0)


def layered(n: int) -> tuple[list[Variable], list[Variable]]:
    """ids and depths of n layers of faces that cover the picture."""
    corners = [
        F.leaf(np.tile(np.float32([x, y, 0.5, 1]), (len(DEPTHS), 1)), VEC4)
        for x, y in ((-3, -1), (3, -1), (0, 3))
    ]
    tables = [F.leaf(np.float32(t).reshape(-1, 1), FLOAT) for t in (DEPTHS, KEPT)]
    frag = F.rasterize(corners, (4, 3))
    depth, keep = (F.lookup(t, frag) for t in tables)
    return (
        [F.resolve(frag, depth, keep, background=-1, peel=k) for k in range(n)],
        [F.resolve(depth, depth, keep, background=1, peel=k) for k in range(n)],
    )


def test_layers_hold_the_nearest_of_each_depth() -> None:
    """Of equal depths the smallest number; a depth that is a little farther is another layer."""
    ids, depths = layered(5)
    got = evaluate([*ids, *depths], {})
    assert [set(np.unique(a)) for a in got[:5]] == [{1}, {6}, {0}, {2}, {-1}]
    assert np.allclose([a.flat[0] for a in got[5:]], [0.2, 0.2, 0.5, 0.9, 1])


@pytest.mark.parametrize("n", [1, 2, 4])
def test_drawn_one_by_one_they_are_the_same(n: int) -> None:
    ids, depths = layered(n)
    wanted = [*ids, *depths]
    for made in (draw_peels(wanted), simplify(wanted)):
        functions = topological(made)
        assert all(f.attr("peel") == 0 for f in functions if f.op.fragment_exit)
        assert sum(f.op.name == "rasterize" for f in functions) == n
        for a, b in zip(evaluate(made, {}), evaluate(wanted, {}), strict=True):
            assert (a == b).all()


def test_a_depth_that_is_shown_is_not_resolved_again() -> None:
    """The test of the next layer reads what the user asked for."""
    ids, depths = layered(3)
    resolves = [f for f in topological(simplify([*ids, *depths])) if f.op.fragment_exit]
    assert len(resolves) == 6


def test_what_is_nearer_than_the_near_plane_is_on_it() -> None:
    """The depth test clamps: depths below 0 are one layer, of which the first drawn is shown."""
    corners = [
        F.leaf(np.tile(np.float32([x, y, 0.5, 1]), (3, 1)), VEC4)
        for x, y in ((-3, -1), (3, -1), (0, 3))
    ]
    frag = F.rasterize(corners, (4, 3))
    depth = F.lookup(F.leaf(np.float32([[-0.25], [-0.75], [0.5]]), FLOAT), frag)
    ids = [F.resolve(frag, depth, background=-1, peel=k) for k in range(3)]
    for made in (ids, simplify(ids)):
        assert [set(np.unique(a)) for a in evaluate(made, {})] == [{0}, {2}, {-1}]


def test_rasterizations_with_one_layer_are_left_alone() -> None:
    ids, depths = layered(1)
    assert draw_peels([*ids, *depths]) == [*ids, *depths]
    (found,) = peels(layered(4)[0]).values()
    assert found[1] == 4
    many = layered(4)[0]
    assert draw_peels(many, lambda raster, n: n != 4) == many


@pytest.mark.parametrize("peel", [-1, 0.5, "2", None])
def test_layers_are_counted_from_0(peel: object) -> None:
    frag = F.rasterize([Variable(VEC4, (2, 1)) for _ in range(3)], (4, 4))
    with pytest.raises(GraphError, match=r"test_peeling\.py:\d+.*peel"):
        F.resolve(frag, F.to_float(frag), peel=peel)  # type: ignore[arg-type]
