"""Files that commands need and that come with the package."""

from __future__ import annotations

from pathlib import Path

__all__ = ["human_file"]

FOLDER = Path(__file__).parent / "human"


def human_file(name: str) -> Path:
    """Return the path of a file of ``human/``, whose README names sources and licences.

    name: as ``ict/ict_face_light.npz``. Raises FileNotFoundError where the package has none.
    """
    path = FOLDER / name
    if not path.is_file():
        raise FileNotFoundError(f"{name}: no such file among the package's data ({FOLDER})")
    return path
