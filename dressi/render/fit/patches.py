"""Patches: tangled parts of a surface are cut out, and the holes filled with fair ones.

In: a mesh and the vertices that are to go. Out: a mesh with other faces there. A fair patch has
even triangles and bends as little as its border allows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_matrix, csr_matrix, diags, identity
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import spsolve
from scipy.spatial import Delaunay

from dressi.render.scene import Mesh
from dressi.render.scene.half_edges import EdgeTable
from dressi.render.scene.mesh import int32_indices

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def adjacency(faces: npt.NDArray[np.integer], n_vertices: int) -> csr_matrix:
    """(V, V) sparse, 1 where an edge joins two vertices."""
    edges = EdgeTable.of(faces).edges
    joined = coo_matrix((np.ones(len(edges)), edges.T), shape=(n_vertices, n_vertices)).tocsr()
    return (joined + joined.T).tocsr()


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


def refilled(mesh: Mesh, bad: Bools) -> Mesh:
    """Return the mesh with fair patches in place of the faces at bad vertices.

    bad: (V,). Only parts that are disks are exchanged, so the genus stays; others stay as they are,
    and so do those whose patch would give an edge a third face.
    """
    faces = mesh.faces.astype(np.int64)
    parts = []
    for part in regions(faces, bad):
        loops = border_loops(faces[part], euler_number=1)
        if loops is not None and len(loops) == 1:
            parts.append((part, loops))
    return exchanged(mesh, parts)


def regions(faces: Ints, bad: Bools) -> list[Ints]:
    """Return the numbers of the faces at bad vertices, connected ones together."""
    region = np.flatnonzero(bad[faces].any(axis=1))
    if len(region) == 0:
        return []
    pair = EdgeTable.of(faces[region]).half_edges // 3
    _, label = connected_components(
        coo_matrix((np.ones(len(pair)), pair.T), shape=(len(region), len(region))), directed=False
    )
    return [region[label == one] for one in range(int(label.max()) + 1)]


def exchanged(mesh: Mesh, parts: Sequence[tuple[Ints, Sequence[Ints]]]) -> Mesh:
    """Return the mesh with a fair disk along each loop in place of the faces of parts.

    parts: numbers of faces, and the loops around them, as of ``border_loops``. Parts whose disks
    would give an edge a third face stay.
    """
    faces = mesh.faces.astype(np.int64)
    positions, removed, added, free = mesh.positions.astype(np.float64), [], [], []
    for part, loops in parts:
        disks = [_disk(len(loop)) for loop in loops]
        starts = len(positions) + np.cumsum([0, *(len(inner) for inner, _ in disks)])
        number = [
            np.concatenate([loop, start + np.arange(len(inner))])
            for loop, start, (inner, _) in zip(loops, starts, disks, strict=False)
        ]
        patch = np.concatenate([k[t] for k, (_, t) in zip(number, disks, strict=True)])
        if not _fits(np.delete(faces, part, axis=0), patch):
            continue
        for loop, rows, (inner, _) in zip(loops, number, disks, strict=True):
            free.append(rows[len(loop) :])
            start = np.broadcast_to(positions[loop].mean(axis=0), (len(inner), 3))
            positions = np.concatenate([positions, start])
        removed.append(part)
        added.append(patch)
    if not removed:
        return mesh
    faces = np.concatenate([np.delete(faces, np.concatenate(removed), axis=0), *added])
    joined = adjacency(faces, len(positions))
    moved = np.concatenate(free)
    if len(moved):
        # So strong that where the inner vertices start does not matter.
        positions = faired(positions, joined, moved, 1e6)
    used, index = np.unique(faces, return_inverse=True)
    made = int32_indices("faces", np.reshape(index, (-1, 3)))
    return Mesh(positions[used].astype(np.float32), made, name=mesh.name)


def border_loops(faces: Ints, euler_number: int) -> list[Ints] | None:
    """Return the vertices along each border of a surface, with the faces on the left; None where
    its Euler number is another (a disk has 1, a ring 0), or a border passes a vertex twice."""
    table = EdgeTable.of(faces)
    n_vertices = len(np.unique(faces))
    if n_vertices - len(table.edges) + len(faces) != euler_number or (table.count > 2).any():
        return None
    open_edge = np.flatnonzero(table.count[table.edge] == 1)
    start, end = (
        faces.ravel()[h] for h in (open_edge, open_edge - open_edge % 3 + (open_edge + 1) % 3)
    )
    following = dict(zip(start.tolist(), end.tolist(), strict=True))
    if len(following) < len(start) or set(following) != set(following.values()):
        return None
    loops = []
    while following:
        loop = [next(iter(following))]
        while (after := following.pop(loop[-1])) != loop[0]:
            loop.append(after)
        loops.append(np.array(loop))
    return loops


def _disk(n_border: int) -> tuple[Floats, Ints]:
    """Points within a unit circle (N, 2), and counter-clockwise triangles of them and the border's.

    Triangles index the n_border points along the circle first, then those inside.
    """
    angle = 2.0 * np.pi * np.arange(n_border) / n_border
    spacing = 2.0 * np.sin(np.pi / n_border)
    steps = np.arange(-np.ceil(2.0 / spacing), np.ceil(2.0 / spacing) + 1)
    i, j = (x.ravel() for x in np.meshgrid(steps, steps))
    hexagonal = spacing * np.stack([i + 0.5 * j, np.sqrt(0.75) * j], axis=1)
    # Three quarters of an edge from the border, or triangles there would be flat.
    inner = hexagonal[np.linalg.norm(hexagonal, axis=1) < 1.0 - 0.75 * spacing]
    points = np.concatenate([np.stack([np.cos(angle), np.sin(angle)], axis=1), inner])
    triangles = Delaunay(points).simplices.astype(np.int64)
    a, b, c = np.moveaxis(points[triangles], 1, 0)
    u, v = b - a, c - a
    area = u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]
    triangles[area < 0.0] = triangles[area < 0.0][:, ::-1]
    return inner, triangles[np.abs(area) > 1e-9]  # on the circle three may be on one line, nearly


def _fits(outside: Ints, patch: Ints) -> bool:
    """Return True where no edge gets a third face."""
    return not bool((EdgeTable.of(np.concatenate([outside, patch])).count > 2).any())
