"""Matrices: product with vectors and matrices, transpose, outer product, scaling, columns.

Arrays are (..., n, n) row by row, column vectors: y = M x. On the device a matrix is n column
planes, and what works component by component on vectors works on matrices through ``by_columns``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dressi.ad.functions._common import call, constant, like_matrix, needs_int
from dressi.ad.functions.components import sum_components
from dressi.ad.functions.written_out import AXES, built_glsl, inputs_glsl, matmul_glsl
from dressi.ad.graph import Function, Variable
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import Case, Op, Shape, apply, every_input
from dressi.ad.shape import broadcast
from dressi.ad.vtype import FLOAT, MAT2, MAT3, MAT4, VEC2, VEC3, VEC4, VType, matrix
from dressi.errors import GraphError


def _matmul_hint(a: VType, b: VType) -> str:
    """Return what may be meant by a product of types that have none."""
    if a.is_matrix and (a.n, b) == (4, VEC3):
        return "; points: F.vec4(v, 1.0), directions: F.vec4(v, 0.0)"
    if b.is_matrix and a.n == b.n:
        return "; vectors are columns: m @ v, or F.transpose(m) @ v"
    if a == b:
        return "; F.dot(a, b), or a * b component by component"
    return ""


def _matmul_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    m, v = xs
    if not m.vtype.is_matrix or v.vtype.is_int or v.vtype.n != m.vtype.n:
        raise GraphError(
            f"cannot multiply {m.vtype.name} by {v.vtype.name}; needs MATn and VECn or MATn"
            + _matmul_hint(m.vtype, v.vtype)
        )
    return v.vtype, *broadcast(xs)


def _matmul_backward(f: Function, gy: Variable, i: int) -> Variable:
    m, v = f.inputs
    if i == 1:
        return matmul(transpose(m), gy)
    return matmul(gy, transpose(v)) if v.vtype.is_matrix else outer(gy, v)


def _matmul_text(f: Function) -> str:
    n = f.inputs[0].vtype.n
    if not f.inputs[1].vtype.is_matrix:
        return f"{{y}} = {matmul_glsl('{x0}', '{x1}', n)};"
    columns = (matmul_glsl("{x0}", f"{{x1}}[{k}]", n) for k in range(n))
    return built_glsl(columns, ",\n    ")


MATMUL = Op(
    "matmul",
    _matmul_infer,
    backward=_matmul_backward,
    reference=lambda f, xs: (
        xs[0] @ xs[1] if f.inputs[1].vtype.is_matrix else (xs[0] @ xs[1][..., None])[..., 0]
    ),
    cases=(
        Case(lambda m, v: m @ v, ((MAT4, -2, 2), (VEC4, -2, 2))),
        Case(lambda m, v: m @ v, ((MAT3, -2, 2), (VEC3, -2, 2))),
        Case(lambda m, v: m @ v, ((MAT2, -2, 2), (MAT2, -2, 2))),
    ),
)
register(MATMUL, Kernel(_matmul_text))

TRANSPOSE = Op(
    "transpose",
    like_matrix,
    backward=lambda f, gy, i: transpose(gy),
    reference=lambda f, xs: np.swapaxes(xs[0], -1, -2),
    cases=(Case(lambda m: transpose(m), ((MAT3, -2, 2),)),),
)
register(TRANSPOSE, Kernel("{y} = transpose({x0});"))


def _outer_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    a, b = (x.vtype for x in xs)
    if a != b or a.is_int or a.is_matrix or a.n == 1:
        raise GraphError(f"needs two VECn of one size, got {a.name} and {b.name}")
    return matrix(a.n), *broadcast(xs)


OUTER = Op(
    "outer",
    _outer_infer,
    backward=lambda f, gy, i: (
        matmul(gy, f.inputs[1]) if i == 0 else matmul(transpose(gy), f.inputs[0])
    ),
    reference=lambda f, xs: xs[0][..., :, None] * xs[1][..., None, :],
    cases=(Case(lambda a, b: outer(a, b), ((VEC2, -2, 2), (VEC2, -2, 2))),),
)
register(
    OUTER, Kernel(lambda f: built_glsl(f"{{x0}} * {{x1}}.{a}" for a in AXES[: f.output.vtype.n]))
)


def _scale_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    if not xs[0].vtype.is_matrix or xs[1].vtype is not FLOAT:
        raise GraphError(f"needs MATn and FLOAT, got {xs[0].vtype.name} and {xs[1].vtype.name}")
    return xs[0].vtype, *broadcast(xs)


SCALE = Op(
    "scale",
    _scale_infer,
    backward=lambda f, gy, i: (
        scale(gy, f.inputs[1]) if i == 0 else sum_components(apply(COMPMUL, (gy, f.inputs[0])))
    ),
    reference=lambda f, xs: xs[0] * xs[1][..., None],
    cases=(Case(lambda m, s: scale(m, s), ((MAT3, -2, 2), (FLOAT, -2, 2))),),
)
register(SCALE, Kernel("{y} = {x0} * {x1};"))


def _compmul_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    if xs[0].vtype != like_matrix(xs[1:], attrs)[0]:
        raise GraphError(f"needs two MATn, got {xs[0].vtype.name} and {xs[1].vtype.name}")
    return xs[0].vtype, *broadcast(xs)


COMPMUL: Op = Op(
    "matrix_comp_mul",
    _compmul_infer,
    backward=lambda f, gy, i: apply(COMPMUL, (gy, f.inputs[1 - i])),
    reference=lambda f, xs: xs[0] * xs[1],
    cases=(Case(lambda a, b: apply(COMPMUL, (a, b)), ((MAT2, -2, 2), (MAT2, -2, 2))),),
)
register(COMPMUL, Kernel("{y} = matrixCompMult({x0}, {x1});"))


def _column_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    t, size, layers = like_matrix(xs, attrs)
    if not 0 <= attrs["index"] < t.n:
        raise GraphError(f"{t.name} has no column {attrs['index']}")
    return t.plane, size, layers


def _column_backward(f: Function, gy: Variable, i: int) -> Variable:
    zero = constant(0.0, gy.vtype)
    return from_columns(*(gy if k == f.attr("index") else zero for k in range(gy.vtype.n)))


COLUMN = Op(
    "column",
    _column_infer,
    exact=True,
    zero_if=(0,),
    backward=_column_backward,
    reference=lambda f, xs: xs[0][..., :, f.attr("index")],
    cases=(Case(lambda m: column(m, 1), ((MAT3, -2, 2),)),),
)
register(COLUMN, Kernel(lambda f: f"{{y}} = {{x0}}[{f.attr('index')}];"))


def _from_columns_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    t = xs[0].vtype if xs else FLOAT
    if any(x.vtype != t for x in xs) or t.is_int or t.is_matrix or t.n != len(xs):
        given = ", ".join(x.vtype.name for x in xs) or "nothing"
        raise GraphError(f"needs n VECn, got {given}")
    return matrix(t.n), *broadcast(xs)


FROM_COLUMNS = Op(
    "from_columns",
    _from_columns_infer,
    exact=True,
    zero_if=every_input,
    backward=lambda f, gy, i: column(gy, i),
    reference=lambda f, xs: np.stack(np.broadcast_arrays(*xs), axis=-1),
    cases=(
        Case(lambda a, b: from_columns(a, b), ((VEC2, -2, 2), (VEC2, -2, 2))),
        Case(lambda a, b, c: from_columns(a, b, c), ((VEC3, -2, 2),) * 3),
    ),
)
register(FROM_COLUMNS, Kernel(inputs_glsl))


def matmul(m: Variable, v: Any) -> Variable:
    """M v: MATn with VECn or MATn @ broadcast sizes. Gradient to both."""
    return call(MATMUL, m, v)


def transpose(m: Variable) -> Variable:
    """Transpose of MATn. Gradient: transpose(gy)."""
    return apply(TRANSPOSE, (m,))


def outer(a: Any, b: Any) -> Variable:
    """MATn a b^T of two VECn. Gradient to both."""
    return call(OUTER, a, b)


def scale(m: Variable, s: Any) -> Variable:
    """MATn times FLOAT. Gradient to both."""
    return call(SCALE, m, s)


def column(m: Variable, index: int) -> Variable:
    """Column ``index`` of MATn as VECn. Gradient into that column."""
    return apply(COLUMN, (m,), index=needs_int("column", "index", index))


def from_columns(*columns: Variable) -> Variable:
    """MATn of n VECn, its columns. Gradient to every column."""
    return apply(FROM_COLUMNS, columns)


def by_columns(function: Callable[..., Variable], *xs: Variable) -> Variable:
    """function(*xs); of MATn column by column, so that an elementwise function works on its
    entries.

    Gradient: through the function.
    """
    if not xs[0].vtype.is_matrix:
        return function(*xs)
    return from_columns(*(function(*(column(x, k) for x in xs)) for k in range(xs[0].vtype.n)))
