"""Configurations of an engine that must not change a result: switches of packing, forced limits,
lowerings, the cache; and random graphs that are run with them, forward and gradient."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from dressi.ad import F
from dressi.ad.graph import leaves
from dressi.ad.optim import Optimizer
from dressi.engine import DressiAD
from dressi.packing import Options
from dressi.testing.cases import rel
from dressi.testing.random_graphs import RandomGraph, random_graph

N_GRAPHS = 272
STEPS = 12
"""Enough for both rebuilds of the cache."""
SAME = 1e-6
"""Relative L2 difference between two configurations that run a graph."""
LEAST = 1e-7
"""Where all numbers are smaller, the difference is absolute: float32 cannot tell them from 0."""


@dataclass(frozen=True)
class Configuration:
    """How an engine runs graphs."""

    options: Options = field(default_factory=Options)
    limits: dict[str, int | bool] | None = None

    def engine(self, device: str | None = None) -> DressiAD:
        return DressiAD(device, self.options, limits=self.limits)


# The cache acts on steps only: see ``stepped``.
SWITCHES: dict[str, Configuration] = {
    **{
        f"{f.name} {'off' if f.default else 'on'}": Configuration(
            replace(Options(), **{f.name: not f.default})  # type: ignore[arg-type]
        )
        for f in fields(Options)
        if isinstance(f.default, bool) and f.name != "cache"
    },
    "one function per pass": Configuration(Options.baseline()),
}
LIMITS: dict[str, Configuration] = {
    **{
        f"{inputs} input attachments, {outputs} colour outputs": Configuration(
            limits={"input_attachments": inputs, "color_outputs": outputs}
        )
        for inputs in (1, 4, 8, 1 << 20)
        for outputs in (4, 8)
    },
    "1 input attachment, one function per pass": Configuration(
        Options.baseline(), {"input_attachments": 1}
    ),
    "no fragment stores": Configuration(limits={"fragment_stores": False}),
    "no float atomics": Configuration(limits={"float_atomics": False}),
    "no uniforms": Configuration(limits={"uniform_slots": 0}),
    "no linear filtering": Configuration(limits={"linear_float32": False}),
}
LOWERINGS: dict[str, Configuration] = {
    "dispatches": Configuration(Options(lowering="compute")),
    "dispatches, 4 storage images": Configuration(
        Options(lowering="compute"), {"storage_images": 4}
    ),
    "one function per dispatch": Configuration(replace(Options.baseline(), lowering="compute")),
    "fragments": Configuration(Options(lowering="graphics")),
}
GROUPS = {
    "packing switches": SWITCHES,
    "forced limits": LIMITS,
    "fragment against compute": LOWERINGS,
}


def graph_of(seed: int) -> RandomGraph:
    """Return the graph of a seed, a small one: compiling is what costs time."""
    return random_graph(seed, 3 + seed % 4)


def values(ad: DressiAD, seed: int) -> list[np.ndarray]:
    """Return the outputs and gradients of the graph of a seed."""
    graph = graph_of(seed)
    for v, data in graph.feeds.items():
        ad.send_img(v, data)
    return ad.recv_imgs([*graph.outputs, *graph.gradients().values()])


def difference(got: np.ndarray, want: np.ndarray) -> float:
    """Return the relative L2 difference; inf where something is not finite."""
    got, want = np.asarray(got, np.float64).ravel(), np.asarray(want, np.float64).ravel()
    if not np.isfinite(got).all():
        return float("inf")
    if np.abs(want).max(initial=0.0) < LEAST:
        return float(np.linalg.norm(got - want))
    return rel(got, want)


def worst(got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> float:
    """Return the largest difference of some values."""
    return max(difference(a, b) for a, b in zip(got, want, strict=True))


def seeds_of(configuration: int, n_configurations: int, seeds: Iterable[int]) -> list[int]:
    """Return the graphs that a configuration runs, so that each runs in one of them."""
    return [s for s in seeds if s % n_configurations == configuration]


# -- the cache, over steps

OPTIMIZED = (("image0", "uniform"), ("image2",), ("table", "per_layer"))
"""Names of the leaves that are optimized; all others are clean."""


def stepped(ad: DressiAD, seed: int, optimizer: Optimizer) -> list[np.ndarray]:
    """Return parameters and loss after steps on some leaves; in between, all clean ones are sent
    anew."""
    graph = random_graph(seed, 8)
    for v, data in graph.feeds.items():
        v.requires_grad = v.name in OPTIMIZED[seed % len(OPTIMIZED)]
        ad.send_img(v, data)
    parameters = [v for v in graph.feeds if v.requires_grad]
    loss = graph.loss + F.add_n([F.mean(F.dot(v, v)) for v in parameters])
    ad.set_loss_var(loss)
    ad.set_optimizer(optimizer)
    ad.exec_steps(STEPS)
    for v in leaves([loss]):
        if not v.requires_grad and not v.vtype.is_int:
            ad.send_img(v, graph.feeds[v] * np.float32(0.5))
    ad.exec_steps(2)
    return [ad.recv_img(v) for v in (*parameters, loss)]
