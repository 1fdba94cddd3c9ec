"""Central differences of a graph in float64, and their rounding errors.

In: outputs, a leaf, data. Out: for each entry the slope of the summed outputs and its noise, for
``gradcheck``. Differences are taken pixel by pixel, without the terms of the graph's final sums
that do not depend on the leaf, so that large constants cost no digits. The rounding error of the
rest is measured: the graph is evaluated again with every value off by up to one unit of its last
place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from dressi.ad.evaluate import evaluate
from dressi.ad.graph import Function, Variable, dependents, topological
from dressi.ad.rewrite import Replacements, reapplied, rewrite

SMALLER = 4.0
"""The second step is smaller by this factor: the difference quotient of a smooth loss is then 16
times closer to its slope, and both together give the slope up to terms of the fourth power of the
step (Richardson)."""
DRAWS = 3
"""Evaluations with random rounding."""
JUMP = 1e-4
"""Where rounding changes a pixel by this fraction of the largest value, the centre of the pixel
lies on an edge and changes sides. Its noise is then estimated from its changes at both steps."""
FLOAT64, FLOAT32 = 2.0**-53, 2.0**-24

Index = tuple[int, ...]
"""(layer, row, column, component...) of an entry."""
Data = dict[Variable, np.ndarray]


@dataclass(frozen=True)
class Entry:
    """One entry of a leaf.

    ``index``: (layer, row, column, component...). ``gradient``: of the graph there. ``slope``: of
    the loss by central differences. ``noise``: a bound of the rounding error of the slope.
    """

    index: Index
    gradient: float
    slope: float
    noise: float = 0.0


def varying(outputs: Sequence[Variable], x: Variable) -> list[Variable]:
    """Outputs with the same derivative to a leaf: in the sums that they end in, terms that do not
    depend on the leaf are multiplied by 0."""
    functions = topological(outputs)
    moving = dependents(functions, {x.uid})
    linear = {v.uid for v in outputs}
    """uids of the Variables in which the outputs are linear."""
    for f in reversed(functions):
        if f.output.uid in linear and (f.op.additive or _scales(f)):
            linear.update(i.uid for i in f.inputs)

    def rule(f: Function, new: Replacements) -> Variable:
        moves = [i.uid in moving for i in f.inputs]
        if f.output.uid not in linear or not any(moves):
            return f.output
        if f.op.additive:
            terms = [new(i) if m else i * 0.0 for i, m in zip(f.inputs, moves, strict=True)]
            return reapplied(f, terms)
        scaled = _scales(f) and sum(moves) == 1 and f.op.is_linear_in(f, moves.index(True))
        return reapplied(f, [new(i) for i in f.inputs]) if scaled else f.output

    return rewrite(outputs, rule)


def _scales(f: Function) -> bool:
    """Whether it is a product or quotient, pixel by pixel."""
    return bool(f.op.linear_in) and not f.op.moves


def rounding_noise(
    outputs: Sequence[Variable], data: Data, unit: float, rng: np.random.Generator
) -> list[np.ndarray]:
    """Rounding errors of the outputs, pixel by pixel: by how much they change when each Function's
    result is off by up to a unit of its last place, the median of a few draws. unit: FLOAT64, or
    FLOAT32 as a device computes."""
    exact = evaluate(outputs, data)
    seeds = rng.integers(2**63, size=DRAWS, dtype=np.uint64)
    draws = [evaluate(outputs, data, partial(_rounded, unit=unit, seed=s)) for s in seeds]
    off = [[np.abs(a - e) for a, e in zip(d, exact, strict=True)] for d in draws]
    return [np.median([o[k] for o in off], axis=0) + unit * np.abs(e) for k, e in enumerate(exact)]


def _rounded(f: Function, a: np.ndarray, unit: float, seed: np.uint64) -> np.ndarray:
    """Results of a Function, each off by up to a unit of its last place. Equal numbers are off by
    the same, as after a processor's rounding: faces that share an edge go on sharing it. Whole
    numbers (a count, a mask, a floor) are exact."""
    if f.op.exact:
        return a
    whole = (a == np.rint(a)) & (np.abs(a) < 2.0**24)
    mixed = np.abs(np.asarray(a, np.float64)).view(np.uint64) ^ seed
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # splitmix64
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    off = (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0
    return np.asarray(np.where(whole, a, a * (1.0 + unit * off)))


def slopes_at(
    outputs: Sequence[Variable],
    x: Variable,
    gradient: np.ndarray,
    data: Data,
    eps: float,
    chosen: Iterable[int],
    rng: np.random.Generator,
) -> tuple[list[Entry], list[Entry]]:
    """Entries at which both steps give one slope, and the others: kinks and jumps. gradient: of the
    graph, (layers, H, W, *tail). eps: the larger step, times |x| where that is above 1. chosen:
    flat numbers of entries."""
    base = data[x]
    parts = varying(outputs, x)
    here = evaluate(parts, data)
    noise_here = rounding_noise(parts, data, FLOAT64, rng)
    largest = [float(np.abs(e).max(initial=0.0)) for e in here]

    def moved(index: Index, step: float) -> list[np.ndarray]:
        there = base.copy()
        there[index] += step
        return evaluate(parts, {**data, x: there})

    smooth: list[Entry] = []
    kinks: list[Entry] = []
    for flat in chosen:
        index = tuple(int(k) for k in np.unravel_index(flat, base.shape))
        h = eps * max(1.0, abs(float(base[index])))
        slopes, bends, changes = [], [], []
        for step in (h, h / SMALLER):
            up, down = moved(index, step), moved(index, -step)
            slopes.append(_total(up, down) / (2 * step))
            bends.append(abs(_total(up, here) + _total(down, here)) / step)
            changes.append([a - b for a, b in zip(up, down, strict=True)])
        noise = _noise(changes[0], changes[1], noise_here, largest) / (h / SMALLER)
        slope = slopes[1] + (slopes[1] - slopes[0]) / (SMALLER**2 - 1)
        entry = Entry(index, float(gradient[index]), slope, 4.0 * noise)
        (smooth if _smooth(slopes, bends, 4.0 * noise) else kinks).append(entry)
    return smooth, kinks


def _total(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> float:
    """The sum of the differences, which keeps more digits than the difference of the sums."""
    return sum(float((p - q).sum()) for p, q in zip(a, b, strict=True))


def _noise(
    changes: Sequence[np.ndarray],
    smaller: Sequence[np.ndarray],
    noise: Sequence[np.ndarray],
    largest: Sequence[float],
) -> float:
    """The summed noise of the pixels that differ in the smaller step; of all pixels where none does
    (rounding may have swallowed the step). The noise of a pixel on an edge is at most how far the
    changes at both steps are from one slope."""
    if not any(d.any() for d in smaller):
        return sum(float(n.sum()) for n in noise)
    total = 0.0
    for d, less, n, most in zip(changes, smaller, noise, largest, strict=True):
        mine = np.where(n > JUMP * most, np.minimum(n, np.abs(d / SMALLER - less)), n)
        total += float(mine[less != 0].sum())
    return total


def _smooth(slopes: list[float], bends: list[float], noise: float) -> bool:
    """Whether both steps give one slope. Bends (difference of the slopes on the two sides) shrink
    with the step where the loss is smooth, and stay where it has a kink. At a minimum the slope is
    small, and the bend is what the steps have to agree against."""
    scale = 1e-3 * max(abs(slopes[0]), abs(slopes[1])) + noise
    kink = bends[1] > scale and bends[1] > 0.6 * bends[0]
    agree = abs(slopes[0] - slopes[1]) <= scale + 1e-3 * bends[0]
    return bool(np.isfinite(slopes).all()) and agree and not kink


def entries_to_check(gradient: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Flat numbers of the entries to check, ascending: half of them where the gradient is not 0."""
    n = gradient.size
    if n <= count:
        return np.arange(n)
    nonzero = np.flatnonzero(gradient)
    first = rng.choice(nonzero, min(len(nonzero), (count + 1) // 2), replace=False)
    rest = np.setdiff1d(np.arange(n), first)
    return np.sort(np.concatenate([first, rng.choice(rest, count - len(first), replace=False)]))
