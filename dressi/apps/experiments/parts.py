"""Parts of a long experiment on disk, so that one that was interrupted goes on where it was.

In: a folder, what the parts depend on. Out: ``Parts``: a part is read from the folder where it was
computed under the same conditions, else computed and written. They are removed at the end: a whole
run computes everything anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

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
