"""How logical images lie in physical ones, and arrays there and back."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.ad import Variable
from dressi.ad.vtype import FLOAT, MAT3, VEC3, VType
from dressi.errors import GraphError
from dressi.packing.arrays import from_planes, to_planes, to_words
from dressi.packing.layout import layout
from dressi.packing.limits import LLVMPIPE, MINIMUM

TOY = MINIMUM.restrict(name="toy", image_dim=64)


def test_image_of_one_layer_lies_as_it_is() -> None:
    lay = layout((7, 5), 1, MINIMUM)
    assert lay.physical == (7, 5) and lay.shift == -1


def test_layers_lie_below_each_other() -> None:
    lay = layout((7, 5), 3, MINIMUM)
    assert lay.physical == (7, 15)
    assert [lay.origin(k) for k in range(3)] == [(0, 0), (0, 5), (0, 10)]


def test_stack_taller_than_the_device_becomes_a_grid() -> None:
    """Seven layers of 7x20 on a device of 64x64: three a column."""
    lay = layout((7, 20), 7, TOY)
    assert (lay.columns, lay.rows) == (3, 3) and lay.physical == (21, 60)
    assert len({lay.origin(k) for k in range(7)}) == 7
    assert all(x + 7 <= 21 and y + 20 <= 60 for x, y in map(lay.origin, range(7)))


@pytest.mark.parametrize("n", [2, 3, 4, 5, 16, 17, 100, 1000, 2562, 4096, 4097, 65536, 10**6])
def test_tables_are_folded_to_near_square_with_power_of_two_width(n: int) -> None:
    w, h = layout((n, 1), 1, MINIMUM).physical
    assert w & (w - 1) == 0 and w * h >= n and w * (h - 1) < n
    assert 0.5 <= w / h <= 4


def test_table_beyond_the_width_of_the_smallest_device_fits() -> None:
    assert max(layout((2**24, 1), 1, MINIMUM).physical) <= 4096


def test_single_column_is_no_table() -> None:
    assert layout((1, 9), 1, MINIMUM).physical == (1, 9)
    assert not Variable(FLOAT, (1, 9)).is_table and not Variable(FLOAT, (1, 1)).is_table


@pytest.mark.parametrize(
    ("size", "layers", "parts"),
    [
        ((65, 3), 1, ("65x3", "toy", "64x64")),
        ((3, 65), 1, ("3x65", "toy", "64x64")),
        ((64 * 64 + 1, 1), 1, ("4097x1", "toy", "64x64")),
        ((40, 40), 2, ("2 layers of 40x40", "toy", "1 layers fit 64x64")),
        ((32, 32), 5, ("5 layers of 32x32", "toy", "4 layers fit 64x64")),
    ],
)
def test_what_does_not_fit_is_an_error_with_both_numbers(
    size: tuple[int, int], layers: int, parts: tuple[str, ...]
) -> None:
    with pytest.raises(GraphError) as info:
        layout(size, layers, TOY)
    for part in parts:
        assert part in str(info.value)


@pytest.mark.parametrize("size", [(64, 64), (64 * 64, 1), (1, 64), (64, 1)])
def test_exactly_the_limit_fits(size: tuple[int, int]) -> None:
    assert max(layout(size, 1, TOY).physical) <= 64


SIZES = [(1, 1), (7, 5), (1, 9), (2, 1), (3, 1), (13, 1), (64, 1), (37, 21)]


@pytest.mark.parametrize("vtype", list(VType), ids=lambda t: t.name)
@pytest.mark.parametrize("layers", [1, 3, 8])
@pytest.mark.parametrize("limits", [LLVMPIPE, TOY], ids=lambda p: p.name)
def test_arrays_survive_the_way_to_planes_and_back(vtype: VType, layers: int, limits) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(layers)
    for size in SIZES:
        if limits is TOY and layers == 8 and size == (37, 21):
            continue  # does not fit
        v = Variable(vtype, size, layers)
        shape = (layers, size[1], size[0], *vtype.tail)
        if vtype.is_int:
            data = rng.integers(-(2**31), 2**31, shape)
        else:
            data = rng.normal(size=shape).astype(np.float32)
        planes = to_planes(data, v, limits)
        w, h = layout(size, layers, limits).physical
        assert [len(p) for p in planes] == [w * h * vtype.channels * 4] * vtype.n_planes
        back = from_planes(planes, v, limits)
        assert back.dtype == (np.int32 if vtype.is_int else np.float32)
        assert back.shape == shape and (back == data).all()


def test_planes_are_where_the_layout_says() -> None:
    """Pixel (x, y) of layer l lies at the origin of its cell plus (x, y)."""
    v = Variable(VEC3, (7, 20), 7)
    data = np.random.default_rng(0).normal(size=(7, 20, 7, 3)).astype(np.float32)
    lay = layout(v.size, v.layers, TOY)
    (plane,) = to_planes(data, v, TOY)
    physical = np.frombuffer(plane, np.float32).reshape(lay.physical[1], lay.physical[0], 4)
    for layer in range(7):
        x, y = lay.origin(layer)
        assert (physical[y : y + 20, x : x + 7, :3] == data[layer]).all()
    assert (physical[..., 3] == 0).all()


def test_rows_of_a_table_are_in_reading_order() -> None:
    v = Variable(FLOAT, (13, 1))
    (plane,) = to_planes(np.arange(13.0).reshape(1, 1, 13, 1), v, MINIMUM)
    w, h = layout(v.size, 1, MINIMUM).physical
    assert np.frombuffer(plane, np.float32).reshape(h, w).ravel()[:13].tolist() == list(range(13))


def test_a_matrix_is_its_columns() -> None:
    v = Variable(MAT3)
    m = np.arange(9.0).reshape(3, 3)
    planes = to_planes(m.reshape(1, 1, 1, 3, 3), v, MINIMUM)
    for k, plane in enumerate(planes):
        assert np.frombuffer(plane, np.float32)[:3].tolist() == m[:, k].tolist()


def test_uniform_words_are_slots_of_four_a_plane_and_layer() -> None:
    v = Variable(MAT3, layers=2)
    m = np.arange(18.0).reshape(2, 3, 3)
    words = np.frombuffer(to_words(m.reshape(2, 1, 1, 3, 3), v), np.float32).reshape(2, 3, 4)
    for layer in range(2):
        for k in range(3):
            assert words[layer, k].tolist() == [*m[layer][:, k], 0]
