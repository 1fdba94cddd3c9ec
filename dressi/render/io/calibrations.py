"""What the readers of calibrated photo sets share: faults by place, checked numbers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from dressi.errors import GraphError, LoadError
from dressi.render.distortion import Distortion
from dressi.render.io.images import PathLike


def fail(file: str, where: str, problem: str) -> LoadError:
    """LoadError(file, where) with both in its message."""
    return LoadError(f"{file}: {where}: {problem}", file, where)


def read_bytes(path: PathLike) -> bytes:
    """Contents of a file. Raises LoadError where it cannot be read."""
    name = os.fspath(path)
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise LoadError(f"{name}: cannot be read: {error.strerror or error}", name) from error


def distortion_of(file: str, where: str, coefficients: Sequence[float]) -> Distortion:
    """Distortion of coefficients in OpenCV's order. Raises LoadError for NaN."""
    try:
        return Distortion(*coefficients)
    except GraphError as error:
        raise fail(file, where, error.reason) from error
