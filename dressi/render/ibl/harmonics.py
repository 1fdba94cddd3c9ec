"""Irradiance as spherical harmonics of order 2: nine coefficients, linear in the environment.

In: a map over directions. Out: coefficients, and the irradiance along normals. Source: Ramamoorthi
and Hanrahan 2001: a cosine lobe lets orders 0, 1 and 2 through with pi, 2 pi / 3 and pi / 4; what
it lets through of the higher ones is left out.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.graph import Size
from dressi.ad.vtype import INT
from dressi.render.ibl.maps import (
    Array,
    check_map,
    cube_directions,
    cube_solid_angles,
    equirect_directions,
    equirect_solid_angles,
)

N_COEFFICIENTS = 9
LOBE = (1.0, *(2 / 3,) * 3, *(1 / 4,) * 5)
"""What the cosine lobe, divided by pi, lets through of each function."""

_K0 = math.sqrt(1 / (4 * math.pi))
_K1 = math.sqrt(3 / (4 * math.pi))
_K2 = math.sqrt(15 / (4 * math.pi))


def sh_basis(directions: Array) -> Array:
    """The nine real harmonics (..., 9) at unit directions (..., 3), orthonormal on the sphere.

    In the order 1; y, z, x; xy, yz, 3 z^2 - 1, xz, x^2 - y^2.
    """
    x, y, z = np.moveaxis(np.asarray(directions, np.float64), -1, 0)
    return np.stack(
        [
            np.full_like(x, _K0),
            _K1 * y,
            _K1 * z,
            _K1 * x,
            _K2 * x * y,
            _K2 * y * z,
            _K2 / math.sqrt(12) * (3 * z * z - 1),
            _K2 * x * z,
            _K2 / 2 * (x * x - y * y),
        ],
        -1,
    )


@lru_cache(maxsize=16)
def _projection(size: Size, layers: int) -> tuple[F.linalg.SparseMatrix, F.linalg.SparseMatrix]:
    """Two matrices whose product projects a map: sums of parts of it, then of those. One row of so
    many entries would be the work of one pixel."""
    if layers == 6:
        d, omega = cube_directions(size[0]), cube_solid_angles(size[0])
    else:
        d, omega = equirect_directions(size), equirect_solid_angles(size)
    basis = sh_basis(d).reshape(-1, N_COEFFICIENTS)
    # Orthonormal functions sampled at texels are nearly so; with their own inner products instead,
    # a map that is a sum of them gives exactly its coefficients. A map of few rows or columns
    # cannot tell all functions apart: of the sums that fit it, the shortest is taken, around its
    # mean, so that the same light all around stays what it is.
    weighted = basis * omega.reshape(-1, 1)
    weights = np.linalg.pinv(basis.T @ weighted, rcond=1e-6, hermitian=True) @ weighted.T
    mean = omega.reshape(1, -1) / omega.sum()
    constant = np.eye(N_COEFFICIENTS)[:, :1] / _K0
    weights += (constant - weights.sum(1, keepdims=True)) @ mean
    n = weights.shape[1]
    parts = max(math.isqrt(n), 1)
    cuts = np.linspace(0, n, parts + 1).astype(int)
    offsets = (np.arange(N_COEFFICIENTS)[:, None] * n + cuts[:-1]).ravel()
    first = F.linalg.SparseMatrix(
        np.append(offsets, N_COEFFICIENTS * n),
        np.tile(np.arange(n), N_COEFFICIENTS),
        weights.ravel(),
        n,
    )
    count = N_COEFFICIENTS * parts
    second = F.linalg.SparseMatrix(
        np.arange(N_COEFFICIENTS + 1) * parts, np.arange(count), np.ones(count), count
    )
    return first, second


def sh_project(env: Variable) -> Variable:
    """Coefficients of a map, a table @ (9, 1) of the type of env.

    env: FLOAT or VECn, cube (layers=6) or equirectangular. Gradient to env: the exact transpose.
    Raises GraphError for what is no map.
    """
    first, second = _projection(check_map(env).size, env.layers)
    parts = F.linalg.linear_map(first, env, (first.n_rows // N_COEFFICIENTS, N_COEFFICIENTS))
    return F.linalg.linear_map(second, parts, (N_COEFFICIENTS, 1))


def sh_irradiance(coefficients: Variable, normal: Variable) -> Variable:
    """Irradiance divided by pi along unit normals.

    coefficients: FLOAT or VECn @ (9, 1), of ``sh_project``. normal: VEC3 @ any size, unit. Where
    light comes from a narrow cone it may be slightly negative on the far side. Gradient to both.
    """
    x, y, z = normal.x, normal.y, normal.z
    functions: list[Variable | float] = [
        _K0,
        _K1 * y,
        _K1 * z,
        _K1 * x,
        _K2 * (x * y),
        _K2 * (y * z),
        _K2 / math.sqrt(12) * (3.0 * z * z - 1.0),
        _K2 * (x * z),
        _K2 / 2 * (x * x - y * y),
    ]
    terms = [
        F.lookup(coefficients, F.constant(k, INT)) * LOBE[k] * f for k, f in enumerate(functions)
    ]
    return F.add_n(terms)
