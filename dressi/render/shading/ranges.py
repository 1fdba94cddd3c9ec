"""Ranges of parameters. In: a value that may stand at the end of its range, as defaults do. Out:
the value within the range."""

from __future__ import annotations

from dressi.ad import F, Variable


def inclusive_clamp(x: Variable | float, low: float, high: float) -> Variable:
    """x clamped to [low, high], any type of floats, with the whole gradient on both ends.

    ``F.clamp`` has half of it there, which is right for an image that is cut off. A parameter that
    stands at the end of its range (a roughness of 1) has one side only, and this is its slope.
    Beyond the ends the gradient is 0.
    """
    if not isinstance(x, Variable):
        return F.constant(min(max(float(x), low), high))
    return F.where((x >= low) * (x <= high), x, F.clamp(x, low, high))
