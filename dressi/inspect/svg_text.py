"""Pieces of SVG text. In: points, strings, widths. Out: strings that are escaped and fit."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

LETTER = 5.8
"""Mean width of a letter of the usual size, on the safe side."""
DASHED = ' stroke-dasharray="5 3"'
"""Attribute of a dashed line."""

Point = tuple[float, float]


def rounded_path(points: Sequence[Point]) -> str:
    """A path with corners of a small radius."""
    parts = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for before, at, after in zip(points, points[1:], points[2:], strict=False):
        enter, leave = _towards(at, before), _towards(at, after)
        parts.append(
            f"L{enter[0]:.1f} {enter[1]:.1f}Q{at[0]:.1f} {at[1]:.1f} {leave[0]:.1f} {leave[1]:.1f}"
        )
    return "".join(parts) + f"L{points[-1][0]:.1f} {points[-1][1]:.1f}"


def _towards(a: Point, b: Point, radius: float = 4.0) -> Point:
    """The point at a small distance from a towards b."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    length = max(abs(dx), abs(dy), 1e-6)
    part = min(radius, length / 2) / length
    return a[0] + part * dx, a[1] + part * dy


def cut(text: str, width: float, letter: float = LETTER, keep_end: bool = False) -> str:
    """Text that fits."""
    n = int(width / letter)
    if len(text) <= n:
        return text
    return "\u2026" + text[len(text) - n + 1 :] if keep_end else text[: n - 1] + "\u2026"


def text_at(x: float, y: float, text: str, more: str = "") -> str:
    """A text element. more: further attributes."""
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escaped(text)}</text>'


def escaped(text: str) -> str:
    """Escaped, and without what XML cannot hold."""
    allowed = r"[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
    return html.escape(re.sub(allowed, "\ufffd", text))
