"""Surfaces in order between the rounds of a reconstruction: no flipped face, and none that meets
another.

A round moves vertices as its pictures ask. What it folds is smoothed, or made anew from what it
encloses; where neither helps (thin walls that were pushed through each other), vertices go back
towards the start of the round (``retreat``), which was in order. So each round ends in order if its
start was: the start is a remeshed surface that is, or the one before in all its faces; the first
is a hull, which is in order, or a given mesh that ``ordered`` has made so.
"""

from __future__ import annotations

import importlib.util

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from dressi.errors import DressiError
from dressi.render.fit import remesh, retreat, untangle
from dressi.render.fit.closest import SurfaceTree
from dressi.render.fit.metrics import distance_to_surface
from dressi.render.fit.orderly_grid import shell
from dressi.render.fit.remeshing import mean_edge_length
from dressi.render.fit.untangling import is_untangled, tangled_vertices
from dressi.render.scene import (
    Mesh,
    surface_area,
    surface_genus,
    surface_problems,
    vertex_normals,
)

FINER = 4
"""Times that edges are halved around what is tangled: parts of a surface that are nearer to each
other than its edges are long come apart with shorter ones."""

OPPOSITE = -0.5
"""Cosine between normals of two sides of a thin part, at most: 120 degrees, a wedge of 60."""

_ROWS = 4096
"""Vertices whose neighbours are listed at a time: a hundred each, or thousands in a fine mesh."""

NEAR = 0.02
"""Parts of the longest side of its box that untangling may move a given start."""


def in_order(mesh: Mesh) -> bool:
    """Return True for a surface, closed or with borders, without flipped faces and crossings."""
    return is_untangled(surface_problems(mesh))


def ordered(mesh: Mesh) -> Mesh:
    """Return a mesh to start from in order: as it is; untangled, where that leaves it where it is;
    else (parts that cross, sheets of which three meet at an edge) a shell around it."""
    if in_order(mesh):
        return mesh
    try:
        made = untangle(mesh, rebuild=False)
    except DressiError:
        return shell(mesh)
    away = distance_to_surface(made.positions, mesh.positions, mesh.faces).max()
    return made if away <= NEAR * np.ptp(mesh.positions, axis=0).max() else shell(mesh)


def remeshed(mesh: Mesh, faces: int) -> Mesh:
    """Return the surface in about so many even triangles, in order where that can be.

    The first of these that is in order and has no more holes through it than the mesh: so many
    faces, as they are or smoothed, if no thin part is lost; with edges halved around what is
    tangled or lost, up to FINER times; made anew from what it encloses, or the faces of the mesh,
    smoothed, if no thin part is lost. Where none is: so many faces, as they are.
    """
    first = made = evenly(mesh, faces)
    most, edge = _holes(mesh), edge_for(mesh, faces)
    settled = in_order(first) and _holes(first) <= most
    if settled and not lost(mesh, first, edge).any():
        return first
    lengths = np.full(len(mesh.positions), edge)
    for halvings in range(FINER + 1):
        if halvings:
            before, lengths = lengths, shorter_where_wrong(mesh, lengths, made)
            if halvings > 1 and np.array_equal(before, lengths):
                break
            made = remesh(mesh, lengths, 5)  # keeps sharp rims, at the same lengths, too
        elif settled:
            continue  # what is lost stays so
        found = _untangled(made, most, rebuild=False)
        # Shorter edges once: more often they cost more than they give back.
        if found is not None and (halvings or not lost(mesh, found, edge).any()):
            return found
    for other, rebuild in ((first, True), (mesh, False)):
        found = _untangled(other, most, rebuild)
        if found is not None and not lost(mesh, found, edge).any():
            return found
    return first


def lost(mesh: Mesh, made: Mesh, edge: float) -> npt.NDArray[np.bool_]:
    """Return (V,) bool: vertices of thin parts that lie more than half an edge off what was made of
    the mesh: rims and tips whose two sides an edge has joined. Thin is what has a side that faces
    the other way within an edge, or two of the mesh's own; corners of thick parts are only cut off.
    """
    tree = SurfaceTree.of(made.positions, made.faces)
    away = tree.closest(mesh.positions, 0.5 * edge).distance > 0.5 * edge
    rows, normals = np.flatnonzero(away), vertex_normals(mesh.positions, mesh.faces)
    reach = max(edge, 2.0 * mean_edge_length(mesh))
    thin, everything = np.zeros(len(away), bool), cKDTree(mesh.positions)
    for start in range(0, len(rows), _ROWS):
        part = rows[start : start + _ROWS]
        near = cKDTree(mesh.positions[part])
        pairs = near.sparse_distance_matrix(everything, reach, output_type="ndarray")
        i, j = part[pairs["i"]], pairs["j"]
        thin[i[np.einsum("pi,pi->p", normals[i], normals[j]) < OPPOSITE]] = True
    return thin


def shorter_where_wrong(
    mesh: Mesh, lengths: npt.NDArray[np.float64], made: Mesh
) -> npt.NDArray[np.float64]:
    """Return the lengths, (V,) of the mesh, halved within two of them of what is tangled in what
    was made of it and of what it lost, but no shorter than the edges that the mesh has."""
    bad = made.positions[tangled_vertices(made, surface_problems(made))]
    bad = np.concatenate([bad, mesh.positions[lost(mesh, made, float(lengths.max()))]])
    if len(bad) == 0:  # edges of three faces and the like: nothing says where
        bad = made.positions
    away = cKDTree(bad).query(mesh.positions)[0]
    half = np.maximum(0.5 * lengths, min(mean_edge_length(mesh), float(lengths.min())))
    return np.where(away < 2.0 * lengths, half, lengths)


def _untangled(mesh: Mesh, most_holes: float, rebuild: bool) -> Mesh | None:
    """Return the mesh in order, None where that cannot be without more holes through it."""
    try:
        found = untangle(mesh, rebuild=rebuild)
    except DressiError:
        return None
    return found if _holes(found) <= most_holes else None


def repaired(mesh: Mesh, before: Mesh) -> Mesh:
    """Return the mesh without folds and crossings, or as it came where that cannot be.

    before: the same faces with other positions: where it is in order, and ``untangle`` finds no
    way, or one that makes more holes through the object or loses thin parts, vertices go back
    towards it.
    """
    for rebuild in (True, False):
        try:
            made = untangle(mesh, rebuild=rebuild)
        except DressiError:
            continue
        if made is mesh:
            return made
        # As far as local repairs may go.
        whole = not lost(mesh, made, 4.0 * mean_edge_length(mesh)).any()
        if whole and _holes(made) <= _holes(before):
            return made
    # What is left is counted, and said.
    return retreat(mesh, before)[0] if in_order(before) else mesh


def _holes(mesh: Mesh) -> float:
    """Return the number of holes through a mesh, infinity where it is no surface."""
    genus = surface_genus(mesh)
    return np.inf if genus < 0 else genus


def evenly(mesh: Mesh, faces: int) -> Mesh:
    """Return the surface with about so many even triangles: by gpytoolbox where it is installed,
    which takes a fifth of the time."""
    edge = edge_for(mesh, faces)
    if importlib.util.find_spec("gpytoolbox") is None:
        return remesh(mesh, np.full(len(mesh.positions), edge))
    return remesh(mesh, edge)


def edge_for(mesh: Mesh, faces: int) -> float:
    """Return the edge of even triangles of which the surface of a mesh takes so many."""
    # An even triangle of side h has the area sqrt(3) / 4 h^2.
    area = surface_area(mesh.positions, mesh.faces)
    return float(np.sqrt(area / (0.4330127 * faces)))
