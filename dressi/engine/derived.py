"""Data of derived leaves, computed on the host from those that they follow.

In: derived leaves, and what gives the data of any leaf. Out: arrays; the same one as long as the
data that it follows are the same.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dressi.ad.evaluate import evaluate
from dressi.ad.graph import Variable, leaves

Host = Callable[[Variable], np.ndarray]
"""Data of a leaf as last sent, the same array until other data are sent; of derived leaves what
``DerivedData.of`` returns."""


class DerivedData:
    """What was computed of derived leaves."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[list[np.ndarray], np.ndarray]] = {}
        """By uid of a derived leaf: the data that it was computed from, and its own."""
        self._widened: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # int32 and int64 of sources

    def of(self, v: Variable, host: Host) -> np.ndarray:
        """Return the data of a derived leaf, computed once: several leaves may follow one that
        follows another, and each asks for it."""
        assert v.derived is not None
        parts = v.derived.sources
        feeds = {leaf: host(leaf) for leaf in leaves(parts)}
        given, made = self._made.get(v.uid, ([], None))
        if made is not None and all(a is b for a, b in zip(given, feeds.values(), strict=True)):
            return made
        if [p for p in parts if p.creator is not None]:
            made = v.derived.compute(*evaluate(parts, feeds))
        else:
            made = v.derived.compute(*(self._wide(p, feeds[p]) for p in parts))
        self._made[v.uid] = list(feeds.values()), made
        return made

    def _wide(self, v: Variable, array: np.ndarray) -> np.ndarray:
        """Data of a leaf, integers as int64: the same array as long as they are the same."""
        if array.dtype != np.int32:
            return array
        known = self._widened.get(v.uid)
        if known is None or known[0] is not array:
            known = self._widened[v.uid] = array, array.astype(np.int64)
        return known[1]

    def drop(self, uid: int) -> None:
        """Forget a leaf, derived or followed."""
        self._made.pop(uid, None)
        self._widened.pop(uid, None)

    def n_bytes(self) -> int:
        """Bytes of what is kept beside the data of the leaves."""
        return sum(wide.nbytes for _, wide in self._widened.values())
