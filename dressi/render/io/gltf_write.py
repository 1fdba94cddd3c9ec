"""``Scene`` to glTF 2.0: .glb, or .gltf with its data beside it or inside.

In: a scene that passes ``check``. Out: files that any viewer opens: float32 attributes, 16 or
32-bit indices, PNG images, column-major node matrices, the extensions that the scene makes use of.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
import struct
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pygltflib as gltf

from dressi.errors import GraphError
from dressi.render.io.gltf_buffers import COMPONENTS, TYPES
from dressi.render.io.gltf_carried import brought_back, put_back, with_skins
from dressi.render.io.gltf_materials import FILTER_CODES, WRAP_CODES
from dressi.render.io.images import PathLike, atomic_write, encode_png
from dressi.render.scene.parts import (
    Image,
    Material,
    MorphTarget,
    Node,
    Primitive,
    PunctualLight,
    SceneCamera,
    SceneMesh,
    TextureRef,
)
from dressi.render.scene.scene import Scene

_UNMOVED = {"offset": [0.0, 0.0], "rotation": 0.0, "scale": [1.0, 1.0]}
_RESTART = 65535  # as a 16-bit index it means "restart", so that many vertices take 32 bits


def write_gltf(path: PathLike, scene: Scene, *, embed: bool = False) -> tuple[str, ...]:
    """Write a scene as .glb or .gltf, atomically; the name says which. Returns what was left out.

    scene: checked first. embed: for .gltf, put the data inside as base64; else they lie beside it,
    in files whose names hold a hash of their contents, so that a crash never leaves a .gltf with
    the data of another. Those that the .gltf before it named are removed after it. Left out:
    the environment. Images are 8 or 16-bit PNG (``Image.bit_depth``), clipped to [0, 1]; where
    that changes something the result says so. Raises GraphError (bad scene, other ending), OSError.
    """
    scene.check()
    suffix = Path(path).suffix.lower()
    target = Path(os.path.realpath(path))  # data lie beside the file that a link leads to
    if suffix not in (".glb", ".gltf"):
        raise GraphError(f"write_gltf: {Path(path).name}: .glb or .gltf is needed")
    writer = _Writer(scene)
    if suffix == ".glb":
        atomic_write(target, writer.glb())
    elif embed:
        atomic_write(target, writer.text(None))
    else:
        old = _own_files(target)
        beside: dict[str, bytes] = {}
        text = writer.text(beside, target.stem)
        made: list[Path] = []
        try:
            for name, data in beside.items():
                if not (target.parent / name).exists():  # named by content: it is the same
                    made.append(target.parent / name)
                    atomic_write(made[-1], data)
            atomic_write(target, text)
        except BaseException:
            for file in made:
                file.unlink(missing_ok=True)
            raise
        for name in old - set(beside):
            (target.parent / name).unlink(missing_ok=True)
    return tuple(writer.notes)


def _own_files(path: Path) -> set[str]:
    """Files that an earlier .gltf of ours names, by URI and by our pattern of names."""
    try:
        document = json.loads(path.read_bytes())
        uris = [b["uri"] for key in ("buffers", "images") for b in document.get(key, [])]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return set()  # not there, or not ours
    pattern = re.compile(re.escape(_plain(path.stem)) + r"\.[0-9a-f]{16}\.(bin|png)")
    return {uri for uri in uris if isinstance(uri, str) and pattern.fullmatch(uri)}


def _plain(name: str) -> str:
    """A part of a URI that needs no escapes."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:100] or "scene"


