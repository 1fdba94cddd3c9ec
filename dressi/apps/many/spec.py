"""The file that says what is to be fitted.

In: TOML. Out: ``Spec``: the fit and the settings of every task. What is wrong is said with the name
of the file and the key, before anything runs.
"""

from __future__ import annotations

import glob
import importlib
import itertools
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dressi.apps.many.fits import Chosen, choose
from dressi.errors import DressiError, LoadError

KEYS = ("fit", "out", "settings", "product", "list")
MOST = 1_000_000
"""Tasks of a spec: more than this is a product that was not meant."""


@dataclass(frozen=True)
class Spec:
    """fit: its name. chosen: the fit itself. items: settings of every task. out: folder. varied:
    settings that are not the same in all tasks, in the order of the file."""

    fit: str
    chosen: Chosen
    items: list[dict[str, Any]]
    out: str
    varied: tuple[str, ...]


def read_spec(path: str | Path) -> Spec:
    """Return what a file says. Paths in it are relative to its folder. Raises LoadError for a file
    that is no TOML or says what cannot be, naming it and the key."""
    file = Path(path)
    try:
        data = toml_loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        kind = "no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise LoadError(f"{path}: {kind}", str(path)) from None
    except ValueError as error:
        raise LoadError(f"{path} is not TOML: {error}", str(path)) from None
    try:
        return make_spec(data, file.resolve().parent)
    except DressiError as error:
        raise LoadError(f"{path}: {error}", str(path)) from None


def toml_loads(text: str) -> dict[str, Any]:
    """Return a TOML document as a dictionary. Raises ValueError."""
    # Python has a reader from 3.11 on; before, it is that of the extra.
    name = "tomllib" if sys.version_info >= (3, 11) else "tomli"
    loaded: dict[str, Any] = importlib.import_module(name).loads(text)
    return loaded


def make_spec(data: Mapping[str, Any], folder: Path) -> Spec:
    """Return the spec of a document. folder: what paths are relative to. Raises DressiError naming
    the key."""
    for key in data:
        if key not in KEYS:
            raise DressiError(f"unknown key '{key}'; known: {', '.join(KEYS)}")
    fit = data.get("fit")
    if not isinstance(fit, str):
        raise DressiError("'fit' is missing: demo, fit, experiment:NAME or module:name")
    out = data.get("out", "out/many")
    if not isinstance(out, str) or not out:
        raise DressiError(f"'out' must be the name of a folder, got {out!r}")
    if "" not in sys.path and str(folder) not in sys.path and ":" in fit:
        sys.path.insert(0, str(folder))  # a module beside the spec
    chosen = choose(fit)
    same = _table(data, "settings")
    product = {k: _values(k, v, folder) for k, v in _table(data, "product").items()}
    rows = data.get("list", [{}])
    if not isinstance(rows, list) or not all(isinstance(r, dict) for r in rows) or not rows:
        raise DressiError("'list' must be tables, each begun by [[list]]")
    items = _items(fit, same, product, rows)
    for k, item in enumerate(items):
        for name in chosen.files:
            if isinstance(item.get(name), str):
                item[name] = _file(name, item[name], folder)
        try:
            chosen.check(item)
        except DressiError as error:
            raise DressiError(f"task {k}: {error}") from None
    varied = dict.fromkeys([*(k for row in rows for k in row), *product])
    return Spec(fit, chosen, items, out, tuple(varied))


def _items(
    fit: str,
    same: Mapping[str, Any],
    product: Mapping[str, list[Any]],
    rows: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """Return the settings of all tasks: every row of the list with every combination."""
    for name in product:
        if any(name in row for row in rows):
            raise DressiError(f"'{name}' is in [product] and in [[list]]: which is meant?")
        if name in same:
            raise DressiError(f"'{name}' is in [product] and in [settings]: which is meant?")
    n = len(rows)
    for values in product.values():
        n *= len(values)
    if n > MOST:
        raise DressiError(f"[product] and [[list]] make {n} tasks, more than {MOST}")
    base = dict(same)
    if fit.startswith("experiment:"):
        base["experiment"] = fit.partition(":")[2]
    return [
        {**base, **row, **dict(zip(product, values, strict=True))}
        for row in rows
        for values in itertools.product(*product.values())
    ]


def _table(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = data.get(key, {})
    if not isinstance(found, Mapping):
        raise DressiError(f"'{key}' must be a table, [{key}]")
    return found


def _values(name: str, given: Any, folder: Path) -> list[Any]:
    """Return the values of a line of [product]: a list, {from, to} (``to`` included) or {files}."""
    if isinstance(given, list) and given:
        return given
    if isinstance(given, Mapping) and set(given) == {"from", "to"}:
        low, high = given["from"], given["to"]
        if type(low) is int and type(high) is int and low <= high:
            if high - low >= MOST:
                raise DressiError(f"product.{name}: {high - low + 1} values, more than {MOST}")
            return list(range(low, high + 1))
    if isinstance(given, Mapping) and set(given) == {"files"} and isinstance(given["files"], str):
        found = sorted(glob.glob(str(folder / given["files"]), recursive=True))
        if not found:
            raise DressiError(f"product.{name}: no file is like {given['files']}")
        return list(found)
    raise DressiError(
        f"product.{name} must be a list of at least one value, {{from = 0, to = 9}} with whole "
        f'numbers, the larger one last, or {{files = "*.obj"}}, got {given!r}'
    )


def _file(name: str, path: str, folder: Path) -> str:
    full = folder / path
    if not full.exists():
        raise DressiError(f"{name} = '{path}': no such file")
    return str(full)
