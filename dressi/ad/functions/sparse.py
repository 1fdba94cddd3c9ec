"""A constant sparse matrix times a table or an image: any linear map, with its transpose.

In: ``SparseMatrix``, a table, image or stack. Out: the same. The entries of a row are summed by
the pixel that they make, one after the other; the backward is the same read with the transposed
matrix, so it is exact and needs no atomics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from dressi.ad.functions._common import leaf, needs_variable, sized
from dressi.ad.functions.rows import RowSum, row_sum_kernels
from dressi.ad.functions.scatter import invert_index
from dressi.ad.graph import Function, Size, Variable, checked_shape, short
from dressi.ad.kernels import register
from dressi.ad.registry import ANY, Op, apply
from dressi.ad.vtype import INT, IVEC2, VEC3
from dressi.errors import GraphError


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """A constant sparse matrix in CSR form for ``F.linalg.sparse_matmul``.

    offsets: (rows + 1,) ints; columns: (nnz,) ints in [0, n_columns); values: (nnz,) floats.
    Raises GraphError for offsets that do not ascend to nnz or columns out of range.
    """

    offsets: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    n_columns: int

    def __post_init__(self) -> None:
        offsets, columns, values = (
            np.asarray(a) for a in (self.offsets, self.columns, self.values)
        )
        if len(offsets) < 2 or offsets[0] != 0 or (np.diff(offsets) < 0).any():
            raise GraphError("SparseMatrix: offsets must ascend from 0")
        if offsets[-1] != len(columns) or len(values) != len(columns):
            raise GraphError(
                f"SparseMatrix: offsets end at {offsets[-1]}, {len(columns)} columns, "
                f"{len(values)} values"
            )
        if len(columns) and (columns.min() < 0 or columns.max() >= self.n_columns):
            raise GraphError(
                f"SparseMatrix: columns {columns.min()}..{columns.max()} out of range "
                f"0..{self.n_columns - 1}"
            )

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.offsets) - 1

    @cached_property
    def longest(self) -> int:
        """Entries of the longest row."""
        return int(np.diff(self.offsets).max())

    def __repr__(self) -> str:
        return f"SparseMatrix({self.n_rows}x{self.n_columns}, {len(self.values)} values)"

    # Made once a matrix, so that building a graph again makes no new images.
    @cached_property
    def leaves(self) -> tuple[Variable, Variable]:
        """Tables with the offsets, and with the entries: (column, bits of the value), which one
        fetch reads. Never empty, as images cannot be."""
        entries = _entries(self.columns, self.values)
        return leaf(self.offsets, INT, "csr.offsets"), leaf(entries, IVEC2, "csr.entries")

    @cached_property
    def transposed(self) -> SparseMatrix:
        """The transpose, rows in ascending order."""
        offsets, items = invert_index(self.columns, self.n_columns)
        items = items[: len(self.columns)]
        rows = np.repeat(np.arange(self.n_rows, dtype=np.int32), np.diff(self.offsets))
        made = SparseMatrix(offsets, rows[items], np.asarray(self.values)[items], self.n_rows)
        made.__dict__["transposed"] = self  # the same leaves again, not a third copy on the device
        return made


def _entries(columns: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(nnz, 2) int32, at least one row: numbers of columns, and the bits of float32 values."""
    bits = np.asarray(values, np.float32).view(np.int32)
    entries = np.stack([np.asarray(columns).astype(np.int32), bits], -1)
    return entries if len(entries) else np.zeros((1, 2), np.int32)


def _spmv(f: Function) -> RowSum:
    def summand(entry: str, place: str, layer: str) -> str:
        return f"intBitsToFloat({entry}.y) * {{fetch0}}(ivec2({entry}.x, 0), {layer})"

    return RowSum("{pos}.x", summand, "ivec2", f.attr("matrix").longest)


def _spmv_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    x, offsets = xs[0], xs[1].reshape(-1).astype(int)
    entries = xs[2].reshape(-1, 2).astype(np.int32)
    columns, values = entries[:, 0], entries[:, 1].copy().view(np.float32).astype(np.float64)
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    columns, values, n = columns[: len(rows)], values[: len(rows)], len(offsets) - 1
    sums = [
        [np.bincount(rows, values * component[columns], n) for component in layer[0].T]
        for layer in x
    ]
    return np.stack([np.stack(layer, axis=-1)[None] for layer in sums])


SPMV = Op(
    "sparse_matmul",
    lambda xs, a: (xs[0].vtype, (xs[1].size[0] - 1, 1), xs[0].layers),
    reads=(ANY, ANY, ANY),
    linear_in=(0,),
    backward=lambda f, gy, i: sparse_matmul(f.attr("matrix").transposed, gy) if i == 0 else None,
    reference=_spmv_ref,
    cases=(
        sized(
            lambda x: sparse_matmul(
                SparseMatrix(
                    np.array([0, 2, 2, 5]),
                    np.array([0, 3, 1, 2, 4]),
                    np.array([0.5, -1.0, 2.0, 0.25, 1.5]),
                    5,
                ),
                x,
            ),
            ((VEC3, -2, 2),),
            (5, 1),
        ),
    ),
)
register(SPMV, *row_sum_kernels(_spmv))


BITS = 12
"""Bits of a column and of a row of a pixel in a packed position: sides up to 4096."""
SIDE, LAYERS = 1 << BITS, 1 << (31 - 2 * BITS)


def _shape(size: Size, layers: int) -> tuple[int, int, int]:
    return layers, size[1], size[0]


