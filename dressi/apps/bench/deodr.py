"""``dressi bench deodr``: from a picture to the gradient of the vertices, beside DEODR, which
visits few pixels with one thread.

A cell is a mesh at a size: one view of its silhouette, or of its colours with the gradient of the
texture, too; and one iteration of a whole fit in six views. All methods take turns in it. Of
silhouettes a step of ours is forward, backward, Laplacian and Adam, of colours forward and
backward (``adam_ms``: and Adam); one of the peer is always forward and backward alone. The peer
leaves out faces that are seen from their back, as its gradients need, and so do ours, but in the
fit. Times are the quickest of all turns, for the machine does other things as well; of the fit,
whose steps get quicker, the median; ``cpu_ms`` is the processor time of all threads, which depends
less on those. The peer is optional: ``--peer`` names a Python that has ``deodr``; without, its
columns are empty.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import numpy as np

from dressi.ad import Adam, GradientOnly
from dressi.apps.bench import pear
from dressi.apps.bench.antialias import antialias_problem
from dressi.apps.bench.common import Copies, Settings, Table, start
from dressi.apps.bench.silhouettes import MESHES, STILL
from dressi.apps.bench.steps import bumpy
from dressi.apps.fitting import ShapeSchedule
from dressi.apps.problems import pear_problem
from dressi.apps.timing import WARM_UP, step_ms
from dressi.config import child_environment
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.testing.problems import (
    Problem,
    colour_problem,
    colours,
    hard_silhouettes,
    silhouette_problem,
)

SIZES = (256, 512, 1024)
PICTURE, TEXELS = 512, 1024
"""Sides of the pictures and the textures of cells with colours."""
ROUNDS, TURN = 15, 3
FIT = 150
"""Iterations of the fit."""
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
    "adam_ms",
)
ONLY = SILHOUETTE, TEXTURE, WHOLE = "silhouette", "texture", "fit"
"""Kinds of rows, which ``--only`` may name."""

Time = tuple[float, float]
"""Wall ms, processor ms of all threads."""


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


def take_turns(
    ads: Sequence[DressiAD],
    peer: Peer | None,
    rounds: int,
    of_all: Callable[[Sequence[Time]], Time],
) -> list[Time | None]:
    """Return a time of each engine, and at the end one of the peer, None without: of_all of the
    TURN times of every round. A turn's first step does not count: it finds caches of others."""
    times: list[list[Time]] = [[] for _ in ads]
    peers: list[Time] = []
    for ad in ads:
        for _ in range(WARM_UP):
            ad.exec_step()
    for _ in range(rounds):
        for ad, mine in zip(ads, times, strict=True):
            mine += [_timed(ad) for _ in range(1 + TURN)][1:]
        if peer is not None:
            answer = peer.ask(steps=1 + TURN)
            peers += list(zip(answer["ms"], answer["cpu_ms"], strict=True))[1:]
    return [*map(of_all, times), of_all(peers) if peers else None]


def quickest(times: Sequence[Time]) -> Time:
    """Return the least of either time."""
    wall, cpu = np.min(times, 0).tolist()
    return wall, cpu


def median(times: Sequence[Time]) -> Time:
    """Return the median of either time."""
    wall, cpu = np.median(times, 0).tolist()
    return wall, cpu


def row_of(
    kind: str, case: str, copy_ms: float, ours: Time, other: Time | None, peer: Time | None
) -> dict[str, Any]:
    """Return the columns that all rows have. other: antialiasing."""
    row: dict[str, Any] = {"kind": kind, "case": case, "copy_ms": copy_ms}
    row["ms"], row["cpu_ms"] = ours
    row["antialias_ms"], row["antialias_cpu_ms"] = other or (None, None)
    row["peer_ms"], row["peer_cpu_ms"] = peer or (None, None)
    row["ratio_to_copy"] = ours[0] / copy_ms
    row["times_hardsoftras"] = other[0] / ours[0] if other else None
    row["times_peer"] = ours[0] / peer[0] if peer else None
    return row


def _case(mesh: str, what: object) -> str:
    return f"{mesh.removeprefix('t1_').removesuffix('.npz')} triangles, {what}"


def measure_cell(
    mesh: str, size: int, settings: Settings, copies: Copies, peer: Peer | None
) -> dict[str, Any]:
    """Return the row of a silhouette."""
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
        ours, other, its = take_turns(ads, peer, 2 if settings.smoke else ROUNDS, quickest)
    assert ours is not None
    return row_of(SILHOUETTE, _case(mesh, size), copy_ms, ours, other, its)


