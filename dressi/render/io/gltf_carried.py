"""What a glTF file holds that Dressi makes no use of: kept when it is read, written as it was.

In: a document. Out: ``Carried``, which goes with the ``Scene``; and back. Kept are animations,
skins (where the posed vertices did not change), extras of the document and its asset, and unknown
extensions that refer to nothing but nodes, meshes, materials, cameras and lights, whose numbers
stay. What refers to buffers or textures, whose numbers change, is left out.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial.transform import Rotation

from dressi.errors import LoadError
from dressi.render.io.gltf_buffers import Buffers
from dressi.render.io.gltf_json import Json
from dressi.render.scene.parts import Matrix, Node, Primitive, SceneMesh, trs_matrix
from dressi.render.scene.scene import Scene

Table = tuple[npt.NDArray[Any], bool]
"""Values (count, n) as they are stored, and whether they are normalized."""

POINTS_AT = ("accessor", "bufferView", "buffer", "texture", "image", "index", "source", "pointer")
"""Keys whose numbers mean rows of tables that are written anew."""


@dataclass(frozen=True, eq=False)
class Posed:
    """A skinned mesh that was posed. node: that has the skin. skin: its row. mesh, posed_mesh: rows
    of the mesh as the file has it and as it is posed; posed_node: that shows the latter. original,
    result: those meshes. influences: joints (V, 4) and weights (V, 4) of each primitive."""

    node: int
    skin: int
    mesh: int
    posed_node: int
    posed_mesh: int
    original: SceneMesh
    result: SceneMesh
    influences: tuple[tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]], ...]


@dataclass(frozen=True, eq=False)
class Carried:
    """animations, skins: JSON whose numbers of accessors are rows of tables. moves: translation,
    rotation and scale of nodes that the file gives so. parts: (table, row) -> extensions by name,
    ('meshes', row, primitive) too; () are those of the document. extras: of the document ('') and
    its asset ('asset')."""

    animations: tuple[dict[str, Any], ...] = ()
    skins: tuple[dict[str, Any], ...] = ()
    tables: tuple[Table, ...] = ()
    moves: dict[int, dict[str, Any]] = field(default_factory=dict)
    posed: tuple[Posed, ...] = ()
    parts: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)
    extras: dict[str, Any] = field(default_factory=dict)


class Carrier:
    """Collects what is to be kept of one document. known: names of the extensions that are read."""

    def __init__(
        self, document: Json, buffers: Buffers, known: Iterable[str], notes: list[str]
    ) -> None:
        self._document, self._buffers, self._notes = document, buffers, notes
        self._known = set(known)
        self._tables: list[Table] = []
        self._rows: dict[int, int] = {}
        self.parts: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._left: set[str] = set()
        self._kept: set[str] = set()

    def part(self, owner: Json, *place: Any) -> None:
        """Keep the unknown extensions of an object. place: where they are written."""
        given = owner.get("extensions")
        for name, value in ({} if given is None else given.value).items():
            if name in self._known:
                continue
            if points_at_data(value):
                self._left.add(name)
                continue
            self._kept.add(name)
            self.parts.setdefault(place, {})[name] = copy.deepcopy(value)

    def _table(self, owner: Json, key: str) -> int:
        row = owner.row(key, self._buffers.accessors, "accessors")
        if row not in self._rows:
            _, values, normalized = self._buffers.accessor(row)
            self._rows[row] = len(self._tables)
            self._tables.append((values, normalized))
        return self._rows[row]

    def _animation(self, animation: Json) -> dict[str, Any]:
        samplers, channels = animation.objects("samplers"), animation.objects("channels")
        if not samplers or not channels:
            raise animation.fail("an animation needs samplers and channels")
        out = dict(copy.deepcopy(animation.value))
        for channel in channels:
            target = channel.need("target")
            target.optional_row("node", self._document.array("nodes"), "nodes")
            channel.row("sampler", samplers, "samplers")
            if points_at_data(target.value):
                raise target.fail("it moves what has another number when it is written")
        for sampler, entry in zip(samplers, out["samplers"], strict=True):
            for key in ("input", "output"):
                entry[key] = self._table(sampler, key)
        return out

    def _skin(self, skin: Json) -> dict[str, Any]:
        out = dict(copy.deepcopy(skin.value))
        if skin.has("inverseBindMatrices"):
            out["inverseBindMatrices"] = self._table(skin, "inverseBindMatrices")
        return out

    def collected(self, used: set[str], posed: Iterable[Posed]) -> Carried | None:
        """Everything, None for nothing; with lines in the notes. used: names of the extensions that
        the file uses."""
        document = self._document
        self.part(document)
        for key in ("nodes", "materials", "cameras"):
            for row, entry in enumerate(document.objects(key)):
                self.part(entry, key, row)
        for row, entry in enumerate(document.objects("scenes")):
            if row == document.value.get("scene", 0):  # the one that is written
                self.part(entry, "scenes", 0)
        animations = []
        for animation in document.objects("animations"):
            try:
                animations.append(self._animation(animation))
            except LoadError as error:  # nothing here depends on it
                self._notes.append(f"{animation.where} is left out: {error}")
        if animations:
            self._notes.append("animations are kept, and not played")
        targets = {c["target"].get("node") for a in animations for c in a["channels"]}
        moves = {
            row: {k: node.value[k] for k in ("translation", "rotation", "scale") if node.has(k)}
            for row, node in enumerate(document.objects("nodes"))
            if row in targets and not node.has("matrix")
        }
        posed = tuple(posed)
        skins = [self._skin(s) for s in document.objects("skins")] if posed else []
        for name in sorted(used - self._known):
            kept = name in self._kept and name not in self._left
            what = "is kept, and makes no difference here" if kept else "is left out"
            self._notes.append(f"the extension {name} {what}")
        owners = {"": document, "asset": document.need("asset")}
        extras = {k: o.extras() for k, o in owners.items() if o.extras() is not None}
        if not (animations or posed or self.parts or extras):
            return None
        tables = tuple(self._tables)
        return Carried(tuple(animations), tuple(skins), tables, moves, posed, self.parts, extras)


def points_at_data(value: Any) -> bool:
    """Whether JSON names a row of a table that is written anew."""
    if isinstance(value, list):
        return any(map(points_at_data, value))
    if not isinstance(value, dict):
        return False
    return any(k in POINTS_AT or points_at_data(v) for k, v in value.items())


# -- back into a file


def with_skins(scene: Scene, notes: list[str]) -> tuple[Scene, dict[int, Posed]]:
    """The scene with each posed mesh back at its node as the file had it, and what is skinned, by
    node; where vertices changed, the posed mesh stays, with a line in the notes."""
    carried = scene.carried
    back: dict[int, Posed] = {}
    for one in () if carried is None else carried.posed:
        if not _is_as_posed(scene, one):
            notes.append(f"the skin of nodes[{one.node}] is left out: its mesh has changed")
            continue
        back[one.node] = one
    if not back:
        return scene, back
    nodes, meshes, roots = list(scene.nodes), list(scene.meshes), list(scene.roots)
    for one in back.values():
        shown = scene.meshes[one.posed_mesh]
        meshes[one.mesh] = replace(
            one.original,
            primitives=tuple(
                _bound(now, bound)
                for now, bound in zip(shown.primitives, one.original.primitives, strict=True)
            ),
        )
        weights = nodes[one.posed_node].weights
        nodes[one.node] = replace(nodes[one.node], mesh=one.mesh, weights=weights)
        nodes[one.posed_node] = Node()
        roots.remove(one.posed_node)
    ends = {one.posed_node for one in back.values()}, {one.posed_mesh for one in back.values()}
    for table, gone in ((nodes, ends[0]), (meshes, ends[1])):
        while len(table) - 1 in gone:  # what was added at the end goes; numbers of others stay
            table.pop()
    return replace(scene, nodes=tuple(nodes), meshes=tuple(meshes), roots=tuple(roots)), back


def _is_as_posed(scene: Scene, one: Posed) -> bool:
    if one.posed_node >= len(scene.nodes) or one.posed_mesh >= len(scene.meshes):
        return False
    node, shown = scene.nodes[one.posed_node], scene.meshes[one.posed_mesh]
    if node.mesh != one.posed_mesh or not np.array_equal(node.matrix, np.eye(4)):
        return False
    if one.posed_node not in scene.roots or scene.nodes[one.node].mesh is not None:
        return False
    if len(shown.primitives) != len(one.result.primitives):
        return False
    return all(
        np.array_equal(a.positions, b.positions) and np.array_equal(a.faces, b.faces)
        for a, b in zip(shown.primitives, one.result.primitives, strict=True)
    )


def _bound(now: Primitive, bound: Primitive) -> Primitive:
    """What is shown now, with the vertices that the skin moves."""
    return replace(
        now,
        positions=bound.positions,
        normals=bound.normals,
        tangents=bound.tangents,
        targets=bound.targets,
    )


@dataclass(eq=False)
class Back:
    """JSON of what is carried, with the numbers of the file that is written. attributes: (mesh,
    primitive) -> numbers of accessors by name. skin_of: by node. moved: nodes without a matrix."""

    skins: list[dict[str, Any]]
    animations: list[dict[str, Any]]
    attributes: dict[tuple[int, int], dict[str, int]]
    skin_of: dict[int, int]
    moved: dict[int, dict[str, Any]]


def brought_back(
    scene: Scene,
    skinned: dict[int, Posed],
    add_table: Callable[[npt.NDArray[Any], bool], int],
    notes: list[str],
) -> Back:
    """Add the tables of what is carried to a file. add_table: adds an accessor."""
    carried: Carried = Carried() if scene.carried is None else scene.carried
    rows: dict[int, int] = {}

    def table(row: int) -> int:
        if row not in rows:
            rows[row] = add_table(*carried.tables[row])
        return rows[row]

    out = Back([], [], {}, {node: one.skin for node, one in skinned.items()}, {})
    for skin in carried.skins if skinned else ():
        entry = copy.deepcopy(skin)
        if "inverseBindMatrices" in entry:
            entry["inverseBindMatrices"] = table(entry["inverseBindMatrices"])
        out.skins.append(entry)
    for one in skinned.values():
        for k, (joints, weights) in enumerate(one.influences):
            if (one.mesh, k) not in out.attributes:
                out.attributes[one.mesh, k] = {
                    "JOINTS_0": add_table(joints.astype(np.uint16), False),
                    "WEIGHTS_0": add_table(weights.astype(np.float32), False),
                }
    for number, animation in enumerate(carried.animations):
        targets = {c["target"]["node"] for c in animation["channels"] if "node" in c["target"]}
        if max(targets, default=0) >= len(scene.nodes):
            notes.append(f"animation {number} is left out: it moves nodes that are gone")
            continue
        entry = copy.deepcopy(animation)
        for sampler in entry["samplers"]:
            sampler["input"], sampler["output"] = table(sampler["input"]), table(sampler["output"])
        out.animations.append(entry)
        for row in targets:  # an animated node must not have a matrix
            out.moved[row] = moves_of(scene.nodes[row].matrix, carried.moves.get(row, {}))
    return out


def put_back(back: Back, scene: Scene, document: dict[str, Any]) -> None:
    """Put all that is carried into the JSON of a document."""
    if back.skins:
        document["skins"] = back.skins
    if back.animations:
        document["animations"] = back.animations
    for (mesh, k), attributes in back.attributes.items():
        document["meshes"][mesh]["primitives"][k]["attributes"].update(attributes)
    for node, skin in back.skin_of.items():
        document["nodes"][node]["skin"] = skin
    for node, moves in back.moved.items():
        document["nodes"][node].pop("matrix", None)
        document["nodes"][node].update(moves)
    carried: Carried = Carried() if scene.carried is None else scene.carried
    used = set(document.get("extensionsUsed", []))
    for place, extensions in carried.parts.items():
        owner = _owner(document, place)
        if owner is not None:
            owner.setdefault("extensions", {}).update(copy.deepcopy(extensions))
            used |= set(extensions)
    if used:
        document["extensionsUsed"] = sorted(used)
    for key, extras in carried.extras.items():
        (document[key] if key else document)["extras"] = extras


def _owner(document: dict[str, Any], place: tuple[Any, ...]) -> dict[str, Any] | None:
    """The object at a place of ``Carried.parts``; None where it is gone."""
    at: Any = document
    for key in place:
        if isinstance(at, dict) and "primitives" in at:
            at = at["primitives"]
        fits = key in at if isinstance(at, dict) else key < len(at)
        if not fits:
            return None
        at = at[key]
    return at if isinstance(at, dict) else None


def moves_of(matrix: Matrix, given: dict[str, Any]) -> dict[str, Any]:
    """translation, rotation and scale of a matrix without shear: those that were given, where they
    are still right."""
    move = given.get("translation", (0.0, 0.0, 0.0))
    turn = given.get("rotation", (0.0, 0.0, 0.0, 1.0))
    if np.allclose(trs_matrix(move, turn, given.get("scale", (1.0, 1.0, 1.0))), matrix, atol=1e-7):
        return dict(given)
    linear = matrix[:3, :3]
    scale = np.linalg.norm(linear, axis=0)
    if np.linalg.det(linear) < 0.0:
        scale[0] = -scale[0]
    safe = np.where(scale == 0.0, 1.0, scale)
    quaternion = Rotation.from_matrix(linear / safe).as_quat()
    return {
        "translation": matrix[:3, 3].tolist(),
        "rotation": quaternion.tolist(),
        "scale": scale.tolist(),
    }
