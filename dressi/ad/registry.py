"""The op registry: one row per op, which says what the op is, apart from how it is run.

In: ``register(op, Kernel(...), ...)`` in ``dressi.ad.functions``. Out: rows that the graph,
autodiff, the NumPy evaluator, the packer and the generated tests read. The kernels of a row, which
run it, are kept in ``ad.kernels``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dressi.ad.case import Case
from dressi.ad.graph import Function, Size, Variable, short
from dressi.ad.vtype import VType
from dressi.errors import GraphError

# How an input is read matters to the packer.
SAME, ANY, SAMPLER, VERTEX = "same", "any", "sampler", "vertex"

# Shader types. MACRO is replaced by other ops before packing; FREE costs nothing and is written
# into every shader that uses it (constants, pixel coordinates).
FRAG, RASTER, COMP, MACRO, FREE = "frag", "raster", "comp", "macro", "free"

Shape = tuple[VType, Size, int]
Infer = Callable[[Sequence[Variable], dict[str, Any]], Shape]


@dataclass(frozen=True, eq=False)
class Op:
    """One op: what it is.

    ``reads``: how each input is read (the last entry repeats). ``scatter``: None, or the Function
    writes its output anywhere, into a zeroed buffer: sums ("add"), or words as its kernel likes
    ("raw"). The pixels that run it are then those of the input ``domain``.
    """

    name: str
    infer: Infer
    reads: tuple[str, ...] = (SAME,)
    kind: str = FRAG
    backward: Callable[[Function, Variable, int], Variable | None] | None = None
    additive: bool = False
    """The output of sums of inputs is the sum of the outputs: linear in all inputs together."""
    linear_in: tuple[int, ...] = ()
    """Inputs in each of which the op is linear, the others held (-1: the last)."""
    flat: bool | None = None
    """Whether the output stands still, but for jumps, where inputs move. None: integers made of
    floats do, anything else moves by its derivative."""
    exact: bool = False
    """The op moves or chooses numbers, and at most changes their sign: nothing is rounded."""
    neutral: tuple[float | None, ...] = ()
    """Of each of two inputs the constant that makes the output the other input; None: there is
    none."""
    why_zero: str = ""
    """What explains a gradient that is 0 everywhere; "": some factor, or the derivative, is."""
    reference: Callable[..., np.ndarray] | None = None
    """(Function, list of float64/int64 arrays (layers, H, W, *tail)) -> array."""
    expand: Callable[[Function, Sequence[Variable]], Variable] | None = None
    scatter: str | None = None
    domain: int | None = None
    row: int | None = None
    """Only with ``scatter="add"``: adds input 0 to the row of the output whose number is this
    input; nothing where there is no such row."""
    zero_if: tuple[int, ...] | Callable[[Function], tuple[int, ...] | None] | None = None
    """Inputs that, where all of them are exactly 0, make the output exactly 0 (a scatter: let it
    add nothing), whatever the others hold, NaN too. None: not known."""
    chooses: bool = False
    """Input 1 is used only where input 0 is not 0, input 2 only where it is."""
    once: tuple[int, ...] = ()
    """Inputs read at any pixel of which each pixel is read about once over all pixels of the
    output: a reduction or a gather may compute them itself."""
    one_read: tuple[int, ...] = ()
    """Inputs read at any pixel of which each pixel of the output reads one: a dispatch may compute
    what is read so, where that costs less than a dispatch of its own."""
    fragment_exit: bool = False
    """F.resolve: takes (value, depth, keep) per fragment through the depth test to pixels."""
    cases: tuple[Case, ...] = ()
    no_cases: str = ""
    """Why there are none, and where the op is tested."""

    @property
    def moves(self) -> bool:
        """Whether the op reads or writes other pixels than the one that it makes."""
        return self.scatter is not None or any(read != SAME for read in self.reads)

    def is_linear_in(self, f: Function, i: int) -> bool:
        """Return whether ``linear_in`` names input i of a Function of this op."""
        return any(i == k % len(f.inputs) for k in self.linear_in)

    def zeros(self, f: Function) -> tuple[int, ...] | None:
        """Return ``zero_if`` of a Function of this op."""
        return self.zero_if(f) if callable(self.zero_if) else self.zero_if

    def read(self, i: int) -> str:
        """Return how input i is read."""
        return self.reads[min(i, len(self.reads) - 1)]


OPS: dict[str, Op] = {}


def every_input(f: Function) -> tuple[int, ...]:
    """For ``zero_if``: the output is 0 where all inputs are."""
    return tuple(range(len(f.inputs)))


def register(op: Op) -> Op:
    """Add a row; the name must be new."""
    assert op.name not in OPS, op.name
    OPS[op.name] = op
    return op


def apply(op: Op, inputs: Sequence[Variable], **attrs: Any) -> Variable:
    """Apply an op: infer the output, connect the graph. Raises GraphError at the user's call."""
    function = Function(op, inputs, attrs)
    for x in inputs:
        if not isinstance(x, Variable):
            raise GraphError(
                f"{function.where}: needs Variables, got {type(x).__name__} {short(x)}"
            )
    try:
        vtype, size, layers = op.infer(inputs, attrs)
    except GraphError as error:
        given = ", ".join(x.label() for x in inputs) or "none"
        raise GraphError(f"{function.where}: {error.reason}\n  inputs: {given}") from None
    output = Variable(vtype, size, layers)
    output.line = function.line
    output.creator = function
    output.fragment_of = _fragment_of(function)
    function.output = output
    return output


def _fragment_of(function: Function) -> Function | None:
    """Values per fragment stay so until F.resolve; mixing two rasterizations is an error."""
    op = function.op
    if op.kind == RASTER:
        return function
    sources = {
        x.fragment_of.uid: x.fragment_of for x in function.inputs if x.fragment_of is not None
    }
    if not sources:
        return None
    if len(sources) > 1:
        raise GraphError(
            f"{function.where}: mixes fragments of two rasterizations; resolve them first"
        )
    if op.kind == MACRO or op.scatter or op.kind == COMP:
        raise GraphError(f"{function.where}: cannot work on fragments; use F.resolve first")
    for i, x in enumerate(function.inputs):
        if x.fragment_of is not None and op.read(i) != SAME:
            raise GraphError(
                f"{function.where}: reads fragments at other pixels; use F.resolve first\n"
                f"  input: {x.label()}"
            )
    return None if op.fragment_exit else next(iter(sources.values()))
