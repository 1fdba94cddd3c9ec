"""Surfaces in order between the rounds of a reconstruction: no flipped face, and none that meets
another.

A round moves vertices as its pictures ask. What it folds is smoothed, or made anew from what it
encloses; where neither helps (thin walls that were pushed through each other), vertices go back
towards the start of the round (``retreat``), which was in order. So each round ends in order if its
start was: the start is a remeshed surface that is, or the one before in all its faces.
"""

from __future__ import annotations

import importlib.util

import numpy as np

from dressi.errors import DressiError
from dressi.render.fit import remesh, retreat, untangle
from dressi.render.fit.untangling import is_untangled
from dressi.render.scene import Mesh, surface_area, surface_problems

FINER = (2, 4)
"""Times the faces that are wanted, one after another: parts of a surface that are nearer to each
other than its edges are long come apart with shorter ones."""


def in_order(mesh: Mesh) -> bool:
    """Return True for a surface, closed or with borders, without flipped faces and crossings."""
    return is_untangled(surface_problems(mesh))


def remeshed(mesh: Mesh, faces: int) -> Mesh:
    """Return the surface in about so many even triangles, in order where that can be.

    The first of these that is in order and has no more holes through it than the mesh: so many
    faces, as they are or untangled; twice and four times as many, smoothed; the faces of the mesh,
    smoothed. Where none is: so many faces, as they are.
    """
    first = evenly(mesh, faces)
    if in_order(first):
        return first
    most = _holes(mesh)
    finer = (lambda more=more: evenly(mesh, faces * more) for more in FINER)
    tried = [(lambda: first, True), *((make, False) for make in finer), (lambda: mesh, False)]
    for make, rebuild in tried:
        try:
            found = untangle(make(), rebuild=rebuild)
        except DressiError:
            continue
        if _holes(found) <= most:
            return found
    return first


def repaired(mesh: Mesh, before: Mesh) -> Mesh:
    """Return the mesh without folds and crossings, or as it came where that cannot be.

    before: the same faces with other positions: where it is in order, and ``untangle`` finds no
    way, or one that makes more holes through the object, vertices go back towards it.
    """
    try:
        made = untangle(mesh)
        if made is mesh or _holes(made) <= _holes(before):
            return made
    except DressiError:
        made = mesh  # what is left is counted, and said
    return retreat(mesh, before)[0] if in_order(before) else made


def _holes(mesh: Mesh) -> float:
    """Return the number of holes through a mesh, infinity where it is no surface."""
    genus = surface_problems(mesh).genus
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
