"""The graph: Variables (typed 2D images) and Functions (one op applied to Variables).

In: calls of ``F`` ops. Out: a directed acyclic graph, printed by ``show.graph_text``, checked
by ``verify.check_graph``, and read by autodiff, simplify and packing. Paper: A.4.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dressi.ad.idioms import no_vtype, not_a_leaf
from dressi.ad.operators import Operators
from dressi.ad.shape import Size, checked_shape
from dressi.ad.vtype import VType
from dressi.errors import GraphError, user_line

if TYPE_CHECKING:
    from dressi.ad.doubts import Doubt
    from dressi.ad.index_uses import IndexUses
    from dressi.ad.registry import Op

_uids = itertools.count()


@dataclass(frozen=True)
class Derived:
    """The rule by which the engine computes a leaf's data on the host, from another Variable.

    ``source``: a static integer Variable; ``compute``: its array -> this leaf's array. Used for the
    inverted (CSR) form of static indices.
    """

    source: Variable
    compute: Callable[..., np.ndarray]
    other: Variable | None = None
    """A second leaf whose data, as last sent from the host, is passed to ``compute`` too."""

    @property
    def sources(self) -> list[Variable]:
        """The Variables whose arrays ``compute`` takes."""
        return [self.source] if self.other is None else [self.source, self.other]


class Variable(Operators):
    """A typed 2D image in the graph: ``size`` = (width, height) pixels, ``layers`` stacked images.

    A Variable without a creator is a leaf and holds data (``DressiAD.send_img``). ``(N, 1)`` is a
    table: users see arrays ``(N, C)``. ``(1, 1)`` is a uniform and broadcasts against any size; one
    layer broadcasts against n. ``requires_grad``: whether the loss is differentiated to this leaf,
    which makes it a parameter of the optimizer. ``name`` appears in reports and errors.

    ``copy``, ``deepcopy`` and ``pickle`` return new Variables: a copied leaf starts with the data
    that the leaf itself holds (``F.leaf``), not with data sent to an engine, and a graph may use
    both the copy and the original. ``deepcopy`` of a computed Variable copies its whole graph over
    new leaves; Variables that are copied or pickled together keep sharing leaves.

    Raises GraphError for a size or layer count below 1 or a type that is not a VType.
    """

    __slots__ = (
        "__weakref__",
        "_inverses",
        "_requires_grad",
        "creator",
        "data",
        "derived",
        "doubt",
        "fragment_of",
        "index_uses",
        "layers",
        "line",
        "name",
        "size",
        "uid",
        "update",
        "vtype",
    )

    def __init__(
        self,
        vtype: VType,
        size: Size = (1, 1),
        layers: int = 1,
        requires_grad: bool = False,
        name: str | None = None,
    ) -> None:
        if not isinstance(vtype, VType):
            raise no_vtype("Variable", short(vtype))
        what = f"Variable {name}" if name else "Variable"
        checked, n_layers = checked_shape(what, size, layers)
        if requires_grad and vtype.is_int:
            raise GraphError(f"{what}: an integer has no gradient")
        self.vtype = vtype
        self.size: Size = checked
        self.layers = n_layers
        self._requires_grad = requires_grad
        self.name = name
        self.uid = next(_uids)
        self.line = user_line()
        self.creator: Function | None = None
        self.data: np.ndarray | None = None
        """Leaf only: its data until other data are sent. Shape (layers, H, W, *tail)."""
        self.derived: Derived | None = None
        self.update: Variable | None = None
        """State leaf only: its value after every step (moments, step counters)."""
        self.fragment_of: Function | None = None
        """Not None: a value per rasterized fragment of that RASTER function, before the depth
        test."""
        self.doubt: Doubt | None = None  # looked at before this is computed for the first time
        self.index_uses: IndexUses | None = None  # leaf of indices: what F.lookup reads by it
        self._inverses: dict[Hashable, tuple[Variable, Variable]] | None = None
        """Leaf of static indices: the leaves with the inverse of an index, by the ops between this
        leaf and the index and by the number of rows (F.lookup)."""

    flag_changes: ClassVar[int] = 0
    """Number of changes of ``requires_grad`` so far, on any leaf: engines compare it in O(1)."""

    @property
    def requires_grad(self) -> bool:
        """Whether the loss is differentiated to this leaf; may be changed at any time."""
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if value and self.vtype.is_int:
            raise GraphError(f"{self.label()}: an integer has no gradient")
        if value and self.creator is not None:
            raise not_a_leaf(self)
        self._requires_grad = value
        Variable.flag_changes += 1

    @property
    def is_table(self) -> bool:
        """Whether it is (N, 1) with N > 1, which is stored folded to a near-square image."""
        return self.size[1] == 1 and self.size[0] > 1

    @property
    def is_uniform_sized(self) -> bool:
        """Whether it is (1, 1), which broadcasts."""
        return self.size == (1, 1)

    def label(self) -> str:
        """Name, type and size for reports and errors, e.g. ``albedo VEC3@512x512``."""
        text = f"{self.name or f'%{self.uid}'} {self.vtype.name}@{self.size[0]}x{self.size[1]}"
        return text + (f"x{self.layers}" if self.layers > 1 else "")

    def __repr__(self) -> str:
        return f"Variable({self.label()}{', requires_grad' if self.requires_grad else ''})"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.data, self.derived, self.update = state


class Function:
    """One op applied to Variables.

    ``attrs``: (name, value) pairs sorted by name, so that duplicates have equal keys (and are
    merged). ``line``: the user's file:line. ``output``: the Variable that it computes.
    """

    __slots__ = ("attrs", "inputs", "line", "op", "output", "uid")

    def __init__(self, op: Op, inputs: Sequence[Variable], attrs: dict[str, Any]) -> None:
        self.op = op
        self.inputs = tuple(inputs)
        self.attrs = tuple(sorted(attrs.items()))
        self.uid = next(_uids)
        self.line = user_line()
        self.output: Variable

    def attr(self, name: str) -> Any:
        """Return the value of an attribute. Raises KeyError if the op has none of that name."""
        for key, value in self.attrs:
            if key == name:
                return value
        raise KeyError(name)

    @property
    def where(self) -> str:
        """``F.op at file:line`` for errors."""
        return f"F.{self.op.name} at {self.line}"

    def __repr__(self) -> str:
        return f"Function({self.op.name}, {self.line})"


def ancestors(
    outputs: Iterable[Variable],
    cut: Collection[int] = (),
    follow: Callable[[Variable], Iterable[Variable]] | None = None,
) -> tuple[list[Function], list[Variable]]:
    """Return Functions and leaves that the outputs need, both in the order of their creation.

    cut: uids of Variables at which to stop, as if they were leaves. follow: leaf -> other Variables
    that are needed with it. A Function can only use Variables that exist, so creation order is a
    topological order; it is also stable, which keeps generated GLSL stable.
    """
    functions: dict[int, Function] = {}
    leaves: dict[int, Variable] = {}
    stack = list(outputs)
    while stack:
        v = stack.pop()
        f = v.creator
        if f is None:
            if v.uid not in leaves:
                leaves[v.uid] = v
                if follow is not None:
                    stack += [x for x in follow(v) if x.uid not in cut]
        elif f.uid not in functions:
            functions[f.uid] = f
            stack += [x for x in f.inputs if x.uid not in cut]
    return [functions[uid] for uid in sorted(functions)], [leaves[uid] for uid in sorted(leaves)]


def topological(outputs: Iterable[Variable], cut: Collection[int] = ()) -> list[Function]:
    """Return all Functions that the outputs need, inputs first, in the order of their creation.
    cut: uids of Variables at which to stop, as if they were leaves."""
    return ancestors(outputs, cut)[0]


def dependents(functions: Iterable[Function], start: Collection[int]) -> set[int]:
    """Return the uids of the Variables that depend on those of ``start``, themselves included.
    functions: in topological order."""
    out = set(start)
    for f in functions:
        if any(x.uid in out for x in f.inputs):
            out.add(f.output.uid)
    return out


def leaves(outputs: Iterable[Variable]) -> list[Variable]:
    """Return all leaves that the outputs need, also those that only sources of derived leaves need,
    in the order of their creation."""
    return ancestors(outputs, follow=lambda v: v.derived.sources if v.derived else ())[1]


def short(value: Any) -> str:
    """Return the repr of a value, cut to 40 characters for reports and errors."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else text[:37] + "..."
