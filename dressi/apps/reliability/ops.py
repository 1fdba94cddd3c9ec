"""R1: every op, forward and gradient, against float64."""

from __future__ import annotations

from functools import partial

from dressi.ad.registry import OPS
from dressi.apps import doctor
from dressi.apps.reliability.processes import shared_out
from dressi.apps.reliability.row import Row, below

SMALL = ("add", "sin", "block_sum")
"""Ops of a small run."""


def measure(device: str | None, small: bool) -> list[Row]:
    """Return the worst relative error of an op, of those with each threshold."""
    if small:
        found = doctor.examine_ops(device, SMALL)
    else:
        names = [name for name, op in OPS.items() if op.cases]
        examine = partial(doctor.examine_ops, device, every_shape=True)
        found = [f for share in shared_out(examine, names) for f in share]
    rows = []
    for limit, kind in ((doctor.ALGEBRAIC, "algebraic"), (doctor.TRANSCENDENTAL, "transcendental")):
        mine = [f for f in found if f.allowed == limit]
        if mine:
            worst, cases = max(f.error for f in mine), sum(f.cases for f in mine)
            rows.append(below(f"R1 {kind}", worst, limit, cases))
    return rows
