"""The settings of the fit ``demo``, and what is wrong with them.

Apart from the fit itself: a run that is finished is read without an engine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from dressi.errors import DressiError


@dataclass(frozen=True)
class Settings:
    """target: mesh file, None: the pear. size: pixels on a side. views: how many. iterations: on
    the shape; texture_iterations: on the texture, 0: none. K: peels. r_px: reach at the end, in
    pixels; r_start: at the start, as a part of the side. lr: at the start. subdivisions: of the
    sphere. seed: 0: the sphere as it is, else vertices moved at random. deterministic: the same
    bits in every run. picture: whether a contact sheet is kept."""

    target: str | None = None
    size: int = 64
    views: int = 4
    iterations: int = 150
    texture_iterations: int = 0
    K: int = 1
    r_px: float = 1.0
    r_start: float = 0.03
    lr: float = 0.01
    subdivisions: int = 3
    seed: int = 0
    deterministic: bool = True
    picture: bool = True


LEAST: dict[str, float] = {
    "size": 8,
    "views": 1,
    "iterations": 1,
    "texture_iterations": 0,
    "K": 1,
    "r_px": 0.5,
    "r_start": 0.0,
    "lr": 0.0,
    "subdivisions": 0,
    "seed": 0,
}


def check(given: dict[str, Any]) -> Settings:
    """Return the settings. Raises DressiError for a name that there is not, and for values of the
    wrong kind or below the least."""
    own: dict[str, Any] = {f.name: f.default for f in fields(Settings)}
    for name, value in given.items():
        if name not in own:
            raise DressiError(f"demo has no setting '{name}'; known: {', '.join(own)}")
        kind = str if own[name] is None else type(own[name])
        allowed = (int, float) if kind is float else (kind,)
        if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
            raise DressiError(f"demo: {name} must be of type {kind.__name__}, got {value!r}")
        if name in LEAST and not LEAST[name] <= float(value) < math.inf:
            raise DressiError(
                f"demo: {name} must be at least {LEAST[name]}, and finite, got {value!r}"
            )
    return Settings(**given)
