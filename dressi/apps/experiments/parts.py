"""Parts of a long experiment on disk, so that one that was interrupted goes on where it was, and
parts on several workers.

In: a folder, what the parts depend on. Out: ``Parts``: a part is read from the folder where it was
computed under the same conditions, else computed and written. They are removed at the end: a whole
run computes everything anew. ``run_parts`` does the same with parts that do not need each other, on
workers of ``dressi.many``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dressi.apps.experiments.common import Settings, option
from dressi.apps.report import commit
from dressi.many import Context, map_fits
from dressi.many.work import warm_here

Part = Mapping[str, np.ndarray]
STAMP = "stamp"


@dataclass(frozen=True)
class Parts:
    """folder: None keeps nothing. stamp: what the parts depend on, as text; those of another one
    are computed anew."""

    folder: Path | None
    stamp: str

    def get(self, name: str, compute: Callable[[], Mapping[str, object]]) -> Part:
        """Return a part, arrays by name. name: unique among the parts of the run."""
        path = None if self.folder is None else self.folder / f"{name}.npz"
        if path is not None and path.exists():
            with np.load(path) as found:
                if str(found[STAMP]) == self.stamp:
                    return {k: found[k] for k in found.files if k != STAMP}
        part = {k: np.asarray(v) for k, v in compute().items()}
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            half = path.with_suffix(".half.npz")
            np.savez(half, **{STAMP: np.asarray(self.stamp)}, **part)  # type: ignore[arg-type]
            os.replace(half, path)
        return part

    def remove(self) -> None:
        """Remove what was kept."""
        if self.folder is None or not self.folder.is_dir():
            return
        for path in self.folder.glob("*.npz"):
            path.unlink()
        self.folder.rmdir()


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
    on ``settings.workers`` of them, with what is done kept in ``parts`` of the folder meanwhile.

    fit: of a module, takes a part, with the settings of the experiment as ``settings``, and a
    Context. Raises what it raises; from a worker a DressiError with the traceback.
    """
    own = {k: v for k, v in asdict(settings).items() if k not in ("out", "json", "workers")}
    items = [{**part, "settings": own} for part in parts]
    if settings.workers == 0:
        with warm_here() as warm:
            context = Context(Path(settings.out or "."), settings.device, warm)
            return [dict(fit(item, context)) for item in items]
    folder = None if settings.out is None else Path(settings.out) / "parts"
    run = map_fits(
        fit,
        items,
        folder=folder,
        workers=settings.workers,
        devices=None if settings.device is None else [settings.device],
        version=commit(),
        progress=None,
    )
    results = [{**r.figures, **r.arrays} for r in run.require_all()]
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    return results


def settings_of(kind: type[Any], part: Mapping[str, Any]) -> Any:
    """Return the settings of the experiment that a part belongs to."""
    own = part["settings"]
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in own.items()})
