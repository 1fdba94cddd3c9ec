"""Numbers and lines of reports as text. In: numbers, lines. Out: strings."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

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
