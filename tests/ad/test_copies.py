"""Copies and pickles of leaves, graphs and what holds them: never the original's identity."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

from dressi.ad import Adam, F, Variable, evaluate
from dressi.ad.graph import leaves, topological
from dressi.ad.optim import exponential_decay, step_counter
from dressi.ad.vtype import FLOAT, INT, IVEC3, VEC3, VEC4
from dressi.errors import GraphError
from dressi.packing import Options
from dressi.render.raster import neighbor_table
from dressi.render.scene import Mesh

HOWS = [copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))]


def value(v: Variable, feeds: dict | None = None) -> np.ndarray:
    return evaluate([v], feeds or {})[0]


@pytest.mark.parametrize("how", HOWS)
def test_a_copy_of_a_leaf_is_a_new_leaf(how) -> None:
    """The issue: x = 1 and its copy z = 5 gave x + z = 10."""
    x = F.leaf([1.0, 2.0], FLOAT, "x")
    x.requires_grad = True
    z = how(x)
    assert z.uid != x.uid
    assert (z.vtype, z.size, z.layers, z.name, z.requires_grad) == (FLOAT, (2, 1), 1, "x", True)
    np.testing.assert_array_equal(value(x + z).ravel(), [2.0, 4.0])
    np.testing.assert_array_equal(value(x + z, {z: [[5.0], [7.0]]}).ravel(), [6.0, 9.0])
    z.data[:] = 9.0  # nor do they share memory
    np.testing.assert_array_equal(x.data.ravel(), [1.0, 2.0])


@pytest.mark.parametrize("how", HOWS[1:])
def test_leaves_that_are_copied_together_keep_sharing(how) -> None:
    x, y = F.leaf([1.0], FLOAT, "x"), F.leaf([2.0], FLOAT, "y")
    a, b, loss, product = how([x, y, x * y + x, x * y])
    assert {v.uid for v in leaves([loss, product])} == {a.uid, b.uid}
    assert not {x.uid, y.uid} & {a.uid, b.uid}
    assert value(loss, {a: 3.0, b: 5.0}).item() == 18.0
    assert value(product, {a: 3.0, b: 5.0}).item() == 15.0
    assert value(x * y + x).item() == 3.0


def test_deepcopy_keeps_what_computed_variables_share() -> None:
    x = F.leaf([3.0], FLOAT)
    h = F.sin(x)
    h2, y2 = copy.deepcopy((h, h * 2.0))
    assert topological([y2])[0] is h2.creator
    f2 = copy.deepcopy(h.creator)
    assert f2 is not h.creator and f2.output.creator is f2


def test_a_shallow_copy_of_what_is_computed_has_the_same_inputs() -> None:
    x = F.leaf([3.0], FLOAT)
    y = x * x
    z = copy.copy(y)
    assert z.uid != y.uid and z.creator is not y.creator and z.creator.inputs == y.creator.inputs
    assert value(z + y).item() == 18.0


@pytest.mark.parametrize("how", HOWS[1:])
def test_long_graphs_are_copied_without_recursion(how) -> None:
    x = F.leaf([1.0], FLOAT)
    y = x
    for _ in range(3 * sys.getrecursionlimit()):
        y = y + 1.0
    z = how(y)
    assert value(z).item() == 1.0 + 3 * sys.getrecursionlimit()
    assert not {f.uid for f in topological([z])} & {f.uid for f in topological([y])}


@pytest.mark.parametrize("how", HOWS[1:])
def test_state_and_its_update_stay_together(how) -> None:
    """A counter's update reads the counter itself: the copy's must read the copy."""
    t = step_counter()
    for new in (how(t), leaves([how(t.update)])[0], how([t.update, t])[1]):
        assert new.uid != t.uid and leaves([new.update]) == [new]
        assert value(new.update, {new: 7}).item() == 8


@pytest.mark.parametrize("how", HOWS[1:])
def test_derived_leaves_follow_the_copied_source(how) -> None:
    table = F.leaf(np.arange(4.0), FLOAT, "table")
    index = F.leaf(np.array([3, 3, 0]), INT, "index")
    g = F.scatter_add(F.leaf([1.0, 10.0, 100.0], FLOAT), index, table.size)
    near = neighbor_table(F.leaf(np.array([[0, 1, 2], [2, 1, 3]]), IVEC3))
    g2, near2 = how((g, near))
    np.testing.assert_array_equal(value(g2).ravel(), [100.0, 0.0, 0.0, 11.0])
    assert near2.derived.source.uid != near.derived.source.uid
    np.testing.assert_array_equal(value(near2), value(near))


@pytest.mark.parametrize("how", HOWS[1:])
def test_a_rasterization_is_copied_with_its_fragments(how) -> None:
    pos = F.leaf([[-1, -1, 0.5, 1], [3, -1, 0.5, 1], [-1, 3, 0.5, 1]], VEC4)
    corners = [F.lookup(pos, F.leaf([[k]], INT)) for k in range(3)]
    ids = F.rasterize(corners, (4, 4))
    picture = F.resolve(F.to_float(ids) + 2.0, F.to_float(ids) * 0.0 + 0.5)
    new = how(picture)
    np.testing.assert_array_equal(value(new), value(picture))
    rasters = {f.uid for f in topological([picture])} & {f.uid for f in topological([new])}
    assert not rasters and value(new).max() == 2.0


def test_a_pickle_of_another_process_meets_no_leaf_of_this_one() -> None:
    """Both processes count from the same number."""
    code = (
        "import pickle, sys; from dressi.ad import F; from dressi.ad.vtype import FLOAT\n"
        "xs = [F.leaf([float(i)], FLOAT) for i in range(300)]\n"
        "sys.stdout.buffer.write(pickle.dumps(xs))"
    )
    mine = [F.leaf([-1.0], FLOAT) for _ in range(300)]
    run = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    theirs = pickle.loads(run.stdout)
    assert not {v.uid for v in theirs} & {v.uid for v in mine}
    assert value(theirs[299] + mine[0]).item() == 298.0


def test_custom_ops_are_copied_but_not_pickled() -> None:
    twice = F.custom("{y} = 2.0 * {x0};", 0, reference=lambda x: 2 * x, name="twice")
    y = twice(F.leaf([4.0], FLOAT))
    assert value(copy.deepcopy(y)).item() == 8.0
    with pytest.raises(GraphError, match=r"F\.twice at .*: a graph with an op of F\.custom cannot"):
        pickle.dumps(y)


@pytest.mark.parametrize("how", HOWS)
def test_what_holds_variables_or_arrays_is_copied(how) -> None:
    lr = F.leaf([0.5], FLOAT, "lr")
    adam = how(Adam(lr=lr, beta2=0.99))
    assert adam.beta2 == 0.99 and (adam.lr is lr) == (how is copy.copy)
    scheduled = how(Adam(lr=exponential_decay(1.0, 0.1, 10)))
    assert value(scheduled.lr).item() == pytest.approx(1.0)
    assert how(Options(cache=False)) == Options(cache=False)
    mesh = how(Mesh(np.eye(3), np.array([[0, 1, 2]])))
    np.testing.assert_array_equal(mesh.positions, np.eye(3))


@pytest.mark.parametrize("how", HOWS[1:])
def test_gradients_of_a_copy_are_its_own(how) -> None:
    from dressi.ad.autodiff import build_backward

    x = F.leaf([[1.0, 2.0, 3.0]], VEC3, "x")
    x.requires_grad = True
    a, loss = how((x, F.sum(F.dot(x, x))))
    ((leaf, g),) = build_backward(loss).items()
    assert leaf is a
    np.testing.assert_array_equal(value(g, {a: [[2.0, 4.0, 8.0]]}).ravel(), [4.0, 8.0, 16.0])


@pytest.mark.gpu
def test_copies_on_a_device() -> None:
    from dressi.engine import DressiAD
    from dressi.errors import DeviceError

    with DressiAD() as ad:
        x = F.leaf([1.0], FLOAT, "x")
        z = copy.deepcopy(x)
        ad.send_img(z, 5.0)
        assert ad.recv_img(x + z).item() == 6.0
        big = F.leaf(np.ones((8, 8, 1)), FLOAT)
        other = pickle.loads(pickle.dumps(big))
        ad.send_img(other, np.full((8, 8), 5.0))
        assert np.unique(ad.recv_img(big + other)) == 6.0
        for how in HOWS:
            with pytest.raises(DeviceError, match="a DressiAD cannot be copied"):
                how(ad)
