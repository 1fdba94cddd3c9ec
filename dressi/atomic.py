"""Writing a file whole or not at all. Needs nothing else of Dressi."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path


def atomic_write(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file so that a crash or a full disk leaves the old file or the new one, never a part.

    The bytes go to a temporary file beside ``path``, are synced, then renamed. A symbolic link
    stays one: the file it leads to is replaced. The new file has the mode of the old one, or that
    of any new file (umask). What is no regular file (a pipe, /dev/stdout) is written to as it is.
    Raises OSError.
    """
    target = Path(os.path.realpath(path))
    try:
        old = target.stat()
    except FileNotFoundError:
        old = None
    if old is not None and not stat.S_ISREG(old.st_mode) and not stat.S_ISDIR(old.st_mode):
        target.write_bytes(data)
        return
    if not target.parent.is_dir():  # the error would name the file beside it
        raise FileNotFoundError(errno.ENOENT, "No such folder", str(target.parent))
    # Not named after the target: a name may be as long as names can be.
    beside = target.with_name(f".dressi-{secrets.token_hex(8)}.tmp")
    try:
        with open(beside, "xb") as file:
            if old is not None and os.name == "posix":
                os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
