"""Every op in shaders of its own, in passes and in dispatches, at sizes of 1 to 9 pixels: what a
compiler of shaders gets wrong may show only there. (NVIDIA's made zeros of ``F.flip`` alone in a
fragment shader, and only of axes of 2 to 8 pixels.)

In: names of ops, a device. Out: the errors of each. Used by ``dressi doctor``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from dressi.ad import Variable, build_backward, evaluate
from dressi.ad.registry import ANY, FRAG, OPS, Case
from dressi.engine import DressiAD
from dressi.kinds import Lowering
from dressi.packing import Options
from dressi.testing.cases import (
    Config,
    differentiable,
    instance,
    projected,
    seed_of,
    small_configs,
    weights_like,
)

LOWERINGS: tuple[Lowering, ...] = ("graphics", "compute")
AT_ONE_PIXEL = ((1, 1), (3, 7))
"""Sizes of what reads the pixel that it makes only: its text is the same at all of them."""
CASES = 3
"""Of one op: the others call the same row with other arguments."""
GRADIENT_EACH = 5
"""Sizes of which one has its gradients computed: of ops that have rows of their own here too."""


@dataclass(frozen=True)
class Check:
    """One value of one graph, beside the reference. limit: the largest error that is right."""

    where: str
    limit: float
    got: np.ndarray
    want: np.ndarray


def engines(device: str | int | None) -> dict[str, DressiAD]:
    """Return one engine for passes, one for dispatches; each Function becomes a shader."""
    return {
        lowering: DressiAD(
            device, options=Options(lowering=lowering, pack_substages=False, rematerialize=False)
        )
        for lowering in LOWERINGS
    }


def checks_of(
    ads: Mapping[str, DressiAD], name: str, limit_of: Callable[[Case], float]
) -> Iterator[Check]:
    """Yield the values of an op and their gradients, at small sizes, in passes and in dispatches.
    Raises what the engines raise."""
    feeds: dict[Variable, np.ndarray] = {}
    asked: list[tuple[str, float, Variable]] = []
    for k, case in enumerate(OPS[name].cases[:CASES]):
        for i, config in enumerate(_configs(name, k, case)):
            values, mine = values_of(name, k, case, config, gradient=i % GRADIENT_EACH == 1)
            feeds |= mine
            for what, v in values.items():
                asked.append((f"case {k}, {config.text}, {what}", limit_of(case), v))
    outputs = [v for *_, v in asked]

    def run(ad: DressiAD) -> list[np.ndarray]:
        for v, data in feeds.items():
            ad.send_img(v, data)
        return ad.recv_imgs(outputs)

    with ThreadPoolExecutor(len(ads)) as pool:
        found = {lowering: pool.submit(run, ad) for lowering, ad in ads.items()}
        want = evaluate(outputs, feeds)
        for lowering, got in found.items():
            for (where, limit, _), a, b in zip(asked, got.result(), want, strict=True):
                yield Check(f"alone, {lowering}, {where}", limit, a, b)


def _configs(name: str, k: int, case: Case) -> Iterator[Config]:
    if _moves(name):
        yield from small_configs(name, k, case)
    else:
        yield from small_configs(name, k, case, AT_ONE_PIXEL)


def _moves(name: str) -> bool:
    """Return whether an op reads or writes other pixels than the one it makes."""
    op = OPS[name]
    return op.kind != FRAG or op.scatter is not None or ANY in op.reads


def values_of(
    name: str, k: int, case: Case, config: Config, gradient: bool = True
) -> tuple[dict[str, Variable], dict[Variable, np.ndarray]]:
    """Return what is computed of a case, and the data for it. gradient: where it has one, that
    too."""
    made = instance(name, k, case, config)
    feeds: dict[Variable, np.ndarray] = dict(made.feeds)
    values = {"forward": made.output}
    if case.gradient and gradient:
        rng = np.random.default_rng(seed_of(name, k, config.text, "upstream"))
        w, feeds[w] = weights_like(made.output, rng)
        grads = build_backward(projected(made.output, w), differentiable(made.inputs))
        values |= {f"gradient to input {i}": g for i, g in enumerate(grads.values())}
    return values, feeds
