"""A constant sparse matrix times an image: any linear map between images, with its transpose.

In: ``SparseMatrix``, an image or stack. Out: an image or stack. The entries of a row are summed by
the pixel that they make, one after the other; the backward is the same read with the transposed
matrix, so it is exact and needs no atomics.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from dressi.ad.functions._common import needs_variable
from dressi.ad.functions.rows import row_sum_glsl
from dressi.ad.functions.scatter import SparseMatrix, leaf, sparse_matmul
from dressi.ad.graph import Function, Size, Variable, checked_shape, short
from dressi.ad.kernels import DISPATCH, SUBGROUP, Kernel, register
from dressi.ad.registry import ANY, Case, Op, apply
from dressi.ad.vtype import INT, IVEC2, VEC3
from dressi.errors import GraphError

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
    packed = (x | (y << BITS) | (layer << (2 * BITS))).astype(np.int32)
    entries = np.stack([packed, np.asarray(matrix.values, np.float32).view(np.int32)], -1)
    if not len(entries):
        entries = np.zeros((1, 2), np.int32)
    return leaf(matrix.offsets, INT, "map.offsets"), leaf(entries, IVEC2, "map.entries")


def _glsl(f: Function, overlap: bool = False, subgroups: bool = False) -> str:
    w, h = f.output.size
    mask = SIDE - 1
    return row_sum_glsl(
        f"(({{layer}} * {h} + {{pos}}.y) * {w} + {{pos}}.x)",
        f"intBitsToFloat(#.y) * {{fetch0}}(ivec2(#.x & {mask}, (#.x >> {BITS}) & {mask}), "
        f"#.x >> {2 * BITS})",
        entry="ivec2",
        overlap=overlap,
        subgroups=subgroups and not f.output.vtype.is_matrix,
        longest=f.attr("matrix").longest,
    )


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

LINEAR_MAP = register(
    Op(
        "linear_map",
        lambda xs, a: (xs[0].vtype, a["size"], a["layers"]),
        reads=(ANY, ANY, ANY),
        backward=_backward,
        reference=_reference,
        cases=(
            Case(
                lambda x: linear_map(_MATRICES[35 * x.layers], x, (4, 3), 2),
                ((VEC3, -2, 2),),
                elementwise=False,
                sizes=((5, 7),),
            ),
        ),
    ),
    Kernel(_glsl),
    Kernel(lambda f: _glsl(f, overlap=True), DISPATCH),
    Kernel(lambda f: _glsl(f, overlap=True, subgroups=True), SUBGROUP),
)


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
