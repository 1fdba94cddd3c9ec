"""Are two scenes the same, field by field? Used by the tests of readers and writers."""

from __future__ import annotations

import dataclasses

import numpy as np


def differences(a, b, where="scene", skip=("notes",)):
    """Places where two scenes differ: in kind, shape or value (floats by more than rounding)."""
    if type(a) is not type(b) and not {type(a), type(b)} <= {int, float}:
        return [f"{where}: {type(a).__name__} and {type(b).__name__}"]
    if dataclasses.is_dataclass(a):
        names = [f.name for f in dataclasses.fields(a) if f.name not in skip]
        return [
            d
            for n in names
            for d in differences(getattr(a, n), getattr(b, n), f"{where}.{n}", skip)
        ]
    if isinstance(a, (tuple, list)):
        if len(a) != len(b):
            return [f"{where}: {len(a)} and {len(b)} entries"]
        pairs = enumerate(zip(a, b, strict=True))
        return [d for i, (x, y) in pairs for d in differences(x, y, f"{where}[{i}]", skip)]
    if isinstance(a, np.ndarray):
        same = a.shape == b.shape and a.dtype == b.dtype and np.allclose(a, b, rtol=1e-6, atol=1e-6)
    elif isinstance(a, float):
        same = abs(a - b) <= 1e-6 * max(1.0, abs(a))
    else:
        same = a == b
    return [] if same else [f"{where}: {a!r:.80} and {b!r:.80}"]
