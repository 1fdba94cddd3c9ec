"""Large Steps (Nicolet, Jacobson, Jakob 2021, "Large Steps in Inverse Rendering of Geometry").

In: a mesh. Out: a parametrization of its vertices, u = (I + lambda L) v, in which a gradient step
moves neighbours together, so that steps can be large and faces do not fold. L is the combinatorial
Laplacian (degree on the diagonal, -1 for a neighbour), as in the paper. Use it with
``AdamUniform``.

v = (I + lambda L)^-1 u is two sparse products with an inverse factor made once on the host
(``dissection``): as exact as float32, whatever lambda is, and symmetric, so its backward is the
same solve. Differs: the paper keeps a Cholesky factor and substitutes with it, which goes row by
row; the inverse factor has more entries, but all rows at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.linalg import spsolve

from dressi.ad import F, Variable
from dressi.ad.vtype import INT
from dressi.errors import GraphError
from dressi.render.fit.dissection import inverse_factor
from dressi.render.raster.topology import face_neighbors
from dressi.render.scene.mesh import Mesh, vertex_neighbors
from dressi.render.scene.welding import warn_of_open_seams, weld

CHUNK = 256
"""Longest row of a sparse product. The rows of the last separators are as long as the mesh has
vertices; one invocation would work on them long after all others are done."""


@dataclass(frozen=True, eq=False)
class LargeSteps:
    """The parametrization of one mesh; made by ``large_steps``.

    system: (M, M) I + lambda L of the M places where there are vertices. factors: sparse matrices
    whose product, applied from the first to the last, is its inverse. places: (N,) int, the place
    of each vertex; vertices at the same place (uv seams, see ``weld``) share one.
    """

    system: sparse.csr_matrix
    factors: tuple[F.linalg.SparseMatrix, ...]
    places: npt.NDArray[np.int32]

    @property
    def n_places(self) -> int:
        """Rows of u."""
        return int(self.system.shape[0])

    def parameters(self, positions: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """(M, 3) float32: u of vertex positions, to be sent to the parameter.

        positions: (N, 3), world units. Raises GraphError for another shape or NaN.
        """
        v = np.asarray(positions, np.float64)
        if v.shape != (len(self.places), 3) or not np.isfinite(v).all():
            raise GraphError(
                f"LargeSteps.parameters needs finite positions ({len(self.places)}, 3), "
                f"got {v.shape}"
            )
        _, first = np.unique(self.places, return_index=True)
        return np.asarray(self.system @ v[first], np.float32)

    def positions(self, parameters: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """(N, 3) float32: vertex positions of u, on the host. parameters: (M, 3)."""
        u = np.asarray(parameters, np.float64)
        return np.asarray(spsolve(self.system.tocsc(), u), np.float32)[self.places]

    def vertices(self, u: Variable) -> Variable:
        """VEC3 @ (N, 1) vertex positions of the parameter u, in the graph.

        u: VEC3 @ (M, 1) (any FLOAT or VECn table will do). Gradient to u: (I + lambda L)^-1 of the
        gradient that arrives, summed over vertices that share a place. Raises GraphError for
        another size.
        """
        if u.size != (self.n_places, 1):
            raise GraphError(
                f"LargeSteps.vertices: u must have {self.n_places} rows, got {u.label()}"
            )
        v = u
        for factor in self.factors:
            v = F.linalg.sparse_matmul(factor, v)
        if len(self.places) == self.n_places:
            return v
        return F.lookup(v, F.leaf(self.places, INT, "places"))


def _split_rows(c: sparse.csr_matrix) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    """(S, P) with c = S P, no row of P longer than CHUNK."""
    lengths = np.diff(c.indptr)
    parts = np.maximum(-(-lengths // CHUNK), 1)
    ends = np.cumsum(parts)
    k = np.arange(ends[-1]) - np.repeat(ends - parts, parts)  # number of each part in its row
    starts = np.minimum(np.repeat(c.indptr[:-1], parts) + k * CHUNK, np.repeat(c.indptr[1:], parts))
    pieces = sparse.csr_matrix((c.data, c.indices, np.append(starts, c.nnz)), (len(k), c.shape[1]))
    sums = sparse.csr_matrix(
        (np.ones(len(k)), np.arange(len(k)), np.append(0, ends)), (c.shape[0], len(k))
    )
    return sums, pieces


def _on_device(m: sparse.csr_matrix) -> F.linalg.SparseMatrix:
    return F.linalg.SparseMatrix(
        m.indptr.astype(np.int32), m.indices.astype(np.int32), m.data.astype(np.float32), m.shape[1]
    )


def large_steps(mesh: Mesh, smoothness: float = 19.0) -> LargeSteps:
    """The parametrization of a mesh.

    mesh: its positions only say which vertices are one (at the same place, see ``weld``).
    smoothness: lambda of the paper, >= 0: how far a pull on one vertex reaches, about sqrt(lambda)
    edges. Takes about a second per 5000 vertices on the host, and 200 to 400 numbers per vertex on
    the device. Warns of a seam that stays open. Raises GraphError for a bad mesh or smoothness.
    """
    mesh.check()
    if not (np.isfinite(smoothness) and smoothness >= 0.0):
        raise GraphError(f"large_steps: smoothness must be >= 0, got {smoothness}")
    first = weld(mesh.positions, mesh.faces)
    warn_of_open_seams(mesh.positions, first[mesh.faces], face_neighbors(first[mesh.faces]))
    kept, places = np.unique(first, return_inverse=True)
    places = np.reshape(places, len(first)).astype(np.int32)
    n = len(kept)
    offsets, columns = vertex_neighbors(places[mesh.faces], n)
    neighbors = sparse.csr_matrix((np.ones(len(columns)), columns, offsets), (n, n))
    degree = np.diff(offsets).astype(np.float64)
    system = sparse.csr_matrix(sparse.diags(1.0 + smoothness * degree) - smoothness * neighbors)
    sums, pieces = (
        _on_device(m) for m in _split_rows(inverse_factor(system, mesh.positions[kept]))
    )
    return LargeSteps(
        system,
        (pieces, sums, sums.transposed, pieces.transposed),
        np.asarray(places, np.int32),
    )
