"""The first two dimensions of the Sobol sequence: the row that ``F.sobol`` applies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dressi.ad.functions._common import like
from dressi.ad.graph import Function
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import Case, Op, apply
from dressi.ad.vtype import INT, VEC2

_like_int = like("INT", lambda t: t is INT)


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


SOBOL: Op = Op(
    "sobol",
    lambda xs, a: (VEC2, *_like_int(xs, a)[1:]),
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
