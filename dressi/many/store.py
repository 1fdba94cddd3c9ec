"""Results on disk, one file per task, each there as a whole or not at all.

In: a folder. Out: ``Store``. ``results/KEY.json`` is written last: what it names is complete.
``files/KEY`` holds arrays and pictures of the task, ``failed/KEY.json`` tasks that were set aside.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dressi.errors import DressiError

ARRAYS = "arrays.npz"


@dataclass(frozen=True)
class Result:
    """The result of a task. figures: numbers, texts and lists. arrays: by name. folder: of the
    files that it wrote, None: none were kept. info: seconds, worker, device, builds and reuses of
    the worker's warm objects, attempt."""

    key: str
    settings: Mapping[str, Any]
    figures: Mapping[str, Any]
    info: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    folder: Path | None = None
    held: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays of the result, by name; read from the folder where they are kept there."""
        if self.folder is None or ARRAYS not in self.files:
            return dict(self.held)
        with np.load(self.folder / ARRAYS) as found:
            return {name: found[name] for name in found.files}


class Store:
    """Results in a folder. Made by any number of processes at the same time."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.results = self.folder / "results"
        self.files = self.folder / "files"
        self.failed = self.folder / "failed"
        self.claims = self.folder / "claims"

    def make(self) -> None:
        """Make the folders. Raises DressiError naming the folder where that cannot be."""
        try:
            for folder in (self.results, self.files, self.failed, self.claims):
                folder.mkdir(parents=True, exist_ok=True)
            probe = self.folder / f".probe-{secrets.token_hex(8)}"
            try:
                probe.write_bytes(b"\0")
            finally:  # a full disk makes a file, and refuses its byte
                probe.unlink(missing_ok=True)
        except OSError as error:
            raise DressiError(f"{self.folder}: cannot write there: {error}") from None

    def keys(self) -> set[str]:
        """Keys of all results."""
        return _stems(self.results)

    def failed_keys(self) -> set[str]:
        """Keys of the tasks that were set aside."""
        return _stems(self.failed)

    def has(self, key: str) -> bool:
        """Whether there is a result."""
        return (self.results / f"{key}.json").exists()

    def was_set_aside(self, key: str) -> bool:
        """Whether the task was set aside."""
        return (self.failed / f"{key}.json").exists()

    def record(self, key: str) -> dict[str, Any] | None:
        """The stored JSON of a result; None where there is none that can be read."""
        return _read(self.results / f"{key}.json")

    def failure(self, key: str) -> dict[str, Any] | None:
        """Why a task was set aside: ``error``, ``tracebacks``; None where it was not."""
        return _read(self.failed / f"{key}.json")

    def result(self, key: str) -> Result | None:
        """A result; None where there is none that can be read, or files that it names are gone."""
        found = self.record(key)
        result = None if found is None else self.result_of(found)
        if result is None or not all((self.files / key / name).exists() for name in result.files):
            return None
        return result

    def result_of(self, record: Mapping[str, Any]) -> Result:
        """The result that a stored JSON describes."""
        return Result(
            record["key"],
            record["settings"],
            record["figures"],
            record["info"],
            tuple(record["files"]),
            self.files / record["key"],
        )

    def scratch(self, key: str) -> Path:
        """A new folder for the files of a task, on the same file system."""
        folder = self.files / f".{key}-{secrets.token_hex(4)}.tmp"
        folder.mkdir(parents=True)
        return folder

    def sweep(self, key: str) -> None:
        """Remove what attempts that were killed have left. The caller holds the claim."""
        for left in self.files.glob(f".{key}-*.tmp"):
            shutil.rmtree(left, ignore_errors=True)
        for left in self.results.glob(f".{key}-*.tmp"):
            left.unlink(missing_ok=True)

    def commit(
        self, record: Mapping[str, Any], arrays: Mapping[str, np.ndarray], scratch: Path | None
    ) -> dict[str, Any]:
        """Store a result: files first, then the JSON that names them. The caller holds the claim of
        the task. Return what was stored. Raises OSError; then there is no result."""
        files: list[str] = []
        key = record["key"]
        if arrays:
            scratch = scratch or self.scratch(key)
            (scratch / ARRAYS).write_bytes(npz_bytes(arrays))
        if scratch is not None:
            files = sorted(
                p.relative_to(scratch).as_posix() for p in scratch.rglob("*") if p.is_file()
            )
        if scratch is not None and files:
            for name in files:
                _sync(scratch / name)
            kept = self.files / key
            if kept.exists():  # of a process that ended before it stored the JSON
                shutil.rmtree(kept)
            os.replace(scratch, kept)
            _sync(self.files)
        elif scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        stored = {**record, "files": files}
        try:
            write_durably(self.results / f"{key}.json", _json(stored))
        except OSError:
            shutil.rmtree(self.files / key, ignore_errors=True)
            raise
        return stored

    def set_aside(self, record: Mapping[str, Any]) -> None:
        """Store why a task is not tried again."""
        write_durably(self.failed / f"{record['key']}.json", _json(record))

    def forget_failures(self, keys: Iterable[str]) -> None:
        """Let tasks that were set aside be tried again."""
        for key in keys:
            (self.failed / f"{key}.json").unlink(missing_ok=True)


def write_durably(path: Path, data: bytes) -> None:
    """Write a file that is there as a whole or not at all, and, after this returns, outlives a
    crash of the machine. Raises OSError."""
    # Not atomic_write: ``sweep`` finds by its name what a killed attempt has left.
    beside = path.with_name(f".{path.stem}-{secrets.token_hex(4)}.tmp")
    try:
        with open(beside, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def npz_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Arrays as a file of NumPy; the same bytes for the same arrays."""
    packed = io.BytesIO()
    np.savez(packed, **arrays)  # type: ignore[arg-type]
    return packed.getvalue()


def _sync(path: Path) -> None:
    if os.name != "posix" and path.is_dir():
        return  # Windows has no descriptor for a folder
    descriptor = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _json(data: Mapping[str, Any]) -> bytes:
    return (json.dumps(data, separators=(",", ":")) + "\n").encode()


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _stems(folder: Path) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {e.name[:-5] for e in entries if e.name.endswith(".json") and e.name[0] != "."}
    except FileNotFoundError:
        return set()
