"""What is to be computed, and the name of each result: a hash of everything that it depends on.

In: a function or its name, items. Out: ``Task``, one per item, with a key that is the same in
every process and on every machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dressi.errors import DressiError

FORMAT = 1
"""Of stored results. A change makes all stored ones stale."""

Fit = Callable[..., Mapping[str, Any]]
"""Takes settings, or settings and a Context; returns figures and arrays by name."""


@dataclass(frozen=True)
class Task:
    """One item. key: 32 hexadecimal digits, the name of its result. settings: plain data. identity:
    hash of the settings alone, which results of other versions share."""

    key: str
    settings: Mapping[str, Any]
    identity: str


@dataclass(frozen=True)
class Fingerprint:
    """What the results of a function depend on besides the settings.

    name: ``module:name`` of the function. version: text that changes where its results do. files:
    settings that name files or folders, whose contents count.
    """

    name: str
    version: str
    files: tuple[str, ...] = ()


def resolve(function: Fit | str) -> Fit:
    """Return the function itself, or what ``module:name`` names. Raises DressiError for a name that
    leads nowhere or to what cannot be called."""
    if not isinstance(function, str):
        found: Any = function
    else:
        module, colon, name = function.partition(":")
        if not colon or not module or not name:
            raise DressiError(f"'{function}' is no function: write module:name")
        try:
            found = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except Exception as error:  # whatever the module does while it is imported
            kind = "" if isinstance(error, (ImportError, AttributeError)) else type(error).__name__
            reason = f"{kind}: {error}" if kind else str(error)
            raise DressiError(f"'{function}' cannot be imported: {reason}") from error
    if not callable(found):
        raise DressiError(f"'{function}' is no function, but a {type(found).__name__}")
    return found


def fingerprint(
    function: Fit | str, version: str | None = None, files: Sequence[str] = ()
) -> Fingerprint:
    """Return the name and version of a function. version: None: of Dressi, and a hash of the
    function's own source, of its defaults and of plain data that it captures (of what it calls
    nothing is known). A name with a version is not imported."""
    if isinstance(function, str) and version is not None:
        return Fingerprint(function, version, tuple(files))
    called = resolve(function)
    name = f"{getattr(called, '__module__', '?')}:{getattr(called, '__qualname__', repr(called))}"
    if version is None:
        version = _version(_source(called, name) + _captured(called))
    return Fingerprint(name, version, tuple(files))


def module_version(module: str) -> str:
    """Return the version of the functions of a module of Dressi, which is not imported: that of
    Dressi, and a hash of the module's source."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise DressiError(f"module {module} has no source")
    return _version(Path(spec.origin).read_text(encoding="utf-8"))


def _version(source: str) -> str:
    from dressi import __version__

    return f"dressi {__version__}, source {_digest(source)[:16]}"


def _source(function: Any, name: str) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        if code is None:
            raise DressiError(
                f"the source of {name} cannot be read\n  hint: say version=..., a text that "
                "changes when its results do"
            ) from None
        return f"{code.co_code.hex()} {code.co_consts!r} {code.co_names!r}"


def _captured(function: Any) -> str:
    """Return the values that a function has besides its source: defaults, and variables of the
    function that made it. Two closures of one source are two functions."""
    code = getattr(function, "__code__", None)
    found: dict[str, Any] = {}
    for name, cell in zip(getattr(code, "co_freevars", ()), _cells(function), strict=False):
        with contextlib.suppress(ValueError):  # not assigned yet
            found[name] = cell.cell_contents
    names = code.co_varnames[: code.co_argcount] if code is not None else ()
    defaults = getattr(function, "__defaults__", None) or ()
    found |= dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    found |= getattr(function, "__kwdefaults__", None) or {}
    texts = [f"{name} = {_text_of(value)}" for name, value in sorted(found.items())]
    return "".join(f"\n{text}" for text in texts)


def _cells(function: Any) -> Sequence[Any]:
    return getattr(function, "__closure__", None) or ()


def _text_of(value: Any) -> str:
    """Return plain data as text; of anything else its kind or name, which is all that is the same
    in every process."""
    try:
        return canonical(plain(value))
    except DressiError:
        return str(getattr(value, "__qualname__", type(value).__qualname__))


def make_tasks(items: Iterable[Mapping[str, Any]], of: Fingerprint) -> list[Task]:
    """Return the tasks of the items, in order. Raises DressiError for an item that is no mapping or
    holds what JSON does not, and for a file that is missing, naming the item."""
    read: dict[str, str] = {}
    return [_make(k, item, of, read) for k, item in enumerate(items)]


def _make(k: int, item: Mapping[str, Any], of: Fingerprint, read: dict[str, str]) -> Task:
    if not isinstance(item, Mapping):
        raise DressiError(f"item {k} must be a mapping of settings, got {item!r}")
    settings = {str(name): plain(value, f"item {k}: {name}") for name, value in item.items()}
    contents = {}
    for name in of.files:
        path = settings.get(name)
        if isinstance(path, str):
            if path not in read:
                read[path] = _contents(path, f"item {k}: {name}")
            contents[name] = read[path]
    # A file counts by its name and contents, wherever it lies.
    named = {k: os.path.basename(v) if k in contents else v for k, v in settings.items()}
    base = {"format": FORMAT, "function": of.name, "settings": named}
    identity = _digest(canonical(base))[:32]
    return Task(
        _digest(canonical({**base, "version": of.version, "files": contents}))[:32],
        settings,
        identity,
    )


def plain(value: Any, where: str = "value") -> Any:
    """Return a value as JSON has it: numbers, texts, lists, dictionaries; arrays become lists.
    Raises DressiError naming ``where`` for anything else."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return plain(value.item(), where)
    if isinstance(value, np.ndarray):
        return plain(value.tolist(), where)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (list, tuple)):
        return [plain(v, where) for v in value]
    if isinstance(value, Mapping):
        return {str(k): plain(v, where) for k, v in value.items()}
    raise DressiError(f"{where} is a {type(value).__name__}, not a number, text, list or table")


def canonical(value: Any) -> str:
    """Return the one JSON text of plain data: sorted keys, shortest numbers."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _contents(path: str, where: str) -> str:
    """Return a hash of a file, or of the names and contents of the files in a folder."""
    root = Path(path)
    try:
        files = [root] if not root.is_dir() else sorted(p for p in root.rglob("*") if p.is_file())
        total = hashlib.sha256()
        for file in files:
            total.update(f"{file.relative_to(root)}\0".encode("utf-8", "surrogateescape"))
            total.update(hashlib.sha256(file.read_bytes()).digest())
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise DressiError(f"{where} = {path}: {reason}") from None
    return total.hexdigest()
