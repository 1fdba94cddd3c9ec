"""From a scene to its geometry: the rows of all instances, collected.

In: a ``Scene``. Out: ``Geometry``, and the parameters of positions and blendshapes. Few nodes have
leaves of their own; many are rows of a table (``nodes``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, INT, IVEC3, MAT4, VEC2, VEC3, VEC4
from dressi.errors import GraphError
from dressi.render.camera.far import far_origin, relative, translation
from dressi.render.pipeline.coordinates import TextureCoordinates, build_coordinates
from dressi.render.pipeline.frame import Frame, build_frame, unit_of
from dressi.render.pipeline.materials import MaterialLeaves
from dressi.render.pipeline.nodes import MANY, NodeTable
from dressi.render.pipeline.objects import Poses, build_poses
from dressi.render.pipeline.parameters import Parameter, ParameterTable, Place, unique_names
from dressi.render.pipeline.tables import (
    APART,
    NORMAL_STEP,
    Geometry,
    Welded,
    normal_key,
    weld_mesh,
)
from dressi.render.raster import Part, build_batch
from dressi.render.scene import Instance, Scene, first_alike, instances
from dressi.render.scene.mesh import unit_or_zero


def build_geometry(
    scene: Scene,
    materials: Sequence[MaterialLeaves],
    table: ParameterTable,
    shared: bool | None = None,
) -> tuple[Geometry, dict[int, Welded], dict[int, Parameter], dict[int, Parameter]]:
    """The tables of a scene; adds ``vtx_pos``, ``vtx_uv``, ``blendshape_weights`` and the poses of
    objects to the parameters.

    materials: those in use, in the order of their numbers here. shared: whether meshes lie in one
    leaf and nodes in a table of matrices, so that the graph does not grow with their number; None:
    where there are more than ``MANY`` nodes. Those with blendshapes have leaves of their own.
    Returns the geometry, the welded meshes and the parameters of positions by row of
    ``Scene.meshes``, those of weights by node. Raises GraphError for a scene without faces.
    """
    found = [i for i in instances(scene) if len(i.primitive.faces)]
    if not found:
        raise GraphError(
            f"the scene '{scene.name}' has no triangles: {len(scene.meshes)} meshes, "
            f"{len(scene.nodes)} nodes"
        )
    frame, found = build_frame(found)
    used = sorted({i.mesh for i in found})
    welded = {m: weld_mesh(scene.meshes[m]) for m in used}
    groups: dict[int, list[Instance]] = {}
    for i in found:
        groups.setdefault(i.node, []).append(i)
    if shared is None:
        shared = len(groups) > MANY
    together = [m for m in used if shared and not welded[m].deltas]
    origins = {m: far_origin(welded[m].positions.astype(np.float64)) for m in used}
    pos, vertices = _position_leaves(scene, used, welded, origins, together, table)
    shaped = [n for n in sorted(groups) if welded[groups[n][0].mesh].deltas]
    node_names = unique_names([scene.nodes[n].name for n in shaped], "node")
    weights: dict[int, Parameter] = {}
    for node, name in zip(shaped, node_names, strict=True):
        first = groups[node][0]
        count = len(welded[first.mesh].deltas)
        values = np.zeros((count, 1), np.float32)
        values[: len(first.weights), 0] = first.weights
        leaf = F.leaf(values, FLOAT, f"blendshape_weights:{name}")
        weights[node] = table.add(Parameter("blendshape_weights", name, leaf))
    number = {m.row: k for k, m in enumerate(materials)}
    joiner = _Joiner(welded, pos, weights, number, origins)
    if vertices is not None:
        joiner.nodes = NodeTable(vertices)
        for group in groups.values():
            if group[0].mesh in together:
                joiner.add_row(group)
    for group in groups.values():
        if group[0].mesh not in together:
            joiner.add(group)
    names, places = {m: p.owner for m, p in pos.items()}, {m: welded[m].rows for m in used}
    coordinates = build_coordinates(scene, names, places, table)
    poses = build_poses(scene, found, table)
    return joiner.geometry(frame, poses, coordinates), welded, pos, weights


def _position_leaves(
    scene: Scene,
    used: Sequence[int],
    welded: dict[int, Welded],
    origins: dict[int, np.ndarray],
    together: Sequence[int],
    table: ParameterTable,
) -> tuple[dict[int, Parameter], Variable | None]:
    """The parameters of positions by row of ``Scene.meshes``, and the leaf that those of the meshes
    ``together`` share, one mesh after the other."""
    names = unique_names([scene.meshes[m].name for m in used], "mesh")
    places, leaf = {}, None
    if together:
        starts = np.cumsum([0, *(len(welded[m].positions) for m in together)]).tolist()
        moved = [relative(origins[m])[0](welded[m].positions) for m in together]
        leaf = F.leaf(np.concatenate(moved).astype(np.float32), VEC3, "vtx_pos")
        for m, start in zip(together, starts, strict=False):
            places[m] = Place(start, (len(welded[m].positions), 1))
    pos: dict[int, Parameter] = {}
    for m, name in zip(used, names, strict=True):
        to_leaf, to_user = relative(origins[m])
        placed = welded[m].positions
        own = places.get(m)
        mine = leaf
        if mine is None or own is None:
            mine = F.leaf(to_leaf(placed), VEC3, f"vtx_pos:{name}")
        row = Parameter("vtx_pos", name, mine, to_leaf=to_leaf, to_user=to_user, place=own)
        row.unit = unit_of(placed.min(axis=0), placed.max(axis=0))
        pos[m] = table.add(row)
    return pos, leaf


def distinct_normals(
    group: list[Instance], corners: list[np.ndarray], given: Sequence[np.ndarray | None]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Normals (G, 3), one for each welded vertex and normal of the file, rows of it (F, 3) for each
    corner, and which of them (G,) are the file's. corners: (F, 3) welded vertices of each
    primitive. given: (V, 3) of its vertices, or None."""
    keys, values, known = [], [], []
    for i, rows, normals in zip(group, corners, given, strict=True):
        flat = rows.reshape(-1)
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
    faces = inverse.reshape(-1, 3)
    return np.concatenate(values)[first], faces, np.concatenate(known)[first]


