"""Reverse mode: from a loss to the gradients of its leaves, as more graph.

In: a loss Variable. Out: a dict from each differentiable leaf to its gradient Variable. Paper:
BuildBackward in A.6. Differs: the listing tests ``gy`` where it must test ``gx``.
"""

from __future__ import annotations

from collections.abc import Iterable

from dressi.ad.functions import add_n, constant, expand, sum, sum_layers
from dressi.ad.functions.inverse_maps import streams
from dressi.ad.functions.scatter import merged_gathers
from dressi.ad.graph import Function, Variable, leaves, short, topological
from dressi.errors import GraphError, origin


def parameters(loss: Variable) -> list[Variable]:
    """The leaves that ask for a gradient, in the order of their making."""
    return [v for v in leaves([loss]) if v.requires_grad]


def build_backward(
    loss: Variable, wrt: Iterable[Variable] | None = None
) -> dict[Variable, Variable]:
    """Gradients of the sum of all pixels of ``loss`` (1 is seeded at every pixel).

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
    functions = topological([loss])
    wanted = {v.uid for v in targets}
    for f in functions:
        if any(x.uid in wanted for x in f.inputs):
            wanted.add(f.output.uid)
    parts: dict[int, list[Variable]] = {loss.uid: [constant(1.0, loss.vtype)]}
    totals: dict[int, Variable] = {}
    with streams(functions):
        for f in reversed(functions):
            _step_back(f, parts, totals, wanted)
    grads: dict[Variable, Variable] = {}
    for v in targets:
        if v.uid in parts:
            grads[v] = _total(parts[v.uid], v)
        elif v.uid in totals:
            grads[v] = totals[v.uid]
    return grads


def _step_back(
    f: Function, parts: dict[int, list[Variable]], totals: dict[int, Variable], wanted: set[int]
) -> None:
    """Take the parts of the gradient of f's output together and hand them on to its inputs."""
    y = f.output
    if y.uid not in parts or y.uid not in wanted:
        return
    with origin(f.line):
        gy = _total(parts.pop(y.uid), y)
        totals[y.uid] = gy
        if f.op.backward is None:
            return
        for i, x in enumerate(f.inputs):
            if x.uid not in wanted:
                continue
            gx = f.op.backward(f, gy, i)
            if gx is not None:
                parts.setdefault(x.uid, []).append(_reduce_to(gx, x))


def _total(gradients: list[Variable], like: Variable) -> Variable:
    """The sum, at the full size of what it belongs to (ops may return a broadcastable one)."""
    return expand(add_n(merged_gathers(gradients)), like.size, like.layers)


def _reduce_to(g: Variable, x: Variable) -> Variable:
    """Sum over the pixels and layers over which x was broadcast."""
    if x.size == (1, 1) and g.size != (1, 1):
        g = sum(g, per_layer=True)
    if x.layers == 1 and g.layers > 1:
        g = sum_layers(g)
    assert g.vtype == x.vtype, (g.vtype, x.vtype, g.line)
    return g
