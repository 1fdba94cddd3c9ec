"""Which tables the leaves of indices point into: bad indices are refused when they are sent.

In: ``F.lookup`` of a leaf, or of components of one. Out: GraphError naming leaf, index and table.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

import numpy as np

from dressi.ad.graph import Variable
from dressi.errors import GraphError


@dataclass(eq=False)
class IndexUses:
    """The tables that a leaf of indices points into, as long as they are there. complete: an index
    of -1, which reads 0 elsewhere, is refused (corners of faces)."""

    tables: weakref.WeakSet[Variable] = field(default_factory=weakref.WeakSet)
    complete: bool = False


def index_leaf(index: Variable) -> Variable | None:
    """Return the leaf that an index is, or is components of; None for any other."""
    f = index.creator
    if f is None:
        return index
    if f.op.name == "swizzle" and f.inputs[0].creator is None:
        return f.inputs[0]
    return None


def note_use(table: Variable, index: Variable, complete: bool = False) -> None:
    """Remember that an index points into a table."""
    leaf = index_leaf(index)
    if leaf is None or leaf.derived is not None:
        return
    if leaf.index_uses is None:
        leaf.index_uses = IndexUses()
    leaf.index_uses.tables.add(table)
    leaf.index_uses.complete |= complete


def check_sent(leaf: Variable, array: np.ndarray, who: str = "send_img") -> None:
    """Raise GraphError for data of a leaf of indices of which one is in none of its tables.

    Several tables may belong to graphs of which some are no longer in use, so the longest counts;
    ``check_indices`` looks at each graph that is run.
    """
    uses = leaf.index_uses
    tables = [] if uses is None else list(uses.tables)
    if uses is None or not tables or not array.size:
        return
    table = max(tables, key=rows_of)
    problem = problem_of(array, table, uses.complete)
    if problem:
        raise GraphError(f"{who}: {leaf.label()}: {problem}")


def problem_of(array: np.ndarray, table: Variable, complete: bool) -> str:
    """Return what is wrong with indices into a table, or nothing. array: (layers, H, W, n)."""
    n, least = rows_of(table), 0 if complete else -1
    low, high = int(array.min()), int(array.max())
    if low >= least and high < n:
        return ""
    at = tuple(int(i) for i in np.argwhere((array >= n) | (array < least))[0])
    text = (
        f"index {int(array[at])} at row {at[2] + at[1] * array.shape[2]} is outside the table "
        f"{_named(table)} of {n} rows, 0 to {n - 1}"
    )
    if low >= 1 and high == n:
        text += "\n  hint: they run from 1 to the number of rows: 1-based? Send them minus 1"
    elif low < least:
        text += "\n  hint: no index counts from the end, and a face has all of its corners"
    return text


def rows_of(table: Variable) -> int:
    """Return the number of rows of a table, or of pixels of an image that is read as one."""
    return table.size[0] * table.size[1]


def _named(table: Variable) -> str:
    """Return the label of a table; of one that is computed row by row, that of its leaf."""
    v = table
    while v.creator is not None:
        v = next((x for x in v.creator.inputs if x.size == table.size), v)
        if v is table or (v.creator is not None and v.name):
            break
        table = v
    return v.label()
