"""Alpha masks, blending order over peels, and tone curves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dressi import DressiAD, F, GraphError, Variable, evaluate, gradcheck
from dressi.ad.vtype import FLOAT, IVEC3, MAT4, VEC3
from dressi.render.raster import HardSoft, build_hardsoftras
from dressi.render.shading import (
    aces,
    alpha_mask,
    blend_peels,
    composite,
    exposure,
    gamma,
    over,
    peel_alphas,
    reinhard,
    tone_map,
)
from dressi.testing.scenes import camera, quad

# -- alpha -----------------------------------------------------------------------------------------


def test_mask_is_1_from_the_cutoff_on() -> None:
    x = Variable(FLOAT, (5, 1), name="alpha")
    values = np.array([0.0, 0.49, 0.5, 0.51, 1.0])
    hard = evaluate([alpha_mask(x)], {x: values})[0].ravel()
    assert (hard == (0, 0, 1, 1, 1)).all()
    soft = evaluate([alpha_mask(x, 0.5, 0.1)], {x: values})[0].ravel()
    assert np.allclose(soft, 1 / (1 + np.exp(-(values - 0.5) / 0.1)), atol=1e-6)


@pytest.mark.gpu
def test_a_soft_mask_has_gradients_and_anneals_to_the_hard_one(ad: DressiAD) -> None:
    x = Variable(FLOAT, (4, 3), requires_grad=True, name="alpha")
    cutoff, width = (Variable(FLOAT, requires_grad=True, name=n) for n in ("cutoff", "width"))
    feeds = {
        x: np.random.default_rng(0).uniform(0.2, 0.8, (3, 4)),
        cutoff: np.float64(0.45),
        width: np.float64(0.1),
    }
    out = alpha_mask(x, cutoff, width)
    check = gradcheck([out], None, feeds, ad)
    assert check.ok, check.text()
    ad.send_img(width, 0.0)
    ad.set_loss_var(out)
    assert (ad.recv_img(out)[..., 0] == (feeds[x] >= 0.45)).all()
    assert (ad.recv_grad(x) == 0).all() and np.isfinite(ad.recv_grad(width)).all()


def test_over_is_front_to_back_and_premultiplied() -> None:
    red, green, blue = ((1.0, 0, 0), (0, 1.0, 0), (0, 0, 1.0))
    colors = [F.constant(c) for c in (red, green, blue)]
    alphas = [F.constant(a) for a in (0.25, 0.5, 1.0)]
    color, coverage = evaluate(list(over(colors, alphas)), {})
    assert np.allclose(color.ravel(), (0.25, 0.375, 0.375)) and np.allclose(coverage, 1.0)
    color, coverage = evaluate(list(over(colors[:2], alphas[:2])), {})
    assert np.allclose(color.ravel(), (0.25, 0.375, 0)) and np.allclose(coverage, 0.625)
    pic = evaluate([composite(*over(colors[:2], alphas[:2]), 1.0)], {})[0]
    assert np.allclose(pic.ravel(), (0.625, 0.75, 0.375))


def test_gradients_of_over(vulkan_device_available: bool) -> None:
    rng = np.random.default_rng(1)
    colors = [Variable(VEC3, (3, 2), 2, True, f"c{k}") for k in range(3)]
    alphas = [Variable(FLOAT, (3, 2), 2, True, f"a{k}") for k in range(3)]
    feeds = {v: rng.uniform(0, 1, (2, 2, 3, v.vtype.n)) for v in (*colors, *alphas)}
    check = gradcheck(list(over(colors, alphas)), None, feeds)
    assert check.ok, check.text()


DEPTHS = (0.0, -0.5, -1.0)
COLORS = np.array([(1.0, 0.2, 0.2), (0.2, 1.0, 0.2), (0.2, 0.2, 1.0)])


def stacked(order: tuple[int, ...], K: int, r: float = 0.0) -> tuple[HardSoft, Variable, dict]:
    """Three squares behind each other; the table lists them in the given order."""
    v, f = quad(1.0)
    vertices = np.concatenate([v * (1, 1, 0) + (0, 0, DEPTHS[k]) for k in order])
    faces = np.concatenate([f + 4 * i for i in range(3)])
    pos = Variable(VEC3, (12, 1), requires_grad=True, name="pos")
    index, matrix = Variable(IVEC3, (6, 1)), Variable(MAT4)
    hs = build_hardsoftras(pos, index, matrix, (16, 16), r, K)
    color = Variable(VEC3, (6, 1), requires_grad=True, name="face colors")
    table = np.repeat(COLORS[list(order)], 2, axis=0)
    return hs, color, {pos: vertices, index: faces, matrix: camera((16, 16)), color: table}


@pytest.mark.gpu
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize("K", [1, 2, 3])
def test_peels_blend_by_depth_whatever_the_order_of_faces(
    ad: DressiAD, order: tuple[int, ...], K: int
) -> None:
    hs, color, feeds = stacked(order, K)
    colors = [F.lookup(color, p.ids) for p in hs.peels]
    picture, coverage = blend_peels(hs, colors, [0.5] * K, 0.1)
    for v, a in feeds.items():
        ad.send_img(v, a)
    ad.set_loss_var(picture)
    want, through = np.zeros(3), 1.0
    for k in range(K):
        want, through = want + through * 0.5 * COLORS[k], through * 0.5
    # (6, 9) lies in all three squares and off their diagonals
    assert np.allclose(ad.recv_img(picture)[9, 6], want + through * 0.1, atol=1e-5)
    assert np.allclose(ad.recv_img(coverage)[9, 6], 1 - through, atol=1e-6)
    assert np.allclose(ad.recv_img(picture)[0, 0], 0.1)


@pytest.mark.gpu
def test_opaque_peels_cover_the_silhouette(ad: DressiAD) -> None:
    hs, _, feeds = stacked((0, 1, 2), 2, 0.1)
    alphas = peel_alphas(hs, [1.0, 1.0])
    _, coverage = over(alphas, alphas)
    for v, a in feeds.items():
        ad.send_img(v, a)
    ad.set_loss_var(coverage)
    assert np.allclose(ad.recv_img(coverage), ad.recv_img(hs.silhouette), atol=1e-5)
    pos = next(v for v in feeds if v.name == "pos")
    assert np.abs(ad.recv_grad(pos)).max() > 1e-2


@pytest.mark.gpu
def test_what_opaque_peels_hide_shows_by_what_they_leave_uncovered_at_most(ad: DressiAD) -> None:
    """Colours and background differ by 1 at most, so a pixel differs by the share of the rest."""
    hs, color, feeds = stacked((0, 1, 2), 2, 0.2)
    picture, _ = blend_peels(hs, [F.lookup(color, p.ids) for p in hs.peels], [1.0, 1.0], 0.1)
    for v, a in feeds.items():
        ad.send_img(v, a)
    ad.set_loss_var(picture)
    first, edge, hard = (ad.recv_img(v)[..., 0] for v in (hs.peels[0].distance, hs.edge, hs.hard))
    sigma = 0.2 / 7.0
    rest = 1.0 / (1.0 + np.exp(first[..., None].astype(np.float64) / sigma))
    seen = (edge * hard > 0) & (rest[..., 0] < 0.1)
    assert seen.sum() > 10, "the mask reaches pixels that the first square hides"
    assert (np.abs(ad.recv_img(picture) - COLORS[0]) <= rest + 1e-5)[seen].all()


@pytest.mark.gpu
def test_a_masked_peel_shows_what_is_behind(ad: DressiAD) -> None:
    hs, color, feeds = stacked((0, 1, 2), 2)
    colors = [F.lookup(color, p.ids) for p in hs.peels]
    left = F.step(F.pixel_coord((16, 16)).x, 8.0)
    picture, _ = blend_peels(hs, colors, [alpha_mask(left), 1.0])
    for v, a in feeds.items():
        ad.send_img(v, a)
    ad.set_loss_var(picture)
    got = ad.recv_img(picture)
    assert np.allclose(got[9, 6], COLORS[0], atol=1e-6)
    assert np.allclose(got[9, 9], COLORS[1], atol=1e-6)


@pytest.mark.parametrize(
    "bad",
    [
        lambda hs: over([], []),
        lambda hs: over([Variable(VEC3)], []),
        lambda hs: peel_alphas(hs, [1.0]),
        lambda hs: alpha_mask(Variable(FLOAT), 0.5, -0.1),
        lambda hs: alpha_mask(Variable(FLOAT), Variable(VEC3)),
        lambda hs: alpha_mask(Variable(VEC3)),
        lambda hs: alpha_mask(None),
        lambda hs: gamma(Variable(VEC3), 0.0),
        lambda hs: reinhard(Variable(VEC3), -1.0),
        lambda hs: tone_map(Variable(VEC3), curve="filmic"),
        lambda hs: tone_map(Variable(VEC3), encoding="p3"),
    ],
)
def test_bad_arguments_raise(bad: Any) -> None:
    hs, _, _ = stacked((0, 1, 2), 2)
    with pytest.raises(GraphError):
        bad(hs)


# -- tone ------------------------------------------------------------------------------------------

X = np.array([0.0, 1e-5, 5e-5, 1e-3, 0.18, 0.5, 1.0, 3.0, 20.0])


def curve_of(build: Any) -> np.ndarray:
    x = Variable(FLOAT, (len(X), 1), requires_grad=True, name="x")
    return evaluate([build(x)], {x: X})[0].ravel()


def test_curves_are_their_formulas() -> None:
    near = {"rtol": 1e-5, "atol": 1e-7}
    assert np.allclose(curve_of(reinhard), X / (1 + X), **near)
    white = X * (1 + X / 16) / (1 + X)
    assert np.allclose(curve_of(lambda x: reinhard(x, 4.0)), white, **near)
    fit = (2.51 * X**2 + 0.03 * X) / (2.43 * X**2 + 0.59 * X + 0.14)
    assert np.allclose(curve_of(aces), np.minimum(fit, 1), **near)
    assert np.allclose(curve_of(lambda x: exposure(x, -1.5)), X * 2**-1.5, **near)
    assert np.allclose(curve_of(gamma)[3:], X[3:] ** (1 / 2.2), **near)
    assert np.abs(curve_of(gamma) - X ** (1 / 2.2)).max() < 1 / 255


def test_tone_map_is_the_chain() -> None:
    mapped = 2 * X / (1 + 2 * X)
    srgb = np.where(mapped <= 0.0031308, 12.92 * mapped, 1.055 * mapped ** (1 / 2.4) - 0.055)
    got = curve_of(lambda x: tone_map(x, "reinhard", "srgb", 1.0))
    assert np.allclose(got, srgb, rtol=1e-5, atol=1e-7)
    plain = curve_of(lambda x: tone_map(x, "none", "none"))
    assert np.allclose(plain, X)
    clamped = curve_of(lambda x: tone_map(x, "clamp", "gamma"))
    assert clamped.max() == 1.0 and clamped[0] == 0.0


@pytest.mark.gpu
@pytest.mark.parametrize("curve", ["none", "clamp", "reinhard", "aces"])
@pytest.mark.parametrize("encoding", ["none", "srgb", "gamma"])
def test_gradients_of_tone_mapping_are_finite_at_0(ad: DressiAD, curve: str, encoding: str) -> None:
    x = Variable(VEC3, (4, 1), requires_grad=True, name="x")
    stops = Variable(FLOAT, requires_grad=True, name="stops")
    inner = np.random.default_rng(2).uniform(0.02, 0.7, (4, 3))
    out = tone_map(x, curve, encoding, stops)
    check = gradcheck([out], None, {x: inner, stops: np.float64(0.3)}, ad)
    assert check.ok, check.text()
    ad.send_img(x, np.zeros((4, 3)))
    ad.set_loss_var(out)
    slope = ad.recv_grad(x)
    # a clamp at its border has half of the slope
    start = {"none": 1, "clamp": 0.5, "reinhard": 1, "aces": 0.03 / 0.14}[curve]
    steep = {"none": 1, "srgb": 12.92, "gamma": 1e-4 ** (1 / 2.2 - 1)}[encoding]
    assert np.allclose(slope, start * steep * 2**0.3, rtol=1e-3)
