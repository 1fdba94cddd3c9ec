"""Forward mode: from the tangents of leaves to the tangents of outputs, as more graph.

In: outputs, and tangents of some Variables. Out: tangents of the outputs. What an op's backward
gives an input is linear in the gradient that it is given, and the transpose of that map is the op's
derivative: the backward of a backward, with respect to the gradient. So one rule serves both modes,
and an op with a right gradient has a right tangent. Reads at other pixels, whose transposes have no
backward of their own, name the inputs in which they are linear (``Op.linear_in``): the tangent is
the op itself, applied to the tangent of the input. Places at which they read have a slope.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dressi.ad.autodiff import reduced_to, sweep
from dressi.ad.functions._common import constant
from dressi.ad.functions.arith import add_n
from dressi.ad.functions.image import expand
from dressi.ad.functions.vector import dot, vec
from dressi.ad.graph import Function, Variable, short, topological
from dressi.ad.rewrite import reapplied
from dressi.errors import GraphError, origin


@dataclass
class _Edge:
    """The derivative of a Function by its input ``i``.

    ``gradient``: what its backward gives the input for the gradient ``upstream``, at the input's
    shape. None: the op has a rule of its own.
    """

    i: int
    upstream: Variable | None = None
    gradient: Variable | None = None


def jvp(
    outputs: Variable | Sequence[Variable], tangents: Mapping[Variable, Variable]
) -> list[Variable]:
    """Tangents of the outputs: the product of the Jacobian with a vector (J v), in forward mode.

    outputs: FLOAT, VECn or MATn @ any size, one or several, of any graph. tangents: Variable,
    usually a leaf -> its tangent, of its type, and of its size and layers or broadcast to them; the
    tangents of other leaves are 0. Returns one Variable per output, of its type, size and layers; 0
    where the output depends on none of these Variables. Gradient: the result is more graph, and has
    the gradients of its ops. Reverse mode has the same derivative: <J v, u> = <v, J^T u>. Raises
    GraphError for integers, for tangents that do not fit, and, naming the op and its line, where a
    tangent reaches an op without a derivative (F.resolve of floats, F.image.dilate).
    """
    outs = [outputs] if isinstance(outputs, Variable) else list(outputs)
    for y in outs:
        if not isinstance(y, Variable):
            raise GraphError(f"F.jvp: needs Variables, got {short(y)}")
        if y.vtype.is_int or y.fragment_of is not None:
            what = "an integer" if y.vtype.is_int else "a value per fragment"
            raise GraphError(f"F.jvp: the output {y.label()} is {what}")
    tangent_of = {x.uid: _checked(x, t) for x, t in tangents.items()}
    functions = topological(outs, set(tangent_of))
    edges, missing = _edges(functions, set(tangent_of))
    needed = {y.uid for y in outs}
    for f in reversed(functions):
        if f.output.uid not in needed or f.output.uid in tangent_of:
            continue
        if f.uid in missing:
            moving = ", ".join(x.label() for x in missing[f.uid])
            raise GraphError(
                f"{f.where}: has no derivative, so F.jvp cannot go through it\n"
                f"  inputs that move: {moving}\n"
                "  hint: F.stop_gradient on them, if they should count as standing still"
            )
        needed.update(f.inputs[e.i].uid for e in edges.get(f.uid, ()))
    for f in functions:
        y = f.output
        if y.uid not in needed or y.uid in tangent_of:
            continue
        with origin(f.line):
            parts = [
                part
                for e in edges.get(f.uid, ())
                if f.inputs[e.i].uid in tangent_of
                for part in _pushed(f, e, tangent_of[f.inputs[e.i].uid])
            ]
            if parts:
                tangent_of[y.uid] = add_n(parts)
    return [
        tangent_of[y.uid]
        if y.uid in tangent_of
        else expand(constant(0.0, y.vtype), y.size, y.layers)
        for y in outs
    ]


def _checked(x: object, t: object) -> Variable:
    """The tangent t, broadcast to the shape of x."""
    where = "F.jvp"
    if not isinstance(x, Variable) or not isinstance(t, Variable):
        raise GraphError(f"{where}: tangents are Variables by Variable, got {short(x)}: {short(t)}")
    if x.vtype.is_int:
        raise GraphError(f"{where}: {x.label()} is an integer and has no tangent")
    fits = t.size in ((1, 1), x.size) and t.layers in (1, x.layers)
    if t.vtype != x.vtype or not fits:
        raise GraphError(f"{where}: the tangent of {x.label()} is {t.label()}")
    return expand(t, x.size, x.layers)


def _edges(
    functions: Sequence[Function], start: set[int]
) -> tuple[dict[int, list[_Edge]], dict[int, list[Variable]]]:
    """By uid of a Function: its derivatives by the inputs that move; and, where it lacks one, those
    inputs. start: uids of the Variables that move by themselves."""
    moving = set(start)
    edges: dict[int, list[_Edge]] = {}
    missing: dict[int, list[Variable]] = {}
    for f in functions:
        y = f.output
        inputs = [i for i, x in enumerate(f.inputs) if x.uid in moving]
        if not inputs or f.op.flat:
            continue
        if y.vtype.is_int:
            if f.op.flat is False or any(f.inputs[i].vtype.is_int for i in inputs):
                moving.add(y.uid)
                missing[f.uid] = [f.inputs[i] for i in inputs]
            continue
        if f.op.linear_in and f.op.moves:
            floats = [i for i in inputs if not f.inputs[i].vtype.is_int]
            own = [i for i in floats if f.op.is_linear_in(f, i) or f.op.backward is not None]
            if len(own) < len(floats):
                missing[f.uid] = [f.inputs[i] for i in floats if i not in own]
            edges[f.uid] = [_Edge(i) for i in own]
        elif f.op.backward is None or y.fragment_of is not None:
            missing[f.uid] = [f.inputs[i] for i in inputs]
        else:
            with origin(f.line):
                probed = [_probe(f, i) for i in inputs]
            edges[f.uid] = [e for e in probed if e is not None]
        if f.uid in missing or edges[f.uid]:
            moving.add(y.uid)
    return edges, missing


def _probe(f: Function, i: int) -> _Edge | None:
    """The derivative of f by input i from its backward, or None when that gives nothing."""
    x, y = f.inputs[i], f.output
    upstream = Variable(y.vtype, y.size, y.layers, name="upstream")
    assert f.op.backward is not None
    g = f.op.backward(f, upstream, i)
    if g is None:
        return None
    return _Edge(i, upstream, expand(reduced_to(g, x), x.size, x.layers))


def _pushed(f: Function, edge: _Edge, t: Variable) -> list[Variable]:
    """The part of the output's tangent that is due to the tangent t of one input; none if 0."""
    if edge.gradient is not None and edge.upstream is not None:
        part = _transposed(f, edge.upstream, edge.gradient, t)
        return [] if part is None else [part]
    if not f.op.is_linear_in(f, edge.i):
        return [_read_elsewhere(f, edge.i, t)]
    inputs = [t if k == edge.i else x for k, x in enumerate(f.inputs)]
    return [reapplied(f, inputs)]