@lru_cache(maxsize=64)
def _leaves(matrix: SparseMatrix, size: Size, layers: int) -> tuple[Variable, Variable]:
    """Offsets, and entries (packed position in a stack of that shape, bits of the weight).

    Kept by matrix and shape, so that building a graph again makes no new images.
    """
    layer, y, x = np.unravel_index(np.asarray(matrix.columns, np.int64), _shape(size, layers))
    entries = _entries(x | (y << BITS) | (layer << (2 * BITS)), matrix.values)
    return leaf(matrix.offsets, INT, "map.offsets"), leaf(entries, IVEC2, "map.entries")


def _mapped(f: Function) -> RowSum:
    w, h = f.output.size
    mask = SIDE - 1

    def summand(entry: str, place: str, layer: str) -> str:
        at = f"ivec2({entry}.x & {mask}, ({entry}.x >> {BITS}) & {mask})"
        return f"intBitsToFloat({entry}.y) * {{fetch0}}({at}, {entry}.x >> {2 * BITS})"

    row = f"(({{layer}} * {h} + {{pos}}.y) * {w} + {{pos}}.x)"
    return RowSum(row, summand, "ivec2", f.attr("matrix").longest)


def _reference(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    matrix: SparseMatrix = f.attr("matrix")
    tail = xs[0].shape[3:]
    rows = np.repeat(np.arange(matrix.n_rows), np.diff(matrix.offsets))
    out = np.zeros((matrix.n_rows, *tail))
    values = np.asarray(matrix.values, np.float64)[:, None]
    np.add.at(out, rows, values * xs[0].reshape(-1, *tail)[matrix.columns])
    return out.reshape(*_shape(f.attr("size"), f.attr("layers")), *tail)


def _backward(f: Function, gy: Variable, i: int) -> Variable | None:
    x = f.inputs[0]
    return linear_map(f.attr("matrix").transposed, gy, x.size, x.layers) if i == 0 else None


def _case_matrix(rows: int, columns: int) -> SparseMatrix:
    rng = np.random.default_rng(0)
    dense = rng.uniform(-1, 1, (rows, columns)) * (rng.uniform(size=(rows, columns)) < 0.3)
    dense[1] = 0
    row, column = np.nonzero(dense)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows))])
    return SparseMatrix(offsets, column, dense[row, column], columns)


_MATRICES = {n: _case_matrix(24, n) for n in (35, 105)}

LINEAR_MAP = Op(
    "linear_map",
    lambda xs, a: (xs[0].vtype, a["size"], a["layers"]),
    reads=(ANY, ANY, ANY),
    linear_in=(0,),
    backward=_backward,
    reference=_reference,
    cases=(
        sized(
            lambda x: linear_map(_MATRICES[35 * x.layers], x, (4, 3), 2), ((VEC3, -2, 2),), (5, 7)
        ),
    ),
)
register(LINEAR_MAP, *row_sum_kernels(_mapped))


def linear_map(matrix: SparseMatrix, x: Variable, size: Size, layers: int = 1) -> Variable:
    """matrix @ x for whole images: every pixel of the result is a weighted sum of pixels of x.

    matrix: F.linalg.SparseMatrix, constant. x: FLOAT or VECn @ any size, any layers; column j of
    the matrix is its j-th pixel, layer by layer, row by row. size, layers: of the result, its rows
    in the same order. Gradient to x: the transposed matrix times gy, exact, without atomics. Raises
    GraphError when the counts do not fit, and for images wider or higher than 4096 or of more than
    128 layers.
    """
    if not isinstance(matrix, SparseMatrix):
        raise GraphError(f"F.linear_map: needs an F.linalg.SparseMatrix, got {short(matrix)}")
    needs_variable("linear_map", x)
    size, layers = checked_shape("F.linear_map", size, layers)
    if x.vtype.is_int or x.vtype.is_matrix or x.size[0] * x.size[1] * x.layers != matrix.n_columns:
        raise GraphError(
            f"F.linear_map: a matrix of {matrix.n_columns} columns needs FLOAT "
            f"or VECn with that many pixels in all, got {x.label()}"
        )
    if size[0] * size[1] * layers != matrix.n_rows:
        raise GraphError(
            f"F.linear_map: a matrix of {matrix.n_rows} rows does not fill "
            f"{size[0]}x{size[1]}, layers={layers}"
        )
    if max(size + x.size) > SIDE or max(layers, x.layers) > LAYERS:
        raise GraphError(
            f"F.linear_map: sides up to {SIDE} and layers up to {LAYERS}, got "
            f"{x.label()} to {size[0]}x{size[1]}, layers={layers}"
        )
    if x.is_table and x.layers == size[1] == layers == 1:
        return sparse_matmul(matrix, x)
    leaves = _leaves(matrix, x.size, x.layers)
    return apply(LINEAR_MAP, (x, *leaves), matrix=matrix, size=size, layers=layers)


def sparse_matmul(matrix: SparseMatrix, x: Variable) -> Variable:
    """matrix @ x for a table x: FLOAT or VECn @ (n_columns, 1) -> @ (n_rows, 1).

    Gradient: transpose @ gy. Raises GraphError when the sizes do not fit.
    """
    if not isinstance(matrix, SparseMatrix):
        raise GraphError(f"F.sparse_matmul: needs an F.linalg.SparseMatrix, got {short(matrix)}")
    needs_variable("sparse_matmul", x)
    if x.size != (matrix.n_columns, 1) or x.vtype.is_int or x.vtype.is_matrix:
        raise GraphError(
            f"F.sparse_matmul: a matrix of {matrix.n_columns} columns needs a "
            f"FLOAT or VECn table of that many rows, got {x.label()}"
        )
    return apply(SPMV, (x, *matrix.leaves), matrix=matrix)
