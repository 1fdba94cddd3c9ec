"""The graphs that fits of one method share: a ``Painter`` of the target and a ``Fitter``.

In: settings of ``heatmap`` or ``curves``, a method. Out: ``Graphs``, to be kept between parts.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Protocol

from dressi.apps.experiments.lit_fit import START_RADIUS, Fitter
from dressi.apps.experiments.lit_views import Method, Painter
from dressi.apps.experiments.meshes import target_mesh
from dressi.render.scene import icosphere


class Looks(Protocol):
    """What the graphs take of the settings."""

    @property
    def target(self) -> str | None:
        """OBJ file, None: built by code."""
        ...

    @property
    def target_faces(self) -> int:
        """Faces of the target at most."""
        ...

    @property
    def subdivisions(self) -> int:
        """Of the sphere."""
        ...

    @property
    def size(self) -> int:
        """Pixels on a side."""
        ...

    @property
    def look(self) -> str:
        """Of LOOKS."""
        ...


class Graphs:
    """The graphs of all fits of one method. Use as a context manager."""

    def __init__(self, settings: Looks, method: Method, device: str | None) -> None:
        self.target = target_mesh(settings.target, settings.target_faces)
        self.start = icosphere(settings.subdivisions, START_RADIUS)
        size, look = settings.size, settings.look
        with ExitStack() as stack:
            self.painter = stack.enter_context(
                Painter(self.target, method, size, look, device=device)
            )
            self.fitter = stack.enter_context(Fitter(self.start, method, size, look, device=device))
            self._stack = stack.pop_all()

    def __enter__(self) -> Graphs:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
