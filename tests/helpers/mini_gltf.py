"""glTF files written by hand with struct and json, so that the reader has a second writer.

Nothing of dressi.render.io is used here. ``Mini`` gathers views and accessors; ``triangle`` is the
smallest scene. Types are NumPy's, kinds are glTF's.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path

import numpy as np

CODES = {"i1": 5120, "u1": 5121, "i2": 5122, "u2": 5123, "u4": 5125, "f4": 5126}
KINDS = {1: "SCALAR", 2: "VEC2", 3: "VEC3", 4: "VEC4"}
TRIANGLE = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]], "<f4")


class Mini:
    """One document in the making. doc: the JSON; data: the only buffer."""

    def __init__(self):
        self.doc = {"asset": {"version": "2.0"}, "bufferViews": [], "accessors": []}
        self.data = bytearray()

    def view(self, data, **more):
        self.data += b"\0" * (-len(self.data) % 4)
        entry = {"buffer": 0, "byteOffset": len(self.data), "byteLength": len(data)}
        self.doc["bufferViews"].append(entry | more)
        self.data += data
        return len(self.doc["bufferViews"]) - 1

    def accessor(self, values, dtype, **more):
        table = np.asarray(values).astype("<" + dtype)
        table = table.reshape(len(table), -1)
        entry = {
            "bufferView": self.view(table.tobytes()),
            "componentType": CODES[dtype],
            "count": len(table),
            "type": KINDS[table.shape[1]],
        }
        self.doc["accessors"].append(entry | more)
        return len(self.doc["accessors"]) - 1

    def primitive(self, positions=TRIANGLE, indices=None, index_type="u2", **more):
        attributes = {"POSITION": self.accessor(positions, "f4")} | more.pop("attributes", {})
        entry = {"attributes": attributes} | more
        if indices is not None:
            entry["indices"] = self.accessor(indices, index_type)
        return entry

    def scene(self, *primitives, **node):
        self.doc["meshes"] = [{"primitives": list(primitives)}]
        self.doc["nodes"] = [{"mesh": 0} | node]
        self.doc["scenes"], self.doc["scene"] = [{"nodes": [0]}], 0
        return self

    def document(self, uri=None):
        doc = {key: value for key, value in self.doc.items() if value != []}
        if self.data and "buffers" not in doc:
            doc["buffers"] = [{"byteLength": len(self.data)} | ({"uri": uri} if uri else {})]
        return doc

    def glb(self):
        text = json.dumps(self.document()).encode()
        text += b" " * (-len(text) % 4)
        body = bytes(self.data) + b"\0" * (-len(self.data) % 4)
        chunks = struct.pack("<I4s", len(text), b"JSON") + text
        if body:
            chunks += struct.pack("<I4s", len(body), b"BIN\0") + body
        return b"glTF" + struct.pack("<II", 2, 12 + len(chunks)) + chunks

    def embedded(self):
        uri = "data:application/octet-stream;base64," + base64.b64encode(self.data).decode()
        return json.dumps(self.document(uri)).encode()

    def save(self, folder, kind="glb", name="mini"):
        path = Path(folder) / f"{name}.{'glb' if kind == 'glb' else 'gltf'}"
        if kind == "external":
            (Path(folder) / "my data.bin").write_bytes(self.data)
            path.write_bytes(json.dumps(self.document("my%20data.bin")).encode())
        else:
            path.write_bytes(self.glb() if kind == "glb" else self.embedded())
        return path


def triangle(**more):
    """One triangle without indices."""
    mini = Mini()
    return mini.scene(mini.primitive(**more))


def png(pixels):
    """An 8-bit PNG of (H, W, 3 or 4) uint8, filter 0."""
    height, width, channels = pixels.shape

    def chunk(kind, body):
        check = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + check

    head = struct.pack(">IIBBBBB", width, height, 8, {3: 2, 4: 6}[channels], 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


UP = np.tile(np.array([0, 0, 1], "<f4"), (3, 1))
# Bound with joint 1 at x = 1: its inverse bind matrix, columns first.
BINDS = np.stack([np.eye(4), np.eye(4)])
BINDS[1, 3, 0] = -1.0


JOINTS = ((0, 1, 0, 0),) * 3
WEIGHTS = ((1, 0, 0, 0), (0.5, 0.5, 0, 0), (0, 2, 0, 0))


def skinned(weights=WEIGHTS, joint_type="u1", weight_type="f4"):
    mini = Mini()
    attributes = {
        "NORMAL": mini.accessor(UP, "f4"),
        "JOINTS_0": mini.accessor(JOINTS, joint_type),
        "WEIGHTS_0": mini.accessor(weights, weight_type, normalized=weight_type != "f4"),
    }
    mini.scene(mini.primitive(attributes=attributes))
    view = mini.view(BINDS.astype("<f4").tobytes())
    mini.doc["accessors"].append(
        {"bufferView": view, "componentType": 5126, "count": 2, "type": "MAT4"}
    )
    half = 0.5**0.5
    mini.doc["nodes"] = [
        {"mesh": 0, "skin": 0, "translation": [100, 0, 0]},
        {"children": [2], "translation": [0, 0, 5]},
        {"translation": [1, 0, 0], "rotation": [half, 0, 0, half]},  # y to z
    ]
    mini.doc["scenes"] = [{"nodes": [0, 1]}]
    mini.doc["skins"] = [{"joints": [1, 2], "inverseBindMatrices": len(mini.doc["accessors"]) - 1}]
    return mini
