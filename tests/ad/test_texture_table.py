"""Texture tables: each pixel reads an image of its own as F.texture and F.texture_mip would read
that image alone, with the same gradients."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from dressi import DressiAD
from dressi.ad import F, Variable, build_backward, evaluate
from dressi.ad.graph import topological
from dressi.ad.vtype import FLOAT, INT, IVEC3, VEC2, VEC3, VEC4
from dressi.errors import GraphError

SIZES = ((6, 5), (4, 4), (1, 7), (1, 1))
WRAPS = ("clamp", "repeat", "mirror")
HOW = ("mipmap", "linear", "nearest")
WAYS = list(product(range(len(SIZES)), WRAPS, WRAPS, HOW))
STARTS = np.cumsum([0, *(w * h for w, h in SIZES)])
SHAPE = (2, 9, 12)  # layers, height, width of the picture


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(21)


def texels_of(rng: np.random.Generator) -> Variable:
    n = int(STARTS[-1])
    width, height = F.image.table_size(n)
    flat = np.zeros((width * height, 3), np.float32)
    flat[:n] = rng.uniform(-1, 1, (n, 3))
    leaf = F.leaf(flat.reshape(height, width, 3), VEC3, "texels")
    leaf.requires_grad = True
    return leaf


def rows_of(table: F.image.TextureTable) -> np.ndarray:
    """What a pixel says for each of WAYS, and one row that reads nothing."""
    rows = [
        (
            table.first[k],
            table.levels[k] if how == "mipmap" else 1,
            F.image.sampler_code((u, v), "nearest" if how == "nearest" else "linear"),
        )
        for k, u, v, how in WAYS
    ]
    return np.array([*rows, (0, 0, 0)], np.int32)


def reads(rng: np.random.Generator) -> tuple[Variable, Variable, np.ndarray]:
    uv = F.leaf(rng.uniform(-1.5, 2.5, (*SHAPE, 2)).astype(np.float32), VEC2, "uv")
    lod = F.leaf(rng.uniform(-1, 3.5, (*SHAPE, 1)).astype(np.float32), FLOAT, "lod")
    uv.requires_grad = lod.requires_grad = True
    return uv, lod, rng.integers(0, len(WAYS) + 1, (*SHAPE, 1)).astype(np.int32)


def test_each_pixel_reads_its_image_as_a_texture_of_its_own(rng: np.random.Generator) -> None:
    """Values, and gradients to texels, uv and level of detail, by every image and sampler; the
    other side samples each image alone and picks."""
    texels = texels_of(rng)
    uv, lod, picks = reads(rng)
    w = F.leaf(rng.uniform(-1, 1, (*SHAPE, 3)).astype(np.float32), VEC3, "w")
    table = F.image.texture_table(texels, SIZES)
    which = F.lookup(F.leaf(rows_of(table), IVEC3), F.leaf(picks, INT))
    y = F.texture_from(table, which, uv, lod)
    chosen = evaluate([y, *build_backward(F.sum(F.dot(y, w)), [texels, uv, lod]).values()], {})

    assert texels.data is not None
    flat = texels.data.reshape(-1, 3)
    images = []
    for k, (width, height) in enumerate(SIZES):
        part = flat[STARTS[k] : STARTS[k + 1]].reshape(height, width, 3)
        images.append(F.leaf(part, VEC3, f"image{k}"))
        images[-1].requires_grad = True
    total = F.constant((0.0, 0.0, 0.0))
    for n, (k, u, v, how) in enumerate(WAYS):
        if how == "mipmap":
            one = F.texture_mip(F.image.mipmap(images[k]), uv, lod, wrap=(u, v))
        else:
            one = F.texture(images[k], uv, filter=how, wrap=(u, v))
        total = F.where(F.leaf((picks == n).astype(np.float32), FLOAT), one, total)
    grads = build_backward(F.sum(F.dot(total, w)), [*images, uv, lod])
    alone = evaluate([total, *grads.values()], {})
    assert (picks == len(WAYS)).any() and len(np.unique(picks)) > 80
    np.testing.assert_allclose(chosen[0], alone[0], atol=1e-12)
    parts = [g.reshape(-1, 3) for g in alone[1 : 1 + len(SIZES)]]
    np.testing.assert_allclose(
        chosen[1].reshape(-1, 3)[: STARTS[-1]], np.concatenate(parts), atol=1e-11
    )
    np.testing.assert_allclose(chosen[2], alone[-2], atol=1e-11)
    np.testing.assert_allclose(chosen[3], alone[-1], atol=1e-11)


@pytest.mark.gpu
def test_the_device_reads_what_the_reference_reads(rng: np.random.Generator) -> None:
    """Views in layers, and places far away and not numbers among them."""
    texels = texels_of(rng)
    uv, lod, picks = reads(rng)
    assert uv.data is not None and lod.data is not None
    uv.data[0, 0, :4] = [[1e30, 0.5], [-np.inf, 0.5], [np.nan, 0.5], [0.5, np.inf]]
    lod.data[0, 1, :3, 0] = [np.nan, np.inf, -np.inf]
    table = F.image.texture_table(texels, SIZES)
    which = F.lookup(F.leaf(rows_of(table), IVEC3), F.leaf(picks, INT))
    y = F.texture_from(table, which, uv, lod)
    w = F.leaf(rng.uniform(-1, 1, (*SHAPE, 3)).astype(np.float32), VEC3, "w")
    both = [y, *build_backward(F.sum(F.dot(y, w)), [texels, uv, lod]).values()]
    with DressiAD() as ad:
        got = ad.recv_imgs(both)
    for a, b in zip(got, evaluate(both, {}), strict=True):
        np.testing.assert_allclose(a.reshape(b.shape), b, atol=3e-5)


def test_the_number_of_functions_is_that_of_levels() -> None:
    def count(n: int) -> int:
        width, height = F.image.table_size(64 * n)
        texels = F.leaf(np.zeros((height, width, 1), np.float32), FLOAT)
        return len(topological([F.image.texture_table(texels, [(8, 8)] * n).texels]))

    assert count(1) == count(3) == count(500)


def test_a_table_is_near_square_and_a_power_of_two_wide() -> None:
    for n in (1, 2, 3, 4, 5, 1000, 2**20, 2**20 + 1):
        width, height = F.image.table_size(n)
        assert width & (width - 1) == 0 and width * height >= n > width * (height - 1)
        assert height <= width * 2 and width <= max(4 * height, 2)


def test_bad_tables_and_reads_are_named() -> None:
    def leaf(w: int, h: int, n: int = 1) -> Variable:
        vtype = {1: FLOAT, 3: VEC3, 4: VEC4}[n]
        return F.leaf(np.zeros((h, w, n), np.float32), vtype)

    table = F.image.texture_table(leaf(4, 4), ((3, 4),))
    uv, which = Variable(VEC2, (5, 5)), Variable(IVEC3, (5, 5))
    for says, call in {
        "power of two wide": lambda: F.image.texture_table(leaf(6, 2), ((2, 2),)),
        "hold the 17 texels of 1 images": lambda: F.image.texture_table(leaf(4, 4), ((17, 1),)),
        "hold the 0 texels of 0 images": lambda: F.image.texture_table(leaf(4, 4), ()),
        "be FLOAT or VECn": lambda: F.image.texture_table(Variable(INT, (4, 4)), ((1, 1),)),
        "needs a TextureTable": lambda: F.texture_from(leaf(4, 4), which, uv),  # type: ignore[arg-type]
        "which must be IVEC3": lambda: F.texture_from(table, Variable(INT, (5, 5)), uv),
        "lod FLOAT": lambda: F.texture_from(table, which, uv, Variable(VEC2, (5, 5))),
        "do not broadcast": lambda: F.texture_from(table, which, Variable(VEC2, (4, 5))),
        "wraps are a pair of": lambda: F.image.sampler_code(("clamp", "border"), "linear"),
    }.items():
        with pytest.raises(GraphError, match=says):
            call()
