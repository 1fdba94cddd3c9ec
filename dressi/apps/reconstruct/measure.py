"""Figures of a reconstruction beside the object that its pictures are of.

In: target, mesh, texture, cameras. Out: numbers for ``result.json`` and the table, and pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from dressi.apps.reconstruct.pictures import Floats, Pictures
from dressi.apps.reconstruct.targets import draw, target_of_mesh
from dressi.render.camera import Camera
from dressi.render.fit import iou, psnr, ssim, surface_metrics
from dressi.render.scene import Mesh, surface_problems
from dressi.render.scene.half_edges import EdgeTable
from dressi.render.scene.welding import first_alike

AMBIENT, KEY = 0.25, 0.75
TO_LIGHT = np.array([0.48, 0.64, 0.6])
"""The light of the pictures that are compared: none of those that a fit sees. Upper left, behind
the viewer's shoulder of the first view."""


@dataclass(frozen=True, eq=False)
class Compared:
    """Pictures of target and result from the same cameras."""

    target: Pictures
    result: Pictures


def compared(
    target: Pictures,
    cameras: Sequence[Camera],
    mesh: Mesh,
    texture: npt.ArrayLike | None,
    device: str | int | None,
) -> Compared:
    """Return pictures of the result from the cameras, beside those of the target."""
    return Compared(target, draw(target_of_mesh(mesh, texture), cameras, target.size[0], device))


def lit(pictures: Pictures) -> Floats:
    """Return (n, H, W, 3): albedo under a light from one side, over black."""
    assert pictures.colour is not None and pictures.normals is not None
    cosine = np.maximum(pictures.normals @ TO_LIGHT.astype(np.float32), 0.0)[..., None]
    # Normals are times coverage, and so is the colour.
    facing = cosine / np.maximum(pictures.coverage, 1e-6)
    return np.asarray(pictures.colour * (AMBIENT + KEY * np.minimum(facing, 1.0)), np.float32)


def picture_figures(both: Compared) -> dict[str, float]:
    """Return iou, psnr_db and ssim (of lit pictures) and albedo_psnr_db; PSNR over the pixels of
    the target, of all views together."""
    inside = (both.target.coverage[..., 0] > 0.5).reshape(-1, both.target.size[0])
    wanted, got = lit(both.target), lit(both.result)
    rows = wanted.reshape(-1, *wanted.shape[2:]), got.reshape(-1, *got.shape[2:])
    assert both.target.colour is not None and both.result.colour is not None
    albedo = [c.reshape(rows[0].shape) for c in (both.result.colour, both.target.colour)]
    pairs = zip(both.result.coverage, both.target.coverage, strict=True)
    return {
        "iou": float(np.mean([iou(a, b) for a, b in pairs])),
        "psnr_db": psnr(rows[1], rows[0], inside),
        "ssim": float(np.mean([ssim(a, b) for a, b in zip(got, wanted, strict=True)])),
        "albedo_psnr_db": psnr(albedo[0], albedo[1], inside),
    }


def surface_figures(mesh: Mesh, target: Mesh, matrices: npt.ArrayLike) -> dict[str, Any]:
    """Return distances and normals beside the target, and what is wrong with the mesh.

    matrices: of the views that were fitted: what none of them sees does not count.
    """
    of_target = surface_problems(target)
    return {
        **metric_figures(mesh, target, matrices),
        **problem_figures(mesh),
        "target_watertight": of_target.is_closed,
        "target_genus": of_target.genus,
        "target_components": of_target.n_components,
    }


def metric_figures(mesh: Mesh, target: Mesh, matrices: npt.ArrayLike) -> dict[str, Any]:
    """Return the figures of ``surface_metrics``. Targets with borders, or turned two ways, show
    both sides, in the pictures too."""
    faces = first_alike(target.positions, 0.0)[target.faces]
    table = EdgeTable.of(faces)
    open_or_turned = bool((table.count != 2).any() or table.turned.any())
    found = surface_metrics(mesh, target, visible_from=matrices, two_sided=open_or_turned)
    return {f.name: getattr(found, f.name) for f in fields(found)}


def problem_figures(mesh: Mesh) -> dict[str, Any]:
    """Return counts of what is wrong with a mesh as a surface, and its genus."""
    found = surface_problems(mesh)
    return {
        "flipped_faces": len(found.flipped_faces),
        "intersecting_faces": len(np.unique(found.intersections)),
        "degenerate_faces": len(found.degenerate_faces),
        "spikes": len(found.spikes),
        "watertight": found.is_closed,
        "components": found.n_components,
        "genus": found.genus,
    }
