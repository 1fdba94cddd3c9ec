"""Random programs, shrunk when they fail: the float64 tape of another make, the simplified graph
and every plan agree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dressi import DressiAD, Options
from dressi.ad import build_backward, evaluate, simplify
from dressi.packing import check_plan, pack
from dressi.packing.limits import LLVMPIPE, MINIMUM, NVIDIA
from dressi.testing.programs import N_LOSSES, build, random_program, run
from dressi.testing.tape import Tape

SEEDS = st.integers(0, 1 << 20)
SIZES = st.integers(1, 8)
LOSSES = st.integers(0, N_LOSSES - 1)


def close(got: np.ndarray, want: np.ndarray, tolerance: float) -> bool:
    scale = max(1.0, float(np.abs(want).max(initial=0.0)))
    return bool(np.abs(np.asarray(got).reshape(want.shape) - want).max() <= tolerance * scale)


@given(SEEDS, SIZES, LOSSES)
def test_values_and_gradients_are_the_tapes_simplified_or_not(
    seed: int, n_ops: int, at: int
) -> None:
    program = random_program(seed, n_ops)
    graph, data = build(program), program.data(seed)
    for leaf in graph.leaves.values():
        leaf.requires_grad = True
    loss = graph.losses[at]
    gradients = build_backward(loss)
    names = [n for n, leaf in graph.leaves.items() if leaf in gradients]
    outputs = [loss, *(gradients[graph.leaves[n]] for n in names)]
    feeds = {leaf: data[n] for n, leaf in graph.leaves.items()} | {graph.index: program.index}
    ran = run(program, data, tape := Tape())
    found = tape.gradients(ran.losses[at], [ran.leaves[n] for n in names])
    want = [ran.losses[at].value, *found]
    # Constants are folded in float32, as a device has them.
    for form, tolerance in ((outputs, 1e-9), (simplify(outputs), 1e-6)):
        got = evaluate(form, feeds)
        for a, b in zip(got, want, strict=True):
            assert close(np.broadcast_to(a, b.shape), b, tolerance)


@given(SEEDS, SIZES, st.sampled_from([MINIMUM, LLVMPIPE, NVIDIA]), st.booleans())
def test_plans_keep_the_limits_of_the_device(
    seed: int, n_ops: int, limits: object, packed: bool
) -> None:
    graph = build(random_program(seed, n_ops))
    outputs = simplify(graph.losses)
    options = Options() if packed else Options.baseline()
    made = pack(outputs, [], limits, options)
    check_plan(made.plan, limits)
    assert all(len(made.images[v.uid]) == v.vtype.n_planes for v in outputs)


@pytest.mark.gpu
@settings(max_examples=8)
@given(SEEDS, st.integers(1, 4), st.sampled_from(["graphics", "compute"]), st.booleans())
def test_an_engine_computes_what_the_tape_does(
    seed: int, n_ops: int, lowering: str, packed: bool
) -> None:
    program = random_program(seed, n_ops)
    graph, data = build(program), program.data(seed)
    options = Options(
        lowering=lowering, pack_substages=packed, rematerialize=packed, merge_duplicates=packed
    )
    with DressiAD(options=options) as ad:
        ad.send_img(graph.index, program.index)
        for name, leaf in graph.leaves.items():
            ad.send_img(leaf, data[name] if leaf.layers > 1 else data[name][0])
        got = ad.recv_imgs(graph.losses)
    ran = run(program, data, Tape())
    for a, node in zip(got, ran.losses, strict=True):
        assert close(a, node.value, 1e-4)
