"""Small files kept between runs: SPIR-V by content, pipeline caches by driver.

In: bytes and a name. Out: the same bytes in a later run, or None. A file that was cut short or
changed is never trusted (each carries a digest), and failing to read or write is never an error: a
cache may be missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from pathlib import Path

_MAGIC = b"dressi1\n"
_DIGEST = 16


def read(path: Path) -> bytes | None:
    """The content stored under a path; None when it is missing or damaged."""
    try:
        blob = path.read_bytes()
    except OSError:
        return None
    start = len(_MAGIC) + _DIGEST
    data = blob[start:]
    if blob[:start] != _MAGIC + _digest(data):
        return None
    return data


def write(path: Path, data: bytes) -> None:
    """Stores content under a path, atomically: readers see the old file, the new one, or none."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.parent / f".{secrets.token_hex(8)}.tmp"
        try:
            with open(temporary, "xb") as file:  # with the mode of any new file (umask)
                file.write(_MAGIC + _digest(data) + data)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def prune(folder: Path, limit: int) -> None:
    """Removes the oldest files of a folder until it holds at most ``limit`` bytes."""
    with contextlib.suppress(OSError):
        with os.scandir(folder) as entries:  # closed also where a file vanishes meanwhile
            files = sorted(
                (status.st_mtime_ns, status.st_size, entry.path)
                for entry in entries
                if entry.is_file() and (status := entry.stat())
            )
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            if total <= limit:
                return
            with contextlib.suppress(OSError):
                os.unlink(path)
            total -= size


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST).digest()
