"""Folding, dissolving and levels: passes that go away because their readers do the work, and stages
that do not grow with the number of views."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.ad import Adam, F, Variable, build_backward, simplify
from dressi.ad.optim import with_states
from dressi.ad.vtype import FLOAT, INT, IVEC3, VEC3
from dressi.packing import PRESETS, Options, check_plan, pack
from dressi.packing.build import Packed
from dressi.packing.limits import LLVMPIPE
from dressi.testing import problems

SIZE = (16, 16)


def packed(*outputs: Variable, options: Options | None = None) -> Packed:
    result = pack(simplify(outputs), [], LLVMPIPE, options)
    check_plan(result.plan, LLVMPIPE)
    return result


def ops(p: Packed) -> list[list[str]]:
    """Op names of each stage."""
    return [[f.split()[0] for s in stage.substages for f in s.functions] for stage in p.plan.stages]


def test_a_sum_over_layers_computes_what_it_adds() -> None:
    """|[mul sin 16x16 x5]| -> |[sum_layers 16x16]| is one pass."""
    x = Variable(VEC3, SIZE, 5, name="x")
    p = packed(F.sum_layers(F.sin(x) * 2.0) + 1.0)
    assert ops(p) == [["sin", "mul", "sum_layers", "add"]]
    assert p.plan.stages[0].substages[0].fragment.count("sin(") == 1
    apart = packed(F.sum_layers(F.sin(x) * 2.0) + 1.0, options=Options(rematerialize=False))
    assert ops(apart) == [["sin", "mul"], ["sum_layers", "add"]]


def test_a_reduction_takes_in_little_and_never_another_reduction() -> None:
    """A pixel of the reader does the work of 64."""
    x = Variable(FLOAT, (64, 64), name="x")
    assert ops(packed(F.sum(x * x))) == [["mul", "block_sum"], ["block_sum"]]
    long = x
    for _ in range(10):
        long = F.sin(long) + 0.1
    assert ops(packed(F.sum(long)))[1:] == [["block_sum"], ["block_sum"]]


def gathered(n: int, layers: int = 1) -> list[list[str]]:
    """A table that is computed and looked up three times for each of n rows, in dispatches."""
    table = F.sin(Variable(VEC3, (50, 1), layers, name="x")) * 2.0
    index = Variable(IVEC3, (n, 1), name="index")
    rows = [F.lookup(table, F.swizzle(index, k)) for k in "xyz"]
    return ops(packed(rows[0] + rows[1] * rows[2], options=Options(lowering="compute")))


def test_a_dispatch_computes_the_little_that_it_looks_up() -> None:
    """Two functions, three times a row, cost less than a dispatch; not where rows are many."""
    (small,) = gathered(100)
    assert sorted(small)[-2:] == ["swizzle", "swizzle"] and small.count("sin") == 1
    assert len(gathered(2**22 // 6 // 4, layers=4)) == 1
    assert len(gathered(2**22 // 6 // 4 + 1, layers=4)) == 2


def test_a_pass_does_not_compute_what_it_looks_up() -> None:
    table = F.sin(Variable(VEC3, (50, 1), name="x")) * 2.0
    p = packed(F.lookup(table, Variable(INT, (9, 1), name="index")) + 1.0)
    assert len(ops(p)) == 2


def test_what_reads_neighbours_is_not_repeated() -> None:
    """A dispatch whose table itself is looked up, or blurred, is not taken in."""
    x, index = Variable(VEC3, (50, 1), name="x"), Variable(INT, (9, 1), name="index")
    inner = F.lookup(F.image.box_blur(x, 1), index)
    assert len(ops(packed(inner + 1.0, options=Options(lowering="compute")))) == 2


def test_what_two_passes_read_is_not_folded() -> None:
    x = Variable(FLOAT, SIZE, 3, name="x")
    y = F.sin(x)
    p = packed(F.sum_layers(y), F.image.border(y))
    assert sum(row.count("sin") for row in ops(p)) == 1


def test_a_read_of_neighbours_is_not_folded() -> None:
    """It would compute every value five times."""
    p = packed(F.image.border(F.sin(Variable(FLOAT, SIZE, name="x"))))
    assert ops(p) == [["sin"], ["border"]]


def test_outputs_are_not_folded() -> None:
    x = Variable(FLOAT, SIZE, 3, name="x")
    y = F.sin(x)
    p = packed(F.sum_layers(y), y)
    assert len(p.plan.stages) == 2 and len(p.images) >= 2


def test_the_gather_of_a_gradient_computes_what_it_adds() -> None:
    """Backward of a lookup with a static index: the gradient at the faces is not stored."""
    table, faces = Variable(VEC3, (40, 1), requires_grad=True), Variable(IVEC3, (70, 1))
    corner = F.lookup(table, faces.x)
    loss = F.sin(corner) * 3.0
    p = packed(build_backward(loss)[table])
    assert ["csr_gather" in row for row in ops(p)] == [True]


def test_components_of_a_table_are_taken_where_they_are_read() -> None:
    """No pass of its own for |[swizzle swizzle swizzle]|, whose readers have 6 layers."""
    faces = Variable(IVEC3, (40, 1), name="faces")
    table = Variable(VEC3, (30, 1), 6, name="table")
    p = packed(*(F.lookup(table, faces.x) + F.lookup(table, faces.y) for _ in range(1)))
    assert len(p.plan.stages) == 1


def test_a_producer_for_a_later_pass_does_not_wait_for_an_earlier_one() -> None:
    """b is gathered by the last pass. Packed with the second one, to which it has more edges, it
    would make three passes of two."""
    x, i = Variable(FLOAT, (40, 1), name="x"), Variable(INT, (40, 1), name="i")
    a, b = F.sin(x), F.cos(x)
    second = F.lookup(a, F.dynamic(i)) + b
    last = F.lookup(b, F.dynamic(i)) + F.lookup(a, F.dynamic(i)) * second
    assert len(packed(last).plan.stages) == 2


def _stages(preset: str, K: int, lowering: str = "graphics") -> list[int]:
    """Stages of the pear's step (silhouettes, Laplacian, normal consistency, Adam) with 1, 2, 6 and
    8 views."""
    mesh, stages = problems.sphere(1280), []
    for views in (1, 2, 6, 8):
        problem = problems.silhouette_problem(
            mesh,
            problems.view_matrices(views),
            np.zeros((views, 256, 256, 1), np.float32),
            K,
            bend=0.01,
        )
        outputs, updates = problem.graph()
        plan = pack(outputs, updates, PRESETS[preset], Options(lowering=lowering)).plan
        check_plan(plan, PRESETS[preset])
        stages.append(len(plan.stages))
    return stages


@pytest.mark.parametrize("preset", ["llvmpipe", "nvidia"])
@pytest.mark.parametrize("K", [1, 3])
def test_views_add_no_stages(K: int, preset: str) -> None:
    stages = _stages(preset, K)
    assert max(stages[1:]) <= stages[0], stages


@pytest.mark.parametrize("K", [1, 3])
def test_views_add_two_dispatches(K: int) -> None:
    """What projects the vertices has two readers where the update adds up the gradients of several
    views: both compute it, as the only one does with one view. What faces and pixels have for the
    vertices is gathered view by view, before it is added up."""
    one, *more = _stages("nvidia", K, "compute")
    assert max(more) <= one + 2, (one, more)


def gathered_twice(n: int, layers: int) -> list[list[str]]:
    """Positions on the screens of several views, looked up by faces; and the gradient that faces
    bring back to each, which needs them again, added over the views."""
    table = Variable(VEC3, (50, 1), name="x", requires_grad=True)
    moved = F.sin(table * Variable(VEC3, layers=layers, name="view"))
    index = Variable(INT, (n, 1), name="index")
    rows = F.lookup(moved, index)
    gradient = build_backward(F.dot(rows, rows), [table])[table]
    options = Options(lowering="compute")
    return ops(packed(F.sum_layers(F.image.box_blur(rows, 1)), gradient, options=options))


def test_two_readers_may_each_compute_what_they_read() -> None:
    few, many = gathered_twice(100, 1), gathered_twice(100, 2)
    assert len(few) == len(many), (few, many)
    assert not any(set(row) <= {"mul", "sin", "cos"} for row in many), many


def test_gathers_of_many_views_are_not_left_to_the_pixels_of_their_sum() -> None:
    few, many = gathered_twice(100, 2), gathered_twice(100, 6)
    assert any({"csr_gather", "sum_layers"} <= set(row) for row in few), few
    assert not any({"csr_gather", "sum_layers"} <= set(row) for row in many), many


@pytest.mark.parametrize("preset", ["mali", "minimum"])
def test_on_weak_devices_more_views_add_no_stages(preset: str) -> None:
    """With 4 input attachments, a stack may take two passes more than one view, however high."""
    stages = _stages(preset, 1)
    assert len(set(stages[1:])) == 1 and stages[1] <= stages[0] + 2, stages


def test_what_reads_a_leaf_runs_before_its_update() -> None:
    """The sum of the loss computes its addends from x itself. It runs before the new x is written,
    so nothing needs to be copied."""
    x = Variable(VEC3, (64, 64), requires_grad=True, name="x")
    loss = F.mean(F.dot(x - 1.0, x - 1.0))
    new = Adam(0.1)([x], [build_backward(loss)[x]])
    pairs = with_states([loss], [(x, new[0])])
    made = simplify([loss, *(value for _, value in pairs)])
    updates = [(leaf, value) for (leaf, _), value in zip(pairs, made[1:], strict=True)]
    plan = pack(made[:1], updates, LLVMPIPE).plan
    assert not plan.updates
    written = [
        [plan.images[i].name for s in stage.substages for i in s.outputs] for stage in plan.stages
    ]
    assert ["x" in names for names in written].index(True) > 0


def test_an_update_that_others_need_comes_first_all_the_same() -> None:
    """The loss is of the new x: the old one is copied over at the end."""
    x = Variable(VEC3, (64, 64), name="x")
    new = x * 0.5
    made = simplify([F.image.border(new.x) + x.x, new])
    plan = pack(made[:1], [(x, made[1])], LLVMPIPE).plan
    check_plan(plan, LLVMPIPE)
    assert len(plan.updates) == 1
