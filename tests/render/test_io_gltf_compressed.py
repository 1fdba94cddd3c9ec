"""Draco and meshopt in glTF, packed by the packages' own encoders and compared with the tables that
went in; filters with their formulas. Skips what is not installed."""

from __future__ import annotations

import base64
import importlib.util
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dressi.errors import LoadError
from dressi.render.io import linear_to_srgb, load_scene, save_scene
from dressi.render.scene import Mesh, icosphere, scene_of

BALL = icosphere(2)
UVS = (0.5 * BALL.positions[:, :2] + 0.5).astype(np.float32)


def _document(tables: dict[str, np.ndarray], faces: np.ndarray) -> dict[str, Any]:
    """A document with accessors for the tables and the indices, without any bytes."""
    kinds = {2: "VEC2", 3: "VEC3", 4: "VEC4"}
    accessors = [
        {"componentType": 5126, "count": len(t), "type": kinds[t.shape[1]]} for t in tables.values()
    ]
    accessors.append({"componentType": 5125, "count": int(faces.size), "type": "SCALAR"})
    attributes = {name: k for k, name in enumerate(tables)}
    primitive = {"attributes": attributes, "indices": len(tables)}
    return {
        "asset": {"version": "2.0"},
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [primitive]}],
        "accessors": accessors,
        "buffers": [],
        "bufferViews": [],
    }


def _buffer(document: dict[str, Any], data: bytes) -> int:
    uri = "data:application/octet-stream;base64," + base64.b64encode(data).decode()
    document["buffers"].append({"byteLength": len(data), "uri": uri})
    return len(document["buffers"]) - 1


def _written(tmp_path: Path, document: dict[str, Any], extension: str) -> Path:
    document |= {"extensionsUsed": [extension], "extensionsRequired": [extension]}
    path = tmp_path / "packed.gltf"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def _draco(tmp_path: Path, **changes: Any) -> Path:
    draco = pytest.importorskip("DracoPy", reason="DracoPy is not installed")
    normals = BALL.positions / np.linalg.norm(BALL.positions, axis=1, keepdims=True)
    tables = {"POSITION": BALL.positions, "NORMAL": normals, "TEXCOORD_0": UVS}
    data = draco.encode(
        BALL.positions.astype(np.float64),
        BALL.faces.astype(np.uint32),
        quantization_bits=16,
        preserve_order=True,
        tex_coord=UVS.astype(np.float64),
        normals=normals.astype(np.float64),
    )
    kinds = {0: "POSITION", 1: "NORMAL", 3: "TEXCOORD_0"}
    decoded = draco.decode(data).attributes
    numbers = {kinds[a["attribute_type"]]: a["unique_id"] for a in decoded}
    document = _document(tables, BALL.faces)
    view = {"buffer": _buffer(document, changes.pop("data", data)), "byteLength": len(data)}
    document["bufferViews"].append(view)
    packed = {"bufferView": 0, "attributes": numbers, **changes}
    primitive = document["meshes"][0]["primitives"][0]
    primitive["extensions"] = {"KHR_draco_mesh_compression": packed}
    return _written(tmp_path, document, "KHR_draco_mesh_compression")


def test_a_draco_mesh_is_the_mesh_that_was_packed(tmp_path: Path) -> None:
    got = load_scene(_draco(tmp_path)).meshes[0].primitives[0]
    assert np.array_equal(got.faces, BALL.faces)
    # 16 bits over the longest side of the box.
    step = float(np.ptp(BALL.positions, axis=0).max()) / (2**16 - 1)
    assert np.abs(got.positions - BALL.positions).max() <= 0.51 * step
    assert got.normals is not None and np.allclose(got.normals, BALL.positions, atol=2e-3)
    assert np.abs(got.uvs[0] - UVS).max() <= 1e-6


def test_a_draco_mesh_that_is_broken_is_named(tmp_path: Path) -> None:
    path = _draco(tmp_path)
    document = json.loads(path.read_text(encoding="utf-8"))
    packed = document["meshes"][0]["primitives"][0]["extensions"]["KHR_draco_mesh_compression"]

    def broken(word: str) -> None:
        path.write_text(json.dumps(document), encoding="utf-8")
        with pytest.raises(LoadError, match=word):
            load_scene(path)

    packed["attributes"]["NORMAL"] = 99
    broken(r"attributes\.NORMAL: there is no attribute 99")
    packed["attributes"].pop("NORMAL")
    document["meshes"][0]["primitives"][0]["attributes"].pop("NORMAL")
    document["accessors"][0]["count"] = 5
    broken(r"accessors\[0\]\.count: .* are compressed, not \(5, 3\)")
    document["accessors"][0]["count"] = len(BALL.positions)
    _buffer(document, b"no Draco at all" * 9)
    document["bufferViews"][0] = {"buffer": 1, "byteLength": 135}
    broken("cannot be decoded")


