"""Parts of a long experiment on disk, so that one that was interrupted goes on where it was, and
parts on several workers.

In: settings of an experiment, what computes each part. Out: the parts: ``kept_parts`` reads one
from the folder where an earlier run with the same settings finished it, else computes and writes
it, with a bar that says the time left. They are removed at the end of a run (``remove_parts``).
``run_parts`` does the same with parts that do not need each other, on workers of ``dressi.many``
if so desired.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from dressi.apps.experiments.common import Settings, option
from dressi.apps.report import commit, identity, write_json
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.many import Context, Progress, map_fits
from dressi.many.work import warm_here

FOLDER = "unfinished"
"""In the folder of an experiment; there while it runs and after it was interrupted."""

STAMP, WORKERS, PLAIN = "settings.json", "workers", "plain"
NOT_ASKED = ("out", "json", "workers")
"""Settings that no part depends on."""

Part = dict[str, Any]
Work = Mapping[str, Callable[[], Mapping[str, Any]]]


def kept_parts(settings: Settings, work: Work, label: str = "parts") -> dict[str, Part]:
    """Return what each function of ``work`` gives, by name, in order.

    work: name -> function; it returns arrays, and numbers, texts, lists and dictionaries that JSON
    can hold (tuples come back as lists). Those that an earlier run with the same settings on the
    same device and commit finished are read from the folder ``settings.out``; None keeps nothing.
    Parts of other settings are removed, and it is said. Raises DressiError where the folder cannot
    be written, and what the functions raise.
    """
    folder = _open(settings)
    found = {name: part for name in work if (part := _read(folder, name)) is not None}
    if found:
        print(f"{len(found)} of {len(work)} {label} found in {folder}")
    done: dict[str, Part] = {}
    # The rate counts what is computed now, so that the time left is that of the rest.
    with tqdm(total=len(work), initial=len(found), desc=label, unit="part") as bar:
        for name, compute in work.items():
            if name in found:
                done[name] = found[name]
                continue
            bar.set_postfix_str(name)
            data = _encode(name, compute())
            if folder is not None:
                _write(folder, name, data)
            done[name] = _decode(data)
            bar.update()
    return done


def remove_parts(settings: Settings) -> None:
    """Remove what was kept of a run that is finished."""
    if settings.out is None:
        return
    folder = Path(settings.out) / FOLDER
    if not folder.is_dir():
        return
    shutil.rmtree(folder / WORKERS, ignore_errors=True)
    for path in [*folder.glob("*.npz"), folder / STAMP]:
        path.unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def _open(settings: Settings) -> Path | None:
    """Return the folder of the parts with the stamp of these settings, without parts of others."""
    if settings.out is None:
        return None
    folder = Path(settings.out) / FOLDER
    with DressiAD(settings.device) as ad:
        asked = {k: v for k, v in asdict(settings).items() if k not in NOT_ASKED} | identity(ad)
    asked = json.loads(json.dumps(asked))
    try:
        if folder.is_dir():
            before = _stamp(folder)
            if before == asked:
                return folder
            remove_parts(settings)
            changed = [k for k in asked if before.get(k) != asked[k]]
            said = ", ".join(f"{k} {asked[k]}, was {before.get(k)}" for k in changed)
            print(f"{folder}: starting anew, the settings differ: {said or 'fewer of them'}")
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / STAMP, asked)
    except OSError as error:
        raise DressiError(f"{folder}: cannot keep parts there: {error}") from None
    return folder


def _stamp(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _path(folder: Path, name: str) -> Path:
    """File names must do on every system; the name itself is inside."""
    return folder / (re.sub(r"[^\w=,. -]", "_", name) + ".npz")


def _encode(name: str, part: Mapping[str, Any]) -> dict[str, np.ndarray]:
    arrays = {f"array {k}": v for k, v in part.items() if isinstance(v, np.ndarray)}
    plain = {k: v for k, v in part.items() if not isinstance(v, np.ndarray)}
    return {PLAIN: np.asarray(json.dumps({"name": name, "part": plain}, default=_number)), **arrays}


def _number(value: object) -> object:
    """NumPy's scalars as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a part holds arrays and what JSON can hold, got {type(value).__name__}")


def _decode(data: Mapping[str, np.ndarray]) -> Part:
    plain = json.loads(str(data[PLAIN]))["part"]
    return {**plain, **{k[len("array ") :]: v for k, v in data.items() if k != PLAIN}}


def _read(folder: Path | None, name: str) -> Part | None:
    """Return a part that is there as a whole, else None: then it is computed again."""
    if folder is None or not _path(folder, name).is_file():
        return None
    try:
        with open(_path(folder, name), "rb") as file, np.load(file) as found:
            data = {k: found[k] for k in found.files}
        return _decode(data) if json.loads(str(data[PLAIN]))["name"] == name else None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return None


def _write(folder: Path, name: str, data: Mapping[str, np.ndarray]) -> None:
    path = _path(folder, name)
    half = path.with_suffix(".half.npz")
    try:
        np.savez(half, **data)  # type: ignore[arg-type]
        os.replace(half, path)
    except OSError as error:
        raise DressiError(f"{path}: cannot write it: {error}") from None


Fit = Callable[[dict[str, Any], Context], Mapping[str, Any]]


@dataclass(frozen=True)
class WithWorkers(Settings):
    """Options of experiments whose parts do not need each other."""

    workers: int = option(
        0, "processes that share the parts (0: this one alone; docs/many.md)", least=0
    )


def run_parts(
    fit: Fit, parts: Sequence[Mapping[str, Any]], settings: WithWorkers
) -> list[dict[str, Any]]:
    """Return what a function gives for every part, in order: one after another in this process, or
    on ``settings.workers`` of them, with what is done kept in the folder meanwhile.

    fit: of a module, takes a part, with the settings of the experiment as ``settings``, and a
    Context. Raises what it raises; from a worker a DressiError with the traceback.
    """
    own = {k: v for k, v in asdict(settings).items() if k not in NOT_ASKED}
    items = [{**part, "settings": own} for part in parts]
    if settings.workers == 0:
        with warm_here() as warm:
            context = Context(Path(settings.out or "."), settings.device, warm)
            names = [", ".join(f"{k} {v}" for k, v in part.items()) for part in parts]
            pairs = zip(names, items, strict=True)
            work = {name: partial(fit, item, context) for name, item in pairs}
            return list(kept_parts(settings, work).values())
    folder = _open(settings)
    with tqdm(total=len(items), desc="parts", unit="part") as bar:

        def show(now: Progress) -> None:
            bar.initial, bar.n = now.found, now.done
            bar.refresh()

        run = map_fits(
            fit,
            items,
            folder=None if folder is None else folder / WORKERS,
            workers=settings.workers,
            devices=None if settings.device is None else [settings.device],
            version=commit(),
            progress=show,
        )
    results = [{**r.figures, **r.arrays} for r in run.require_all()]
    remove_parts(settings)
    return results


def settings_of(kind: type[Any], part: Mapping[str, Any]) -> Any:
    """Return the settings of the experiment that a part belongs to."""
    own = part["settings"]
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in own.items()})
