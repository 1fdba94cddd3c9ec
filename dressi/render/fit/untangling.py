"""Untangling: a surface without flipped faces, crossings and spikes, moved as little as possible.

In: a mesh that a fit has folded. Out: one that is an embedded surface. First the surroundings of
what is wrong are smoothed, in wider rings and more strongly per round; where that does not help
they are cut out and filled (``patches``); where that does not either, the whole surface is made
anew around what it encloses (``winding``).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dressi.errors import DressiError, GraphError
from dressi.render.fit.metrics import distance_to_surface
from dressi.render.fit.patches import adjacency, faired, refilled
from dressi.render.fit.remeshing import mean_edge_length, remesh
from dressi.render.fit.winding import enclosed_surface
from dressi.render.scene import Mesh, SurfaceProblems, surface_problems
from dressi.render.scene.half_edges import EdgeTable
from dressi.render.scene.mesh import int32_indices
from dressi.render.scene.welding import first_alike

Bools = npt.NDArray[np.bool_]

_RINGS = (1, 2, 4)
"""Rings around problems that are cut out, one after another."""
_FARTHEST = 2.0
"""Edge lengths that a local repair may lie off the given surface: sheets that cross deeply are not
drawn apart but become one surface."""


def untangle(mesh: Mesh, rounds: int = 12, rebuild: bool = True) -> Mesh:
    """Return the mesh without flipped, degenerate or intersecting faces, and without spikes.

    mesh: see ``surface_problems`` for what is wrong with it; without problems it is returned as it
    is. rounds: of smoothing, each wider and stronger than the one before; vertices and faces keep
    their numbers if that is enough. If not, tangled parts are cut out and filled (``refilled``), in
    wider and wider rings; vertices elsewhere keep their places, not their numbers. rebuild: where
    that is not enough either, or moves vertices more than two edge lengths off the surface, or the
    mesh is not manifold, the surface is made anew on a grid of about half its edge lengths: other
    vertices, other faces, and the topology of what it encloses. UVs are dropped by all of this.
    Sharp spikes that are left are no error: a needle has one.

    Raises DressiError where the result still is tangled, GraphError for a bad mesh.
    """
    if rounds < 0:
        raise GraphError(f"untangle: rounds must not be negative, got {rounds}")
    problems = surface_problems(mesh)
    if is_untangled(problems) and len(problems.spikes) == 0:
        return mesh
    faces = int32_indices("faces", first_alike(mesh.positions, 0.0)[mesh.faces])
    given = Mesh(mesh.positions, faces, name=mesh.name)
    local, left = _repaired(given, problems, rounds)
    if is_untangled(left) and (not rebuild or _is_near(local, given)):
        return local
    if rebuild:
        made = _rebuilt(given)
        made, problems = _smoothed(made, surface_problems(made), rounds)
        if is_untangled(problems):
            return made
    if is_untangled(left):
        return local
    raise DressiError(f"untangle: mesh '{mesh.name}' could not be untangled; left: {left}")


def _is_near(made: Mesh, given: Mesh) -> bool:
    """Return True unless a local repair went so far that another surface may be nearer."""
    away = distance_to_surface(made.positions, given.positions, given.faces)
    return float(away.max()) <= _FARTHEST * mean_edge_length(given)


def _repaired(mesh: Mesh, problems: SurfaceProblems, rounds: int) -> tuple[Mesh, SurfaceProblems]:
    """The mesh after smoothing and filling, and what is left."""
    made, problems = _smoothed(mesh, problems, rounds)
    for rings in _RINGS if rounds else ():
        if is_untangled(problems):
            break
        made = refilled(made, _wider(made, tangled_vertices(made, problems), rings))
        made, problems = _smoothed(made, surface_problems(made), rounds // 2)
    return made, problems


def is_untangled(problems: SurfaceProblems) -> bool:
    """Return True for a surface that is manifold and embedded; it may have borders."""
    wrong = (problems.nonmanifold_edges, problems.nonmanifold_vertices, problems.turned_edges)
    return problems.is_embedded and not any(len(x) for x in wrong)


def _smoothed(mesh: Mesh, problems: SurfaceProblems, rounds: int) -> tuple[Mesh, SurfaceProblems]:
    """The mesh with the surroundings of problems smoothed, and what is left. Borders stay."""
    table, n = EdgeTable.of(mesh.faces), len(mesh.positions)
    joined, border = adjacency(mesh.faces, n), np.zeros(n, bool)
    border[table.edges[table.count == 1]] = True
    for step in range(rounds):
        bad = _wider(mesh, tangled_vertices(mesh, problems), 1 + step // 2)
        free = np.flatnonzero(bad & ~border)
        if len(free) == 0:
            break
        positions = faired(mesh.positions.astype(np.float64), joined, free, 2.0**step)
        mesh = Mesh(positions.astype(np.float32), mesh.faces, name=mesh.name)
        problems = surface_problems(mesh)
    return mesh, problems


def _wider(mesh: Mesh, vertices: Bools, rings: int) -> Bools:
    """(V,) bool: the vertices and those that so many edges or fewer lead to."""
    joined = adjacency(mesh.faces, len(mesh.positions))
    for _ in range(rings):
        vertices = vertices | ((joined @ vertices.astype(float)) > 0.0)
    return vertices


def tangled_vertices(mesh: Mesh, problems: SurfaceProblems) -> Bools:
    """Return (V,) bool: the vertices of faces that are flipped, without area or meet others, and
    the spikes."""
    bad = np.zeros(len(mesh.positions), bool)
    for faces in (problems.flipped_faces, problems.degenerate_faces, problems.intersections):
        bad[mesh.faces[faces.ravel()]] = True
    bad[problems.spikes] = True
    return bad


def _rebuilt(mesh: Mesh) -> Mesh:
    """The surface of what the mesh encloses, with edges as long as before."""
    length = mean_edge_length(mesh)
    made = enclosed_surface(mesh, 0.5 * length)
    return remesh(made, np.full(len(made.positions), length), 5)
