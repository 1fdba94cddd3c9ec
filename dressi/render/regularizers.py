"""Regularizers on meshes. In: vertex positions, topology. Out: FLOAT @ 1x1 or tables."""

from __future__ import annotations

import numpy as np

from dressi.ad import F, Variable
from dressi.render.mesh import uniform_laplacian
from dressi.render.shading import face_normals
from dressi.render.topology import neighbor_table


def laplacian_matrix(faces: np.ndarray, n_vertices: int) -> F.SparseMatrix:
    """The uniform Laplacian of a mesh: (mean of neighbours) - v. faces: (F, 3) ints."""
    offsets, columns, values = uniform_laplacian(faces, n_vertices)
    return F.SparseMatrix(offsets, columns, values, n_vertices)


def laplacian_loss(vtx_pos: Variable, laplacian: F.SparseMatrix) -> Variable:
    """Mean over vertices of |L v|^2. vtx_pos: VEC3 @ (N, 1), world units. Gradient to vtx_pos."""
    d = F.sparse_matmul(laplacian, vtx_pos)
    return F.mean(F.dot(d, d))


def normal_consistency(vtx_pos: Variable, faces: Variable) -> Variable:
    """Mean over edges between faces of 1 - cos(angle between their normals): 0 for a plane, 2 for a
    fold.

    vtx_pos: VEC3 @ (N, 1). faces: IVEC3 @ (F, 1), static. Borders count 0. Gradient to vtx_pos.
    """
    normal = face_normals(vtx_pos, faces)
    neighbors = neighbor_table(faces, vtx_pos)
    total = None
    for axis in "xyz":
        other = F.swizzle(neighbors, axis)
        bend = 1.0 - F.dot(normal, F.lookup(normal, other))
        bend = F.where(F.compare("gte", other, 0), bend, 0.0)
        total = bend if total is None else total + bend
    assert total is not None
    return F.mean(total) * (1.0 / 3.0)
