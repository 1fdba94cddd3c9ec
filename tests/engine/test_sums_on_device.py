"""Sums by groups of invocations: odd sizes, layers and types against NumPy float64."""

from __future__ import annotations

import numpy as np
import pytest

from dressi import DressiAD, F, Variable
from dressi.ad.vtype import FLOAT, INT, MAT2, MAT4, VEC2, VEC3, VEC4, VType
from dressi.packing import Options

pytestmark = pytest.mark.gpu

SIZES = [
    (1, 1),
    (2, 1),
    (7, 5),
    (64, 1),
    (300, 1),
    (63, 65),
    (64, 64),
    (65, 64),  # more than one group adds up by itself
    (65, 200),
    (200, 31),
    (33, 1300),
    (5, 3000),
    (3000, 5),
    (25709, 1),
]
LARGE = [(1031, 1027), (2048, 1024), (1_100_000, 1)]
"""More than 1024 pixels a group: tiles of 64 x 64 at odd and at even sizes, and a table."""
EPSILON = float(np.finfo(np.float32).eps)


def sums(data: np.ndarray, vtype: VType, way: str = "compute") -> tuple[np.ndarray, np.ndarray]:
    """Over all layers, and of every layer."""
    layers, h, w = data.shape[:3]
    x = Variable(vtype, (w, h), layers, name="x")
    with DressiAD(options=Options(lowering=way)) as ad:
        ad.send_img(x, data)
        total, each = ad.recv_imgs([F.sum(x), F.sum(x, per_layer=True)])
    tail = data.shape[3:]
    return total.reshape(tail), each.reshape(layers, *tail)