def measure_texture(
    mesh: str, size: int, texels: int, settings: Settings, copies: Copies, peer: Peer | None
) -> dict[str, Any]:
    """Return the row of colours: the gradient of vertices and of a texture of texels on a side."""
    data = bumpy(settings, mesh)
    matrices = data.matrices[:1]
    targets = colours(data.target, matrices, size, settings.device)
    copy_ms = copies.recent()
    if peer is not None:
        peer.ask(file=str(settings.file(mesh)), size=size, texture=texels)

    def problem(antialias: bool) -> Problem:
        made = colour_problem(data.mesh, matrices, targets, texels, antialias, Adam(STILL))
        return replace(made, optimizer=GradientOnly())

    with ExitStack() as stack:
        whole = colour_problem(data.mesh, matrices, targets, texels, False, Adam(STILL))
        ads = [
            stack.enter_context(start(made, settings))
            for made in (problem(False), problem(True), whole)
        ]
        rounds = 2 if settings.smoke else ROUNDS
        ours, other, with_adam, its = take_turns(ads, peer, rounds, quickest)
    assert ours is not None and with_adam is not None
    case = _case(mesh, f"{size}, texture {texels}")
    return row_of(TEXTURE, case, copy_ms, ours, other, its) | {"adam_ms": with_adam[0]}


def measure_fit(settings: Settings, copies: Copies, peer: Peer | None) -> dict[str, Any]:
    """Return the row of the pear: an iteration of its fit, regularizers and Adam included, as it
    goes; the peer draws the mesh that it begins with."""
    fit = pear.load(settings)
    copy_ms = copies.recent()
    if peer is not None:
        peer.ask(fit=str(settings.file("pear_fit.npz")))
    rounds = 2 if settings.smoke else (FIT - WARM_UP) // (1 + TURN)
    with start(pear_problem(fit, ShapeSchedule(iterations=FIT)), settings) as ad:
        ours, its = take_turns([ad], peer, rounds, median)
    assert ours is not None
    case = f"pear, {len(fit.matrices)} views, {fit.silhouettes.shape[1]}"
    return row_of(WHOLE, case, copy_ms, ours, None, its)


def _timed(ad: DressiAD) -> tuple[float, float]:
    """Return the wall ms of a step, and the processor ms of all threads in it."""
    cpu = time.process_time()
    return step_ms(ad), (time.process_time() - cpu) * 1e3


def conditions(rows: list[dict[str, Any]]) -> list[tuple[str, bool]]:
    """Return what the rows have to show; of the peer where there is one."""
    out = []
    silhouettes = [row for row in rows if row["kind"] == SILHOUETTE]
    if silhouettes:
        worst = max(row["times_hardsoftras"] for row in silhouettes)
        what = f"antialiasing at most {ANTIALIAS_WITHIN:g} times HardSoftRas in every cell"
        out.append((f"{what}, got {worst:.2f}", worst <= ANTIALIAS_WITHIN))
    if any(row["peer_ms"] is None for row in rows):
        return out
    if silhouettes:
        times = [row["times_peer"] for row in silhouettes]
        n = sum(t < 1 for t in times)
        out.append((f"faster than the peer in {FASTER_IN} cells, got {n}", n >= FASTER_IN))
        what = f"at most {WITHIN:g} times the peer in every cell, got {max(times):.2f}"
        out.append((what, max(times) <= WITHIN))
    for row in rows:
        if row["kind"] != SILHOUETTE:
            got = row["times_peer"]
            out.append((f"{row['case']}: at most the peer's time, got {got:.2f} of it", got <= 1))
    return out


def measure(settings: Settings, copies: Copies) -> Table:
    """Return all rows, or those of the kind that ``--only`` names; a smoke run has one of each
    kind, without the peer."""
    smoke, only = settings.smoke, settings.only
    meshes = MESHES[:1] if smoke else MESHES
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        peer = None
        if settings.peer is not None:
            peer = Peer(settings.peer)
            stack.callback(peer.close)
        if only in (None, SILHOUETTE):
            sizes = (32,) if smoke else SIZES
            rows += [measure_cell(m, s, settings, copies, peer) for m in meshes for s in sizes]
        if only in (None, TEXTURE):
            size, texels = (32, 16) if smoke else (PICTURE, TEXELS)
            rows += [measure_texture(m, size, texels, settings, copies, peer) for m in meshes]
        if only in (None, WHOLE):
            rows.append(measure_fit(settings, copies, peer))
    return Table(COLUMNS, rows, conditions(rows))
