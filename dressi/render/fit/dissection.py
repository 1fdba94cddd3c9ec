"""A sparse inverse factor of a symmetric positive definite matrix on a surface mesh.

In: A (SciPy, sparse) and the places of its rows in space. Out: C with A^-1 = C^T C, sparse, so that
a solve is two sparse products: no iteration, and as exact as float32 holds.

How: nested dissection (George 1973). The vertices are halved by a plane again and again; those of
one half that touch the other are a separator. Ordered with separators last, A = L L^T fills little,
and row i of C = L^-1 reaches only to the parts that i separates: about sqrt(n) entries a column on
a surface. The columns of C come from dense triangles along the way from a part to the root.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.linalg import cholesky, solve_triangular

from dressi.errors import GraphError
from dressi.threads import in_one_blas_thread

LEAF = 64
"""Vertices up to which a part is not halved again: its columns are dense then. Smaller parts mean
fewer entries (5 % at 24) and many more small matrices on the host."""

DROP = 1e-8
"""Entries of a column below this part of its largest are left out: float32 would not notice."""

Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Block = tuple[IntArray, IntArray, Array]
"""Rows, columns, and the dense entries where they cross."""


@dataclass
class _Part:
    """A node of the tree: its own vertices (a separator, or a leaf) and its children; then the
    blocks of L: its triangle, and the rows of the separators above it."""

    own: IntArray
    children: tuple[_Part, ...] = ()
    triangle: Array | None = None
    below: Array | None = None


class _Rows:
    """Rows of a sparse matrix, and a number per column that whoever asks for rows has set: SciPy's
    own indexing takes far longer for a few rows."""

    def __init__(self, a: sparse.csr_matrix) -> None:
        self.starts, self.lengths = a.indptr[:-1].astype(np.int64), np.diff(a.indptr)
        self.columns, self.values = a.indices, a.data
        self.number = np.full(a.shape[1], -1, np.int64)

    def of(self, rows: IntArray, columns: IntArray) -> tuple[IntArray, IntArray, Array]:
        """Return the entries of some rows in some columns: positions among both, and values."""
        self.number[columns] = np.arange(len(columns))
        n = self.lengths[rows]
        row = np.repeat(np.arange(len(rows)), n)
        at = np.repeat(self.starts[rows] - (np.cumsum(n) - n), n) + np.arange(len(row))
        column = self.number[self.columns[at]]
        self.number[columns] = -1
        inside = column >= 0
        return row[inside], column[inside], self.values[at[inside]]


def _dissect(a: _Rows, places: Array, rows: IntArray) -> _Part:
    if len(rows) <= LEAF:
        return _Part(rows)
    at = places[rows]
    spread = at - at.mean(axis=0)
    _, axes = np.linalg.eigh(spread.T @ spread)
    order = np.argsort(spread @ axes[:, -1], kind="stable")
    low, high = rows[order[: len(rows) // 2]], rows[order[len(rows) // 2 :]]
    choices = []
    for mine, others in ((low, high), (high, low)):
        touches = np.zeros(len(mine), bool)
        touches[a.of(mine, others)[0]] = True
        choices.append((int(touches.sum()), mine[touches], mine[~touches], others))
    _, separator, rest, others = min(choices, key=lambda choice: choice[0])
    return _Part(separator, tuple(_dissect(a, places, p) for p in (rest, others) if len(p)))


def _eliminate(a: _Rows, part: _Part, above: IntArray) -> Array:
    """Factor a part and all below it; what that takes from the matrix of the vertices above."""
    path, k = np.concatenate([part.own, above]), len(part.own)
    front = np.zeros((len(path), len(path)))
    for child in part.children:
        front += _eliminate(a, child, path)
    row, column, value = a.of(part.own, path)
    strip = np.zeros((k, len(path)))
    strip[row, column] = value
    front[:k] += strip
    front[k:, :k] += strip[:, k:].T
    part.triangle = cholesky(front[:k, :k], lower=True)
    part.below = solve_triangular(part.triangle, front[:k, k:], lower=True).T
    return np.asarray(front[k:, k:] - part.below @ part.below.T)


def _columns(part: _Part, above: IntArray, inverse: Array, out: list[Block]) -> None:
    """Columns of L^-1 of a part and of all below it. inverse: of L among the vertices above."""
    assert part.triangle is not None and part.below is not None
    own = solve_triangular(part.triangle, np.eye(len(part.own)), lower=True)
    rest = -inverse @ (part.below @ own)
    path = np.concatenate([part.own, above])
    out.append((path, part.own, np.concatenate([own, rest])))
    if part.children:
        k = len(part.own)
        longer = np.zeros((len(path), len(path)))
        longer[:k, :k], longer[k:, :k], longer[k:, k:] = own, rest, inverse
        for child in part.children:
            _columns(child, path, longer, out)


def inverse_factor(a: sparse.spmatrix, places: npt.ArrayLike) -> sparse.csr_matrix:
    """C, sparse (n, n), with A^-1 = C^T C. Row i belongs to vertex i.

    a: (n, n) symmetric positive definite, sparse. places: (n, 3) positions of its rows; they only
    say where to cut. Entries below DROP of their column's largest are left out. Raises GraphError
    where A is not positive definite, and for other shapes.
    """
    matrix = sparse.csr_matrix(a, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    where, n = np.asarray(places, np.float64), matrix.shape[0]
    if matrix.shape != (n, n) or where.shape != (n, 3) or not np.isfinite(where).all():
        raise GraphError(
            "inverse_factor needs a matrix (n, n) and finite places (n, 3), "
            f"got {matrix.shape}, {where.shape}"
        )
    table = _Rows(matrix)
    root, nothing = _dissect(table, where, np.arange(n)), np.empty(0, np.int64)
    blocks: list[Block] = []
    try:
        with in_one_blas_thread():
            _eliminate(table, root, nothing)
            _columns(root, nothing, np.empty((0, 0)), blocks)
    except np.linalg.LinAlgError as error:
        raise GraphError(f"inverse_factor: the matrix is not positive definite: {error}") from error
    rows, columns, values = [], [], []
    for path, own, block in blocks:
        keep = np.abs(block) > DROP * np.abs(block).max(axis=0, initial=0.0)
        r, c = np.nonzero(keep)
        rows.append(path[r])
        columns.append(own[c])
        values.append(block[keep])
    entries = np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))
    return sparse.csr_matrix(entries, (n, n))
