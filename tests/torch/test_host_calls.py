"""Python functions that a call of a warmed layer takes on the host: each costs a step half a
microsecond, three times as much where a driver on the same processors emptied their caches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="dressi.torch needs torch")

import dressi  # noqa: E402
from dressi import DressiAD, Variable  # noqa: E402
from dressi.torch import compile  # noqa: E402
from dressi.torch import function as torch_function  # noqa: E402
from dressi.torch import share as torch_share  # noqa: E402
from tests.torch.fake_cuda import shared_engine  # noqa: E402

pytestmark = pytest.mark.gpu

MOST = {"host": (60, 46), "card": (68, 46)}
"""Functions of this package that a forward and a backward call may take."""

PACKAGE = str(Path(dressi.__file__).parent)


@pytest.fixture(params=MOST)
def engine(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[DressiAD, str]]:
    """An engine, and whether memory is that of the host or of a card."""
    if request.param == "host":
        with DressiAD() as ad:
            yield ad, request.param
        return
    with shared_engine(monkeypatch, torch_share) as (ad, driver, shared):
        driver.current = 33  # its context: nothing is pushed
        with ThreadPoolExecutor(1) as driver.stream:  # in another thread, which is not counted
            monkeypatch.setattr(torch_share, "counts_writes", lambda t: True)
            monkeypatch.setattr(torch_function, "share_of", lambda ad, device: shared)
            yield ad, request.param


def n_calls(body: Callable[[], object]) -> int:
    """How many functions of the package are called; comprehensions, which are calls in some
    versions of Python, are left out."""
    found: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name[0] != "<":
            found.append(code.co_name)

    sys.setprofile(note)
    try:
        body()
    finally:
        sys.setprofile(None)
    return len(found)


def test_a_call_like_the_one_before_takes_few_functions(engine: tuple[DressiAD, str]) -> None:
    ad, memory = engine

    def scaled(pos: Variable, rows: Variable, gain: Variable) -> Variable:
        return pos * gain

    layer = compile(
        scaled,
        parameters={"pos": torch.rand(50, 3)},
        constants={"rows": torch.arange(12).reshape(4, 3), "gain": torch.rand(1)},
        ad=ad,
    )
    forward, backward = [], []
    for _ in range(8):
        with torch.no_grad():
            layer.pos += 0.125
        kept: list[Any] = []
        forward.append(n_calls(lambda: kept.append(layer())))  # noqa: B023
        upstream = torch.rand(50, 3)
        backward.append(n_calls(lambda: kept[0].backward(upstream)))  # noqa: B023
        if memory == "host":  # whose numbers the host waits for
            torch.testing.assert_close(layer.pos.grad, upstream * layer.gain)
        layer.zero_grad()
    assert min(forward) <= MOST[memory][0] and min(backward) <= MOST[memory][1], forward + backward
