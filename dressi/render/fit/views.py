"""What each view of a mesh shows: faces and places on them, as arrays.

In: an engine, a mesh, matrices. Out: one ``ViewRaster`` per view, of ``build_hard_raster``. The
engine is whatever evaluates it, such as a ``DressiAD``, so nothing here imports one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dressi.ad import F, Variable
from dressi.ad.vtype import IVEC3, MAT4, VEC2, VEC3
from dressi.errors import GraphError
from dressi.render.raster import build_conservative, build_hard_raster
from dressi.render.scene import Mesh

Size = tuple[int, int]


class Evaluator(Protocol):
    """What evaluates a graph: a ``DressiAD``, or anything with these two methods of it."""

    def send_img(self, var: Variable, array: Any) -> None:
        """Send data to a leaf."""

    def recv_imgs(self, variables: Sequence[Variable]) -> list[npt.NDArray[Any]]:
        """Return the data of Variables."""


class ViewRaster(NamedTuple):
    """The face of each pixel, (H, W) int32, -1 where there is none, and its perspective-correct
    weights, (H, W, 3) float32."""

    ids: npt.NDArray[np.int32]
    bary: npt.NDArray[np.float32]

    def interpolate(self, table: npt.ArrayLike, faces: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return an attribute at each pixel, (H, W, C); 0 where there is no face. table: (N, C).
        faces: (F, 3), rows of the table."""
        values, shown = np.asarray(table, np.float64), self.ids >= 0
        corners, weights = np.asarray(faces)[self.ids[shown]], self.bary[shown]
        mixed = np.zeros((*self.ids.shape, values.shape[1]))
        mixed[shown] = sum(weights[:, k, None] * values[corners[:, k]] for k in range(3))
        return mixed


def checked_matrices(what: str, matrices: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return matrices as (views, 4, 4) float64. Raises GraphError for other shapes."""
    array = np.asarray(matrices, dtype=np.float64)
    if array.ndim != 3 or array.shape[1:] != (4, 4) or len(array) == 0:
        raise GraphError(f"{what} needs matrices (views, 4, 4), got {array.shape}")
    return array


def view_rasters(
    ad: Evaluator, mesh: Mesh, matrices: npt.ArrayLike, size: Size
) -> Iterator[ViewRaster]:
    """Give what each view shows, one view after another, from one recorded graph.

    matrices: (views, 4, 4) world to clip. size: (width, height) in pixels. Raises GraphError (bad
    mesh, shapes, size beyond the device's limit).
    """
    mesh.check()
    views = checked_matrices("view_rasters", matrices)
    positions, faces = F.leaf(mesh.positions, VEC3, "vtx_pos"), F.leaf(mesh.faces, IVEC3, "faces")
    matrix = Variable(MAT4, name="matrix")
    raster = build_hard_raster(positions, faces, matrix, size)
    for view in views:
        ad.send_img(matrix, view)
        ids, bary = ad.recv_imgs([raster.ids, raster.bary])
        yield ViewRaster(ids.reshape(size[1], size[0]), bary)


def chart_texels(ad: Evaluator, mesh: Mesh, size: Size, gutter_px: float = 1.5) -> npt.NDArray:
    """Return the face that each texel of the mesh's atlas belongs to, (H, W) int32, -1 outside.

    size: (width, height) in texels. gutter_px: texels around a chart that belong to it too; 1.5
    are all that bilinear reads within the chart touch. UVs outside [0, 1] are cut off. Raises
    GraphError (bad mesh, no UVs).
    """
    mesh.check()
    if mesh.uvs is None:
        raise GraphError(f"mesh '{mesh.name}' has no uvs\n  hint: dressi.render.fit.unwrap(mesh)")
    uv, uv_faces = F.leaf(mesh.uvs, VEC2, "vtx_uv"), F.leaf(mesh.corner_faces, IVEC3, "uv_faces")
    charts = build_conservative(uv, uv_faces, size, gutter_px)
    return np.asarray(ad.recv_imgs([charts.ids])[0].reshape(size[1], size[0]))
