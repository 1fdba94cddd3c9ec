"""Surfaces of the trials of ``real``: how far from each other, and from a reference scan."""

from __future__ import annotations

import numpy as np

from dressi.apps.demo import EXTENT
from dressi.errors import DressiError
from dressi.render.fit import mean_distance_to_surface, surface_metrics
from dressi.render.io import load_mesh
from dressi.render.scene import Mesh


def middle_distances(meshes: list[Mesh]) -> list[float]:
    """Return the mean distance between each surface and the one in the middle (that with the least
    sum of distances to all), both ways, in longest sides of the object (EXTENT)."""
    n = len(meshes)
    distance = np.zeros((n, n))
    for i, a in enumerate(meshes):
        for j, b in enumerate(meshes):
            if i != j:
                distance[i, j] = mean_distance_to_surface(a.positions, b.positions, b.faces)
    both = (distance + distance.T) / 2
    return [float(d) / EXTENT for d in both[int(both.sum(0).argmin())]]


def placed_reference(path: str, box: np.ndarray) -> Mesh:
    """Return the mesh of a scan, from the world of the cameras to the box of the fit. Raises
    LoadError for a file that is none, DressiError for one that lies elsewhere."""
    mesh = load_mesh(path)
    middle, side = box.mean(0), float((box[1] - box[0]).max())
    placed = (mesh.positions.astype(np.float64) - middle) * (EXTENT / side)
    if np.abs(placed).max(axis=1).min() > EXTENT:
        raise DressiError(
            f"--reference {path}: lies outside of the object's box {box.tolist()}\n"
            "  hint: it must be in the units and axes of --cameras"
        )
    return Mesh(placed.astype(np.float32), mesh.faces, name="reference")


def chamfer(mesh: Mesh, reference: Mesh | None) -> dict[str, float]:
    """Return the Chamfer distance to a reference scan and its halves, in % of the diagonal of the
    reference's box; nothing without one. A scan of a part makes the way to it long: the way from it
    is the one to look at then."""
    if reference is None:
        return {}
    found = surface_metrics(mesh, reference)
    return {
        "chamfer_percent": found.chamfer_percent,
        "to_reference_percent": found.to_target_percent,
        "from_reference_percent": found.from_target_percent,
    }
