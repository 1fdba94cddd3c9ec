"""What is possible in a graph but most likely not meant, said before it is run for the first time.

In: graphs, data of leaves. Out: a DressiWarning, or nothing. A builder hands a ``Doubt`` to a
Variable that it computes; the engine looks at it when it packs a graph with that Variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dressi.ad.evaluate import evaluate
from dressi.ad.graph import Function, Variable, leaves, topological
from dressi.ad.registry import RASTER
from dressi.errors import GraphError, warn

MOST_FUNCTIONS = 24
"""Functions behind the inputs of a doubt above which it is dropped: NumPy evaluates them."""

_REDUCES = {"sum", "sum_layers", "sum_components", "min", "max", "add"}
_MEASURES = {
    "abs",
    "sqrt",
    "neg",
    "dot",
    "pow",
    "log",
    "log1p",
    "exp",
    "max_components",
    "min_components",
}
"""Ops between a loss and the differences that it measures."""
_FIRST = {"div": (0,), "where": (1, 2), "maximum": (0, 1), "minimum": (0, 1)}
"""The same, of some inputs only."""


@dataclass(frozen=True, eq=False)
class Doubt:
    """``say``: called once with the values (layers, H, W, *tail), float64, of ``inputs``."""

    inputs: tuple[Variable, ...]
    say: Callable[..., None]


def say_doubts(outputs: Iterable[Variable], host: Callable[[Variable], np.ndarray | None]) -> None:
    """Let every doubt of a graph look at its inputs, once. host: data of a leaf where they are at
    hand; None: the doubt waits for the next time."""
    for f in topological(outputs):
        doubt = f.output.doubt
        if doubt is None:
            continue
        if len(topological(doubt.inputs)) > MOST_FUNCTIONS:
            f.output.doubt = None
            continue
        feeds: dict[Variable, Any] = {v: host(v) for v in leaves(doubt.inputs)}
        if all(a is not None for a in feeds.values()):
            f.output.doubt = None
            sent = {v: a for v, a in feeds.items() if a is not v.data}  # its own need no check
            doubt.say(*evaluate(doubt.inputs, sent))


def check_alike(who: str, image: Variable, target: Variable) -> None:
    """Raise GraphError for images of which one has one component and the other several."""
    images = [v for v in (image, target) if isinstance(v, Variable) and not v.is_uniform_sized]
    if len({v.vtype for v in images}) > 1:
        raise GraphError(
            f"{who}: compares {image.label()} with {target.label()}: each component would go "
            "against the same number\n  hint: one component of both (x.x, x.w), or "
            "F.vec3(x, x, x) where a grey image is meant"
        )


def say_mixed(loss: Variable) -> None:
    """Warn of differences of images in a loss whose types or layers are not alike: a FLOAT image
    against a colour, one picture against many. Numbers and 1x1 Variables go with any image."""
    seen, stack = set(), [loss]
    while stack:
        f = stack.pop().creator
        if f is None or f.uid in seen:
            continue
        seen.add(f.uid)
        if f.op.name == "sub" and not any(x.is_uniform_sized for x in f.inputs):
            _say_difference(f)
        elif f.op.name == "sub":  # 1 - exp(-x)
            stack += f.inputs
        else:
            stack += _measured(f)


def _measured(f: Function) -> Sequence[Variable]:
    """Return the inputs of f that are measures of differences, or differences that f measures: of a
    product that is no square, the measures, all of its 1x1 factors (weights of losses), and a
    difference whose other factors are data (a mask)."""
    if f.op.name in _FIRST:
        return [f.inputs[i] for i in _FIRST[f.op.name]]
    if f.op.name in _REDUCES or (f.op.name in _MEASURES and f.op.name != "dot"):
        return f.inputs
    if f.op.name not in ("mul", "dot"):
        return ()
    made = [x.creator for x in f.inputs]
    if f.inputs[0] is f.inputs[-1] or all(g is not None and g.op.name == "sub" for g in made):
        return f.inputs
    pairs = list(zip(f.inputs, made, strict=True))
    found = [x for x, g in pairs if x.is_uniform_sized or (g is not None and _is_measure(g))]
    differences = [x for x, g in pairs if g is not None and g.op.name == "sub"]
    if len(differences) == 1 and all(_is_data(x) for x in f.inputs if x is not differences[0]):
        found += differences
    return found


def _is_measure(f: Function) -> bool:
    if f.op.name in _FIRST:
        made = [f.inputs[i].creator for i in _FIRST[f.op.name]]
        return any(g is not None and _is_measure(g) for g in made)
    return (
        f.op.name in _MEASURES
        or (f.op.name in _REDUCES and f.op.name != "add")
        or (f.op.name == "mul" and f.inputs[0] is f.inputs[1])
    )


def _is_data(x: Variable) -> bool:
    if x.creator is not None:
        return x.creator.op.name == "constant"
    return not x.requires_grad and x.update is None


def _is_rendered(x: Variable) -> bool:
    """Return whether a picture is drawn: then views are what it may lack."""
    return any(f.op.kind == RASTER for f in topological([x]))


def _say_difference(f: Function) -> None:
    a, b = f.inputs
    if a.size != b.size:
        return
    if a.vtype != b.vtype:
        warn(
            f"{f.where}: a difference of {a.label()} and {b.label()} in the loss: the "
            f"{min(a.vtype.n, b.vtype.n)} component goes against all {max(a.vtype.n, b.vtype.n)}\n"
            "  hint: x.x or F.sum_components for one component, F.vec3(x, x, x) where it is meant"
        )
    elif a.layers != b.layers:
        one, many = (a, b) if a.layers == 1 else (b, a)
        if _is_data(one) and many.creator is not None:
            hint = "a target for each view"
        elif _is_data(many) and _is_rendered(one):
            hint = "a picture for each target: layers of the matrix are views"
        else:
            return  # no target that is sent, or no pictures that are drawn
        warn(
            f"{f.where}: a difference of {one.label()} and {many.label()} in the loss: one image "
            f"goes against all {many.layers} layers\n  hint: {hint}, or "
            f"F.expand(x, {one.size}, {many.layers}) where it is meant"
        )
