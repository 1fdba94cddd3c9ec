"""Mip chains against a pyramid and a sampler written texel by texel: areas, layout, borders, levels
of detail that are clamped, gradients to every level."""

from __future__ import annotations

import math

import numpy as np
import pytest
from texels import sampled

from dressi.ad import F, Variable, build_backward, evaluate, simplify
from dressi.ad.vtype import FLOAT, INT, MAT2, VEC2, VEC3, VEC4
from dressi.errors import GraphError

STEP = 1e-6


def shrunk(image: np.ndarray) -> np.ndarray:
    """The next level of (H, W, C): each texel cut into n pieces an axis of the new length m, so
    that a new texel is the mean of whole pieces."""
    h, w, _ = image.shape
    m, k = max(1, w // 2), max(1, h // 2)
    fine = image.repeat(k, axis=0).repeat(m, axis=1)  # k h rows of pieces, h pieces a new texel
    return fine.reshape(k, h, m, w, -1).mean(axis=(1, 3))


def pyramid(image: np.ndarray) -> list[np.ndarray]:
    levels = [image]
    while levels[-1].shape[:2] != (1, 1):
        levels.append(shrunk(levels[-1]))
    return levels


SIZES = [(1, 1), (8, 8), (7, 5), (13, 1), (1, 6), (12, 3), (9, 17)]


@pytest.mark.parametrize("size", SIZES)
def test_levels_are_means_over_areas_and_lie_where_the_docs_say(size: tuple[int, int]) -> None:
    w, h = size
    tex = Variable(VEC3, size, 2)
    data = np.random.default_rng(1).normal(size=(2, h, w, 3))
    mip = F.image.mipmap(tex)
    atlas, *levels = evaluate(
        simplify([mip.atlas, *(mip.level(i) for i in range(mip.n_levels))]), {tex: data}
    )
    for layer in range(2):
        want = pyramid(data[layer])
        assert len(want) == mip.n_levels == math.floor(math.log2(max(w, h))) + 1
        assert np.allclose(atlas[layer, :h, :w], want[0])
        top, used = 0, w * h
        for i, image in enumerate(want):
            assert mip.sizes[i] == image.shape[1::-1]
            assert np.allclose(levels[i][layer], image, atol=1e-13)
            if i:
                y, x = image.shape[:2]
                assert np.allclose(atlas[layer, top : top + y, w : w + x], image, atol=1e-13)
                top, used = top + y, used + x * y
        assert np.count_nonzero(atlas[layer].any(axis=-1)) == used  # 0 elsewhere
        assert np.allclose(levels[-1][layer, 0, 0], data[layer].mean((0, 1)))  # the mean is kept


def reference(
    levels: list[np.ndarray],
    uv: np.ndarray,
    lod: float,
    filter: str,
    wraps: tuple[str, str],
    border: np.ndarray,
) -> np.ndarray:
    """One sample of a chain."""
    texels = not filter.startswith("nearest")
    lod = min(max(lod, 0.0), len(levels) - 1.0)
    if filter.endswith("mipmap-nearest"):
        return sampled(levels[math.floor(lod + 0.5)], *uv, wraps, border, texels)
    low = math.floor(lod)
    a = sampled(levels[low], *uv, wraps, border, texels)
    if low == lod:
        return a
    b = sampled(levels[low + 1], *uv, wraps, border, texels)
    return (1 - (lod - low)) * a + (lod - low) * b


MODES = ["trilinear", "linear-mipmap-nearest", "nearest-mipmap-linear", "nearest-mipmap-nearest"]
LODS = [-3.0, 0.0, 0.3, 1.0, 1.49, 2.0, 2.75, 3.0, 9.0]
US = [-0.31, 0.0, 0.13, 0.5, 0.97, 1.0, 1.6]


@pytest.mark.parametrize("filter", MODES)
@pytest.mark.parametrize(
    ("size", "wraps"),
    [
        ((1, 1), ("repeat", "border")),
        ((8, 4), ("repeat", "mirror")),
        ((7, 5), ("border", "border")),
        ((5, 11), ("clamp", "border")),
    ],
)
def test_sampling_below_inside_and_above_the_chain(
    filter: str, size: tuple[int, int], wraps: tuple[str, str]
) -> None:
    rng = np.random.default_rng(2)
    w, h = size
    tex, uv, lod = Variable(VEC3, size, 2), Variable(VEC2, (7, 7)), Variable(FLOAT, (1, 1), 1)
    data, edge = rng.normal(size=(2, h, w, 3)), np.array([2.0, 0.0, -1.0])
    grid = np.array([[(u, v) for u in US] for v in US])
    y = F.texture_mip(F.image.mipmap(tex), uv, lod, filter, wraps, border=edge, bias=0.25)
    chains = [pyramid(image) for image in data]
    for at in LODS:
        feeds = {tex: data, uv: grid[None], lod: np.full((1, 1, 1, 1), at - 0.25)}
        (got,) = evaluate([y], feeds)
        want = [
            [[reference(c, p, at, filter, wraps, edge) for p in row] for row in grid]
            for c in chains
        ]
        assert np.allclose(got, want, atol=1e-12), at


def test_gradients_reach_every_level_uv_and_lod() -> None:
    rng = np.random.default_rng(6)
    sizes = [(6, 5), (3, 2), (1, 1)]
    levels = [Variable(VEC2, s, requires_grad=True, name=f"level {i}") for i, s in enumerate(sizes)]
    uv, lod = Variable(VEC2, (5, 4), requires_grad=True), Variable(FLOAT, (5, 4))
    lod.requires_grad = True
    w = Variable(VEC2, (5, 4))
    feeds = {x: rng.normal(size=(1, x.size[1], x.size[0], 2)) for x in levels}
    feeds[uv] = rng.uniform(-0.5, 1.5, (1, 4, 5, 2))
    feeds[lod] = rng.uniform(-0.5, 2.5, (1, 4, 5, 1))
    feeds[w] = rng.normal(size=(1, 4, 5, 2))
    chain = F.image.mip_levels(levels)
    loss = F.texture_mip(chain, uv, lod, wrap=("border", "mirror")) * w
    grads = build_backward(loss)
    for x in (*levels, uv, lod):
        (g,) = evaluate(simplify([grads[x]]), feeds)
        assert np.abs(g).max() > 0.01
        for k in range(4):
            d = rng.normal(size=g.shape)
            ends = [evaluate([loss], {**feeds, x: feeds[x] + s * STEP * d})[0] for s in (1, -1)]
            numeric = (ends[0] - ends[1]).sum() / (2 * STEP)
            assert abs(numeric - (g * d).sum()) < 1e-6 * max(1.0, np.abs(g).sum()), (x.label(), k)


def test_lod_has_no_gradient_where_it_is_clamped_and_the_difference_elsewhere() -> None:
    levels = [Variable(FLOAT, (2, 2)), Variable(FLOAT, (1, 1))]
    lod = Variable(FLOAT, (5, 1), requires_grad=True)
    uv = Variable(VEC2, (5, 1))
    feeds = {
        levels[0]: np.full((1, 2, 2, 1), 3.0),
        levels[1]: np.full((1, 1, 1, 1), 5.0),
        lod: np.array([-1.0, 0.0, 0.4, 1.0, 2.0]).reshape(1, 1, 5, 1),
        uv: np.full((1, 1, 5, 2), 0.5),
    }
    for filter, slope in (("trilinear", 2.0), ("linear-mipmap-nearest", 0.0)):
        y = F.texture_mip(F.image.mip_levels(levels), uv, lod, filter)
        (g,) = evaluate([build_backward(y)[lod]], feeds)
        assert g.ravel().tolist() == [0, 0, slope, 0, 0]


@pytest.mark.parametrize("layers", [(3, 1, 1), (1, 3, 1), (1, 1, 3), (3, 3, 1), (3, 3, 3)])
def test_layers_of_chain_uv_and_lod_go_together(layers: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(3)
    shapes = [(VEC3, (6, 4)), (VEC2, (5, 3)), (FLOAT, (5, 3))]
    stacks = [
        Variable(t, s, n, requires_grad=True) for (t, s), n in zip(shapes, layers, strict=True)
    ]
    data = [rng.uniform(0, 1.5, (n, s[1], s[0], t.n)) for (t, s), n in zip(shapes, layers)]  # noqa: B905
    ones = [Variable(t, s, requires_grad=True) for t, s in shapes]
    many, one = (F.texture_mip(F.image.mipmap(t), uv, lod) for t, uv, lod in (stacks, ones))
    grads, single = build_backward(many * many), build_backward(one * one)
    got = evaluate([many, *(grads[x] for x in stacks)], dict(zip(stacks, data, strict=True)))
    want: list[list[np.ndarray]] = []
    for k in range(3):
        feeds = {x: d[[k % len(d)]] for x, d in zip(ones, data, strict=True)}
        want.append(evaluate([one, *(single[x] for x in ones)], feeds))
    for i, n in enumerate((3, *layers)):
        parts = [w[i][0] for w in want]
        assert np.allclose(got[i], parts if n == 3 else [np.sum(parts, axis=0)], atol=1e-12)


def test_srgb_chains_are_decoded_before_they_are_averaged() -> None:
    tex = Variable(VEC4, (2, 1))
    (top,) = evaluate(
        [F.image.mipmap(tex, srgb=True).level(1)],
        {tex: np.array([[0.0, 0.5, 1.0, 0.2], [1.0, 0.5, 1.0, 0.4]]).reshape(1, 1, 2, 4)},
    )
    assert np.allclose(top.ravel(), [0.5, ((0.5 + 0.055) / 1.055) ** 2.4, 1.0, 0.3])


def test_what_is_no_chain_is_named() -> None:
    tex, uv = Variable(VEC3, (8, 4)), Variable(VEC2, (2, 2))
    mip = F.image.mipmap(tex, 3)
    assert repr(mip) == "MipMap(VEC3@8x4, 3 levels)"
    bad = {
        "levels must be 1 to 4 for 8x4, got 5": lambda: F.image.mipmap(tex, 5),
        "got 0": lambda: F.image.mipmap(tex, 0),
        "levels must be an int": lambda: F.image.mipmap(tex, 1.5),  # type: ignore[arg-type]
        "level 0 must be FLOAT or VECn": lambda: F.image.mip_levels([Variable(MAT2)]),
        "needs FLOAT or VECn, got MAT2": lambda: F.image.mipmap(Variable(MAT2, (4, 4))),
        "level 0 must be": lambda: F.image.mipmap(Variable(INT)),
        "level 1 must be 4x2": lambda: F.image.mip_levels([tex, Variable(VEC3, (4, 4))]),
        "level 1 must be FLOAT or VECn, and all of one type": lambda: F.image.mip_levels(
            [tex, Variable(VEC2, (4, 2))]
        ),
        "level 1 must be of 1 or 3 layers": lambda: F.image.mip_levels(
            [Variable(VEC3, (8, 4), 3), Variable(VEC3, (4, 2), 2)]
        ),
        "level 1 must be left out": lambda: F.image.mip_levels([Variable(FLOAT)] * 2),
        "needs a sequence of Variables": lambda: F.image.mip_levels([]),
        "needs a Variable": lambda: F.image.mip_levels(["x"]),  # type: ignore[list-item]
        "needs a MipMap": lambda: F.texture_mip(tex, uv, 0.0),  # type: ignore[arg-type]
        "'linear'": lambda: F.texture_mip(mip, uv, 0.0, "linear"),
        "wrap must be": lambda: F.texture_mip(mip, uv, 0.0, wrap="around"),
        "lod FLOAT": lambda: F.texture_mip(mip, uv, Variable(VEC2, (2, 2))),
        "do not broadcast": lambda: F.texture_mip(mip, uv, Variable(FLOAT, (3, 2))),
        "0 to 2, got 3": lambda: mip.level(3),
    }
    for text, call in bad.items():
        with pytest.raises(GraphError, match=r"test_mipmap\.py") as info:
            call()
        assert text in str(info.value), str(info.value)
