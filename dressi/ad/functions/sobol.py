"""The first two dimensions of the Sobol sequence: the row that ``F.sobol`` applies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dressi.ad.graph import Function, Variable
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import Case, Op, Shape, apply
from dressi.ad.vtype import INT, VEC2
from dressi.errors import GraphError


def _sobol_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    out = np.empty((*xs[0].shape[:3], 2))
    for where, n in np.ndenumerate(xs[0][..., 0].astype(np.int64)):
        a = b = 0
        v, bits = 1 << 31, int(n)
        for k in range(32):
            if bits >> k & 1:
                a ^= 1 << (31 - k)
                b ^= v
            v ^= v >> 1
        out[where] = a / 2**32, b / 2**32
    return out


def _sobol_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    if xs[0].vtype is not INT:
        raise GraphError(f"needs INT, got {xs[0].vtype.name}")
    return VEC2, xs[0].size, xs[0].layers


SOBOL: Op = Op(
    "sobol",
    _sobol_infer,
    reference=_sobol_ref,
    cases=(Case(lambda a: apply(SOBOL, (a,)), ((INT, 0, 500),), gradient=False),),
)
register(
    SOBOL,
    Kernel(
        "uint {y}_n = uint({x0}), {y}_v = 0x80000000u, {y}_r = 0u;\n"
        "  for (uint i = {y}_n; i != 0u; i >>= 1) { if ((i & 1u) != 0u) {y}_r ^= {y}_v; "
        "{y}_v ^= {y}_v >> 1; }\n"
        "  {y} = vec2(float(bitfieldReverse({y}_n) >> 8), float({y}_r >> 8)) / 16777216.0;"
    ),
)
