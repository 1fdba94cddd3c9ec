"""Arrays for results are used again, and never while somebody holds them."""

from __future__ import annotations

import numpy as np

from dressi.ad import Variable
from dressi.ad.vtype import FLOAT, INT, VEC3
from dressi.engine.rooms import KEPT, LEAST_BYTES, Rooms


def _address(a: np.ndarray) -> int:
    return int(a.__array_interface__["data"][0])


def test_an_array_comes_again_once_nobody_holds_it() -> None:
    rooms, v = Rooms(), Variable(VEC3, (64, 64), 2)
    first = rooms.take(v)
    assert first.shape == (2, 64, 64, 3) and first.dtype == np.float32
    at = _address(first)
    view = first[0].reshape(-1)
    del first
    assert _address(rooms.take(v)) != at, "a view holds it"
    del view
    assert _address(rooms.take(v)) == at


def test_two_that_are_held_are_two_arrays() -> None:
    rooms, v = Rooms(), Variable(INT, (128, 128))
    held = [rooms.take(v) for _ in range(KEPT + 2)]
    assert len({_address(a) for a in held}) == KEPT + 2 and held[0].dtype == np.int32


def test_small_arrays_are_not_kept() -> None:
    rooms, v = Rooms(), Variable(FLOAT, (4, 4))
    assert rooms.take(v).nbytes < LEAST_BYTES and not rooms._kept[v.uid]
