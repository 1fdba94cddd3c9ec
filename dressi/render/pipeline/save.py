"""Back to a scene: the data of parameters in the places that they came from.

In: the scene as it was loaded, and what its parameters hold now. Out: a ``Scene`` in which only
parameters that were in use (sent or fitted) differ, and notes on what had no place. An image that
several kinds of maps read in the same channels is split: the fitted map gets an image of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from dressi.ad import Variable
from dressi.errors import GraphError
from dressi.render.camera.camera import Camera
from dressi.render.camera.far import translation
from dressi.render.io.images import with_colors
from dressi.render.pipeline.coordinates import moved_coordinates
from dressi.render.pipeline.lights import LightLeaves
from dressi.render.pipeline.materials import CHANNELS, FIELDS, FILE_SRGB, MaterialLeaves
from dressi.render.pipeline.parameters import Parameter, ParameterTable, with_field
from dressi.render.pipeline.tables import NORMAL_STEP, Geometry, Welded, normal_key
from dressi.render.scene import (
    Image,
    Node,
    Primitive,
    Scene,
    SceneMesh,
    first_alike,
    world_matrices,
)
from dressi.render.scene.models import with_number
from dressi.render.scene.parts import ColorSpace

Read = Callable[[Parameter], np.ndarray]


@dataclass(eq=False)
class Sources:
    """Where parameters come from. geometry: has the poses and texture coordinates. positions,
    welded: by row of ``Scene.meshes``. weights: by node. camera_nodes: of the views in their order,
    None where the cameras were given."""

    table: ParameterTable
    materials: list[MaterialLeaves]
    geometry: Geometry
    positions: dict[int, Parameter]
    welded: dict[int, Welded]
    weights: dict[int, Parameter]
    lights: LightLeaves
    camera_nodes: list[int] | None


@dataclass
class _Draft:
    """A scene in the making. loaded: the world matrices of the nodes as they were; worlds, parents:
    as they are, of the nodes and of what they hang from. placed: nodes and slots that ``place`` was
    called for."""

    scene: Scene
    nodes: list[Node]
    loaded: dict[int, np.ndarray]
    worlds: dict[int, np.ndarray] = field(default_factory=dict)
    parents: dict[int, np.ndarray] = field(default_factory=dict)
    placed: set[tuple[int, str]] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def follow(self) -> None:
        """Take ``worlds`` and ``parents`` from the nodes as they are."""
        self.worlds = dict(world_matrices(replace(self.scene, nodes=tuple(self.nodes))))
        self.parents = {i: np.eye(4) for i in self.worlds}
        for i, world in self.worlds.items():
            self.parents.update(dict.fromkeys(self.nodes[i].children, world))

    def place(self, index: int, world: np.ndarray, slot: str) -> None:
        """Put what a node carries in ``slot`` (light, camera) at another place: the node itself
        where it carries nothing else, a new child of it where it does."""
        node = self.nodes[index]
        self.placed.add((index, slot))
        others = [node.mesh, node.light if slot == "camera" else node.camera]
        if not node.children and all(o is None for o in others):
            self.nodes[index] = replace(node, matrix=np.linalg.inv(self.parents[index]) @ world)
            return
        self.notes.append(f"node {index} carries more than its {slot}, which got a node of its own")
        local = np.linalg.inv(self.worlds[index]) @ world
        child = Node(local, name=node.name, **{slot: getattr(node, slot)})
        self.nodes[index] = with_field(
            replace(node, children=(*node.children, len(self.nodes))), slot, None
        )
        self.nodes.append(child)


def updated_scene(
    scene: Scene,
    sources: Sources,
    recv: Callable[[Variable], np.ndarray],
    cameras: Sequence[Camera],
    aspect: float,
) -> tuple[Scene, tuple[str, ...]]:
    """The scene with the data of its parameters, and notes on what was left out.

    recv: the data of a leaf; one that many parameters share is read once. cameras: of the views, as
    they are now. aspect: width / height of the pictures. Normals of moved meshes are computed
    anew (averaged over the same vertices as before); their tangents are dropped, for the reader to
    compute. Lights and cameras that hang from an object that moved stay where they were, on nodes
    of their own.
    """
    once = cache(recv)

    def read(p: Parameter) -> np.ndarray:
        return p.read(once(p.leaf))

    draft = _Draft(scene, list(scene.nodes), dict(world_matrices(scene)))
    _objects_back(draft, sources.geometry, read)
    meshes = list(scene.meshes)
    for row, p in sources.positions.items():
        if p.in_use:
            meshes[row] = moved_mesh(scene.meshes[row], sources.welded[row], read(p))
            if any(q.tangents is not None for q in scene.meshes[row].primitives):
                draft.notes.append(f"tangents of the moved mesh {p.owner} are left out")
    for (row, k), found in sources.geometry.coordinates.items():
        if found.parameter.in_use:
            if any(q.tangents is not None for q in meshes[row].primitives):
                draft.notes.append(f"tangents of {found.parameter.name}, which moved, are left out")
            meshes[row] = moved_coordinates(meshes[row], k, found.rows, read(found.parameter))
    for node, p in sources.weights.items():
        if p.in_use:
            values = tuple(float(w) for w in read(p).reshape(-1))
            draft.nodes[node] = replace(draft.nodes[node], weights=values)
    draft.scene = replace(draft.scene, meshes=tuple(meshes))
    draft.scene = _with_factors(draft.scene, sources, read)
    draft.scene = _with_maps(draft.scene, sources, read)
    _lights_back(draft, sources, read)
    _cameras_back(draft, sources, cameras, aspect)
    _others_stay(draft)
    environment = sources.table.one("environment")
    if environment is not None and environment.in_use and draft.scene.environment is not None:
        image = replace(draft.scene.environment, pixels=read(environment))
        draft.scene = replace(draft.scene, environment=image)
    return replace(draft.scene, nodes=tuple(draft.nodes)), tuple(draft.notes)


def _objects_back(draft: _Draft, geometry: Geometry, read: Read) -> None:
    """The poses into the matrices of their nodes. ``D W = W_parent local``: only the node's own
    matrix differs, what hangs below it follows."""
    draft.follow()
    origin = geometry.frame.origin
    for node, pose in geometry.poses.rows.items():
        if not pose.in_use:
            continue
        moved = translation(origin) @ pose.exact(read) @ translation(-origin) @ draft.loaded[node]
        try:
            local = np.linalg.solve(draft.parents[node], moved)
        except np.linalg.LinAlgError:
            raise GraphError(
                f"the pose {pose.rotation.owner} cannot be saved: the node above it flattens space"
            ) from None
        draft.nodes[node] = replace(draft.nodes[node], matrix=local)
    draft.follow()


def _others_stay(draft: _Draft) -> None:
    """Lights and cameras where they were, though the object that they hang from moved."""
    for node, world in draft.loaded.items():
        if np.array_equal(world, draft.worlds[node]):
            continue
        for slot in ("light", "camera"):
            if getattr(draft.nodes[node], slot) is not None and (node, slot) not in draft.placed:
                draft.place(node, world, slot)


def moved_mesh(mesh: SceneMesh, welded: Welded, positions: np.ndarray) -> SceneMesh:
    """A mesh with other positions (rows of the welded one) and normals that fit them."""
    parts = list(zip(mesh.primitives, welded.rows, strict=True))
    keys = [normal_key(rows, p.normals) for p, rows in parts if p.normals is not None]
    # Corners whose normals are one in the file, over all primitives, stay so.
    alike = first_alike(np.concatenate(keys), NORMAL_STEP) if keys else np.zeros(0, np.int64)
    groups, start = [], 0
    for p, rows in parts:
        n = 0 if p.normals is None else len(rows)
        groups.append(alike[start : start + n])
        start += n
    total = np.zeros((len(alike), 3))
    for (p, rows), group in zip(parts, groups, strict=True):
        if p.normals is not None:
            a, b, c = (positions[rows[p.faces[:, k]]].astype(np.float64) for k in range(3))
            for corner in range(3):
                np.add.at(total, group[p.faces[:, corner]], np.cross(b - a, c - a))
    out: list[Primitive] = []
    for (p, rows), group in zip(parts, groups, strict=True):
        normals = p.normals
        if normals is not None:
            length = np.linalg.norm(total[group], axis=1, keepdims=True)
            fitting = total[group] / np.where(length > 0.0, length, 1.0)
            normals = np.where(length > 0.0, fitting, normals)
        out.append(replace(p, positions=positions[rows], normals=normals, tangents=None))
    return replace(mesh, primitives=tuple(out))


def _with_factors(scene: Scene, sources: Sources, read: Read) -> Scene:
    materials = list(scene.materials)
    meshes = list(scene.meshes)
    for m in sources.materials:
        new = m.material
        for kind, p in m.factors.items():
            if not p.in_use:
                continue
            value = [float(v) for v in read(p).reshape(-1)]
            if kind == "base_color":
                new = replace(new, base_color=tuple(value))  # type: ignore[arg-type]
            elif kind == "emissive_factor":
                strength = max(1.0, *value)  # glTF's factor is at most 1
                glow = tuple(v / strength for v in value)
                new = replace(new, emissive=glow, emissive_strength=strength)  # type: ignore[arg-type]
            else:
                new = with_field(new, kind.removesuffix("_factor"), value[0])
        for key in m.numbers:
            own = sources.table.one(key, m.name)
            if own is not None and own.in_use:
                new = with_number(new, key, tuple(float(v) for v in read(own).reshape(-1)))
        if m.row >= 0:
            materials[m.row] = new
        elif new is not m.material or any(ref.image < 0 for _, ref in m.maps.values()):
            materials.append(replace(new, name=m.name))
            meshes = [_with_material(mesh, len(materials) - 1) for mesh in meshes]
    return replace(scene, materials=tuple(materials), meshes=tuple(meshes))


def _with_material(mesh: SceneMesh, row: int) -> SceneMesh:
    given = [replace(p, material=row) if p.material is None else p for p in mesh.primitives]
    return replace(mesh, primitives=tuple(given))


def _with_maps(scene: Scene, sources: Sources, read: Read) -> Scene:
    """The scene with the maps that were in use, and with those that are new."""
    materials = sources.materials
    images = list(scene.images)
    rows = list(scene.materials)
    number = {m.name: (m.row if m.row >= 0 else len(rows) - 1) for m in materials}
    kinds_of: dict[int, set[str]] = {}
    for m in materials:
        for kind, (_, ref) in m.maps.items():
            if ref.image >= 0:
                kinds_of.setdefault(ref.image, set()).add(kind)
    split: dict[tuple[str, int], int] = {}
    written: set[str] = set()
    for m in materials:
        fresh = {k for k, (_, ref) in m.maps.items() if ref.image < 0}
        for kind, (p, ref) in m.maps.items():
            if kind in fresh:
                continue
            if p.in_use and p.name not in written:
                written.add(p.name)
                clash = any(_overlap(kind, k) for k in kinds_of[ref.image] - {kind})
                row = ref.image
                if clash:
                    row = split[kind, ref.image] = len(images)
                    images.append(replace(images[ref.image], name=f"{kind} of {p.owner}"))
                pixels = with_channels(kind, images[row].pixels, read(p))
                images[row] = replace(images[row], pixels=pixels)
            if (kind, ref.image) in split:
                mine = rows[number[m.name]]
                new = replace(ref, image=split[kind, ref.image])
                rows[number[m.name]] = with_field(mine, FIELDS[kind], new)
        for slot in sorted({FIELDS[k] for k in fresh}):
            kinds = [k for k in sorted(fresh) if FIELDS[k] == slot]
            pixels = _packed({k: read(m.maps[k][0]) for k in kinds})
            space: ColorSpace = "srgb" if kinds[0] in FILE_SRGB else "linear"
            ref = replace(m.maps[kinds[0]][1], image=len(images))
            images.append(Image(pixels, space, f"{slot.removesuffix('_map')} of {m.name}"))
            rows[number[m.name]] = with_field(rows[number[m.name]], slot, ref)
    return replace(scene, images=tuple(images), materials=tuple(rows))


def _overlap(a: str, b: str) -> bool:
    """Whether two kinds of maps read the same channels."""
    return CHANNELS[a] == CHANNELS[b] if a in CHANNELS and b in CHANNELS else True


def with_channels(kind: str, old: np.ndarray, value: np.ndarray) -> np.ndarray:
    """(H, W, C): the pixels of an image with the channels of a map replaced."""
    out = with_colors(old).copy()
    if kind in CHANNELS:
        k = CHANNELS[kind]
        out[..., k] = value[..., 0]
        return out
    out[..., :3] = value[..., :3]
    if value.shape[2] == 4:
        out[..., 3] = value[..., 3]
    return out


def _packed(maps: dict[str, np.ndarray]) -> np.ndarray:
    """(H, W, 3 or 4): a new image of one map of colours, or of maps of one value."""
    (first, value), *_ = maps.items()
    if first not in CHANNELS:
        return value
    height, width = (max(a.shape[axis] for a in maps.values()) for axis in (0, 1))
    out = np.ones((height, width, 3), np.float32)
    for kind, a in maps.items():
        rows = np.arange(height) * a.shape[0] // height
        columns = np.arange(width) * a.shape[1] // width
        out[..., CHANNELS[kind]] = a[rows][:, columns, 0]
    return out


def _lights_back(draft: _Draft, sources: Sources, read: Read) -> None:
    lights, table = sources.lights, sources.table
    rows = list(draft.scene.lights)
    by_leaf = {p.leaf: p for p in table}
    for row in lights.color:
        color, power = by_leaf[lights.color[row]], by_leaf[lights.log_intensity[row]]
        if color.in_use:
            value = tuple(float(v) for v in read(color).reshape(-1))
            rows[row] = replace(rows[row], color=value)  # type: ignore[arg-type]
        if power.in_use:
            rows[row] = replace(rows[row], intensity=float(read(power).reshape(-1)[0]))
    draft.scene = replace(draft.scene, lights=tuple(rows))
    for placed in lights.placed:
        world = draft.loaded[placed.node].copy()
        position = by_leaf.get(lights.position.get(placed.node))  # type: ignore[arg-type]
        direction = by_leaf.get(lights.direction.get(placed.node))  # type: ignore[arg-type]
        moved = position is not None and position.in_use
        turned = direction is not None and direction.in_use
        if moved and position is not None:
            world[:3, 3] = read(position).reshape(-1)
        if turned and direction is not None:
            world[:3, :3] = _facing(read(direction).reshape(-1))
        if moved or turned:
            draft.place(placed.node, world, "light")


def _facing(direction: np.ndarray) -> np.ndarray:
    """(3, 3) rotation whose -Z is the direction."""
    back = -np.asarray(direction, np.float64) / max(float(np.linalg.norm(direction)), 1e-30)
    up = np.array([0.0, 0.0, 1.0]) if abs(back[1]) > 0.9 else np.array([0.0, 1.0, 0.0])
    right = np.cross(up, back)
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(back, right), back], axis=1)


def _cameras_back(
    draft: _Draft, sources: Sources, cameras: Sequence[Camera], aspect: float
) -> None:
    in_use = {p.kind for p in sources.table if p.kind.startswith("camera_") and p.in_use}
    if not in_use:
        return
    if sources.camera_nodes is None:
        draft.notes.append("the cameras were not the scene's own and are left out")
        return
    if "camera_shift" in in_use:
        draft.notes.append("shifts of the principal point are left out: glTF has no place for them")
    rows = list(draft.scene.cameras)
    for node, camera in zip(sources.camera_nodes, cameras, strict=True):
        row = draft.nodes[node].camera
        assert row is not None
        if "camera_zoom" in in_use:
            x, y = abs(camera.projection[0, 0]) * aspect, abs(camera.projection[1, 1])
            if abs(x / y - 1.0) > 1e-4:
                draft.notes.append(
                    f"zooms of camera {camera.name} that differ in x and y are left out, their "
                    "mean is written: glTF has square pixels"
                )
            focal = float(np.sqrt(x * y))
            if rows[row].kind == "perspective":
                fov = float(2.0 * np.degrees(np.arctan(1.0 / focal)))
                lens = replace(rows[row], fov_y_deg=fov, aspect=aspect)
            else:
                lens = replace(rows[row], x_mag=aspect / focal, y_mag=1.0 / focal)
            shared = sum(n.camera == row for n in draft.nodes) > 1
            if shared:
                rows.append(lens)
                draft.nodes[node] = replace(draft.nodes[node], camera=len(rows) - 1)
            else:
                rows[row] = lens
        if in_use & {"camera_rotation", "camera_translation"}:
            draft.place(node, np.linalg.inv(camera.view), "camera")
    draft.scene = replace(draft.scene, cameras=tuple(rows))
