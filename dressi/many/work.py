"""One attempt at one task, in a worker or in the process that asked.

In: a ``Job`` and a ``Task``. Out: ``Outcome``; nothing is raised but what stops the process.
"""

from __future__ import annotations

import errno
import inspect
import os
import shutil
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dressi import config
from dressi.errors import DeviceLostError, DressiError
from dressi.many.claims import Claim, failures, host, take
from dressi.many.store import ARRAYS, Result, Store
from dressi.many.tasks import Fingerprint, Fit, Task, plain, resolve
from dressi.many.warm import Context, Warm

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Errors of a folder that the next task would meet too."""


@dataclass(frozen=True)
class Job:
    """What the tasks of a run share. function: itself, or ``module:name``. folder: of the results,
    None: they are only returned. run: name of the run. tries: attempts before a task is set
    aside."""

    function: Fit | str
    of: Fingerprint
    folder: str | None
    run: str
    tries: int


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended. status: ``done``, ``failed`` (another attempt may follow), ``aside``
    (none does), ``taken`` (another process is at it), ``stop`` (the results cannot be written).
    result: of what is done. tracebacks: of what failed. lost: the process's device is gone."""

    key: str
    status: str
    result: Result | None = None
    tracebacks: tuple[str, ...] = ()
    lost: bool = False


@dataclass
class _Run:
    """What a call of the function gave."""

    figures: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)


def attempt(job: Job, task: Task, warm: Warm, worker: str = "") -> Outcome:
    """Try a task once. warm: what this worker keeps. worker: its name, for the result."""
    if job.folder is None:
        return _unstored(job, task, warm, worker)
    store = Store(job.folder)
    try:
        return _stored(job, task, warm, worker, store)
    except OSError as error:
        if error.errno not in FULL:
            raise
        return _full(store, task, error)


def _full(store: Store, task: Task, error: OSError) -> Outcome:
    return Outcome(task.key, "stop", tracebacks=(f"{store.folder}: cannot write there: {error}",))


def _unstored(job: Job, task: Task, warm: Warm, worker: str) -> Outcome:
    scratch: Path | None = None
    try:
        function = resolve(job.function)
        if takes_context(function):
            scratch = Path(tempfile.mkdtemp(prefix="dressi-"))
        made, info = _call(job, function, task, warm, worker, scratch)
    except Exception as error:
        return _failed(task, error, warm, (traceback.format_exc(),), "failed")
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
    return Outcome(
        task.key, "done", Result(task.key, task.settings, made.figures, info, held=made.arrays)
    )


def _stored(job: Job, task: Task, warm: Warm, worker: str, store: Store) -> Outcome:
    key = task.key
    claim = take(store.claims, key, job.run)
    if claim is None:
        return Outcome(key, "taken")
    claim.keep()
    try:
        found = store.result(key)  # of the process that had the claim before
        if found is not None or store.was_set_aside(key):
            claim.end()
            return Outcome(key, "done", found) if found is not None else _aside(store, key)
        if claim.attempt > job.tries:  # all of them ended with their workers
            return _set_aside(store, job, task, claim)
        return _tried(job, task, warm, worker, store, claim)
    except BaseException:
        store.sweep(key)
        claim.give_back()
        raise


def _tried(job: Job, task: Task, warm: Warm, worker: str, store: Store, claim: Claim) -> Outcome:
    if claim.path.name != f"{task.key}.1":  # it is not the first
        store.sweep(task.key)
    scratch: Path | None = None
    try:
        function = resolve(job.function)
        if takes_context(function):
            scratch = store.scratch(task.key)
        made, info = _call(job, function, task, warm, worker, scratch)
        info["attempt"] = claim.attempt
        stored = store.commit(_record(job, task, made, info), made.arrays, scratch)
    except Exception as error:
        store.sweep(task.key)
        if isinstance(error, OSError) and error.errno in FULL:
            claim.give_back()
            return _full(store, task, error)
        claim.fail(traceback.format_exc())
        if claim.attempt >= job.tries:
            return _set_aside(store, job, task, claim, error, warm)
        return _failed(task, error, warm, tuple(failures(store.claims, task.key, job.run)))
    claim.end()
    return Outcome(task.key, "done", store.result_of(stored))


