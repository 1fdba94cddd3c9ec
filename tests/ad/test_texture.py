"""F.texture at its edges: wraps per axis, border values, sRGB, odd sizes; against a sampler written
texel by texel with Python numbers."""

from __future__ import annotations

import numpy as np
import pytest
from texels import sampled

from dressi.ad import F, Variable, build_backward, evaluate
from dressi.ad.vtype import FLOAT, INT, VEC2, VEC3, VEC4
from dressi.errors import GraphError

STEP = 1e-6


PAIRS = [
    ("border", "border"),
    ("border", "repeat"),
    ("clamp", "border"),
    ("mirror", "repeat"),
    ("repeat", "clamp"),
]
SIZES = [(1, 1), (3, 1), (1, 4), (5, 3), (8, 4)]
AT = [-1.7, -0.51, -0.01, 0.0, 0.05, 0.3, 0.5, 0.77, 0.999, 1.0, 1.02, 1.5, 2.6]


@pytest.mark.parametrize("wraps", PAIRS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("filter", ["linear", "nearest"])
def test_wraps_per_axis_and_border_values(
    wraps: tuple[str, str], size: tuple[int, int], filter: str
) -> None:
    rng = np.random.default_rng(7)
    w, h = size
    images, edge = rng.normal(size=(2, h, w, 3)), np.array([0.5, -2.0, 3.0])
    tex, uv = Variable(VEC3, size, 2), Variable(VEC2, (len(AT), len(AT)))
    grid = np.array([[(u, v) for u in AT] for v in AT])[None]
    y = F.texture(tex, uv, filter=filter, wrap=wraps, border=edge)
    (got,) = evaluate([y], {tex: images, uv: grid})
    want = np.array(
        [
            [[sampled(im, *p, wraps, edge, filter == "linear") for p in row] for row in grid[0]]
            for im in images
        ]
    )
    assert np.allclose(got, want, atol=1e-12)


def test_half_a_texel_outside_the_last_centre_is_where_the_border_begins() -> None:
    tex = Variable(FLOAT, (2, 1), requires_grad=True)
    uv = Variable(VEC2, (5, 1), requires_grad=True)
    at = np.array([[0.75, 0.5], [0.875, 0.5], [1.0, 0.5], [1.125, 0.5], [1.3, 0.5]])
    feeds = {tex: np.array([1.0, 3.0]).reshape(1, 1, 2, 1), uv: at.reshape(1, 1, 5, 2)}
    y = F.texture(tex, uv, wrap=("border", "clamp"))
    grads = build_backward(y)
    got, g_tex, g_uv = evaluate([y, grads[tex], grads[uv]], feeds)
    # Centres at 0.25 and 0.75: from 3 at 0.75 down to 0 at 1.25, half of it at u = 1.
    assert np.allclose(got.ravel(), [3, 2.25, 1.5, 0.75, 0])
    assert np.allclose(g_tex.ravel(), [0, 1 + 0.75 + 0.5 + 0.25])
    assert np.allclose(g_uv[0, 0, :, 0], [-6, -6, -6, -6, 0])
    assert np.allclose(g_uv[0, 0, :, 1], 0)


@pytest.mark.parametrize("kind", [FLOAT, VEC3])
def test_the_border_value_gets_what_the_texture_does_not(kind: object) -> None:
    """Weights sum to 1 a pixel, so the gradients of texels and border sum to the upstream's."""
    rng = np.random.default_rng(3)
    tex = Variable(VEC3, (4, 3), requires_grad=True)
    uv, w = Variable(VEC2, (9, 8)), Variable(VEC3, (9, 8))
    edge = Variable(kind, requires_grad=True)  # type: ignore[arg-type]
    feeds = {
        tex: rng.normal(size=(1, 3, 4, 3)),
        uv: rng.uniform(-0.5, 1.5, (1, 8, 9, 2)),
        w: rng.normal(size=(1, 8, 9, 3)),
        edge: rng.normal(size=(1, 1, 1, edge.vtype.n)),
    }
    loss = F.texture(tex, uv, wrap="border", border=edge) * w
    grads = build_backward(loss)
    g_tex, g_edge = evaluate([grads[tex], grads[edge]], feeds)
    total = g_edge.sum() + g_tex.sum()
    assert abs(total - feeds[w].sum()) < 1e-9
    for k in range(edge.vtype.n):
        d = np.eye(edge.vtype.n)[k].reshape(1, 1, 1, -1) * STEP
        ends = [evaluate([loss], {**feeds, edge: feeds[edge] + s * d})[0].sum() for s in (1, -1)]
        assert abs((ends[0] - ends[1]) / (2 * STEP) - g_edge.ravel()[k]) < 1e-6


def test_srgb_texels_are_decoded_before_they_are_mixed_and_alpha_is_not() -> None:
    tex = Variable(VEC4, (2, 1), requires_grad=True)
    uv = Variable(VEC2)
    texels = np.array([[0.2, 0.02, 0.9, 0.25], [0.8, 0.5, 0.1, 0.75]])
    feeds = {tex: texels.reshape(1, 1, 2, 4), uv: np.array([0.5, 0.5]).reshape(1, 1, 1, 2)}
    y = F.texture(tex, uv, srgb=True, wrap="clamp")
    got, g = evaluate([y, build_backward(y)[tex]], feeds)

    def decode(s: float) -> float:
        return s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4

    linear = np.array([[decode(s) for s in row[:3]] for row in texels])
    assert np.allclose(got.ravel(), [*linear.mean(0), 0.5])
    slope = [
        [(decode(s + STEP) - decode(s - STEP)) / (2 * STEP) for s in row[:3]] for row in texels
    ]
    assert np.allclose(g[0, 0, :, :3], 0.5 * np.array(slope), rtol=1e-6)
    assert np.allclose(g[0, 0, :, 3], 0.5)


def test_inverse_uv_leaves_out_what_lands_beyond_a_border() -> None:
    rng = np.random.default_rng(11)
    tex, step = Variable(FLOAT, (4, 3), requires_grad=True), Variable(INT)
    uv, w = Variable(VEC2, (7, 6)), Variable(FLOAT, (7, 6))
    feeds = {
        tex: rng.normal(size=(1, 3, 4, 1)),
        uv: rng.uniform(-0.6, 1.6, (1, 6, 7, 2)),
        w: rng.normal(size=(1, 6, 7, 1)),
    }
    modes = [
        F.texture(tex, uv, wrap=("border", "mirror"), backward=mode, step=step)
        for mode in ("exact", "inverse_uv")
    ]
    exact, one = (build_backward(y * w)[tex] for y in modes)
    n = 600
    samples = np.stack([evaluate([one], {**feeds, step: k})[0] for k in range(n)])
    want = evaluate([exact], feeds)[0]
    error = samples.std(axis=0) / np.sqrt(n)
    assert (np.abs(samples.mean(axis=0) - want) <= 5 * error + 1e-9).all()


def test_what_is_no_wrap_or_border_is_named() -> None:
    tex, uv = Variable(VEC3, (4, 4)), Variable(VEC2, (2, 2))
    for wrap in ("around", ("repeat",), ("repeat", "around"), ("repeat", "clamp", "clamp"), 3):
        with pytest.raises(GraphError, match=r"test_texture\.py.*must be one of .*'border'"):
            F.texture(tex, uv, wrap=wrap)  # type: ignore[arg-type]
    for border in ((1.0, 2.0), Variable(VEC2), Variable(VEC3, (4, 4)), Variable(INT), "x"):
        with pytest.raises(GraphError, match=r"test_texture\.py"):
            F.texture(tex, uv, wrap="border", border=border)
