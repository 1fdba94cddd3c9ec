"""Untangling: a surface without flipped faces, crossings and spikes, moved as little as possible.

In: a mesh that a fit has folded. Out: one that is an embedded surface. First the surroundings of
what is wrong are smoothed, in wider rings and more strongly per round; where that does not help the
whole surface is made anew around what it encloses (``winding``).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_matrix, csr_matrix, diags, identity
from scipy.sparse.linalg import spsolve

from dressi.errors import DressiError, GraphError
from dressi.render.fit.remeshing import mean_edge_length, remesh
from dressi.render.fit.winding import enclosed_surface
from dressi.render.scene import Mesh, SurfaceProblems, surface_problems
from dressi.render.scene.half_edges import EdgeTable

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def untangle(mesh: Mesh, rounds: int = 12, rebuild: bool = True) -> Mesh:
    """Return the mesh without flipped, degenerate or intersecting faces, and without spikes.

    mesh: see ``surface_problems`` for what is wrong with it; without problems it is returned as it
    is. rounds: of smoothing, each wider and stronger than the one before; vertices and faces keep
    their numbers if that is enough. rebuild: where it is not, or where the mesh is not closed and
    manifold, the surface is made anew on a grid of about half its edge lengths: other vertices,
    other faces, and the topology of what it encloses.

    Raises DressiError where the result still is tangled, GraphError for a bad mesh.
    """
    if rounds < 0:
        raise GraphError(f"untangle: rounds must not be negative, got {rounds}")
    problems = surface_problems(mesh)
    if is_untangled(problems) and len(problems.spikes) == 0:
        return mesh
    made, problems = _smoothed(mesh, problems, rounds)
    if is_untangled(problems):
        return made
    if rebuild:
        made = _rebuilt(mesh)
        problems = surface_problems(made)
        if is_untangled(problems):
            return made
    raise DressiError(f"untangle: mesh '{mesh.name}' could not be untangled; left: {problems}")


def is_untangled(problems: SurfaceProblems) -> bool:
    """Return True for a surface that is manifold and embedded; it may have borders."""
    wrong = (problems.nonmanifold_edges, problems.nonmanifold_vertices, problems.turned_edges)
    return problems.is_embedded and not any(len(x) for x in wrong)


def _smoothed(mesh: Mesh, problems: SurfaceProblems, rounds: int) -> tuple[Mesh, SurfaceProblems]:
    """The mesh with the surroundings of problems smoothed, and what is left."""
    table, n = EdgeTable.of(mesh.faces), len(mesh.positions)
    ones = np.ones(len(table.edges))
    joined = coo_matrix((ones, table.edges.T), shape=(n, n)).tocsr()
    joined = (joined + joined.T).tocsr()
    border = np.zeros(n, bool)
    border[table.edges[table.count == 1]] = True
    for step in range(rounds):
        bad = _bad_vertices(mesh, problems)
        for _ in range(1 + step // 2):
            bad |= (joined @ bad.astype(float)) > 0.0
        free = np.flatnonzero(bad & ~border)
        if len(free) == 0:
            break
        positions = faired(mesh.positions.astype(np.float64), joined, free, 2.0**step)
        mesh = Mesh(positions.astype(np.float32), mesh.faces, name=mesh.name)
        problems = surface_problems(mesh)
        if is_untangled(problems) and len(problems.spikes) == 0:
            break
    return mesh, problems


def _bad_vertices(mesh: Mesh, problems: SurfaceProblems) -> Bools:
    bad = np.zeros(len(mesh.positions), bool)
    for faces in (problems.flipped_faces, problems.degenerate_faces, problems.intersections):
        bad[mesh.faces[faces.ravel()]] = True
    bad[problems.spikes] = True
    return bad


def faired(positions: Floats, joined: csr_matrix, free: Ints, strength: float) -> Floats:
    """Positions whose free vertices are smooth: least squares of bending and of moving.

    The bending is the difference of a vertex and the mean of its neighbours, of the free ones and
    those beside them; the others do not move. strength: weight of bending over moving.
    """
    degree = np.asarray(joined.sum(axis=1)).ravel()
    laplacian = identity(len(positions)) - diags(1.0 / np.maximum(degree, 1.0)) @ joined
    rows = np.zeros(len(positions), bool)
    rows[free] = True
    rows |= (joined @ rows.astype(float)) > 0.0
    part = laplacian.tocsr()[np.flatnonzero(rows)].tocsc()
    own = part[:, free]
    rest = part @ positions - own @ positions[free]
    system = (strength * (own.T @ own) + identity(len(free))).tocsc()
    right = positions[free] - strength * (own.T @ rest)
    result = positions.copy()
    result[free] = np.reshape(spsolve(system, right), (-1, 3))
    return result


def _rebuilt(mesh: Mesh) -> Mesh:
    """The surface of what the mesh encloses, with edges as long as before."""
    length = mean_edge_length(mesh)
    made = enclosed_surface(mesh, 0.5 * length)
    return remesh(made, np.full(len(made.positions), length), 5)
