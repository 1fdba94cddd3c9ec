"""Compilers and drivers run in several threads at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import faults
import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import threadpool_info, threadpool_limits

from dressi import threads
from dressi.render.fit import dissection
from dressi.threads import in_threads, streamed
from dressi.vk import open_device


def test_pipelines_of_a_plan_are_compiled_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call of the driver waits until another one is under way."""
    from test_run import all_features_plan

    monkeypatch.setattr(threads, "cores", lambda: 3)
    lib = faults.install(monkeypatch)
    together = threading.Barrier(3)
    for kind in ("Graphics", "Compute"):
        lib.after[f"vkCreate{kind}Pipelines"] = lambda *_: together.wait(timeout=30.0)
    with open_device(validate=False) as device:
        device.ensure(1, "R32F", 8, 4)
        device.compile(all_features_plan()).run()
        assert not together.broken


def test_results_are_in_the_order_of_the_items(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first item ends last."""
    monkeypatch.setattr(threads, "cores", lambda: 2)
    second = threading.Event()

    def one(item: int) -> int:
        if item == 0:
            assert second.wait(timeout=30.0)
        else:
            second.set()
        return item * item

    assert in_threads(one, [0, 1, 2, 3]) == [0, 1, 4, 9]


@pytest.mark.parametrize("processors", [1, 4])
def test_the_first_item_that_fails_is_raised(
    monkeypatch: pytest.MonkeyPatch, processors: int
) -> None:
    monkeypatch.setattr(threads, "cores", lambda: processors)

    def one(item: int) -> int:
        if item in (2, 3):
            raise ValueError(f"item {item}")
        return item

    with pytest.raises(ValueError, match="item 2"):
        in_threads(one, [0, 1, 2, 3])


def test_few_items_are_taken_before_their_results_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What many views show would fill the memory."""
    monkeypatch.setattr(threads, "cores", lambda: 2)
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(100):
            taken.append(item)
            yield item

    for read, result in enumerate(streamed(abs, items())):
        assert result == read
        assert len(taken) <= read + 5


def test_the_number_of_threads_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRESSI_THREADS", "1")
    monkeypatch.setattr(threads, "cores", lambda: 4)
    found = in_threads(lambda _: threading.get_ident(), range(8))
    assert set(found) == {threading.get_ident()}
    monkeypatch.setenv("DRESSI_THREADS", "3")
    monkeypatch.setattr(threads, "cores", lambda: 1)
    together = threading.Barrier(3)
    in_threads(lambda _: together.wait(timeout=30.0), range(3))


def blas_threads() -> list[int]:
    """Of each library that is loaded; some have one thread whatever they are told."""
    return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]


def test_the_inverse_factor_of_a_library_user_takes_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its many small matrices are slower with more, many times where others work too."""
    seen: list[list[int]] = []
    factored = dissection.cholesky

    def cholesky(*args: object, **named: object) -> object:
        seen.append(blas_threads())
        return factored(*args, **named)

    monkeypatch.setattr(dissection, "cholesky", cholesky)
    with threadpool_limits(2, "blas"):
        before = blas_threads()
        dissection.inverse_factor(sparse.identity(5), np.zeros((5, 3)))
        assert 2 in before and set(seen[0]) == {1} and blas_threads() == before
