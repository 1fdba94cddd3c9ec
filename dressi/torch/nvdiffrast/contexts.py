"""Rasterizer contexts, accepted for scripts that make them, and the level of the log."""

from __future__ import annotations

import logging
from typing import Any

from dressi.errors import GraphError

_LEVELS = (logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
"""Of the logger ``dressi``, by level 0 (all) to 3 (only fatal errors)."""

_level = 1


class RasterizeCudaContext:
    """A context for ``rasterize``. It holds nothing: all calls share one device, the one that
    ``DRESSI_DEVICE`` names.

    device: accepted and kept.
    """

    output_db = True

    def __init__(self, device: Any = None) -> None:
        self.device = device


class RasterizeGLContext(RasterizeCudaContext):
    """The same. output_db: whether ``rasterize`` returns the derivatives of barycentrics, else an
    empty tensor. mode: ``automatic`` or ``manual``, both the same here."""

    def __init__(self, output_db: bool = True, mode: str = "automatic", device: Any = None) -> None:
        super().__init__(device)
        if mode not in ("automatic", "manual"):
            raise GraphError(
                f"RasterizeGLContext: mode must be 'automatic' or 'manual', got {mode!r}"
            )
        self.output_db, self.mode = bool(output_db), mode

    def set_context(self) -> None:
        """Do nothing: there is no OpenGL context."""

    def release_context(self) -> None:
        """Do nothing: there is no OpenGL context."""


def get_log_level() -> int:
    """The level that ``set_log_level`` set, at first 1."""
    return _level


def set_log_level(level: int) -> None:
    """Show messages of at least this level: 0 info, 1 warnings, 2 errors, 3 fatal errors. It sets
    the level of the logger ``dressi``."""
    global _level
    if not isinstance(level, int) or not 0 <= level <= 3:
        raise GraphError(f"set_log_level: level must be 0, 1, 2 or 3, got {level!r}")
    _level = level
    logging.getLogger("dressi").setLevel(_LEVELS[level])
