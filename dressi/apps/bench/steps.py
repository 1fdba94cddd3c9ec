"""``dressi bench steps``: whole iterations (forward, backward, Adam, Laplacian) of fits, beside the
times that a C++ implementation of the same paper needs for the same work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dressi.apps.bench import pear
from dressi.apps.bench.common import (
    Copies,
    Settings,
    Table,
    figures,
    first_step_s,
    start,
    timed_steps,
)
from dressi.apps.problems import Bumpy, bumpy_stand_in, load_bumpy
from dressi.render.scene import icosphere
from dressi.testing.problems import (
    Problem,
    colours,
    hard_silhouettes,
    silhouette_problem,
    squashed,
    texture_problem,
    view_matrices,
)

PEER_COPY_MS = 2.3
"""The copy where the peer's times were taken: idle, this class of machine (two CPU cores)."""

PEER_BYTES = 500e6
"""The least memory that the peer takes in any case (0.5 to 1.6 GB)."""

HOST_MS = 0.06
"""Host time of a step that must not be exceeded."""

COLUMNS = (
    "case",
    "ms",
    "gpu_ms",
    "host_ms",
    "ratio_to_copy",
    "peer_ms",
    "times_faster",
    "bytes",
    "substages",
    "stages",
    "build_s",
)


@dataclass(frozen=True)
class Case:
    """One problem and what the peer needs for it.

    peer_ms: milliseconds with the copy at PEER_COPY_MS; None: not known. at_least: how many times
    faster it should be, scaled by the copy. half_memory: whether half of the peer's memory is asked
    for too.
    """

    name: str
    make: Callable[[Settings], Problem]
    peer_ms: float | None = None
    at_least: float = 2.0
    half_memory: bool = False


def bumpy(settings: Settings, name: str) -> Bumpy:
    """Return a mesh of the data folder; a smoke run has a small sphere instead."""
    return bumpy_stand_in() if settings.smoke else load_bumpy(settings.file(name))


def views_problem(settings: Settings, views: int, size: int, subdivisions: int, K: int) -> Problem:
    """Return the problem of an icosphere and silhouettes of an ellipsoid."""
    mesh, matrices = icosphere(subdivisions, 0.6), view_matrices(views)
    targets = hard_silhouettes(squashed(mesh), matrices, size, settings.device)
    return silhouette_problem(mesh, matrices, targets, K)


def one_view_problem(settings: Settings, size: int, K: int = 1) -> Problem:
    """Return the problem of silhouettes and the mesh of 682 triangles, in its first view."""
    data = bumpy(settings, "t1_682.npz")
    targets = hard_silhouettes(data.target, data.matrices[:1], size, settings.device)
    return silhouette_problem(data.mesh, data.matrices[:1], targets, K)


def colours_problem(
    settings: Settings, name: str, views: int, size: int, atlas_size: int, jitter: bool = False
) -> Problem:
    """Return the problem of colours and the texture of a mesh of the data folder."""
    data = bumpy(settings, name)
    matrices = data.matrices[:views]
    targets = colours(data.mesh, matrices, size, settings.device)
    return texture_problem(data.mesh, matrices, targets, atlas_size, jitter)


def _texture(
    views: int, size: int, atlas_size: int, jitter: bool, peer_ms: float | None = None
) -> Case:
    name = f"texture {views} x {size}, atlas {atlas_size}, " + ("jitter" if jitter else "still")
    return Case(
        name,
        lambda s: colours_problem(s, "t2_14220.npz", views, size, atlas_size, jitter),
        peer_ms,
        10.0,
        True,
    )


def _views(views: int, size: int, subdivisions: int, K: int, peer_ms: float | None = None) -> Case:
    name = f"silhouette {views} x {size}, {20 * 4**subdivisions} faces, K = {K}"
    return Case(name, lambda s: views_problem(s, views, size, subdivisions, K), peer_ms)


def _one_view(size: int, K: int, peer_ms: float | None = None) -> Case:
    name = f"silhouette 1 x {size}, 682 faces, K = {K}"
    return Case(name, lambda s: one_view_problem(s, size, K), peer_ms)


CASES = (
    _views(8, 128, 3, 1, 74.0),
    _views(8, 128, 3, 3, 239.0),
    _one_view(256, 1, 14.2),
    _one_view(512, 1, 36.3),
    _one_view(1024, 1, 137.0),
    _one_view(256, 3, 36.2),
    _one_view(512, 3, 115.0),
    _one_view(1024, 3, 445.0),
    _texture(6, 256, 1024, True, 1139.0),
    _texture(6, 256, 1024, False, 1139.0),
)
SMOKE = (_views(2, 32, 1, 2), _texture(2, 32, 16, True))


def beside_peer(row: dict[str, Any], peer_ms: float | None) -> dict[str, Any]:
    """Return the row with the peer's time, and how many times faster ours is, each over its own
    copy."""
    row["peer_ms"] = peer_ms
    if peer_ms is not None:
        row["times_faster"] = peer_ms / PEER_COPY_MS / row["ratio_to_copy"]
    return row


def measure_case(case: Case, settings: Settings, copies: Copies) -> dict[str, Any]:
    """Return one row."""
    problem = case.make(settings)
    before = copies.measure()
    with start(problem, settings) as ad:
        build_s = first_step_s(ad)
        times = timed_steps(ad, settings.smoke)
        row = figures(ad, times, (before + copies.measure()) / 2)
    return beside_peer({"case": case.name, **row, "build_s": build_s}, case.peer_ms)


def conditions(cases: Sequence[Case], rows: Sequence[dict[str, Any]]) -> list[tuple[str, bool]]:
    """Return what the rows of these cases have to show."""
    out = []
    for case, row in zip(cases, rows, strict=True):
        if case.peer_ms is not None:
            what = f"{case.name}: at least {case.at_least:g} x faster than the peer"
            faster = row["times_faster"]
            out.append((f"{what}, got {faster:.2f}", faster >= case.at_least))
        if case.half_memory:
            what = f"{case.name}: at most half of the peer's least memory, {PEER_BYTES / 2e6:g} MB"
            held = row["held_bytes"]
            out.append((f"{what}, got {held / 1e6:.0f}", held <= PEER_BYTES / 2))
    return out


def measure(settings: Settings, copies: Copies) -> Table:
    """Return all rows."""
    first, asked = pear.measure(settings, copies)
    cases = SMOKE if settings.smoke else CASES
    rows = [measure_case(case, settings, copies) for case in cases]
    asked += conditions(cases, rows)
    slowest = max([first, *rows], key=lambda r: r["host_ms"])
    what = f"host time of a step at most {HOST_MS:g} ms in every case"
    got = f"the most is {slowest['host_ms']:.3f} ms ({slowest['case']})"
    asked.append((f"{what}, {got}", slowest["host_ms"] <= HOST_MS))
    return Table(COLUMNS, [first, *rows], asked)
