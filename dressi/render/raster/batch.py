"""Several meshes as one: tables joined, so that one rasterization draws all of them.

In: (positions, faces[, model matrix]) of each mesh. Out: ``MeshBatch``, one table of positions and
one of faces, and which mesh a face belongs to. Meshes keep their own leaves: gradients reach each
one's positions and matrix. Faces of different meshes are never neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.graph import Derived
from dressi.ad.vtype import INT, IVEC3, MAT4, VEC3
from dressi.errors import GraphError
from dressi.render.raster.projection import check_variables
from dressi.render.raster.topology import MeshFaces, neighbor_table

Part = tuple[Variable, Variable] | tuple[Variable, Variable, Variable]


@dataclass(frozen=True)
class MeshBatch:
    """What ``build_batch`` gives.

    positions: VEC3 @ (sum of vertices, 1), in the world, layers where a matrix has them. faces:
    IVEC3 leaf @ (sum of faces, 1), rows of positions, kept up to date when the faces of a mesh are
    sent. mesh_of_face: INT @ (sum of faces, 1), number of the mesh. first_vertex, first_face: where
    each mesh begins, and the totals behind them. Gradient of positions to those of the meshes and
    to their matrices.
    """

    positions: Variable
    faces: Variable
    mesh_of_face: Variable
    first_vertex: tuple[int, ...]
    first_face: tuple[int, ...]

    @property
    def n_meshes(self) -> int:
        """Number of meshes."""
        return len(self.first_face) - 1

    def mesh_ids(self, ids: Variable) -> Variable:
        """INT: number of the mesh at each pixel, -1 where ids, face numbers of the batch, are
        -1."""
        return F.where(F.compare("gte", ids, 0), F.lookup(self.mesh_of_face, ids), -1)

    def face_ids(self, ids: Variable) -> Variable:
        """INT: number of the face within its own mesh at each pixel, -1 where ids are -1."""
        starts = F.leaf(_per_face(self.first_face, self.first_face[:-1]), INT, "batch.first_face")
        return F.where(F.compare("gte", ids, 0), ids - F.lookup(starts, ids), -1)

    def per_mesh(self, values: Sequence[Variable], ids: Variable) -> Variable:
        """One value per mesh at each pixel; 0 where ids are -1. values: FLOAT or VECn @ 1x1, one a
        mesh. Gradient to the values. Raises GraphError for another number of values."""
        self._check_count("values", len(values))
        return F.lookup(F.join(list(values)), self.mesh_ids(ids))

    def join_tables(
        self, tables: Sequence[Variable], faces: Sequence[Variable]
    ) -> tuple[Variable, Variable]:
        """(table, IVEC3 faces) of an attribute with a topology of its own, as UVs have.

        tables: one @ (n, 1) a mesh; faces: IVEC3 leaf @ (its number of faces, 1) a mesh, rows of
        its table. Gradient to the tables. Raises GraphError where the numbers of faces differ from
        those of the meshes.
        """
        self._check_count("tables", len(tables))
        self._check_count("face tables", len(faces))
        for k, f in enumerate(faces):
            n = self.first_face[k + 1] - self.first_face[k]
            if f.size != (n, 1):
                raise GraphError(f"batch: mesh {k} has {n} faces, got {f.label()} for its table")
        return F.join(list(tables)), _join_faces(tables, faces)

    def _check_count(self, what: str, n: int) -> None:
        if n != self.n_meshes:
            raise GraphError(f"batch: {n} {what} for {self.n_meshes} meshes")


def build_batch(meshes: Sequence[Part]) -> MeshBatch:
    """Join meshes into one table, to be drawn by any of the builders in one go.

    meshes: (positions VEC3 @ (N, 1), faces IVEC3 leaf @ (F, 1)) each, or with a third: model matrix
    MAT4 @ 1x1, from the mesh to the world, layers = views where it differs from view to view. The
    same leaves may stand in several meshes (instances). Each needs a vertex and a face: a mesh
    without any cannot be a table, so leave it out. Gradient to the positions and matrices. Raises
    GraphError for wrong types and an empty list; when faces are sent, for those that name a vertex
    that their own mesh does not have.
    """
    if not isinstance(meshes, (list, tuple)) or not meshes:
        raise GraphError(f"batch needs a list of at least one mesh, got {meshes!r}")
    positions, faces = [], []
    for k, part in enumerate(meshes):
        _check_part(k, part)
        p = part[0]
        if len(part) == 3:
            p = (part[2] @ F.vec4(p, 1.0)).xyz
        positions.append(p)
        faces.append(part[1])
    first_vertex = tuple(accumulate((p.size[0] for p in positions), initial=0))
    first_face = tuple(accumulate((f.size[0] for f in faces), initial=0))
    return MeshBatch(
        positions=F.join(positions),
        faces=_join_faces([part[0] for part in meshes], faces),
        mesh_of_face=F.leaf(_per_face(first_face, range(len(meshes))), INT, "batch.mesh_of_face"),
        first_vertex=first_vertex,
        first_face=first_face,
    )


def _check_part(k: int, part: object) -> None:
    if not isinstance(part, (list, tuple)) or len(part) not in (2, 3):
        raise GraphError(f"batch: mesh {k} must be (positions, faces[, matrix]), got {part!r}")
    given = zip(("positions", "faces", "matrix"), part, strict=False)
    check_variables("batch", **{f"{what} of mesh {k}": v for what, v in given})
    positions, faces = part[:2]
    if positions.vtype is not VEC3 or positions.size[1] != 1:
        raise GraphError(f"batch: mesh {k} needs VEC3 positions @ (n, 1), got {positions.label()}")
    if faces.vtype is not IVEC3 or faces.size[1] != 1 or faces.layers != 1 or faces.creator:
        raise GraphError(f"batch: mesh {k} needs an IVEC3 leaf of faces, got {faces.label()}")
    if len(part) == 3 and (part[2].vtype is not MAT4 or part[2].size != (1, 1)):
        raise GraphError(f"batch: mesh {k} needs a MAT4 @ 1x1, got {part[2].label()}")


def _per_face(first_face: Sequence[int], values: Sequence[int]) -> np.ndarray:
    """(faces, 1): a value per mesh, repeated for its faces."""
    return np.repeat(np.asarray(values), np.diff(first_face))[:, None]


def _join_faces(tables: Sequence[Variable], faces: Sequence[Variable]) -> Variable:
    """IVEC3 leaf of all faces, rows of the joined tables."""
    counts = [f.size[0] for f in faces]
    rows = [t.size[0] for t in tables]
    leaf = Variable(IVEC3, (sum(counts), 1), name="batch.faces")
    neighbors = [neighbor_table(f, t) for f, t in zip(faces, tables, strict=True)]
    leaf.derived = MeshFaces(
        F.join(list(faces)),
        partial(_shift, counts, rows, True),
        neighbors=Derived(F.join(neighbors), partial(_shift, counts, counts, False)),
    )
    return leaf


def _shift(
    counts: Sequence[int], rows: Sequence[int], check: bool, index: np.ndarray
) -> np.ndarray:
    """From joined index tables to rows of what they index, joined too; -1 stays. counts: index rows
    per mesh; rows: those that it may name."""
    ends, starts = np.cumsum(counts), np.cumsum([0, *rows])
    out = np.asarray(index).reshape(-1, 3).astype(np.int64)
    for k, part in enumerate(np.split(out, ends[:-1])):
        bad = (part >= rows[k]) | (part < (0 if check else -1))
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise GraphError(
                f"batch: face {row} of mesh {k} names vertex {part[row, column]}, the mesh has "
                f"{rows[k]}"
            )
        part[part >= 0] += starts[k]  # a view: changes out
    return out.reshape(1, 1, -1, 3)
