"""``dressi bench reliability``: promises as figures with thresholds, on this device.

R1: every op, forward and gradient, against float64. R4: a fit whose target is its own picture stays
where it is, to the bit. R9: with ``Options(deterministic=True)`` a fit gives the same bits in ten
processes, under 1, 2 and 8 threads of lavapipe.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dressi.ad import Adam, Variable
from dressi.ad.functions import mean
from dressi.ad.vtype import MAT4
from dressi.apps import doctor, problems
from dressi.apps.bench.common import Copies, Settings, Table
from dressi.config import child_environment
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.packing import Options

COLUMNS = ("figure", "value", "threshold", "holds", "cases")
STEPS = 100
RUNS = 10
THREADS = ("1", "2", "8")
SMOKE_OPS = ("add", "sin", "block_sum")
KINDS = ("vertices", "texture", "camera")

Row = dict[str, Any]


def _row(figure: str, value: float, threshold: float, holds: bool, cases: int) -> Row:
    return dict(zip(COLUMNS, (figure, value, threshold, holds, cases), strict=True))


def ops(settings: Settings) -> list[Row]:
    """R1: the worst relative error of an op, of those with each threshold."""
    names = SMOKE_OPS if settings.smoke else None
    found = doctor.examine_ops(settings.device, names, every_shape=not settings.smoke)
    rows = []
    for limit, kind in ((doctor.ALGEBRAIC, "algebraic"), (doctor.TRANSCENDENTAL, "transcendental")):
        mine = [f for f in found if f.allowed == limit]
        if mine:
            worst = max(f.error for f in mine)
            cases = sum(f.cases for f in mine)
            rows.append(_row(f"R1 {kind}", worst, limit, worst < limit, cases))
    return rows


def problem_of(kind: str, small: bool) -> problems.Problem:
    """A small fit of vertices, a texture or cameras."""
    mesh, size = problems.sphere(80), 24 if small else 64
    matrices = problems.view_matrices(2)
    if kind == "texture":
        picture = np.zeros((len(matrices), size, size, 3), np.float32)
        return problems.texture_problem(mesh, matrices, picture, 16 if small else 64)
    y, x = (np.mgrid[:size, :size] + 0.5) / size - 0.5
    disc = (x * x / 0.06 + y * y / 0.11 < 1).astype(np.float32)
    target = np.repeat(disc[None, ..., None], len(matrices), 0)
    problem = problems.silhouette_problem(mesh, matrices, target, 1, laplacian=0.0)
    if kind == "camera":
        # The same graph, of which the matrices are the parameters.
        (matrix,) = (v for v in problem.data if v.vtype is MAT4)
        problem.parameter.requires_grad, matrix.requires_grad = False, True
        return replace(problem, optimizer=Adam(1e-4), parameter=matrix)
    return problem


def _target(problem: problems.Problem) -> Variable:
    (target,) = (v for v in problem.data if (v.name or "").startswith("target"))
    return target


def own_picture(settings: Settings) -> list[Row]:
    """R4: the loss, and the number of bits of the parameters that change, in steps of Adam."""
    rows = []
    for kind in KINDS:
        problem = problem_of(kind, settings.smoke)
        with DressiAD(settings.device) as ad:
            problem.load(ad)
            ad.send_img(_target(problem), ad.recv_img(problem.picture))
            before = ad.recv_img(problem.parameter)
            ad.exec_steps(5 if settings.smoke else STEPS)
            loss = float(np.abs(ad.recv_img(mean(problem.loss))).max())
            moved = int((ad.recv_img(problem.parameter) != before).sum())
        holds = loss == 0.0 and moved == 0
        rows.append(_row(f"R4 {kind}", max(loss, float(moved)), 0.0, holds, before.size))
    return rows


def fingerprint(kind: str, device: str | None, small: bool) -> str:
    """SHA-256 of the parameters after a deterministic fit."""
    problem = problem_of(kind, small)
    with DressiAD(device, Options(deterministic=True)) as ad:
        problem.load(ad)
        ad.exec_steps(5 if small else STEPS)
        return hashlib.sha256(ad.recv_img(problem.parameter).tobytes()).hexdigest()


_CHILD = (
    "import sys; from dressi.apps.bench.reliability import fingerprint; "
    "print(fingerprint(sys.argv[1], sys.argv[2] or None, sys.argv[3] == '1'))"
)


def same_bits(settings: Settings) -> list[Row]:
    """R9: the number of different results; each run is a process of its own."""
    rows, runs = [], 2 if settings.smoke else RUNS
    for kind in KINDS[:1] if settings.smoke else KINDS:
        found = set()
        for k in range(runs):
            environment = child_environment(LP_NUM_THREADS=THREADS[k % 3])
            words = [kind, settings.device or "", "1" if settings.smoke else "0"]
            command = [sys.executable, "-c", _CHILD, *words]
            run = subprocess.run(command, env=environment, capture_output=True, text=True)
            if run.returncode != 0:
                raise DressiError(f"bench: the fit of {kind} failed: {run.stderr.strip()[-400:]}")
            found.add(run.stdout.split()[-1])
        rows.append(_row(f"R9 {kind}, different results", len(found), 1, len(found) == 1, runs))
    return rows


FIGURES: Mapping[str, Callable[[Settings], list[Row]]] = {
    "R1": ops,
    "R4": own_picture,
    "R9": same_bits,
}


def chosen(only: str | None) -> list[str]:
    """Names out of a list like ``R1,R9``; all when it is None. Raises DressiError for others."""
    names = list(FIGURES) if only is None else [n.strip() for n in only.split(",")]
    unknown = [n for n in names if n not in FIGURES]
    if unknown:
        known = ", ".join(FIGURES)
        raise DressiError(f"bench: --only {only}: no figure {', '.join(unknown)}; known: {known}")
    return names


def measure(settings: Settings, copies: Copies) -> Table:
    """The table; the copy is measured for its title."""
    rows = [row for name in chosen(settings.only) for row in FIGURES[name](settings)]
    return Table(COLUMNS, rows, [(row["figure"], row["holds"]) for row in rows])
