"""A float64 evaluator of another make than the product: plain NumPy, reverse mode on a tape.

It shares no formula with ``dressi.ad``: each operation here is written down anew, with its own
derivative. In: arrays (layers, H, W, components). Out: values and gradients in float64. With
``noise`` every result, and every term of a sum, is rounded at random (Monte Carlo arithmetic): how
far such runs spread tells what rounding alone may do to a graph, so chaos can be told from a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

ROUNDING = 2.0**-24
"""Relative error of one float32 operation."""
FUNCTIONS = 16.0
"""Errors of sines, exponentials and roots of devices, in units of ``ROUNDING``."""


@dataclass(eq=False)
class Node:
    """A value, and how its gradient goes on: (input, gradient of the value -> of the input)."""

    value: Array
    inputs: list[tuple[Node, Callable[[Array], Array]]] = field(default_factory=list)


class Tape:
    """Operations on Nodes, in the order in which they were made. noise: ``ROUNDING`` rounds each
    result at random, 0 not at all."""

    def __init__(self, noise: float = 0.0, seed: int = 0) -> None:
        self.noise = noise
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Node] = []
        self.largest = 0.0
        """Magnitude of all numbers so far, gradients too: float32 ends at 3.4e38."""

    def leaf(self, value: npt.ArrayLike) -> Node:
        """Return a Node of float64 numbers that has no inputs."""
        return self._keep(Node(np.asarray(value, np.float64)))

    def gradients(self, loss: Node, leaves: list[Node]) -> list[Array]:
        """Return the gradients of the sum over all pixels and components of the loss."""
        found: dict[int, Array] = {id(loss): np.ones_like(loss.value)}
        for node in reversed(self.nodes):
            gradient = found.get(id(node))
            if gradient is None:
                continue
            for x, back in node.inputs:
                part = self._rounded(self._fit(back(gradient), x.value.shape), 1.0)
                have = found.get(id(x))
                found[id(x)] = part if have is None else self._rounded(have + part, 1.0)
        return [found.get(id(x), np.zeros_like(x.value)) for x in leaves]

    # Arithmetic

    def add(self, a: Node, b: Node) -> Node:
        return self._make(a.value + b.value, (a, lambda g: g), (b, lambda g: g))

    def sub(self, a: Node, b: Node) -> Node:
        return self._make(a.value - b.value, (a, lambda g: g), (b, lambda g: -g))

    def mul(self, a: Node, b: Node) -> Node:
        return self._make(a.value * b.value, (a, lambda g: g * b.value), (b, lambda g: g * a.value))

    def scale(self, a: Node, factor: float) -> Node:
        return self._make(a.value * factor, (a, lambda g: g * factor))

    def ratio(self, a: Node, b: Node) -> Node:
        """Return tanh(a) / (1.5 + sigmoid(b))."""
        s = 1.0 / (1.0 + np.exp(-b.value))
        top, low = np.tanh(a.value), 1.5 + s
        return self._make(
            top / low,
            (a, lambda g: g * (1.0 - top * top) / low),
            (b, lambda g: -g * top / low**2 * s * (1.0 - s)),
            error=FUNCTIONS,
        )

    # Functions of one number

    def sine(self, a: Node, steepness: float) -> Node:
        x = steepness * a.value
        # The argument is rounded too: the larger it is, the more that matters.
        error = FUNCTIONS + float(np.abs(x).max(initial=0.0))
        return self._make(np.sin(x), (a, lambda g: g * steepness * np.cos(x)), error=error)

    def sigmoid(self, a: Node) -> Node:
        s = 1.0 / (1.0 + np.exp(-a.value))
        return self._make(s, (a, lambda g: g * s * (1.0 - s)), error=FUNCTIONS)

    def tanh(self, a: Node) -> Node:
        t = np.tanh(a.value)
        return self._make(t, (a, lambda g: g * (1.0 - t * t)), error=FUNCTIONS)

    def bump(self, a: Node) -> Node:
        """Return exp(-a^2)."""
        y = np.exp(-a.value * a.value)
        return self._make(y, (a, lambda g: -2.0 * g * a.value * y), error=FUNCTIONS)

    def root(self, a: Node) -> Node:
        """Return sqrt(a^2 + 0.1)."""
        y = np.sqrt(a.value * a.value + 0.1)
        return self._make(y, (a, lambda g: g * a.value / y), error=FUNCTIONS)

    # Vectors

    def dot(self, a: Node, b: Node) -> Node:
        return self._make(
            self._sum(a.value * b.value, -1),
            (a, lambda g: g * b.value),
            (b, lambda g: g * a.value),
        )

    def cross(self, a: Node, b: Node) -> Node:
        return self._make(
            self._cross(a.value, b.value),
            (a, lambda g: self._cross(b.value, g)),
            (b, lambda g: self._cross(g, a.value)),
        )

    def unit(self, a: Node) -> Node:
        """Return (a + 2) / |a + 2|."""
        v = a.value + 2.0
        length = np.sqrt((v * v).sum(-1, keepdims=True))
        y = v / length

        def back(g: Array) -> Array:
            along = self._rounded(y * self._sum(g * y, -1), 1.0)
            return (g - along) / length

        return self._make(y, (a, back), error=FUNCTIONS)

    def turn(self, m: Node, a: Node) -> Node:
        """Return matrix times vector; m (layers, H, W, 3, 3)."""
        return self._make(
            self._sum(m.value * a.value[..., None, :], -1)[..., 0],
            (m, lambda g: g[..., :, None] * a.value[..., None, :]),
            (a, lambda g: self._sum(m.value * g[..., :, None], -2)[..., 0, :]),
        )

    def cast(self, a: Node, n: int) -> Node:
        """Return the first n components, filled up with 0.5."""
        have = a.value.shape[-1]
        k = min(n, have)
        more = np.full((*a.value.shape[:-1], n - k), 0.5)

        def back(g: Array) -> Array:
            return np.concatenate([g[..., :k], np.zeros((*g.shape[:-1], have - k))], -1)

        return self._make(np.concatenate([a.value[..., :k], more], -1), (a, back))

    # Pixels

    def where(self, mask: Node, a: Node, b: Node) -> Node:
        """Return a where mask > 0.1, else b."""
        m = mask.value > 0.1
        return self._make(
            np.where(m, a.value, b.value),
            (a, lambda g: np.where(m, g, 0.0)),
            (b, lambda g: np.where(m, 0.0, g)),
        )

    def mean(self, a: Node, per_layer: bool) -> Node:
        axes = (1, 2) if per_layer else (0, 1, 2)
        total = self._sum(a.value, axes)
        count = a.value.size // total.size
        y = total / count
        return self._make(y, (a, lambda g: np.broadcast_to(g / count, a.value.shape)), error=4.0)

    def shift(self, a: Node, dx: int, dy: int) -> Node:
        """Return a moved right and down; zeros come in."""

        def moved(x: Array, dx: int, dy: int) -> Array:
            out = np.zeros_like(x)
            h, w = x.shape[1:3]
            to_y, to_x = slice(max(dy, 0), h + min(dy, 0)), slice(max(dx, 0), w + min(dx, 0))
            at_y, at_x = slice(max(-dy, 0), h + min(-dy, 0)), slice(max(-dx, 0), w + min(-dx, 0))
            out[:, to_y, to_x] = x[:, at_y, at_x]
            return out

        return self._make(moved(a.value, dx, dy), (a, lambda g: moved(g, -dx, -dy)))

    def take(self, table: Node, index: npt.NDArray[np.int64]) -> Node:
        """Return rows of a table (1, 1, N, C); 0 for a negative index. index: (1, H, W, 1)."""
        at = index[..., 0]
        inside = (at >= 0)[..., None]
        rows = table.value[0, 0][np.maximum(at, 0)]

        def back(g: Array) -> Array:
            out = np.zeros_like(table.value)
            np.add.at(out[0, 0], np.maximum(at, 0), np.where(inside, g, 0.0).sum(0, keepdims=True))
            return out

        return self._make(np.where(inside, rows, 0.0), (table, back))

    def pile(self, a: Node, index: npt.NDArray[np.int64], n_rows: int, shape: Array) -> Node:
        """Return pixels (spread to ``shape``) added up by index, and read back by it: 0.1 of the
        sum."""
        at, layers = index[..., 0], shape.shape[0]
        inside = (at >= 0)[..., None]
        spread = np.broadcast_to(a.value, (*shape.shape[:3], a.value.shape[-1]))

        def sums(x: Array) -> Array:
            out = np.zeros((n_rows, x.shape[-1]))
            kept = self._rounded(np.where(inside, x, 0.0), 1.0)
            np.add.at(out, np.broadcast_to(np.maximum(at, 0), (len(x), *at.shape[1:])), kept)
            return np.where(inside, out[np.maximum(at, 0)], 0.0)

        def back(g: Array) -> Array:
            return 0.1 * np.repeat(sums(g), layers, 0)

        return self._make(0.1 * sums(spread), (a, back), error=4.0)

    # Rounding

    def _make(
        self, value: Array, *inputs: tuple[Node, Callable[[Array], Array]], error: float = 1.0
    ) -> Node:
        return self._keep(Node(self._rounded(value, error), list(inputs)))

    def _keep(self, node: Node) -> Node:
        self.nodes.append(node)
        self.largest = max(self.largest, float(np.abs(node.value).max(initial=0.0)))
        return node

    def _sum(self, terms: Array, axes: int | tuple[int, ...]) -> Array:
        """Return the sum along axes, which stay. Each term is rounded: where terms cancel, what is
        left is off by as much as they are."""
        return np.asarray(self._rounded(terms, 1.0).sum(axes, keepdims=True))

    def _cross(self, a: Array, b: Array) -> Array:
        """Return the cross product, of rounded products of components."""
        after, before = [1, 2, 0], [2, 0, 1]
        there = self._rounded(a[..., after] * b[..., before], 1.0)
        return there - self._rounded(a[..., before] * b[..., after], 1.0)

    def _fit(self, gradient: Array, shape: tuple[int, ...]) -> Array:
        """Return the gradient summed over the axes along which an input was repeated."""
        extra = tuple(k for k, n in enumerate(shape) if n == 1 and gradient.shape[k] != 1)
        return self._sum(gradient, extra) if extra else gradient

    def _rounded(self, value: Array, error: float) -> Array:
        self.largest = max(self.largest, float(np.abs(value).max(initial=0.0)))
        if not self.noise:
            return value
        return value * (1.0 + self.noise * error * self.rng.uniform(-1.0, 1.0, value.shape))
