"""Random graphs from a seed: same-pixel work, reads at other pixels, reductions, scatters,
matrices, layers.

Values stay of the order of 1 and away from kinks of comparisons only by luck, so that differences
between
two ways to run the same graph are rounding, not chaos: masks are compared against leaves, never
against results.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dressi.ad import F, Variable, build_backward
from dressi.ad.vtype import FLOAT, INT, MAT3, VEC2, VEC3, VEC4, VType

FLOATS = (FLOAT, VEC2, VEC3, VEC4)


@dataclass
class RandomGraph:
    """Outputs (a loss among them), leaves with data, and the gradients of the loss."""

    loss: Variable
    outputs: list[Variable]
    feeds: dict[Variable, np.ndarray]

    def gradients(self) -> dict[Variable, Variable]:
        return build_backward(self.loss)


class _Builder:
    def __init__(self, seed: int, n_ops: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.size = [(6, 5), (9, 4), (8, 8)][seed % 3]
        self.layers = [1, 1, 3][seed % 3]
        self.feeds: dict[Variable, np.ndarray] = {}
        self.values: list[Variable] = []
        for k, t in enumerate(FLOATS):
            self.values.append(self.leaf(t, self.size, self.layers, f"image{k}"))
        self.values.append(self.leaf(VEC3, self.size, 1, "one_layer"))
        self.values.append(self.leaf(VEC3, (1, 1), 1, "uniform"))
        self.values.append(self.leaf(FLOAT, (1, 1), self.layers, "per_layer"))
        self.table = self.leaf(VEC3, (13, 1), 1, "table")
        self.matrix = self.leaf(MAT3, (1, 1), 1, "matrix")
        self.index = Variable(INT, self.size, name="index")
        w, h = self.size
        self.feeds[self.index] = self.rng.integers(-1, 13, (1, h, w, 1))
        for _ in range(n_ops):
            self.values.append(self.step())

    def leaf(self, t: VType, size: tuple[int, int], layers: int, name: str) -> Variable:
        v = Variable(t, size, layers, requires_grad=True, name=name)
        data = self.rng.uniform(-1, 1, (layers, size[1], size[0], *t.tail))
        self.feeds[v] = data.astype(np.float32)
        return v

    def pick(self, *types: VType) -> Variable:
        """Return a value, later ones more likely; converted to one of the types."""
        n = len(self.values)
        at = n - 1 - int(self.rng.integers(0, min(n, 8))) if self.rng.random() < 0.7 else int(
            self.rng.integers(0, n)
        )  # fmt: skip
        v = self.values[at]
        return v if not types or v.vtype in types else self.cast(v, types[0])

    def cast(self, v: Variable, t: VType) -> Variable:
        if v.vtype.n >= t.n:
            return F.swizzle(v, "xyzw"[: t.n])
        return F.vec(v, *[0.5] * (t.n - v.vtype.n))

    def step(self) -> Variable:
        kind = self.rng.choice(
            ["binary", "unary", "where", "vector", "neighbours", "reduce", "lookup", "scatter",
             "texture", "matrix"],
            p=[0.3, 0.2, 0.08, 0.12, 0.04, 0.06, 0.07, 0.03, 0.04, 0.06],
        )  # fmt: skip
        a = self.pick()
        if kind == "binary":
            b = self.pick(a.vtype) if self.rng.random() < 0.7 else self.pick(FLOAT)
            op = self.rng.integers(0, 4)
            return (a + b, a - b, a * b, F.tanh(a) / (1.5 + F.sigmoid(b)))[op]
        if kind == "unary":
            return (F.sin(a), F.sigmoid(a), F.tanh(a * 0.7), F.abs(a + 3.0))[
                self.rng.integers(0, 4)
            ]
        if kind == "where":
            mask = self.values[0] > 0.1  # a leaf: the same on every way
            return F.where(mask, a, self.pick(a.vtype) * 0.5)
        if kind == "vector":
            v = self.pick(VEC3)
            w = self.pick(VEC3)
            return (F.cross(v, w), F.dot(v, w), F.normalize(v + 2.0), F.vec(v.xy, w.x))[
                self.rng.integers(0, 4)
            ]
        if kind == "neighbours":
            return F.image.dilate(self.values[0], 2.0, 3) * F.swizzle(a, "x")
        if kind == "reduce":
            return F.mean(a, per_layer=bool(self.rng.integers(0, 2)))
        if kind == "lookup":
            index = self.index if self.rng.random() < 0.5 else F.dynamic(self.index)
            return F.lookup(self.table, index)
        if kind == "scatter":
            value = F.expand(self.pick(VEC3), self.size, self.layers)
            table = F.scatter_add(value * 0.1, F.dynamic(self.index), (13, 1))
            return F.lookup(table, self.index)
        if kind == "texture":
            image = F.expand(self.pick(VEC2), self.size, self.layers)
            return F.texture(self.values[2], F.sigmoid(image), wrap="clamp")
        return self.matrix @ self.pick(VEC3)


def random_graph(seed: int, n_ops: int = 25) -> RandomGraph:
    """Return the graph of a seed. Two intermediate values are outputs beside the loss."""
    b = _Builder(seed, n_ops)
    total = F.add_n([F.mean(F.dot(v, v)) for v in b.values[-4:]])
    picked = [b.values[-1], b.values[len(b.values) // 2]]
    outputs = [v for v in picked if v.creator is not None]
    return RandomGraph(total, [total, *outputs], b.feeds)


def masked_graph(seed: int, n_ops: int = 16) -> RandomGraph:
    """Return a graph in which a mask chooses between two sides, one of them long, before a loss per
    pixel: the rest of its backward is zeros. The mask is a leaf, or is computed; it holds -0, too.
    The long side may be NaN or infinite where it is not taken."""
    rng = np.random.default_rng(seed)
    size, layers = [((16, 8), 1), ((7, 5), 3), ((9, 4), 1)][seed % 3]
    w, h = size
    index = Variable(INT, size, layers, name="index")
    feeds: dict[Variable, np.ndarray] = {index: rng.integers(-1, 6, (layers, h, w, 1))}

    def leaf(t: VType, at: tuple[int, int], n: int, name: str, data: np.ndarray) -> Variable:
        v = Variable(t, at, n, requires_grad=name != "mask", name=name)
        feeds[v] = data.astype(np.float32)
        return v

    shape = (layers, h, w, 1)
    table = leaf(VEC2, (5, 1), 1, "table", rng.normal(size=(1, 1, 5, 2)))
    x, y = (leaf(FLOAT, size, layers, name, rng.normal(size=shape)) for name in ("x", "y"))
    c = leaf(FLOAT, size, layers, "mask", rng.choice([0.0, -0.0, 1.0, 2.0], shape))
    p = F.lookup(table, F.dynamic(index))
    long, short = p.x, x * y
    for _ in range(n_ops):
        k = rng.integers(6)
        if k < 4:
            long = (F.sin, F.sqrt, F.exp, F.neg)[k](long)
        else:
            long = long * p.y if k == 4 else long / p.x
    mask = (c, c * x, F.to_float(c > 0.5))[rng.integers(3)]
    d = F.where(mask, long, short) - y
    loss = d * d
    return RandomGraph(loss, [loss], feeds)
