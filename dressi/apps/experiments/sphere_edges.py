"""``dressi experiment sphere_edges``: which edge pixels of a sphere get a gradient (paper, 5.2 and
its sphere rendering comparison).

A white sphere over black, at several subdivisions. Edge pixels: those of the hard picture with a
4-neighbour on the other side of the outline. Of each: whether it is blended, and the norm of its
derivative by the vertices, by HardSoftRas as in ``real`` (r = 2 pixels, K = 1) and by screen-space
antialiasing, where an edge counts only if the face at a pixel's centre owns it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT
from dressi.apps.experiments import common
from dressi.apps.experiments.common import Result, option
from dressi.apps.experiments.parts import kept_parts
from dressi.engine import DressiAD
from dressi.render.camera import look_at, perspective
from dressi.render.io import contact_sheet
from dressi.render.raster import build_antialias, build_hardsoftras
from dressi.render.scene import icosphere
from dressi.testing.views import mesh_leaves, send_mesh

HELP = "which edge pixels of a sphere are blended and get a gradient, by either method"

METHODS = ("HardSoftRas", "antialias")

ENLARGED = 8
"""Pixels of the pictures on a side of one."""

EYE = (0.13, 0.21, 3.1)
"""Off every axis of the sphere's symmetry."""


@dataclass(frozen=True)
class Settings(common.Settings):
    """Options of the experiment."""

    size: int = option(32, "pixels on a side", smoke=16, quick=24, least=8)
    subdivisions: tuple[int, ...] = option(
        (2, 3, 4, 5), "of the spheres: 20 * 4^n faces", smoke=(2,), quick=(2, 4), least=0
    )
    r_px: float = option(2.0, "reach of HardSoftRas in pixels", least=0.5)


def run(settings: Settings) -> Result:
    """Measure each sphere by both methods."""
    s = settings
    work = {
        f"{method}, {level}": partial(measure, method, level, s)
        for level in s.subdivisions
        for method in METHODS
    }
    parts = kept_parts(s, work, "spheres")
    figures: dict[str, Any] = {}
    heading = [
        "faces",
        "edge pixels",
        *(f"{m}: {w}" for m in METHODS for w in ("blended", "gradient")),
    ]
    rows, pictures = [heading], {}
    for level in s.subdivisions:
        line: list[str] = []
        for method in METHODS:
            part = parts[f"{method}, {level}"]
            edge = part["edge"].astype(bool)
            blended = np.abs(part["picture"] - part["hard"])[edge] > 1e-6
            moved = part["gradient"][edge] > 0.0
            row = {
                "edge_pixels": int(edge.sum()),
                "blended": float(blended.mean()),
                "gradient": float(moved.mean()),
            }
            figures[f"{method}, {20 * 4**level} faces"] = row
            line += [f"{row['blended']:.0%}", f"{row['gradient']:.0%}"]
            shown = [part["picture"], np.where(edge, part["gradient"] > 0, 0.25 * part["hard"])]
            pictures[f"{method}, {20 * 4**level} faces"] = [_big(a) for a in shown]
        rows.append([str(20 * 4**level), str(row["edge_pixels"]), *line])
    sheet = contact_sheet(pictures, columns=("picture", "edge pixels with a gradient"))
    return Result(figures, {"sphere_edges": sheet}, conditions=conditions(figures), tables=[rows])


def conditions(figures: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return what the paper's figure shows: all edge pixels by HardSoftRas, a selection by the
    other."""
    soft, other = (
        [f["gradient"] for name, f in figures.items() if name.startswith(m)] for m in METHODS
    )
    return [
        (
            f"HardSoftRas: all edge pixels get a gradient ({min(soft):.0%} at least)",
            min(soft) == 1.0,
        ),
        (f"antialias: only some of them do ({max(other):.0%} at most)", max(other) < 1.0),
    ]


def measure(method: str, level: int, s: Settings) -> dict[str, np.ndarray]:
    """Return images (H, W): the soft picture, the hard one, which pixels are edge pixels, and the
    norm of the derivative of each of them by the vertices."""
    mesh, size = icosphere(level), (s.size, s.size)
    matrix = perspective(50.0, 1.0, 1.0, 10.0) @ look_at(EYE, (0, 0, 0), (0, 1, 0))
    leaves = mesh_leaves(mesh, 1, requires_grad=True)
    pos, faces = leaves.pos, leaves.faces
    reach = s.r_px / s.size
    hard = build_hardsoftras(pos, faces, leaves.matrix, size, 0.0).hard
    if method == "antialias":
        picture = build_antialias(pos, faces, leaves.matrix, size).silhouette
    else:
        picture = build_hardsoftras(pos, faces, leaves.matrix, size, reach).silhouette
    pick = Variable(FLOAT, size, name="pick")
    one = np.zeros((s.size, s.size, 1), np.float32)
    with DressiAD(s.device) as ad:
        send_mesh(ad, leaves, mesh, matrix[None])
        ad.send_img(pick, one)
        drawn, sharp = (np.asarray(a)[..., 0] for a in ad.recv_imgs([picture, hard]))
        edge = edge_pixels(sharp > 0.5)
        gradient = np.zeros_like(drawn)
        ad.set_loss_var(F.mean(picture * pick))
        for y, x in np.argwhere(edge):
            one[:] = 0.0
            one[y, x] = s.size**2  # of a mean
            ad.send_img(pick, one)
            gradient[y, x] = np.linalg.norm(ad.recv_grad(pos))
    return {"picture": drawn, "hard": sharp, "edge": edge, "gradient": gradient}


def edge_pixels(mask: np.ndarray) -> np.ndarray:
    """(H, W) bool: pixels with a 4-neighbour on the other side."""
    out = np.zeros_like(mask)
    for axis in (0, 1):
        a, b = (np.moveaxis(m, axis, 0) for m in (mask, out))
        differs = a[1:] != a[:-1]
        b[1:] |= differs
        b[:-1] |= differs
    return out


def _big(image: np.ndarray) -> np.ndarray:
    grey = np.float32(image).repeat(ENLARGED, 0).repeat(ENLARGED, 1)[..., None]
    return np.repeat(grey, 3, axis=2)
