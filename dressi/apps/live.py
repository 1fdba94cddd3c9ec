"""Fits that are watched while they run.

In: what a loop of a fit has at hand, step by step. Out: calls of the watcher that is set, of which
there is none by default: then a step costs one look at a variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

import numpy as np

from dressi.render.scene import Mesh

Positions = Callable[[], np.ndarray]
"""Gives (N, 3) when asked: reading them from the device takes time, so a watcher asks seldom."""


class Watcher(Protocol):
    """What is told of a fit. ``begin`` comes before the steps of each of its stages."""

    def begin(
        self,
        label: str,
        mesh: Mesh,
        matrices: np.ndarray | None,
        pictures: np.ndarray | None,
    ) -> None: ...

    def step(
        self,
        loss: float | None,
        positions: Positions,
        texture: Callable[[], np.ndarray] | None,
    ) -> None: ...


_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Within the block, fits of this thread tell the watcher of their steps."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def begin(
    label: str,
    mesh: Mesh,
    matrices: np.ndarray | None = None,
    pictures: np.ndarray | None = None,
) -> None:
    """A stage of a fit begins. mesh: its start. matrices: (n, 4, 4) from the mesh's space to clip
    space. pictures: (n, H, W, 1 to 4) linear, what is fitted to."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher.begin(label, mesh, matrices, pictures)


def step(
    loss: float | None,
    positions: Positions,
    texture: Callable[[], np.ndarray] | None = None,
) -> None:
    """A step is done. loss: None where it was not read. texture: gives (H, W, 3) linear, where one
    is fitted."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher.step(loss, positions, texture)
