"""A wrapper around the binding's functions that makes chosen calls fail or lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dressi.vk import api, context


class FaultyLib:
    """Stands for the loader's functions. ``fail``: name of a call to the result it gives instead of
    being made; ``after``: name to a function that changes what a call has written."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.fail: dict[str, int] = {}
        self.after: dict[str, Callable[..., None]] = {}
        self.called: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)

        def call(*args: Any) -> Any:
            self.called[name] = self.called.get(name, 0) + 1
            if name in self.fail:
                return self.fail[name]
            result = real(*args)
            if name in self.after:
                self.after[name](*args)
            return result

        return call


def install(monkeypatch: pytest.MonkeyPatch) -> FaultyLib:
    """Puts the wrapper in place for the length of a test."""
    loaded = api.load()
    faulty = FaultyLib(loaded.lib)
    monkeypatch.setattr(loaded, "lib", faulty)
    return faulty


def fail(monkeypatch: pytest.MonkeyPatch, lib: FaultyLib, call: str, result: int) -> None:
    """Makes a call fail from now on, on any device: one that is waited for would never be reached
    where a fast device has signalled the fence while it was asked (``ask_first_s``)."""
    lib.fail[call] = result
    if call == "vkWaitForFences":
        monkeypatch.setattr(context, "ASK_FIRST_S", 0.0)
