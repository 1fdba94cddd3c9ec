"""What follows a dispatch of one group, on the one pixel that it makes, runs in that dispatch.

In: connected substages. Out: connected substages, some fewer. A loss ends in a sum, which one group
finishes, and a few operations on that number. A dispatch of their own would take longer to begin
than to run, and nothing could run beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dressi.ad.kernels import workgroup
from dressi.ad.registry import COMP, FRAG, SAME
from dressi.packing.rematerialize import connect, readers_of, rebuilt
from dressi.packing.substage import Context, Substage, over_limits

PIXEL = ((1, 1), 1)


def append_tails(substages: Sequence[Substage], context: Context) -> list[Substage]:
    """Substages in order of execution; what could be appended to a sum is."""
    connected = connect(substages)
    readers = readers_of(connected)
    depths = _depths(connected)
    after: list[Substage | None] = list(connected)
    # Of several sums that end in the same operations, the one that is ready last goes on. It also
    # comes before the sums that it reads, whose first reader may be another one once it has moved.
    for i in sorted(range(len(connected)), key=lambda i: -depths[i]):
        s = connected[i]
        users = readers.get(s.outputs[0].uid) if after[i] is s and _one_pixel(s) else None
        if not users:
            continue
        # The first reader: what else reads the sum runs after it, so nothing that the reader needs
        # can need the sum.
        at = min(users)
        user = after[at]
        assert user is not None
        joined = _joined(s, user, len(users) > 1, context) if _appendable(user) else None
        if joined is None:
            continue
        after[at], after[i] = joined, None
        for uid in s.reads:  # its reads are the reader's now
            readers[uid].discard(i)
            readers[uid].add(at)
    return connect([s for s in after if s is not None])


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
    kernel = workgroup(f.op)
    one_group = kernel is not None and kernel.stores_first and kernel.groups(f) == (1, 1, 1)
    return one_group and (y.size, y.layers) == PIXEL


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


def _joined(s: Substage, user: Substage, shared: bool, context: Context) -> Substage | None:
    """Both in one; None where that breaks a limit."""
    made = s.outputs[0]
    kept = [made] if shared or made.uid in context.final else []
    units = [*s.units, *user.units]
    new = rebuilt(replace(s, lowered=True), units, [*kept, *user.outputs], context)
    return None if over_limits(new, context) else new
