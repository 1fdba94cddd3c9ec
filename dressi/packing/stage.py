"""Stage packing: substages into render passes, by the strategy of substage packing (paper, A.9).

In: substages in order of execution, their def-use index. Out: stages in order of execution, each a
list of substages in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dressi.packing.defuse import DefUse
from dressi.packing.greedy import pack_greedily
from dressi.packing.growing import Growing, Joining
from dressi.packing.limits import DeviceLimits
from dressi.packing.substage import Substage


@dataclass(frozen=True, eq=False)
class Stage:
    """Substages of one render pass (or the one of a dispatch), in order of execution."""

    substages: tuple[Substage, ...]
    positions: tuple[int, ...] = ()
    """Of the substages in the order in which they were given to be packed."""

    @property
    def is_dispatch(self) -> bool:
        return any(s.is_dispatch for s in self.substages)


def pack_stages(
    substages: Sequence[Substage], index: DefUse, limits: DeviceLimits, several: bool = True
) -> list[Stage]:
    """Return stages in order of execution. several: whether a stage may have several substages."""
    items = [Joining(s, k, index, limits) for k, s in enumerate(substages)]
    groups = pack_greedily(items, lambda first: Growing(first, limits), (0,) if several else ())
    stages = [growing.members[::-1] for growing in groups]
    return [Stage(tuple(m.substage for m in s), tuple(m.index for m in s)) for s in stages]
