"""Numbers and Variables side by side: what materials and lights are made of, and their ranges."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import TypeAlias

from dressi.ad import F, Variable
from dressi.ad.graph import short
from dressi.ad.vtype import VType
from dressi.errors import GraphError

Value: TypeAlias = Variable | float | Sequence[float]
"""A Variable (a parameter, an image, a value per view), a number, or the numbers of a vector."""


def as_variable(what: str, value: Value, vtype: VType) -> Variable:
    """value as a Variable of that type; a number counts for every component.

    what: whose value it is, for the error. Raises GraphError for a Variable of another type, and
    for numbers that do not fit.
    """
    if isinstance(value, Variable):
        if value.vtype is not vtype:
            raise GraphError(f"{what} must be {vtype.name}, got {value.label()}")
        return value
    try:
        return F.constant(value, vtype)
    except GraphError as error:
        raise GraphError(
            f"{what} must be {vtype.name}, got {short(value)}: {error.reason}"
        ) from error


def check_class(what: str, value: object, kind: type) -> None:
    """Raise GraphError unless value is of that class."""
    if not isinstance(value, kind):
        raise GraphError(f"{what} must be a {kind.__name__}, got {short(value)}")


def as_number(value: object) -> float | None:
    """value as a float; None for Variables and everything else that is no real number."""
    return float(value) if isinstance(value, Real) else None


def check_positive(what: str, value: object) -> None:
    """Raise GraphError where value is a number that is not above 0. Variables pass."""
    number = as_number(value)
    if number is not None and not number > 0.0:
        raise GraphError(f"{what} must be positive, got {value!r}")


def check_number(what: str, value: object, low: float, high: float) -> None:
    """Raise GraphError where value is a number outside [low, high] (or NaN). Variables pass: what
    is sent later is the sender's."""
    number = as_number(value)
    if number is not None and not low <= number <= high:
        raise GraphError(f"{what} must be in [{low:g}, {high:g}], got {value!r}")


def inclusive_clamp(x: Variable | float, low: float, high: float) -> Variable:
    """x clamped to [low, high], any type of floats, with the whole gradient on both ends.

    ``F.clamp`` has half of it there, which is right for an image that is cut off. A parameter that
    stands at the end of its range (a roughness of 1) has one side only, and this is its slope.
    Beyond the ends the gradient is 0.
    """
    if not isinstance(x, Variable):
        return F.constant(min(max(float(x), low), high))
    return F.where((x >= low) * (x <= high), x, F.clamp(x, low, high))
