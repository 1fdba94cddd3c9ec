"""Texture coordinates for a mesh that has none: charts of faces, packed into a square.

In: a mesh. Out: the same mesh with uvs and uv_faces. Charts are found and packed by xatlas (the
extra ``atlas``); positions stay as they are, because a mesh has separate faces for its UVs.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from dressi.errors import DressiError, GraphError
from dressi.render.scene import Mesh

FILLED = 0.75
"""Share of the square that charts are tried at first; about what packing reaches."""
SHRINK = 0.97
"""Scale of the charts from one try to the next where the packing is too large by less."""
TRIES = 40
"""Packings at most: 0.97^40 is a third of the length, far below what packing needs."""

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int32]


def unwrap(mesh: Mesh, size: int = 1024, padding_px: int = 4) -> Mesh:
    """Return the mesh with new texture coordinates: charts that do not overlap, of even scale.

    size: side of the square texture that it is for, texels, at least 16. padding_px: texels between
    charts at that size, at least 1; mipmap level n needs 2^n. Positions and faces stay as they are;
    old UVs are dropped. Vertices at one place are not welded: borders between them become seams
    (``dressi.render.scene.welded`` first, where that is not wanted). The same mesh gives the same
    charts. Faces without area get UVs without area. Raises DressiError where xatlas is not
    installed or finds no packing of that size, GraphError for a bad mesh or bad numbers.
    """
    mesh.check()
    if size < 16 or not 1 <= padding_px < size // 4:
        raise GraphError(
            f"unwrap needs size >= 16 and padding_px in [1, size / 4), got {size} and {padding_px}"
        )
    xatlas = _xatlas()
    charts = xatlas.Atlas()
    charts.add_mesh(mesh.positions, mesh.faces.astype(np.uint32))
    charts.generate(xatlas.ChartOptions(), _packing(xatlas, padding_px, 0.0))
    corners, uvs = _of_corners(charts, mesh.faces)
    area = _area(uvs, corners)
    if not area > 0.0:
        raise GraphError(f"unwrap: mesh '{mesh.name}' has no face with an area")
    scale = size * np.sqrt(FILLED / area)
    for _ in range(TRIES):
        atlas = xatlas.Atlas()
        atlas.add_uv_mesh((uvs * scale).astype(np.float32), corners.astype(np.uint32))
        atlas.generate(xatlas.ChartOptions(), _packing(xatlas, padding_px, 1.0))
        side = max(atlas.width, atlas.height)
        if side <= size:
            packed_corners, packed = _of_corners(atlas, corners)
            in_square = (packed / size).astype(np.float32)
            return Mesh(mesh.positions, mesh.faces, in_square, packed_corners, mesh.name)
        scale *= min(SHRINK, (size / side) ** 0.5)
    raise DressiError(
        f"unwrap: the {charts.chart_count} charts of mesh '{mesh.name}' with {padding_px} texels "
        f"between them do not fit {size} x {size} texels\n  hint: a larger size, or less padding"
    )


def _xatlas() -> ModuleType:
    try:
        import xatlas
    except ImportError as error:
        raise DressiError(f"unwrap needs xatlas: pip install 'dressi[atlas]' ({error})") from error
    return xatlas


def _packing(xatlas: ModuleType, padding_px: int, texels_per_unit: float) -> Any:
    options = xatlas.PackOptions()
    options.padding, options.texels_per_unit = int(padding_px), texels_per_unit
    options.bilinear = True  # a texel of room beside each chart, for bilinear reads
    return options


def _of_corners(atlas: Any, faces: Rows) -> tuple[Rows, Floats]:
    """Rows of uvs (F, 3) and uvs (T, 2) in texels of the atlas."""
    old, corners, uvs = atlas.get_mesh(0)
    if not np.array_equal(old[corners], faces):
        raise DressiError("unwrap: xatlas gave back other faces than it was given")
    texels = np.asarray(uvs, np.float64) * [atlas.width, atlas.height]
    return np.asarray(corners, np.int32), texels


def _area(uvs: Floats, corners: Rows) -> float:
    a, b, c = np.moveaxis(uvs[corners], 1, 0)
    u, v = b - a, c - a
    return 0.5 * float(np.abs(u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]).sum())
