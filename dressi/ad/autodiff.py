"""Reverse mode: from a loss to the gradients of its leaves, as more graph.

In: a loss Variable. Out: a dict from each differentiable leaf to its gradient Variable. Paper:
BuildBackward in A.7. Differs: the listing tests ``gy`` where it must test ``gx``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from dressi.ad.functions._common import constant
from dressi.ad.functions.arith import add_n
from dressi.ad.functions.image import expand
from dressi.ad.functions.inverse_maps import streams
from dressi.ad.functions.reduce import sum, sum_layers
from dressi.ad.functions.scatter import merged_gathers
from dressi.ad.graph import Function, Variable, dependents, leaves, short, topological
from dressi.errors import GraphError, origin


@dataclass
class Sweep:
    """Gradients of one reverse accumulation, and how they came about.

    ``gradients``: by uid of a Variable between the output and ``wrt``, its gradient. ``given``:
    (Function, number of an input, what its backward gives that input). ``ends``: (Function, number
    of an input) where a backward gives none. Both are in the order of the accumulation, nearest to
    the output first.
    """

    gradients: dict[int, Variable] = field(default_factory=dict)
    given: list[tuple[Function, int, Variable]] = field(default_factory=list)
    ends: list[tuple[Function, int]] = field(default_factory=list)


def sweep(
    y: Variable, wrt: Iterable[Variable], gy: Variable | None = None, cut: Collection[int] = ()
) -> Sweep:
    """Accumulates gradients from ``y`` back to ``wrt``.

    gy: the gradient of y; default 1 at every pixel. cut: uids of Variables that count as leaves. A
    Variable of ``wrt`` that y does not reach differentiably has no gradient.
    """
    return sweep_from([(y, constant(1.0, y.vtype) if gy is None else gy)], list(wrt), cut)


def sweep_from(
    starts: Sequence[tuple[Variable, Variable]], targets: Sequence[Variable], cut: Collection[int]
) -> Sweep:
    """Accumulate from several Variables at once. starts: (Variable, its gradient)."""
    functions = topological([y for y, _ in starts], cut)
    on_path = dependents(functions, {v.uid for v in targets})
    parts: dict[int, list[Variable]] = {}
    for y, gy in starts:
        parts.setdefault(y.uid, []).append(gy)
    result = Sweep()
    with streams(functions):
        for f in reversed(functions):
            if f.output.uid in parts and f.output.uid in on_path:
                with origin(f.line):
                    _accumulate(f, parts, on_path, result)
    for v in targets:
        if v.uid in parts:
            result.gradients[v.uid] = _total(parts.pop(v.uid), v)
    return result


def _accumulate(
    f: Function, parts: dict[int, list[Variable]], on_path: Collection[int], result: Sweep
) -> None:
    """Sum the parts of the gradient of f's output, and add what f's backward makes of it to the
    parts of each input on the path."""
    gy = result.gradients[f.output.uid] = _total(parts.pop(f.output.uid), f.output)
    for i, x in enumerate(f.inputs):
        if x.uid not in on_path:
            continue
        gx = None if f.op.backward is None else f.op.backward(f, gy, i)
        if gx is None:
            result.ends.append((f, i))
            continue
        part = reduced_to(gx, x)
        result.given.append((f, i, part))
        parts.setdefault(x.uid, []).append(part)


def parameters(loss: Variable) -> list[Variable]:
    """Return the leaves of a loss with ``requires_grad``, in the order of their creation."""
    return [v for v in leaves([loss]) if v.requires_grad]


def build_backward(
    loss: Variable, wrt: Iterable[Variable] | None = None
) -> dict[Variable, Variable]:
    """Return the gradients of the sum of all pixels of ``loss`` (1 is seeded at every pixel).

    loss: FLOAT or VECn @ any size, any layers. wrt: the Variables to differentiate to; default all
    leaves with ``requires_grad``. Returns Variable -> gradient of the same type, size and layers. A
    Variable that the loss does not reach differentiably is absent. Raises GraphError for an integer
    loss.
    """
    if not isinstance(loss, Variable):
        raise GraphError(f"the loss must be a Variable, got {short(loss)}")
    if loss.vtype.is_int:
        raise GraphError(f"the loss {loss.label()} made at {loss.line} is an integer: no gradient")
    targets = list(wrt) if wrt is not None else parameters(loss)
    gradients = sweep(loss, targets).gradients
    return {v: gradients[v.uid] for v in targets if v.uid in gradients}


def _total(gradients: list[Variable], like: Variable) -> Variable:
    """The sum, at the full size of the Variable that it belongs to (backward functions may return a
    broadcastable one)."""
    return expand(add_n(merged_gathers(gradients)), like.size, like.layers)


def reduced_to(g: Variable, x: Variable) -> Variable:
    """A gradient summed over the pixels and layers over which its input ``x`` was broadcast."""
    if x.size == (1, 1) and g.size != (1, 1):
        g = sum(g, per_layer=True)
    if x.layers == 1 and g.layers > 1:
        g = sum_layers(g)
    assert g.vtype == x.vtype, (g.vtype, x.vtype, g.line)
    return g
