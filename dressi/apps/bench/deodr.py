"""``dressi bench deodr``: one view, from a silhouette to the gradient of the vertices, beside
DEODR, which visits few pixels with one thread.

A cell is a mesh at a size. All methods take turns in it: a step of ours is forward, backward,
Laplacian and Adam; one of the peer is forward and backward alone. The peer leaves out faces that
are seen from their back, as its gradients need, and so do ours. Times are the quickest of all
turns, for the machine does other things as well; ``cpu_ms`` is the processor time of all threads,
which depends less on those. The peer is optional: ``--peer`` names a Python
that has ``deodr``; without, its columns are empty.
"""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np

from dressi.ad import Adam
from dressi.apps.bench.antialias import antialias_problem
from dressi.apps.bench.common import Copies, Settings, Table, start
from dressi.apps.bench.silhouettes import MESHES, STILL
from dressi.apps.bench.steps import bumpy
from dressi.apps.timing import WARM_UP, step_ms
from dressi.config import child_environment
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.testing.problems import hard_silhouettes, silhouette_problem

SIZES = (256, 512, 1024)
ROUNDS, TURN = 15, 3
WITHIN, FASTER_IN, ANTIALIAS_WITHIN = 1.3, 6, 1.5
"""Times the peer's that a cell may take, cells that should be faster, and times HardSoftRas's that
antialiasing may take."""
COLUMNS = (
    "case",
    "ms",
    "antialias_ms",
    "peer_ms",
    "times_peer",
    "times_hardsoftras",
    "ratio_to_copy",
    "cpu_ms",
    "antialias_cpu_ms",
    "peer_cpu_ms",
)


class Peer:
    """DEODR in a process of its own. Raises DressiError where it cannot run."""

    def __init__(self, python: str) -> None:
        from dressi.apps.bench import peer_deodr

        command = [python, peer_deodr.__file__]
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                encoding="utf-8",
                # One thread, as it has of itself, and not what NumPy starts.
                env=child_environment(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"),
            )
        except OSError as error:
            raise DressiError(f"bench: --peer {python}: {error}") from None
        self.python = python

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return the answer to a request."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        except (OSError, json.JSONDecodeError):
            raise DressiError(
                f"bench: the peer in {self.python} stopped; its error stands above\n"
                "  hint: --peer needs a Python of which 'import deodr' works"
            ) from None
        return answer

    def close(self) -> None:
        """End its process."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with suppress(BrokenPipeError):  # it may have ended before
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def measure_cell(
    mesh: str, size: int, settings: Settings, copies: Copies, peer: Peer | None
) -> dict[str, Any]:
    """Return one row."""
    data = bumpy(settings, mesh)
    matrices = data.matrices[:1]
    targets = hard_silhouettes(data.target, matrices, size, settings.device)
    copy_ms = copies.recent()
    if peer is not None:
        peer.ask(file=str(settings.file(mesh)), size=size)
    with ExitStack() as stack:
        ads = []
        for make in (silhouette_problem, antialias_problem):
            problem = make(data.mesh, matrices, targets, adam=Adam(STILL), cull=True)
            ads.append(stack.enter_context(start(problem, settings)))
        times: list[list[tuple[float, float]]] = [[], [], []]
        for ad in ads:
            for _ in range(WARM_UP):
                ad.exec_step()
        for _ in range(2 if settings.smoke else ROUNDS):
            for k, ad in enumerate(ads):
                times[k] += [_timed(ad) for _ in range(1 + TURN)][1:]
            if peer is not None:
                answer = peer.ask(steps=1 + TURN)
                times[2] += list(zip(answer["ms"], answer["cpu_ms"], strict=True))[1:]
    (ms, cpu), (other, other_cpu) = (np.min(t, 0).tolist() for t in times[:2])
    faces = mesh.removeprefix("t1_").removesuffix(".npz")
    row: dict[str, Any] = {
        "case": f"{faces} triangles, {size}",
        "ms": ms,
        "antialias_ms": other,
        "times_hardsoftras": other / ms,
        "ratio_to_copy": ms / copy_ms,
        "copy_ms": copy_ms,
        "cpu_ms": cpu,
        "antialias_cpu_ms": other_cpu,
        "peer_ms": None,
    }
    if peer is not None:
        row["peer_ms"], row["peer_cpu_ms"] = np.min(times[2], 0).tolist()
        row["times_peer"] = ms / row["peer_ms"]
    return row


def _timed(ad: DressiAD) -> tuple[float, float]:
    """Return the wall ms of a step, and the processor ms of all threads in it."""
    cpu = time.process_time()
    return step_ms(ad), (time.process_time() - cpu) * 1e3


def conditions(rows: list[dict[str, Any]]) -> list[tuple[str, bool]]:
    """Return what the rows have to show; of the peer where there is one."""
    out = []
    worst = max(row["times_hardsoftras"] for row in rows)
    what = f"antialiasing at most {ANTIALIAS_WITHIN:g} times HardSoftRas in every cell"
    out.append((f"{what}, got {worst:.2f}", worst <= ANTIALIAS_WITHIN))
    if all(row["peer_ms"] is not None for row in rows):
        times = [row["times_peer"] for row in rows]
        n = sum(t < 1 for t in times)
        out.append((f"faster than the peer in {FASTER_IN} cells, got {n}", n >= FASTER_IN))
        what = f"at most {WITHIN:g} times the peer in every cell, got {max(times):.2f}"
        out.append((what, max(times) <= WITHIN))
    return out


def measure(settings: Settings, copies: Copies) -> Table:
    """Return all rows; a smoke run has one, without the peer."""
    if settings.smoke:
        return Table(COLUMNS, [measure_cell(MESHES[0], 32, settings, copies, None)])
    with ExitStack() as stack:
        peer = None
        if settings.peer is not None:
            peer = Peer(settings.peer)
            stack.callback(peer.close)
        rows = [measure_cell(m, s, settings, copies, peer) for m in MESHES for s in SIZES]
    return Table(COLUMNS, rows, conditions(rows))
