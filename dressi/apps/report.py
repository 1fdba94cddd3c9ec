"""What the commands print and write. In: figures. Out: a table, a JSON file, the yardstick of the
device."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

import dressi
from dressi.atomic import atomic_write
from dressi.errors import DressiError, GraphError

if TYPE_CHECKING:
    from dressi.engine import DressiAD

COPY_SIZE = 1024


def copy1024_ms(device: str | int | None = None, n: int = 9) -> float:
    """Return the median ms of a plain 1024 x 1024 RGBA32F fragment copy, the yardstick beside every
    timing."""
    from dressi.ad import Variable
    from dressi.ad.simplify import materialize
    from dressi.ad.vtype import VEC4
    from dressi.engine import DressiAD

    source = Variable(VEC4, (COPY_SIZE, COPY_SIZE), name="source")
    with DressiAD(device) as ad:
        ad.set_loss_var(materialize(source))
        ad.send_img(source, np.zeros((COPY_SIZE, COPY_SIZE, 4), np.float32))
        return ad.stage_times_ms(n)[0][1]


@functools.cache
def commit() -> str:
    """Return the commit of the checkout that the package runs from, with + when it has changes; or
    unknown. Asked once per process, for a commit that is made while it runs is not what it runs:
    parts of an experiment that were kept before would count as those of another."""
    folder = Path(dressi.__file__).parent
    try:
        head, status = (
            subprocess.run(
                ["git", *words],
                cwd=folder,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=10,
            )
            for words in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "-uno"])
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    if head.returncode != 0:
        return "unknown"
    return head.stdout.strip() + ("+" if status.stdout.strip() else "")


def check_outputs(out: str | None, json_file: str | None) -> None:
    """Make the folder and see that the JSON file can be written, before minutes of work. Raises
    DressiError naming the path."""
    for option, path in (("--out", out), ("--json", json_file)):
        if path is None:
            continue
        folder = Path(path) if option == "--out" else Path(path).resolve().parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if option == "--json" and Path(path).is_dir():
                raise IsADirectoryError("it is a folder")
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise DressiError(f"{option} {path}: cannot write there: {error}") from None


def check_least(**least: tuple[int | None, int]) -> None:
    """Raise GraphError that names the option, for a number below what it needs. least: (given,
    least) by the option's name without dashes; None: not given."""
    for name, (given, low) in least.items():
        if given is not None and given < low:
            option = "--" + name.replace("_", "-")
            raise GraphError(f"{option} {given}: must be at least {low}")


def write_json(path: str | Path, data: Mapping[str, Any]) -> None:
    """One JSON object, atomically."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, (json.dumps(data, indent=2) + "\n").encode())


def print_table(title: str, rows: Mapping[str, Any]) -> None:
    """A short two-column table on standard output."""
    table = Table(title=title, show_header=False, title_justify="left")
    for name, value in rows.items():
        table.add_row(name, f"{value:.4g}" if isinstance(value, float) else str(value))
    Console(file=sys.stdout, width=100).print(table)


def try_loss_curves(path: Path, curves: Mapping[str, Sequence[float]], title: str) -> None:
    """Loss curves as a PNG; without matplotlib (an extra) a line that says so instead of an error,
    because the fit itself is done."""
    from dressi.render.io import loss_curves

    try:
        loss_curves(path, curves, title)
    except DressiError as error:
        print(f"no loss curves: {error}", file=sys.stderr)


def identity(ad: DressiAD) -> dict[str, str]:
    """Return device, driver and commit, for every JSON."""
    info = ad.device_info
    return {"device": info.name, "driver": info.driver, "commit": commit()}
