"""R10's hand-written files: each is broken in one way, and must be refused by name.

In: nothing. Out: ``Case`` entries: the bytes of a file, its ending, and a word that the error must
hold. Most start from one good document (``good``) and change one thing.
"""

from __future__ import annotations

import base64
import copy
import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Document = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One broken file. word: what the error's text must hold."""

    name: str
    ending: str
    data: bytes
    word: str


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int = 2, height: int = 2, depth: int = 8, rows: bytes | None = None) -> bytes:
    """Return a small RGB PNG; the size in its head and the bytes of its rows may disagree."""
    head = struct.pack(">IIBBBBB", width, height, depth, 2, 0, 0, 0)
    body = b"".join(b"\0" + bytes(range(6 * depth // 8)) for _ in range(2))
    data = zlib.compress(body if rows is None else rows)
    parts = _chunk(b"IHDR", head) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def good() -> tuple[Document, bytes]:
    """Return a good document and its buffer: a textured square, two nodes, a camera and a light."""
    buffer, views = _good_buffer()
    light = {"type": "spot", "spot": {"innerConeAngle": 0.1, "outerConeAngle": 0.5}}
    document: Document = {
        "asset": {"version": "2.0"},
        "extensionsUsed": ["KHR_lights_punctual"],
        "extensions": {"KHR_lights_punctual": {"lights": [light]}},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [
            {"children": [1], "extensions": {"KHR_lights_punctual": {"light": 0}}},
            {"mesh": 0, "camera": 0, "rotation": [0, 0, 0, 1]},
        ],
        "meshes": [{"primitives": [_GOOD_PRIMITIVE], "weights": [0.5]}],
        "materials": [{"pbrMetallicRoughness": {"baseColorTexture": {"index": 0}}}],
        "textures": [{"source": 0, "sampler": 0}],
        "samplers": [{"wrapS": 33071, "magFilter": 9729}],
        "images": [{"bufferView": 6, "mimeType": "image/png"}],
        "cameras": [{"type": "perspective", "perspective": {"yfov": 0.8, "znear": 0.1}}],
        "accessors": _good_accessors(),
        "bufferViews": views,
        "buffers": [{"byteLength": len(buffer)}],
    }
    return copy.deepcopy(document), buffer


_GOOD_PRIMITIVE: Document = {
    "attributes": {"POSITION": 0, "NORMAL": 1, "TEXCOORD_0": 2},
    "indices": 3,
    "material": 0,
    "targets": [{"POSITION": 4}],
}


def _good_buffer() -> tuple[bytes, list[Document]]:
    """Return the buffer of the good document, and its views."""
    points = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], "<f4")
    tables = [points, np.tile(np.array([0, 0, 1], "<f4"), (4, 1)), points[:, :2].astype("<f4")]
    parts = [t.tobytes() for t in tables]
    parts += [np.array([0, 1, 2, 0, 2, 3], "<u2").tobytes(), np.array([0, 2], "<u2").tobytes()]
    parts += [points[:2].tobytes(), png()]
    buffer, views = b"", []
    for part in parts:
        buffer += b"\0" * (-len(buffer) % 4)
        views.append({"buffer": 0, "byteOffset": len(buffer), "byteLength": len(part)})
        buffer += part
    return buffer, views


def _good_accessors() -> list[Document]:
    """Return positions, normals, UVs, indices, and the sparse positions of a morph target."""

    def accessor(view: int, kind: str, count: int, component: int = 5126) -> Document:
        entry = {"bufferView": view, "componentType": component}
        return entry | {"count": count, "type": kind}

    sparse = accessor(0, "VEC3", 4)
    sparse["sparse"] = {
        "count": 2,
        "indices": {"bufferView": 4, "componentType": 5123},
        "values": {"bufferView": 5},
    }
    return [
        accessor(0, "VEC3", 4),
        accessor(1, "VEC3", 4),
        accessor(2, "VEC2", 4),
        accessor(3, "SCALAR", 6, 5123),
        sparse,
    ]


def glb(document: Document, buffer: bytes) -> bytes:
    """Return the two as a GLB."""
    text = json.dumps(document).encode()
    text += b" " * (-len(text) % 4)
    body = buffer + b"\0" * (-len(buffer) % 4)
    chunks = struct.pack("<I4s", len(text), b"JSON") + text
    chunks += struct.pack("<I4s", len(body), b"BIN\0") + body
    return b"glTF" + struct.pack("<II", 2, 12 + len(chunks)) + chunks


def embedded(document: Document, buffer: bytes) -> bytes:
    """Return the two as a .gltf with its data inside."""
    uri = "data:application/octet-stream;base64," + base64.b64encode(buffer).decode()
    whole = copy.deepcopy(document)
    whole["buffers"][0]["uri"] = uri
    return json.dumps(whole).encode()


def _set(path: str, value: Any) -> Callable[[Document], None]:
    """Sets (or, for ``...``, deletes) what a path such as ``nodes.0.mesh`` names."""

    def change(document: Document) -> None:
        *way, last = [int(step) if step.isdigit() else step for step in path.split(".")]
        at: Any = document
        for step in way:
            at = at.setdefault(step, {}) if isinstance(at, dict) else at[step]
        if value is ...:
            del at[last]
        else:
            at[last] = value

    return change


_P = "meshes.0.primitives.0"
_M = "materials.0"
_DRACO = "KHR_draco_mesh_compression"
# name, path in the document, value (... deletes), word of the error
_KTX2 = (
    "data:image/ktx2;base64," + base64.b64encode(b"\xabKTX 20\xbb\r\n\x1a\n" + bytes(68)).decode()
)
"""A header of nothing but zeros."""

_CHANGES: tuple[tuple[str, str, Any, str], ...] = (
    ("no asset", "asset", ..., "asset"),
    ("glTF 1.0", "asset.version", "1.0", "1.0"),
    ("glTF 2.1 needed", "asset.minVersion", "2.1", "2.1"),
    ("asset is a list", "asset", [], "asset"),
    ("version is a number", "asset.version", 2.0, "string"),
    ("unknown required extension", "extensionsRequired", ["ACME_x"], "ACME_x"),
    ("meshopt required", "extensionsRequired", ["KHR_meshopt_compression"], "without meshopt"),
    ("extensions are numbers", "extensionsRequired", [7], "strings"),
    ("scene out of range", "scene", 1, "out of range"),
    ("root out of range", "scenes.0.nodes", [2], "out of range"),
    ("roots are an object", "scenes.0.nodes", {}, "list"),
    ("root is text", "scenes.0.nodes", ["0"], "integers"),
    ("nodes are an object", "nodes", {}, "list"),
    ("child out of range", "nodes.0.children", [9], "out of range"),
    ("child is negative", "nodes.0.children", [-1], "out of range"),
    ("child is text", "nodes.0.children", ["1"], "integers"),
    ("cycle of nodes", "nodes.1.children", [0], "node 0"),
    ("own child", "nodes.1.children", [1], "two parents"),
    ("mesh out of range", "nodes.1.mesh", 1, "out of range"),
    ("camera out of range", "nodes.1.camera", 5, "out of range"),
    ("light out of range", "nodes.0.extensions.KHR_lights_punctual.light", 5, "out of range"),
    ("quaternion of zeros", "nodes.1.rotation", [0, 0, 0, 0], "quaternion"),
    ("matrix of 9", "nodes.0.matrix", [1] * 9, "16"),
    ("matrix and rotation", "nodes.1.matrix", [1] * 16, "exclude"),
    ("matrix with projection", "nodes.0.matrix", [1] * 16, "last row"),
    ("scale beyond float32", "nodes.0.scale", [1e300, 1, 1], "3 numbers"),
    ("node weights of two", "nodes.1.weights", [1, 2], "weights"),
    ("mesh weights of two", "meshes.0.weights", [1, 2], "weights"),
    ("mesh without primitives", "meshes.0.primitives", [], "primitive"),
    ("no attributes", f"{_P}.attributes", ..., "attributes"),
    ("mode 7", f"{_P}.mode", 7, "mode"),
    ("mode is true", f"{_P}.mode", True, "mode"),
    ("material out of range", f"{_P}.material", 1, "out of range"),
    ("attribute out of range", f"{_P}.attributes.NORMAL", 50, "out of range"),
    ("attribute is a fraction", f"{_P}.attributes.NORMAL", 1.5, "integer"),
    ("positions of 2", f"{_P}.attributes.POSITION", 2, "VEC2"),
    ("normals of 2", f"{_P}.attributes.NORMAL", 2, "VEC2"),
    ("indices out of floats", f"{_P}.indices", 0, "unsigned"),
    ("indices out of range", f"{_P}.indices", 9, "out of range"),
    ("component 5124", "accessors.0.componentType", 5124, "5124"),
    ("type VEC5", "accessors.0.type", "VEC5", "VEC5"),
    ("count 0", "accessors.0.count", 0, "count"),
    ("count beyond the view", "accessors.0.count", 5, "elements"),
    ("count of trillions", "accessors.0.count", 10**12, "elements"),
    ("counts differ", "accessors.1.count", 3, "POSITION has 4"),
    ("five indices", "accessors.3.count", 5, "triangles"),
    ("offset beyond the view", "accessors.0.byteOffset", 100, "elements"),
    ("offset is negative", "accessors.0.byteOffset", -4, "byteOffset"),
    ("normalized floats", "accessors.0.normalized", True, "normalized"),
    ("stride too small", "bufferViews.0.byteStride", 4, "byteStride"),
    ("view beyond the buffer", "bufferViews.0.byteLength", 10**6, "buffer"),
    ("view of no buffer", "bufferViews.0.buffer", 1, "out of range"),
    ("view without length", "bufferViews.0.byteLength", ..., "byteLength"),
    ("accessor of no view", "accessors.0.bufferView", 99, "out of range"),
    ("sparse beyond count", "accessors.4.sparse.count", 9, "changed"),
    ("sparse of floats", "accessors.4.sparse.indices.componentType", 5126, "indices"),
    ("sparse without values", "accessors.4.sparse.values", ..., "values"),
    ("sparse indices fall", "accessors.4.sparse.indices.bufferView", 0, "rise"),
    ("metallic 2", f"{_M}.pbrMetallicRoughness.metallicFactor", 2, "metallic"),
    ("colour of 3", f"{_M}.pbrMetallicRoughness.baseColorFactor", [1, 1, 1], "4 numbers"),
    ("colour of text", f"{_M}.pbrMetallicRoughness.baseColorFactor", ["a"] * 4, "4 numbers"),
    ("alpha mode", f"{_M}.alphaMode", "CUTOUT", "CUTOUT"),
    ("double sided is 1", f"{_M}.doubleSided", 1, "true or false"),
    ("texture out of range", f"{_M}.pbrMetallicRoughness.baseColorTexture.index", 3, "out of"),
    ("texture without image", "textures.0.source", ..., "source"),
    ("sampler out of range", "textures.0.sampler", 1, "out of range"),
    ("wrap mode", "samplers.0.wrapS", 1, "wrapS"),
    ("image of nothing", "images.0", {}, "uri"),
    ("image is a folder", "images.0", {"uri": ".."}, "regular file"),
    ("image on the web", "images.0", {"uri": "http://x/y.png"}, "http"),
    ("image that is none", "images.0.bufferView", 0, "image"),
    ("broken image of KTX2", "images.0", {"uri": _KTX2}, "KTX"),
    ("camera of no kind", "cameras.0.type", "fisheye", "fisheye"),
    ("camera with near 0", "cameras.0.perspective.znear", 0, "near"),
    ("light of no kind", "extensions.KHR_lights_punctual.lights.0.type", "area", "area"),
    ("cone inside out", "extensions.KHR_lights_punctual.lights.0.spot.innerConeAngle", 1, "cone"),
)


def _patched(view: int, at: int, data: bytes) -> bytes:
    """Return the good GLB with some bytes of a view replaced."""
    document, buffer = good()
    start = document["bufferViews"][view]["byteOffset"] + at
    return glb(document, buffer[:start] + data + buffer[start + len(data) :])


def cases() -> list[Case]:
    """Return all hand-written files."""
    document, buffer = good()
    found = []
    for number, (name, path, value, word) in enumerate(_CHANGES):
        changed = copy.deepcopy(document)
        _set(path, value)(changed)
        make, ending = (glb, ".glb") if number % 2 else (embedded, ".gltf")
        found.append(Case(name, ending, make(changed, buffer), word))
    return [*found, *_broken_scenes(document, buffer), *_broken_images(), *_broken_meshes()]


def _broken_scenes(document: Document, buffer: bytes) -> list[Case]:
    """Return glTF files that are broken as files, not as documents."""
    whole, text = glb(document, buffer), json.dumps(document).encode()
    inside = embedded(document, buffer)
    draco = copy.deepcopy(document)
    _set(f"{_P}.extensions", {_DRACO: {}})(draco)
    _set("accessors.0.bufferView", ...)(draco)
    no_json = whole[:16] + b"BIN\0" + whole[20:]
    nan, restart = struct.pack("<f", float("nan")), struct.pack("<H", 65535)
    raw: tuple[tuple[str, str, bytes, str], ...] = (
        ("empty GLB", ".glb", b"", "JSON"),
        ("header only", ".glb", whole[:12], "truncated"),
        ("cut in the JSON", ".glb", whole[:200], "truncated"),
        ("cut in the data", ".glb", whole[:-40], "truncated"),
        ("GLB version 1", ".glb", whole[:4] + b"\1\0\0\0" + whole[8:], "version"),
        ("chunk too long", ".glb", whole[:12] + b"\xff\xff\xff\x7f" + whole[16:], "chunk"),
        ("first chunk is no JSON", ".glb", no_json, "JSON"),
        ("no JSON", ".gltf", text[:-1], "JSON"),
        ("no UTF-8", ".gltf", b"\xff\xfe" + text, "JSON"),
        ("a list", ".gltf", b"[]", "object"),
        ("deep lists", ".gltf", b"[" * 100000, "JSON"),
        ("NaN in the JSON", ".gltf", inside.replace(b"0.5", b"NaN", 1), "NaN"),
        ("infinite number", ".gltf", inside.replace(b"0.8", b"1e999", 1), "yfov"),
        ("no buffer", ".gltf", text, "uri"),
        ("vertices in Draco only", ".glb", glb(draco, buffer), _DRACO),
        ("bad base64", ".gltf", inside.replace(b"base64,", b"base64,*"), "64"),
        ("NaN in a vertex", ".glb", _patched(0, 16, nan), "element 1"),
        ("restart index", ".glb", _patched(3, 4, restart), "restart"),
        ("index of no vertex", ".glb", _patched(3, 4, b"\4\0"), "index 4"),
        ("sparse index too large", ".glb", _patched(4, 2, b"\4\0"), "below 4"),
    )
    return [Case(*entry) for entry in raw]


def _broken_images() -> list[Case]:
    bomb, bomb16 = png(60000, 60000), png(60000, 60000, 16)
    hdr = b"#?RADIANCE\nFORMAT=32-bit_rle_rgbe\n\n-Y 2 +X 8\n"
    raw: tuple[tuple[str, str, bytes, str], ...] = (
        ("empty PNG", ".png", b"", "image"),
        ("PNG cut", ".png", png()[:50], "image"),
        ("PNG bomb", ".png", bomb, "exceeds"),
        ("16-bit PNG bomb", ".png", bomb16, "MAX_IMAGE_PIXELS"),
        ("16-bit PNG cut", ".png", png(2, 2, 16)[:-5], "truncated"),
        ("16-bit PNG, short rows", ".png", png(2, 2, 16, b"\0" * 5), "bytes of pixels"),
        ("PNG checksum", ".png", png()[:29] + b"\0\0\0\0" + png()[33:], "image"),
        ("HDR cut", ".hdr", hdr + b"\2\2\0\x08\x88", "truncated"),
        ("HDR row too long", ".hdr", hdr + b"\2\2\0\x08\xff\0" + b"\0" * 80, "fit"),
        ("HDR bomb", ".hdr", hdr.replace(b"2 +X 8", b"99999 +X 99999"), "pixels"),
        ("HDR of XYZE", ".hdr", hdr.replace(b"rgbe", b"xyze"), "xyze"),
        ("EXR cut", ".exr", b"\x76\x2f\x31\x01\2\0\0\0", "image"),
    )
    return [Case(*entry) for entry in raw]


def _broken_meshes() -> list[Case]:
    row = b"0 0 0\n1 0 0\n0 1 0\n"
    ply = b"ply\nformat ascii 1.0\nelement vertex 3\nproperty float x\nproperty float y\n"
    ply += b"property float z\nelement face 1\nproperty list uchar int vertex_indices\nend_header\n"
    square = b"v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\n"
    raw: tuple[tuple[str, str, bytes, str], ...] = (
        ("OBJ, no faces", ".obj", square, "no faces"),
        ("OBJ index", ".obj", square + b"f 1 2 9\n", "line 5"),
        ("OBJ NaN", ".obj", b"v nan 0 0\n" + square + b"f 1 2 3\n", "line 1"),
        ("OBJ bow tie", ".obj", square + b"f 1 3 2 4\n", "crosses"),
        ("PLY of points", ".ply", ply.replace(b"face 1", b"face 0") + row, "no triangles"),
        ("PLY cut", ".ply", ply + row, "ply"),
        ("PLY index", ".ply", ply + row + b"3 0 1 7\n", "out of range"),
        ("PLY of a line", ".ply", ply + row + b"2 0 1\n", "2 corners"),
        ("PLY NaN", ".ply", ply + b"nan 0 0\n" + row[6:] + b"3 0 1 2\n", "vertex 0"),
        ("PLY of billions", ".ply", ply.replace(b"vertex 3", b"vertex 99999999999"), "header"),
        ("STL cut", ".stl", b"\0" * 80 + b"\2\0\0\0" + b"\0" * 50, "STL"),
        ("STL of nothing", ".stl", b"solid x\nendsolid x\n", "triangles"),
        ("STL text cut", ".stl", b"solid x\nfacet normal 0 0 1\nvertex 0 0 0\n", "truncated"),
        ("unknown ending", ".fbx", b"Kaydara", ".fbx"),
    )
    return [Case(*entry) for entry in raw]
