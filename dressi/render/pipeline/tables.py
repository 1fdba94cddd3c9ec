"""Geometry: all triangles of a scene as the tables that one rasterization reads.

In: the rows that ``collect`` gathers from a scene. Out: ``Geometry``. A mesh has one parameter
``vtx_pos`` for all its primitives and instances; vertices that a file splits at seams are one in
it, so that a fit does not tear a surface. UVs, colours and tangents keep the file's rows. Normals
are those of the file until vertices move; then they are computed, averaged over the faces that
shared a normal in the file, so that hard edges stay hard.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT
from dressi.kinds import Normals
from dressi.render.pipeline.coordinates import TextureCoordinates
from dressi.render.pipeline.frame import Frame
from dressi.render.pipeline.objects import Poses
from dressi.render.raster import gather
from dressi.render.scene import Instance, SceneMesh, weld

NORMAL_STEP = 1e-3
"""Normals of a file that differ by less, in each component, are one."""

APART = 4.0
"""More than unit normals can differ by: between keys that must not meet."""


@dataclass(frozen=True, eq=False)
class Welded:
    """A mesh without seams. positions: (N, 3). deltas: (N, 3) of each blendshape, or None. rows:
    for each primitive the welded row of its vertices."""

    positions: np.ndarray
    deltas: tuple[np.ndarray | None, ...]
    rows: tuple[np.ndarray, ...]

    def faces(self, mesh: SceneMesh) -> np.ndarray:
        """(F, 3) int32: faces of all primitives, rows of ``positions``."""
        pairs = zip(self.rows, mesh.primitives, strict=True)
        return np.concatenate([r[p.faces] for r, p in pairs if len(p.faces)]).astype(np.int32)


def weld_mesh(mesh: SceneMesh) -> Welded:
    """Join the vertices of a mesh that lie, and move with its blendshapes, together."""
    n_targets = max((len(p.targets) for p in mesh.primitives), default=0)
    tables = []
    for p in mesh.primitives:
        columns = [p.positions]
        for k in range(n_targets):
            moved = p.targets[k].positions if k < len(p.targets) else None
            columns.append(np.zeros_like(p.positions) if moved is None else moved)
        tables.append(np.concatenate(columns, axis=1))
    table = np.concatenate(tables)
    starts = np.cumsum([0] + [len(t) for t in tables])
    faces = [p.faces + start for p, start in zip(mesh.primitives, starts, strict=False)]
    first = weld(table[:, :3], np.concatenate(faces), table[:, 3:])
    kept, rows_of = np.unique(first, return_inverse=True)  # in the order of the file
    joined = table[kept]
    moves = [joined[:, 3 * k + 3 : 3 * k + 6] for k in range(n_targets)]
    rows = np.split(np.reshape(rows_of, -1), starts[1:-1])
    deltas = tuple(m if m.any() else None for m in moves)
    return Welded(joined[:, :3], deltas, tuple(rows))


def normal_key(rows: np.ndarray, normals: np.ndarray) -> np.ndarray:
    """(N, 4) table for ``first_alike``, to ``NORMAL_STEP``: corners whose normals are one. rows:
    (N,) of the welded vertices; normals: (N, 3) of the file."""
    return np.concatenate([rows[:, None] * APART, normals], axis=1)


@dataclass(eq=False)
class Geometry:
    """Tables of all faces of a scene; F faces, A rows of attributes, G normals.

    positions: VEC3 @ (N, 1), world. faces: IVEC3 @ (F, 1). attribute_faces: IVEC3 @ (F, 1), rows of
    uvs (VEC2, by UV set), colors (VEC4, or None) and tangents (VEC4, world; w 0 where a primitive
    has none). normal_faces: IVEC3 @ (F, 1), rows of the normals. material_of_face: INT @ (F, 1).
    frame: where all of it lies; positions and tangents are in the frame. corners: (F, 3), the rows
    of ``faces`` on the host. instances: whose vertices the rows of attributes are, one after the
    other. node_of_vertex, node_of_normal, node_of_face: of each row. scale_of_face: FLOAT @ (F, 1),
    world units of one unit of the mesh, or None where it is 1 for all. poses, coordinates:
    parameters of objects, and of UVs by (row of ``Scene.meshes``, UV set); ``now`` takes in those
    in use. radius: of the sphere about ``frame.center`` that holds all, world units.
    """

    positions: Variable
    faces: Variable
    attribute_faces: Variable
    uvs: tuple[Variable, ...]
    colors: Variable | None
    tangents: Variable | None
    normal_faces: Variable
    file_normals: Variable
    mesh_of_normal: np.ndarray
    has_normal: np.ndarray
    material_of_face: Variable
    materials_with_uv: tuple[set[int], ...]
    frame: Frame
    corners: np.ndarray
    instances: tuple[Instance, ...]
    node_of_vertex: np.ndarray
    node_of_normal: np.ndarray
    node_of_face: np.ndarray
    scale_of_face: Variable | None
    poses: Poses
    coordinates: dict[tuple[int, int], TextureCoordinates]
    radius: Variable | float

    @property
    def center(self) -> np.ndarray:
        """(3,) float64: middle of the scene, in the world."""
        return self.frame.center + self.frame.origin

    @property
    def mapped(self) -> set[int]:
        """Rows of ``Scene.meshes`` whose texture coordinates are in use."""
        return {mesh for (mesh, _), c in self.coordinates.items() if c.parameter.in_use}

    def now(self) -> Geometry:
        """The tables with the poses and texture coordinates that are in use, with gradient to them;
        itself where none is. Normals and tangents of the file turn with their objects."""
        uvs = list(self.uvs)
        for (mesh, k), c in self.coordinates.items():
            if c.parameter.in_use:
                uvs[k] = c.into(uvs[k], self.instances, mesh)
        if not self.poses.in_use:
            return replace(self, uvs=tuple(uvs)) if self.mapped else self
        positions, tangents, normals = self.positions, self.tangents, self.file_normals
        scale = F.constant(1.0) if self.scale_of_face is None else self.scale_of_face
        sizes = [len(i.primitive.positions) for i in self.instances]
        node_of_row = np.repeat([i.node for i in self.instances], sizes)
        moved = self.poses.moved()
        for m in moved:
            placed = (m.matrix @ F.vec4(self.positions, 1.0)).xyz
            positions = _chosen(m.among(self.node_of_vertex, "posed_vertices"), placed, positions)
            turned = m.turn @ self.file_normals
            normals = _chosen(m.among(self.node_of_normal, "posed_normals"), turned, normals)
            larger = scale * F.exp(F.add_n([p.scale.leaf for p in m.poses]))
            scale = _chosen(m.among(self.node_of_face, "posed_faces"), larger, scale)
            if tangents is not None and self.tangents is not None:
                along = F.vec4(m.turn @ self.tangents.xyz, self.tangents.w)
                tangents = _chosen(m.among(node_of_row, "posed_tangents"), along, tangents)
        return replace(
            self,
            positions=positions,
            uvs=tuple(uvs),
            tangents=tangents,
            file_normals=normals,
            scale_of_face=scale,
            radius=self.poses.radius(moved, self.frame.center, self.frame.radius),
        )

    def normals(self, moving: set[int], mode: Normals = "auto") -> Variable:
        """VEC3 unit normals @ (G, 1), world. moving: rows of ``Scene.meshes`` whose vertices move.
        mode: ``auto``; ``file``, the file's wherever it has some; ``computed``. Gradient to
        positions of those that are computed."""
        computed = np.isin(self.mesh_of_normal, sorted(moving)) & (mode == "auto")
        computed |= ~self.has_normal | (mode == "computed")
        if not computed.any():
            return self.file_normals
        a, b, c = gather(self.positions, self.faces)
        n, f = F.cross(b - a, c - a), self.normal_faces
        size = self.file_normals.size
        total = F.add_n([F.scatter_add(n, i, size) for i in (f.x, f.y, f.z)])
        unit = F.normalize(total)
        if computed.all():
            return unit
        mask = F.leaf(computed.astype(np.float32)[:, None], FLOAT, "computed_normals")
        return F.where(mask, unit, self.file_normals)


def _chosen(mask: Variable | None, new: Variable, old: Variable) -> Variable:
    """new where the mask is 1, or everywhere where there is none."""
    return new if mask is None else F.where(mask, new, old)
