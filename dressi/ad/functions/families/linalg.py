"""Matrices per pixel, and sparse matrices over pixels."""

from dressi.ad.functions.linalg import (
    cofactor,
    determinant,
    diagonal,
    diagonal_matrix,
    from_rows,
    identity,
    inverse,
    matmul_layers,
    matrix_comp_mul,
    row,
    trace,
    vector_matmul,
)
from dressi.ad.functions.matrix import column, from_columns, outer
from dressi.ad.functions.sparse import SparseMatrix, linear_map, sparse_matmul

__all__ = [
    "SparseMatrix",
    "cofactor",
    "column",
    "determinant",
    "diagonal",
    "diagonal_matrix",
    "from_columns",
    "from_rows",
    "identity",
    "inverse",
    "linear_map",
    "matmul_layers",
    "matrix_comp_mul",
    "outer",
    "row",
    "sparse_matmul",
    "trace",
    "vector_matmul",
]
