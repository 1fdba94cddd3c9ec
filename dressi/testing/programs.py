"""Random programs from a seed, twice: as a graph of ``F`` ops, and on a float64 tape of another
make (``dressi.testing.tape``).

A program is a list of instructions over a few leaves: images, a uniform, one number per layer, a
table with an index, a matrix. Some are steep on purpose (a sine of six times its argument), for
these tell a fault from chaos.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, INT, MAT3, VEC2, VEC3, VEC4
from dressi.testing.tape import Node, Tape

ROWS = 7
"""Rows of the table."""
SHAPES = (((5, 4), 1), ((4, 3), 3), ((1, 1), 1), ((7, 1), 1))
"""(size, layers) of images."""
VECTORS = {1: FLOAT, 2: VEC2, 3: VEC3, 4: VEC4}
KINDS = (
    *("add", "sub", "mul", "ratio", "sine", "steep", "sigmoid", "tanh", "bump", "root", "dot"),
    *("cross", "unit", "turn", "where", "mean", "shift", "take", "take_dynamic", "pile"),
)
N_LOSSES = 3


@dataclass(frozen=True)
class Instruction:
    """kind: of KINDS, or ``cast``. at: which values it reads. number: of components, of the mean or
    the pixels of a shift."""

    kind: str
    at: tuple[int, ...]
    number: int = 0


@dataclass(frozen=True)
class Program:
    """size: (width, height), and layers, of its images. leaves: (name, components, size, layers);
    0 components: the matrix."""

    size: tuple[int, int]
    layers: int
    leaves: tuple[tuple[str, int, tuple[int, int], int], ...]
    steps: tuple[Instruction, ...]
    index: np.ndarray

    def data(self, seed: int) -> dict[str, np.ndarray]:
        """Return numbers for the leaves, by name, (layers, H, W, components)."""
        rng = np.random.default_rng(seed)
        found = {}
        for name, n, (w, h), layers in self.leaves:
            tail = (n,) if n else (3, 3)
            found[name] = rng.uniform(-1, 1, (layers, h, w, *tail)).astype(np.float32)
        return found


def random_program(seed: int, n_steps: int) -> Program:
    """Return the program of a seed."""
    rng = np.random.default_rng(seed)
    size, layers = SHAPES[int(rng.integers(len(SHAPES)))]
    leaves = (
        ("mask", 1, size, layers),
        ("image", 3, size, layers),
        ("flat", int(rng.integers(1, 5)), size, 1),
        ("uniform", 3, (1, 1), 1),
        ("per_layer", 1, (1, 1), layers),
        ("table", 3, (ROWS, 1), 1),
        ("matrix", 0, (1, 1), 1),
    )
    counts = [n for _, n, _, _ in leaves[:5]]  # of components, of each value so far
    steps: list[Instruction] = []

    def add(instruction: Instruction, n: int) -> int:
        steps.append(instruction)
        counts.append(n)
        return len(counts) - 1

    def pick(n: int = 0) -> int:
        late = rng.random() < 0.6 and len(counts) > 5
        at = int(rng.integers(5, len(counts)) if late else rng.integers(0, len(counts)))
        return at if n in (0, counts[at]) else add(Instruction("cast", (at,), n), n)

    for _ in range(n_steps):
        kind = KINDS[int(rng.integers(len(KINDS)))]
        if kind in ("dot", "cross", "unit", "turn", "pile"):
            at = (pick(3), pick(3)) if kind in ("dot", "cross") else (pick(3),)
            add(Instruction(kind, at), 1 if kind == "dot" else 3)
        elif kind in ("take", "take_dynamic"):
            add(Instruction(kind, ()), 3)
        else:
            a = pick()
            b = [pick(counts[a])] if kind in ("add", "sub", "mul", "ratio", "where") else []
            add(Instruction(kind, (a, *b), int(rng.integers(-1, 2))), counts[a])
    index = rng.integers(-1, ROWS, (1, size[1], size[0], 1))
    return Program(size, layers, leaves, tuple(steps), index)


# -- as a graph


@dataclass(frozen=True)
class Built:
    """A program of ``F`` ops: leaves by name, values, losses."""

    leaves: dict[str, Variable]
    index: Variable
    values: list[Variable]
    losses: list[Variable]


def build(program: Program) -> Built:
    """Return the graph of a program; the first leaf that an optimizer may move is ``image``."""
    leaves = {
        name: Variable(VECTORS.get(n, MAT3), size, layers, name=name)
        for name, n, size, layers in program.leaves
    }
    index = Variable(INT, program.size, name="index")
    matrix, table, uniform = leaves["matrix"], leaves["table"], leaves["uniform"]
    values = [leaves[name] for name, *_ in program.leaves[:5]]

    def expanded(x: Variable) -> Variable:
        return F.expand(x, program.size, program.layers)

    def cast(a: Variable, n: int) -> Variable:
        if a.vtype.n >= n:
            return a if a.vtype.n == n else F.swizzle(a, "xyzw"[:n])
        return F.vec(a, *[0.5] * (n - a.vtype.n))

    def pile(a: Variable) -> Variable:
        sums = F.scatter_add(expanded(a) * 0.1, F.dynamic(index), (ROWS, 1))
        return F.lookup(sums, index)

    for step in program.steps:
        a, b, number = ([values[k] for k in step.at] + [uniform] * 2)[:2] + [step.number]
        made: dict[str, Any] = {
            "add": lambda a=a, b=b: a + b,
            "sub": lambda a=a, b=b: a - b,
            "mul": lambda a=a, b=b: a * b,
            "ratio": lambda a=a, b=b: F.tanh(a) / (1.5 + F.sigmoid(b)),
            "sine": lambda a=a: F.sin(a),
            "steep": lambda a=a: F.sin(a * 6.0),
            "sigmoid": lambda a=a: F.sigmoid(a),
            "tanh": lambda a=a: F.tanh(a),
            "bump": lambda a=a: F.exp(-(a * a)),
            "root": lambda a=a: F.sqrt(a * a + 0.1),
            "dot": lambda a=a, b=b: F.dot(a, b),
            "cross": lambda a=a, b=b: F.cross(a, b),
            "unit": lambda a=a: F.normalize(a + 2.0),
            "turn": lambda a=a: matrix @ a,
            "where": lambda a=a, b=b: F.where(leaves["mask"] > 0.1, a, b),
            "mean": lambda a=a, n=number: F.mean(a, per_layer=n > 0),
            "shift": lambda a=a, n=number: F.image.shift(a, n, 1),
            "take": lambda: F.lookup(table, index),
            "take_dynamic": lambda: F.lookup(table, F.dynamic(index)),
            "pile": lambda a=a: pile(a),
            "cast": lambda a=a, n=number: cast(a, n),
        }
        values.append(made[step.kind]())
    # Every leaf matters to every loss, so that any of them may be the parameter.
    turned = matrix @ uniform
    small = F.add_n(
        [F.mean(F.dot(v, v)) for n, v in leaves.items() if n != "matrix"] + [F.dot(turned, turned)]
    )
    small = small * 0.05
    last, middle = values[-1], values[(5 + len(values)) // 2]
    losses = [
        F.mean(F.dot(last, last)) + small,
        F.mean(F.dot(middle, middle)) + F.mean(F.dot(last, last)) * 0.5 + small,
        F.tanh(F.dot(last, last)) + small,  # one number per pixel
    ]
    return Built(leaves, index, values, losses)


# -- on the tape


@dataclass(frozen=True)
class Ran:
    """A program on a tape."""

    tape: Tape
    leaves: dict[str, Node]
    values: list[Node]
    losses: list[Node]


def run(program: Program, data: dict[str, np.ndarray], tape: Tape) -> Ran:
    """Return values of a program for numbers by name of the leaf."""
    leaves = {name: tape.leaf(data[name]) for name, *_ in program.leaves}
    values = [leaves[name] for name, *_ in program.leaves[:5]]
    whole = np.empty((program.layers, program.size[1], program.size[0], 1))
    for step in program.steps:
        found = [values[k] for k in step.at]
        calls: dict[str, Any] = {
            "steep": lambda a: tape.sine(a, 6.0),
            "sine": lambda a: tape.sine(a, 1.0),
            "turn": lambda a: tape.turn(leaves["matrix"], a),
            "where": lambda a, b: tape.where(leaves["mask"], a, b),
            "mean": partial(lambda a, n: tape.mean(a, n > 0), n=step.number),
            "shift": partial(lambda a, n: tape.shift(a, n, 1), n=step.number),
            "take": lambda: tape.take(leaves["table"], program.index),
            "take_dynamic": lambda: tape.take(leaves["table"], program.index),
            "pile": lambda a: tape.pile(a, program.index, ROWS, whole),
            "cast": partial(lambda a, n: tape.cast(a, n), n=step.number),
        }
        values.append((calls.get(step.kind) or getattr(tape, step.kind))(*found))
    turned = tape.turn(leaves["matrix"], leaves["uniform"])
    small = tape.dot(turned, turned)
    for name, v in leaves.items():
        if name != "matrix":
            small = tape.add(small, tape.mean(tape.dot(v, v), False))
    small = tape.scale(small, 0.05)

    def square(v: Node) -> Node:
        return tape.mean(tape.dot(v, v), False)

    last, middle = values[-1], values[(5 + len(values)) // 2]
    both = tape.add(square(middle), tape.scale(square(last), 0.5))
    losses = [
        tape.add(square(last), small),
        tape.add(both, small),
        tape.add(tape.tanh(tape.dot(last, last)), small),
    ]
    return Ran(tape, leaves, values, losses)
