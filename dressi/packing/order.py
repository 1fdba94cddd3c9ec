"""The order of stages where their def-use relation leaves it open.

In: stages or substages, their def-use index. Out: pairs of substages of which one has to come
first, so that updates can be written in place; stages in levels, so that dispatches run side by
side.
"""

from __future__ import annotations

from collections.abc import Sequence

from dressi.ad.graph import Variable
from dressi.packing.defuse import DefUse
from dressi.packing.stage import Stage


def update_order(
    index: DefUse, updates: Sequence[tuple[Variable, Variable]]
) -> list[tuple[int, int]]:
    """Pairs (reader of a leaf, substage that writes its next value) that nothing orders yet and
    that may run in this order, so that the value can be written in place."""
    order: dict[tuple[int, int], None] = {}
    users = [list(k) for k in index.users]
    for leaf, new in updates:
        writer = index.writer.get(new.uid)
        if writer is None:
            continue
        for reader in index.readers.get(leaf.uid, ()):
            known = reader == writer or reader in index.producers[writer]
            if known or (reader, writer) in order or _leads_to(users, writer, reader):
                continue
            order[reader, writer] = None
            users[reader].append(writer)
    return list(order)


def _leads_to(users: Sequence[Sequence[int]], first: int, last: int) -> bool:
    """Return whether the last substage needs the first, directly or not."""
    seen, stack = {first}, [first]
    while stack:
        for user in users[stack.pop()]:
            if user == last:
                return True
            if user not in seen:
                seen.add(user)
                stack.append(user)
    return first == last


def in_levels(stages: Sequence[Stage], index: DefUse) -> list[Stage]:
    """The same stages, those first that wait for the fewest others in a row: neighbours of one
    level may run side by side. Without dispatches the order stays as it is."""
    if not any(stage.is_dispatch for stage in stages):
        return list(stages)
    level: dict[int, int] = {}  # by position of the substage
    levels: list[int] = []
    for stage in stages:
        before = [level[p] for k in stage.positions for p in index.producers[k] if p in level]
        mine = max(before, default=-1) + 1
        level.update(dict.fromkeys(stage.positions, mine))
        levels.append(mine)
    order = sorted(range(len(stages)), key=lambda k: levels[k])
    return [stages[k] for k in order]
