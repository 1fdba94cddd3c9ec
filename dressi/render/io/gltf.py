"""glTF 2.0 to ``Scene``: .gltf with external or embedded data, and .glb.

In: a path. Out: a ``Scene`` that passes ``check``; ``Scene.notes`` says what was left out. Read:
triangles of every kind with normals, tangents, UV sets, colours and blendshapes; metallic-roughness
materials; lines, as strands; nodes; cameras; ``EXTENSIONS``. Left out with a note: points, skins
(the rest pose is loaded), animations, further scenes, other extensions that the file does not
require.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dressi.errors import LoadError
from dressi.render.io.gltf_buffers import Buffers
from dressi.render.io.gltf_carried import Carrier
from dressi.render.io.gltf_compressed import EXTRAS, how_to_read, readable
from dressi.render.io.gltf_geometry import Geometry
from dressi.render.io.gltf_json import Json, parse
from dressi.render.io.gltf_materials import Materials
from dressi.render.io.gltf_skin import Skins, Weighted
from dressi.render.io.images import PathLike
from dressi.render.io.sources import blamed_on, read_file
from dressi.render.scene.checks import MAX_UV_SETS
from dressi.render.scene.flat import world_matrices
from dressi.render.scene.parts import (
    Matrix,
    Node,
    Primitive,
    PunctualLight,
    SceneCamera,
    SceneMesh,
    trs_matrix,
)
from dressi.render.scene.scene import Scene
from dressi.render.scene.strands import Strands

EXTENSIONS = (
    "EXT_texture_webp",
    "KHR_lights_punctual",
    "KHR_materials_clearcoat",
    "KHR_materials_emissive_strength",
    "KHR_materials_transmission",
    "KHR_materials_unlit",
    "KHR_mesh_quantization",
    "KHR_texture_transform",
)
"""What is read beyond the core of glTF 2.0, and written, but for WebP: images become PNG."""

_HINTS = {
    "KHR_meshopt_compression": "save the file without meshopt compression",
    "KHR_materials_pbrSpecularGlossiness": "convert the materials to metallic-roughness",
}


def read_gltf(path: PathLike) -> Scene:
    """Read a .gltf or .glb file; which of them it is, its first bytes say.

    path: the file; URIs in it are relative to its folder. Vertices without normals get flat ones,
    and are split for that. Materials are linear, images too. Raises LoadError with the file and the
    place in it, such as ``meshes[0].primitives[1].attributes.POSITION``: missing or truncated
    files, anything out of range, of a wrong type, not finite or against glTF's rules, nodes that
    are no tree, a required extension that is not among ``EXTENSIONS`` (it is named).
    """
    file = os.fspath(path)
    document, binary = parse(file, read_file(path, file))
    try:
        with blamed_on(file):  # errors of Scene.check name table, row and field
            return _Reader(document, Buffers(document, binary, path)).scene(Path(path))
    except MemoryError as error:
        raise LoadError(f"{file}: does not fit in memory", file, "file") from error


class _Reader:
    def __init__(self, document: Json, buffers: Buffers) -> None:
        self.document = document
        self.notes: list[str] = []
        self._check_asset()
        self.used = used = self._check_extensions()
        self.carrier = Carrier(document, buffers, (*EXTENSIONS, *EXTRAS), self.notes)
        self.materials = Materials(document, buffers, self.notes)
        self.skins = Skins(document, buffers)
        quantized = "KHR_mesh_quantization" in used
        self.geometry = Geometry(buffers, quantized, bool(self.skins.skins), self.notes)
        self.influences: dict[int, list[Weighted | None]] = {}  # by row of the meshes
        self.skin_of: dict[int, int] = {}  # node -> skin
        self.lines: dict[int, list[Strands]] = {}  # by number of a mesh of the document
        self.mesh_of: dict[int, int] = {}  # node -> number of its mesh in the document

    def _check_asset(self) -> None:
        asset = self.document.need("asset")
        version, needed = asset.text("version"), asset.text("minVersion", "2.0")
        if version.partition(".")[0] != "2":
            raise asset.fail(f"glTF {version!r} is not supported, only 2 is", "version")
        if needed != "2.0":
            raise asset.fail(f"glTF {needed!r} is needed, 2.0 is supported", "minVersion")

    def _check_extensions(self) -> set[str]:
        used, required = (
            self.document.array(key) for key in ("extensionsUsed", "extensionsRequired")
        )
        if not all(isinstance(name, str) for name in used + required):
            raise self.document.fail("extensions are named by strings", "extensionsUsed")
        for name in required:
            if name in EXTRAS and not readable(name):
                text = f"the extension {name} is required, and {how_to_read(name)}"
                raise self.document.fail(text, "extensionsRequired")
            if name not in EXTENSIONS and name not in EXTRAS:
                hint = f"; {_HINTS[name]}" if name in _HINTS else ""
                text = f"the extension {name} is required, and it is not supported{hint}"
                raise self.document.fail(text, "extensionsRequired")
        return {*used, *required}

    def scene(self, path: Path) -> Scene:
        document = self.document
        materials = [self.materials.read(m) for m in document.objects("materials")]
        meshes, rows = self._meshes(len(materials))
        cameras = [self._camera(camera) for camera in document.objects("cameras")]
        extension = document.extension("KHR_lights_punctual")
        lights = [] if extension is None else [self._light(x) for x in extension.objects("lights")]
        nodes = [
            self._node(i, n, rows, cameras, lights) for i, n in enumerate(document.objects("nodes"))
        ]
        name, extras, roots = self._roots(nodes)
        self._note_extras()
        scene = Scene(
            tuple(nodes),
            roots,
            tuple(meshes),
            tuple(materials),
            tuple(self.materials.images()),
            tuple(cameras),
            tuple(lights),
            name=name or path.stem,
            extras=extras,
            copyright=document.need("asset").text("copyright", ""),
        )
        filled = replace(scene, meshes=tuple(self._fill_uvs(scene, m) for m in scene.meshes))
        filled.check()
        posed, skinned = self.skins.pose(filled, self.skin_of, self.influences, self.notes)
        carried = self.carrier.collected(self.used, skinned)
        placed = replace(posed, strands=self._strands(posed), carried=carried)
        return replace(placed, notes=tuple(self.notes)).check()

    def _strands(self, scene: Scene) -> tuple[Strands, ...]:
        """The lines of all nodes, in the world."""
        return tuple(
            one.moved(world)
            for node, world in world_matrices(scene)
            for one in self.lines.get(self.mesh_of.get(node, -1), ())
        )

    def _meshes(self, n_materials: int) -> tuple[list[SceneMesh], list[int | None]]:
        """The meshes with triangles, and for each of the document its row among them."""
        meshes: list[SceneMesh] = []
        rows: list[int | None] = []
        for number, mesh in enumerate(self.document.objects("meshes")):
            extras = mesh.value.get("extras")
            names = extras.get("targetNames") if isinstance(extras, dict) else None
            names = [str(n) for n in names] if isinstance(names, list) else []
            if isinstance(extras, dict):
                extras = {key: x for key, x in extras.items() if key != "targetNames"} or None
            primitives: list[Primitive] = []
            for primitive in mesh.objects("primitives"):
                material = primitive.optional_row("material", range(n_materials), "materials")
                found = self.geometry.primitive(primitive, material, names)
                if found is not None:
                    self.carrier.part(primitive, "meshes", len(meshes), len(primitives))
                    primitives.append(found[0])
                    self.influences.setdefault(len(meshes), []).append(found[1])
                strands = self.geometry.strands(primitive, mesh.text("name", "") or "lines")
                if strands is not None:
                    self.lines.setdefault(number, []).append(strands)
            if not mesh.array("primitives"):
                raise mesh.fail("a mesh needs one primitive or more", "primitives")
            rows.append(len(meshes) if primitives else None)
            weights = mesh.numbers("weights", None, ())
            if primitives:
                self.carrier.part(mesh, "meshes", len(meshes))
                meshes.append(SceneMesh(tuple(primitives), weights, mesh.text("name", ""), extras))
        return meshes, rows

    def _fill_uvs(self, scene: Scene, mesh: SceneMesh) -> SceneMesh:
        """UVs of 0 where a material reads a set that the primitive lacks."""

        def filled(primitive: Primitive) -> Primitive:
            if primitive.material is None:
                return primitive
            sets = [ref.uv_set for ref in scene.materials[primitive.material].maps.values()]
            n = max(sets, default=-1) + 1
            if n <= len(primitive.uvs) or n > MAX_UV_SETS:
                return primitive
            self.notes.append(
                f"mesh '{mesh.name}': its material reads UV set {n - 1}, which it lacks; "
                f"it is (0, 0) everywhere"
            )
            zeros = np.zeros((len(primitive.positions), 2), np.float32)
            more = (zeros,) * (n - len(primitive.uvs))
            return replace(primitive, uvs=primitive.uvs + more)

        return replace(mesh, primitives=tuple(filled(p) for p in mesh.primitives))

    def _camera(self, camera: Json) -> SceneCamera:
        kind: Any = camera.text("type")
        name = camera.text("name", "")
        if kind not in ("perspective", "orthographic"):
            raise camera.fail(f"{kind!r} is neither perspective nor orthographic", "type")
        lens = camera.need(kind)
        shared: dict[str, Any] = {"name": name, "extras": camera.extras()}
        near = lens.number("znear")
        if kind == "perspective":
            fov_deg, aspect = math.degrees(lens.number("yfov")), lens.optional_number("aspectRatio")
            far = lens.optional_number("zfar")
            return SceneCamera(kind, fov_deg, aspect, near=near, far=far, **shared)
        x_mag, y_mag, far = (lens.number(key) for key in ("xmag", "ymag", "zfar"))
        return SceneCamera(kind, x_mag=x_mag, y_mag=y_mag, near=near, far=far, **shared)

    def _light(self, light: Json) -> PunctualLight:
        color: Any = light.numbers("color", 3, (1.0, 1.0, 1.0))
        inner, outer = self._cone(light.get("spot"))
        kind: Any = light.text("type")
        return PunctualLight(
            kind,
            color,
            light.number("intensity", 1.0),
            light.optional_number("range"),
            inner,
            outer,
            light.text("name", ""),
            light.extras(),
        )

    def _cone(self, cone: Json | None) -> tuple[float, float]:
        """Inner and outer angle, radians. A cone without a soft rim gets a thin one."""
        quarter = math.pi / 4
        if cone is None:
            return 0.0, quarter
        inner, outer = cone.number("innerConeAngle", 0.0), cone.number("outerConeAngle", quarter)
        if inner != outer or outer <= 0.0:
            return inner, outer
        thin = outer - min(1e-3, 0.5 * outer)
        text = f"innerConeAngle and outerConeAngle are both {outer:.6g}; the inner one is"
        self.notes.append(f"{cone.where}: {text} {thin:.6g}")
        return thin, outer

    def _matrix(self, node: Json) -> Matrix:
        if not node.has("matrix"):
            move = node.numbers("translation", 3, (0.0, 0.0, 0.0))
            rotation = node.numbers("rotation", 4, (0.0, 0.0, 0.0, 1.0))
            if not any(rotation):
                raise node.fail("a quaternion of zeros is no rotation", "rotation")
            return trs_matrix(move, rotation, node.numbers("scale", 3, (1.0, 1.0, 1.0)))
        if any(node.has(key) for key in ("translation", "rotation", "scale")):
            raise node.fail("a matrix and translation, rotation or scale exclude each other")
        return np.array(node.numbers("matrix", 16)).reshape(4, 4).T  # columns come first

    def _node(
        self,
        number: int,
        node: Json,
        rows: list[int | None],
        cameras: list[SceneCamera],
        lights: list[PunctualLight],
    ) -> Node:
        mesh = node.optional_row("mesh", rows, "meshes")
        if node.has("skin"):
            self.skin_of[number] = node.row("skin", self.skins.skins, "skins")
        shining = node.extension("KHR_lights_punctual")
        row = None if mesh is None else rows[mesh]
        if mesh is not None:
            self.mesh_of[number] = mesh
        weights = node.numbers("weights", None) if node.has("weights") else None
        return Node(
            self._matrix(node),
            node.rows("children", self.document.array("nodes"), "nodes"),
            row,
            node.optional_row("camera", cameras, "cameras"),
            None if shining is None else shining.row("light", lights, "lights"),
            None if row is None else weights,
            node.text("name", ""),
            node.extras(),
        )

    def _roots(self, nodes: list[Node]) -> tuple[str, Any, tuple[int, ...]]:
        """Name, extras and roots of the scene; ``nodes`` may lose a link that no scene draws."""
        scenes = self.document.objects("scenes")
        chosen = self.document.optional_row("scene", scenes, "scenes")
        if not scenes:
            children = {child for node in nodes for child in node.children}
            return "", None, tuple(i for i in range(len(nodes)) if i not in children)
        if len(scenes) > 1:
            self.notes.append(f"{len(scenes)} scenes; scenes[{chosen or 0}] is loaded")
        scene = scenes[chosen or 0]
        listed = scene.rows("nodes", nodes, "nodes")
        roots = self._top(nodes, list(dict.fromkeys(listed)), scene.where)
        if len(set(listed)) < len(listed):
            self.notes.append(f"{scene.where}.nodes lists a node twice; it is drawn once")
        return scene.text("name", ""), scene.extras(), roots

    def _top(self, nodes: list[Node], roots: list[int], where: str) -> tuple[int, ...]:
        """The roots that are no children; what the others are is decided here, with notes.

        glTF wants roots to have no parents. A root below another root is drawn once, where it
        stands in the tree, as viewers do that walk the tree; a root whose ancestors are in no way
        part of the scene is drawn without them.
        """
        parents = {child: i for i, node in enumerate(nodes) for child in node.children}
        kept = []
        for root in roots:
            above: list[int] = []
            at = root
            while at in parents and len(above) <= len(nodes):  # more is a cycle: refused later
                at = parents[at]
                above.append(at)
            text = f"{where}: nodes[{root}] '{nodes[root].name}' is a root"
            if not above or root in above:
                kept.append(root)
            elif set(above) & set(roots):
                text += f" and a child of nodes[{above[0]}]; it is drawn once, as the child"
                self.notes.append(text)
            else:
                kept.append(root)
                owner = nodes[above[0]]
                left = tuple(child for child in owner.children if child != root)
                nodes[above[0]] = replace(owner, children=left)
                text += f" and a child of nodes[{above[0]}], which the scene lacks; it is the root"
                self.notes.append(text)
        return tuple(kept)

    def _note_extras(self) -> None:
        """Name the extras that have no place in a ``Scene``."""
        document = self.document
        tables = ("accessors", "buffers", "bufferViews", "samplers", "skins", "textures")
        places = [(entry.where, entry) for key in tables for entry in document.objects(key)]
        named = [name for name, entry in places if entry.extras() is not None]
        if named:
            more = f" and {len(named) - 3} more" if len(named) > 3 else ""
            self.notes.append(f"extras of {', '.join(named[:3])}{more} are left out")
