"""What ``DRESSI_DUMP`` and ``DRESSI_DEBUG`` ask for: texts of a build in a folder, and a log.

In: graphs, plans and shaders as text. Out: files that are numbered over all engines of the process.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from pathlib import Path

from dressi import config
from dressi.errors import DressiError

_numbers = itertools.count()  # so that no dump overwrites another


def dump(name: str, text: Callable[[], str], suffix: str) -> None:
    """Write a text of a build, where a folder for them is set; else it is not made. Raises
    DressiError when the folder cannot be written."""
    folder: Path | None = config.dump_dir()
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{next(_numbers):03d}_{name}{suffix}").write_text(
            text() + "\n", encoding="utf-8", errors="backslashreplace"
        )
    except OSError as error:
        raise DressiError(f"DRESSI_DUMP={folder}: cannot write: {error}") from None


def set_up_log() -> None:
    """DRESSI_DEBUG: 1 a line per build, 2 plans, 3 graphs, 4 shaders, on standard error."""
    log = logging.getLogger("dressi")
    if config.debug_level() > 0 and not log.handlers:
        log.addHandler(logging.StreamHandler())
        log.setLevel(logging.DEBUG)
