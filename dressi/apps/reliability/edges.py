"""R2: points at the edge of the domain of ops, on the device: forward as documented, no NaN or
infinity in a gradient where a one-sided derivative is finite, exactly 0 for a zero upstream."""

from __future__ import annotations

from dressi.apps.reliability.row import Row, at_most
from dressi.engine import DressiAD
from dressi.testing.domain_edges import EDGES
from dressi.testing.edges import not_zero, off

SMALL = 6
"""Points of a small run."""


def measure(device: str | None, small: bool) -> list[Row]:
    """Return the rows of R2: how many values and gradients at edges are not as documented."""
    edges = EDGES[:SMALL] if small else EDGES
    with DressiAD(device) as ad:
        values, gradients = off(ad, edges)
        zeros = not_zero(ad, edges)
    return [
        at_most("R2 values not as documented", len(values), 0, len(edges)),
        at_most("R2 gradients not as documented", len(gradients), 0, len(edges)),
        at_most("R2 zero upstream, gradient not 0", len(zeros), 0, len(edges)),
    ]