def _record(job: Job, task: Task, made: _Run, info: dict[str, Any]) -> dict[str, Any]:
    """Return what is stored of a result."""
    return {
        "key": task.key,
        "identity": task.identity,
        "function": job.of.name,
        "version": job.of.version,
        "settings": task.settings,
        "figures": made.figures,
        "info": info,
    }


def _set_aside(
    store: Store,
    job: Job,
    task: Task,
    claim: Claim,
    error: BaseException | None = None,
    warm: Warm | None = None,
) -> Outcome:
    if error is None:
        claim.give_back()  # it was not tried
    texts = tuple(failures(store.claims, task.key, job.run))
    store.set_aside(
        {
            "key": task.key,
            "identity": task.identity,
            "settings": task.settings,
            "version": job.of.version,
            "error": texts[-1].strip().splitlines()[-1] if texts else "",
            "tracebacks": texts,
        }
    )
    claim.end()
    if error is None or warm is None:
        return Outcome(task.key, "aside", tracebacks=texts)
    return _failed(task, error, warm, texts, "aside")


def _aside(store: Store, key: str) -> Outcome:
    return Outcome(key, "aside", tracebacks=tuple((store.failure(key) or {}).get("tracebacks", ())))


def _failed(
    task: Task, error: BaseException, warm: Warm, texts: tuple[str, ...], status: str = "failed"
) -> Outcome:
    lost = isinstance(error, DeviceLostError)
    if lost or isinstance(error, MemoryError):
        warm.clear()  # engines of a lost device are of no use, and the others hold memory
    return Outcome(task.key, status, tracebacks=texts, lost=lost)


def _call(
    job: Job, function: Fit, task: Task, warm: Warm, worker: str, scratch: Path | None
) -> tuple[_Run, dict[str, Any]]:
    """Call the function; its figures and arrays, and how it went. scratch: a folder for its files,
    None: it takes no context."""
    device = config.device_selector()
    context = [] if scratch is None else [Context(scratch, device, warm)]
    builds, reuses, begin = warm.builds, warm.reuses, time.perf_counter()
    given: Any = function(dict(task.settings), *context)
    seconds = time.perf_counter() - begin
    if not isinstance(given, Mapping):
        raise DressiError(
            f"{job.of.name} must return a mapping of figures, got {type(given).__name__}"
        )
    made = _Run()
    for name, value in given.items():
        if isinstance(value, np.ndarray) and value.ndim:
            if value.dtype == object:
                raise DressiError(f"{name} is an array of objects, which cannot be kept")
            made.arrays[str(name)] = value
        else:
            made.figures[str(name)] = plain(value, str(name))
    if made.arrays and scratch is not None and (scratch / ARRAYS).exists():
        raise DressiError(f"{job.of.name} wrote a file {ARRAYS}, which is the name of its arrays")
    info = {
        "seconds": seconds,
        "worker": worker or f"process {os.getpid()}",
        "host": host().split()[0],
        "device": device or "",
        "builds": warm.builds - builds,
        "reuses": warm.reuses - reuses,
        "attempt": 1,
        "finished": time.time(),
    }
    return made, info


def takes_context(function: Fit) -> bool:
    """Whether a function takes the Context behind the settings."""
    try:
        names = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [p for p in names if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = len(positional) > 1 and positional[1].default is inspect.Parameter.empty
    return needed or any(p.name == "context" for p in positional[1:])


@contextmanager
def warm_here() -> Iterator[Warm]:
    """What this process keeps for as long as the block runs."""
    warm = Warm()
    try:
        yield warm
    finally:
        warm.clear()
