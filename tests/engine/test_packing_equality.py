"""RELIABILITY R8: packing and forced limits never change the result. 20 random graphs, forward and
gradient."""

from __future__ import annotations

import numpy as np
import pytest
from device import run_many
from op_cases import rel
from random_graphs import random_graph

from dressi import DressiAD, Options, evaluate

pytestmark = pytest.mark.gpu

SEEDS = range(20)
OPS = 16
SAME = 1e-6
"""Relative L2 difference between two ways to run a graph."""
ORACLE = 5e-3
NO_PACKING = Options(pack_substages=False, pack_stages=False)

# The seeds of each way; together more than 20 graphs. Compiling is what costs time.
WAYS: dict[str, tuple[Options, dict[str, int | bool], range]] = {
    "one function a pass": (NO_PACKING, {}, range(0, 20, 3)),
    "one subpass a pass": (Options(pack_stages=False), {}, range(1, 20, 3)),
    "1 input attachment": (Options(), {"input_attachments": 1}, range(0, 20, 2)),
    "4 inputs, 4 outputs": (
        Options(),
        {"input_attachments": 4, "color_outputs": 4},
        range(1, 20, 2),
    ),
    "no fragment stores": (Options(), {"fragment_stores": False}, range(0, 20, 5)),
    "no float atomics": (Options(), {"float_atomics": False}, range(1, 20, 5)),
    "no uniforms": (Options(), {"uniform_slots": 0}, range(2, 20, 5)),
    "no linear filtering": (Options(), {"linear_float32": False}, range(3, 20, 5)),
}


def _values(ad: DressiAD, seed: int) -> list[np.ndarray]:
    graph = random_graph(seed, OPS)
    return run_many(ad, [*graph.outputs, *graph.gradients().values()], graph.feeds)


def _same(a: np.ndarray, b: np.ndarray) -> float:
    """Relative L2 difference; absolute where all is less than float32 can tell from 0."""
    return float(np.linalg.norm(a - b)) if np.abs(b).max() < 1e-7 else rel(a, b)


@pytest.fixture(scope="module")
def packed_values(ad: DressiAD) -> dict[int, list[np.ndarray]]:
    return {seed: _values(ad, seed) for seed in SEEDS}


def test_packed_graphs_agree_with_float64(packed_values: dict[int, list[np.ndarray]]) -> None:
    wrong = []
    for seed, values in packed_values.items():
        graph = random_graph(seed, OPS)
        wanted = evaluate([*graph.outputs, *graph.gradients().values()], graph.feeds)
        for k, (a, b) in enumerate(zip(values, wanted, strict=True)):
            if not _same(a, b) < ORACLE:
                wrong.append(f"seed {seed}, value {k}: {_same(a, b):.1e}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("way", WAYS)
def test_result_does_not_depend_on(way: str, packed_values: dict[int, list[np.ndarray]]) -> None:
    options, limits, seeds = WAYS[way]
    # The hardware filters textures with 8-bit weights.
    allowed = 1e-2 if "linear_float32" in limits else SAME
    wrong = []
    with DressiAD(options=options, limits=limits) as ad:
        for seed in seeds:
            for k, (a, b) in enumerate(zip(_values(ad, seed), packed_values[seed], strict=True)):
                if not _same(a, b) < allowed:
                    wrong.append(f"seed {seed}, value {k}: {_same(a, b):.1e}")
    assert not wrong, "\n".join(wrong)


def test_running_again_gives_the_same_bits_where_nothing_is_scattered(ad: DressiAD) -> None:
    graph = random_graph(1, OPS)
    first, second = (run_many(ad, graph.outputs[:1], graph.feeds)[0] for _ in range(2))
    assert (first == second).all()
