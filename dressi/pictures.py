"""``dressi.show``: pictures of arrays, meshes and Variables, in a notebook or as PNG files.

In: an array, a mesh, a Variable, or anything that shows itself. Out: ``Picture``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dressi.ad import Variable, evaluate
from dressi.ad.graph import leaves
from dressi.engine import DressiAD
from dressi.errors import GraphError
from dressi.previews import image_html, mesh_picture, png, resized, text_html, to_screen

GAP = 4
"""Pixels between the layers of a stack."""
MESH_SIDE = 400
"""Pixels on a side of the picture of a mesh."""


@dataclass(frozen=True, eq=False)
class Picture:
    """pixels: (H, W, 3) bytes for a screen. title: what it is of. Notebooks show it; ``save``
    writes it."""

    pixels: npt.NDArray[np.uint8]
    title: str = ""

    def save(self, path: str | Path) -> None:
        """Write a PNG. Raises OSError."""
        Path(path).write_bytes(png(self.pixels))

    def _repr_html_(self) -> str:
        return image_html(resized(self.pixels, max(*self.pixels.shape[:2], 256)), self.title)

    def __repr__(self) -> str:
        height, width = self.pixels.shape[:2]
        return f"Picture({self.title or 'array'}, {width}x{height}; save(path) writes a PNG)"


@dataclass(frozen=True)
class _Text:
    text: str

    def _repr_html_(self) -> str:
        return text_html(self.text)

    def __repr__(self) -> str:
        return self.text


def show(x: Any, engine: DressiAD | None = None, linear: bool = True) -> Any:
    """Show x: in a notebook below the cell that runs (None is returned), elsewhere return a
    ``Picture``, whose ``save(path)`` writes a PNG.

    x: an array (H, W), (H, W, C) or (layers, H, W, C) with C up to 4; a ``Mesh``, with its vertex
    colours; a Variable, as an ``engine`` holds or computes it, or, where its leaves hold data
    themselves, as NumPy does; a plan, camera, engine or anything else that notebooks show; a list
    of these. linear: colours of arrays are linear and are encoded as sRGB; False: shown as they are
    (normals). Raises GraphError for other shapes and a Variable without data.
    """
    many = isinstance(x, (list, tuple))
    shown = [picture_of(one, engine, linear) for one in (x if many else [x])]
    if _in_notebook():
        from IPython.display import display

        display(*shown)
        return None
    return shown if many else shown[0]


def picture_of(x: Any, engine: DressiAD | None = None, linear: bool = True) -> Any:
    """Return what ``show`` shows of one thing: a ``Picture``, text, or what shows itself."""
    if isinstance(x, Variable):
        return _of_variable(x, engine, linear)
    if all(hasattr(x, name) for name in ("positions", "faces", "corner_faces")):
        painted = mesh_picture(x.positions, x.faces, x.colors, MESH_SIDE)
        painted = painted[..., :3] + 1.0 - painted[..., 3:]  # on white
        return Picture(to_screen(painted), f"mesh {x.name}")
    if hasattr(x, "_repr_html_") or hasattr(x, "_repr_mimebundle_"):
        return x
    try:
        array = np.asarray(x)
        if array.dtype.kind not in "fiub":
            raise ValueError
    except (TypeError, ValueError, RuntimeError):
        raise GraphError(
            "show: needs an array, a Mesh, a Variable or what notebooks show, got "
            f"{type(x).__name__}"
        ) from None
    if array.dtype == np.uint8:  # as files have them
        return _of_array(array / 255.0, "array", linear=False)
    return _of_array(array, "array", linear)


def _of_variable(v: Variable, engine: DressiAD | None, linear: bool) -> Any:
    if engine is not None:
        data = engine.recv_img(v)
    elif all(leaf.data is not None or leaf.derived for leaf in leaves([v])):
        data = evaluate([v], {})[0]
    else:
        raise GraphError(
            f"show: {v.label()} needs data that are not in its leaves\n  hint: dressi.show(x, "
            "engine) takes those that an engine was sent"
        )
    if v.vtype.is_matrix or v.is_table or v.size == (1, 1):
        with np.printoptions(precision=4, threshold=60, suppress=True):
            return _Text(f"{v.label()}\n{np.squeeze(data)}")
    shape = (v.layers, v.size[1], v.size[0], v.vtype.n)
    return _of_array(np.asarray(data).reshape(shape), v.label(), linear)


def _of_array(array: npt.NDArray, title: str, linear: bool) -> Picture:
    a = array[None, ..., None] if array.ndim == 2 else array[None] if array.ndim == 3 else array
    if a.ndim != 4 or not 1 <= a.shape[3] <= 4 or a.size == 0:
        raise GraphError(
            f"show: needs an array (H, W), (H, W, C) or (layers, H, W, C) with C from 1 to 4, got "
            f"shape {array.shape}"
        )
    return Picture(_side_by_side([to_screen(one, linear) for one in a]), title)


def _side_by_side(images: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.uint8]:
    gap = np.full((images[0].shape[0], GAP, 3), 255, np.uint8)
    parts = [part for image in images for part in (image, gap)][:-1]
    return np.concatenate(parts, axis=1)


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")
