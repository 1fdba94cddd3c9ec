"""What a worker keeps between tasks: engines, graphs, whatever is dear to make.

In: a key per shape, a function that makes. Out: the same object for every task of the shape, and
counts that show it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

KEPT = 8
"""Objects that are kept at most: device memory is finite, and tasks of one shape tend to come one
after another. A demo with a texture keeps five."""


class Warm:
    """Objects by key, the least recently used closed first. Used by one thread at a time.

    Objects that are context managers are entered when made and left when dropped.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._objects: OrderedDict[Hashable, tuple[Any, ExitStack]] = OrderedDict()
        self.builds = 0
        """Objects made so far."""
        self.reuses = 0
        """Times that one was there already."""

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the object of a key, made by ``make`` where there is none. key: says everything
        that the object depends on."""
        if key in self._objects:
            self._objects.move_to_end(key)
            self.reuses += 1
            return self._objects[key][0]
        while len(self._objects) >= self._kept:
            self._objects.popitem(last=False)[1][1].close()
        stack, made = ExitStack(), make()
        if hasattr(made, "__enter__") and hasattr(made, "__exit__"):
            made = stack.enter_context(made)
        self._objects[key] = (made, stack)
        self.builds += 1
        return made

    def clear(self) -> None:
        """Close everything; errors of objects whose device is gone are passed over."""
        while self._objects:
            _, stack = self._objects.popitem()[1]
            try:
                stack.close()
            except Exception:
                continue


@dataclass(frozen=True)
class Context:
    """What a fit is given besides its settings. folder: an empty folder; files that are written
    here are kept beside the result. device: selector of the worker's device, None: the best. warm:
    what the worker keeps between tasks."""

    folder: Path
    device: str | None
    warm: Warm
