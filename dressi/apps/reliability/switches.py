"""R8: switches of packing, forced limits and the cache never change a result. Random graphs,
forward and gradient, run with the defaults and with each of ``dressi.testing.switches``, on one
device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from dressi.ad import SGD
from dressi.apps.reliability.processes import shared_out
from dressi.apps.reliability.row import Row, below
from dressi.engine import DressiAD
from dressi.packing import Options
from dressi.testing.switches import (
    GROUPS,
    N_GRAPHS,
    SAME,
    Configuration,
    seeds_of,
    stepped,
    values,
    worst,
)

SMALL_GRAPHS = 3
N_STEPPED, SMALL_STEPPED = 60, 1


def switched(seeds: Sequence[int], device: str | None) -> dict[str, tuple[float, int]]:
    """Return the worst difference of some graphs, and the number of cases, for each group of
    configurations."""
    with DressiAD(device) as ad:
        usual = {seed: values(ad, seed) for seed in seeds}
    found = {}
    for group, configurations in GROUPS.items():
        off, cases = 0.0, 0
        for k, configuration in enumerate(configurations.values()):
            mine = seeds_of(k, len(configurations), seeds)
            if not mine:
                continue
            with configuration.engine(device) as ad:
                for seed in mine:
                    off, cases = max(off, worst(values(ad, seed), usual[seed])), cases + 1
        found[group] = off, cases
    return found


def cached_steps(device: str | None, seeds: Iterable[int]) -> tuple[float, int]:
    """Return the largest difference that the cache makes, and in how many graphs it did something.
    Plain gradient descent: Adam divides small gradients by their own size, and with it their
    rounding."""
    off, used = 0.0, 0
    with DressiAD(device) as ad, Configuration(Options(cache=False)).engine(device) as plain:
        for seed in seeds:
            got = stepped(ad, seed, SGD(1e-2))
            if "static" in ad.plans:
                used += 1
                off = max(off, worst(got, stepped(plain, seed, SGD(1e-2))))
    return off, used


def measure(device: str | None, small: bool) -> Iterator[Row]:
    """Yield the worst difference of each group of configurations, and of the cache."""
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
