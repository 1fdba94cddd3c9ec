"""What ``dressi many`` shows while it runs: a bar with the time left, a row per worker."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dressi.many import Progress

WORKERS_SHOWN = 16
"""Rows of the table: more do not fit on a screen."""

LINES_S = 10.0
"""Seconds between lines where the output is no terminal."""


class Display:
    """A live table on standard error; a line now and then where that is no terminal; nothing when
    quiet."""

    def __init__(self, title: str, quiet: bool = False) -> None:
        self._title, self._quiet = title, quiet
        self._console = Console(file=sys.stderr, highlight=False)
        self._live: Live | None = None
        self._said = time.perf_counter()

    def __enter__(self) -> Display:
        if not self._quiet and self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, progress: Progress) -> None:
        """Show how far a run is."""
        if self._live is not None:
            self._live.update(picture(self._title, progress))
        elif not self._quiet and time.perf_counter() - self._said > LINES_S:
            self._said = time.perf_counter()
            self._console.print(f"{self._title}: {words(progress)}", soft_wrap=True)


def words(progress: Progress) -> str:
    """Return one line: how many are done, and the time left."""
    left = progress.seconds_left
    text = f"{progress.done} of {progress.total}"
    if progress.failed:
        text += f", {progress.failed} set aside"
    text += f", {progress.workers} workers"
    return text if left is None else f"{text}, {duration(left)} left"


def duration(seconds: float) -> str:
    """Return seconds as h:mm:ss."""
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02d}:{s:02d}"


def picture(title: str, progress: Progress) -> Group:
    """Return the bar, the line of words and the table of workers."""
    done = progress.done + progress.failed
    parts: list[object] = [
        Text(f"{title}: {words(progress)}"),
        ProgressBar(total=max(progress.total, 1), completed=done, width=60),
    ]
    if progress.dashboard:
        parts.append(Text(f"dashboard: {progress.dashboard}"))
    table = Table("worker", "tasks done")
    ranked = sorted(progress.worker.items(), key=lambda item: -item[1])
    for name, n in ranked[:WORKERS_SHOWN]:
        table.add_row(name, str(n))
    if progress.worker:
        parts.append(table)
    return Group(*parts)  # type: ignore[arg-type]
