"""GLSL of products and sums that a builtin function would hide: dot, cross, determinant, lerp.

A driver may or may not fuse a multiplication with the addition that follows it, as it likes, in
each shader anew; the last bit of a value then depends on the shader in which it is computed.
``precise`` forbids that for operators, but what happens inside of ``dot`` or ``mix`` is the
driver's own affair (seen with NVIDIA's 580.159). So ops write their sums with operators. Every
function takes GLSL expressions without operators of their own (names, components) and returns one.
"""

from __future__ import annotations

from collections.abc import Iterable

from dressi.ad.graph import Function

AXES = "xyzw"


def built_glsl(parts: Iterable[str], separator: str = ", ") -> str:
    """The statement that makes the output of its components or columns."""
    return f"{{y}} = {{T}}({separator.join(parts)});"


def inputs_glsl(f: Function) -> str:
    """The statement that makes the output of all inputs."""
    return built_glsl(f"{{x{i}}}" for i in range(len(f.inputs)))


def dot_glsl(a: str, b: str, n: int) -> str:
    """The sum of the products of n components; n = 1: of two floats."""
    if n == 1:
        return f"({a} * {b})"
    return "(" + " + ".join(f"{a}.{c} * {b}.{c}" for c in AXES[:n]) + ")"


def cross_glsl(a: str, b: str) -> str:
    """The cross product of two vec3."""
    return f"({a}.yzx * {b}.zxy - {a}.zxy * {b}.yzx)"


def lerp_glsl(a: str, b: str, t: str) -> str:
    """a where t is 0, b where it is 1."""
    return f"({a} * (1.0 - {t}) + {b} * {t})"


def matmul_glsl(m: str, v: str, n: int) -> str:
    """An n x n matrix times a vector: its columns, weighted by the components."""
    return "(" + " + ".join(f"{m}[{k}] * {v}.{AXES[k]}" for k in range(n)) + ")"


def determinant_glsl(columns: list[str], rows: str) -> str:
    """The determinant of some columns (vectors) in as many rows (components), expanded along the
    first row."""
    if len(columns) == 1:
        return f"{columns[0]}.{rows}"
    terms = []
    for k, column in enumerate(columns):
        minor = determinant_glsl(columns[:k] + columns[k + 1 :], rows[1:])
        terms.append(f"{' - ' if k % 2 else ' + ' if k else ''}{column}.{rows[0]} * {minor}")
    return "(" + "".join(terms) + ")"
