"""The two heads of the package as arrays: the model of ICT-FaceKit, and a scanned one.

In: files (``human_file``), whose README names sources, licences and arrays. Out: checked arrays, a
``Mesh``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dressi.apps.data import human_file
from dressi.errors import LoadError
from dressi.render.io import read_image
from dressi.render.scene import Mesh

__all__ = ["ICT_SKIN", "ict_arrays", "made_of", "scan_mesh", "scan_texture", "triangles"]

ICT_SKIN = ("M_Face", "M_BackHead")
"""ICT's materials of the skin. They have a unit square of texture coordinates each."""

SHAPES: dict[str, tuple[str | int, ...]] = {
    "neutral": ("vertices", 3),
    "faces": ("faces", 4),
    "material": ("faces",),
    "material_names": ("materials",),
    "uv": ("uvs", 2),
    "uv_faces": ("faces", 4),
    "identity": ("identities", "vertices", 3),
    "expression": ("expressions", "vertices", 3),
    "expression_names": ("expressions",),
    "step": (),
    "landmarks68": (68,),
}
"""Of ICT's arrays; a word stands for a number that is the same wherever it stands."""


def ict_arrays(path: str | Path, *names: str) -> dict[str, npt.NDArray[Any]]:
    """Return arrays of ICT's file by name, as they are stored.

    names: of SHAPES. Raises LoadError, naming file and array, for a file without one of them or
    with other shapes.
    """
    file = str(path)
    try:
        with np.load(path) as found:
            arrays = {name: np.asarray(found[name]) for name in names}
    except (OSError, KeyError, ValueError) as error:
        raise LoadError(f"{file}: no ICT head: {error}", file, "arrays") from error
    known: dict[str | int, int] = {}
    for name, array in arrays.items():
        shape = SHAPES[name]
        if array.ndim == len(shape):
            for key, n in zip(shape, array.shape, strict=True):
                known.setdefault(key, n if isinstance(key, str) else key)
        wanted = tuple(known.get(key, key) for key in shape)
        if array.shape != wanted:
            text = str(wanted).replace("'", "")
            raise LoadError(f"{file}: {name} must be {text}, not {array.shape}", file, name)
    return arrays


def made_of(
    arrays: dict[str, npt.NDArray[Any]], names: Sequence[str], path: str | Path
) -> npt.NDArray[np.bool_]:
    """Return (F,): which faces are of these materials.

    arrays: ``material`` and ``material_names`` among them. path: of the file, for the error. Raises
    LoadError for a material that the file has not.
    """
    known = arrays["material_names"].tolist()
    for name in names:
        if name not in known:
            text = f"{path}: no ICT head: no material {name}, it has {', '.join(known)}"
            raise LoadError(text, str(path), "material_names")
    found: npt.NDArray[np.bool_] = np.isin(arrays["material"], [known.index(n) for n in names])
    return found


def triangles(quads: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.integer[Any]]:
    """Return (F, 3): the triangles of (Q, 4) quads, a -1 in the last place of what is a triangle.

    First one of each row, then the second halves.
    """
    halves = quads[quads[:, 3] >= 0][:, [0, 2, 3]]
    return np.concatenate([quads[:, :3], halves])


def scan_mesh(scale: float = 1.0) -> Mesh:
    """Return "Infinite, 3D Head Scan" by Lee Perry-Smith (CC BY 3.0), with UVs from the top left.

    scale: of the positions; the scan has no unit.
    """
    with np.load(human_file("lps/lps_decoded.npz")) as found:
        positions, faces, uv = found["positions"], found["faces"], found["uv"].astype(np.float32)
    uv[:, 1] = 1.0 - uv[:, 1]
    return Mesh((positions * scale).astype(np.float32), faces, uvs=uv, name="head").check()


def scan_texture() -> npt.NDArray[np.float32]:
    """Return (H, W, 3) linear: the scan's colours."""
    return read_image(human_file("lps/color.jpg"))[..., :3]
