"""200 random graphs under several limits: the plan is valid and complete (R8, without
a device)."""

from __future__ import annotations

import dataclasses

import pytest

from dressi.ad import Variable, simplify
from dressi.ad.graph import Function, topological
from dressi.packing import Options, Packed, check_plan, pack
from dressi.packing.inline import find_inline
from dressi.packing.limits import LLVMPIPE, MINIMUM, NVIDIA, UNLIMITED, DeviceLimits
from dressi.testing.random_graphs import random_graph

SEEDS = range(200)
INPUTS = (1, 4, 8, UNLIMITED)
OUTPUTS = (4, 8)


def _limits(seed: int) -> DeviceLimits:
    """Every combination of input attachments and colour outputs, in turn."""
    n_in, n_out = INPUTS[seed % 4], OUTPUTS[seed // 4 % 2]
    name = f"in{n_in}-out{n_out}"
    if n_in > 8:
        return LLVMPIPE.restrict(
            name=name, input_attachments=n_in, color_outputs=n_out, resources=UNLIMITED
        )
    return LLVMPIPE.restrict(name=name, input_attachments=n_in, color_outputs=n_out)


def packed_graph(
    seed: int, limits: DeviceLimits, options: Options | None = None
) -> tuple[list[Variable], Packed]:
    graph = random_graph(seed)
    grads = graph.gradients()
    leaves = list(grads)
    made = simplify([*graph.outputs, *grads.values()])
    outputs, new = made[: len(graph.outputs)], made[len(graph.outputs) :]
    updates = [
        (x, g) for x, g in zip(leaves, new, strict=True) if g.creator is not None and _in_image(g)
    ]
    return [*outputs, *(g for _, g in updates)], pack(outputs, updates, limits, options)


def _in_image(v: Variable) -> bool:
    return v.creator is not None and v.creator.op.kind != "free" and not v.creator.op.scatter


def check_complete(outputs: list[Variable], packed: Packed) -> None:
    """Each Function that no shader recomputes stands in a substage (in exactly one when nothing is
    rematerialized), behind its inputs."""
    assert packed.task is not None
    seen: dict[int, Function] = {}
    again = packed.task.options.rematerialize
    for s in packed.substages:
        made: set[int] = set(s.computed)
        folded = [u for chain in s.computed.values() for u in chain]
        for f in (f for unit in folded for f in unit.functions):
            assert again or f.uid not in seen, f"{f.where} stands in two substages"
            seen[f.uid] = f
        for f in (f for unit in s.units for f in unit.functions):
            assert f.output.uid not in made, f"{f.where} stands twice in a substage"
            assert again or f.uid not in seen, f"{f.where} stands in two substages"
            for x in f.inputs:
                inline = x.uid in packed.task.inline
                assert x.uid in made or x.uid in s.reads or inline, f"{f.where}: lost {x.label()}"
            made.add(f.output.uid)
            seen[f.uid] = f
    wanted = [*outputs]
    inline = find_inline(wanted, {v.uid for v in packed.uniforms})
    for f in topological(wanted):
        assert f.uid in seen or f.output.uid in inline or f.op.kind == "free", f"{f.where} is lost"
    for v in outputs:
        assert len(packed.images[v.uid]) == v.vtype.n_planes
    assert packed.plan.n_functions >= len(seen)


@pytest.mark.parametrize("seed", SEEDS)
def test_plan_keeps_the_limits_and_loses_nothing(seed: int) -> None:
    limits = _limits(seed)
    outputs, packed = packed_graph(seed, limits)
    check_plan(packed.plan, limits)
    check_complete(outputs, packed)


@pytest.mark.parametrize("seed", range(0, 200, 10))
def test_smallest_device_holds_every_graph(seed: int) -> None:
    outputs, packed = packed_graph(seed, MINIMUM)
    check_plan(packed.plan, MINIMUM)
    check_complete(outputs, packed)


@pytest.mark.parametrize("seed", range(0, 200, 10))
def test_packing_is_the_same_every_time(seed: int) -> None:
    """Generated GLSL does not depend on hash order or on earlier graphs (up to numbers in
    names)."""
    first, second = (packed_graph(seed, LLVMPIPE)[1].plan for _ in range(2))
    assert [(s.kind, s.width, s.height, len(s.substages)) for s in first.stages] == [
        (s.kind, s.width, s.height, len(s.substages)) for s in second.stages
    ]
    assert [b.n_functions for s in first.stages for b in s.substages] == [
        b.n_functions for s in second.stages for b in s.substages
    ]


@pytest.mark.parametrize("seed", range(0, 200, 10))
def test_packing_reduces_passes(seed: int) -> None:
    _, packed = packed_graph(seed, LLVMPIPE)
    _, plain = packed_graph(seed, LLVMPIPE, Options(False, False))
    assert packed.plan.n_substages < plain.plan.n_substages
    assert len(packed.plan.stages) < len(plain.plan.stages)
    assert all(len(s.substages) == 1 for s in plain.plan.stages)


@pytest.mark.parametrize("seed", range(0, 200, 20))
def test_plan_is_frozen_and_can_be_pickled(seed: int) -> None:
    import pickle

    _, packed = packed_graph(seed, LLVMPIPE)
    assert pickle.loads(pickle.dumps(packed.plan)) == packed.plan
    with pytest.raises(dataclasses.FrozenInstanceError):
        packed.plan.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize("first", range(1000, 1100, 20))
def test_larger_graphs_are_written_in_an_order_that_works(first: int) -> None:
    """What is recomputed, dissolved and folded stands before what needs it."""
    for seed in range(first, first + 20):
        graph = random_graph(seed, 20)
        outputs = simplify([*graph.outputs, *graph.gradients().values()])
        for limits in (MINIMUM, NVIDIA):
            packed = pack([v for v in outputs if _in_image(v)], [], limits)
            check_plan(packed.plan, limits)
