"""``texture`` and ``texture_construct_mip`` against float64 and finite differences."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="dressi.torch needs torch")

from pixel_reference import differences  # noqa: E402
from texture_reference import (  # noqa: E402
    chain,
    footprint_lod,
    on_face,
    read,
    read_cube,
    read_levels,
)

import dressi.torch.nvdiffrast as dr  # noqa: E402
from dressi import GraphError  # noqa: E402

pytestmark = pytest.mark.gpu

FORWARD = 1e-4
GRADIENT = 2e-3
H, W = 5, 6
MIPS = ("linear-mipmap-nearest", "linear-mipmap-linear")


def tensor(a: np.ndarray, grad: bool = False) -> torch.Tensor:
    return torch.tensor(a, dtype=torch.float32, requires_grad=grad)


def places(rng: np.random.Generator, tex: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """uv around the texture, derivatives of a footprint from 1/2 to 6 texels, and a bias."""
    uv = rng.uniform(-0.7, 1.7, (H, W, 2))
    size = 2 ** rng.uniform(-1, 2.6, (H, W, 1)) / np.array([tex.shape[1], tex.shape[0]])
    turn = rng.uniform(0, 6.28, (H, W, 2))
    along_x = np.stack([np.cos(turn[..., 0]), np.sin(turn[..., 0])], -1) * size
    along_y = np.stack([np.cos(turn[..., 1]), np.sin(turn[..., 1])], -1) * size * 0.6
    da = np.stack([along_x, along_y], -1).reshape(H, W, 4)
    return uv, da, rng.uniform(-0.6, 0.6, (H, W))


@pytest.mark.parametrize("boundary", ["wrap", "clamp", "zero"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("n", [1, 3, 6])
def test_reads_agree_with_float64(boundary, mode, n):
    rng = np.random.default_rng(n)
    tex, uv = rng.uniform(-1, 1, (2, 7, 6, n)), rng.uniform(-1.5, 2.5, (2, H, W, 2))
    got = dr.texture(tensor(tex), tensor(uv), filter_mode=mode, boundary_mode=boundary)
    for k in range(2):
        wanted = read(tex[k], uv[k], boundary, mode == "nearest")
        np.testing.assert_allclose(got[k].numpy(), wanted, atol=FORWARD)
    one = dr.texture(tensor(tex[:1]), tensor(uv), filter_mode=mode, boundary_mode=boundary)
    np.testing.assert_allclose(one[1].numpy(), read(tex[0], uv[1], boundary, mode == "nearest"),
                               atol=FORWARD)  # fmt: skip


def mipped(tex, uv, da, bias, mode, boundary="wrap", n=3):
    lod = footprint_lod(da, (tex.shape[1], tex.shape[0])) + bias
    nearest = mode.endswith("nearest")
    return read_levels(chain(tex, n), lod, lambda t: read(t, uv, boundary), nearest)


@pytest.mark.parametrize("mode", MIPS)
@pytest.mark.parametrize("boundary", ["wrap", "zero"])
def test_levels_agree_with_float64_whoever_makes_them(mode, boundary):
    rng = np.random.default_rng(1)
    tex = rng.uniform(-1, 1, (8, 12, 5))  # 8 x 12, 4 x 6, 2 x 3
    uv, da, bias = places(rng, tex)
    wanted = mipped(tex, uv, da, bias, mode, boundary)
    t = tensor(tex[None])
    given = [tensor(level[None]) for level in chain(tex, 3)[1:]]
    for mip in (None, dr.texture_construct_mip(t, max_mip_level=2), given):
        got = dr.texture(
            t, tensor(uv[None]), tensor(da[None]), tensor(bias[None]), mip, mode, boundary, 2
        )
        np.testing.assert_allclose(got[0].numpy(), wanted, atol=FORWARD)


def test_the_mode_follows_from_what_is_given():
    rng = np.random.default_rng(2)
    tex = rng.uniform(-1, 1, (8, 8, 3))
    uv, da, bias = places(rng, tex)
    t, u, d, b = (tensor(a[None]) for a in (tex, uv, da, bias))
    plain = dr.texture(t, u)
    np.testing.assert_array_equal(plain, dr.texture(t, u, filter_mode="linear"))
    np.testing.assert_array_equal(
        dr.texture(t, u, d), dr.texture(t, u, d, filter_mode="linear-mipmap-linear")
    )
    np.testing.assert_allclose(dr.texture(t, u, d, max_mip_level=0), plain, atol=1e-6)
    by_bias = dr.texture(t, u, mip_level_bias=b + 1)
    wanted = read_levels(chain(tex, 4), bias + 1, lambda v: read(v, uv, "wrap"), False)
    np.testing.assert_allclose(by_bias[0].numpy(), wanted, atol=FORWARD)


def test_gradient_reaches_texture_places_derivatives_and_bias():
    rng = np.random.default_rng(3)
    tex = rng.uniform(-1, 1, (4, 8, 2))
    uv, da, bias = places(rng, tex)
    c = rng.uniform(-1, 1, (H, W, 2))
    values = [tex, uv, da, bias]
    given = [tensor(a[None], grad=True) for a in values]
    (dr.texture(*given[:4], filter_mode=MIPS[1], max_mip_level=2)[0] * tensor(c)).sum().backward()
    for k, t in enumerate(given):

        def loss(x, k=k):
            now = [x if i == k else v for i, v in enumerate(values)]
            return (mipped(*now, MIPS[1]) * c).sum()

        wanted = differences(loss, values[k], 1e-6)
        got = t.grad[0].numpy()
        np.testing.assert_allclose(got, wanted, atol=GRADIENT * np.abs(wanted).max())


@pytest.mark.parametrize("make", ["none", "opaque", "list"])
def test_gradient_of_levels_goes_to_the_texture_or_to_those_that_were_given(make):
    rng = np.random.default_rng(4)
    tex = rng.uniform(-1, 1, (8, 4, 5))
    uv, da, bias = places(rng, tex)
    c = rng.uniform(-1, 1, (H, W, 5))
    t = tensor(tex[None], grad=True)
    mip = None
    if make == "opaque":
        mip = dr.texture_construct_mip(t, 2)
    if make == "list":
        mip = [tensor(level[None], grad=True) for level in chain(tex, 3)[1:]]
    places_ = [tensor(a[None]) for a in (uv, da, bias)]
    for _ in range(2):  # an opaque stack serves any number of steps
        t.grad = None
        out = dr.texture(t, *places_, mip, max_mip_level=2)
        (out[0] * tensor(c)).sum().backward()
    lod = footprint_lod(da, (4, 8)) + bias
    if make == "list":
        levels = chain(tex, 3)
        for k, got in enumerate([t, *mip]):

            def loss(x, k=k):
                now = [x if i == k else v for i, v in enumerate(levels)]
                return (read_levels(now, lod, lambda v: read(v, uv, "wrap"), False) * c).sum()

            times = 1 if k == 0 else 2  # their gradients were not cleared in between
            wanted = differences(loss, levels[k]) * times
            np.testing.assert_allclose(got.grad[0].numpy(), wanted, atol=GRADIENT)
    else:
        wanted = differences(lambda x: (mipped(x, uv, da, bias, MIPS[1]) * c).sum(), tex)
        np.testing.assert_allclose(t.grad[0].numpy(), wanted, atol=GRADIENT * np.abs(wanted).max())


def directions(rng: np.random.Generator, n: int) -> np.ndarray:
    """On all faces, far enough from their borders that taps at the last level stay within."""
    d = rng.uniform(-0.6, 0.6, (4, 6, 3)) * (n - 1) / n
    d[np.arange(4)[:, None], np.arange(6), np.arange(6) // 2] = np.where(np.arange(6) % 2, -1, 1)
    return d * rng.uniform(0.5, 2, (4, 6, 1))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("minibatch", [1, 2])
def test_cube_maps_agree_with_float64(mode, minibatch):
    rng = np.random.default_rng(5)
    tex, d = rng.uniform(-1, 1, (minibatch, 6, 8, 8, 5)), np.stack([directions(rng, 8)] * 2)
    got = dr.texture(tensor(tex), tensor(d), filter_mode=mode, boundary_mode="cube")
    for k in range(2):
        wanted = read_cube(tex[k % minibatch], d[k], mode == "nearest")
        assert np.isfinite(wanted).all()
        np.testing.assert_allclose(got[k].numpy(), wanted, atol=FORWARD)


def cube_lod(d: np.ndarray, da: np.ndarray, n: int) -> np.ndarray:
    """By central differences of the place on the face."""
    step, columns = 1e-6, []
    for k in (0, 1):
        move = da[..., k::2] * step
        ahead, back = on_face(d + move)[1], on_face(d - move)[1]
        columns.append((ahead - back) / (2 * step))
    return footprint_lod(np.stack(columns, -1).reshape(*d.shape[:2], 4), (n, n))


@pytest.mark.parametrize("make", ["none", "opaque"])
def test_levels_of_cube_maps_and_their_gradients_agree_with_float64(make):
    rng = np.random.default_rng(6)
    tex, d = rng.uniform(-1, 1, (6, 8, 8, 2)), directions(rng, 4)
    da = rng.uniform(-0.3, 0.3, (4, 6, 6))
    c = rng.uniform(-1, 1, (4, 6, 2))

    def value(tex_, d_, da_):
        lod = cube_lod(d_, da_, 8)
        return read_levels(chain(tex_, 2), lod, lambda t: read_cube(t, d_), False)

    values = [tex, d, da]
    t, u, v = given = [tensor(a[None], grad=True) for a in values]
    mip = dr.texture_construct_mip(t, 1, cube_mode=True) if make == "opaque" else None
    got = dr.texture(t, u, v, mip=mip, boundary_mode="cube", max_mip_level=1)
    np.testing.assert_allclose(got[0].detach().numpy(), value(*values), atol=FORWARD)
    (got[0] * tensor(c)).sum().backward()
    for k in range(3):

        def loss(x, k=k):
            return (value(*(x if i == k else a for i, a in enumerate(values))) * c).sum()

        wanted = differences(loss, values[k], 1e-5)
        np.testing.assert_allclose(
            given[k].grad[0].numpy(), wanted, atol=GRADIENT * np.abs(wanted).max()
        )


def test_odd_extents_are_an_error_unless_the_chain_stops_before():
    with pytest.raises(GraphError, match=r"tex of 12 x 8 has a level 2 of odd extent, 3 x 2"):
        dr.texture_construct_mip(torch.zeros(1, 12, 8, 3))
    assert len(dr.texture_construct_mip(torch.zeros(1, 12, 8, 3), max_mip_level=2).levels) == 2
    assert len(dr.texture_construct_mip(torch.zeros(1, 2, 8, 3)).levels) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tex": torch.zeros(1, 4, 4)}, r"tex must be \[N, H, W, C\], got \[1, 4, 4\]"),
        ({"tex": torch.zeros(3, 4, 4, 1)}, "tex must have a minibatch of 1 or 2, got 3"),
        ({"uv": torch.zeros(2, 4, 4, 3)}, r"uv must be \[N, H, W, 2\]"),
        ({"uv_da": torch.zeros(2, 4, 4, 2)}, r"uv_da must be \[2, 4, 4, 4\]"),
        ({"mip_level_bias": torch.zeros(2, 4)}, r"mip_level_bias must be \[2, 4, 4\]"),
        ({"filter_mode": "cubic"}, "filter_mode must be one of"),
        ({"filter_mode": MIPS[0]}, "needs uv_da or mip_level_bias"),
        ({"boundary_mode": "mirror"}, "boundary_mode must be one of"),
        ({"mip": 3, "uv_da": torch.zeros(2, 4, 4, 4)}, "mip must be what texture_construct_mip"),
        (
            {"mip": [torch.zeros(1, 3, 2, 1)], "uv_da": torch.zeros(2, 4, 4, 4)},
            r"mip\[0\] must be \[1, 2, 2, 1\]",
        ),
        ({"max_mip_level": -1, "uv_da": torch.zeros(2, 4, 4, 4)}, "max_mip_level must be"),
    ],
)
def test_wrong_arguments_of_texture_are_named(change, message):
    given = {"tex": torch.zeros(1, 4, 4, 1), "uv": torch.zeros(2, 4, 4, 2)} | change
    with pytest.raises(GraphError, match=message):
        dr.texture(**given)
