"""The command line that results come from, for their pages. Imports nothing heavy."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

_line: ContextVar[str] = ContextVar("command_line", default="")


@contextmanager
def made_by(argv: Sequence[str]) -> Iterator[None]:
    """Within the block, ``command_line`` is that of these arguments of ``dressi``."""
    token = _line.set(shlex.join(["dressi", *argv]))
    try:
        yield
    finally:
        _line.reset(token)


def command_line() -> str:
    """Return the command as a shell reads it; '' where none runs, in a program for example."""
    return _line.get()
