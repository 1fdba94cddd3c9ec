"""The graph: Variables (typed 2D images) and Functions (one op applied to Variables).

In: calls of ``F`` ops. Out: a directed acyclic graph that prints itself (``graph_text``), checks
itself (``verify.check_graph``) and is read by autodiff, simplify and packing. Paper: A.4.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dressi.ad.vtype import VType
from dressi.errors import GraphError, user_line

if TYPE_CHECKING:
    from dressi.ad.registry import Op

Size = tuple[int, int]

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


class Variable:
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
        "fragment_of",
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
            raise GraphError(f"Variable: vtype must be a VType, got {vtype!r}")
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

    # Operators are the F ops of the same names; they are attached by dressi.ad.functions so that
    # graph.py stays free of ops.
    __array_ufunc__ = None  # np.float32(2) * var asks Variable.__rmul__, not NumPy
    if TYPE_CHECKING:

        def __add__(self, other: Any) -> Variable: ...
        def __radd__(self, other: Any) -> Variable: ...
        def __sub__(self, other: Any) -> Variable: ...
        def __rsub__(self, other: Any) -> Variable: ...
        def __mul__(self, other: Any) -> Variable: ...
        def __rmul__(self, other: Any) -> Variable: ...
        def __truediv__(self, other: Any) -> Variable: ...
        def __rtruediv__(self, other: Any) -> Variable: ...
        def __matmul__(self, other: Any) -> Variable: ...
        def __neg__(self) -> Variable: ...
        def __abs__(self) -> Variable: ...
        def __pow__(self, other: Any) -> Variable: ...
        def __lt__(self, other: Any) -> Variable: ...
        def __le__(self, other: Any) -> Variable: ...
        def __gt__(self, other: Any) -> Variable: ...
        def __ge__(self, other: Any) -> Variable: ...
        @property
        def x(self) -> Variable: ...
        @property
        def y(self) -> Variable: ...
        @property
        def z(self) -> Variable: ...
        @property
        def w(self) -> Variable: ...
        @property
        def r(self) -> Variable: ...
        @property
        def g(self) -> Variable: ...
        @property
        def b(self) -> Variable: ...
        @property
        def a(self) -> Variable: ...
        @property
        def xz(self) -> Variable: ...
        @property
        def yz(self) -> Variable: ...
        @property
        def zw(self) -> Variable: ...
        @property
        def rgb(self) -> Variable: ...
        @property
        def xy(self) -> Variable: ...
        @property
        def xyz(self) -> Variable: ...

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.data, self.derived, self.update = state

    def __bool__(self) -> bool:
        raise GraphError(
            f"{self.label()}: a Variable has no truth value while the graph is "
            "being built; use F.where"
        )


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
        """The value of an attribute. Raises KeyError if the op has none of that name."""
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


def stand_in(v: Variable) -> Variable:
    """A leaf with the uid, name, type and size of ``v`` that does not keep v's graph alive."""
    out = Variable(v.vtype, v.size, v.layers, name=v.name)
    out.uid, out.line = v.uid, v.line
    return out


def checked_shape(what: str, size: Any, layers: Any = 1) -> tuple[Size, int]:
    """(width, height) and layers as ints. what: the caller's name for the message.

    Raises GraphError for numbers that are no ints or below 1.
    """
    try:
        width, height = (operator.index(v) for v in size)
        n_layers = operator.index(layers)
    except (TypeError, ValueError):
        raise GraphError(
            f"{what}: size must be (width, height) and layers an int, "
            f"got size={size!r}, layers={layers!r}"
        ) from None
    if width < 1 or height < 1 or n_layers < 1:
        raise GraphError(
            f"{what}: size and layers must be at least 1, got size={size!r}, layers={layers!r}"
        )
    return (width, height), n_layers


def ancestors(
    outputs: Iterable[Variable],
    cut: Collection[int] = (),
    follow: Callable[[Variable], Iterable[Variable]] | None = None,
) -> tuple[list[Function], list[Variable]]:
    """Functions and leaves that the outputs need, both in the order of their creation.

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
    """All Functions that the outputs need, inputs first, in the order of their creation. cut: uids
    of Variables at which to stop, as if they were leaves."""
    return ancestors(outputs, cut)[0]


def dependents(functions: Iterable[Function], start: Collection[int]) -> set[int]:
    """uids of the Variables that depend on those of ``start``, themselves included. functions: in
    topological order."""
    out = set(start)
    for f in functions:
        if any(x.uid in out for x in f.inputs):
            out.add(f.output.uid)
    return out


def leaves(outputs: Iterable[Variable]) -> list[Variable]:
    """All leaves that the outputs need, also those that only sources of derived leaves need, in the
    order of their creation."""
    return ancestors(outputs, follow=lambda v: v.derived.sources if v.derived else ())[1]


def graph_text(outputs: Iterable[Variable]) -> str:
    """The graph as text, one Function per line: ``%7 VEC3@4x4 = mul(%5, albedo)  # file:line``."""
    outs = list(outputs)
    lines = [
        f"leaf {v.label()}{'  requires_grad' if v.requires_grad else ''}" for v in leaves(outs)
    ]
    for f in topological(outs):
        args = ", ".join(v.name or f"%{v.uid}" for v in f.inputs)
        attrs = "".join(f", {k}={short(v)}" for k, v in f.attrs)
        lines.append(f"{f.output.label()} = {f.op.name}({args}{attrs})  # {f.line}")
    lines.append("return " + ", ".join(v.name or f"%{v.uid}" for v in outs))
    return "\n".join(lines)


def short(value: Any) -> str:
    """The repr of a value, cut to 40 characters for reports and errors."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
