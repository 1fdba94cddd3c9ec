"""R3: gradients of a whole pipeline on the device against float64 finite differences, which
rasterize again at every step (``dressi.testing.gradients``)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dressi.apps.reliability.processes import shared_out
from dressi.apps.reliability.row import Row, at_most, below
from dressi.engine import DressiAD
from dressi.testing.gradients import (
    COSINE,
    GEOMETRY,
    N_DIRECTIONS,
    REL_L2,
    REL_L2_MAPS,
    Comparison,
    compare,
    load,
)
from dressi.testing.scenes import gradient_scenes

SMALL_DIRECTIONS = 2
THROWN_OUT = 1 / 3
"""Share of the comparisons that may be thrown out."""
SMALL = ("acute, silhouette, K=1", "quad, texture, K=1")
"""Scenes of a small run."""


def compare_all(ad: DressiAD, names: Sequence[str], most: int = N_DIRECTIONS) -> list[Comparison]:
    """Return every parameter of some scenes."""
    made, out = gradient_scenes(), []
    for name in names:
        scene = made[name]()
        load(ad, scene)
        out += [compare(ad, name, scene, leaf, most) for leaf in scene.parameters]
    return out


def rows_of(found: Sequence[Comparison]) -> list[Row]:
    """Return the worst of each kind of parameter, and how many comparisons were thrown out."""
    rows = []
    for leaf in dict.fromkeys(c.leaf for c in found):
        mine = [c for c in found if c.leaf == leaf and c.agreed]
        limit = REL_L2 if leaf in GEOMETRY else REL_L2_MAPS
        # Nothing that could be compared is no promise that was kept.
        worst = max((c.rel_l2 for c in mine), default=float("inf"))
        turned = max((1.0 - c.cosine for c in mine), default=float("inf"))
        rows.append(below(f"R3 {leaf}, relative L2", worst, limit, len(mine)))
        rows.append(below(f"R3 {leaf}, 1 - cosine", turned, round(1 - COSINE, 9), len(mine)))
    thrown = sum(not c.agreed for c in found)
    rows.append(at_most("R3 thrown out", thrown, int(THROWN_OUT * len(found)), len(found)))
    return rows


def measure(device: str | None, small: bool) -> list[Row]:
    """Return all scenes, all their parameters."""
    if small:
        return rows_of(_compared(SMALL, device, SMALL_DIRECTIONS))
    # The float64 oracle is NumPy in one thread.
    found = shared_out(partial(_compared, device=device), list(gradient_scenes()))
    return rows_of([c for share in found for c in share])


def _compared(
    names: Sequence[str], device: str | None, most: int = N_DIRECTIONS
) -> list[Comparison]:
    with DressiAD(device) as ad:
        return compare_all(ad, names, most)
