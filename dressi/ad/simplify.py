"""Graph to graph, before packing: macros are expanded, duplicates merged, constants folded.

In: outputs of a graph. Out: the same number of outputs of an equal graph without MACRO ops. The
user's graph is not touched. Paper, 3.3.3: duplicated function removal.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from dressi.ad.functions._common import constant, constant_values, is_constant
from dressi.ad.functions.image import EXPAND
from dressi.ad.functions.select import WHERE
from dressi.ad.functions.stop import STOP_GRADIENT
from dressi.ad.graph import Function, Variable
from dressi.ad.kernels import DISPATCH, kernels
from dressi.ad.one_row import draw_one_row
from dressi.ad.peeling import Predicate, draw_peels
from dressi.ad.registry import FRAG, FREE, MACRO, SAME, apply
from dressi.ad.rewrite import Replacements, named, reapplied, rewrite
from dressi.errors import origin


def simplify(
    outputs: Sequence[Variable],
    merge: bool = True,
    fold: bool = True,
    separately: Predicate | None = None,
    dispatches: bool = False,
    one_row: bool = False,
) -> list[Variable]:
    """Lowered outputs: the same values in the same order, without macros.

    outputs: Variables of any type and size. merge: whether equal Functions of equal inputs become
    one. fold: whether arithmetic on constants is done here, and operations that give back an input
    go away. separately: the rasterizations that draw each of their layers anew (``peeling``);
    default all. dispatches: whether macros become what is best in compute dispatches. one_row:
    whether the device rasterizes into images of one row (else ``one_row`` avoids them).
    """
    seen: dict[Hashable, Variable] = {}

    def rule(f: Function, new: Replacements) -> Variable:
        xs = [new(x) for x in f.inputs]
        if f.op.kind == MACRO:
            kernel = kernels(f.op).get(DISPATCH) if dispatches else None
            expand = f.op.expand if kernel is None else kernel.expand
            assert expand is not None
            return rewrite([expand(f, xs)], rule, new)[0]
        xs = [_fetchable(f, i, x) for i, x in enumerate(xs)]
        if fold or f.op is STOP_GRADIENT:
            same = _identity(f, xs)
            if same is not None:
                return same
        key = _key(f, xs)
        if merge and key in seen:
            return seen[key]
        result = named(reapplied(f, xs), f.output)
        number = _folded(result) if fold else result
        if number is not result:
            c = number.creator
            assert c is not None
            result = seen.setdefault(_key(c, ()), number) if merge else number
        seen[key] = result
        return result

    return rewrite(draw_peels(outputs if one_row else draw_one_row(outputs), separately), rule)


def _key(f: Function, xs: Sequence[Variable]) -> Hashable:
    """A key that is equal for equal Functions of equal inputs. 0.0 and -0.0 compare equal, but are
    different constants."""
    attrs: Hashable = f.attrs if xs else repr(f.attrs)
    return (f.op.name, tuple(x.uid for x in xs), attrs)


def _folded(y: Variable) -> Variable:
    """The constant that arithmetic on constants evaluates to, or y. Only ops whose result in
    float64, rounded once, is the device's: a sine would differ in the last bits."""
    f = y.creator
    assert f is not None
    values = [constant_values(x) for x in f.inputs]
    if not values or not all(values) or f.op.kind != FRAG or f.op.reference is None:
        return y
    # Ops without cases are the user's own (F.custom): how their GLSL rounds is not known.
    if f.op.scatter or not f.op.cases or any(case.transcendental for case in f.op.cases):
        return y
    if y.size != (1, 1) or y.layers != 1 or any(f.op.read(i) != SAME for i in range(len(values))):
        return y
    arrays = [
        np.asarray(v, np.int64 if x.vtype.is_int else np.float64).reshape(1, 1, 1, *x.vtype.tail)
        for v, x in zip(values, f.inputs, strict=True)
    ]
    with np.errstate(all="ignore"):
        result = np.asarray(f.op.reference(f, arrays), np.float64).reshape(-1)
    limit = 2.0**31 - 1 if y.vtype.is_int else float(np.finfo(np.float32).max)
    if not np.isfinite(result).all() or np.abs(result).max() > limit:
        return y
    with origin(f.line):
        return constant(np.float32(result) if not y.vtype.is_int else result, y.vtype)


def _fetchable(f: Function, i: int, x: Variable) -> Variable:
    """Input i of f, as an image if it is a constant that f reads at other pixels."""
    if f.op.read(i) == SAME or x.creator is None or x.creator.op.kind != FREE:
        return x
    return materialize(x)


def own_image(v: Variable) -> Variable:
    """v, or a copy of it where v has no image of its own to be read back from (leaves, constants,
    buffers)."""
    f = v.creator
    if f is None or f.op.kind == FREE or f.op.scatter is not None:
        return materialize(v)
    return v


def materialize(x: Variable) -> Variable:
    """A copy of x in an image of its own."""
    return apply(EXPAND, (x,), size=x.size, layers=x.layers)


def _identity(f: Function, xs: Sequence[Variable]) -> Variable | None:
    """The input that an op gives back (x + 0, x - 0, x * 1, x / 1, stop_gradient(x), a choice
    between x and x), or None.

    x * 0 stays: with x infinite it is NaN, which must not be hidden.
    """
    y = f.output
    if f.op is STOP_GRADIENT:
        return xs[0]
    if f.op is WHERE and xs[1] is xs[2] and _alike(xs[1], y):
        return xs[1]
    for i, neutral in reversed(tuple(enumerate(f.op.neutral))):
        other = xs[1 - i]
        if neutral is not None and is_constant(xs[i], neutral) and _alike(other, y):
            return other
    return None


def _alike(x: Variable, y: Variable) -> bool:
    return (x.vtype, x.size, x.layers) == (y.vtype, y.size, y.layers)
