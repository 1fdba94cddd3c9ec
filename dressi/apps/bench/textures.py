"""``dressi bench textures``: the paper's table 5. Two meshes in a window of 2048 x 2048,
textures of three sizes: forward and backward with the loss, the gradient of the albedo left on the
device; everything rasterized anew in each step (jitter), and rasterized once (the reactive cache);
beside them the same with Adam on the albedo, and what others need.

``ms`` and ``single_ms`` as for silhouettes; so are the peers, without an optimizer.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from dressi.ad import GradientOnly
from dressi.apps.bench.common import (
    Copies,
    Settings,
    Table,
    figures,
    in_a_row_ms,
    start,
    timed_steps,
)
from dressi.apps.bench.silhouettes import on_peer_card
from dressi.apps.bench.steps import bumpy
from dressi.testing.problems import colours, texture_problem

WINDOW = 2048
TEXTURES = (1024, 2048, 4096)
MESHES = ("t2_55704.npz", "t2_14220.npz")
COLUMNS = (
    "case",
    "ms",
    "single_ms",
    "gpu_ms",
    "ratio_to_copy",
    "adam_ms",
    "peer_ms",
    "times_peer",
    "stages",
)

# nvdiffrast 0.4.0 by mesh and texture.
EAGER = ((1.08, 1.20, 1.18), (1.02, 1.06, 1.25))
ONCE = ((0.62, 0.74, 0.73), (0.64, 0.61, 0.73))
ONLY = ("anew", "once")
"""What ``--only`` may name."""
AT_LEAST = 2.0
"""Times faster than the peer where both rasterize once."""


@cache
def _targets(mesh: int, size: int, settings: Settings) -> np.ndarray:
    data = bumpy(settings, MESHES[mesh])
    return colours(data.mesh, data.matrices[:1], size, settings.device)


def measure_row(
    mesh: int, texture: int, jitter: bool, settings: Settings, copies: Copies
) -> dict[str, Any]:
    """Return one row: ``ms`` without an update, ``adam_ms`` with. mesh, texture: positions in
    MESHES and TEXTURES."""
    size, atlas = (32, 16) if settings.smoke else (WINDOW, TEXTURES[texture])
    data = bumpy(settings, MESHES[mesh])
    targets = _targets(mesh, size, settings)
    problem = texture_problem(data.mesh, data.matrices[:1], targets, atlas, jitter)
    copy_ms = copies.recent()
    with start(problem, settings) as ad:
        timed_steps(ad, settings.smoke)
        adam_ms = in_a_row_ms(ad, settings.smoke)
    with start(replace(problem, optimizer=GradientOnly()), settings) as ad:
        single_ms = float(np.median(timed_steps(ad, settings.smoke)))
        row = figures(ad, [in_a_row_ms(ad, settings.smoke)], copy_ms)
    faces = MESHES[mesh].removeprefix("t2_").removesuffix(".npz")
    peer = (EAGER if jitter else ONCE)[mesh][texture]
    how = "rasterized anew" if jitter else "rasterized once"
    row |= {
        "case": f"{faces} triangles, texture {TEXTURES[texture]}, {how}",
        "single_ms": single_ms,
        "adam_ms": adam_ms,
        "peer_ms": peer,
    }
    row["times_peer"] = peer / row["ms"]
    return row


def measure(settings: Settings, copies: Copies) -> Table:
    """Return all rows, or those that ``--only`` names; a smoke run has one of each kind."""
    rows, asked, card = [], [], on_peer_card(settings)
    meshes = range(1 if settings.smoke else len(MESHES))
    textures = range(1 if settings.smoke else len(TEXTURES))
    for jitter in (True, False):
        if settings.only not in (None, ONLY[not jitter]):
            continue
        for mesh in meshes:
            for texture in textures:
                row = measure_row(mesh, texture, jitter, settings, copies)
                rows.append(row)
                if card and not jitter and not settings.smoke:
                    what = f"{row['case']}: at least {AT_LEAST:g} x faster than the peer"
                    got = row["times_peer"]
                    asked.append((f"{what}, got {got:.2f}", got >= AT_LEAST))
    return Table(COLUMNS, rows, asked)
