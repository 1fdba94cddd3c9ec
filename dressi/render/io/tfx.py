"""TressFX hair (.tfx, version 4) to ``Strands``.

In: a path. Out: strands without widths of their own, root first. Source: AMD TressFX 4,
``TressFXFileObject``: a header of 40 32-bit words, then four floats per point.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from dressi.errors import LoadError
from dressi.render.io.images import PathLike
from dressi.render.io.sources import blamed_on, fail, read_file
from dressi.render.scene.strands import Strands

HEADER_BYTES = 160
_FIELDS = ("strands", "points per strand", "offset of points")
MOST_POINTS = 1 << 28
"""More is no file but a broken header: 4 GiB of points."""


def read_tfx(path: PathLike, width: float = 0.01) -> Strands:
    """The strands of a .tfx file.

    width: thickness, world units, of all points but the tips; the file has none. Strands have as
    many points each as its header says. UVs are left out. Raises LoadError: not there, truncated,
    another version, counts that cannot be, NaN or infinite points; GraphError for a negative width.
    """
    file = os.fspath(path)
    data = read_file(path, file)
    if len(data) < HEADER_BYTES:
        raise fail(file, "header", f"{len(data)} bytes, a header has {HEADER_BYTES}")
    version = float(np.frombuffer(data, "<f4", 1)[0])
    if not 4.0 <= version < 5.0:
        raise fail(file, "header", f"version {version:g} is not supported, only 4 is")
    n_strands, n_points, offset = (int(x) for x in np.frombuffer(data, "<u4", 3, 4))
    for name, value, least in zip(_FIELDS, (n_strands, n_points, offset), (1, 2, 1), strict=True):
        if value < least:
            raise fail(file, "header", f"{name} is {value}, it must be {least} or more")
    total = n_strands * n_points
    if total > MOST_POINTS or offset + 16 * total > len(data) or offset < HEADER_BYTES:
        text = f"{n_strands} strands of {n_points} points at byte {offset} do not fit into"
        raise fail(file, "header", f"{text} {len(data)} bytes")
    points = np.frombuffer(data, "<f4", 4 * total, offset).reshape(total, 4)[:, :3]
    along = np.tile(np.arange(n_points) / (n_points - 1), n_strands)
    widths = width * np.clip(3.0 * (1.0 - along), 0.0, 1.0).astype(np.float32)
    if not np.isfinite(points).all():
        i = int((~np.isfinite(points).all(axis=1)).argmax())
        raise fail(file, f"strand {i // n_points}, point {i % n_points}", "is not finite")
    try:
        with blamed_on(file):
            counts = np.full(n_strands, n_points)
            return Strands(points.copy(), counts, widths, Path(path).stem)
    except MemoryError as error:
        raise LoadError(f"{file}: does not fit in memory", file, "file") from error
