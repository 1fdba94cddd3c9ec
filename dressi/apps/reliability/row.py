"""One figure: its value beside its threshold."""

from __future__ import annotations

import math
from typing import Any

COLUMNS = ("figure", "value", "threshold", "holds", "cases")

Row = dict[str, Any]


def _row(figure: str, value: float, threshold: float, holds: bool, cases: int) -> Row:
    # JSON has no infinity: what is not a number is None, and does not hold.
    shown = value if math.isfinite(value) else None
    return dict(zip(COLUMNS, (figure, shown, threshold, holds, cases), strict=True))


def below(figure: str, value: float, threshold: float, cases: int) -> Row:
    """Return a figure that holds below its threshold. cases: what the value is the worst of."""
    return _row(figure, value, threshold, value < threshold, cases)


def at_most(figure: str, value: float, threshold: float, cases: int) -> Row:
    """Return a figure that holds up to its threshold, such as a count that must be 0."""
    return _row(figure, value, threshold, value <= threshold, cases)


def not_measured(figure: str) -> Row:
    """Return what cannot be measured here; it neither holds nor fails. figure: why, and what to
    do."""
    return dict(zip(COLUMNS, (figure, None, None, None, 0), strict=True))
