"""Checks of a graph. In: outputs, data of integer leaves. Out: nothing, or GraphError at the
place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary, ref

import numpy as np

from dressi.ad.evaluate import evaluate
from dressi.ad.functions.scatter import LOOKUP, is_static
from dressi.ad.graph import Variable, leaves, topological
from dressi.ad.index_uses import index_leaf, problem_of
from dressi.errors import GraphError


def check_graph(outputs: Sequence[Variable]) -> None:
    """Raise GraphError when an output is per fragment or a Function does not follow its row."""
    for v in outputs:
        if v.fragment_of is not None:
            raise GraphError(f"{v.label()} made at {v.line} is a value per fragment; use F.resolve")
    for f in topological(outputs):
        vtype, size, layers = f.op.infer(f.inputs, dict(f.attrs))
        y = f.output
        if (vtype, size, layers) != (y.vtype, y.size, y.layers):
            raise GraphError(
                f"{f.where}: made {y.label()}, its row says {vtype.name}@{size} x {layers}"
            )


@dataclass(frozen=True)
class _Lookups:
    """What a graph reads by static indices. reads: the values read, which the graph holds. by: uids
    of the leaves that one of the indices depends on."""

    reads: tuple[ref[Variable], ...]
    by: frozenset[int]


_known: WeakKeyDictionary[Variable, _Lookups] = WeakKeyDictionary()
"""By output of a graph. Found once: integers are sent again and again, and a graph may have
thousands of Functions."""


def _lookups_of(output: Variable) -> _Lookups:
    if output not in _known:
        found = topological([output])
        found = [f for f in found if f.op is LOOKUP and is_static(f.inputs[1])]
        by = leaves([f.inputs[1] for f in found])
        _known[output] = _Lookups(tuple(ref(f.output) for f in found), frozenset(v.uid for v in by))
    return _known[output]


def is_indexed_by(outputs: Iterable[Variable], leaf: Variable) -> bool:
    """Whether a static index of the graphs depends on a leaf."""
    return any(leaf.uid in _lookups_of(v).by for v in outputs)


def check_indices(
    outputs: Sequence[Variable],
    feeds: Mapping[Variable, np.ndarray],
    changed: Variable | None = None,
) -> None:
    """Raise GraphError for a static index that points outside its table.

    feeds: data of integer leaves. changed: look only at indices that depend on this leaf. -1 is
    allowed: it means nothing and reads 0.
    """
    found = {
        y.uid: y.creator for v in outputs for r in _lookups_of(v).reads if (y := r()) is not None
    }
    for _, f in sorted(found.items()):
        assert f is not None
        table, index = f.inputs
        needed = leaves([index])
        if any(v not in feeds for v in needed) or (changed is not None and changed not in needed):
            continue  # nothing sent yet: checked when it is
        (values,) = evaluate([index], {v: feeds[v] for v in needed})
        leaf = index_leaf(index)
        uses = None if leaf is None else leaf.index_uses
        problem = problem_of(values, table, uses is not None and uses.complete)
        if problem:
            named = "" if leaf is None else f"{leaf.label()}: "
            raise GraphError(f"{f.where}: {named}{problem}")
