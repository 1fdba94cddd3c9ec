"""What is one value a primitive, computed once for all fragments of that primitive.

In: the Functions of a fragment (``raster_compute.Inner``). Out: those that come before, which need
nothing but the number of the primitive, and those that come after; and where values wait between
them: in shared memory, a column a component, so that invocations beside each other read different
banks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dressi.ad.functions.raster_compute import GROUP, Inner
from dressi.ad.graph import Function, Variable
from dressi.ad.registry import ANY, FRAG, FREE, RASTER, SAME

MOST_WORDS = 32
"""Words a primitive in shared memory: with 64 primitives 8 KiB, so that several groups of a
processor fit theirs."""
_AXES = "xyzw"


@dataclass(frozen=True)
class Hoisted:
    """before, after: in order. carried: what the latter read of the former."""

    before: Sequence[Function]
    after: Sequence[Function]
    carried: Sequence[Variable]

    def declarations(self) -> list[str]:
        """Of the arrays."""
        return [
            f"shared {'int' if v.vtype.is_int else 'float'} {name}[{GROUP}];"
            for v in self.carried
            for name in self._names(v)
        ]

    def keep(self, v: Variable, value: str) -> str:
        """Statements that put a value there, for the primitive ``me``."""
        names = self._names(v)
        if len(names) == 1:
            return f"  {names[0]}[me] = {value};"
        parts = [f"{n}[me] = {value}.{_AXES[k]};" for k, n in enumerate(names)]
        return "  " + " ".join(parts)

    def value(self, v: Variable) -> str:
        """Expression for the value of the primitive ``me``."""
        parts = [f"{n}[me]" for n in self._names(v)]
        return parts[0] if len(parts) == 1 else f"{v.vtype.glsl}({', '.join(parts)})"

    def _names(self, v: Variable) -> list[str]:
        at = [x.uid for x in self.carried].index(v.uid)
        return [f"kept{at}_{k}" for k in range(v.vtype.n)]


def hoisted(inner: Inner) -> Hoisted:
    """Nothing comes before where that would carry more than MOST_WORDS."""
    made = {f.output.uid for f in inner.functions}
    once: set[int] = set()
    free = {f.output.uid for f in inner.functions if _is_constant(f)}
    for f in inner.functions:
        if f.output.uid in free or _is_once(f, made, once | free):
            once.add(f.output.uid)
    after = [f for f in inner.functions if f.output.uid not in once or f.output.uid in free]
    before = [f for f in inner.functions if f.output.uid in once]
    needed = {x.uid for f in after for x in f.inputs} | {inner.depth.uid, inner.keep.uid}
    carried = [
        f.output
        for f in before
        if f.output.uid in needed and f.output.uid not in free and f.op.kind != RASTER
    ]
    # The number of the primitive is an argument of both.
    after = [f for f in before if f.op.kind == RASTER] + after
    if sum(v.vtype.n_words for v in carried) > MOST_WORDS or any(
        v.vtype.is_matrix for v in carried
    ):
        return Hoisted((), inner.functions, ())
    return Hoisted(before, after, carried)


def _is_constant(f: Function) -> bool:
    return f.op.kind == FREE and not f.inputs and f.output.size == (1, 1) and f.output.layers == 1


def _is_once(f: Function, made: set[int], once: set[int]) -> bool:
    """Whether f is the rasterization, or has nothing but inputs that are known for a primitive, and
    does not look at the pixel."""
    if f.op.kind == RASTER:
        return True
    if f.op.kind != FRAG or f.op.scatter is not None:
        return False
    glsl = f.op.glsl(f) if callable(f.op.glsl) else f.op.glsl
    if "{pos}" in glsl:
        return False
    for i, x in enumerate(f.inputs):
        how = f.op.read(i)
        if how == SAME and x.uid not in once and (x.uid in made or x.size != (1, 1)):
            return False
        if how not in (SAME, ANY) or (how == ANY and x.uid in made):
            return False
    return True