def _meshopt(tmp_path: Path, tables: dict[str, np.ndarray], mode: str = "TRIANGLES") -> Path:
    meshopt = pytest.importorskip("meshoptimizer", reason="meshoptimizer is not installed")
    document = _document(tables, BALL.faces)
    flat = BALL.faces.astype(np.uint32).ravel()
    encode = {"TRIANGLES": meshopt.encode_index_buffer, "INDICES": meshopt.encode_index_sequence}
    packed = [(meshopt.encode_vertex_buffer(t), t.shape[1] * 4, len(t)) for t in tables.values()]
    packed.append((encode[mode](flat, flat.size, len(BALL.positions)), 4, flat.size))
    document["buffers"].append({"byteLength": 1 << 20, "extensions": {EXT: {"fallback": True}}})
    for k, (data, stride, count) in enumerate(packed):
        last = k == len(packed) - 1
        extension = {
            "buffer": _buffer(document, bytes(data)),
            "byteLength": len(bytes(data)),
            "byteStride": stride,
            "mode": mode if last else "ATTRIBUTES",
            "count": count,
        }
        view = {"buffer": 0, "byteLength": stride * count, "extensions": {EXT: extension}}
        document["bufferViews"].append(view)
        document["accessors"][k]["bufferView"] = k
    return _written(tmp_path, document, EXT)


EXT = "EXT_meshopt_compression"


@pytest.mark.parametrize("mode", ["TRIANGLES", "INDICES"])
def test_a_meshopt_mesh_is_the_mesh_that_was_packed_to_the_bit(tmp_path: Path, mode: str) -> None:
    tables = {"POSITION": BALL.positions, "NORMAL": BALL.positions, "TEXCOORD_0": UVS}
    got = load_scene(_meshopt(tmp_path, tables, mode)).meshes[0].primitives[0]
    assert np.array_equal(got.positions, BALL.positions) and np.array_equal(got.uvs[0], UVS)
    # The encoder may turn a triangle, which keeps its corners in order.
    first = BALL.faces.argmin(axis=1)
    want = np.take_along_axis(BALL.faces, (first[:, None] + np.arange(3)) % 3, axis=1)
    turned = got.faces.argmin(axis=1)
    assert np.array_equal(
        np.take_along_axis(got.faces, (turned[:, None] + np.arange(3)) % 3, axis=1), want
    )


def test_meshopt_filters_follow_their_formulas(tmp_path: Path) -> None:
    """EXPONENTIAL: a signed mantissa of 24 bits times 2 to the signed exponent above it."""
    rng = np.random.default_rng(3)
    exponents = rng.integers(-20, -10, BALL.positions.shape)
    mantissas = np.round(BALL.positions * 2.0 ** -exponents.astype(float)).astype(np.int64)
    words = ((exponents & 0xFF) << 24 | (mantissas & 0xFFFFFF)).astype(np.uint32)
    path = _meshopt(tmp_path, {"POSITION": words.view(np.float32)})
    document = json.loads(path.read_text(encoding="utf-8"))
    packed = document["bufferViews"][0]["extensions"][EXT]
    packed["filter"] = "EXPONENTIAL"
    path.write_text(json.dumps(document), encoding="utf-8")
    got = load_scene(path).meshes[0].primitives[0]
    want = (mantissas * 2.0**exponents).astype(np.float32)
    # Flat normals split the vertices: corners are compared, sorted.
    corners = want[BALL.faces].reshape(-1, 3)
    assert np.array_equal(_sorted(got.positions), _sorted(corners))
    for key, value, word in (
        ("filter", "COLOR", "'COLOR' is no filter of ATTRIBUTES"),
        ("mode", "POINTS", "'POINTS' is none of ATTRIBUTES"),
        ("count", 7, "cannot be decoded|are announced"),
    ):
        document["bufferViews"][0]["extensions"][EXT] = {**packed, key: value}
        path.write_text(json.dumps(document), encoding="utf-8")
        with pytest.raises(LoadError, match=word):
            load_scene(path)


