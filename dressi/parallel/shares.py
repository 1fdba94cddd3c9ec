"""Which device gets which views, and which Variables of the replicas belong together.

In: numbers of views, the losses of the replicas. Out: ``Share``, and leaves matched one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dressi.ad.graph import Variable, leaves
from dressi.engine.checks import positive_int
from dressi.errors import GraphError


@dataclass(frozen=True, eq=False)
class Share:
    """The views of one device. ``views``: their indices, an int array that picks them from an array
    of all views, ``targets[share.views]``. ``n_views``: of all devices together. ``index``: which
    replica it is, from 0; -1 where ``make_loss`` is only called for a check."""

    views: np.ndarray
    n_views: int
    index: int = 0

    @property
    def weight(self) -> float:
        """Its part of all views: what a term that is no sum over views (a regularizer) is to be
        multiplied by under ``reduction="sum"``, so that the replicas together count it once."""
        return len(self.views) / self.n_views

    def __len__(self) -> int:
        return len(self.views)


def split_views(n_views: int, n_devices: int, shares: Sequence[int] | None = None) -> list[Share]:
    """Views 0 ... n_views - 1, in order, over devices: as evenly as can be (the first devices get
    one more), or as many as ``shares`` says for each. Raises GraphError for fewer views than
    devices, and for shares that are not positive or do not add up."""
    if positive_int(n_views) is None:
        raise GraphError(f"views must be a number of views, at least 1, got {n_views!r}")
    if shares is None:
        if n_devices > n_views:
            raise GraphError(
                f"{n_views} view{'s' if n_views > 1 else ''} for {n_devices} devices: each needs "
                "at least one"
            )
        base, more = divmod(n_views, n_devices)
        shares = [base + (k < more) for k in range(n_devices)]
    counts = [positive_int(s) for s in shares]
    if len(counts) != n_devices or None in counts or sum(c or 0 for c in counts) != n_views:
        raise GraphError(
            f"shares must be {n_devices} numbers of at least 1 (one per device) that add up to "
            f"{n_views} views, got {list(shares)}"
        )
    parts = np.split(np.arange(n_views), np.cumsum([c or 0 for c in counts])[:-1])
    return [Share(views, n_views, k) for k, views in enumerate(parts)]


def user_leaves(loss: Variable) -> list[Variable]:
    """The leaves of a loss that hold data of the user, in the order of their making: neither
    derived ones nor state that steps count up."""
    return [v for v in leaves([loss]) if v.derived is None and v.update is None]


def match_leaves(losses: Sequence[Variable]) -> list[tuple[Variable, ...]]:
    """Leaves that belong together, one of each replica: those that all replicas share, then the
    others in the order of their making. Raises GraphError where the replicas are not of one make:
    other numbers of leaves, types, names or sizes (but layers: those may be views)."""
    found = [user_leaves(loss) for loss in losses]
    common = {v.uid for v in found[0]}.intersection(*({v.uid for v in f} for f in found))
    shared = [(v,) * len(losses) for v in found[0] if v.uid in common]
    own = [[v for v in f if v.uid not in common] for f in found]
    for k, others in enumerate(own):
        if len(others) != len(own[0]):
            raise GraphError(
                f"make_loss built other graphs for other devices: {len(own[0])} leaves for device "
                f"0, {len(others)} for device {k}\n"
                "  hint: only the number of layers may depend on the share"
            )
    together = list(zip(*own, strict=True))
    for group in together:
        if len({(v.vtype, v.size, v.name) for v in group}) > 1:
            raise GraphError(
                "make_loss built other graphs for other devices: "
                f"{', '.join(v.label() for v in group)} should be one leaf\n"
                "  hint: only the number of layers of what holds views may depend on the share"
            )
    return [*shared, *together]
