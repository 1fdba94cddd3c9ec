"""Text of reports and drawings. In: numbers, lines, points. Out: strings, those of SVG escaped."""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Iterator, Sequence

COLUMNS = 110
"""Width of the text: it fits a terminal on half a screen."""


def ms_text(ms: float | None) -> str:
    """A time, to a microsecond; - where there is none."""
    return "-" if ms is None else f"{ms:.3f}"


def mb_text(n: int) -> str:
    """Bytes in MB."""
    return f"{n / 1e6:.1f} MB"


def size_text(n: int) -> str:
    """Bytes in the largest unit that leaves a number above 1."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if n >= unit:
            return f"{n / unit:.1f} {name}"
    return f"{n} B"


def count_text(n: int, what: str) -> str:
    """A count and its noun, in the plural unless it is 1."""
    return f"{n} {what}" + ("" if n == 1 else "s")


def wrapped(lines: Iterator[str]) -> Iterator[str]:
    """Lines of at most COLUMNS; what does not fit goes on below, further in."""
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        yield from textwrap.wrap(
            line, COLUMNS, subsequent_indent=indent, break_on_hyphens=False, tabsize=1
        )


def clipped(line: str) -> str:
    """One line of at most COLUMNS."""
    line = " ".join(line.splitlines())
    return (line if len(line) <= COLUMNS else line[: COLUMNS - 3] + "...").rstrip()


# -- SVG

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
