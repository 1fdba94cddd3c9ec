"""``from_dlpack``, ``to_dlpack``: memory of other libraries, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dressi import VEC2, DressiAD, Variable, from_dlpack, to_dlpack
from dressi.errors import GraphError
from dressi.testing.null_device import NullDevice


class Elsewhere:
    """What lies on a GPU, as far as DLPack says."""

    def __dlpack__(self, **_: Any) -> None:
        raise AssertionError("its memory cannot be read here")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def test_memory_is_shared_both_ways() -> None:
    theirs = np.arange(6, dtype=np.float32).reshape(2, 3)
    ours = from_dlpack(theirs)
    theirs[1, 2] = 7.0
    assert ours[1, 2] == 7.0 and np.shares_memory(ours, theirs)
    assert to_dlpack(theirs) is theirs
    assert to_dlpack(theirs).__dlpack_device__() == (1, 0)


def test_what_others_may_not_write_to_is_copied() -> None:
    fixed = np.zeros((2, 2), np.int32)
    fixed.flags.writeable = False
    for x in (fixed, np.zeros((4, 4), np.float32)[:, ::2], np.zeros(3, ">i4")):
        shared = to_dlpack(x)
        assert not np.shares_memory(shared, x) and shared.flags.writeable
        np.testing.assert_array_equal(np.from_dlpack(shared), x)


def test_what_is_sent_comes_back() -> None:
    with DressiAD(NullDevice()) as ad:
        x = Variable(VEC2, (3, 1))
        data = np.arange(6, dtype=np.float32).reshape(3, 2)
        ad.send_img(x, from_dlpack(data))
        np.testing.assert_array_equal(np.from_dlpack(to_dlpack(ad.recv_img(x))), data)


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (3.0, "got float"),
        (Elsewhere(), "type 2, not on the CPU"),
        (np.zeros(2, complex), "complex"),
    ],
)
def test_what_cannot_be_read_is_named(obj: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        from_dlpack(obj)


@pytest.mark.parametrize("x", [Variable(VEC2, (3, 1)), np.zeros(2), [1.0]])
def test_what_is_no_result_is_refused(x: Any) -> None:
    with pytest.raises(GraphError, match=r"to_dlpack .*needs what recv_img gives"):
        to_dlpack(x)


def test_tensors_of_torch_are_read_where_they_lie() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    t = torch.arange(4, dtype=torch.float32)
    a = from_dlpack(t)
    t[2] = 9.0
    assert a[2] == 9.0
    b = torch.from_dlpack(to_dlpack(np.ones(2, np.float32)))
    assert b.tolist() == [1.0, 1.0]
    with pytest.raises(GraphError, match="Tensor: "):
        from_dlpack(t.requires_grad_())
