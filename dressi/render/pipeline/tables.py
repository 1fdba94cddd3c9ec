"""Geometry: all triangles of a scene as the tables that one rasterization reads.

In: a ``Scene``. Out: ``Geometry``. A mesh has one parameter ``vtx_pos`` for all its primitives and
instances; vertices that a file splits at seams are one in it, so that a fit does not tear a
surface. UVs, colours and tangents keep the file's rows. Normals are those of the file until
vertices move; then they are computed, averaged over the faces that shared a normal in the file, so
that hard edges stay hard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, INT, IVEC3, MAT4, VEC2, VEC3, VEC4
from dressi.errors import GraphError
from dressi.kinds import Normals
from dressi.render.camera.far import far_origin, relative, translation
from dressi.render.pipeline.coordinates import TextureCoordinates, build_coordinates
from dressi.render.pipeline.frame import Frame, build_frame, unit_of
from dressi.render.pipeline.objects import Poses, build_poses
from dressi.render.pipeline.parameters import Parameter, ParameterTable, unique_names
from dressi.render.raster import Part, build_batch, gather
from dressi.render.scene import Instance, Scene, SceneMesh, first_alike, instances, weld
from dressi.render.scene.mesh import unit_or_zero

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
    frame: where all of it lies; positions and tangents are in the frame. poses, coordinates: the
    parameters of objects and of UVs, by (mesh, UV set); ``now`` takes in those that are in use.
    instances, parts, normals_of: what the tables were joined from. radius: of the sphere that holds
    all, world units, about ``frame.center``.
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
    poses: Poses
    coordinates: dict[tuple[int, int], TextureCoordinates]
    instances: tuple[Instance, ...]
    parts: tuple[Part, ...]
    normals_of: tuple[np.ndarray, ...]
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
        uvs = self.uvs
        if self.mapped:
            uvs = tuple(F.join([self._uvs(i, k) for i in self.instances]) for k in range(len(uvs)))
        if not self.poses.in_use:
            return self if uvs is self.uvs else replace(self, uvs=uvs)
        nodes = tuple(dict.fromkeys(i.node for i in self.instances))
        tangents = self.tangents
        if tangents is not None:
            tables = [_table(i, _world_tangents, 4) for i in self.instances]
            leaves = [F.leaf(t, VEC4, "tangents") for t in tables]
            turns = [self.poses.turn(i.node) for i in self.instances]
            tangents = F.join([_turned(t, turn) for t, turn in zip(leaves, turns, strict=True)])
        placed = [self._placed(part, n) for part, n in zip(self.parts, nodes, strict=True)]
        normals = [F.leaf(n, VEC3, "file_normals") for n in self.normals_of]
        turns = [self.poses.turn(n) for n in nodes]
        return replace(
            self,
            positions=F.join(placed),
            uvs=uvs,
            tangents=tangents,
            file_normals=F.join([_turned(n, t) for n, t in zip(normals, turns, strict=True)]),
            radius=self.poses.radius(self.frame.center, self.frame.radius),
        )

    def _uvs(self, i: Instance, k: int) -> Variable:
        found = self.coordinates.get((i.mesh, k))
        if found is not None and found.parameter.in_use and found.rows[i.part] is not None:
            return found.of(i.part)
        return F.leaf(_table(i, lambda i: _uv(i, k), 2), VEC2, f"uv{k}")

    def _placed(self, part: Part, node: int) -> Variable:
        """Positions of a node in the frame, moved by the poses in use."""
        given, moved = part[2:], self.poses.matrix(node)
        matrices = [*([] if moved is None else [moved]), *given]
        if not matrices:
            return part[0]
        matrix = matrices[0] if len(matrices) == 1 else matrices[0] @ matrices[1]
        return (matrix @ F.vec4(part[0], 1.0)).xyz

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


def build_geometry(
    scene: Scene, material_rows: Sequence[int], table: ParameterTable
) -> tuple[Geometry, dict[int, Welded], dict[int, Parameter], dict[int, Parameter]]:
    """The tables of a scene; adds ``vtx_pos``, ``vtx_uv``, ``blendshape_weights`` and the poses of
    objects to the parameters.

    material_rows: rows of ``Scene.materials`` in use, -1 for the default material, in the order of
    their numbers here. Returns the geometry, the welded meshes and the parameters of positions by
    row of ``Scene.meshes``, those of weights by node. Raises GraphError for a scene without faces.
    """
    found = [i for i in instances(scene) if len(i.primitive.faces)]
    if not found:
        raise GraphError(
            f"the scene '{scene.name}' has no triangles: {len(scene.meshes)} meshes, "
            f"{len(scene.nodes)} nodes"
        )
    frame, found = build_frame(found)
    used = sorted({i.mesh for i in found})
    names = dict(zip(used, unique_names([scene.meshes[m].name for m in used], "mesh"), strict=True))
    welded = {m: weld_mesh(scene.meshes[m]) for m in used}
    pos: dict[int, Parameter] = {}
    origins = {m: far_origin(welded[m].positions.astype(np.float64)) for m in used}
    for m in used:
        to_leaf, to_user = relative(origins[m])
        leaf = F.leaf(to_leaf(welded[m].positions), VEC3, f"vtx_pos:{names[m]}")
        placed = welded[m].positions
        row = Parameter("vtx_pos", names[m], leaf, to_leaf=to_leaf, to_user=to_user)
        row.unit = unit_of(placed.min(axis=0), placed.max(axis=0))
        pos[m] = table.add(row)
    places = {m: welded[m].rows for m in used}
    coordinates = build_coordinates(scene, names, places, table)
    shaped = sorted({i.node for i in found if welded[i.mesh].deltas})
    node_names = unique_names([scene.nodes[n].name for n in shaped], "node")
    weights: dict[int, Parameter] = {}
    for node, name in zip(shaped, node_names, strict=True):
        first = next(i for i in found if i.node == node)
        count = len(welded[first.mesh].deltas)
        values = np.zeros((count, 1), np.float32)
        values[: len(first.weights), 0] = first.weights
        leaf = F.leaf(values, FLOAT, f"blendshape_weights:{name}")
        weights[node] = table.add(Parameter("blendshape_weights", name, leaf))
    number = {row: k for k, row in enumerate(material_rows)}
    joiner = _Joiner(welded, pos, weights, number, origins)
    for node in dict.fromkeys(i.node for i in found):
        joiner.add([i for i in found if i.node == node])
    poses = build_poses(scene, found, table)
    return joiner.geometry(frame, poses, coordinates), welded, pos, weights


@dataclass
class _Joiner:
    """Collects the rows of all instances."""

    welded: dict[int, Welded]
    pos: dict[int, Parameter]
    weights: dict[int, Parameter]
    number: dict[int, int]
    origins: dict[int, np.ndarray]
    parts: list[Part] = field(default_factory=list)
    faces: dict[tuple, Variable] = field(default_factory=dict)
    deltas: dict[int, list[Variable | None]] = field(default_factory=dict)
    attribute_faces: list[np.ndarray] = field(default_factory=list)
    normal_faces: list[np.ndarray] = field(default_factory=list)
    normals: list[np.ndarray] = field(default_factory=list)
    mesh_of_normal: list[np.ndarray] = field(default_factory=list)
    has_normal: list[np.ndarray] = field(default_factory=list)
    materials: list[np.ndarray] = field(default_factory=list)
    rows: list[Instance] = field(default_factory=list)
    n_rows: int = 0
    n_normals: int = 0

    def add(self, group: list[Instance]) -> None:
        """The primitives of one node."""
        first = group[0]
        mesh, flips = first.mesh, first.flips
        key = (mesh, flips, tuple(i.part for i in group))
        welded = self.welded[mesh]
        corners = [welded.rows[i.part][i.faces] for i in group]
        if key not in self.faces:
            name = f"faces:{self.pos[mesh].owner}"
            self.faces[key] = F.leaf(np.concatenate(corners), IVEC3, name)
        part: Part = (self._positions(first), self.faces[key])
        placed = first.world @ translation(self.origins[mesh])
        if not np.array_equal(placed, np.eye(4)):
            part = (*part, F.leaf(placed[None, None], MAT4, f"world{first.node}"))
        self.parts.append(part)
        for i in group:
            self.rows.append(i)
            self.attribute_faces.append(i.faces + self.n_rows)
            self.n_rows += len(i.primitive.positions)
            self.materials.append(np.full(len(i.faces), self._number(i)))
        self._add_normals(group, corners)

    def _add_normals(self, group: list[Instance], corners: list[np.ndarray]) -> None:
        """Rows of normals: one for each welded vertex and normal of the file."""
        keys, values, known = [], [], []
        for i, rows in zip(group, corners, strict=True):
            normals, flat = i.normals(), rows.reshape(-1)
            if normals is None:  # a face each, as glTF wants where a file has none
                file = np.zeros((len(flat), 3), np.float32)
                own = -APART * (1 + np.arange(len(flat)) // 3)
                key = normal_key(flat, np.stack([own, own * 0, own * 0], axis=1))
            else:
                file = normals[i.faces.reshape(-1)]
                key = normal_key(flat, file)
            keys.append(key)
            values.append(file)
            known.append(np.full(len(flat), normals is not None))
        alike = first_alike(np.concatenate(keys), NORMAL_STEP)
        first, inverse = np.unique(alike, return_inverse=True)
        self.normal_faces.append(inverse.reshape(-1, 3) + self.n_normals)
        self.normals.append(np.concatenate(values)[first])
        self.has_normal.append(np.concatenate(known)[first])
        self.mesh_of_normal.append(np.full(len(first), group[0].mesh))
        self.n_normals += len(first)

    def _positions(self, i: Instance) -> Variable:
        """Positions of a mesh with the blendshapes of its node."""
        base = self.pos[i.mesh].leaf
        if i.node not in self.weights:
            return base
        if i.mesh not in self.deltas:
            self.deltas[i.mesh] = [
                None if d is None else F.leaf(d, VEC3, f"blendshape{k}")
                for k, d in enumerate(self.welded[i.mesh].deltas)
            ]
        w = self.weights[i.node].leaf
        deltas = self.deltas[i.mesh]
        terms = [
            d * (F.crop(w, k, 0, 1, 1) if len(deltas) > 1 else w)
            for k, d in enumerate(deltas)
            if d is not None
        ]
        return F.add_n([base, *terms]) if terms else base

    def geometry(
        self,
        frame: Frame,
        poses: Poses,
        coordinates: dict[tuple[int, int], TextureCoordinates],
    ) -> Geometry:
        """The tables of all that was added."""
        batch = build_batch(self.parts)
        n_sets = max((len(i.primitive.uvs) for i in self.rows), default=0)
        uvs = [_joined(self.rows, lambda i, k=k: _uv(i, k), 2) for k in range(n_sets)]
        every = {self._number(i) for i in self.rows}
        with_uv = tuple(
            every - {self._number(i) for i in self.rows if len(i.primitive.uvs) <= k}
            for k in range(n_sets)
        )
        colors = None
        if any(i.primitive.colors is not None for i in self.rows):
            rgba = _joined(self.rows, lambda i: i.primitive.colors, 4, 1.0)
            colors = F.leaf(rgba, VEC4, "vertex_colors")
        tangents = None
        if any(i.primitive.tangents is not None for i in self.rows):
            tangents = F.leaf(_joined(self.rows, _world_tangents, 4), VEC4, "tangents")
        return Geometry(
            batch.positions,
            batch.faces,
            F.leaf(np.concatenate(self.attribute_faces), IVEC3, "attribute_faces"),
            tuple(F.leaf(t, VEC2, f"uv{k}") for k, t in enumerate(uvs)),
            colors,
            tangents,
            F.leaf(np.concatenate(self.normal_faces), IVEC3, "normal_faces"),
            F.leaf(np.concatenate(self.normals), VEC3, "file_normals"),
            np.concatenate(self.mesh_of_normal),
            np.concatenate(self.has_normal),
            F.leaf(np.concatenate(self.materials)[:, None], INT, "material_of_face"),
            with_uv,
            frame,
            poses,
            coordinates,
            tuple(self.rows),
            tuple(self.parts),
            tuple(self.normals),
            frame.radius,
        )

    def _number(self, i: Instance) -> int:
        return self.number[-1 if i.primitive.material is None else i.primitive.material]


def _uv(i: Instance, k: int) -> np.ndarray | None:
    return i.primitive.uvs[k] if k < len(i.primitive.uvs) else None


def _world_tangents(i: Instance) -> np.ndarray | None:
    given = i.primitive.tangents
    if given is None:
        return None
    along = unit_or_zero(given[:, :3] @ i.world[:3, :3].T)
    # A mirroring matrix turns the handedness of normal, tangent and bitangent.
    return np.concatenate([along, given[:, 3:] * (-1.0 if i.flips else 1.0)], axis=1)


def _joined(rows: list[Instance], table, width: int, fill: float = 0.0) -> np.ndarray:  # type: ignore[no-untyped-def]
    """(A, width) float32: a table of each instance, ``fill`` for those that have none."""
    return np.concatenate([_table(i, table, width, fill) for i in rows])


def _table(i: Instance, table, width: int, fill: float = 0.0) -> np.ndarray:  # type: ignore[no-untyped-def]
    """(vertices, width) float32 of one instance."""
    found = table(i)
    lacking = np.full((len(i.primitive.positions), width), fill)
    return np.asarray(lacking if found is None else found, np.float32)


def _turned(table: Variable, turn: Variable | None) -> Variable:
    """VEC3 directions, or VEC4 with a sign, turned by a MAT3; as they are where it is None."""
    if turn is None:
        return table
    return turn @ table if table.vtype is VEC3 else F.vec4(turn @ table.xyz, table.w)
