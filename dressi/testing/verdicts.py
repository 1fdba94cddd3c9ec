"""Verdicts on a sequence: bit for bit against a fresh engine, within the spread of random roundings
against float64."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from dressi.testing.float64_fit import Fit
from dressi.testing.tape import ROUNDING, Tape

FACTOR = 64.0
"""How much more than the spread of NOISY random roundings an engine may be off."""
NOISY = 3
LEAST = 1e-6
"""Relative to the largest number of an array: what may be off where rounding does nothing."""
FLOAT32_SQUARES = 1e18
"""Numbers beyond it overflow in float32 when they are squared."""
FAR = 1e-2
"""A difference between a whole sequence and float64 that is worth counting."""


@dataclass
class Outcome:
    """What was found in sequences: ``faults`` are sentences that name seed and action."""

    faults: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, other: Outcome) -> None:
        """Count another's in."""
        self.faults += other.faults
        self.counts.update(other.counts)


class Verdicts:
    """Compares what one sequence gives; ``done``: its actions so far, for the sentences."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.done: list[str] = []
        self.outcome = Outcome()

    def fault(self, text: str) -> None:
        self.outcome.faults.append(f"sequence {self.seed}, after {'; '.join(self.done)}: {text}")

    def same(self, what: str, got: Iterable[np.ndarray], fresh: Iterable[np.ndarray]) -> None:
        """Bit for bit."""
        for k, (a, b) in enumerate(zip(got, fresh, strict=True)):
            self.outcome.counts["compared bit for bit"] += 1
            if not np.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
                off = float(np.abs(np.asarray(a, float) - b).max())
                self.fault(f"{what} {k} differs from a fresh engine's by {off:.3g}")

    def near_float64(
        self,
        names: list[str],
        got: list[np.ndarray],
        compute: Callable[[Tape], list[np.ndarray]],
    ) -> None:
        """Within the spread of random roundings."""
        exact = Tape()
        want = compute(exact)
        noisy = [compute(Tape(ROUNDING, 1 + k)) for k in range(NOISY)]
        for k, (name, a, b) in enumerate(zip(names, got, want, strict=True)):
            self.outcome.counts["compared with float64"] += 1
            spread = max(float(np.abs(other[k] - b).max(initial=0.0)) for other in noisy)
            if not np.isfinite(a).all():
                if np.isfinite(spread) and exact.largest < FLOAT32_SQUARES:
                    self.fault(f"{name} is not finite; in float64 it is")
                continue
            off = float(np.abs(a - b).max(initial=0.0))
            if off > FACTOR * spread + LEAST * float(np.abs(b).max(initial=0.0)) + 1e-30:
                self.fault(f"{name} is off by {off:.3g}; rounding at random makes {spread:.3g}")

    def compare_walks(self, walks: list[Fit], ends: dict[str, np.ndarray]) -> None:
        """A whole sequence in float64 against the engine: how often they part, and whether runs
        that are rounded at random part from each other too."""
        numbers = [a for walk in walks for a in walk.leaves.values()]
        if not all(np.isfinite(a).all() for a in (*numbers, *ends.values())):
            return
        exact, *others = walks
        off = max(_apart(ends[n], exact.leaves[n]) for n in ends)
        spread = max(_apart(o.leaves[n], exact.leaves[n]) for o in others for n in ends)
        if off > FAR:
            self.outcome.counts["whole sequences off by more than 1e-2"] += 1
            if spread * FACTOR < off:
                self.fault(f"in all off by {off:.3g}; rounding at random makes {spread:.3g}")


def _apart(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max(initial=0.0))
