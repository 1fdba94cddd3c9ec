"""Central differences of a graph in float64, and what rounding does to them.

In: outputs, a leaf, data. Out: entry by entry the slope of the summed outputs and its noise, for
``gradcheck``. Differences are taken pixel by pixel, without the terms of the graph's final sums
that do not depend on the leaf, so that what is large and constant takes no digits away. What
rounding does to the rest is measured: the graph is evaluated again with every value off by up to
one unit of its last place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dressi.ad.evaluate import evaluate
from dressi.ad.graph import Variable, topological
from dressi.ad.registry import apply

SMALLER = 4.0
"""The second step is so many times smaller: a smooth loss is then 16 times closer to its slope, and
both together give it up to terms of the fourth power of the step (Richardson)."""
DRAWS = 3
"""Evaluations with random rounding."""
FLOAT64, FLOAT32 = 2.0**-53, 2.0**-24

SUMS = ("add", "sub", "add_n")
LINEAR = (*SUMS, "neg", "sum", "sum_components", "swizzle", "expand")
SCALED = ("mul", "div")
"""Linear in their first input where the second does not depend on the leaf (mul: either)."""

Index = tuple[int, ...]
"""(layer, row, column, component...) of an entry."""
Data = dict[Variable, np.ndarray]


@dataclass(frozen=True)
class Entry:
    """One entry of a leaf: ``index`` = (layer, row, column, component...), the gradient of the
    graph there, the slope of the loss by central differences, and what rounding may have done to
    the slope."""

    index: Index
    gradient: float
    slope: float
    noise: float = 0.0


def varying(outputs: Sequence[Variable], x: Variable) -> list[Variable]:
    """Outputs with the same derivative to a leaf: in the sums that they end in, what does not
    depend on the leaf is multiplied by 0."""
    functions = topological(outputs)
    depends = {x.uid}
    for f in functions:
        if any(i.uid in depends for i in f.inputs):
            depends.add(f.output.uid)
    ends = {v.uid for v in outputs}  # what the outputs are linear in
    for f in reversed(functions):
        if f.output.uid in ends and f.op.name in (*LINEAR, *SCALED):
            ends.update(i.uid for i in f.inputs)
    new: dict[int, Variable] = {}
    for f in functions:
        inside = [i.uid in depends for i in f.inputs]
        if f.output.uid not in ends or not any(inside):
            continue
        if f.op.name in LINEAR:
            inputs = [
                new.get(i.uid, i) if d else i * 0.0 for i, d in zip(f.inputs, inside, strict=True)
            ]
        elif f.op.name in SCALED and sum(inside) == 1 and (inside[0] or f.op.name == "mul"):
            inputs = [new.get(i.uid, i) for i in f.inputs]
        else:
            continue
        new[f.output.uid] = apply(f.op, inputs, **dict(f.attrs))
    return [new.get(v.uid, v) for v in outputs]


def rounding_noise(
    outputs: Sequence[Variable], data: Data, unit: float, rng: np.random.Generator
) -> list[np.ndarray]:
    """How far values of the outputs go where each Function's result is off by up to a unit of its
    last place, pixel by pixel: the median of a few draws, so that a pixel that changes sides does
    not count. unit: FLOAT64, or FLOAT32 as a device computes."""

    def jitter(a: np.ndarray) -> np.ndarray:
        return a * (1.0 + unit * rng.uniform(-1.0, 1.0, a.shape))

    exact = evaluate(outputs, data)
    draws = [evaluate(outputs, data, jitter) for _ in range(DRAWS)]
    off = [[np.abs(a - e) for a, e in zip(d, exact, strict=True)] for d in draws]
    return [np.median([o[k] for o in off], axis=0) + unit * np.abs(e) for k, e in enumerate(exact)]


def slopes_at(
    outputs: Sequence[Variable],
    x: Variable,
    gradient: np.ndarray,
    data: Data,
    eps: float,
    chosen: Iterable[int],
    rng: np.random.Generator,
) -> tuple[list[Entry], list[Entry]]:
    """Entries at which both steps see one slope, and the others: kinks and jumps. chosen: flat
    numbers of entries."""
    base = data[x]
    parts = varying(outputs, x)
    here = evaluate(parts, data)
    rounding = rounding_noise(parts, data, FLOAT64, rng)

    def moved(index: Index, step: float) -> list[np.ndarray]:
        there = base.copy()
        there[index] += step
        return evaluate(parts, {**data, x: there})

    smooth: list[Entry] = []
    kinks: list[Entry] = []
    for flat in chosen:
        index = tuple(int(k) for k in np.unravel_index(flat, base.shape))
        h = eps * max(1.0, abs(float(base[index])))
        slopes, bends, noise = [], [], 0.0
        for step in (h, h / SMALLER):
            up, down = moved(index, step), moved(index, -step)
            slopes.append(_total(up, down) / (2 * step))
            bends.append(abs(_total(up, here) + _total(down, here)) / step)
            noise = _noise(up, down, rounding) / step
        slope = slopes[1] + (slopes[1] - slopes[0]) / (SMALLER**2 - 1)
        entry = Entry(index, float(gradient[index]), slope, 4.0 * noise)
        (smooth if _smooth(slopes, bends, 4.0 * noise) else kinks).append(entry)
    return smooth, kinks


def _total(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> float:
    """Sum of the differences, not difference of the sums."""
    return sum(float((p - q).sum()) for p, q in zip(a, b, strict=True))


def _noise(a: Sequence[np.ndarray], b: Sequence[np.ndarray], noise: Sequence[np.ndarray]) -> float:
    """Sum of the noise of the pixels that differ; of all where none does, for rounding may have
    swallowed the step."""
    changed = [p != q for p, q in zip(a, b, strict=True)]
    if not any(c.any() for c in changed):
        changed = [np.ones_like(c) for c in changed]
    return sum(float(n[c].sum()) for n, c in zip(noise, changed, strict=True))


def _smooth(slopes: list[float], bends: list[float], noise: float) -> bool:
    """Whether both steps see one slope. Bends (difference of the slopes on the two sides) shrink
    with the step where the loss is smooth, and stay where it has a kink. At a minimum the slope is
    small, and the bend is what the steps have to agree against."""
    scale = 1e-3 * max(abs(slopes[0]), abs(slopes[1])) + noise
    kink = bends[1] > scale and bends[1] > 0.6 * bends[0]
    agree = abs(slopes[0] - slopes[1]) <= scale + 1e-3 * bends[0]
    return bool(np.isfinite(slopes).all()) and agree and not kink


def entries_to_check(gradient: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers of the entries to look at, ascending: half of them where the gradient is not 0."""
    n = gradient.size
    if n <= count:
        return np.arange(n)
    busy = np.flatnonzero(gradient)
    first = rng.choice(busy, min(len(busy), (count + 1) // 2), replace=False)
    rest = np.setdiff1d(np.arange(n), first)
    return np.sort(np.concatenate([first, rng.choice(rest, count - len(first), replace=False)]))
