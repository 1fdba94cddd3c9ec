"""Vertices of a surface merged in groups: what marching through a grid leaves, made even.

In: a closed mesh and a group per vertex. Out: the mesh with one vertex per connected part of a
group, where that keeps the topology and turns no face over. Groups of the points of a grid make
regularised marching tetrahedra of marching ones (Treece, Prager and Gee 1999, with other tests).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from dressi.render.scene.half_edges import EdgeTable
from dressi.render.scene.mesh import Mesh, area_normals, int32_indices

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_LEAST_TURN = 0.5
"""Cosine of the largest angle by which merging may turn a face: 60 degrees."""


def merged(mesh: Mesh, group: npt.NDArray[np.integer]) -> Mesh:
    """Return a closed, manifold mesh with the vertices of each group at their mean.

    group: (V,), a number per vertex. Parts of a group that no edge joins stay apart, and so do the
    vertices of parts that are no disk, and of those beside which a face would turn by more than 60
    degrees or an edge get more than two faces. UVs are dropped.
    """
    faces = mesh.faces.astype(np.int64)
    normals = area_normals(mesh.positions, faces)
    part, whole = _parts(faces, group)
    while True:
        to = np.where(whole[part], part, len(whole) + np.arange(len(part)))
        used, to = np.unique(to, return_inverse=True)
        at = [np.bincount(to, p) for p in mesh.positions.astype(np.float64).T]
        positions = np.stack(at, axis=1) / np.bincount(to)[:, None]
        made = to[faces]
        stays = (made != made[:, [1, 2, 0]]).all(axis=1)
        made = made[stays]
        wrong = used[_wrong(positions, made, normals[stays])]
        wrong = wrong[wrong < len(whole)]
        if len(wrong) == 0:
            break
        whole[wrong] = False
    return Mesh(positions.astype(np.float32), int32_indices("faces", made), name=mesh.name)


def _parts(faces: Ints, group: npt.NDArray[np.integer]) -> tuple[Ints, Bools]:
    """Return the connected part of its group that each vertex is in, (V,), and which parts, of
    several vertices, are disks: their Euler number is 1."""
    n = len(group)
    i, j = faces.ravel(), faces[:, [1, 2, 0]].ravel()
    within = (i < j) & (group[i] == group[j])  # each edge once: its other face has it as j, i
    i, j = i[within], j[within]
    links = coo_matrix((np.ones(len(i), np.int8), (i, j)), shape=(n, n))
    n_parts, part = connected_components(links, directed=False)
    a, b, c = part[faces].T
    n_vertices = np.bincount(part)
    n_edges = np.bincount(part[i], minlength=n_parts)
    n_faces = np.bincount(a[(a == b) & (b == c)], minlength=n_parts)
    return part.astype(np.int64), (n_vertices > 1) & (n_vertices - n_edges + n_faces == 1)


def _wrong(positions: npt.NDArray[np.float64], faces: Ints, before: npt.NDArray) -> Bools:
    """(V,) bool: vertices of faces that turned and of edges without two different faces, and those
    that no face is left of. before: (F, 3), normals of the faces.

    Where each merged part is a disk and each edge has two faces, the topology is that of before.
    """
    wrong = np.ones(len(positions), bool)
    wrong[faces] = False
    after = area_normals(positions, faces)
    agree = np.einsum("fi,fi->f", before, after)
    size = np.einsum("fi,fi->f", before, before) * np.einsum("fi,fi->f", after, after)
    wrong[faces[agree < _LEAST_TURN * np.sqrt(size)]] = True
    table, flat = EdgeTable.of(faces), faces.ravel()
    wrong[table.edges[table.count != 2]] = True
    across, other = (flat[h - h % 3 + (h + 2) % 3] for h in table.half_edges.T)
    wrong[flat[table.half_edges[across == other]]] = True
    return wrong
