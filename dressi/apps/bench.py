"""``dressi bench``: times of whole iterations on this device, beside a plain copy measured in the
same run.

It measures what the main job does: silhouette and texture fits, and the packer's switches.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from dressi.ad import Adam, Variable
from dressi.ad.vtype import FLOAT, VEC3
from dressi.apps.report import check_outputs, copy1024_ms, identity, write_json
from dressi.apps.views import mesh_leaves, send_mesh, spread_views
from dressi.engine import DressiAD
from dressi.packing import Options
from dressi.render.hardsoftras import build_hardsoftras
from dressi.render.losses import l2_loss, silhouette_loss
from dressi.render.mesh import icosphere
from dressi.render.regularizers import laplacian_loss, laplacian_matrix
from dressi.render.shading import unlit


@dataclass(frozen=True)
class Case:
    """One timing: a silhouette or texture fit of an icosphere."""

    name: str
    views: int
    size: int
    subdivisions: int
    K: int = 1
    texture: bool = False
    options: Options | None = None


CASES = (
    Case("silhouette 8 x 128, 1280 faces, K = 1", 8, 128, 3),
    Case("silhouette 8 x 128, 1280 faces, K = 3", 8, 128, 3, 3),
    Case("silhouette 6 x 256, 5120 faces, K = 1", 6, 256, 4),
    Case("texture 6 x 256, 5120 faces", 6, 256, 4, 1, True),
    Case("the first, stage packing off", 8, 128, 3, options=Options(True, False)),
    Case("the first, one function a pass", 8, 128, 3, options=Options(False, False)),
)
SMOKE = (
    Case("silhouette 2 x 32, 80 faces, K = 1", 2, 32, 1),
    Case("silhouette 2 x 32, 80 faces, K = 2", 2, 32, 1, 2),
    Case("texture 2 x 32, 80 faces", 2, 32, 1, 1, True),
)


def _measure(case: Case, device: str | None, n: int) -> dict[str, Any]:
    mesh = icosphere(case.subdivisions, 0.6)
    size = (case.size, case.size)
    leaves = mesh_leaves(mesh, case.views, requires_grad=not case.texture)
    matrices = np.stack([c.matrix for c in spread_views(case.views)])
    r = Variable(FLOAT, name="r")
    with DressiAD(device, case.options) as ad:
        hs = build_hardsoftras(
            leaves.pos, leaves.faces, leaves.matrix, size, r, case.K, max_delta=0.03
        )
        if case.texture:
            assert leaves.uv is not None and leaves.uv_faces is not None
            albedo = Variable(VEC3, (256, 256), requires_grad=True, name="albedo")
            ad.send_img(albedo, np.full((256, 256, 3), 0.5, np.float32))
            target = Variable(VEC3, size, case.views, name="target")
            colour = [unlit(p, leaves.uv, leaves.uv_faces, albedo) for p in hs.peels]
            loss = l2_loss(hs.blend(colour), target)
            ad.send_img(target, np.full((case.views, *size, 3), 0.2, np.float32))
        else:
            target = Variable(FLOAT, size, case.views, name="target")
            laplacian = laplacian_matrix(mesh.faces, len(mesh.positions))
            loss = silhouette_loss(hs.silhouette, target) + laplacian_loss(leaves.pos, laplacian)
            y, x = np.mgrid[: case.size, : case.size] / case.size - 0.5
            disc = (x * x / 0.05 + y * y / 0.12 < 1)[..., None].astype(np.float32)
            ad.send_img(target, np.repeat(disc[None], case.views, 0))
        ad.set_loss_var(loss)
        ad.set_optimizer(Adam(1e-4))
        send_mesh(ad, leaves, mesh, matrices)
        ad.send_img(r, 0.02)
        begin = time.perf_counter()
        plan = ad.plan
        ad.exec_step()
        build = time.perf_counter() - begin
        times = []
        for _ in range(n):
            begin = time.perf_counter()
            ad.exec_step()
            times.append((time.perf_counter() - begin) * 1e3)
        gpu = sum(t for _, t in ad.stage_times_ms(3))
        return {
            "case": case.name,
            "ms": float(np.median(times)),
            "gpu_ms": gpu,
            "build_s": build,
            "functions": plan.n_functions,
            "substages": plan.n_substages,
            "stages": len(plan.stages),
            "bytes": plan.n_bytes,
        }


def run_bench(smoke: bool, json_file: str | None, device: str | None) -> dict[str, Any]:
    """Measure the cases; prints a table, writes JSON. smoke: tiny sizes, once."""
    check_outputs(None, json_file)
    with DressiAD(device) as ad:
        who = identity(ad)
    copy = copy1024_ms(device, 3 if smoke else 15)
    rows = []
    for case in SMOKE if smoke else CASES:
        row = _measure(case, device, 2 if smoke else 15)
        row["ratio_to_copy"] = row["ms"] / copy
        rows.append(row)
    table = Table(title=f"{who['device']}, {who['driver']}: copy 1024 x 1024 RGBA32F {copy:.3f} ms")
    names = ("case", "ms", "gpu_ms", "ratio_to_copy", "build_s", "functions", "substages", "stages")
    for name in names:
        table.add_column(name, justify="left" if name == "case" else "right")
    for row in rows:
        table.add_row(
            *(f"{row[n]:.2f}" if isinstance(row[n], float) else str(row[n]) for n in names)
        )
    Console(width=140).print(table)
    result = {**who, "copy1024_ms": copy, "rows": rows}
    if json_file:
        write_json(json_file, result)
    return result
