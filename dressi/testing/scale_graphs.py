"""Graphs of any number of Functions, to time the packer on (``dressi bench packing``).

In: a kind, a number. Out: output Variables. Nothing here is meant to be run on a device.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from dressi.ad import F, Variable, build_backward
from dressi.ad.vtype import FLOAT, INT, VEC3
from dressi.errors import GraphError

SIZE = (64, 48)
TABLE = (200, 1)

FUNCTIONS_PER_STEP = 4.6
"""Functions that a step of ``renderer_graph`` makes, its backward included, on the average."""


def chain_graph(n: int) -> list[Variable]:
    """Return a deep chain over one size. Every step takes the value before it and any earlier one,
    so that many values are alive at once and no device holds the whole chain in one shader."""
    rng = random.Random(0)
    values = [Variable(FLOAT, SIZE, name=f"image{k}") for k in range(4)]
    for k in range(n):
        last, other = values[-1], values[rng.randrange(len(values))]
        values.append((F.maximum, F.minimum, F.add, F.mul)[k % 4](last, other))
    return [values[-1]]


def wide_graph(n: int) -> list[Variable]:
    """Return independent values of 16 images, summed in a balanced tree."""
    images = [Variable(FLOAT, SIZE, name=f"image{k}") for k in range(16)]
    level = []
    for k in range(max(n // 4, 2)):  # three Functions each, and one to sum
        a, b = images[k % 16], images[k // 16 % 16]
        level.append(F.sin(a * (1.0 + k)) * b)
    while len(level) > 1:
        pairs = [level[k] + level[k + 1] for k in range(0, len(level) - 1, 2)]
        level = pairs + level[len(pairs) * 2 :]
    return level


def renderer_graph(n: int) -> list[Variable]:
    """Return a loss and its gradients: per-pixel work, tables looked up by index, textures, reads
    of neighbours, means, 1x1 values; the backward scatters. Now and then an early value is read
    late."""
    rng = random.Random(0)
    table = Variable(VEC3, TABLE, requires_grad=True, name="table")
    texture = Variable(VEC3, (32, 32), requires_grad=True, name="texture")
    index = Variable(INT, SIZE, name="index")
    values = [
        Variable(VEC3, requires_grad=True, name="uniform"),
        Variable(VEC3, SIZE, requires_grad=True, name="image"),
    ]
    terms: list[Variable] = []
    kinds = ("mul", "add", "tanh", "cross", "lookup", "texture", "border", "mean")
    weights = (30, 30, 15, 10, 6, 3, 3, 3)
    for _ in range(max(int(n / FUNCTIONS_PER_STEP), 4)):
        a, b = values[-1], rng.choice(values[-20:] if rng.random() < 0.8 else values)
        kind = rng.choices(kinds, weights)[0]
        if kind == "mul":
            made = a * b
        elif kind == "add":
            made = a * 0.5 + b
        elif kind == "tanh":
            made = F.tanh(a)
        elif kind == "cross":
            made = F.cross(a, b)
        elif kind == "lookup":
            made = F.lookup(F.sin(table) * F.mean(b), F.dynamic(index)) + a
        elif kind == "texture":
            made = F.texture(texture, F.expand(a, SIZE).xy, wrap="clamp") + b
        elif kind == "border":
            made = F.image.border(F.expand(b.x, SIZE)) * a
        else:
            made = a - F.mean(b)
            terms.append(F.mean(F.dot(a, b)))
        values.append(made)
    loss = F.add_n([F.mean(F.dot(values[-1], values[-1])), *terms])
    return [loss, *build_backward(loss).values()]


KINDS: dict[str, Callable[[int], list[Variable]]] = {
    "chain": chain_graph,
    "wide": wide_graph,
    "renderer": renderer_graph,
}


def scale_graph(kind: str, n: int) -> list[Variable]:
    """Return the outputs of a graph of about n Functions (exact for the chain); the same for the
    same arguments. kind: chain, wide, or renderer. Raises GraphError for another kind."""
    if kind not in KINDS:
        raise GraphError(f"a scale graph must be one of {', '.join(KINDS)}, got {kind!r}")
    return KINDS[kind](n)
