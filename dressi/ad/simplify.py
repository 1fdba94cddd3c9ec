"""Graph to graph, before packing: macros become the ops that they stand for, duplicates are merged.

In: outputs of a graph. Out: the same number of outputs of an equal graph without MACRO ops. The
user's graph is not touched. Paper, 3.2.3: duplicated function removal.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from dressi.ad.functions._common import is_constant
from dressi.ad.functions.image import EXPAND
from dressi.ad.graph import Function, Variable, origin, topological
from dressi.ad.registry import FREE, MACRO, SAME, apply


def simplify(outputs: Sequence[Variable], merge: bool = True) -> list[Variable]:
    """Lowered outputs. ``merge``: whether equal Functions of equal inputs become one."""
    new: dict[int, Variable] = {}
    seen: dict[Hashable, Variable] = {}
    done: set[int] = set()

    def place(f: Function) -> Variable:
        xs = [new.get(x.uid, x) for x in f.inputs]
        if f.op.kind != MACRO:
            xs = [_fetchable(f, i, x) for i, x in enumerate(xs)]
        if f.op.kind == MACRO:
            assert f.op.expand is not None
            with origin(f.line):
                made = f.op.expand(f, xs)
            for inner in topological([made]):
                if inner.uid not in done:
                    done.add(inner.uid)
                    new[inner.output.uid] = place(inner)
            return new.get(made.uid, made)
        short = _identity(f, xs)
        if short is not None:
            return short
        key = (f.op.name, tuple(x.uid for x in xs), f.attrs)
        if merge and key in seen:
            return seen[key]
        if all(a is b for a, b in zip(xs, f.inputs, strict=True)):
            result = f.output
        else:
            with origin(f.line):
                result = apply(f.op, xs, **dict(f.attrs))
            result.name = f.output.name
        seen[key] = result
        return result

    for f in topological(outputs):
        if f.uid not in done:
            done.add(f.uid)
            new[f.output.uid] = place(f)
    return [new.get(v.uid, v) for v in outputs]


def _fetchable(f: Function, i: int, x: Variable) -> Variable:
    """A constant that is read at other pixels must be an image first."""
    if f.op.read(i) == SAME or x.creator is None or x.creator.op.kind != FREE:
        return x
    return materialize(x)


def materialize(x: Variable) -> Variable:
    """x, written to an image of its own: leaves, constants and buffers need one to be read back."""
    return apply(EXPAND, (x,), size=x.size, layers=x.layers)


def _identity(f: Function, xs: Sequence[Variable]) -> Variable | None:
    """Ops that give back an input: x + 0, x - 0, x * 1, x / 1, stop_gradient(x); None otherwise.

    x * 0 stays: with x infinite it is NaN, which must not be hidden.
    """
    y = f.output
    name = f.op.name
    if name == "stop_gradient":
        return xs[0]
    if len(xs) != 2 or name not in ("add", "sub", "mul", "div"):
        return None
    for i, neutral in (
        (1, 1.0 if name in ("mul", "div") else 0.0),
        (0, 1.0 if name == "mul" else 0.0),
    ):
        if i == 0 and name in ("sub", "div"):
            continue
        other = xs[1 - i]
        if is_constant(xs[i], neutral) and (other.vtype, other.size, other.layers) == (
            y.vtype,
            y.size,
            y.layers,
        ):
            return other
    return None
