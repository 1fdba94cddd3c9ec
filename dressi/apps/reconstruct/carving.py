"""Carving: what silhouettes leave too full is moved to where photos agree.

In: a mesh that was fitted to silhouettes, and the photos. Out: the mesh, moved along its normals
where patches of it look more alike there (``consistent_offsets``), as far as no mask is uncovered
by it, in order. Steps of silhouettes follow (``Carving``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.ndimage import distance_transform_edt

from dressi.apps.reconstruct.order import repaired
from dressi.apps.reconstruct.pictures import Pictures
from dressi.apps.reconstruct.rounds import Round
from dressi.render.fit import consistent_offsets, grey_photos, view_rasters
from dressi.render.fit.patches import adjacency
from dressi.render.fit.views import Evaluator
from dressi.render.scene import Mesh

Floats = npt.NDArray[np.float64]

UNCOVERED_PX = 1.0
"""Depth of a vertex, as it was, in what a mask shows and the moved mesh does not."""
RETURNS = 4
"""Times that vertices go back half their way; those that still uncover a mask then stay."""


@dataclass(frozen=True)
class Carving:
    """How a surface is carved: in turns of offsets and a round of silhouettes. levels: of each turn
    the spacing of the samples of patches, pixels, and the inward reach, for a box of side 2. round:
    what follows each. size: longer side of the photos, pixels."""

    levels: tuple[tuple[float, float], ...]
    round: Round
    size: int


def carved(ad: Evaluator, mesh: Mesh, pictures: Pictures, spacing_px: float, reach: float) -> Mesh:
    """Return the mesh with its vertices where the photos agree, in order if it was.

    mesh: in a box of about side 2, closed. pictures: of positions in that box, with colour.
    spacing_px, reach: see ``Carving``. Raises GraphError.
    """
    assert pictures.colour is not None
    photos = grey_photos(
        pictures.colour, pictures.coverage, pictures.matrices, pictures.weights, spacing_px
    )
    found = consistent_offsets(mesh, photos, reach)
    way = -found.distances[:, None] * found.directions
    return repaired(covering(ad, mesh, way, pictures), mesh)


def covering(ad: Evaluator, mesh: Mesh, way: Floats, masks: Pictures) -> Mesh:
    """Return the mesh with its vertices moved by ``way``, (V, 3), as far as what the masks show,
    and the mesh covers, stays covered.

    A vertex that lay in what is uncovered now goes back, with its neighbours. Where another part of
    the surface covers the same pixels, nothing does: a silhouette says only that its ray meets the
    object somewhere.
    """
    joined = adjacency(mesh.faces, len(mesh.positions))
    kept = np.ones(len(mesh.positions))
    wanted = _covered(ad, mesh, masks) & (masks.coverage[..., 0] > 0.5)
    if masks.weights is not None:
        wanted &= masks.weights[..., 0] > 0.0
    moved = mesh
    for turn in range(RETURNS + 1):
        positions = mesh.positions + kept[:, None] * way
        moved = replace(mesh, positions=positions.astype(np.float32))
        bad = _within(wanted & ~_covered(ad, moved, masks), masks, mesh.positions)
        bad &= kept > 0.0
        if not bad.any():
            break
        back = (joined @ bad.astype(float) > 0.0) | bad
        kept[back] *= 0.5 if turn < RETURNS - 1 else 0.0
    return moved


def _covered(ad: Evaluator, mesh: Mesh, masks: Pictures) -> npt.NDArray[np.bool_]:
    """Return (views, H, W): the pixels that show the mesh."""
    plain = Mesh(mesh.positions, mesh.faces, name=mesh.name)
    return np.stack([r.ids >= 0 for r in view_rasters(ad, plain, masks.matrices, masks.size)])


def _within(
    region: npt.NDArray[np.bool_], masks: Pictures, positions: npt.NDArray[np.floating]
) -> npt.NDArray[np.bool_]:
    """Return (V,): which positions lie deep in a region, (views, H, W), of any view."""
    width, height = masks.size
    deep = np.zeros(len(positions), bool)
    for one, matrix in zip(region, masks.matrices, strict=True):
        if not one.any():
            continue
        clip = positions @ matrix[:, :3].T + matrix[:, 3]
        front = clip[:, 3] > 0.0
        pixel = (clip[:, :2] / np.where(front, clip[:, 3], 1.0)[:, None] + 1.0) / 2.0
        column, row = np.floor(pixel * [width, height]).astype(np.int64).T
        held = front & (column >= 0) & (column < width) & (row >= 0) & (row < height)
        away = distance_transform_edt(one)[row.clip(0, height - 1), column.clip(0, width - 1)]
        deep |= held & (away > UNCOVERED_PX)
    return deep
