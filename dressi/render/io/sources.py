"""Bytes and text of the files that are read, and what is said about those that are not there.

In: paths. Out: bytes; text without byte order marks and with "\\n" as the only line end; the words
of an error that name the folder and the files in it that nearly fit.
"""

from __future__ import annotations

import codecs
import os
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path, PureWindowsPath

from dressi.errors import GraphError, LoadError

PathLike = str | os.PathLike[str]

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_MOST_NAMES = 4096  # of a folder that is searched for names that nearly fit


def fail(file: str, where: str, problem: object) -> LoadError:
    """Return the error to raise: file, place and problem."""
    return LoadError(f"{file}: {where}: {problem}", file, where)


@contextmanager
def blamed_on(file: str, where: str = "") -> Iterator[None]:
    """Turn a GraphError about what a file holds into a LoadError.

    where: the place in the file; default what the reason begins with.
    """
    try:
        yield
    except GraphError as error:
        if where:
            raise fail(file, where, error.reason) from error
        raise LoadError(f"{file}: {error.reason}", file, error.reason.partition(":")[0]) from error


def read_file(path: PathLike, owner: str = "", where: str = "file") -> bytes:
    """Return the bytes of a regular file. Raises LoadError: not there, a folder, a pipe.

    owner, where: the file that names this one, and the place in it. The text of the error names the
    folder that was looked in, and near misses.
    """
    file, at = owner or os.fspath(path), Path(path)
    what = f"{file}: {where}: {at.name!r}" if owner else f"{file}:"
    try:
        is_other = at.exists() and not at.is_file()  # a pipe or a device would never end
        data = b"" if is_other else at.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        reason = getattr(error, "strerror", None) or error
        hint = near_misses(at) if isinstance(error, FileNotFoundError) else ""
        raise LoadError(f"{what} cannot be read: {reason}{hint}", file, where) from error
    if is_other:
        raise LoadError(f"{what} is no regular file", file, where)
    return data


def near_misses(path: Path) -> str:
    """What to append to "is not there": the folder, and names in it that nearly are ``path.name``.

    Near are names that differ in case, in how an umlaut is encoded, in the ending, or in a few
    letters.
    """
    folder = path.parent
    if not folder.is_dir():
        return f"; the folder '{folder}' is not there"
    names: list[str] = []
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry, _ in zip(entries, range(_MOST_NAMES), strict=False)]
    except OSError:
        pass  # a folder that cannot be listed has no hints

    def plain(name: str) -> str:
        return unicodedata.normalize("NFC", name).casefold()

    wanted, by_name = plain(path.name), {plain(name): name for name in sorted(names)}
    near = [wanted] if wanted in by_name else []
    near += [name for name in by_name if Path(name).stem == Path(wanted).stem]
    near += get_close_matches(wanted, by_name, 3, 0.75)
    found = ", ".join(f"'{by_name[name]}'" for name in list(dict.fromkeys(near))[:3])
    return f"; looked in the folder '{folder}'" + (f", which has {found}" if found else "")


def find_beside(folder: Path, name: str, last_part: bool = True) -> Path | None:
    """The file that a text names, relative to the text's folder; None where there is none.

    Tried in this order: the name as it is, without quotes around it, with backslashes as slashes
    (Windows), and with ``last_part`` the last part of the name in ``folder`` itself (paths of
    another machine).
    """
    bare = name.strip().strip('"').strip()
    last = PureWindowsPath(bare).name if last_part else ""
    for tried in (name, bare, bare.replace("\\", "/"), last):
        try:
            if tried and (folder / tried).is_file():
                return folder / tried
        except (OSError, ValueError):  # too long, a zero byte
            continue
    return None


def not_there(folder: Path, name: str) -> str:
    """The words for a name that ``find_beside`` finds nothing for."""
    bare = name.strip().strip('"').replace("\\", "/")
    try:
        return f"{name} is not there{near_misses(folder / bare)}"
    except (OSError, ValueError):
        return f"{name[:80]!r} is no file name"


def decode_text(data: bytes, file: str, where: str = "text") -> str:
    """The text of a file, whose lines end with "\\n" however they end in the file.

    A byte order mark says the encoding and is dropped; without one it is UTF-8, and lines that are
    no UTF-8 are Latin-1. Raises LoadError: broken UTF-16 or UTF-32, UTF-16 without a mark.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark) and encoding != "utf-8":
            try:
                return _newlines(data[len(mark) :].decode(encoding))
            except UnicodeDecodeError as error:
                raise fail(file, where, f"broken {encoding.upper()}: {error.reason}") from error
    data = data.removeprefix(codecs.BOM_UTF8)
    if len(data) >= 2 and (data[0] == 0) != (data[1] == 0):
        text = "this seems to be UTF-16 without a byte order mark; save the file as UTF-8"
        raise fail(file, where, text)
    return _newlines(decode_name(data))


def decode_name(data: bytes) -> str:
    """Bytes as UTF-8; lines that are no UTF-8 as Latin-1, in which every byte is a letter."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        if b"\n" not in data:
            return data.decode("latin-1")
        return "\n".join(decode_name(line) for line in data.split(b"\n"))


def _newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def read_text(path: PathLike, owner: str = "") -> str:
    """The text of a file (``decode_text``). Raises LoadError as ``read_file`` and that."""
    return decode_text(read_file(path, owner), os.fspath(path))


def is_number(word: str) -> bool:
    """True for what ``float`` reads."""
    try:
        float(word)
    except ValueError:
        return False
    return True
