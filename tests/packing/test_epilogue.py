"""What follows a sum on its one pixel runs in the dispatch that finishes the sum."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from dressi.ad import F
from dressi.ad.graph import Variable
from dressi.ad.vtype import FLOAT, VEC3
from dressi.packing import Options, check_plan, pack
from dressi.packing.limits import NVIDIA
from dressi.packing.lower import lower
from dressi.packing.plan import Plan

COMPUTE = Options(lowering="compute")


def plan_of(outputs: list[Variable], options: Options = COMPUTE) -> Plan:
    plan = pack(lower(outputs, options, None, NVIDIA), [], NVIDIA, options).plan
    check_plan(plan, NVIDIA)
    return plan


def names(plan: Plan) -> list[list[str]]:
    return [[f.split()[0] for f in s.functions] for st in plan.stages for s in st.substages]


def large(name: str = "x") -> Variable:
    return Variable(FLOAT, (300, 200), name=name)


def small(name: str = "y") -> Variable:
    return Variable(FLOAT, (20, 10), name=name)


def test_what_follows_a_sum_joins_its_last_group() -> None:
    plan = plan_of([F.sqrt(F.sum(large()) * 2.0 + 1.0)])
    assert names(plan) == [["group_sum"], ["group_sum", "mul", "add", "sqrt"]]
    last = plan.stages[-1].substages[0]
    assert last.groups == (1, 1, 1)
    main = last.compute[last.compute.index("void main") :]
    assert main.index("store(") < main.index("if (gl_LocalInvocationIndex == 0u) {")
    assert [b.kind for b in last.bindings if b.kind == "storage"] == ["storage"]  # not the sum


def test_a_sum_that_is_asked_for_is_stored_too() -> None:
    total = F.sum(large())
    plan = plan_of([total, F.exp(total)])
    assert names(plan) == [["group_sum"], ["group_sum", "exp"]]
    kinds = [b.kind for b in plan.stages[-1].substages[0].bindings]
    assert kinds.count("storage") == 2


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_sums_the_later_one_goes_on(order: tuple[int, int]) -> None:
    """The small one takes one dispatch, the large one two, whichever is written first."""
    sums = [F.sum(small()), F.sum(large())]
    plan = plan_of([sums[order[0]] * 2.0 + F.sin(sums[order[1]])])
    made = names(plan)
    assert [n[0] for n in made] == ["group_sum"] * 3 and len(made[-1]) == 4
    (read,) = {len(n) for n in made[:-1]}
    assert read == 1
    sizes = [s.groups[0] for st in plan.stages for s in st.substages]
    assert sizes.index(max(sizes)) < 2 and sizes[-1] == 1


def test_what_needs_the_sum_through_another_dispatch_stays_apart() -> None:
    """The number is read at every pixel of an image, whose sum meets it again."""
    x = large()
    mean = F.mean(x)
    plan = plan_of([F.sum(F.sin(x * mean)) * mean])
    made = names(plan)
    assert sum(n.count("group_sum") for n in made) == 4
    assert made[-1][0] == "group_sum" and "mul" in made[-1]


@pytest.mark.parametrize("change", [{"pack_substages": False}, {"lowering": "graphics"}])
def test_without_packing_or_dispatches_nothing_is_appended(change: dict[str, object]) -> None:
    options = replace(COMPUTE, **change)  # type: ignore[arg-type]
    made = names(plan_of([F.sqrt(F.sum(large()))], options))
    assert ["sqrt"] in made or not any("group_sum" in n for n in made)
    assert all(len(n) == 1 for n in made if "group_sum" in n)


def test_what_reads_other_pixels_is_not_appended() -> None:
    table = Variable(VEC3, (9, 1), name="table")
    row = F.to_int(F.sum(small()))
    made = names(plan_of([F.lookup(table, row)]))
    assert not any("group_sum" in n and "lookup" in n for n in made)


def test_limits_count_what_both_parts_read() -> None:
    """A dispatch of the device reads 5 images: a tail with 6 more does not fit."""
    ones = [Variable(FLOAT, (1, 1), 2, name=f"a{k}") for k in range(6)]
    total = F.sum(large())
    for a in ones:
        total = total + F.split(a)[0] * F.split(a)[1]
    limits = NVIDIA.restrict(sampled_images=5)
    outputs = lower([total], COMPUTE, None, limits)
    plan = pack(outputs, [], limits, COMPUTE).plan
    check_plan(plan, limits)
    for stage in plan.stages:
        for s in stage.substages:
            kinds = [b.kind for b in s.bindings]
            assert kinds.count("texture") + kinds.count("pixel") <= 5


def test_more_sums_in_a_row_than_calls_nest() -> None:
    """An unrolled solver: each number goes on in the sum that it comes from."""
    x, n = small(), 1100
    numbers = []
    for _ in range(n):
        numbers.append(F.sqrt(F.sum(x) * 0.5 + 1.0))
        x = F.sin(x * numbers[-1])
    made = names(plan_of(numbers))
    sums = [m for m in made if "group_sum" in m]
    assert len(sums) == n and all(m[-4:] == ["group_sum", "mul", "add", "sqrt"] for m in sums)
    # The last products are computed where they are read (``fold``), each by the two that read it.
    assert all(set(m) == {"mul", "sin"} for m in made if m not in sums) and len(made) < 2 * n


@pytest.mark.gpu
@pytest.mark.parametrize("views", [1, 3])
def test_values_on_the_device(views: int) -> None:
    from dressi import DressiAD

    rng = np.random.default_rng(3)
    x = Variable(FLOAT, (130, 70), views, name="x")
    y = Variable(VEC3, (33, 1), name="y")
    total = F.sum(x)
    both = F.sqrt(total * 0.5 + F.dot(F.sum(y), F.sum(y)))
    data = {v: rng.uniform(0.1, 1.0, (v.layers, v.size[1], v.size[0], v.vtype.n)) for v in (x, y)}
    s = data[x].sum()
    want = [s, np.sqrt(0.5 * s + (data[y].sum((0, 1, 2)) ** 2).sum()), 2.0 * s - 1.0]
    outputs = [total, both, 2.0 * total - 1.0]
    with DressiAD(options=COMPUTE) as ad:
        for v, a in data.items():
            ad.send_img(v, a.astype(np.float32))
        got = [float(a.reshape(-1)[0]) for a in ad.recv_imgs(outputs)]
    assert np.allclose(got, want, rtol=2e-6)


@pytest.mark.gpu
def test_a_step_whose_count_is_kept_beside_the_loss() -> None:
    """Adam's count is written in the tail, in place, after all have read it."""
    from dressi import Adam, DressiAD

    target = np.linspace(-1, 1, 96 * 64, dtype=np.float32).reshape(64, 96, 1)
    results = []
    for lowering in ("compute", "graphics"):
        x = Variable(FLOAT, (96, 64), requires_grad=True, name="x")
        t = Variable(FLOAT, (96, 64), name="t")
        with DressiAD(options=Options(lowering=lowering)) as ad:
            ad.set_loss_var(F.mean((x - t) * (x - t)) * 3.0)
            ad.set_optimizer(Adam(0.05))
            ad.send_img(x, np.zeros_like(target))
            ad.send_img(t, target)
            ad.exec_steps(7)
            results.append(ad.recv_img(x))
            if lowering == "compute":
                made = [f for st in ad.plan.stages for s in st.substages for f in s.functions]
                tails = [s for st in ad.plan.stages for s in st.substages if "group_sum" in s.name]
                assert re.search("group_sum,.*add", tails[-1].name), made
    assert np.allclose(results[0], results[1], rtol=0, atol=1e-6)
    # Adam moves by its rate a step while signs agree.
    far = np.abs(target) > 0.5
    assert np.allclose(results[0][far], 0.35 * np.sign(target[far]), atol=0.02)


@pytest.mark.gpu
def test_a_sum_that_replaces_a_number_is_written_after_that_was_read() -> None:
    """The sum is the next value of a leaf, in place, and what follows reads the old one."""
    from dressi import DressiAD

    x = Variable(FLOAT, (130, 70), name="x")
    last, change = Variable(FLOAT, name="last"), Variable(FLOAT, name="change")
    last.data, change.data = np.full((1, 1, 1, 1), 7.0), np.zeros((1, 1, 1, 1))
    total = F.sum(x)
    last.update, change.update = total, total - last * 2.0
    with DressiAD(options=COMPUTE) as ad:
        ad.set_loss_var(total + change)
        old = 7.0
        for value in (0.5, 0.25):
            ad.send_img(x, np.full((70, 130, 1), value, np.float32))
            ad.exec_step()
            assert not ad.plan.updates, "written in place"
            new = 130 * 70 * value
            assert float(ad.recv_img(last).item()) == new
            assert float(ad.recv_img(change).item()) == new - 2.0 * old
            old = new
