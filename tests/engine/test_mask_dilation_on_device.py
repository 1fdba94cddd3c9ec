"""Packed masks: border and dilation in one dispatch give the bits of the passes, and of NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from dressi import DressiAD, F, Variable
from dressi.ad.vtype import FLOAT, INT
from dressi.packing import Options

pytestmark = pytest.mark.gpu

COMPUTE, GRAPHICS = Options(lowering="compute"), Options(lowering="graphics")
SIZES = ((1, 1), (31, 3), (32, 64), (33, 65), (200, 77), (700, 90))
RADII = (0.0, 0.4, 1.0, 2.5, 5.0, 31.0, 32.0, 33.0, 40.0, 62.0)


def packed(bits: np.ndarray) -> np.ndarray:
    """(layers, H, words * 32) booleans -> (layers, H, words) signed words."""
    return np.packbits(bits, axis=-1, bitorder="little").view("<u4").view(np.int32)


def unpacked(words: np.ndarray) -> np.ndarray:
    data = np.ascontiguousarray(words).view(np.uint8)
    return np.unpackbits(data, axis=-1, bitorder="little").astype(bool)


def border_of(bits: np.ndarray, width: int) -> np.ndarray:
    """Of the first ``width`` columns; what is repeated at the frame differs from nothing there."""
    m = bits[..., :width]
    p = np.pad(m, ((0, 0), (1, 1), (1, 1)), mode="edge")
    out = np.zeros_like(bits)
    for dy, dx in ((0, 1), (2, 1), (1, 0), (1, 2)):
        h, w = m.shape[1:]
        out[..., :width] |= p[:, dy : dy + h, dx : dx + w] != m
    return out


def dilated(bits: np.ndarray, n: int) -> np.ndarray:
    """Set where the square around a pixel holds one: sums over the square, from running sums."""
    for axis in (1, 2):
        size = bits.shape[axis]
        lead = [(0, 0)] * 3
        lead[axis] = (1, 0)
        sums = np.pad(np.cumsum(bits, axis), lead)
        at = np.arange(size)
        high, low = np.minimum(at + n + 1, size), np.maximum(at - n, 0)
        bits = np.take(sums, high, axis) > np.take(sums, low, axis)
    return bits


def sparse_words(size: tuple[int, int], seed: int) -> np.ndarray:
    """Two layers: a few pixels, blobs at two corners, bits behind the last pixel of some rows."""
    (w, h), rng = size, np.random.default_rng(seed)
    bits = np.zeros((2, h, -(-w // 32) * 32), bool)
    for layer in range(2):
        bits[layer, rng.integers(h, size=3), rng.integers(w, size=3)] = True
    bits[0, : h // 8 + 1, : w // 6 + 1] = True
    bits[1, h - h // 9 :, w - w // 7 : w] = True
    bits[1, h // 2, w:] = True
    return packed(bits)


@pytest.mark.parametrize("most", [40, 62, 99])
@pytest.mark.parametrize(
    "size", [(1, 1), (31, 3), (32, 64), (33, 65), (200, 77), (700, 90)], ids=str
)
def test_the_dispatch_gives_the_bits_of_the_passes(size: tuple[int, int], most: int) -> None:
    """Of a mask and of its border, for radii that change from run to run."""
    data = sparse_words(size, most)
    words, r = F.leaf(data[..., None], INT), Variable(FLOAT)
    outputs = [
        F.bits.dilate_bits(words, r, most),
        F.bits.dilate_bits(F.bits.border_bits(words, size[0]), r, most),
    ]
    found = []
    for options in (COMPUTE, GRAPHICS):
        results = []
        with DressiAD(options=options) as ad:
            for radius in RADII:
                ad.send_img(r, np.float32(radius))
                results.append(ad.recv_imgs(outputs))
        found.append(results)
    for radius, got, passes in zip(RADII, *found, strict=True):
        n = min(int(radius + 0.5), most)
        bits = unpacked(data)
        wanted = (dilated(bits, n), dilated(border_of(bits, size[0]), n))
        for a, b, want in zip(got, passes, wanted, strict=True):
            assert np.array_equal(a.reshape(b.shape), b), radius
            assert np.array_equal(a.reshape(data.shape), packed(want)), radius


def test_a_border_that_is_read_elsewhere_too_stays() -> None:
    data = sparse_words((70, 50), 2)
    border = F.bits.border_bits(F.leaf(data[..., None], INT), 70)
    with DressiAD(options=COMPUTE) as ad:
        thin, thick = ad.recv_imgs([border, F.bits.dilate_bits(border, 2.0, 5)])
    want = border_of(unpacked(data), 70)
    assert np.array_equal(thin[..., 0], packed(want))
    assert np.array_equal(thick[..., 0], packed(dilated(want, 2)))


@pytest.mark.parametrize("options", [COMPUTE, GRAPHICS], ids=["compute", "graphics"])
def test_a_radius_that_a_pass_computes(options: Options) -> None:
    """Not of uniforms: an image of one pixel that is read."""
    data = sparse_words((70, 50), 3)
    image = F.leaf(np.full((9, 9, 1), 7.0, np.float32), FLOAT)
    with DressiAD(options=options) as ad:
        got = ad.recv_img(F.bits.dilate_bits(F.leaf(data[..., None], INT), F.mean(image), 40))
    assert np.array_equal(got[..., 0], packed(dilated(unpacked(data), 7)))


@pytest.mark.parametrize("radius", [-3.0, 1e9, 3e38])
@pytest.mark.parametrize("most", [40, 99])
def test_radii_beyond_the_range_stop_at_its_ends(radius: float, most: int) -> None:
    data = sparse_words((200, 77), 4)
    r = Variable(FLOAT)
    with DressiAD(options=COMPUTE) as ad:
        ad.send_img(r, np.float32(radius))
        got = ad.recv_img(F.bits.dilate_bits(F.leaf(data[..., None], INT), r, most))
    n = int(np.clip(radius, 0, most))
    assert np.array_equal(got[..., 0], packed(dilated(unpacked(data), n)))


@pytest.mark.parametrize("options", [COMPUTE, GRAPHICS], ids=["compute", "graphics"])
@pytest.mark.parametrize("radius", [2.0, 4.0, 7.0, 13.0, 29.0, 40.0])
def test_what_lies_at_the_frame_is_dilated_without_holes(radius: float, options: Options) -> None:
    """A pixel at each corner, of an image and of a packed mask: no tap of a pass is lost beyond the
    frame."""
    bits = np.zeros((1, 53, 64), bool)
    bits[0, 0, 0] = bits[0, -1, -1] = True
    image = F.leaf(bits[0, ..., None].astype(np.float32), FLOAT)
    masks = [
        F.image.dilate(image, radius, 40),
        F.bits.dilate_bits(F.bits.pack_bits(image), radius, 40),
    ]
    with DressiAD(options=options) as ad:
        pixels, words = ad.recv_imgs(masks)
    want = dilated(bits, int(radius))
    assert np.array_equal(pixels[..., 0] > 0.5, want[0])
    assert np.array_equal(words.reshape(1, 53, 2), packed(want))
