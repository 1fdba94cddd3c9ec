"""Mip chains on the device: odd sizes, layers, a weak device, sums in fixed point."""

from __future__ import annotations

import numpy as np
import pytest
from device import run_many, worst

from dressi import DressiAD, F, Options, Variable, evaluate
from dressi.ad.autodiff import build_backward
from dressi.ad.vtype import FLOAT, VEC2, VEC3

pytestmark = pytest.mark.gpu


def _made(layers: int) -> tuple[list[Variable], dict[Variable, np.ndarray]]:
    """Samples of a chain of an odd size, and gradients to all that went in."""
    rng = np.random.default_rng(layers)
    tex = Variable(VEC3, (37, 21), layers, requires_grad=True)
    uv = Variable(VEC2, (40, 30), requires_grad=True)
    lod = Variable(FLOAT, (40, 30), requires_grad=True)
    feeds = {
        tex: rng.uniform(0, 1, (layers, 21, 37, 3)),
        uv: rng.uniform(-0.5, 1.5, (1, 30, 40, 2)),
        lod: rng.uniform(-0.9, 5.9, (1, 30, 40, 1)),
    }
    y = F.texture_mip(F.image.mipmap(tex), uv, lod, wrap=("border", "repeat"), border=0.5)
    grads = build_backward(y * y)
    return [y, *(grads[x] for x in (tex, uv, lod))], feeds


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("deterministic", [False, True])
def test_chain_of_odd_size_agrees_with_float64(layers: int, deterministic: bool) -> None:
    outputs, feeds = _made(layers)
    with DressiAD(options=Options(deterministic=deterministic)) as ad:
        got = run_many(ad, outputs, feeds)
        again = run_many(ad, outputs, feeds)
    for a, b in zip(got, evaluate(outputs, feeds), strict=True):
        assert worst(a, b) < 5e-3
    if deterministic:
        assert all((a == b).all() for a, b in zip(got, again, strict=True))


def test_chain_on_a_device_with_the_least_that_vulkan_allows() -> None:
    """16 images a shader, 4 input attachments: a chain is one image."""
    outputs, feeds = _made(1)
    weak = {"input_attachments": 4, "color_outputs": 4, "sampled_images": 16, "samplers": 16}
    with DressiAD(limits={**weak, "float_atomics": False}) as ad:
        got = run_many(ad, outputs, feeds)
    for a, b in zip(got, evaluate(outputs, feeds), strict=True):
        assert worst(a, b) < 5e-3


def test_no_gradient_is_exactly_0_everywhere(ad: DressiAD) -> None:
    tex, uv = Variable(VEC3, (9, 6), requires_grad=True), Variable(VEC2, (8, 8))
    uv.requires_grad = True
    lod, w = Variable(FLOAT, (8, 8), requires_grad=True), Variable(FLOAT, (8, 8))
    rng = np.random.default_rng(8)
    feeds = {
        tex: rng.normal(size=(1, 6, 9, 3)),
        uv: rng.normal(size=(1, 8, 8, 2)),
        lod: rng.uniform(-1, 4, (1, 8, 8, 1)),
        w: np.zeros((1, 8, 8, 1)),
    }
    grads = build_backward(F.texture_mip(F.image.mipmap(tex), uv, lod) * w)
    for g in run_many(ad, list(grads.values()), feeds):
        assert (g == 0).all()
