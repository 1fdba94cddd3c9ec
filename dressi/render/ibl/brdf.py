"""The BRDF table of the split sum: what a surface reflects of light that is 1 all around.

In: size of the table. Out: (scale, bias) by n . v and roughness, so that the share of light
reflected is F0 * scale + bias (Karis 2013), for GGX with alpha = roughness^2, height-correlated
Smith shadowing and Schlick's Fresnel term. Integrated in float64.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.interpolate import CubicSpline

from dressi.ad import F, Variable
from dressi.ad.graph import checked_shape
from dressi.ad.vtype import VEC2
from dressi.render.ibl.maps import Array
from dressi.render.shading.values import inclusive_clamp

TABLE_SIDE = 64
GRAZING = 1e-4
"""n . v of the first column, for 0: the limit there is 0 / 0."""

BEFORE_LAST = 1 - 2.0**-21
"""Factor of positions in the table: changes values by less than 1e-6."""


def brdf_integral(n_dot_v: Array, roughness: Array, polar: int = 64, azimuth: int = 32) -> Array:
    """(scale, bias) (..., 2), float64. n_dot_v in (0, 1], roughness in [0, 1], of one shape.

    polar, azimuth: points of the quadrature over half vectors, Gauss-Legendre in the variable in
    which GGX is uniform (so the roughness may be 0), midpoints around the normal.
    """
    nv, alpha = np.broadcast_arrays(
        np.asarray(n_dot_v, np.float64), np.asarray(roughness, np.float64) ** 2
    )
    nv, a2 = nv[..., None, None], alpha[..., None, None] ** 2
    node, weight = np.polynomial.legendre.leggauss(polar)
    # Squared, because the density of half vectors has a square root at the rim.
    u, du = ((node + 1) / 2) ** 2, weight * (node + 1) / 2
    u = (1 - u)[:, None]
    phi = (np.arange(azimuth) + 0.5) / azimuth * np.pi
    nh = np.sqrt((1 - u) / (1 + (a2 - 1) * u))
    vh = np.sqrt(1 - nv**2) * np.sqrt(np.maximum(1 - nh**2, 0)) * np.cos(phi) + nv * nh
    nl = 2 * vh * nh - nv
    ok = (nl > 0) & (vh > 0)
    nl, vh = np.where(ok, nl, 1.0), np.where(ok, vh, 0.0)
    root_v, root_l = (np.sqrt(a2 + (1 - a2) * c * c) for c in (nv, nl))
    # 4 V (n . l) (v . h) / (n . h), with V = G / (4 n.l n.v)
    share = np.where(ok, 2 * nl * vh / np.maximum(nh * (nl * root_v + nv * root_l), 1e-300), 0.0)
    fresnel = (1 - vh) ** 5
    both = np.stack([share * (1 - fresnel), share * fresnel], -1)
    return np.asarray(np.einsum("...uac,u->...c", both, du) / azimuth)


ROWS = 4
"""Rows of roughness to a column: between rows the slope is that of their difference, which 64 rows
would leave off by 5 %."""


@lru_cache(maxsize=4)
def _table(side: int) -> Variable:
    axis = np.arange(side) / max(side - 1, 1)
    rows = np.stack([brdf_integral(np.maximum(axis, GRAZING), np.full(side, r)) for r in axis])
    if side > 3:
        rows = CubicSpline(axis, rows)(np.linspace(0, 1, ROWS * (side - 1) + 1))
    return F.leaf(rows.astype(np.float32), VEC2, "brdf")


def brdf_table(side: int = TABLE_SIDE) -> Variable:
    """(scale, bias), a leaf VEC2 @ (side, 4 side - 3): n . v from 0 to 1 along columns, roughness
    along rows.

    The first and last texels lie at 0 and 1 exactly. Made once per process. No gradient. Raises
    GraphError for a side below 1.
    """
    return _table(checked_shape("brdf_table", (side, side))[0][0])


def read_brdf(table: Variable, n_dot_v: Variable, roughness: Variable | float) -> Variable:
    """VEC2 (scale, bias) of a table. n_dot_v, roughness: FLOAT in [0, 1] @ any size, clamped.

    Gradient to all.
    """
    w, h = table.size
    # Just before the last texel: from its centre on, a clamped texture has no slope.
    u = (inclusive_clamp(n_dot_v, 0.0, 1.0) * ((w - 1) * BEFORE_LAST) + 0.5) * (1 / w)
    v = (inclusive_clamp(roughness, 0.0, 1.0) * ((h - 1) * BEFORE_LAST) + 0.5) * (1 / h)
    return F.texture(table, F.vec2(u, v), wrap="clamp")
