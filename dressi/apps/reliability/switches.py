"""R8: switches of packing, forced limits and the cache never change a result. Random graphs,
forward and gradient, run the usual way and in others, on one device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial

import numpy as np

from dressi.ad import SGD, F
from dressi.ad.cases import rel
from dressi.ad.graph import leaves
from dressi.ad.optim import Optimizer
from dressi.apps.reliability.processes import shared_out
from dressi.apps.reliability.random_graphs import RandomGraph, random_graph
from dressi.apps.reliability.row import Row, below
from dressi.engine import DressiAD
from dressi.packing import Options

N_GRAPHS, SMALL_GRAPHS = 216, 3
N_STEPPED, SMALL_STEPPED = 60, 1
STEPS = 12
"""Enough for both rebuilds of the cache."""
SAME = 1e-6
"""Relative L2 difference between two ways to run a graph."""
LEAST = 1e-7
"""Where all numbers are smaller, the difference is absolute: float32 cannot tell them from 0."""


@dataclass(frozen=True)
class Way:
    """How an engine runs graphs."""

    options: Options = field(default_factory=Options)
    limits: dict[str, int | bool] | None = None

    def engine(self, device: str | None = None) -> DressiAD:
        return DressiAD(device, self.options, limits=self.limits)


# The cache acts on steps only: see ``stepped``.
SWITCHES: dict[str, Way] = {
    **{
        f"{f.name} {'off' if f.default else 'on'}": Way(
            replace(Options(), **{f.name: not f.default})  # type: ignore[arg-type]
        )
        for f in fields(Options)
        if isinstance(f.default, bool) and f.name != "cache"
    },
    "one function a pass": Way(Options.baseline()),
}
LIMITS: dict[str, Way] = {
    **{
        f"{inputs} input attachments, {outputs} colour outputs": Way(
            limits={"input_attachments": inputs, "color_outputs": outputs}
        )
        for inputs in (1, 4, 8, 1 << 20)
        for outputs in (4, 8)
    },
    "1 input attachment, one function a pass": Way(Options.baseline(), {"input_attachments": 1}),
    "no fragment stores": Way(limits={"fragment_stores": False}),
    "no float atomics": Way(limits={"float_atomics": False}),
    "no uniforms": Way(limits={"uniform_slots": 0}),
    "no linear filtering": Way(limits={"linear_float32": False}),
}
LOWERINGS: dict[str, Way] = {
    "dispatches": Way(Options(lowering="compute")),
    "dispatches, 4 storage images": Way(Options(lowering="compute"), {"storage_images": 4}),
    "one function a dispatch": Way(replace(Options.baseline(), lowering="compute")),
    "fragments": Way(Options(lowering="graphics")),
}
GROUPS = {
    "packing switches": SWITCHES,
    "forced limits": LIMITS,
    "fragment against compute": LOWERINGS,
}


def graph_of(seed: int) -> RandomGraph:
    """Small ones: compiling is what costs time."""
    return random_graph(seed, 3 + seed % 4)


def values(ad: DressiAD, seed: int) -> list[np.ndarray]:
    """Outputs and gradients of the graph of a seed."""
    graph = graph_of(seed)
    for v, data in graph.feeds.items():
        ad.send_img(v, data)
    return ad.recv_imgs([*graph.outputs, *graph.gradients().values()])


def difference(got: np.ndarray, want: np.ndarray) -> float:
    """Relative L2 difference; inf where something is not finite."""
    got, want = np.asarray(got, np.float64).ravel(), np.asarray(want, np.float64).ravel()
    if not np.isfinite(got).all():
        return float("inf")
    if np.abs(want).max(initial=0.0) < LEAST:
        return float(np.linalg.norm(got - want))
    return rel(got, want)


def worst(got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> float:
    """The largest difference of some values."""
    return max(difference(a, b) for a, b in zip(got, want, strict=True))


def seeds_of(way: int, n_ways: int, seeds: Iterable[int]) -> list[int]:
    """Graphs that are run in a way, so that each runs in one way."""
    return [s for s in seeds if s % n_ways == way]


def switched(seeds: Sequence[int], device: str | None) -> dict[str, tuple[float, int]]:
    """The worst difference of some graphs in each group of ways, and the number of cases."""
    with DressiAD(device) as ad:
        usual = {seed: values(ad, seed) for seed in seeds}
    found = {}
    for group, ways in GROUPS.items():
        off, cases = 0.0, 0
        for k, way in enumerate(ways.values()):
            mine = seeds_of(k, len(ways), seeds)
            if not mine:
                continue
            with way.engine(device) as ad:
                for seed in mine:
                    off, cases = max(off, worst(values(ad, seed), usual[seed])), cases + 1
        found[group] = off, cases
    return found


# -- the cache, over steps

OPTIMIZED = (("image0", "uniform"), ("image2",), ("table", "per_layer"))
"""Names of the leaves that are optimized; all others are clean."""


def stepped(ad: DressiAD, seed: int, optimizer: Optimizer) -> list[np.ndarray]:
    """Parameters and loss after steps on some leaves; on the way all clean ones are sent anew."""
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


def cached_steps(device: str | None, seeds: Iterable[int]) -> tuple[float, int]:
    """The largest difference that the cache makes, and in how many graphs it did something. Plain
    gradient descent: Adam divides small gradients by their own size, and with it their rounding."""
    off, used = 0.0, 0
    with DressiAD(device) as ad, Way(Options(cache=False)).engine(device) as plain:
        for seed in seeds:
            got = stepped(ad, seed, SGD(1e-2))
            if "static" in ad.plans:
                used += 1
                off = max(off, worst(got, stepped(plain, seed, SGD(1e-2))))
    return off, used


def measure(device: str | None, small: bool) -> Iterator[Row]:
    """The worst difference of each group of ways, and of the cache."""
    if small:
        shares = [switched(range(SMALL_GRAPHS), device)]
    else:
        # Packing and compiling take the time, in one thread.
        shares = shared_out(partial(switched, device=device), range(N_GRAPHS))
    for group in GROUPS:
        off, cases = max(s[group][0] for s in shares), sum(s[group][1] for s in shares)
        yield below(f"R8 {group}", off, SAME, cases)
    off, used = cached_steps(device, range(SMALL_STEPPED if small else N_STEPPED))
    yield below("R8 cache, steps", off, SAME, used)
