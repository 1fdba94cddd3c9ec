"""Regularizers on meshes. In: vertex positions, topology. Out: FLOAT @ 1x1 or tables."""

from __future__ import annotations

import numpy as np

from dressi.ad import F, Variable
from dressi.render.mesh import uniform_laplacian


def laplacian_matrix(faces: np.ndarray, n_vertices: int) -> F.SparseMatrix:
    """The uniform Laplacian of a mesh: (mean of neighbours) - v. faces: (F, 3) ints."""
    offsets, columns, values = uniform_laplacian(faces, n_vertices)
    return F.SparseMatrix(offsets, columns, values, n_vertices)


def laplacian_loss(vtx_pos: Variable, laplacian: F.SparseMatrix) -> Variable:
    """Mean over vertices of |L v|^2. vtx_pos: VEC3 @ (N, 1), world units. Gradient to vtx_pos."""
    d = F.sparse_matmul(laplacian, vtx_pos)
    return F.mean(F.dot(d, d))
