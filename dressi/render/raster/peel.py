"""A layer of what is seen, per pixel."""

from __future__ import annotations

from dataclasses import dataclass

from dressi.ad import Variable


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
