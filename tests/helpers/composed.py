"""F functions that are compositions of ops, with a NumPy reference of each that shares nothing with
them.

Used twice, as the cases of the registry: in float64 (tests/ad) and on the device (tests/engine).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.registry import Case
from dressi.ad.vtype import (
    FLOAT,
    INT,
    IVEC2,
    IVEC3,
    MAT2,
    MAT3,
    MAT4,
    VEC2,
    VEC3,
    VEC4,
)


@dataclass(frozen=True)
class Composed:
    """A function of F, one way to call it, and what it gives: arrays (layers, H, W, *tail) ->
    array."""

    name: str
    case: Case
    reference: Callable[..., np.ndarray]


def _c(
    name: str,
    build: Callable[..., Variable],
    reference: Callable[..., Any],
    *inputs: tuple[Any, float, float],
    gradient: bool = True,
    transcendental: bool = True,
) -> Composed:
    case = Case(build, inputs, gradient=gradient, transcendental=transcendental)
    return Composed(name, case, reference)


def _mask(name: str, build: Callable[..., Variable], reference: Any, *inputs: Any) -> Composed:
    return _c(name, build, reference, *inputs, gradient=False, transcendental=False)


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(-1, keepdims=True)


def _unit(a: np.ndarray) -> np.ndarray:
    return a / np.linalg.norm(a, axis=-1, keepdims=True)


def _smoothstep(low: Any, high: Any, x: np.ndarray) -> np.ndarray:
    t = np.clip((x - low) / (high - low), 0, 1)
    return t**2 * (3 - 2 * t)


def _refract(i: np.ndarray, n: np.ndarray, eta: np.ndarray) -> np.ndarray:
    """By angles: eta times the part along the surface, and what is left of 1 along the normal."""
    i, n = _unit(i), _unit(n)
    along = eta * (i - _dot(i, n) * n)
    return along - np.sqrt(1 - _dot(along, along)) * n


def _replace(x: np.ndarray, at: list[int], value: Any) -> np.ndarray:
    shape = np.broadcast_shapes(x.shape[:3], np.shape(value)[:3] or (1, 1, 1))
    out = np.broadcast_to(x, (*shape, x.shape[-1])).copy()
    out[..., at] = value
    return out


def _huber(x: np.ndarray, d: Any) -> np.ndarray:
    return np.where(np.abs(x) <= d, x**2 / 2, d * (np.abs(x) - d / 2))


def _softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def _decode(x: np.ndarray) -> np.ndarray:
    return np.where(x <= 0.04045, x / 12.92, ((np.maximum(x, 0) + 0.055) / 1.055) ** 2.4)


def _encode(x: np.ndarray) -> np.ndarray:
    return np.where(x <= 0.0031308, 12.92 * x, 1.055 * np.maximum(x, 0) ** (1 / 2.4) - 0.055)


def _normal(x: Variable) -> Variable:
    return F.normalize(x)


POSITIVE3, ANY3, ANY1 = (VEC3, 0.1, 2.0), (VEC3, -2.0, 2.0), (FLOAT, -2.0, 2.0)
MASK3, MASK1 = (VEC3, -1.0, 1.0), (IVEC3, -1, 1)

COMPOSED: tuple[Composed, ...] = (
    _c("srgb_to_linear", F.image.srgb_to_linear, _decode, (VEC3, -0.2, 1.5)),
    _c("srgb_to_linear", F.image.srgb_to_linear, _decode, (FLOAT, -0.05, 0.04)),
    _c("linear_to_srgb", F.image.linear_to_srgb, _encode, (VEC3, -0.2, 1.5)),
    _c("linear_to_srgb", F.image.linear_to_srgb, _encode, (FLOAT, -0.003, 0.003)),
    _c("inversesqrt", F.inversesqrt, lambda x: x**-0.5, POSITIVE3),
    _c("radians", F.radians, np.radians, (VEC2, -360, 360), transcendental=False),
    _c("degrees", F.degrees, np.degrees, (VEC2, -7, 7), transcendental=False),
    _mask("step", F.step, lambda e, x: (x >= e) * 1.0, ANY3, ANY3),
    _mask("step", F.step, lambda e, x: (x >= e) * 1.0, (INT, -2, 2), (IVEC2, -2, 2)),
    _c("smoothstep", F.smoothstep, _smoothstep, ANY1, (FLOAT, 2.5, 4), (VEC3, -1.9, 5)),
    _c(
        "smoothstep",
        lambda x: F.smoothstep(1.0, -1.0, x),
        lambda x: _smoothstep(1, -1, x),
        (VEC3, -0.9, 0.9),
    ),
    _c("distance", F.distance, lambda a, b: np.sqrt(_dot(a - b, a - b)), ANY3, (VEC3, 2.5, 4)),
    _c("reflect", F.reflect, lambda i, n: i - 2 * _dot(n, i) * n, ANY3, ANY3),
    _c(
        "refract",
        lambda i, n, e: F.refract(_normal(i), _normal(n), e),
        _refract,
        (VEC3, -2, -0.5),
        (VEC3, 0.5, 2),
        (FLOAT, 0.5, 0.9),
    ),
    _c(
        "faceforward",
        F.faceforward,
        lambda n, i, r: np.where(_dot(r, i) < 0, n, -n),
        ANY3,
        (VEC3, 0.1, 1),
        (VEC3, -1, -0.1),
        gradient=False,
    ),
    _c(
        "with_components",
        lambda x, v: F.with_components(x, "zx", v),
        lambda x, v: _replace(x, [2, 0], v),
        (VEC4, -2, 2),
        (VEC2, -2, 2),
        transcendental=False,
    ),
    _c(
        "with_components",
        lambda x, v: F.with_components(x, "rb", v),
        lambda x, v: _replace(x, [0, 2], v),
        ANY3,
        ANY1,
        transcendental=False,
    ),
    _mask(
        "with_components",
        lambda x, v: F.with_components(x, "y", v),
        lambda x, v: _replace(x, [1], v),
        (IVEC3, -9, 9),
        (INT, -9, 9),
    ),
    *(
        _c(
            name,
            getattr(F, name),
            lambda x, f=f: f(x, axis=-1, keepdims=True),
            (t, -2, 2),
            transcendental=False,
        )
        for name, f in (("max_components", np.max), ("min_components", np.min))
        for t in (FLOAT, VEC3, VEC4)
    ),
    _mask("max_components", F.max_components, lambda x: x.max(-1, keepdims=True), (IVEC3, -99, 99)),
    _mask("logical_and", F.logical_and, lambda a, b: (a != 0) & (b != 0), MASK1, (INT, -1, 1)),
    _mask("logical_or", F.logical_or, lambda a, b: (a != 0) | (b != 0), MASK1, (INT, -1, 1)),
    _mask("logical_xor", F.logical_xor, lambda a, b: (a != 0) ^ (b != 0), MASK1, (INT, -1, 1)),
    _mask(
        "logical_and",
        lambda a, b: F.logical_and(a > 0, b),
        lambda a, b: (a > 0) & (b != 0),
        MASK3,
        MASK1,
    ),
    _mask(
        "logical_or",
        lambda a, b: F.logical_or(a > 0, b),
        lambda a, b: (a > 0) | (b != 0),
        MASK3,
        MASK1,
    ),
    _mask(
        "logical_xor",
        lambda a, b: F.logical_xor(a > 0, b),
        lambda a, b: (a > 0) ^ (b != 0),
        MASK3,
        MASK1,
    ),
    _mask("logical_not", F.logical_not, lambda a: a == 0, MASK1),
    _mask("any_components", F.any_components, lambda a: a.any(-1, keepdims=True), MASK1),
    _mask("all_components", F.all_components, lambda a: a.all(-1, keepdims=True), MASK1),
    _mask(
        "any_components",
        lambda a: F.any_components(a > 0.5),
        lambda a: (a > 0.5).any(-1, keepdims=True),
        (VEC4, 0, 1),
    ),
    _mask(
        "all_components",
        lambda a: F.all_components(a > 0.5),
        lambda a: (a > 0.5).all(-1, keepdims=True),
        (VEC2, 0, 1),
    ),
    _mask(
        "shift_right",
        lambda a, n: F.bits.shift_right(a, n, logical=True),
        lambda a, n: a.astype(np.int64) % 2**32 >> n.astype(np.int64),
        (INT, -(2**31), 2**31 - 1),
        (INT, 1, 31),
    ),
    _c(
        "trace", F.linalg.trace, lambda m: np.trace(m, axis1=-2, axis2=-1)[..., None], (MAT3, -2, 2)
    ),
    _c("row", lambda m: F.linalg.row(m, 1), lambda m: m[..., 1, :], (MAT4, -2, 2)),
    _c(
        "from_columns",
        F.linalg.from_columns,
        lambda *v: np.stack(np.broadcast_arrays(*v), -1),
        (VEC2, -2, 2),
        (VEC2, -2, 2),
    ),
    _c(
        "from_rows",
        F.linalg.from_rows,
        lambda *v: np.stack(np.broadcast_arrays(*v), -2),
        ANY3,
        ANY3,
        ANY3,
    ),
    _c("matrix_comp_mul", F.linalg.matrix_comp_mul, np.multiply, (MAT2, -2, 2), (MAT2, -2, 2)),
    _c(
        "vector_matmul",
        F.linalg.vector_matmul,
        lambda v, m: (v[..., None, :] @ m)[..., 0, :],
        ANY3,
        (MAT3, -2, 2),
    ),
    _c("norm", lambda x: F.norm(x, 1), lambda x: np.abs(x).sum(-1, keepdims=True), ANY3),
    _c("norm", F.norm, lambda x: np.linalg.norm(x, axis=-1, keepdims=True), (VEC4, -2, 2)),
    _c("norm", lambda x: F.norm(x, inf), lambda x: np.abs(x).max(-1, keepdims=True), ANY3),
    _c("safe_normalize", F.safe_normalize, _unit, POSITIVE3),
    _c(
        "safe_normalize",
        F.safe_normalize,
        lambda x, e: x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), e),
        (VEC3, -0.5, 0.5),
        (FLOAT, 1.0, 2.0),
    ),
    _c("logsumexp", F.logsumexp, lambda x: np.log(np.exp(x).sum(-1, keepdims=True)), (VEC4, -5, 5)),
    _c("softmax", F.softmax, _softmax, (VEC3, -5, 5)),
    _c("softmax", F.softmax, _softmax, (VEC2, -2, 2)),
    _c("logaddexp", F.logaddexp, np.logaddexp, (VEC3, -5, 5), (FLOAT, -5, 5)),
    _c("log_sigmoid", F.nn.log_sigmoid, lambda x: -np.logaddexp(0, -x), (VEC3, -9, 9)),
    _c("huber", F.huber, _huber, ANY3, (FLOAT, 0.5, 1.5)),
    _c("huber", F.huber, lambda x: _huber(x, 1.0), (FLOAT, -3, 3)),
    _c("charbonnier", F.charbonnier, lambda x, e: np.hypot(x, e), ANY3, (FLOAT, 0.1, 1)),
    _c("charbonnier", F.charbonnier, lambda x: np.hypot(x, 1e-3), (FLOAT, -3, 3)),
)
NAMES = tuple(dict.fromkeys(c.name for c in COMPOSED))


def of_name(name: str) -> list[tuple[int, Composed]]:
    """The numbers and cases of one function."""
    return [(k, c) for k, c in enumerate(COMPOSED) if c.name == name]
