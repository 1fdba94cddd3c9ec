"""R1: every op, forward and gradient, against float64."""

from __future__ import annotations

from dressi.apps import doctor
from dressi.apps.reliability.row import Row, below

SMALL = ("add", "sin", "block_sum")
"""Ops of a small run."""


def measure(device: str | None, small: bool) -> list[Row]:
    """The worst relative error of an op, of those with each threshold."""
    found = doctor.examine_ops(device, SMALL if small else None, every_shape=not small)
    rows = []
    for limit, kind in ((doctor.ALGEBRAIC, "algebraic"), (doctor.TRANSCENDENTAL, "transcendental")):
        mine = [f for f in found if f.allowed == limit]
        if mine:
            worst, cases = max(f.error for f in mine), sum(f.cases for f in mine)
            rows.append(below(f"R1 {kind}", worst, limit, cases))
    return rows
