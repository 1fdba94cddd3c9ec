"""What a device makes of the points in ``domain_edges``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dressi.ad import Variable, build_backward
from dressi.engine import DressiAD
from dressi.testing.domain_edges import Edge, forward_obstacles, gradient_obstacles, leaf_of

RTOL = 2e-3
"""Of values in float32: between the two tolerances of R1."""


def off(ad: DressiAD, edges: Sequence[Edge]) -> tuple[list[str], list[str]]:
    """Return what is not as promised: of the values, of the gradients; a line for each point."""
    asked: list[Variable] = []
    places: list[list[int | None]] = []
    for edge in edges:
        xs = [leaf_of(v) for v in edge.inputs]
        for x, value in zip(xs, edge.inputs, strict=True):
            ad.send_img(x, np.asarray(value, np.float32).reshape(1, 1, -1))
        y = edge.build(*xs)
        grads = build_backward(y, xs)
        found = [y, *(grads.get(x) for x in xs)]
        places.append([])
        for v in found:
            places[-1].append(None if v is None else len(asked))
            asked += [] if v is None else [v]
    got = ad.recv_imgs(asked)
    values, gradients = [], []
    for edge, (first, *rest) in zip(edges, places, strict=True):
        assert first is not None
        wrong = forward_obstacles(edge, got[first], RTOL)
        values += [f"{edge.name}: {'; '.join(wrong)}"] if wrong else []
        wrong = gradient_obstacles(edge, [None if i is None else got[i] for i in rest], RTOL)
        gradients += [f"{edge.name}: {'; '.join(wrong)}"] if wrong else []
    return values, gradients


def not_zero(ad: DressiAD, edges: Sequence[Edge]) -> list[str]:
    """Return points with a gradient that is not exactly 0 for a zero upstream gradient: also where
    the derivative itself is beyond float32, as that of exp(100)."""
    asked, names = [], []
    for edge in edges:
        xs = [leaf_of(v) for v in edge.inputs]
        for x, value in zip(xs, edge.inputs, strict=True):
            ad.send_img(x, np.asarray(value, np.float32).reshape(1, 1, -1))
        y = edge.build(*xs)
        w = Variable(y.vtype)
        ad.send_img(w, np.zeros((1, 1, *y.vtype.tail), np.float32))
        grads = build_backward(y * w, xs)
        asked += list(grads.values())
        names += [edge.name] * len(grads)
    got = dict.fromkeys(names, True)
    for name, a in zip(names, ad.recv_imgs(asked), strict=True):
        got[name] = got[name] and bool((a == 0).all())
    return [name for name, zero in got.items() if not zero]
