"""Retreat: a surface that a fit has folded goes back towards where it was not, as far as it must.

In: a mesh, and the same mesh before it moved, which was in order. Out: vertices between the two, so
that no face is flipped and none meets another: at worst those of before. Where two sheets were
pushed through each other (thin walls), some of the gap that was between them stays.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dressi.errors import GraphError
from dressi.render.fit.patches import adjacency
from dressi.render.fit.untangling import is_untangled, tangled_vertices
from dressi.render.scene import Mesh, surface_problems

_STEP = 0.6
"""What is left of the way of a tangled vertex, per round."""
_LEAST = 0.05
"""Shares of the way that are as good as none."""
_WIDER = 6
"""Rounds after which one more ring of vertices goes back, too."""


def retreat(mesh: Mesh, before: Mesh) -> tuple[Mesh, npt.NDArray[np.float64]]:
    """Return the mesh with tangled vertices moved back, and the share of its way that each kept.

    before: the mesh with the same faces and other positions, without flipped, degenerate and
    intersecting faces. In rounds, vertices of faces that are wrong, and those around them, keep 0.6
    of their way; in wider rings after a while, and where next to nothing is left, nothing. A round
    that finds something wrong takes something back, and with nothing left the surface is the one
    before, so there always is an answer. UVs are kept. Raises GraphError for other faces, and
    where the mesh before is tangled itself.
    """
    same = mesh.faces.shape == before.faces.shape and np.array_equal(mesh.faces, before.faces)
    if not same or mesh.positions.shape != before.positions.shape:
        raise GraphError("retreat: the mesh before must have the same vertices and faces")
    if not is_untangled(found := surface_problems(before)):
        raise GraphError(f"retreat: the mesh before is tangled itself: {found}")
    joined = adjacency(mesh.faces, len(mesh.positions))
    start = before.positions.astype(np.float64)
    way, kept, step = mesh.positions - start, np.ones(len(start)), 0
    made, problems = mesh, surface_problems(mesh)
    while not is_untangled(problems):
        bad = tangled_vertices(made, problems)
        for _ in range(1 + step // _WIDER):
            bad = bad | ((joined @ bad.astype(float)) > 0.0)
        # What is wrong where nothing has moved is so because of what is around: all go back.
        kept[bad if kept[bad].any() else slice(None)] *= _STEP
        kept[kept < _LEAST] = 0.0
        # Exactly where they were: rounding must not cross what did not cross.
        still = (kept == 0.0)[:, None]
        positions = np.where(still, start, start + kept[:, None] * way).astype(np.float32)
        made = replace(mesh, positions=positions)
        problems, step = surface_problems(made), step + 1
    return made, kept
