"""What follows a dispatch of one group, on the one pixel that it makes, runs in that dispatch.

In: connected substages. Out: connected substages, some fewer. A loss ends in a sum, which one group
finishes, and a few operations on that number. A dispatch of their own would take longer to begin
than to run, and nothing could run beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dressi.ad.registry import COMP, FRAG, SAME
from dressi.packing.rematerialize import connect, readers_of, rebuilt
from dressi.packing.substage import Context, Substage, over_limits

PIXEL = ((1, 1), 1)


def append_tails(substages: Sequence[Substage], context: Context) -> list[Substage]:
    """Substages in order of execution; what could be appended to a sum is."""
    connected = connect(substages)
    readers = readers_of(connected)
    depths = _depths(connected)
    # Of several sums that end in the same operations, the one that is ready last goes on.
    for i in sorted(range(len(connected)), key=lambda i: -depths[i]):
        s = connected[i]
        users = sorted(readers.get(s.outputs[0].uid, ())) if _one_pixel(s) else []
        # The first reader: what else reads the sum runs after it.
        if not users or not _appendable(user := connected[users[0]]):
            continue
        if any(p is not s and _leads_to(s, p) for p in user.producers):
            continue
        joined = _joined(s, user, len(users) > 1, context)
        if joined is not None:
            connected[users[0]] = joined
            return append_tails([*connected[:i], *connected[i + 1 :]], context)
    return connected


def _depths(connected: Sequence[Substage]) -> list[int]:
    """How many substages come before each, one after the other. In order of execution."""
    depth: dict[int, int] = {}
    for s in connected:
        depth[id(s)] = 1 + max((depth[id(p)] for p in s.producers), default=-1)
    return [depth[id(s)] for s in connected]


def _one_pixel(s: Substage) -> bool:
    """Whether it is a dispatch of one group, whose first invocation stores one pixel."""
    if s.kind != COMP or len(s.units) != 1 or len(s.outputs) != 1:
        return False
    f, y = s.units[0].functions[0], s.outputs[0]
    one_group = f.op.groups is not None and f.op.groups(f) == (1, 1, 1)
    return f.op.stores_first and one_group and (y.size, y.layers) == PIXEL


def _appendable(s: Substage) -> bool:
    """Whether it computes one pixel from others of one pixel."""
    return (
        s.lowered
        and s.kind == FRAG
        and s.domain == PIXEL
        and not s.computed
        and all(read == SAME for u in s.units for _, read in u.reads)
        and all(f.op.kind != COMP and not f.op.scatter for u in s.units for f in u.functions)
    )


def _leads_to(first: Substage, second: Substage) -> bool:
    """Whether the second needs what the first makes."""
    seen: set[int] = set()
    waiting = [second]
    while waiting:
        s = waiting.pop()
        if s is first:
            return True
        if id(s) not in seen:
            seen.add(id(s))
            waiting += s.producers
    return False


def _joined(s: Substage, user: Substage, shared: bool, context: Context) -> Substage | None:
    """Both in one; None where that breaks a limit."""
    made = s.outputs[0]
    kept = [made] if shared or made.uid in context.final else []
    units = [*s.units, *user.units]
    new = rebuilt(replace(s, lowered=True), units, [*kept, *user.outputs], context)
    return None if over_limits(new, context) else new
