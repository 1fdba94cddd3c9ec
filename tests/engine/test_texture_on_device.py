"""Texture reads on the device: the hardware's sampler against four fetches, wraps, border, sRGB."""

from __future__ import annotations

import numpy as np
import pytest
from device import run_many, worst

from dressi import DressiAD, F, Variable, evaluate
from dressi.ad.autodiff import build_backward
from dressi.ad.vtype import FLOAT, INT, VEC2, VEC4

pytestmark = pytest.mark.gpu

WRAPS = ["border", "repeat", ("clamp", "border"), ("mirror", "repeat"), ("border", "clamp")]


def test_hardware_sampler_agrees_with_four_fetches_in_every_wrap(ad: DressiAD) -> None:
    """Weights of a hardware sampler may have as few as 8 bits: 1/256 of the largest difference."""
    rng = np.random.default_rng(4)
    tex, uv = Variable(VEC4, (6, 5)), Variable(VEC2, (16, 12))
    feeds = {tex: rng.uniform(-1, 1, (5, 6, 4)), uv: rng.uniform(-0.7, 1.7, (12, 16, 2))}
    pairs = [
        [F.texture(tex, uv, wrap=wrap, hardware=h, border=0.25) for h in (False, True)]
        for wrap in WRAPS
    ]
    got = run_many(ad, [y for pair in pairs for y in pair], feeds)
    for wrap, a, b in zip(WRAPS, got[::2], got[1::2], strict=True):
        assert np.abs(a - b).max() < 2 * 2 * 2 / 256, wrap


@pytest.mark.parametrize("size", [(1, 1), (3, 7), (10, 10)])
def test_whole_texels_outside_wrap_to_the_right_ones(ad: DressiAD, size: tuple[int, int]) -> None:
    """At every multiple of a texel, where a quotient that is off by a bit would show."""
    w, h = size
    tex = Variable(FLOAT, size)
    x, y = np.meshgrid(np.arange(-40, 41), np.arange(-25, 26))
    at = np.stack([(x + 0.5) / w, (y + 0.5) / h], -1)
    uv = Variable(VEC2, (81, 51))
    texels = np.arange(w * h, dtype=np.float64).reshape(h, w, 1) + 1
    wraps = ("repeat", "mirror", "clamp", "border")
    reads = [F.texture(tex, uv, wrap=wrap, filter="nearest") for wrap in wraps]
    got = run_many(ad, reads, {tex: texels, uv: at})
    pads = {"repeat": "wrap", "mirror": "symmetric", "clamp": "edge", "border": "constant"}
    for wrap, image in zip(wraps, got, strict=True):
        around = np.pad(texels[..., 0], ((25, 26), (40, 41)), mode=pads[wrap])  # type: ignore
        assert (image[0, ..., 0] == around[y + 25, x + 40]).all(), wrap


def test_srgb_and_border_with_gradients(ad: DressiAD) -> None:
    rng = np.random.default_rng(5)
    tex = Variable(VEC4, (5, 3), 2, requires_grad=True)
    uv = Variable(VEC2, (9, 7), requires_grad=True)
    edge = Variable(FLOAT, requires_grad=True)
    feeds = {
        tex: rng.uniform(0, 1, (2, 3, 5, 4)),
        uv: rng.uniform(-0.7, 1.7, (1, 7, 9, 2)),
        edge: np.full((1, 1, 1, 1), 0.7),
    }
    y = F.texture(tex, uv, wrap=("border", "mirror"), border=edge, srgb=True)
    grads = build_backward(y * y)
    outputs = [y, *(grads[x] for x in (tex, uv, edge))]
    for a, b in zip(run_many(ad, outputs, feeds), evaluate(outputs, feeds), strict=True):
        assert worst(a, b) < 5e-3


def test_inverse_uv_lands_where_the_reference_lands(ad: DressiAD) -> None:
    """The same jitter and the same draws, at steps beyond 2^24 too. A landing within a rounding
    error of a texel's edge may differ: one in a hundred is allowed to, none is seen."""
    rng = np.random.default_rng(9)
    tex, step = Variable(FLOAT, (11, 7), 2, requires_grad=True), Variable(INT)
    uv, w = Variable(VEC2, (20, 15)), Variable(FLOAT, (20, 15), 2)
    y = F.texture(tex, uv, wrap=("border", "mirror"), backward="inverse_uv", step=step)
    g = build_backward(y * w)[tex]
    feeds = {
        tex: np.zeros((2, 7, 11, 1)),
        uv: rng.uniform(-0.3, 1.3, (1, 15, 20, 2)),
        w: rng.normal(size=(2, 15, 20, 1)),
    }
    for k in (0, 1, 12345, 2**30 + 7):
        feeds[step] = np.full((1, 1, 1, 1), k)
        (got,), (want,) = run_many(ad, [g], feeds), evaluate([g], feeds)
        assert (np.abs(got - want) < 1e-5 * (1 + np.abs(want))).mean() > 0.99


@pytest.mark.parametrize("size", [(8, 4), (7, 5)])
def test_coordinates_beyond_all_integers_read_and_add_inside_of_the_texture(
    ad: DressiAD, size: tuple[int, int]
) -> None:
    """A fit that diverges must not write into what lies behind the texture's gradient."""
    far = [3e7, -3e7, 1.7e8, -1.7e8, 1e9, -1e9, 3e9, -3e9, 1e12, -1e12, 1e20, -1e20]
    at = np.full((2, len(far), 2), 0.3)
    at[0, :, 0] = at[1, :, 1] = far
    tex = Variable(FLOAT, size, requires_grad=True)
    uv, lod = Variable(VEC2, (len(far), 2)), Variable(FLOAT)
    rng = np.random.default_rng(3)
    feeds = {tex: rng.uniform(0.5, 1, size[::-1]), uv: at, lod: 0.5}
    ways = ("repeat", "mirror", "clamp")
    reads = [F.texture(tex, uv, wrap=w, filter=f) for w in ways for f in ("linear", "nearest")]
    reads += [F.texture_mip(F.image.mipmap(tex), uv, lod, wrap=w) for w in ways]
    got = run_many(ad, [*reads, *(build_backward(y)[tex] for y in reads)], feeds)
    for k, (y, g) in enumerate(zip(got[: len(reads)], got[len(reads) :], strict=True)):
        assert y.min() > 0.4999 and y.max() < 1.0001, k
        assert abs(g.sum() - 2 * len(far)) < 1e-3, k
