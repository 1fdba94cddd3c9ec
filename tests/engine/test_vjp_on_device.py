"""``DressiAD.vjp`` of random graphs, however they are packed, beside gradients in float64."""

from __future__ import annotations

import numpy as np
import pytest

from dressi import DressiAD, Options
from dressi.ad.evaluate import evaluate
from dressi.ad.graph import Variable
from dressi.ad.vjp import build_vjp
from dressi.testing.random_graphs import random_graph

pytestmark = pytest.mark.gpu
OPTIONS = {
    "default": Options(),
    "compute": Options(lowering="compute"),
    "baseline": Options.baseline(),
    "deterministic": Options(deterministic=True),
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("seed", range(3))
def test_random_graphs_have_the_gradients_of_float64(seed: int, name: str) -> None:
    """To float32: 25 ops of order 1. The forward pass is the one that an evaluation runs."""
    graph = random_graph(seed)
    outputs = [v for v in graph.outputs if v.creator is not None and not v.vtype.is_int]
    wrt = [v for v in graph.feeds if v.requires_grad]
    rng = np.random.default_rng(seed)
    seeds = [Variable(v.vtype, v.size, v.layers) for v in outputs]
    upstream = [
        rng.uniform(-1, 1, (v.layers, v.size[1], v.size[0], *v.vtype.tail)).astype(np.float32)
        for v in outputs
    ]
    made = build_vjp(outputs, seeds, wrt)
    feeds = {**graph.feeds, **dict(zip(seeds, upstream, strict=True))}
    expected = dict(zip(made, evaluate(list(made.values()), feeds), strict=True))
    with DressiAD(options=OPTIONS[name]) as ad:
        for leaf, value in graph.feeds.items():
            ad.send_img(leaf, value)
        vjp = ad.vjp(outputs, wrt)
        values = vjp.forward()
        gradients = vjp.backward(upstream)
        for v, got in zip(outputs, values, strict=True):
            np.testing.assert_array_equal(got, ad.recv_img(v))
    assert sum(g is not None for g in gradients) == len(made)
    for x, got in zip(wrt, gradients, strict=True):
        if got is not None:
            wanted = expected[x].reshape(got.shape)
            scale = max(1.0, float(np.abs(wanted).max()))
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * scale)
