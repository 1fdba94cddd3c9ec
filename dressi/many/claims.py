"""Who works on a task: claims in the folder of the results, which runs and machines share.

``claims/KEY.N`` is the N-th attempt at a task: made exclusively, so that one process has it. An
attempt is over where its process is dead or has not touched the file for STALE seconds; then
attempt N + 1 may be made. Nothing is locked, so nothing stays locked.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

BEAT, STALE = 5.0, 60.0
"""Seconds between touches of a claim, and without one before it counts as abandoned. Twelve beats:
a network file system may delay some."""

_OVER = "failed"


@cache
def host() -> str:
    """Name of this machine and, on Linux, of this boot and this container's processes: a process
    number means the same thing wherever this text is the same."""
    parts = [platform.node()]
    if os.path.isdir("/proc/self"):
        with contextlib.suppress(OSError):
            parts.append(Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip())
            parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def started(pid: int) -> str | None:
    """When a process of this machine was started, as text that no later process of the same number
    has; "" where the system does not tell, None where the process is dead."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        if os.path.isdir("/proc/self"):
            return None
        return ""
    state, *rest = text.rpartition(")")[2].split()  # the name may hold spaces
    return None if state in "ZX" else rest[18]


@dataclass
class Claim:
    """An attempt at a task that this process has. attempt: counts from 1 within the run."""

    path: Path
    attempt: int
    _done: threading.Event = field(default_factory=threading.Event)

    def keep(self) -> None:
        """Touch the file every BEAT seconds until the claim is over."""
        threading.Thread(target=self._beat, name="dressi-claim", daemon=True).start()

    def _beat(self) -> None:
        while not self._done.wait(BEAT):
            with contextlib.suppress(OSError):
                os.utime(self.path)

    def fail(self, traceback: str) -> None:
        """The attempt failed; another may follow."""
        self._done.set()
        data = _read(self.path) or {}
        _write(self.path, {**data, "state": _OVER, "traceback": traceback})

    def end(self) -> None:
        """The task is done: remove all claims to it."""
        self._done.set()
        key = self.path.name.partition(".")[0]
        for _, path in claims_of(self.path.parent, key):
            path.unlink(missing_ok=True)

    def give_back(self) -> None:
        """Nothing was tried: remove this claim alone."""
        self._done.set()
        self.path.unlink(missing_ok=True)


def claims_of(folder: Path, key: str) -> list[tuple[int, Path]]:
    """Return the attempts at a task that are in the folder, by number."""
    found = []
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            name, _, number = entry.name.rpartition(".")
            if name == key and number.isdigit():
                found.append((int(number), Path(entry.path)))
    return sorted(found)


def take(folder: Path, key: str, run: str) -> Claim | None:
    """Return a claim to a task; None while another process is at it. run: attempts of other runs
    are not counted: whoever stopped a run, stopped its tasks."""
    there = claims_of(folder, key)
    if there and is_alive(there[-1][1]):
        return None
    mine = sum((_read(path) or {}).get("run") == run for _, path in there)
    path = folder / f"{key}.{there[-1][0] + 1 if there else 1}"
    pid = os.getpid()
    text = json.dumps({"host": host(), "pid": pid, "start": started(pid), "run": run})
    try:
        with open(path, "x", encoding="utf-8") as file:
            try:
                file.write(text)
                file.flush()
            except OSError:  # a full disk: an empty claim would keep others away
                path.unlink(missing_ok=True)
                raise
    except FileExistsError:
        return None
    return Claim(path, mine + 1)


def is_alive(path: Path) -> bool:
    """Whether the process of a claim is at work. A file that is gone is of a task that is done."""
    data = _read(path)
    if data is not None and data.get("state") == _OVER:
        return False
    if data is not None and data.get("host") == host():
        start = started(int(data["pid"]))
        if start is None:
            return False
        if start != "":
            return start == data["start"]
    # Another machine, a system that does not tell, or a file that is being written.
    try:
        touched = path.stat().st_mtime
    except OSError:
        return False
    return _now(path.parent) - touched < STALE


def is_free(folder: Path, key: str) -> bool:
    """Whether nobody is at a task."""
    there = claims_of(folder, key)
    return not there or not is_alive(there[-1][1])


def failures(folder: Path, key: str, run: str) -> list[str]:
    """Return the tracebacks of the failed attempts of a run, and a line for each that ended with
    its worker."""
    out = []
    for _, path in claims_of(folder, key):
        data = _read(path)
        if data is None or data.get("run") != run:
            continue
        died = f"the worker died (process {data.get('pid')} on {str(data.get('host')).split()[0]})"
        out.append(str(data.get("traceback", died)))
    return out


def sweep(folder: Path, run: str | None, is_over: Callable[[str], bool]) -> list[str]:
    """Remove the claims of a run whose workers are gone (None: of no run), and those of processes
    that ended between a result and the end of its claim. Return their keys. is_over: whether the
    task of a key is."""
    removed = []
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            path, key = Path(entry.path), entry.name.rpartition(".")[0]
            mine = run is not None and (_read(path) or {}).get("run") == run
            if mine or (is_over(key) and not is_alive(path)):
                path.unlink(missing_ok=True)
                removed.append(key)
    return removed


def _now(folder: Path) -> float:
    """The time of the file system, whose clock may not be this machine's."""
    probe = folder / f".now-{secrets.token_hex(8)}"
    try:
        probe.touch()
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def _write(path: Path, data: dict[str, Any]) -> None:
    beside = path.with_name(f".{path.name}-{secrets.token_hex(4)}.tmp")
    beside.write_text(json.dumps(data), encoding="utf-8")
    os.replace(beside, path)
