"""Copies of graphs: what ``copy``, ``deepcopy`` and ``pickle`` return for a Variable.

In: Variables. Out: new Variables with uids of their own, so that an engine never mistakes a copy
for its original, nor a leaf that was pickled in one process for a leaf of another. Leaves are
copied with the data that they hold themselves (``Variable.data``), not with data sent to an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from dressi.ad.graph import Derived, Function, Variable, ancestors
from dressi.ad.registry import OPS
from dressi.errors import GraphError

Record = tuple[Any, ...]
"""One Function of a pickled graph: name of the op, numbers of its inputs, attributes, line, number
of the rasterization whose fragments it computes (its own where it is one, -1 for none), and the
arguments of its output's ``new_leaf``. Leaves are numbered first, then Functions."""

_COPIES = object()
"""Its id is the key, in the memo of a ``deepcopy``, of the copied Variables by uid."""


def shallow(v: Variable) -> Variable:
    """A copy of one Variable: a new leaf with a copy of the data, the same ``update`` and the same
    sources; or a new Function with the same op on the same inputs."""
    if v.creator is None:
        new = _same_shape(v)
        new.__setstate__((_own(v.data), v.derived, v.update))
        return new
    fragment_of = v.fragment_of
    f = _same_function(v.creator, v.creator.inputs)
    return _connect(f, _same_shape(v), f if fragment_of is v.creator else fragment_of)


def deep(v: Variable, memo: dict[int, Any]) -> Variable:
    """A copy of a Variable and of everything that it needs, over new leaves. memo: of ``deepcopy``,
    so that Variables copied together share what their originals share."""
    copies: dict[int, Variable] = memo.setdefault(id(_COPIES), {})  # by uid
    if v.uid in copies:
        return copies[v.uid]
    functions, leaves = ancestors([v], copies, _needed_with)
    for leaf in leaves:
        copies[leaf.uid] = _same_shape(leaf)
    for f in functions:
        y, raster = f.output, f.output.fragment_of
        g = _same_function(f, [copies[x.uid] for x in f.inputs])
        if raster is not None:
            raster = g if raster is f else copies[raster.output.uid].creator
        copies[y.uid] = _connect(g, _same_shape(y), raster)
    for leaf in leaves:
        update = None if leaf.update is None else copies[leaf.update.uid]
        derived = _mapped(leaf.derived, lambda x: copies[x.uid])
        copies[leaf.uid].__setstate__((_own(leaf.data), derived, update))
    return copies[v.uid]


def reduce(v: Variable) -> tuple[Any, ...]:
    """What ``pickle`` stores. A computed Variable is stored as a flat list of Functions, so that
    pickling does not recurse. Raises GraphError for ops of ``F.custom``, which exist only in the
    program that makes them."""
    if v.creator is None:
        return new_leaf, _arguments(v), (v.data, v.derived, v.update)
    functions, leaves = ancestors([v])
    number = {x.uid: i for i, x in enumerate(leaves)}
    records: list[Record] = []
    for f in functions:
        if OPS.get(f.op.name) is not f.op:
            raise GraphError(
                f"{f.where}: a graph with an op of F.custom cannot be pickled\n"
                "  hint: pickle the data, and build the graph again where it is loaded"
            )
        number[f.output.uid] = len(number)
        inputs = tuple(number[x.uid] for x in f.inputs)
        raster = f.output.fragment_of
        fragments = -1 if raster is None else number[raster.output.uid]
        records.append((f.op.name, inputs, f.attrs, f.line, fragments, _arguments(f.output)))
    return build, (tuple(leaves), tuple(records))


def new_leaf(*arguments: Any) -> Variable:
    """A leaf from ``_arguments``: vtype, size, layers, requires_grad, name, line."""
    leaf = Variable(*arguments[:5])
    leaf.line = arguments[5]
    return leaf


def build(leaves: Sequence[Variable], records: Iterable[Record]) -> Variable:
    """The output of a pickled graph's last Function, over these leaves. Raises GraphError for an op
    that the registry lacks."""
    values = list(leaves)
    for name, inputs, attrs, line, raster, arguments in records:
        if name not in OPS:
            raise GraphError(f"pickled graph: this version of Dressi has no op {name!r}")
        f = Function(OPS[name], [values[i] for i in inputs], dict(attrs))
        f.line = line
        fragments = None
        if raster >= 0:
            fragments = f if raster == len(values) else values[raster].creator
        values.append(_connect(f, new_leaf(*arguments), fragments))
    return values[-1]


def creator_of(v: Variable) -> Function:
    """The Function that computes a Variable. A Function is pickled as this of its output."""
    assert v.creator is not None
    return v.creator


def _arguments(v: Variable) -> tuple[Any, ...]:
    return v.vtype, v.size, v.layers, v.requires_grad, v.name, v.line


def _same_shape(v: Variable) -> Variable:
    return new_leaf(*_arguments(v))


def _same_function(f: Function, inputs: Sequence[Variable]) -> Function:
    new = Function(f.op, inputs, dict(f.attrs))
    new.line = f.line
    return new


def _connect(f: Function, output: Variable, fragment_of: Function | None) -> Variable:
    """The Variable, made the output of f."""
    output.creator, output.fragment_of, f.output = f, fragment_of, output
    return output


def _own(data: np.ndarray | None) -> np.ndarray | None:
    return None if data is None else data.copy()


def _mapped(derived: Derived | None, new: Callable[[Variable], Variable]) -> Derived | None:
    """The same rule on other Variables. new: Variable -> the one that takes its place."""
    if derived is None:
        return None
    changes: dict[str, Any] = {}
    for field in fields(derived):
        value = getattr(derived, field.name)
        if isinstance(value, Variable):
            changes[field.name] = new(value)
        elif isinstance(value, Derived):
            changes[field.name] = _mapped(value, new)
    return replace(derived, **changes)


def _needed_with(leaf: Variable) -> list[Variable]:
    """What a leaf's data is computed from: sources of a derived leaf, the update of a state."""
    return ([] if leaf.update is None else [leaf.update]) + _sources(leaf.derived)


def _sources(derived: Derived | None) -> list[Variable]:
    """The Variables in a rule and in the rules that it holds."""
    out: list[Variable] = []
    for field in () if derived is None else fields(derived):
        value = getattr(derived, field.name)
        if isinstance(value, Variable):
            out.append(value)
        elif isinstance(value, Derived):
            out += _sources(value)
    return out


def _attach() -> None:
    """Give Variables and Functions the methods that ``copy``, ``deepcopy`` and ``pickle`` call."""
    methods: dict[type, dict[str, Callable[..., Any]]] = {
        Variable: {"__copy__": shallow, "__deepcopy__": deep, "__reduce__": reduce},
        Function: {
            "__copy__": lambda f: creator_of(shallow(f.output)),
            "__deepcopy__": lambda f, memo: creator_of(deep(f.output, memo)),
            "__reduce__": lambda f: (creator_of, (f.output,)),
        },
    }
    for owner, of in methods.items():
        for name, method in of.items():
            setattr(owner, name, method)


_attach()
