"""``dressi bench parallel``: steps with the views split over the devices of this machine, beside
the same steps on the first of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dressi.ad import Adam
from dressi.apps.bench.common import Copies, Settings, Table
from dressi.apps.timing import alternating_ms
from dressi.engine import DressiAD
from dressi.errors import OutOfMemoryError
from dressi.parallel import DataParallel, Share
from dressi.testing.problems import (
    Problem,
    colours,
    hard_silhouettes,
    silhouette_problem,
    sphere,
    squashed,
    texture_problem,
    view_matrices,
)
from dressi.vk import DeviceInfo, equal_devices

COLUMNS = (
    "case",
    "devices",
    "views",
    "one_ms",
    "ms",
    "speedup",
    "one_row_ms",
    "row_ms",
    "row_speedup",
    "gradients_ms",
    "sum_ms",
    "update_ms",
    "megabytes",
    "rel_diff",
    "drift",
)

STEPS = 20
"""After which the parameters of both are compared."""

ROUNDS = 20
"""Turns that one device and several take; what else the machine does hits both alike."""

IN_A_ROW, ROWS = 16, 8
"""Steps of one ``exec_steps``, as a fit takes them, and turns of these."""

EPS = 1e-3
"""Of Adam, times the largest gradient at the start: above what rounding leaves of gradients that
cancel. With less, Adam makes steps of full length of these, and the order of a sum decides their
sign."""


@dataclass(frozen=True)
class Row:
    """A step that is a call of ``exec_steps``."""

    engine: DressiAD | DataParallel

    def exec_step(self) -> None:
        self.engine.exec_steps(IN_A_ROW)


@dataclass(frozen=True)
class Case:
    """views, resolution, faces; texels on a side of the texture (0: vertices by silhouettes)."""

    views: int
    resolution: int
    faces: int
    texels: int = 0

    @property
    def name(self) -> str:
        what = f"texture {self.texels}²" if self.texels else f"{self.faces} faces"
        return f"{what}, {self.resolution}²"


CASES = (
    Case(8, 256, 1280),
    Case(8, 512, 20480),
    Case(16, 1024, 20480),
    Case(64, 1024, 20480),
    Case(8, 1024, 5120, texels=1024),
    Case(64, 1024, 5120, texels=256),
)
CPU_CASES = (Case(8, 128, 1280), Case(8, 256, 1280), Case(8, 128, 1280, texels=256))
SMOKE = (Case(3, 16, 80), Case(2, 16, 80, texels=8))


def factory(case: Case, device: int) -> Callable[[np.ndarray], Problem]:
    """Return indices of views -> their problem. device: renders the targets."""
    mesh, matrices = sphere(case.faces), view_matrices(case.views)
    if case.texels:
        seen = colours(mesh, matrices, case.resolution, device)
        return lambda k: texture_problem(mesh, matrices[k], seen[k], case.texels)
    masks = hard_silhouettes(squashed(mesh), matrices, case.resolution, device)
    return lambda k: silhouette_problem(mesh, matrices[k], masks[k])


def measure(settings: Settings, copies: Copies) -> Table:
    """Return a row for each case and number of devices: 2, 4, ... and all. The devices are those of
    one type that ``--device`` fits, else the best type; a single one is taken twice, which shows
    that it works, not how fast several are."""
    found = equal_devices(settings.device)
    there = found if len(found) > 1 else found * 2
    for k, info in enumerate(there):
        print(f"device {k}: {info.index} {info.name}, {info.driver}, UUID {info.uuid or 'unknown'}")
    if len(found) == 1:
        print("  one such device, taken twice: that shows that it works, not how fast several are")
    cases = SMOKE if settings.smoke else CPU_CASES if found[0].type == "cpu" else CASES
    rows: list[dict[str, Any]] = []
    for case in cases:
        try:
            rows += rows_of(case, there, settings, copies)
        except OutOfMemoryError as error:
            print(f"{case.name}, {case.views} views left out: {error}")
    return Table(COLUMNS, rows)


def counts(n: int) -> list[int]:
    """Return the numbers 2, 4, 8, ... and n."""
    return sorted({2**k for k in range(1, n.bit_length()) if 2**k <= n} | {n})


def rows_of(
    case: Case, there: list[DeviceInfo], settings: Settings, copies: Copies
) -> list[dict[str, Any]]:
    """Return the case on one device, and on 2, 4, ... of them."""
    make, first = factory(case, there[0].index), there[0].index
    copies.measure()
    problem = make(np.arange(case.views))
    with DressiAD(first) as ad:
        problem.load(ad)
        eps = EPS * float(np.abs(ad.recv_grad(problem.parameter)).max())
        adam = Adam(0.01 if case.texels else 1e-4, eps=eps)
        ad.set_optimizer(adam)
        ad.exec_steps(STEPS)
        want = ad.recv_img(problem.parameter)
        return [
            row_of(case, make, adam, there[:n], ad, want, settings)
            for n in counts(min(len(there), case.views))
        ]


def row_of(
    case: Case,
    make: Callable[[np.ndarray], Problem],
    adam: Adam,
    used: list[DeviceInfo],
    one: DressiAD,
    want: np.ndarray,
    settings: Settings,
) -> dict[str, Any]:
    """Return times and parameters of a split, of single steps and of steps in a row. one: all views
    on one device; both take turns. want: its parameters after STEPS."""

    def make_loss(share: Share) -> tuple[Any, Any]:
        part = make(share.views)
        return part.loss, part.data

    devices = [i.index for i in used]
    with DataParallel(make_loss, case.views, devices, optimizer=adam) as dp:
        dp.exec_steps(STEPS)
        (parameter,) = dp.parameters
        got = dp.recv_img(parameter)
        times = alternating_ms([one, dp], 2 if settings.smoke else ROUNDS)
        one_ms, ms = (float(np.median(t)) for t in times)
        phases = dp.phase_ms()  # of single steps
        rows = 1 if settings.smoke else ROWS
        times = alternating_ms([Row(one), Row(dp)], rows, turn=1, warm_up=1)
        one_row_ms, row_ms = (float(np.median(t)) / IN_A_ROW for t in times)
        moved = sum(p.nbytes for r in dp.replicas for p in r.read_parameters())
        return {
            "case": case.name,
            "devices": len(used),
            "names": [i.name for i in used],
            "indices": devices,
            "same_device": len(set(devices)) < len(devices),
            "views": case.views,
            "shares": [len(s) for s in dp.shares],
            "one_ms": one_ms,
            "ms": ms,
            "speedup": one_ms / ms,
            "one_row_ms": one_row_ms,
            "row_ms": row_ms,
            "row_speedup": one_row_ms / row_ms,
            "in_a_row": IN_A_ROW,
            **{f"{name}_ms": ms for name, ms in phases.items()},
            "megabytes": 2e-6 * moved,
            "steps": STEPS,
            "rel_diff": float(np.abs(got - want).max() / np.abs(want).max()),
            "drift": dp.drift(),
        }