@dataclass(eq=False)
class _Template:
    """What nodes of one mesh have in common. corners: (F, 3) welded vertices. attribute_faces:
    (F, 3). normals: (G, 3) of the mesh, normal_faces: (F, 3) rows of them, has_normal: (G,)."""

    corners: np.ndarray
    normals: np.ndarray
    normal_faces: np.ndarray
    has_normal: np.ndarray
    has_tangents: bool
    attribute_faces: np.ndarray


def _template(group: list[Instance], corners: list[np.ndarray]) -> _Template:
    given = [i.primitive.normals for i in group]
    normals, faces, known = distinct_normals(group, corners, given)
    # Tangents turn with the node: rows of attributes are its own then.
    tangents = any(i.primitive.tangents is not None for i in group)
    return _Template(np.concatenate(corners), normals, faces, known, tangents, faces)


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
    placed_faces: list[tuple[int, float, int]] = field(default_factory=list)  # (node, scale, faces)
    rows: list[Instance] = field(default_factory=list)
    nodes: NodeTable | None = None
    templates: dict[tuple, _Template] = field(default_factory=dict)
    corners: list[np.ndarray] = field(default_factory=list)
    vertices: list[tuple[int, int]] = field(default_factory=list)  # (node, how many)
    node_of_normal: list[np.ndarray] = field(default_factory=list)
    n_rows: int = 0
    n_places: int = 0
    n_normals: int = 0

    def add_row(self, group: list[Instance]) -> None:
        """The primitives of one node, as a row of the table of nodes: what does not depend on where
        the node stands is done once for all nodes of a mesh."""
        first = group[0]
        assert self.nodes is not None
        key = (first.mesh, first.flips, tuple(i.part for i in group))
        template = self.templates.get(key)
        if template is None or template.has_tangents:
            corners = [self.welded[first.mesh].rows[i.part][i.faces] for i in group]
            attribute_faces = self._attribute_rows(group)
            if template is None:
                template = self.templates[key] = _template(group, corners)
            template.attribute_faces = attribute_faces
        place, origin = self.pos[first.mesh].place, self.origins[first.mesh]
        assert place is not None
        self.nodes.add(place, template.corners, first.world @ translation(origin))
        self.corners.append(template.corners + self.n_places)
        self.n_places += place.size[0]
        self.vertices.append((first.node, place.size[0]))
        self.attribute_faces.append(template.attribute_faces)
        numbers = [np.full(len(i.faces), self._number(i)) for i in group]
        self.materials.append(np.concatenate(numbers))
        self._place_faces(group)
        local, inverse, known = template.normals, template.normal_faces, template.has_normal
        self.normal_faces.append(inverse + self.n_normals)
        turned = first.turned(local.astype(np.float64))
        self.normals.append(np.where(known[:, None], turned, np.float32(0.0)))
        self.has_normal.append(known)
        self.mesh_of_normal.append(np.full(len(known), first.mesh))
        self.node_of_normal.append(np.full(len(known), first.node))
        self.n_normals += len(known)

    def _attribute_rows(self, group: list[Instance]) -> np.ndarray:
        """(F, 3) rows of attributes; the vertices of the primitives become rows."""
        faces = []
        for i in group:
            self.rows.append(i)
            faces.append(i.faces + self.n_rows)
            self.n_rows += len(i.primitive.positions)
        return np.concatenate(faces)

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
        self.corners.append(np.concatenate(corners) + self.n_places)
        self.n_places += len(welded.positions)
        self.vertices.append((first.node, len(welded.positions)))
        self.attribute_faces.append(self._attribute_rows(group))
        self.materials += [np.full(len(i.faces), self._number(i)) for i in group]
        self._place_faces(group)
        values, faces, known = distinct_normals(group, corners, [i.normals() for i in group])
        self.normal_faces.append(faces + self.n_normals)
        self.normals.append(values)
        self.has_normal.append(known)
        self.mesh_of_normal.append(np.full(len(known), first.mesh))
        self.node_of_normal.append(np.full(len(known), first.node))
        self.n_normals += len(known)

    def _place_faces(self, group: list[Instance]) -> None:
        """Note the node of the faces of a group, and the scale of its matrix."""
        first, n_faces = group[0], sum(len(i.faces) for i in group)
        scale = float(np.cbrt(abs(np.linalg.det(first.world[:3, :3]))))
        self.placed_faces.append((first.node, scale, n_faces))

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
        positions, faces = self._batch()
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
        nodes, scales, counts = (np.array(x) for x in zip(*self.placed_faces, strict=True))
        tangents = None
        if any(i.primitive.tangents is not None for i in self.rows):
            tangents = F.leaf(_joined(self.rows, _world_tangents, 4), VEC4, "tangents")
        return Geometry(
            positions,
            faces,
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
            np.concatenate(self.corners),
            tuple(self.rows),
            np.repeat(*np.transpose(self.vertices)),
            np.concatenate(self.node_of_normal),
            np.repeat(nodes, counts),
            _scales(np.repeat(scales, counts)),
            poses,
            coordinates,
            frame.radius,
        )

    def _batch(self) -> tuple[Variable, Variable]:
        """Positions in the world and faces: of the table of nodes, then of all other parts."""
        if self.nodes is None:
            batch = build_batch(self.parts)
            return batch.positions, batch.faces
        positions, faces = self.nodes.build()
        if not self.parts:
            return positions, faces
        batch = build_batch([(positions, faces), *self.parts])
        return batch.positions, batch.faces

    def _number(self, i: Instance) -> int:
        return self.number[-1 if i.primitive.material is None else i.primitive.material]


def _scales(scale: np.ndarray) -> Variable | None:
    """A table of the scales of faces (F,), None where all are 1."""
    if np.allclose(scale, 1.0, rtol=1e-6):
        return None
    return F.leaf(scale.astype(np.float32)[:, None], FLOAT, "scale_of_face")


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
    tables = []
    for i in rows:
        found = table(i)
        lacking = np.full((len(i.primitive.positions), width), fill)
        tables.append(lacking if found is None else found)
    return np.concatenate(tables).astype(np.float32)