def _sorted(rows: np.ndarray) -> np.ndarray:
    return rows[np.lexsort(rows.T)]


@pytest.mark.parametrize(
    ("name", "extra"),
    [("KHR_draco_mesh_compression", "draco"), (EXT, "meshopt"), ("KHR_texture_basisu", "basis")],
)
def test_without_the_package_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, extra: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    path = _written(tmp_path, _document({"POSITION": BALL.positions}, BALL.faces), name)
    with pytest.raises(LoadError, match=rf"{name} is required, and .*dressi\[{extra}\]"):
        load_scene(path)


KTX2 = {
    "UASTC": (
        "eNpb7R0SoWBksJuXS4qLAQgYgZgDiFkYEIARikEgA4h1gHgKlEYHB6C0AhoNU8vEoMGwjJGJgZmZgUEArqsezvoP"
        "BPJAGuis8qLMktQiBqfE4sxihdC8zLLUouLEHAUjPUMDiPvqgdpmq0Q3sunMeChkFFI2Y9edf7NVpJe+FJ8RLwjl"
        "AwBsGyWe"
    ),
    "ETC1S": (
        "eNpb7R0SoWBksJuXS4qLAQgYgZgDimGAEQlnALENEC8BYhUgPgFVMxVKxzJCaBYGVGADpZkYLBgWMzIxMDMD7YBb"
        "Yg9X9x8IHBjs+ZH58kAa6MzyosyS1CIGp8TizGKF0LzMstSi4sQcBSM9QwOQfcwMRkB1vECsh2Y3ExJWOOACFhPY"
        "cpjBlUEY4toTTbwJXmAWR5cKfwWDD6MAiON4icPhDyvIJytWrVoVFBoaypoA1c4gpMrBaMCoAGI2aHAaKCaAzGzx"
        "lW9lSGCChhoLgzXjHgYAuQsuYA=="
    ),
}
"""Files that the encoder of basis_universal wrote of ``_levels``, deflated."""


def _levels(codec: str) -> np.ndarray:
    if codec == "UASTC":  # slopes
        y, x = np.mgrid[0:4, 0:8]
        return np.stack([x * 30, y * 60, 255 - x * 30], axis=-1)
    picture = np.full((8, 8, 4), (200, 40, 40, 255))  # red and blue, the lower half transparent
    picture[:, 4:] = (40, 40, 200, 255)
    picture[4:, :, 3] = 0
    return picture


def _with_ktx2(tmp_path: Path, data: bytes, **texture: Any) -> Path:
    mesh = Mesh(BALL.positions, BALL.faces, UVS, BALL.faces)
    path = tmp_path / "packed.gltf"
    save_scene(path, scene_of(mesh, np.full((2, 2, 3), 0.5, np.float32)), embed=True)
    document = json.loads(path.read_text(encoding="utf-8"))
    uri = "data:image/ktx2;base64," + base64.b64encode(data).decode()
    document["images"].append({"uri": uri, "mimeType": "image/ktx2"})
    basis = {"KHR_texture_basisu": {"source": 1}}
    document["textures"][0] = {**texture, "extensions": basis}
    return _written(tmp_path, document, "KHR_texture_basisu")


@pytest.mark.parametrize("codec", KTX2)
def test_a_basis_texture_is_the_picture_that_was_packed(tmp_path: Path, codec: str) -> None:
    pytest.importorskip("opengl_basisu", reason="opengl_basisu is not installed")
    path = _with_ktx2(tmp_path, zlib.decompress(base64.b64decode(KTX2[codec])))
    (image,) = load_scene(path).images
    want = _levels(codec)
    got = image.pixels.copy()
    got[..., :3] = linear_to_srgb(got[..., :3])
    # Both codecs are lossy: their blocks of these pictures are within 3 of 255 levels.
    assert got.shape == want.shape and np.abs(got * 255.0 - want).max() < 3.01


def test_a_basis_texture_that_is_broken_is_named_and_a_png_goes_before_it(tmp_path: Path) -> None:
    pytest.importorskip("opengl_basisu", reason="opengl_basisu is not installed")
    data = zlib.decompress(base64.b64decode(KTX2["UASTC"]))
    assert load_scene(_with_ktx2(tmp_path, data[:-9], source=0)).images[0].pixels.shape == (2, 2, 3)
    with pytest.raises(LoadError, match=r"images\[1\]: not a readable image"):
        load_scene(_with_ktx2(tmp_path, data[:-9]))
