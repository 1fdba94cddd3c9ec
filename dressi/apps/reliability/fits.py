"""R4: a fit whose target is its own picture stays where it is, to the bit. R9: with
``Options(deterministic=True)`` a fit gives the same bits in ten processes, under 1, 2 and 8 threads
of lavapipe."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import replace

import numpy as np

from dressi.ad import Adam, Variable
from dressi.ad.functions import mean
from dressi.ad.vtype import MAT4
from dressi.apps.reliability.row import Row, at_most
from dressi.config import child_environment
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.packing import Options
from dressi.testing import problems

STEPS, SMALL_STEPS = 100, 5
RUNS = 10
THREADS = ("1", "2", "8")
KINDS = ("vertices", "texture", "camera")


def problem_of(
    kind: str, size: int = 64, n_faces: int = 80, n_views: int = 2, texels: int = 64
) -> problems.Problem:
    """Return a small fit of vertices, a texture or cameras."""
    mesh, matrices = problems.sphere(n_faces), problems.view_matrices(n_views)
    if kind == "texture":
        picture = np.zeros((n_views, size, size, 3), np.float32)
        return problems.texture_problem(mesh, matrices, picture, texels)
    y, x = (np.mgrid[:size, :size] + 0.5) / size - 0.5
    disc = (x * x / 0.06 + y * y / 0.11 < 1).astype(np.float32)
    target = np.repeat(disc[None, ..., None], n_views, 0)
    problem = problems.silhouette_problem(mesh, matrices, target, 1, laplacian=0.0)
    if kind == "camera":
        # The same graph, of which the matrices are the parameters.
        (matrix,) = (v for v in problem.data if v.vtype is MAT4)
        problem.parameter.requires_grad, matrix.requires_grad = False, True
        return replace(problem, optimizer=Adam(1e-4), parameter=matrix)
    return problem


def _sized(kind: str, small: bool) -> problems.Problem:
    return problem_of(kind, 24, texels=16) if small else problem_of(kind)


def _target(problem: problems.Problem) -> Variable:
    (target,) = (v for v in problem.data if (v.name or "").startswith("target"))
    return target


def own_picture(device: str | None, small: bool) -> list[Row]:
    """Return the figure of R4: the loss, and the number of parameters that change, in steps of
    Adam."""
    rows = []
    for kind in KINDS:
        problem = _sized(kind, small)
        with DressiAD(device) as ad:
            problem.load(ad)
            ad.send_img(_target(problem), ad.recv_img(problem.picture))
            before = ad.recv_img(problem.parameter)
            ad.exec_steps(SMALL_STEPS if small else STEPS)
            loss = float(np.abs(ad.recv_img(mean(problem.loss))).max())
            moved = int((ad.recv_img(problem.parameter) != before).sum())
        rows.append(at_most(f"R4 {kind}", max(loss, float(moved)), 0.0, before.size))
    return rows


def fingerprint(kind: str, device: str | None, small: bool) -> str:
    """Return SHA-256 of the parameters after a deterministic fit."""
    problem = _sized(kind, small)
    with DressiAD(device, Options(deterministic=True)) as ad:
        problem.load(ad)
        ad.exec_steps(SMALL_STEPS if small else STEPS)
        return hashlib.sha256(ad.recv_img(problem.parameter).tobytes()).hexdigest()


_CHILD = (
    "import sys; from dressi.apps.reliability.fits import fingerprint; "
    "print(fingerprint(sys.argv[1], sys.argv[2] or None, sys.argv[3] == '1'))"
)


def same_bits(device: str | None, small: bool) -> list[Row]:
    """Return the figure of R9: the number of different results; each run is a process of its
    own."""
    rows, runs = [], 2 if small else RUNS
    for kind in KINDS[:1] if small else KINDS:
        found = set()
        for k in range(runs):
            environment = child_environment(LP_NUM_THREADS=THREADS[k % 3])
            words = [kind, device or "", "1" if small else "0"]
            command = [sys.executable, "-c", _CHILD, *words]
            run = subprocess.run(
                command, env=environment, capture_output=True, encoding="utf-8", errors="replace"
            )
            if run.returncode != 0:
                raise DressiError(f"bench: the fit of {kind} failed: {run.stderr.strip()[-400:]}")
            found.add(run.stdout.split()[-1])
        rows.append(at_most(f"R9 {kind}, different results", len(found), 1, runs))
    return rows
