"""Many nodes as the rows of a table: one leaf of vertices, one of matrices, one of faces.

In: the leaf in which all meshes have their place, and for each node its mesh and its matrix. Out:
positions in the world and faces, by a number of functions that is the same for any number of nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import INT, IVEC3, MAT4
from dressi.render.pipeline.parameters import Place

MANY = 8
"""Parts up to which each has leaves of its own: eight are what one function joins."""


@dataclass
class NodeTable:
    """Collects nodes. vertices: VEC3 @ (N, 1), of all meshes."""

    vertices: Variable
    matrices: list[np.ndarray] = field(default_factory=list)
    rows: list[np.ndarray] = field(default_factory=list)
    faces: list[np.ndarray] = field(default_factory=list)
    n_vertices: int = 0

    def add(self, place: Place, faces: np.ndarray, world: np.ndarray) -> None:
        """One node. place: its mesh among the vertices. faces: (F, 3) vertices of the mesh. world:
        (4, 4), mesh to world."""
        self.matrices.append(world)
        self.rows.append(np.arange(place.rows.start, place.rows.stop))
        self.faces.append(faces + self.n_vertices)
        self.n_vertices += place.size[0]

    def build(self) -> tuple[Variable, Variable]:
        """VEC3 positions @ (vertices of all nodes, 1), world, and the IVEC3 leaf of all faces, rows
        of them. Gradient to the vertices: the sum over the nodes that show them."""
        node = np.repeat(np.arange(len(self.rows)), [len(r) for r in self.rows])
        matrices = F.leaf(np.stack(self.matrices), MAT4, "worlds")
        world = F.lookup(matrices, F.leaf(node[:, None], INT, "node_of_vertex"))
        rows = F.leaf(np.concatenate(self.rows)[:, None], INT, "row_of_vertex")
        positions = (world @ F.vec4(F.lookup(self.vertices, rows), 1.0)).xyz
        return positions, F.leaf(np.concatenate(self.faces), IVEC3, "faces")
