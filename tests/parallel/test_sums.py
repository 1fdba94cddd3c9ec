"""The sum over devices on the host, and Ctrl-C that waits."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from dressi.interrupt import DeferredInterrupt
from dressi.parallel import sums
from dressi.parallel.sums import add_words


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.mark.parametrize("n_devices", [1, 2, 3, 5])
@pytest.mark.parametrize("sizes", [(1,), (7, 30), (100,), (1001, 64)], ids=str)
@pytest.mark.parametrize("fewest", [10, 1 << 18])
def test_words_are_added_in_the_order_of_the_devices_whatever_the_threads(
    threads: ThreadPoolExecutor,
    n_devices: int,
    sizes: tuple[int, ...],
    fewest: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sums, "BLOCK", 32)
    monkeypatch.setattr(sums, "FEWEST", fewest)
    monkeypatch.setattr(sums, "n_threads", lambda: 3)
    rng = np.random.default_rng(0)
    # Of all magnitudes: another order gives other bits.
    parts = [
        [(rng.normal(size=n) * 10.0 ** rng.integers(-8, 9, n)).astype(np.float32) for n in sizes]
        for _ in range(n_devices)
    ]
    kept = [[p.copy() for p in mine] for mine in parts]
    totals = [[np.full(n, np.nan, np.float32) for n in sizes] for _ in range(n_devices)]
    add_words(parts, totals, threads)
    for k in range(len(sizes)):
        want = kept[0][k].copy()
        for other in kept[1:]:
            want = want + other[k]
        for mine in totals:
            assert (mine[k] == want).all()
        for mine, before in zip(parts, kept, strict=True):
            assert (mine[k] == before[k]).all()  # what came from a device is left alone


def test_order_decides(threads: ThreadPoolExecutor) -> None:
    big, small, out = np.float32([1e8]), np.float32([1.0]), np.float32([9.0])
    add_words([[small], [big], [-big]], [[out]] * 3, threads)
    assert out == 0.0
    add_words([[big], [-big], [small]], [[out]] * 3, threads)
    assert out == 1.0


def test_what_is_no_number_is_added_in_silence(threads: ThreadPoolExecutor) -> None:
    """Texels that no one reads hold anything."""
    big, out = np.float32([np.inf, np.nan, 3e38]), np.zeros(3, np.float32)
    with np.errstate(all="raise"):
        add_words([[big], [-big]], [[out]], threads)
        add_words([[big], [big]], [[out]], threads)
    assert out[0] == np.inf and np.isnan(out[1]) and out[2] == np.inf


def test_what_fails_in_a_thread_comes_out(
    threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sums, "FEWEST", 10)
    monkeypatch.setattr(sums, "n_threads", lambda: 3)
    with pytest.raises(ValueError, match="shapes"):
        add_words([[np.zeros(90, np.float32)], [np.zeros(65, np.float32)]], [], threads)


# -- Ctrl-C


def test_ctrl_c_comes_at_the_end() -> None:
    before = signal.getsignal(signal.SIGINT)
    done = []
    with pytest.raises(KeyboardInterrupt), DeferredInterrupt() as held:
        assert not held.came
        signal.raise_signal(signal.SIGINT)
        done.append(held.came)
        signal.raise_signal(signal.SIGINT)
        done.append(held.came)
    assert done == [True, True]
    assert signal.getsignal(signal.SIGINT) is before
    with DeferredInterrupt() as held:
        pass
    assert not held.came and signal.getsignal(signal.SIGINT) is before


def test_an_error_comes_before_ctrl_c_but_is_not_lost() -> None:
    with pytest.raises(KeyboardInterrupt) as caught, DeferredInterrupt():
        signal.raise_signal(signal.SIGINT)
        raise ZeroDivisionError("first")
    assert isinstance(caught.value.__context__, ZeroDivisionError)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), DeferredInterrupt():
        raise ZeroDivisionError("alone")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.fixture
def handlers() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_handlers_of_others_are_called_and_stay(handlers: None) -> None:
    came: list[Any] = []

    def mine(number: int, frame: Any) -> None:
        came.append((number, frame is not None))

    signal.signal(signal.SIGINT, mine)
    with DeferredInterrupt() as held:
        signal.raise_signal(signal.SIGINT)
        assert held.came and came == []
    assert came == [(signal.SIGINT, True)]
    assert signal.getsignal(signal.SIGINT) is mine
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with DeferredInterrupt() as held:
        signal.raise_signal(signal.SIGINT)
    assert not held.came and signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_threads_leave_signals_alone() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with DeferredInterrupt() as held:
            seen.append((held.came, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, before)]
