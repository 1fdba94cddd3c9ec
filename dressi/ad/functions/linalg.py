"""Linear algebra of MAT2-4: determinant, inverse, trace, diagonals, products over layers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from dressi.ad.functions._common import constant, lift, like_matrix, needs_int, needs_variable
from dressi.ad.functions.arith import add_n
from dressi.ad.functions.components import sum_components
from dressi.ad.functions.image import take_layer
from dressi.ad.functions.matrix import COMPMUL, column, from_columns, matmul, scale, transpose
from dressi.ad.functions.vector import cross
from dressi.ad.functions.written_out import AXES, built_glsl, determinant_glsl
from dressi.ad.graph import Function, Variable
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import Case, Op, Shape, apply
from dressi.ad.shape import broadcast
from dressi.ad.vtype import FLOAT, MAT2, MAT3, MAT4, VEC2, VEC3, VEC4, VType, matrix
from dressi.errors import GraphError


def _minor(m: np.ndarray, i: int, j: int) -> np.ndarray:
    return np.delete(np.delete(m, i, -2), j, -1)


def _det(m: np.ndarray) -> np.ndarray:
    """By expansion, as on devices: exactly 0 for singular matrices of small integers."""
    if m.shape[-1] == 1:
        return m[..., 0, 0]
    terms = [(-1) ** j * m[..., 0, j] * _det(_minor(m, 0, j)) for j in range(m.shape[-1])]
    return np.sum(terms, axis=0)


def _cofactor_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    n = xs[0].shape[-1]
    out = np.empty_like(xs[0])
    for i in range(n):
        for j in range(n):
            out[..., i, j] = (-1) ** (i + j) * _det(_minor(xs[0], i, j))
    return out


def _cofactor_glsl(n: int, m: str, y: str, transposed: bool = False) -> str:
    """Statements that fill the matrix y with the cofactors of m, or their transpose."""
    lines = []
    for j in range(n):
        for i in range(n):
            rows = AXES[:n].replace(AXES[i], "")
            rest = [f"{m}[{k}]" for k in range(n) if k != j]
            minor = determinant_glsl(rest, rows)
            at = f"[{i}][{j}]" if transposed else f"[{j}][{i}]"
            lines.append(f"{y}{at} = {'-' if (i + j) % 2 else ''}{minor};")
    return "\n  ".join(lines)


COFACTOR = Op(
    "cofactor",
    like_matrix,
    backward=lambda f, gy, i: _cofactor_backward(f, gy),
    reference=_cofactor_ref,
    cases=tuple(Case(lambda m: cofactor(m), ((t, -2, 2),)) for t in (MAT2, MAT3, MAT4)),
)
register(COFACTOR, Kernel(lambda f: _cofactor_glsl(f.output.vtype.n, "{x0}", "{y}")))


def _cofactor_backward(f: Function, gy: Variable) -> Variable:
    """Column j of the cofactors is, but for its sign, the cross product of the other columns."""
    n = gy.vtype.n
    if n == 2:  # linear and symmetric
        return cofactor(gy)
    m, g = ([column(x, k) for k in range(n)] for x in (f.inputs[0], gy))
    parts: list[list[Variable]] = [[] for _ in range(n)]
    for j in range(n):
        rest = [k for k in range(n) if k != j]
        for k in rest:  # dot(g, cross(a, b, c)) = -dot(a, cross(g, b, c))
            vectors = [g[j] if i == k else m[i] for i in rest]
            product = cross(*vectors) if n == 3 else apply(CROSS4, vectors)
            parts[k].append(product if j % 2 else -product)
    return from_columns(*(add_n(p) for p in parts))


def _cross4_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    if any(x.vtype is not VEC4 for x in xs):
        raise GraphError(f"needs three VEC4, got {', '.join(x.vtype.name for x in xs)}")
    return VEC4, *broadcast(xs)


def _cross4_glsl(f: Function) -> str:
    vectors = [f"{{x{k}}}" for k in range(3)]
    minors = [determinant_glsl(vectors, AXES.replace(axis, "")) for axis in AXES]
    return "{y} = vec4(" + ",\n    ".join("-" * (i % 2) + m for i, m in enumerate(minors)) + ");"


def _cross4_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    m = np.stack(np.broadcast_arrays(*xs), -1)
    return np.stack([(-1) ** i * _det(np.delete(m, i, -2)) for i in range(4)], -1)


CROSS4: Op = Op(
    "cross4",
    _cross4_infer,
    backward=lambda f, gy, i: -apply(CROSS4, [*f.inputs[:i], gy, *f.inputs[i + 1 :]]),
    reference=_cross4_ref,
    cases=(Case(lambda *v: apply(CROSS4, v), ((VEC4, -2, 2),) * 3),),
)
"""The vector of determinants of three VEC4 with each unit vector in front: normal to all three."""
register(CROSS4, Kernel(_cross4_glsl))


def _determinant_text(m: str, n: int) -> str:
    return determinant_glsl([f"{m}[{k}]" for k in range(n)], AXES[:n])


DETERMINANT = Op(
    "determinant",
    lambda xs, a: (FLOAT, *like_matrix(xs, a)[1:]),
    backward=lambda f, gy, i: scale(cofactor(f.inputs[0]), gy),
    reference=lambda f, xs: _det(xs[0])[..., None],
    cases=tuple(
        Case(lambda m: determinant(m), ((t, -2, 2),), transcendental=t is MAT4)
        for t in (MAT2, MAT3, MAT4)
    ),
)
register(
    DETERMINANT, Kernel(lambda f: f"{{y}} = {_determinant_text('{x0}', f.inputs[0].vtype.n)};")
)


def _max_glsl(a: str, b: str) -> str:
    return f"max({a}, {b})"


def _inverse_glsl(f: Function) -> str:
    """Of m / s, s the power of 2 below the largest entry: the determinant of a small matrix
    vanishes in float32, and with a power of 2 no entry is rounded."""
    t = f.output.vtype
    largest = reduce(_max_glsl, (f"abs({{x0}}[{k}])" for k in range(t.n)))
    one = reduce(_max_glsl, (f"{{y}}_c.{a}" for a in AXES[: t.n]))
    return (
        f"{t.plane.glsl} {{y}}_c = {largest};\n"
        f"  uint {{y}}_e = clamp(floatBitsToUint({one}) >> 23, 1u, 253u);\n"
        "  float {y}_s = uintBitsToFloat((254u - {y}_e) << 23);  // a power of 2\n"
        "  precise {T} {y}_m = {x0} * {y}_s;\n"
        f"  precise float {{y}}_d = {_determinant_text('{y}_m', t.n)};\n"
        f"  {_cofactor_glsl(t.n, '{y}_m', '{y}', transposed=True)}\n"
        "  {y} = {y}_d == 0.0 ? {T}(0.0) : {y} * ({y}_s / {y}_d);"
    )


def _inverse_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    det = _det(xs[0])[..., None, None]
    adjugate = np.swapaxes(_cofactor_ref(f, xs), -1, -2)
    return np.where(det == 0, 0.0, adjugate / np.where(det == 0, 1.0, det))


def _inverse_backward(f: Function, gy: Variable, i: int) -> Variable:
    """-Y^T gy Y^T."""
    y = transpose(f.output)
    return -matmul(matmul(y, gy), y)


def _well(m: Variable) -> Variable:
    """For cases: random entries in [-1, 1] made a matrix far from singular ones."""
    n = m.vtype.n
    return m + constant(np.eye(n) * n, m.vtype)


INVERSE = Op(
    "inverse",
    like_matrix,
    backward=_inverse_backward,
    reference=_inverse_ref,
    cases=(
        *(Case(lambda m: inverse(_well(m)), ((t, -1, 1),)) for t in (MAT2, MAT3, MAT4)),
        Case(lambda m: inverse(scale(_well(m), 1e-12)) * 1e-12, ((MAT4, -1, 1),)),
    ),
)
register(INVERSE, Kernel(_inverse_glsl))

DIAGONAL = Op(
    "diagonal",
    lambda xs, a: (like_matrix(xs, a)[0].plane, xs[0].size, xs[0].layers),
    backward=lambda f, gy, i: diagonal_matrix(gy),
    reference=lambda f, xs: np.diagonal(xs[0], axis1=-2, axis2=-1),
    cases=tuple(Case(lambda m: diagonal(m), ((t, -2, 2),)) for t in (MAT2, MAT3, MAT4)),
)
register(
    DIAGONAL, Kernel(lambda f: built_glsl(f"{{x0}}[{k}][{k}]" for k in range(f.output.vtype.n)))
)


def _diagonal_matrix_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    t = xs[0].vtype
    if t.is_int or t.is_matrix or t.n == 1:
        raise GraphError(f"needs VECn, got {t.name}")
    return matrix(t.n), xs[0].size, xs[0].layers


DIAGONAL_MATRIX = Op(
    "diagonal_matrix",
    _diagonal_matrix_infer,
    backward=lambda f, gy, i: diagonal(gy),
    reference=lambda f, xs: xs[0][..., None] * np.eye(xs[0].shape[-1]),
    cases=tuple(Case(lambda v: diagonal_matrix(v), ((t, -2, 2),)) for t in (VEC2, VEC3, VEC4)),
)
register(
    DIAGONAL_MATRIX,
    Kernel(
        lambda f: (
            "{y} = {T}(0.0);"
            + "".join(
                f" {{y}}[{k}][{k}] = {{x0}}.{a};" for k, a in enumerate(AXES[: f.output.vtype.n])
            )
        )
    ),
)


def cofactor(m: Variable) -> Variable:
    """MATn of the cofactors of MATn: its inverse is their transpose over the determinant.

    Gradient: the derivative of the cofactors along gy, which is symmetric.
    """
    return apply(COFACTOR, (m,))


def determinant(m: Variable) -> Variable:
    """FLOAT determinant of MATn. Gradient: gy times the matrix of cofactors, for singular m too."""
    return apply(DETERMINANT, (m,))


def inverse(m: Variable) -> Variable:
    """Inverse of MATn; all 0 where m is singular.

    m: MATn @ any size; singular means that its determinant, computed in float32 after scaling by a
    power of two, is exactly 0. A matrix that is nearly singular has large but honest entries.
    Gradient: -Y^T gy Y^T of the result Y, so 0 where m is singular.
    """
    return apply(INVERSE, (m,))


def trace(m: Variable) -> Variable:
    """FLOAT sum of the diagonal of MATn. Gradient: gy on the diagonal."""
    return sum_components(diagonal(m))


def identity(n: int) -> Variable:
    """MATn @ 1x1: 1 on the diagonal, else 0. n: 2, 3 or 4; else GraphError. No gradient."""
    if needs_int("identity", "n", n) not in (2, 3, 4):
        raise GraphError(f"F.identity: n must be 2, 3 or 4, got {n}")
    return constant(np.eye(n), VType(f"mat{n}"))


def diagonal(m: Variable) -> Variable:
    """VECn: the diagonal of MATn. Gradient: gy on the diagonal."""
    return apply(DIAGONAL, (m,))


def diagonal_matrix(v: Variable) -> Variable:
    """MATn with VECn on its diagonal, else 0. Gradient: the diagonal of gy."""
    return apply(DIAGONAL_MATRIX, (v,))


def row(m: Variable, index: int) -> Variable:
    """Row ``index`` of MATn as VECn. Gradient into that row."""
    return column(transpose(m), index)


def from_rows(*rows: Variable) -> Variable:
    """MATn of n VECn, its rows. Gradient to every row."""
    return transpose(from_columns(*rows))


def matrix_comp_mul(a: Variable, b: Variable) -> Variable:
    """Product of two MATn entry by entry. Gradient to both."""
    return apply(COMPMUL, (a, b))


def vector_matmul(v: Any, m: Variable) -> Variable:
    """v^T M: VECn with MATn @ broadcast sizes, to VECn. Gradient to both. Raises GraphError for
    other types."""
    (v,) = lift("vector_matmul", v)
    if v.vtype.is_matrix:
        raise GraphError(f"F.vector_matmul: needs VECn, got {v.vtype.name}")
    return matmul(transpose(m), v)


def matmul_layers(m: Variable) -> Variable:
    """M0 M1 ... Mn-1: the product of the layers of MATn @ any size, as one layer.

    A chain of transforms in one stack. n - 1 products in a balanced tree. Gradient to every layer.
    Raises GraphError for what is no matrix.
    """
    if not needs_variable("matmul_layers", m).vtype.is_matrix:
        raise GraphError(f"F.matmul_layers: needs MATn, got {m.vtype.name}")
    if m.layers == 1:
        return m
    items = [take_layer(m, k) for k in range(m.layers)]
    while len(items) > 1:
        items = [
            matmul(*items[k : k + 2]) if k + 1 < len(items) else items[k]
            for k in range(0, len(items), 2)
        ]
    return items[0]