def _transposed(f: Function, u: Variable, g: Variable, t: Variable) -> Variable | None:
    """The transpose of the linear map u -> g, applied to t: reverse mode from g to u.

    None when g does not depend on u.
    """
    outside = {f.output.uid, *(x.uid for x in f.inputs)}
    reverse = sweep(g, [u], t, outside)
    if reverse.ends:
        op = reverse.ends[0][0].op.name
        raise GraphError(
            f"{f.where}: has no tangent: its gradient is made with F.{op}, which has no backward"
        )
    if u.uid not in reverse.gradients:
        return None
    result = reverse.gradients[u.uid]
    functions = [] if result is t else topological([result], {*outside, t.uid})
    if any(x is u for h in functions for x in h.inputs):
        raise GraphError(
            f"{f.where}: has no tangent: its backward is not linear in the gradient it is given"
        )
    return result


def _read_elsewhere(f: Function, i: int, t: Variable) -> Variable:
    """The tangent of a read whose place or level of detail, input i, moves: of each component the
    slope along t, which is the gradient of that component."""
    y = f.output
    assert f.op.backward is not None
    parts = []
    for e in np.eye(y.vtype.n):
        one = expand(constant(e, y.vtype), y.size, y.layers)
        slope = f.op.backward(f, one, i)
        if slope is None:
            raise GraphError(f"{f.where}: has no tangent along {f.inputs[i].label()}")
        parts.append(dot(slope, t))
    return parts[0] if len(parts) == 1 else vec(*parts)
