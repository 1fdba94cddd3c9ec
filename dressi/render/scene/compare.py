"""Are two scenes the same? Field by field, floats but for rounding.

In: two scenes (or any of their parts). Out: a list of the places where they differ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

TOLERANCE = 1e-6
"""Relative, and absolute below 1: files hold float32, images whole steps of 8 or 16 bits."""


def differences(
    a: Any, b: Any, where: str = "scene", skip: Sequence[str] = ("notes",)
) -> list[str]:
    """Places where two scenes differ in kind, shape or value, one line each; empty: the same.

    skip: names of fields that do not count. Numbers may differ by ``TOLERANCE``.
    """
    if type(a) is not type(b) and not {type(a), type(b)} <= {int, float}:
        return [f"{where}: {type(a).__name__} and {type(b).__name__}"]
    if dataclasses.is_dataclass(a):
        names = [f.name for f in dataclasses.fields(a) if f.name not in skip]
        found = [differences(getattr(a, n), getattr(b, n), f"{where}.{n}", skip) for n in names]
        return [line for lines in found for line in lines]
    if isinstance(a, (tuple, list)):
        if len(a) != len(b):
            return [f"{where}: {len(a)} and {len(b)} entries"]
        pairs = enumerate(zip(a, b, strict=True))
        found = [differences(x, y, f"{where}[{i}]", skip) for i, (x, y) in pairs]
        return [line for lines in found for line in lines]
    if isinstance(a, np.ndarray):
        same = a.shape == b.shape and a.dtype == b.dtype
        same = same and np.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE)
    elif isinstance(a, float):
        same = abs(a - b) <= TOLERANCE * max(1.0, abs(a))
    else:
        same = a == b
    return [] if same else [f"{where}: {a!r:.80} and {b!r:.80}"]
