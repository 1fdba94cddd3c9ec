"""RELIABILITY R8: packing, cache and forced limits never change the result. 200 random graphs,
forward and gradient."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace

import numpy as np
import pytest
from device import run_many
from op_cases import rel

from dressi import Adam, DressiAD, F, Options, Variable, evaluate
from dressi.ad.graph import leaves
from dressi.ad.vtype import FLOAT
from dressi.apps.reliability.random_graphs import RandomGraph, random_graph

pytestmark = pytest.mark.gpu

N_GRAPHS = 200
WITH_ORACLE = range(0, N_GRAPHS, 5)
SAME = 1e-6
"""Relative L2 difference between two ways to run a graph."""
ORACLE = 5e-3


def graph_of(seed: int) -> RandomGraph:
    """Small ones: compiling is what costs time."""
    return random_graph(seed, 3 + seed % 4)


@contextmanager
def engine(
    options: Options | None = None, limits: dict[str, int | bool] | None = None
) -> Iterator[DressiAD]:
    with DressiAD(options=options, limits=limits) as ad:
        yield ad


# The ways that a graph is run beside the usual one; every graph takes the next.
WAYS: dict[str, tuple[Options, dict[str, int | bool]]] = {
    **{
        f"{f.name} {'off' if f.default else 'on'}": (
            replace(Options(), **{f.name: not f.default}),
            {},
        )
        for f in fields(Options)
    },
    "one function a pass": (Options.baseline(), {}),
    "1 input attachment": (Options(), {"input_attachments": 1}),
    "1 input attachment, one function a pass": (Options.baseline(), {"input_attachments": 1}),
    "4 inputs, 4 outputs": (Options(), {"input_attachments": 4, "color_outputs": 4}),
    "8 inputs, 4 outputs": (Options(), {"input_attachments": 8, "color_outputs": 4}),
    "4 inputs, 8 outputs": (Options(), {"input_attachments": 4, "color_outputs": 8}),
    "8 inputs, 8 outputs": (Options(), {"input_attachments": 8, "color_outputs": 8}),
    "any number of inputs": (Options(), {"input_attachments": 1 << 20}),
    "no fragment stores": (Options(), {"fragment_stores": False}),
    "no float atomics": (Options(), {"float_atomics": False}),
    "no uniforms": (Options(), {"uniform_slots": 0}),
    "no linear filtering": (Options(), {"linear_float32": False}),
}
WAYS.pop("cache off")  # acts on steps only: see below


def seeds_of(way: str) -> range:
    return range(list(WAYS).index(way), N_GRAPHS, len(WAYS))


def _values(ad: DressiAD, seed: int) -> list[np.ndarray]:
    graph = graph_of(seed)
    return run_many(ad, [*graph.outputs, *graph.gradients().values()], graph.feeds)


def _same(a: np.ndarray, b: np.ndarray) -> float:
    """Relative L2 difference; absolute where all is less than float32 can tell from 0."""
    return float(np.linalg.norm(a - b)) if np.abs(b).max() < 1e-7 else rel(a, b)


def differences(
    name: str, got: list[np.ndarray], want: list[np.ndarray], allowed: float
) -> list[str]:
    pairs = enumerate(zip(got, want, strict=True))
    return [f"{name}, value {k}: {_same(a, b):.1e}" for k, (a, b) in pairs
            if not _same(a, b) < allowed]  # fmt: skip


@pytest.fixture(scope="module")
def packed_values(ad: DressiAD) -> dict[int, list[np.ndarray]]:
    return {seed: _values(ad, seed) for seed in range(N_GRAPHS)}


def test_packed_graphs_agree_with_float64(packed_values: dict[int, list[np.ndarray]]) -> None:
    wrong = []
    for seed in WITH_ORACLE:
        graph = graph_of(seed)
        wanted = evaluate([*graph.outputs, *graph.gradients().values()], graph.feeds)
        wrong += differences(f"seed {seed}", packed_values[seed], wanted, ORACLE)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("way", WAYS)
def test_result_does_not_depend_on(way: str, packed_values: dict[int, list[np.ndarray]]) -> None:
    options, limits = WAYS[way]
    # The hardware filters textures with 8-bit weights.
    allowed = 1e-2 if "linear_float32" in limits else SAME
    wrong = []
    with engine(options, limits) as ad:
        for seed in seeds_of(way):
            got = _values(ad, seed)
            wrong += differences(f"seed {seed}", got, packed_values[seed], allowed)
    assert not wrong, "\n".join(wrong)


def test_folded_constants_are_what_a_device_computes(ad: DressiAD) -> None:
    a, b, v = F.constant(0.3), F.constant(-1.7), F.constant((0.1, 2.3, -4.5))
    numbers = [a + b, a - b, a * b, a / b, F.abs(b) * a, F.maximum(a, b), v * a + b, F.dot(v, v)]
    numbers += [F.sqrt(a) * b, F.where(a > b, a, b) * 3.0, F.to_float(F.to_int(v)) * b]
    x = Variable(FLOAT, (4, 4))
    outputs = [x * n for n in numbers]
    feeds = {x: np.random.default_rng(0).uniform(-1, 1, (1, 4, 4, 1)).astype(np.float32)}
    with engine(replace(Options(), fold_constants=False)) as plain:
        got, want = run_many(ad, outputs, feeds), run_many(plain, outputs, feeds)
    wrong = differences("constants", got, want, SAME)
    assert not wrong, "\n".join(wrong)


def test_every_graph_is_run_in_a_second_way() -> None:
    assert sorted(s for way in WAYS for s in seeds_of(way)) == list(range(N_GRAPHS))
    assert min(len(seeds_of(way)) for way in WAYS) >= 9


def test_running_again_gives_the_same_bits_where_nothing_is_scattered(ad: DressiAD) -> None:
    graph = graph_of(1)
    first, second = (run_many(ad, graph.outputs[:1], graph.feeds)[0] for _ in range(2))
    assert (first == second).all()


# -- the cache, over steps -------------------------------------------------------------------------

STEPS = 12
"""Enough for both rebuilds."""
OPTIMIZED = (("image0", "uniform"), ("image2",), ("table", "per_layer"))


def stepped(ad: DressiAD, seed: int, optimized: tuple[str, ...]) -> list[np.ndarray]:
    """Parameters and loss after Adam steps on some leaves, with a send of a clean leaf on the
    way; all other leaves are clean."""
    graph = random_graph(seed, 8)
    for v in graph.feeds:
        v.requires_grad = v.name in optimized
        ad.send_img(v, graph.feeds[v])
    loss = graph.loss + F.add_n([F.mean(F.dot(v, v)) for v in graph.feeds if v.requires_grad])
    ad.set_loss_var(loss)
    ad.set_optimizer(Adam(1e-3))
    ad.exec_steps(STEPS)
    still = next(v for v in leaves([loss]) if not v.requires_grad and not v.vtype.is_int)
    ad.send_img(still, graph.feeds[still] * np.float32(0.5))
    ad.exec_steps(2)
    parameters = [v for v in graph.feeds if v.requires_grad]
    return [np.asarray(ad.recv_img(v), np.float64) for v in (*parameters, loss)]


def test_steps_with_the_cache_are_those_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 graphs. Whatever is clean is cut off, worth it or not."""
    for place in ("packing.reactive", "stepper"):
        monkeypatch.setattr(f"dressi.{place}.MIN_GAIN", -100.0)
    monkeypatch.setattr("dressi.packing.reactive.MIN_CLEAN", 1e-9)
    wrong, cached = [], 0
    with engine() as ad, engine(Options(cache=False)) as plain:
        for seed in range(20):
            optimized = OPTIMIZED[seed % 3]
            got = stepped(ad, seed, optimized)
            cached += "static" in ad.plans
            want = stepped(plain, seed, optimized)
            # Adam divides gradients by their size: rounding of those near 0 shows.
            wrong += differences(f"seed {seed}", got, want, 1e-5)
    assert not wrong, "\n".join(wrong)
    assert cached >= 10


def test_leaves_are_named_as_the_test_of_the_cache_thinks() -> None:
    names = {v.name for v in random_graph(0, 3).feeds}
    assert {name for group in OPTIMIZED for name in group} <= names
