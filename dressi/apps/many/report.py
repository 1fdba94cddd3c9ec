"""The results of a run as files: CSV, Parquet, and one HTML page that needs nothing else.

In: a spec and its run. Out: ``table.csv``, ``table.parquet``, ``report.html`` in the folder.
"""

from __future__ import annotations

import base64
import csv
import importlib.util
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dressi.apps.made_by import command_line
from dressi.apps.many.page import page
from dressi.apps.many.spec import Spec
from dressi.atomic import atomic_write
from dressi.many import Result, Run

PICTURE_BYTES = 200_000
"""A larger picture is linked to, not put into the page."""

PICTURES = 500
"""Pictures in the page; the rest is linked to. A page of 100 MB opens nowhere."""

INFO = ("seconds", "worker", "device", "builds", "reuses", "attempt")
"""Columns about how a task went, behind its figures."""


def write_report(out: Path, spec: Spec, run: Run) -> list[str]:
    """Write the table and the page, atomically; return the names of the files."""
    rows = table(spec, run)
    atomic_write(out / "table.csv", csv_bytes(rows))
    files = ["table.csv"]
    if importlib.util.find_spec("pyarrow") is not None:
        atomic_write(out / "table.parquet", parquet_bytes(rows))
        files.append("table.parquet")
    shown = [_pictures(out, r, k < PICTURES) for k, r in enumerate(run.results)]
    made = command_line()
    text = page(spec.fit, rows, spec.varied, shown, _curves(run.results), run.failures, made)
    atomic_write(out / "report.html", text.encode())
    return [*files, "report.html"]


def table(spec: Spec, run: Run) -> list[dict[str, Any]]:
    """Return a row per task: key, status, settings, figures that are numbers or texts (those of a
    table within the figures as ``table.name``), how it went. All rows have the same columns, None
    where there is nothing."""
    settings = list(dict.fromkeys(k for item in spec.items for k in item))
    cells = [{} if r is None else _cells(r.figures) for r in run.results]
    figures = list(dict.fromkeys(name for own in cells for name in own))
    rows = []
    for key, item, result, own in zip(run.keys, spec.items, run.results, cells, strict=True):
        row: dict[str, Any] = {"key": key, "status": "done" if result else "set aside"}
        row |= {k: _cell(item.get(k)) for k in settings}
        row |= {_column(name, settings): own.get(name) for name in figures}
        info = {} if result is None else result.info
        row |= {_column(k, [*settings, *figures]): info.get(k) for k in INFO}
        rows.append(row)
    return rows


def _cells(figures: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in figures.items():
        if isinstance(value, Mapping):
            found |= _cells(value, f"{before}{name}.")
        elif _is_cell(value):
            found[before + name] = value
    return found


def _column(name: str, taken: Sequence[str]) -> str:
    return f"{name}_" if name in taken or name in ("key", "status") else name


def _is_cell(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _cell(value: Any) -> Any:
    return value if _is_cell(value) else json.dumps(value)


def csv_bytes(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return a table as CSV, numbers so that they are read back as they were."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["key"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def parquet_bytes(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return a table as Parquet. A column that holds numbers and texts becomes texts."""
    import pyarrow
    import pyarrow.parquet

    columns = {name: _alike([row[name] for row in rows]) for name in (rows[0] if rows else ["key"])}
    packed = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), packed)
    return packed.getvalue()


def _alike(values: list[Any]) -> list[Any]:
    kinds = {type(v) for v in values if v is not None}
    if kinds == {int, float}:
        return [None if v is None else float(v) for v in values]
    if len(kinds) > 1:
        return [None if v is None else str(v) for v in values]
    return values


def _pictures(out: Path, result: Result | None, inside: bool) -> list[tuple[str, str]]:
    """Return (name, address) of the pictures of a task; the address is the picture itself where
    that is small."""
    if result is None or result.folder is None:
        return []
    found = []
    for name in result.files:
        if not name.endswith(".png"):
            continue
        path = result.folder / name
        address = path.relative_to(out.resolve()).as_posix()
        if inside and path.stat().st_size <= PICTURE_BYTES:
            data = base64.b64encode(path.read_bytes()).decode()
            address = f"data:image/png;base64,{data}"
        found.append((name, address))
    return found


def _curves(results: Sequence[Result | None]) -> list[dict[str, list[float]]]:
    """Return the figures of each task that are lists of numbers."""
    out = []
    for result in results:
        figures = {} if result is None else result.figures
        out.append(
            {
                k: v
                for k, v in figures.items()
                if isinstance(v, list)
                and len(v) > 1
                and all(isinstance(x, (int, float)) for x in v)
            }
        )
    return out