def random(size: tuple[int, int], layers: int, tail: tuple[int, ...], seed: int) -> np.ndarray:
    """About 1, so that a pixel left out or taken twice is seen."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0.5, 1.5, (layers, size[1], size[0], *tail)).astype(np.float32)


def close(got: np.ndarray, data: np.ndarray, axes: tuple[int, ...]) -> bool:
    """An invocation rounds after each of its pixels, and the tree some times more: errors add up as
    a random walk, to half an epsilon times the root of some 64 + 2 x (16 + 6) of them at most."""
    want = data.astype(np.float64).sum(axis=axes)
    scale = np.abs(data.astype(np.float64)).sum(axis=axes)
    return bool((np.abs(got - want) <= 6 * EPSILON * scale).all())


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_groups_add_up_what_is_there(size: tuple[int, int], layers: int) -> None:
    data = random(size, layers, (1,), 1)
    total, each = sums(data, FLOAT)
    assert close(total, data, (0, 1, 2)) and close(each, data, (1, 2))


@pytest.mark.parametrize("size", LARGE, ids=str)
def test_groups_take_more_of_large_images(size: tuple[int, int]) -> None:
    data = random(size, 1, (1,), 2)
    total, _ = sums(data, FLOAT)
    assert close(total, data, (0, 1, 2))


@pytest.mark.parametrize("size", [(7, 5), (65, 200), (300, 1)], ids=str)
@pytest.mark.parametrize(
    ("vtype", "tail"),
    [(VEC2, (2,)), (VEC3, (3,)), (VEC4, (4,)), (MAT2, (2, 2)), (MAT4, (4, 4))],
    ids=lambda v: getattr(v, "name", ""),
)
def test_components_are_added_apart(
    size: tuple[int, int], vtype: VType, tail: tuple[int, ...]
) -> None:
    data = random(size, 3, tail, 3)
    total, each = sums(data, vtype)
    assert close(total, data, (0, 1, 2)) and close(each, data, (1, 2))


@pytest.mark.parametrize("size", [(7, 5), (65, 200), (5000, 1)], ids=str)
def test_integers_are_added_exactly(size: tuple[int, int]) -> None:
    data = np.random.default_rng(4).integers(-99, 99, (2, size[1], size[0], 1)).astype(np.int32)
    total, each = sums(data, INT)
    assert (total == data.sum(axis=(0, 1, 2))).all() and (each == data.sum(axis=(1, 2))).all()


def test_every_run_gives_the_same_bits() -> None:
    data = np.random.default_rng(5).normal(size=(2, 200, 65, 3)).astype(np.float32)
    first, second = sums(data, VEC3), sums(data, VEC3)
    assert all((a == b).all() for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize(
    "size", [(64, 64), (130, 97), (300, 200), (512, 8), (5, 3), (4096, 1), (9000, 1), (70, 1)]
)
def test_passes_and_dispatches_agree_up_to_rounding(size: tuple[int, int], layers: int) -> None:
    """They add in different orders. Of both signs, so that sums are far less than what is added."""
    data = np.random.default_rng(6).normal(size=(layers, size[1], size[0], 2)).astype(np.float32)
    scale = np.abs(data).sum(axis=(1, 2))
    both = [sums(data, VEC2, way) for way in ("compute", "graphics")]
    for a, b, s in zip(*both, (scale.sum(axis=0), scale), strict=True):
        assert (np.abs(a - b) <= 2 * EPSILON * s).all()
    assert close(both[0][0], data, (0, 1, 2)) and close(both[1][0], data, (0, 1, 2))


def test_pixels_beyond_an_edge_are_not_added() -> None:
    """The last pixel is loaded in their place, and may be anything: here it is far larger."""
    for size in ((65, 200), (4999, 1), (5, 7)):
        data = np.zeros((1, size[1], size[0], 1), np.float32)
        data[:, -1, -1] = 3e38
        total, _ = sums(data, FLOAT)
        assert total[0] == data[0, -1, -1, 0]


@pytest.mark.parametrize("size", [(7, 5), (65, 200), (300, 1)], ids=str)
def test_what_a_group_computes_itself_is_broadcast(size: tuple[int, int]) -> None:
    """One layer against two, a uniform, and a 1x1 image that a pass makes."""
    images, one = random(size, 2, (3,), 7), random(size, 1, (3,), 8)
    per_layer = np.array([0.5, 2.0], np.float32).reshape(2, 1, 1, 1)
    x, y = Variable(VEC3, size, 2, name="x"), Variable(VEC3, size, name="y")
    k = Variable(FLOAT, (1, 1), 2, name="k")
    addends = (x * y + F.mean(y).x) * k
    with DressiAD(options=Options(lowering="compute")) as ad:
        for leaf, data in ((x, images), (y, one), (k, per_layer)):
            ad.send_img(leaf, data)
        got = ad.recv_img(F.sum(addends)).reshape(3)
    exact = one.astype(np.float64)
    want = (images * exact + exact[..., 0].mean()) * per_layer
    assert close(got, want, (0, 1, 2))


WAYS = ("compute", "graphics")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [(8, 8), (64, 1), (300, 200), (5000, 1)], ids=str)
@pytest.mark.parametrize("vtype", [FLOAT, VEC3], ids=lambda t: t.name)
def test_what_additions_lose_is_not_lost(way: str, size: tuple[int, int], vtype: VType) -> None:
    """Numbers of a quarter of an epsilon beside a 1: added to it one by one they would vanish, and
    where the 1 is taken away at the end nothing but them is left."""
    data = np.full((2, size[1], size[0], vtype.n), EPSILON / 4, np.float32)
    data[0, 0, 0] = 1.0
    data[1, 0, 0], data[1, -1, -1] = 1.0, -1.0
    want = data.astype(np.float64).sum((1, 2))
    total, each = sums(data, vtype, way)
    assert np.allclose(each[0], want[0], rtol=EPSILON)
    # The 1 and the -1 may meet in the last level only, where each is rounded already.
    assert np.abs(each[1] - want[1]).max() <= EPSILON
    assert np.allclose(total, want.sum(0), rtol=2 * EPSILON)


INFINITE, NOT_A_NUMBER = (3e38, 10.0, 1.0), (3e38, 10.0, 0.0)
"""Products that are: what is sent is finite."""


def factors(value: float) -> tuple[float, float, float]:
    if np.isnan(value):
        return NOT_A_NUMBER
    if np.isinf(value):
        return (float(np.sign(value)) * INFINITE[0], *INFINITE[1:])
    return (value, 1.0, 1.0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("vtype", [FLOAT, VEC2], ids=lambda t: t.name)
@pytest.mark.parametrize(
    ("values", "want"),
    [
        ((np.inf, 1.0), np.inf),
        ((-np.inf, 1.0), -np.inf),
        ((np.inf, -np.inf), np.nan),
        ((np.nan, 1.0), np.nan),
        ((3e38, 3e38), np.inf),
        ((3.4e38, -3.4e38, 1.0), 1.0),
    ],
    ids=str,
)
def test_sums_of_what_is_not_finite(
    way: str, vtype: VType, values: tuple[float, ...], want: float
) -> None:
    data = np.zeros((3, 1, 9, 70, vtype.n), np.float32)
    for k, value in enumerate(values):
        data[:, 0, 0, k, 0] = factors(value)
    if vtype.n > 1:
        data[0, ..., 1], data[1:, ..., 1] = 2.0, 1.0
    a, b, c = (Variable(vtype, (70, 9), name=name) for name in "abc")
    with DressiAD(options=Options(lowering=way)) as ad:
        for leaf, array in zip((a, b, c), data, strict=True):
            ad.send_img(leaf, array)
        got = ad.recv_img(F.sum(a * b * c)).reshape(-1)
    assert np.array_equal(got[0], np.float32(want), equal_nan=True)
    assert vtype.n == 1 or got[1] == 2.0 * 9 * 70


@pytest.mark.parametrize("way", WAYS)
def test_integers_are_added_as_they_are(way: str) -> None:
    data = np.arange(300 * 20, dtype=np.int32).reshape(1, 20, 300, 1)
    data[0, 0, 0] = 2**24 + 1
    total, _ = sums(data, INT, way)
    assert total == data.sum()
