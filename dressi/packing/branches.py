"""Values that only one side of a selection needs, so that shaders compute them in a branch.

In: the Functions of a shader in order, and the values that something outside of them uses. Out:
for each selection, the Functions that only its first or only its second value needs. What a
selection throws away is then not computed where all invocations beside each other throw it away:
the distance to the edges of a face inside of it, a material where there is no surface.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from dressi.ad.graph import Function
from dressi.ad.registry import FRAG, FREE

LEAST = 8
"""Functions that a branch saves at least; fewer are computed faster than they are jumped over."""


@dataclass
class Branches:
    """sides: by uid of a selection, the Functions of its first and second value in order. within:
    uids of all Functions of sides."""

    sides: dict[int, tuple[list[Function], list[Function]]] = field(default_factory=dict)
    within: set[int] = field(default_factory=set)


def _is_selection(f: Function) -> bool:
    return f.op.name == "where" and f.inputs[0].vtype.n == 1


def _may_move(f: Function) -> bool:
    return f.op.kind in (FRAG, FREE) and f.op.scatter is None and not f.op.fragment_exit


def find_branches(functions: Sequence[Function], used: Collection[int]) -> Branches:
    """functions: of one shader, in order. used: uids of Variables that are needed outside of
    them."""
    known = {f.output.uid: f for f in functions}
    readers: dict[int, set[int]] = {}
    for f in functions:
        for x in f.inputs:
            if x.uid in known:
                readers.setdefault(x.uid, set()).add(f.output.uid)
    order = {f.output.uid: i for i, f in enumerate(functions)}
    found = Branches()
    # From the last to the first, so that of two selections, one inside the other, the outer one
    # takes its Functions first; the inner one, being among them, then divides those.
    owner: dict[int, tuple[int, int]] = {}
    for f in reversed(functions):
        if not _is_selection(f):
            continue
        uid = f.output.uid
        sides: list[list[Function]] = [[], []]
        for k in (0, 1):
            x = f.inputs[1 + k]
            others = {f.inputs[0].uid, f.inputs[2 - k].uid}
            if x.uid in others:
                continue
            members: set[int] = set()
            todo = [x.uid]
            # A Function joins when all its readers have; later ones are looked at first.
            while todo:
                todo.sort(key=lambda u: order.get(u, -1))
                u = todo.pop()
                g = known.get(u)
                if g is None or u in members or u in used or not _may_move(g) or u in others:
                    continue
                if not readers[u] <= members | {uid} or owner.get(u) != owner.get(uid):
                    continue
                members.add(u)
                todo += [x.uid for x in g.inputs]
            if sum(known[u].op.kind == FRAG for u in members) >= LEAST:
                for u in members:
                    owner[u] = (uid, k)
                sides[k] = [known[u] for u in sorted(members, key=order.__getitem__)]
                found.within |= members
        if sides[0] or sides[1]:
            found.sides[uid] = (sides[0], sides[1])
    # A Function of a side of a selection that is itself in a side belongs to the inner one only.
    for uid, sides_of in found.sides.items():
        found.sides[uid] = tuple(  # type: ignore[assignment]
            [g for g in side if owner[g.output.uid] == (uid, k)] for k, side in enumerate(sides_of)
        )
    return found