class _Writer:
    """Turns a scene into a document; the data gather in ``blob`` and ``pngs``."""

    def __init__(self, scene: Scene) -> None:
        self.notes: list[str] = []
        scene, skinned = with_skins(scene, self.notes)
        self.blob = bytearray()
        self.scene = scene
        self._rows: dict[tuple[str, Hashable], int] = {}
        self._extensions: set[str] = set()
        if scene.environment is not None:
            self.notes.append("the environment is left out: glTF has no place for it")
        if scene.strands:
            self.notes.append("strands are left out: they are read, and not written")
        self.pngs = [self._png(i, image) for i, image in enumerate(scene.images)]
        self.document = gltf.GLTF2(
            asset=gltf.Asset(version="2.0", generator="dressi", copyright=scene.copyright or None),
            scene=0,
            scenes=[gltf.Scene(nodes=list(scene.roots), name=scene.name or None)],
        )
        self.document.meshes = [self._mesh(mesh) for mesh in scene.meshes]
        self.document.materials = [self._material(material) for material in scene.materials]
        self.document.cameras = [self._camera(camera) for camera in scene.cameras]
        self.document.nodes = [self._node(node) for node in scene.nodes]
        if scene.lights:
            lights = {"lights": [self._light(light) for light in scene.lights]}
            self.document.extensions = {self._use("KHR_lights_punctual"): lights}
        self.document.extensionsUsed = sorted(self._extensions)
        self._back = brought_back(scene, skinned, self._raw_table, self.notes)

    # Containers

    def glb(self) -> bytes:
        for image, png in zip(self.scene.images, self.pngs, strict=True):
            view = self._view(png, None)
            entry = gltf.Image(bufferView=view, mimeType="image/png", name=image.name or None)
            self.document.images.append(entry)
        self._buffer(None)
        text = self._json()
        chunks = [(b"JSON", text + b" " * (-len(text) % 4))]
        chunks += [(b"BIN\0", bytes(self.blob))] if self.blob else []
        body = b"".join(struct.pack("<I4s", len(data), kind) + data for kind, data in chunks)
        return struct.pack("<4sII", b"glTF", 2, 12 + len(body)) + body

    def _json(self) -> bytes:
        document = json.loads(self.document.gltf_to_json())
        for node, entry in zip(self.scene.nodes, document.get("nodes", []), strict=True):
            if node.weights:  # pygltflib's nodes have none
                entry["weights"] = list(node.weights)
        self._add_extras(document)
        put_back(self._back, self.scene, document)
        return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()

    def _add_extras(self, document: dict[str, Any]) -> None:
        """Put the extras of all parts in: pygltflib takes objects only, glTF any JSON."""
        tables = ("nodes", "meshes", "materials", "images", "cameras")
        pairs: list[tuple[Any, Any]] = [(self.scene, document["scenes"][0])]
        for key in tables:
            pairs += zip(getattr(self.scene, key), document.get(key, []), strict=True)
        for mesh, entry in zip(self.scene.meshes, document.get("meshes", []), strict=True):
            pairs += zip(mesh.primitives, entry["primitives"], strict=True)
        for owner, entry in pairs:
            if owner.extras is None:
                continue
            names = entry.get("extras", {})  # those of blendshapes, which are ours
            if names and not isinstance(owner.extras, dict):
                where = f"mesh '{owner.name}'"
                self.notes.append(f"{where}: extras are left out, its blendshapes have names")
                continue
            entry["extras"] = {**owner.extras, **names} if names else owner.extras

    def text(self, beside: dict[str, bytes] | None, stem: str = "") -> bytes:
        """The JSON; the data go to ``beside`` by name, or inside where that is None."""

        def uri(data: bytes, ending: str, mime: str) -> str:
            if beside is None:
                return f"data:{mime};base64,{base64.b64encode(data).decode()}"
            name = f"{_plain(stem)}.{hashlib.sha256(data).hexdigest()[:16]}.{ending}"
            beside[name] = data
            return name

        for image, png in zip(self.scene.images, self.pngs, strict=True):
            entry = gltf.Image(uri=uri(png, "png", "image/png"), name=image.name or None)
            self.document.images.append(entry)
        if self.blob:
            self._buffer(uri(bytes(self.blob), "bin", "application/octet-stream"))
        return self._json()

    def _buffer(self, uri: str | None) -> None:
        if self.blob:
            self.blob.extend(b"\0" * (-len(self.blob) % 4))
            self.document.buffers = [gltf.Buffer(byteLength=len(self.blob), uri=uri)]

    # Data

    def _use(self, extension: str) -> str:
        self._extensions.add(extension)
        return extension

    def _view(self, data: bytes, target: int | None) -> int:
        self.blob.extend(b"\0" * (-len(self.blob) % 4))  # accessors start at multiples of 4
        view = gltf.BufferView(
            buffer=0, byteOffset=len(self.blob), byteLength=len(data), target=target
        )
        self.document.bufferViews.append(view)
        self.blob.extend(data)
        return len(self.document.bufferViews) - 1

    def _table(self, table: npt.NDArray[np.float32] | None, bounds: bool = False) -> int | None:
        if table is None:
            return None
        data = np.ascontiguousarray(table, "<f4").tobytes()
        accessor = gltf.Accessor(
            bufferView=self._view(data, gltf.ARRAY_BUFFER),
            componentType=gltf.FLOAT,
            count=len(table),
            type=f"VEC{table.shape[1]}",
        )
        if bounds:
            accessor.min, accessor.max = table.min(axis=0).tolist(), table.max(axis=0).tolist()
        self.document.accessors.append(accessor)
        return len(self.document.accessors) - 1

    def _raw_table(self, table: npt.NDArray[Any], normalized: bool) -> int:
        """An accessor with values (count, n) as they are, and their bounds."""
        codes = {v: k for k, v in COMPONENTS.items()}
        little = np.ascontiguousarray(table, table.dtype.newbyteorder("<"))
        accessor = gltf.Accessor(
            bufferView=self._view(little.tobytes(), None),
            componentType=codes[little.dtype],
            count=len(table),
            type={n: kind for kind, n in TYPES.items()}[table.shape[1]],
            normalized=normalized,
            min=table.min(axis=0).tolist(),
            max=table.max(axis=0).tolist(),
        )
        self.document.accessors.append(accessor)
        return len(self.document.accessors) - 1

    def _indices(self, faces: npt.NDArray[np.int32], n_vertices: int) -> int:
        is_small = n_vertices < _RESTART
        data = np.ascontiguousarray(faces, "<u2" if is_small else "<u4").tobytes()
        accessor = gltf.Accessor(
            bufferView=self._view(data, gltf.ELEMENT_ARRAY_BUFFER),
            componentType=gltf.UNSIGNED_SHORT if is_small else gltf.UNSIGNED_INT,
            count=int(faces.size),
            type=gltf.SCALAR,
            min=[int(faces.min())],
            max=[int(faces.max())],
        )
        self.document.accessors.append(accessor)
        return len(self.document.accessors) - 1

    def _png(self, i: int, image: Image) -> bytes:
        if image.pixels.min() < 0.0 or image.pixels.max() > 1.0:
            low, high = float(image.pixels.min()), float(image.pixels.max())
            text = f"image {i} '{image.name}' has values from {low:.4g} to {high:.4g}"
            self.notes.append(f"{text}; they are clipped to [0, 1]")
        return encode_png(image.pixels, image.color_space == "srgb", image.bit_depth)

    # The parts of the scene

    def _mesh(self, mesh: SceneMesh) -> Any:
        names = [target.name for target in mesh.primitives[0].targets]
        return gltf.Mesh(
            primitives=[self._primitive(primitive) for primitive in mesh.primitives],
            weights=list(mesh.weights) or None,
            name=mesh.name or None,
            extras={"targetNames": names} if any(names) else {},
        )

    def _primitive(self, primitive: Primitive) -> Any:
        indices = self._indices(primitive.faces, len(primitive.positions))
        attributes = gltf.Attributes(
            POSITION=self._table(primitive.positions, bounds=True),
            NORMAL=self._table(primitive.normals),
            TANGENT=self._table(primitive.tangents),
            COLOR_0=self._table(primitive.colors),
        )
        for k, uvs in enumerate(primitive.uvs):
            setattr(attributes, f"TEXCOORD_{k}", self._table(uvs))
        return gltf.Primitive(
            attributes=attributes,
            indices=indices,
            material=primitive.material,
            mode=gltf.TRIANGLES,
            targets=[self._target(target, primitive) for target in primitive.targets],
        )

    def _target(self, target: MorphTarget, primitive: Primitive) -> Any:
        positions = target.positions
        if positions is None and target.normals is None and target.tangents is None:
            positions = np.zeros_like(primitive.positions)  # glTF wants at least one table
        return gltf.Attributes(
            POSITION=self._table(positions, bounds=True),
            NORMAL=self._table(target.normals),
            TANGENT=self._table(target.tangents),
        )

    def _row(self, table: list[Any], kind: str, key: Hashable, entry: Any) -> int:
        """The row of an entry, added where its key is new."""
        if (kind, key) not in self._rows:
            table.append(entry)
            self._rows[kind, key] = len(table) - 1
        return self._rows[kind, key]

    def _info(self, ref: TextureRef | None, make: Any = gltf.TextureInfo, **more: float) -> Any:
        if ref is None:
            return None
        codes = {"magFilter": FILTER_CODES[ref.mag_filter]}
        codes["minFilter"] = FILTER_CODES[ref.min_filter]
        codes |= {"wrapS": WRAP_CODES[ref.wrap_u], "wrapT": WRAP_CODES[ref.wrap_v]}
        entry = gltf.Sampler(**codes)
        sampler = self._row(self.document.samplers, "sampler", tuple(codes.values()), entry)
        entry = gltf.Texture(sampler=sampler, source=ref.image)
        texture = self._row(self.document.textures, "texture", (sampler, ref.image), entry)
        info = make(index=texture, texCoord=ref.uv_set, **more)
        moves: dict[str, Any] = {"offset": list(ref.offset), "rotation": ref.rotation_rad}
        moves["scale"] = list(ref.scale)
        moves = {key: value for key, value in moves.items() if value != _UNMOVED[key]}
        if moves:
            info.extensions = {self._use("KHR_texture_transform"): moves}
        return info

    def _material(self, material: Material) -> Any:
        extensions: dict[str, Any] = {}
        if material.unlit:
            extensions[self._use("KHR_materials_unlit")] = {}
        if material.emissive_strength != 1.0:
            name = self._use("KHR_materials_emissive_strength")
            extensions[name] = {"emissiveStrength": material.emissive_strength}
        if material.clearcoat:
            extensions[self._use("KHR_materials_clearcoat")] = {
                "clearcoatFactor": material.clearcoat,
                "clearcoatRoughnessFactor": material.clearcoat_roughness,
            }
        if material.transmission:
            name = self._use("KHR_materials_transmission")
            extensions[name] = {"transmissionFactor": material.transmission}
        masked = material.alpha_mode == "MASK"
        return gltf.Material(
            pbrMetallicRoughness=gltf.PbrMetallicRoughness(
                baseColorFactor=list(material.base_color),
                metallicFactor=material.metallic,
                roughnessFactor=material.roughness,
                baseColorTexture=self._info(material.base_color_map),
                metallicRoughnessTexture=self._info(material.metallic_roughness_map),
            ),
            normalTexture=self._info(
                material.normal_map, gltf.NormalMaterialTexture, scale=material.normal_scale
            ),
            occlusionTexture=self._info(
                material.occlusion_map,
                gltf.OcclusionTextureInfo,
                strength=material.occlusion_strength,
            ),
            emissiveTexture=self._info(material.emissive_map),
            emissiveFactor=list(material.emissive),
            alphaMode=material.alpha_mode,
            alphaCutoff=material.alpha_cutoff if masked else None,  # glTF wants it for MASK only
            doubleSided=material.double_sided,
            name=material.name or None,
            extensions=extensions,
        )

    def _camera(self, camera: SceneCamera) -> Any:
        planes = {"znear": camera.near, "zfar": camera.far}
        lens = gltf.Orthographic(xmag=camera.x_mag, ymag=camera.y_mag, **planes)
        if camera.kind == "perspective":
            fov = math.radians(camera.fov_y_deg)
            lens = gltf.Perspective(yfov=fov, aspectRatio=camera.aspect, **planes)
        return gltf.Camera(type=camera.kind, name=camera.name or None, **{camera.kind: lens})

    def _light(self, light: PunctualLight) -> dict[str, Any]:
        entry: dict[str, Any] = {"type": light.kind, "color": list(light.color)}
        entry |= {"intensity": light.intensity, "range": light.range}
        if light.kind == "spot":
            inner, outer = light.inner_cone_rad, light.outer_cone_rad
            entry["spot"] = {"innerConeAngle": inner, "outerConeAngle": outer}
        entry |= {"name": light.name or None, "extras": light.extras}
        return {key: value for key, value in entry.items() if value is not None}

    def _node(self, node: Node) -> Any:
        entry = gltf.Node(
            name=node.name or None,
            mesh=node.mesh,
            camera=node.camera,
            children=list(node.children),
        )
        if not np.array_equal(node.matrix, np.eye(4)):
            entry.matrix = node.matrix.T.ravel().tolist()  # columns come first
        if node.light is not None:
            name = self._use("KHR_lights_punctual")
            entry.extensions = {name: {"light": node.light}}
        return entry
