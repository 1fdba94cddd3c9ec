"""Carving: what silhouettes leave too full is moved to where photos agree.

In: a mesh that was fitted to silhouettes, and the photos. Out: the mesh, moved along its normals
where patches of it look more alike there (``consistent_offsets``), in order. Steps of silhouettes
follow (``Carving``): what was moved too far comes back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dressi.apps.reconstruct.order import repaired
from dressi.apps.reconstruct.pictures import Pictures
from dressi.apps.reconstruct.rounds import Round
from dressi.render.fit import consistent_offsets, grey_photos
from dressi.render.scene import Mesh


@dataclass(frozen=True)
class Carving:
    """How a surface is carved: in turns of offsets and a round of silhouettes. levels: of each turn
    the spacing of the samples of patches, pixels, and the inward reach, for a box of side 2. round:
    what follows each. size: longer side of the photos, pixels."""

    levels: tuple[tuple[float, float], ...]
    round: Round
    size: int


def carved(mesh: Mesh, pictures: Pictures, spacing_px: float, reach: float) -> Mesh:
    """Return the mesh with its vertices where the photos agree, in order if it was.

    mesh: in a box of about side 2, closed. pictures: of positions in that box, with colour.
    spacing_px, reach: see ``Carving``. Raises GraphError.
    """
    assert pictures.colour is not None
    photos = grey_photos(
        pictures.colour, pictures.coverage, pictures.matrices, pictures.weights, spacing_px
    )
    found = consistent_offsets(mesh, photos, reach)
    return repaired(replace(mesh, positions=found.moved(mesh.positions)), mesh)
