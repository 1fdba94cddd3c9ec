"""Inlining: which values every shader computes itself, so that none is stored.

In: output Variables of a simplified graph, uniform leaves. Out: uids of Variables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dressi.ad.graph import Variable, topological
from dressi.ad.registry import FRAG, FREE, SAME

INLINE_UNIFORM, INLINE_PIXEL = 24, 4
"""Functions that a value made of constants and uniforms may take to be written into every shader
that uses it, for 1x1 values and for images: cheaper than a pass of its own, or than an
attachment."""


def find_inline(
    outputs: Iterable[Variable], uniforms: Collection[int], chains: bool = True
) -> set[int]:
    """Return the uids of what every shader recomputes: constants, coordinates, and (with
    ``chains``) short chains of cheap same-pixel Functions of them and of uniform leaves."""
    outs = list(outputs)
    functions = topological(outs)
    fetched = {v.uid for v in outs}
    for f in functions:
        fetched |= {x.uid for i, x in enumerate(f.inputs) if f.op.read(i) != SAME}
    cost: dict[int, int] = {}
    for f in functions:
        y = f.output
        if f.op.kind == FREE:
            cost[y.uid] = 0
            continue
        if (
            not chains
            or f.op.kind != FRAG
            or f.op.scatter
            or f.op.fragment_exit
            or y.fragment_of is not None
            or y.uid in fetched
            or not all(x.uid in cost or x.uid in uniforms for x in f.inputs)
        ):
            continue
        total = 1 + sum(cost.get(x.uid, 0) for x in f.inputs)
        if total <= (INLINE_UNIFORM if y.size == (1, 1) else INLINE_PIXEL):
            cost[y.uid] = total
    return set(cost)
