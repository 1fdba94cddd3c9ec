"""What the readers of calibrated photo sets share: faults by place, checked numbers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from dressi.errors import GraphError, LoadError
from dressi.render.camera.distortion import Distortion
from dressi.render.io.images import PathLike
from dressi.render.io.sources import decode_text, near_misses


def fail(file: str, where: str, problem: str) -> LoadError:
    """LoadError(file, where) with both in its message."""
    return LoadError(f"{file}: {where}: {problem}", file, where)


def read_bytes(path: PathLike) -> bytes:
    """Contents of a file. Raises LoadError where it cannot be read."""
    name = os.fspath(path)
    try:
        return Path(path).read_bytes()
    except OSError as error:
        hint = near_misses(Path(path)) if isinstance(error, FileNotFoundError) else ""
        text = f"{name}: cannot be read: {error.strerror or error}{hint}"
        raise LoadError(text, name, "file") from error


def read_lines(path: PathLike) -> list[str]:
    """The lines of a text file, in any encoding and with any line ends that ``decode_text`` knows.

    Not those of ``str.splitlines``, which ends lines at marks that names may hold.
    """
    return decode_text(read_bytes(path), os.fspath(path)).split("\n")


def distortion_of(file: str, where: str, coefficients: Sequence[float]) -> Distortion:
    """Distortion of coefficients in OpenCV's order. Raises LoadError for NaN."""
    try:
        return Distortion(*coefficients)
    except GraphError as error:
        raise fail(file, where, error.reason) from error
