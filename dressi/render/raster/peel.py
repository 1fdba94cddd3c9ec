"""A layer of what is seen, per pixel."""

from __future__ import annotations

from dataclasses import dataclass

from dressi.ad import F, Variable
from dressi.render.raster.distance import perspective
from dressi.render.raster.projection import ScreenFaces

HAIR_PX = 1 / 256
"""Pixels outside a face that still count as its edge. A clipped face is covered as the hardware
snaps it, its unclipped neighbour by the exact test; without a hair of overlap a pixel between them
could belong to neither. Such pixels lie behind all other hard ones, so they only fill holes, and
only in the first of several layers: behind another face they are rims, not a surface once more.
Also the width below which a face moves weights no faster: that of the grid that corners snap to."""

NEAREST_RIM = 0.5 + 2.0**-24
"""The float32 after 0.5: what is outside of a face by less than half of that is not hard yet."""


@dataclass(frozen=True)
class Peel:
    """One layer of depth peeling, per pixel.

    ids: INT, face number or -1. depth: FLOAT shifted depth, below 0.5 hard, above soft, 1 nothing.
    distance: FLOAT signed, screen square units. bary: VEC3 perspective-correct weights (of the
    nearest point of the face for soft pixels). stencil: FLOAT, 1 where there is a face. rows: INT,
    row of ``ScreenFaces.parts`` or -1; None where faces are not cut. Gradient through distance and
    bary.
    """

    ids: Variable
    depth: Variable
    distance: Variable
    bary: Variable
    stencil: Variable
    rows: Variable | None = None

    @property
    def drawn_rows(self) -> Variable:
        """INT, row of ``ScreenFaces.drawn`` or -1."""
        return self.ids if self.rows is None else self.rows


def face_weights(
    screen: ScreenFaces,
    rows: Variable,
    corners: tuple[Variable, Variable, Variable],
    weights: Variable,
    beta: Variable,
) -> Variable:
    """VEC3: perspective-correct weights of the corners of faces. rows: INT, of the drawn faces.
    corners: VEC4 of those rows. weights: VEC3 on the screen. beta: VEC3, not clamped, for faces
    that the hardware clips, whose corners may lie behind the camera."""
    inv_w = F.vec3(*(v.w for v in corners))
    if screen.parts is not None:
        return screen.parts.whole_weights(rows, perspective(weights, inv_w))
    clipped = F.lookup(screen.crossing, rows)
    bary = perspective(F.where(clipped, beta, weights), inv_w)
    # Covered as the hardware snaps it: the centre may lie beside the face.
    within = F.maximum(bary, 0.0)
    return F.where(clipped, F.safe_div(within, F.sum_components(within)), bary)
