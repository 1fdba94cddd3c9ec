"""Sizes and layers of Variables. In: what a user gives. Out: checked ints; common sizes."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from dressi.errors import GraphError

Size = tuple[int, int]


def checked_shape(what: str, size: Any, layers: Any = 1) -> tuple[Size, int]:
    """(width, height) and layers as ints. what: the caller's name for the message.

    Raises GraphError for numbers that are no ints or below 1.
    """
    try:
        width, height = (operator.index(v) for v in size)
        n_layers = operator.index(layers)
    except (TypeError, ValueError):
        raise GraphError(
            f"{what}: size must be (width, height) and layers an int, "
            f"got size={size!r}, layers={layers!r}"
        ) from None
    if width < 1 or height < 1 or n_layers < 1:
        raise GraphError(
            f"{what}: size and layers must be at least 1, got size={size!r}, layers={layers!r}"
        )
    return (width, height), n_layers


def broadcast(xs: Iterable[Any]) -> tuple[Size, int]:
    """Return the common size and layers of Variables: (1, 1) fits any size, one layer n. Raises
    GraphError."""
    size: Size = (1, 1)
    layers = 1
    for x in xs:
        if x.size != (1, 1):
            if size not in ((1, 1), x.size):
                raise GraphError(
                    f"sizes {size[0]}x{size[1]} and {x.size[0]}x{x.size[1]} do not broadcast "
                    "(equal, or 1x1)"
                )
            size = x.size
        if x.layers != 1:
            if layers not in (1, x.layers):
                raise GraphError(f"layers {layers} and {x.layers} do not broadcast (equal, or 1)")
            layers = x.layers
    return size, layers
