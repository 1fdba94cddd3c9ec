"""R12 of ``dressi bench reliability``: what engines, steps and sizes leave behind."""

from __future__ import annotations

import threading

import pytest

from dressi.apps.reliability import leaks
from dressi.engine.leafstore import LeafStore

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("name", "n", "warm"), [("steps", 500, 100), ("engines", 6, 4)])
def test_leaks_of_the_bench_in_small(name: str, n: int, warm: int) -> None:
    """``dressi bench reliability --only R12`` is the same with more of it."""
    growth = leaks.grow(name, None, n, warm)
    assert growth["handles"] == 0 and growth["threads"] <= 0 and growth["MB"] < 16


def test_calls_of_a_layer_leave_nothing() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    growth = leaks.grow("calls of a layer", None, 300, 100)
    assert growth["handles"] == 0 and growth["threads"] <= 0 and growth["MB"] < 16


def test_leaks_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted one: leaves that are never freed."""
    monkeypatch.setattr(LeafStore, "release", lambda self: None)
    assert leaks.grow("sizes", None, 4, 2)["handles"] > 0


def test_a_thread_that_is_about_to_end_is_not_left_and_one_that_stays_is() -> None:
    n = leaks._settled(leaks._threads_and_files)
    ending, stay = threading.Timer(0.1, lambda: None), threading.Event()
    staying = threading.Thread(target=stay.wait)
    ending.start()
    assert leaks._settled(leaks._threads_and_files) == n
    staying.start()
    assert leaks._settled(leaks._threads_and_files) == n + 1
    stay.set()
    staying.join()
